#!/bin/bash
# manifests.sh EXPORTER
#
# Renders deploy/kubernetes with kustomize and deploy/helm/perf-exporter with helm, in all supported variants. Compares the results with the
# schemas of Kubernetes and of the Prometheus Operator, with docs/privileges.md, and with each other. Every contained configuration must
# pass `perf-exporter check`. Then runc runs each kind of pod on this machine, where it must measure all that its mode supports.
# Requires python3. The pods require root, runc, curl, setcap (libcap2-bin) and readelf (binutils); otherwise they are skipped, or fail if
# PERF_EXPORTER_REQUIRE names `container`. kustomize and helm are built from Go modules unless they are installed; schemas come from PyPI
# and a Go module. If these are not available, that part is skipped with a reason, or fails if PERF_EXPORTER_REQUIRE names `manifests`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: manifests.sh EXPORTER}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/lib.sh"

# Cache for later runs: packages and programs.
cache=${MANIFESTS_CACHE:-$(dirname "$exporter")/../interop}
go=$(PATH=$PATH:/usr/local/go/bin command -v go || true)
HELM=helm.sh/helm/v3/cmd/helm@v3.19.5
KUSTOMIZE=sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
OPERATOR=github.com/prometheus-operator/prometheus-operator@v0.85.0
# Kubernetes 1.30 introduced appArmorProfile; helm omits it for older versions. Without a cluster, helm needs the version as an option.
versions=(1.30 1.33 1.36)
usual=1.33
older=1.27

judge() {
  "$cache/manifests/bin/python" "$here/manifests.py" "$@"
}

install_schemas() {
  if [ -x "$cache/manifests/bin/python" ] && "$cache/manifests/bin/python" -c 'import kubernetes_validate, yaml, jsonschema' 2>/dev/null; then
    return
  fi
  if ! { python3 -m venv "$cache/manifests" &&
    timeout 180 "$cache/manifests/bin/pip" install -q --timeout 15 --retries 1 'kubernetes-validate>=1.36' pyyaml; } >"$scratch/pip.log" 2>&1; then
    rm -rf "$cache/manifests"
    lacks manifests "the manifests" "pip could not install kubernetes-validate: $(tail -n 1 "$scratch/pip.log")"
    return 1
  fi
}

# tool NAME MODULE: sets the variable NAME to the path of the program, which is built if it is not installed
tool() {
  local path
  if path=$(command -v "$1") || { path=$cache/bin/$1 && [ -x "$path" ]; }; then
    printf -v "$1" %s "$path"
    return
  fi
  if [ -z "$go" ]; then
    lacks manifests "the manifests by $1" "it is not installed, and Go is missing"
    return 1
  fi
  if ! GOBIN=$cache/bin timeout 900 "$go" install "$2" >"$scratch/go.log" 2>&1; then
    lacks manifests "the manifests by $1" "it could not be built: $(tail -n 1 "$scratch/go.log")"
    return 1
  fi
  printf -v "$1" %s "$cache/bin/$1"
}

