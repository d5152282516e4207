#!/bin/bash
# dashboards.sh EXPORTER [PICTURES]
#
# Lets a real Prometheus scrape a running exporter under load, and runs every query of every dashboard as Grafana does. Each query must have
# data: with labels of a scrape and with those of OTLP, with classic buckets and with native histograms. Series that need hardware counters
# or faults come from recorded series with the same names (hardware.py). Before that it checks that the files match their sources, that
# panels and variables are complete, and that all values have the types of Grafana's schema. Then Grafana's own packages format, transform
# and draw the results in a browser, and follow the links (panels.py). The pictures are in target/interop/grafana/pictures.
# With the directory PICTURES it runs for some minutes and draws a picture of each dashboard there instead (dashboards/render.py, with
# matplotlib from PyPI). DASHBOARDS_WAIT=SECONDS keeps Prometheus running for manual inspection.
# Requires prometheus, curl and python3. The packages of Grafana and a compiler come from npm, 330 MB. If they or the browser are not
# available, their checks are skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `npm` or `chromium`. The queries require a
# writable cgroup file system and a readable tracefs: `cgroup`, `tracepoint`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: dashboards.sh EXPORTER [PICTURES]}
pictures=${2-}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$here/../..
. "$here/lib.sh"

# Set after this script has created the cgroup.
cgroup_dir=''
# Set if Grafana's packages can be used.
grafana=''

cache=${DASHBOARDS_CACHE:-$(dirname "$exporter")/../interop}

tell() {
  python3 "$here/dashboards.py" "$@"
}

# target NAME ADDRESS PATH PARAMETERS: prints a target with this name for Prometheus
target() {
  cat <<-END
	  - job_name: $1
	    metrics_path: $3
	    params: {$4}
	    honor_labels: true
	    static_configs: [{targets: ["$2"], labels: {instance: "$1", cluster: test}}]
	END
}

# start_prometheus NAME PORT [OPTIONS]: starts it with the targets from standard input
start_prometheus() {
  {
    echo 'global: {scrape_interval: 4s, scrape_timeout: 4s}'
    echo 'scrape_configs:'
    cat
  } >"$scratch/$1.yaml"
  prometheus --config.file="$scratch/$1.yaml" --storage.tsdb.path="$scratch/$1.data" --log.level=warn \
    --web.listen-address="127.0.0.1:$2" "${@:3}" >"$scratch/$1.log" 2>&1 &
  pids+=($!)
}

targets() {
  target node-1 "$exporter_address" /metrics ''
  target recorded-1 "$recorded" /metrics 'node: ["1"]'
  target recorded-2 "$recorded" /metrics 'node: ["2"]'
  if [ -z "$pictures" ]; then
    target otlp-1 "$recorded" /otlp ''
    target otlp-recorded-1 "$recorded" /otlp 'node: ["1"]'
    target otlp-recorded-2 "$recorded" /otlp 'node: ["2"]'
  fi
}

# start_in CGROUP COMMAND...: starts a load in the cgroup
start_in() {
  mkdir -p "$mount$1"
  (
    echo "$BASHPID" >"$mount$1/cgroup.procs"
    exec "${@:2}"
  ) >"$scratch/load.log" 2>&1 &
  pids+=($!)
}

# Starts a service with different kinds of work, and a batch job that competes for its CPUs.
start_load() {
  start_in "$cgroup/web.service" python3 "$here/load.py" service "$scratch/service"
  start_in "$cgroup/worker.service" python3 "$here/load.py" worker
  start_in "$cgroup/stuck.service" sh -c 'while :; do sleep 5; done'
}

start_batch() {
  start_in "$cgroup/batch.service" python3 "$here/load.py" batch "$(getconf _NPROCESSORS_ONLN)"
}

# Processes of the load have child processes.
is_removed() {
  [ ! -d "$1" ] || { xargs -r kill -KILL <"$1/cgroup.procs" 2>/dev/null || true; rmdir "$1" 2>/dev/null; }
}

