#!/bin/bash
# sync.sh [--check]
#
# Kustomize and the Helm chart need dashboards (dashboards/*.json), rules (deploy/prometheus/*.rules.yaml), configurations and the
# schema of the configuration in their own directories and formats. This script generates them: lists, copies, a PrometheusRule for
# each rule file, and the schema of the chart's values. Run it after one of these files was added, changed or removed. Requires python3.
#
#   dashboards/kustomization.yaml                       a ConfigMap for each dashboard
#   deploy/prometheus/kustomization.yaml                a ConfigMap with all rules, for a Prometheus without the Operator
#   deploy/kubernetes/components/prometheus-operator/rules.yaml
#   deploy/helm/perf-exporter/files/                    copies, because a chart cannot contain files from outside
#   deploy/helm/perf-exporter/values.schema.json        deploy/helm/values.schema.json with config/schema.json for the value `config`
#
# --check changes nothing, and lists outdated files.
# Exit code: 0, 1 if --check finds outdated files, 2 for wrong arguments.
set -euo pipefail

case ${1-} in
  '') check=false ;;
  --check) check=true ;;
  *)
    echo "usage: sync.sh [--check]" >&2
    exit 2
    ;;
esac
cd "$(dirname "$(readlink -f "$0")")/.."
shopt -s nullglob
made=$(mktemp -d "${TMPDIR:-/tmp}/sync.XXXXXX")
trap 'rm -rf "$made"' EXIT
dashboards=(dashboards/*.json)
rules=(deploy/prometheus/*.rules.yaml)
kubernetes=deploy/kubernetes
chart=deploy/helm/perf-exporter
written='# Written by deploy/sync.sh.'

# stem FILE SUFFIX: the name of a file without folder and suffix
stem() {
  local name=${1##*/}
  echo "${name%"$2"}"
}

dashboards_kustomization() {
  cat <<END
$written
# Each dashboard is a separate ConfigMap, because a ConfigMap is limited to 1 MiB. The sidecar of Grafana's chart discovers them.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
generatorOptions:
  # The sidecar reloads a changed dashboard, so the name needs no hash.
  disableNameSuffixHash: true
  labels:
    app.kubernetes.io/name: perf-exporter
    grafana_dashboard: "1"
  annotations:
    grafana_folder: perf-exporter
configMapGenerator:
END
  local file
  for file in "${dashboards[@]}"; do
    printf -- '  - name: perf-exporter-dashboard-%s\n    files: [%s]\n' "$(stem "$file" .json)" "${file##*/}"
  done
}

rules_kustomization() {
  cat <<END
$written
# The rules as one ConfigMap. Mount it in the rule_files directory of a Prometheus without the Operator.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
generatorOptions:
  disableNameSuffixHash: true
  labels: {app.kubernetes.io/name: perf-exporter}
configMapGenerator:
  - name: perf-exporter-rules
    files:
END
  local file
  for file in "${rules[@]}"; do
    echo "      - ${file##*/}"
  done
}

# One object for each file, with the unchanged content of the file.
rules_objects() {
  echo "$written"
  local file
  for file in "${rules[@]}"; do
    cat <<END
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: perf-exporter-$(stem "$file" .rules.yaml)
  labels: {app.kubernetes.io/name: perf-exporter}
spec:
END
    sed -e '/^---$/d' -e 's/^\(.\)/  \1/' "$file"
  done
}

# copies FOLDER FILES...: creates a folder of the chart with exactly these files
copies() {
  mkdir -p "$made/$chart/files/$1"
  [ $# -eq 1 ] || cp -- "${@:2}" "$made/$chart/files/$1/"
}

# Puts the schema of the configuration into that of the values. JSON Schema draft 7 is the newest that all versions of helm support:
# definitions have another name there, and a format that it does not define is left out. Examples only serve editors.
values_schema() {
  python3 - "$1" "$2" <<'END'
import json
import sys


def converted(node, names=False):
    if isinstance(node, list):
        return [converted(part) for part in node]
    if not isinstance(node, dict):
        return node
    kept = {key: part for key, part in node.items() if names or key not in ("format", "examples", "default", "$schema", "$defs", "title")}
    if not names and isinstance(kept.get("$ref"), str):
        kept["$ref"] = kept["$ref"].replace("#/$defs/", "#/definitions/config.")
    return {key: converted(part, not names and key == "properties") for key, part in kept.items()}


values, config = (json.load(open(path)) for path in sys.argv[1:])
definitions = values["definitions"]
definitions["config"] = converted(config)
definitions.update({f"config.{name}": converted(part) for name, part in config["$defs"].items()})
print(json.dumps(values, indent=1))
END
}

mkdir -p "$made/dashboards" "$made/deploy/prometheus" "$made/$kubernetes/components/prometheus-operator"
dashboards_kustomization >"$made/dashboards/kustomization.yaml"
rules_kustomization >"$made/deploy/prometheus/kustomization.yaml"
rules_objects >"$made/$kubernetes/components/prometheus-operator/rules.yaml"
copies dashboards "${dashboards[@]}"
copies rules "${rules[@]}"
values_schema deploy/helm/values.schema.json config/schema.json >"$made/$chart/values.schema.json"
copies config
for pair in metrics:base profiles:components/profiles full:components/probes least-privilege:overlays/least-privilege; do
  cp "$kubernetes/${pair#*:}/perf-exporter.yaml" "$made/$chart/files/config/${pair%%:*}.yaml"
done

# Compares generated files with existing ones, including files of the chart that no longer have a source.
stale=0
while IFS= read -r file; do
  if ! cmp -s "$made/$file" "$file"; then
    stale=$((stale + 1))
    echo "$file"
    if ! $check && [ -e "$made/$file" ]; then
      mkdir -p "$(dirname "$file")"
      cp "$made/$file" "$file"
    elif ! $check; then
      rm "$file"
    fi
  fi
done < <({
  cd "$made" && find . -type f
  cd "$OLDPWD" && find "./$chart/files" -type f 2>/dev/null
} | sed 's|^\./||' | sort -u)
if $check && [ $stale -gt 0 ]; then
  echo "sync.sh: these files are outdated: run deploy/sync.sh" >&2
  exit 1
fi