# Copies dashboards and rules. If there are none, it creates examples to check that they would be delivered.
copy_sources() {
  local name
  mkdir -p "$sources"
  for name in deploy dashboards config docs; do
    cp -r "$here/../../$name" "$sources/$name"
  done
  if [ -z "$(compgen -G "$sources/dashboards/*.json")" ]; then
    echo '{"title": "Made up", "panels": [], "templating": {"list": [{"query": "label_values({{x}}, pod)"}]}}' \
      >"$sources/dashboards/made-up.json"
  fi
  if [ -z "$(compgen -G "$sources/deploy/prometheus/*.rules.yaml")" ]; then
    cat >"$sources/deploy/prometheus/made-up.rules.yaml" <<'END'
# Braces are syntax of Prometheus here, not of helm.
groups:
  - name: made-up
    rules:
      - alert: MadeUp
        expr: up == 0
        annotations:
          summary: "{{ $labels.instance }} is at {{ $value | humanize }}"
          description: |
            Two lines:

            and an empty one between.
END
  fi
  "$sources/deploy/sync.sh" >"$scratch/synced"
}

# kustomized NAME FOLDER
kustomized() {
  expect "kustomize builds $2" rendered "$1" "$kustomize" build "$sources/deploy/kubernetes/$2"
}

# helmed NAME ARGUMENTS...
helmed() {
  expect "helm renders it with: ${*:2}" rendered "$1" "$helm" template perf-exporter "$chart" --namespace perf-exporter \
    --kube-version "$usual" "${@:2}"
}

rendered() {
  "${@:2}" >"$scratch/out/$1.yaml" 2>"$scratch/rendering.log" || {
    cat "$scratch/rendering.log"
    return 1
  }
}

# refused WORDS ARGUMENTS...: checks that helm rejects these arguments with these words in its message
refused() {
  ! "$helm" template perf-exporter "$chart" --kube-version "$usual" "${@:2}" >/dev/null 2>"$scratch/rendering.log" && grep -q -- "$1" "$scratch/rendering.log"
}

# Creates a kustomization of the base with other components, as users write it.
with_components() {
  local component
  mkdir -p "$sources/deploy/kubernetes/overlays/$1"
  {
    printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s]\ncomponents:\n' "$2"
    for component in "${@:3}"; do
      echo "  - ../../components/$component"
    done
  } >"$sources/deploy/kubernetes/overlays/$1/kustomization.yaml"
  kustomized "kustomize-$1" "overlays/$1"
}

check_kustomize() {
  local overlay files=()
  expect "the files written by sync.sh are current" "$here/../../deploy/sync.sh" --check
  kustomized kustomize-top .
  for overlay in "${overlays[@]}"; do
    kustomized "kustomize-$overlay" "overlays/$overlay"
    files+=("$scratch/out/kustomize-$overlay.yaml")
  done
  with_components authorized ../default authorization
  with_components all ../full authorization selinux seccomp node-critical network-policy prometheus-operator dashboards
  expect "kubectl apply -k deploy/kubernetes is the overlay default" judge same "$scratch/out/kustomize-top.yaml" "$scratch/out/kustomize-default.yaml"
  expect "the rules for a Prometheus without the Operator are one ConfigMap" "$kustomize" build "$sources/deploy/prometheus" -o "$scratch/rules.yaml"
  least kustomize-default metrics cri
  least kustomize-profiles profiles cri
  least kustomize-full full cri
  least kustomize-least-privilege least-privilege api-server
  least kustomize-api-server metrics api-server
  least kustomize-kubelet metrics kubelet
  least kustomize-prometheus-operator metrics cri
  expect "the documented command removes what a switch of overlays leaves" judge prunes "$sources/deploy/kubernetes/README.md" \
    "${files[@]}" "$scratch/out/kustomize-all.yaml"
}

# least FILE MODE NAMES
least() {
  expect "$1 has the privileges of $2 with metadata from $3, no more" judge least "$2" "$3" "$sources/docs/privileges.md" "$scratch/out/$1.yaml"
}

check_helm() {
  cat >"$scratch/customized.yaml" <<'END'
commonLabels: {team: a}
config: {web: {tls_server_config: {cert_file: /certificates/tls.crt, key_file: /certificates/tls.key}}}
dnsConfig: {options: [{name: ndots, value: "1"}]}
dnsPolicy: Default
extraContainers: [{name: proxy, image: "proxy:1"}]
extraVolumeMounts: [{name: certificates, mountPath: /certificates, readOnly: true}]
extraVolumes: [{name: certificates, secret: {secretName: certificates}}]
priorityClass: {value: 7, preemptionPolicy: Never}
probes: {liveness: {failureThreshold: 9}}
updateStrategy: {rollingUpdate: {maxUnavailable: 5%}}
END
  local operated=(--set 'monitor.enabled=true,rules.enabled=true,dashboards.enabled=true,networkPolicy.enabled=true')
  expect "helm lint finds no errors" "$helm" lint --strict --quiet "$chart"
  helmed helm-metrics
  helmed helm-profiles --set mode=profiles
  helmed helm-full --set mode=full
  helmed helm-least-privilege --set mode=least-privilege
  helmed helm-api --set names=api-server
  helmed helm-kubelet --set names=kubelet
  helmed helm-proxy --set names=kubelet --kube-version "$older"
  helmed helm-authorized --set authorization.enabled=true
  helmed helm-nobody --set mode=least-privilege,names=off
  helmed helm-off --set names=off,serviceAccount.create=false,service.enabled=false
  helmed helm-older --set mode=full "${operated[@]}" --kube-version "$older"
  helmed helm-operated "${operated[@]}"
  helmed helm-thresholds --set rules.enabled=true,rules.thresholds.forks=500,rules.namespaceThresholds.batch.forks=2000
  expect "it has the thresholds of the values" grep -q 'record: "perf:forks:limit", expr: vector(500)}' "$scratch/out/helm-thresholds.yaml"
  expect "and those of namespaces" \
    grep -q 'record: "perf:forks:limit", expr: vector(2000), labels: {namespace: "batch"}}' "$scratch/out/helm-thresholds.yaml"
  expect "a misspelled threshold is rejected with the known ones" refused "rules.thresholds.fork: no such threshold; available: busy_cpu_seconds" \
    --set rules.enabled=true,rules.thresholds.fork=500
  helmed helm-service "${operated[@]}" --set monitor.kind=ServiceMonitor --set-string monitor.labels.release=x
  helmed helm-changed --set mode=profiles,config.limits.series=100,'extraCapabilities={SYS_NICE}',priorityClassName=system-node-critical \
    --set seLinuxOptions.type=spc_t,image.repository=registry.example/pe --set-string podLabels.team=a,podAnnotations.b=c
  helmed helm-customized --values "$scratch/customized.yaml" --set networkPolicy.enabled=true,service.port=80
  expect "values for pods and labels have an effect" judge customized "$scratch/out/helm-customized.yaml"
  expect "older clusters have the right that their kubelets know" grep -q 'nodes/proxy' "$scratch/out/helm-proxy.yaml"
  least helm-metrics metrics cri
  least helm-profiles profiles cri
  least helm-full full cri
  least helm-least-privilege least-privilege api-server
  least helm-api metrics api-server
  least helm-kubelet metrics kubelet
  least helm-off metrics off
  least helm-nobody least-privilege off
  expect "without metadata sources there are none in the manifest" asks_nobody
  expect "an unknown mode is rejected" refused mode --set mode=metric
  expect "an unused value is rejected" refused reosurces --set reosurces.x=1
  expect "an unknown key of the configuration is rejected" refused seriess --set config.limits.seriess=1
  expect "a wrong value of the configuration is rejected" refused depth --set config.cgroups.depth=deep
  expect "a label that the chart sets is rejected" refused app.kubernetes.io/name --set 'commonLabels.app\.kubernetes\.io/name=x'
  expect "the prefix CAP_ of a capability is rejected" refused extraCapabilities --set 'extraCapabilities={CAP_SYS_NICE}'
  expect "the runtime's socket is rejected for users other than root" refused "names: cri" --set mode=least-privilege,names=cri
  expect "a changed value of the configuration is in the manifest" grep -q '^      series: 100' "$scratch/out/helm-changed.yaml"
}

asks_nobody() {
  grep -q 'cri: "off"' "$scratch/out/helm-nobody.yaml" && ! grep -q api_server "$scratch/out/helm-nobody.yaml"
}

# The overlay and the chart's mode of each pair must be equal.
check_both() {
  local pair
  for pair in default:metrics profiles:profiles full:full least-privilege:least-privilege api-server:api kubelet:kubelet prometheus-operator:operated; do
    expect "the overlay ${pair%:*} and the chart's ${pair#*:} are equal" \
      judge same "$scratch/out/kustomize-${pair%:*}.yaml" "$scratch/out/helm-${pair#*:}.yaml"
  done
}

check_schemas() {
  local version files=("$scratch"/out/*.yaml) newer=()
  mapfile -t newer < <(printf '%s\n' "${files[@]}" | grep -v 'helm-older')
  for version in "${versions[@]}"; do
    expect "all objects are valid for Kubernetes $version" judge schemas "$version" "${newer[@]}"
  done
  if [ -f "$scratch/out/helm-older.yaml" ]; then
    expect "the objects of helm for Kubernetes $older are valid" judge schemas "$older" "$scratch/out/helm-older.yaml"
  fi
  expect "references between objects are valid" judge whole "${files[@]}"
  local delivered
  delivered=$(compgen -G "$scratch/out/*-operator.yaml" || compgen -G "$scratch/out/helm-operated.yaml")
  expect "all rules are delivered" judge delivers "$delivered" "$sources"/deploy/prometheus/*.rules.yaml
  check_operator
}

check_operator() {
  local crds=$cache/operator-crds
  if [ ! -d "$crds" ]; then
    local dir=''
    if [ -n "$go" ]; then
      dir=$(cd "$scratch" && timeout 300 "$go" mod download -json "$OPERATOR" 2>"$scratch/go.log" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    fi
    if [ -z "$dir" ]; then
      lacks manifests "the objects of the Prometheus Operator" "its Go module could not be downloaded"
      return
    fi
    mkdir "$crds"
    cp "$dir"/example/prometheus-operator-crd/*_{podmonitors,servicemonitors,prometheusrules}.yaml "$crds/"
    chmod u+w "$crds"/*
  fi
  expect "the objects of the Prometheus Operator are valid" judge custom "$crds" "$scratch"/out/*.yaml
}

check_configs() {
  local file
  mkdir "$scratch/configs"
  judge configs "$scratch/configs" "$scratch"/out/*.yaml
  for file in "$scratch"/configs/*.yaml; do
    expect "perf-exporter accepts the configuration of $(basename "$file" .yaml)" checked "$file"
  done
}

checked() {
  KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=1 NODE_NAME=here \
    "$exporter" check --no-open --config "$1" >"$scratch/checked" 2>&1 && grep -q 'no errors, no warnings' "$scratch/checked" || {
    cat "$scratch/checked"
    return 1
  }
}

# Runs the containers of the pods without a cluster: runc runs them as containerd would, with the files of the image and the shipped seccomp
# profile.
check_containers() {
  local tool overlay
  for tool in runc setcap readelf curl; do
    if ! command -v "$tool" >/dev/null; then
      lacks container "running the pods by runc" "$tool is not installed"
      return
    fi
  done
  if [ "$(id -u)" != 0 ] || [ ! -d /sys/kernel/tracing/events ]; then
    lacks container "running the pods by runc" "it requires root and a mounted tracefs"
    return
  fi
  expect "the files of the image can be built" "$here/../../deploy/docker/image.sh" "$exporter" "$scratch/image"
  expect "the image has no shell and no unneeded file" image_is_small
  start_busy_cgroup
  for overlay in default profiles full least-privilege api-server kubelet prometheus-operator; do
    run_container "$overlay"
  done
}

image_is_small() {
  local files
  files=$(cd "$scratch/image" && find . -type f | sed 's|.*/||' | sort | tr '\n' ' ')
  echo "the image has: $files"
  [ "$files" = "$(printf '%s ' ca-certificates.crt group "$(basename "$scratch"/image/lib*/ld-linux-*)" libc.so.6 libgcc_s.so.1 libm.so.6 \
    nsswitch.conf passwd perf-exporter)" ]
}

# run_container OVERLAY
run_container() {
  local port bundle=$scratch/perf-exporter-$1-$$
  port=$(free_ports 1)
  mkdir "$bundle"
  # The configuration directory must be accessible to users other than root.
  chmod 755 "$scratch"
  check_first "$1"
  bundle_of "$1" perf-exporter "127.0.0.1:$port" "$bundle"
  : >"$scratch/$1.log"
  runc --root "$scratch/runc" run --bundle "$bundle" "$(basename "$bundle")" >"$scratch/$1.log" 2>&1 </dev/null &
  pids+=($!)
  exporter_address=127.0.0.1:$port
  expect "$1: the container runs and is ready" within 30 is_ready
  if ! is_ready; then
    return
  fi
  expect "$1: no event is forbidden" within 20 none_is forbidden
  expect "$1: at run time, it has the capabilities of its pod and no others" has_capabilities_of "$bundle"
  expect "$1: CPUs are counted" within 20 has_metric '^perf_cpu_task_clock_seconds_total.* [1-9]'
  if [ -n "$cgroup_dir" ]; then
    expect "$1: cgroups of the host are counted, with their paths on the host" within 20 has_metric "^perf_cgroup_task_clock_seconds_total{cgroup=\"$cgroup\""
  fi
  expect "$1: processes of the host are counted" within 20 has_metric '^perf_targets{counters="programs",.*state="counted"} [1-9][0-9]'
  if [ "$1" != least-privilege ]; then
    expect "$1: the scheduler is traced" within 20 has_metric '^perf_cgroup_sched_runqueue_latency_seconds_count'
  fi
  if [ "$1" = profiles ] || [ "$1" = full ]; then
    expect "$1: functions of programs outside the container are symbolized" within 30 has_function ' \[\.\] [a-z_]*$'
    expect "$1: functions of the kernel are symbolized" within 30 has_function ' \[k\] [a-z_]*$'
  fi
  if [ "$1" = full ]; then
    expect "full: a program of the host can be probed with an argument" probes_host
  fi
  expect "$1: it exits on SIGTERM" ends "$(basename "$bundle")"
}

# bundle_of OVERLAY CONTAINER ADDRESS FOLDER
bundle_of() {
  judge bundle "$scratch/out/kustomize-$1.yaml" "$2" "$scratch/image" "$sources/deploy/kubernetes/components/seccomp/perf-exporter.json" "$3" "$4"
}

# check_first OVERLAY: runs the init container with the configuration of the overlay, and with an error in it
check_first() {
  local bundle=$scratch/perf-exporter-$1-check-$$
  mkdir "$bundle"
  bundle_of "$1" check 127.0.0.1:0 "$bundle"
  expect "$1: the init container accepts the configuration" runs "$bundle"
  echo 'cgroup: {depth: 8}' >>"$bundle/config/perf-exporter.yaml"
  expect "$1: the init container stops at an error of the configuration, which ends its log" stops "$bundle"
}

runs() {
  runc --root "$scratch/runc" run --bundle "$1" "$(basename "$1")" >"$scratch/check.log" 2>&1 </dev/null || {
    cat "$scratch/check.log"
    return 1
  }
}

# The kubelet takes the message of a failed container from the last 2048 bytes of its log.
stops() {
  ! runs "$1" >/dev/null && tail -c 2048 "$scratch/check.log" | grep -q 'cgroup'
}

# has_capabilities_of BUNDLE: asks the kernel about the running container
has_capabilities_of() {
  local pid names
  pid=$(runc --root "$scratch/runc" state "$(basename "$1")" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
  mapfile -t names < <(python3 -c 'import json, sys
for name in json.load(open(sys.argv[1]))["process"]["capabilities"]["permitted"]: print(name.removeprefix("CAP_"))' "$1/config.json")
  has_only "$pid" "${names[@]}"
}

is_ready() {
  fetch /-/ready -o "$scratch/ready" 2>/dev/null
}

none_is() {
  fetch /metrics >"$scratch/metrics" 2>/dev/null && ! grep "^perf_event_state.*state=\"$1\".* [1-9]" "$scratch/metrics"
}

has_metric() {
  fetch /metrics >"$scratch/metrics" 2>/dev/null && grep -q -- "$1" "$scratch/metrics"
}

has_function() {
  fetch '/top?format=text' >"$scratch/top" && grep -q -- "$1" "$scratch/top"
}

# Puts a probe into the C library of this script, which is a process of the host for the container. The configuration is in a mounted
# directory, and is reloaded on request.
probes_host() {
  local library
  library=$(sed -n 's/.* \(\/.*libc\.so\.6\)$/\1/p' "/proc/$$/maps" | head -n 1)
  sed -i '/^probes:/d' "$bundle/config/perf-exporter.yaml"
  echo "probes: {reads: {uprobe: \"$library:read\", arguments: [\"size=\$arg3:u64\"], in: {pid: $$}}}" >>"$bundle/config/perf-exporter.yaml"
  fetch /-/reload -X POST >"$scratch/reload" && within 20 reads_are_counted
}

reads_are_counted() {
  read -r </proc/version
  has_metric '^perf_probe_reads_total [1-9]'
}

ends() {
  runc --root "$scratch/runc" kill "$1" TERM && within 20 is_gone "$1"
}

is_gone() {
  ! runc --root "$scratch/runc" state "$1" >/dev/null 2>&1
}

clean_up_more() {
  local name
  for name in default profiles full least-privilege; do
    runc --root "$scratch/runc" delete --force "perf-exporter-$name-$$" 2>/dev/null || true
  done
  if [ -n "$cgroup_dir" ]; then
    rmdir "$cgroup_dir"
  fi
}

# Checks the scrape configuration if promtool is installed. Debian's version does not support the role pod, so it is replaced.
check_scraping() {
  if ! command -v promtool >/dev/null; then
    lacks promtool "the scrape configuration" "promtool is not installed"
    return
  fi
  sed -e 's/^    kubernetes_sd_configs:/    static_configs:/' -e 's/^      - role: pod/      - targets: ["a:1"]/' \
    "$sources/deploy/kubernetes/prometheus.yaml" >"$scratch/prometheus.yaml"
  expect "promtool accepts the scrape configuration" promtool check config --syntax-only "$scratch/prometheus.yaml"
}

needs "$exporter" python3 python3
exporter=$(readlink -f "$exporter")
cgroup=/perf-exporter-manifests-$$ cgroup_dir=''
mkdir -p "$cache" "$scratch/out"
cache=$(cd "$cache" && pwd)
overlays=(default profiles full api-server kubelet least-privilege prometheus-operator)
sources=$scratch/sources chart=$scratch/sources/deploy/helm/perf-exporter
kustomize_is_there=false
if install_schemas; then
  copy_sources
  built=0
  if tool kustomize "$KUSTOMIZE"; then
    kustomize_is_there=true
    check_kustomize
    built=$((built + 1))
  fi
  if tool helm "$HELM"; then
    check_helm
    built=$((built + 1))
  fi
  if [ $built -eq 2 ]; then
    check_both
  fi
  if [ $built -gt 0 ]; then
    check_schemas
    check_configs
  fi
  check_scraping
  if $kustomize_is_there; then
    check_containers
  fi
fi
touch "$scratch"/{default,profiles,full,least-privilege}.log
finish default profiles full least-privilege
