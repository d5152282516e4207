#!/bin/bash
# remote_write.sh EXPORTER
#
# Pushes to a real Prometheus by remote write. Queries must return the pushed samples with external labels, and a quantile of a histogram.
# An ended series must disappear at once, and samples taken while Prometheus is down must arrive later.
# Requires prometheus, curl and python3.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: remote_write.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Sets prometheus_pid. The data of an earlier run is kept.
start_prometheus() {
  echo '{}' >"$scratch/prometheus.yaml"
  prometheus --config.file="$scratch/prometheus.yaml" --storage.tsdb.path="$scratch/data" --log.level=warn \
    --web.listen-address="127.0.0.1:$port" --web.enable-remote-write-receiver >>"$scratch/prometheus.log" 2>&1 &
  prometheus_pid=$!
  pids+=("$prometheus_pid")
}

# configure EVENTS: writes a configuration that counts these events for each CPU
configure() {
  cat <<-END
	collection: {interval: 1s}
	counters: {os: {events: [$1], per: [cpu]}}
	presets: []
	profiles: {}
	scheduler: {per: []}
	syscalls: {per: []}
	limits: {cpu: off}
	export:
	  remote_write: {url: "http://127.0.0.1:$port/api/v1/write", interval: 1s, labels: {cluster: interop, instance: here}}
	END
}

# holds PROMQL: reports whether the query has a result; a false comparison has none
holds() {
  curl -sSf --max-time 5 --get "http://127.0.0.1:$port/api/v1/query" --data-urlencode "query=$1" 2>/dev/null |
    python3 -c "import json, sys; sys.exit(not json.load(sys.stdin)['data']['result'])" 2>/dev/null
}

lacks_series() {
  holds 'vector(1)' && ! holds "$1"
}

# serves LINE: reports whether /metrics contains the line
serves() {
  fetch /metrics --max-time 5 -o "$scratch/metrics.txt" 2>/dev/null && grep -qxF "$1" "$scratch/metrics.txt"
}

has_failed() {
  serves 'perf_exporter_push_failing{format="remote_write",signal="metrics"} 1'
}

is_accepted() {
  serves 'perf_exporter_push_failing{format="remote_write",signal="metrics"} 0' &&
    serves 'perf_exporter_push_items_total{format="remote_write",outcome="rejected",signal="metrics"} 0' &&
    serves 'perf_exporter_push_items_total{format="remote_write",outcome="dropped",signal="metrics"} 0'
}

reload() {
  curl -sSf -X POST --max-time 30 "http://$exporter_address/-/reload" >"$scratch/reload"
}

check() {
  local cpus series='cluster="interop",instance="here",job="perf-exporter"'
  cpus=$(getconf _NPROCESSORS_ONLN)
  expect "each of the $cpus CPUs has a rate of context switches, with external labels" within 30 \
    holds "count(rate(perf_cpu_context_switches_total{$series}[5s])) == $cpus"
  holds "perf_cpu_context_switches_total{$series}" || return 0 # all further checks would fail for the same reason, slowly
  expect "the CPUs have context switches" within 15 holds 'sum(rate(perf_cpu_context_switches_total[5s])) > 0'
  expect "a histogram has a quantile" within 15 \
    holds 'histogram_quantile(0.9, rate(perf_exporter_collect_duration_seconds_bucket[10s])) > 0'
  expect "Prometheus accepts all samples" is_accepted
  expect "the CPU time has been stored" holds 'perf_cpu_task_clock_seconds_total'
  configure context-switches >"$scratch/exporter.yaml"
  reload
  expect "a removed series ends within 10 s, not after 5 minutes" within 10 \
    lacks_series 'perf_cpu_task_clock_seconds_total'
  expect "the other series continue" holds 'perf_cpu_context_switches_total'
  stop "$prometheus_pid"
  expect "the exporter reports that Prometheus is down" within 20 has_failed
  sleep 3
  start_prometheus
  expect "samples taken while Prometheus was down arrive later: one for nearly each second" within 60 \
    holds 'count_over_time(perf_cpu_context_switches_total{cpu="0"}[20s]) >= 17'
  expect "Prometheus accepts all samples again" within 20 is_accepted
  expect "Prometheus logged no warning" test ! -s "$scratch/prometheus.log"
}

needs "$exporter" "prometheus curl python3" prometheus, curl and python3
port=$(free_ports 1)
start_prometheus
start_exporter "$exporter" < <(configure context-switches,task-clock)
check
finish exporter prometheus