clean_up_more() {
  local directory
  [ -n "$cgroup_dir" ] || return 0
  for directory in "$cgroup_dir"/*.service "$cgroup_dir"; do
    within 5 is_removed "$directory" || true
  done
}

scrapes() {
  fetch /metrics -o "$scratch/metrics.txt" --max-time 20 2>/dev/null
}

sees_calls_of_the_service() {
  scrapes && grep -q "$scratch/metrics.txt" -e "perf_cgroup_syscalls_total{.*$cgroup/web.service"
}

# All metrics of the exporter: those of the running one, those in its sources, and those of events that this machine lacks.
known_metrics() {
  cat "$scratch/metrics.txt" "$top/docs/otlp.md" "$top/tests/it/snapshots/check-uncore.snap"
  grep -rhoE '"perf_[a-z_]+"' "$top/src" --include='*.rs'
  sed -nE 's/.*events: \[(.*)\], per.*/\1/p' "$scratch/exporter.yaml" | tr -s ', -' '\n\n_' |
    sed -E 's/.*/perf_cpu_&_total perf_cgroup_&_total/'
  sed -nE 's/^  ([a-z0-9_]+):.*/perf_tracepoint_\1_total perf_unattributed_\1_total/p' "$top"/config/presets/*.yaml
  grep -rhoE 'perf_(tracepoint|cgroup)_[a-z0-9_]+' "$top/config/presets"
}

check_static() {
  known_metrics >"$scratch/known"
  expect "panels and variables are complete, and the exporter has every metric" tell static "$scratch/known"
}

install_types() {
  mkdir -p "$cache/types"
  timeout 60 npm install --prefix "$cache/types" --no-audit --no-fund --silent --fetch-retries=1 --fetch-timeout=15000 \
    @grafana/schema@11.6.0 typescript@5.7.3
}

compiles() {
  tell typescript "$cache/types" && "$cache/types/node_modules/.bin/tsc" -p "$cache/types"
}

check_types() {
  if ! command -v npm >/dev/null; then
    lacks npm "the check against the types of Grafana" "npm is not installed"
    return
  fi
  if [ ! -x "$cache/types/node_modules/.bin/tsc" ] && ! install_types >"$scratch/npm.log" 2>&1; then
    rm -rf "$cache/types"
    lacks npm "the check against the types of Grafana" "npm install failed: $(tail -n 1 "$scratch/npm.log")"
    return
  fi
  expect "the dashboards have the types of Grafana's schema" compiles
}

check_queries() {
  local name
  for name in node-1 recorded-1 recorded-2 otlp-1 otlp-recorded-1 otlp-recorded-2; do
    expect "Prometheus scrapes $name" within 30 holds "up{instance=\"$name\"} == 1"
  done
  # Rates need several scrapes of the load.
  sleep 40
  expect "the exporter has all linked pages" tell pages "$exporter_address"
  expect "every query has data" tell queries "http://127.0.0.1:$prometheus_port"
  expect "every query of a histogram has data with native histograms" tell native "http://127.0.0.1:$native_port"
}

# Installs the packages of Grafana into the current directory, unless those of the lock file are installed.
install_grafana() {
  if [ -e node_modules/.package-lock.json ] && cmp -s package-lock.json "$here/grafana/package-lock.json"; then
    return
  fi
  # The first request shows whether there is a registry.
  cp "$here"/grafana/{package.json,package-lock.json,.npmrc} . &&
    timeout 30 npm view @grafana/data@11.6.0 version --loglevel=error --fetch-retries=0 &&
    timeout 300 npm ci --ignore-scripts --no-audit --no-fund --loglevel=error --fetch-retries=1 --fetch-timeout=15000
}

# Sets grafana to the directory with a page of Grafana's packages, or skips their check. This is done before the load starts.
prepare_panels() {
  local what="the check of panels by Grafana's packages"
  has_chromium "$what" || return 0
  if ! command -v npm >/dev/null; then
    lacks npm "$what" "npm is not installed"
    return
  fi
  mkdir -p "$cache/grafana"/{site,pictures}
  if ! (cd "$cache/grafana" && install_grafana) >"$scratch/npm.log" 2>&1; then
    rm -rf "$cache/grafana/node_modules"
    lacks npm "$what" "npm ci failed: $(grep -m 1 '^npm error' "$scratch/npm.log" || true)"
    return
  fi
  grafana=$cache/grafana
  expect "a bundler accepts Grafana's packages" bundles
}

bundles() {
  (cd "$grafana" && node "$here/grafana/build.mjs" site)
}

grafana_agrees() {
  python3 -B "$here/panel_data.py" "http://127.0.0.1:$prometheus_port" "$scratch/panels.json" &&
    python3 -B "$here/panels.py" "$chromium" "$grafana/site" "$scratch/panels.json" "$grafana/pictures"
}

check_panels() {
  [ -n "$grafana" ] || return 0
  # A busy machine may miss scrapes, so the check is repeated.
  if ! grafana_agrees >"$scratch/panels.log" 2>&1; then
    sleep 15
    grafana_agrees >"$scratch/panels.log" 2>&1 || failures=$((failures + 1))
  fi
  cat "$scratch/panels.log"
}

holds() {
  curl -sSf --max-time 5 --get --data-urlencode "query=$1" "http://127.0.0.1:$prometheus_port/api/v1/query" 2>/dev/null |
    grep -q '"metric"'
}

draw() {
  if [ ! -x "$cache/pictures/bin/python" ]; then
    python3 -m venv "$cache/pictures"
    "$cache/pictures/bin/pip" install -q --timeout 15 --retries 1 'matplotlib>=3.8'
  fi
  "$cache/pictures/bin/python" "$top/dashboards/render.py" "http://127.0.0.1:$prometheus_port" "$pictures"
}

needs "$exporter" "prometheus curl python3" prometheus, curl and python3
if [ -z "$pictures" ]; then
  expect "the files match their sources" python3 "$top/dashboards/build.py" --check
  check_types
  prepare_panels
fi
cgroup=/demo-$$.slice mount=$(cgroup_mount)
[ -z "$pictures" ] || cgroup=/demo.slice
if [ -z "$mount" ] || ! mkdir "$mount$cgroup" 2>/dev/null; then
  lacks cgroup "the check of the queries" "no cgroup can be created in ${mount:-any hierarchy with perf_event}"
  finish
fi
cgroup_dir=$mount$cgroup
start_exporter "$exporter" <<END
counters:
  core: {events: [cycles, instructions], per: [cpu, cgroup]}
  cache: {events: [cache-references, cache-misses], per: [cpu, cgroup]}
  branch: {events: [branches, branch-misses], per: [cpu, cgroup]}
  os: {events: [task-clock, context-switches, cpu-migrations, page-faults, major-faults], per: [cpu, cgroup, process]}
presets: [block-io, irq, softirq, page-faults, forks, kworkers]
collection: {freshness: 3s}
cgroups: {include: ["$cgroup/*"]}
processes: {include: [{cgroup: "$cgroup/**"}]}
scheduler: {per: [host, cgroup, process]}
syscalls:
  per: [host, cgroup]
  include: [openat, fsync, sendto, recvfrom, clock_nanosleep, wait4, execve]
  stuck: 1s
profiles:
  cpu: {event: cpu-clock, frequency: 49, unwind: fp, cgroups: {include: ["$cgroup/*"]}}
  off_cpu: {threshold: 5ms, limit: 100, unwind: fp, cgroups: {include: ["$cgroup/*"]}}
export:
  otlp: {endpoint: "http://127.0.0.1:9", metrics: {interval: 10s}, signals: [metrics]}
# What dashboards/README.md names for the panels of threads, programs and preempting cgroups.
# A limit that every wait exceeds, for the annotation of anomalies.
anomalies: {waits: {of: runqueue_latency, above: 0.000001, for: 10s}}
metrics: {include: [perf_samples_total, "perf_cgroup_{execs,sched_preempted_by_cgroup}_total"]}
limits: {cpu: off}
END
read -r prometheus_port native_port recorded_port < <(free_ports 3)
within 20 fetch /-/ready -o "$scratch/ready" 2>/dev/null || true
start_load
if ! within 30 sees_calls_of_the_service; then
  lacks tracepoint "the check of the queries" "the exporter counts no system calls"
  finish exporter
fi
[ -n "$pictures" ] || start_batch
python3 "$here/hardware.py" "$recorded_port" "$exporter_address" >"$scratch/recorded.log" 2>&1 &
pids+=($!)
recorded=127.0.0.1:$recorded_port
start_prometheus prometheus "$prometheus_port" < <(targets)
if [ -n "$pictures" ]; then
  # The batch job starts in the middle of the pictures, here and on the recorded node.
  sleep 135
  start_batch
  sleep 125
  draw
  if [ -n "${DASHBOARDS_WAIT-}" ]; then
    echo "Prometheus: http://127.0.0.1:$prometheus_port"
    sleep "$DASHBOARDS_WAIT"
  fi
  exit
fi
start_prometheus native "$native_port" --enable-feature=native-histograms < <(target node-1 "$exporter_address" /metrics '')
check_static
check_queries
check_panels
finish exporter prometheus native
