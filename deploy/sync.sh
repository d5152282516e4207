#!/bin/bash
# sync.sh [--check]
#
# Dashboards (dashboards/*.json) and rules (deploy/prometheus/*.rules.yaml) are delivered by kustomize and by the Helm chart,
# which both want them in places and forms of their own. This writes these: lists, copies, and a PrometheusRule for each file
# of rules. Run it after a dashboard, a file of rules or a configuration was added, changed or removed.
#
#   dashboards/kustomization.yaml                       a ConfigMap for each dashboard
#   deploy/prometheus/kustomization.yaml                a ConfigMap with all rules, for a Prometheus without the Operator
#   deploy/kubernetes/components/prometheus-operator/rules.yaml
#   deploy/helm/perf-exporter/files/                    copies: a chart takes no files from outside
#
# --check changes nothing, and tells what is not current.
# Exit code: 0, 1 if --check finds something that is not current, 2 for wrong arguments.
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
# Each dashboard is a ConfigMap of its own, for one is at most 1 MiB, and is found by the sidecar of Grafana's chart.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
generatorOptions:
  # The sidecar loads a dashboard anew when it changes, so the name may stay.
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
# The rules as one ConfigMap, to be mounted where the rule_files of a Prometheus without the Operator are.
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

# One object for each file, with all of the file in it: whatever is in there stays as it is.
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

# copies FOLDER FILES...: the folder of the chart that is to have these files and no others
copies() {
  mkdir -p "$made/$chart/files/$1"
  [ $# -eq 1 ] || cp -- "${@:2}" "$made/$chart/files/$1/"
}

mkdir -p "$made/dashboards" "$made/deploy/prometheus" "$made/$kubernetes/components/prometheus-operator"
dashboards_kustomization >"$made/dashboards/kustomization.yaml"
rules_kustomization >"$made/deploy/prometheus/kustomization.yaml"
rules_objects >"$made/$kubernetes/components/prometheus-operator/rules.yaml"
copies dashboards "${dashboards[@]}"
copies rules "${rules[@]}"
copies config
for pair in metrics:base profiles:components/profiles full:components/probes restricted:overlays/restricted; do
  cp "$kubernetes/${pair#*:}/perf-exporter.yaml" "$made/$chart/files/config/${pair%%:*}.yaml"
done

# What is to be there, and what is there: of the chart's folders also what has no source any more.
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
  echo "sync.sh: these files are not current: run deploy/sync.sh" >&2
  exit 1
fi
