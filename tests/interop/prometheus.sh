#!/bin/bash
# prometheus.sh EXPORTER
#
# Lets a real Prometheus scrape a running exporter, and queries the result. The target must be up, with OpenMetrics negotiated; the counters
# must have rates by CPU and by cgroup; promtool must accept the text format. A second Prometheus with native histograms scrapes protobuf.
# The median sleep of a program, from the native histogram of its system calls, must equal the program's own measurement.
# Requires prometheus, promtool, curl and python3. Without a writable cgroup file system, the check of a cgroup is skipped with a reason, or
# fails if PERF_EXPORTER_REQUIRE names `cgroup`. The check of the sleeps requires a readable tracefs in the same way: `tracepoint`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: prometheus.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# start_prometheus NAME PORT [OPTIONS]
start_prometheus() {
  cat >"$scratch/prometheus.yaml" <<-END
	global: {scrape_interval: 1s, scrape_timeout: 1s}
	scrape_configs:
	  - job_name: perf
	    static_configs: [{targets: ["$exporter_address"]}]
	END
  prometheus --config.file="$scratch/prometheus.yaml" --storage.tsdb.path="$scratch/$1.data" --log.level=warn \
    --web.listen-address="127.0.0.1:$2" "${@:3}" >"$scratch/$1.log" 2>&1 &
  pids+=($!)
}

scrape() {
  fetch /metrics --max-time 5 "$@"
}

serves() {
  scrape -o "$scratch/metrics.txt" 2>/dev/null
}

# api PATH PYTHON [CURL ARGUMENTS]: reports whether the expression is true of `data`, the answer of Prometheus' API for the path
api() {
  curl -sSf --max-time 5 --get "${@:3}" "http://127.0.0.1:$prometheus_port/api/v1/$1" 2>/dev/null |
    python3 -c "import json, sys; data = json.load(sys.stdin)['data']; sys.exit(not ($2))" 2>/dev/null
}

# holds PROMQL: reports whether the query has a result; a false comparison has none
holds() {
  api query "data['result']" --data-urlencode "query=$1"
}

# Only OpenMetrics gives Prometheus metadata of a counter without its _total, and a unit.
negotiated_openmetrics() {
  api targets/metadata "any(m['metric'] == 'perf_cpu_context_switches' and m['type'] == 'counter' for m in data)"
}

openmetrics_is_complete() {
  scrape -H 'Accept: application/openmetrics-text;version=1.0.0' -D "$scratch/headers" -o "$scratch/openmetrics.txt" &&
    grep -qi '^content-type: application/openmetrics-text; *version=1.0.0' "$scratch/headers" &&
    [ "$(tail -n 1 "$scratch/openmetrics.txt")" = '# EOF' ]
}

# Reports whether the Prometheus with native histograms has a result.
holds_natively() {
  prometheus_port=$native_port holds "$1"
}

# A process that sleeps for 5 ms repeatedly, and writes the median of its last thousand sleeps, in seconds.
start_napper() {
  python3 - "$scratch/nap" <<-'END' &
	import collections, os, statistics, sys, time
	with open("/proc/self/comm", "w") as comm:
	    comm.write("napper")
	naps = collections.deque(maxlen=1000)
	while True:
	    for _ in range(100):
	        begin = time.monotonic()
	        time.sleep(0.005)
	        naps.append(time.monotonic() - begin)
	    with open(sys.argv[1] + ".new", "w") as file:
	        file.write(repr(statistics.median(naps)))
	    os.rename(sys.argv[1] + ".new", sys.argv[1])
	END
  pids+=($!)
}

counts_naps() {
  serves && grep -q "$scratch/metrics.txt" -e 'perf_process_syscall_duration_seconds_count{comm="napper"'
}

# Reports whether the median from the buckets and the measured one differ by at most the width of a bucket: a factor of two to the 1/8,
# because there are eight buckets for each power of two.
median_agrees() {
  local median naps='rate(perf_process_syscall_duration_seconds{comm="napper",syscall=~".*nanosleep"}[5s])'
  median=$(cat "$scratch/nap") &&
    holds_natively "abs(log2(histogram_quantile(0.5, $naps) / $median)) <= 1/8"
}

check_naps() {
  if ! within 10 counts_naps; then
    lacks tracepoint "the check of a known latency" "the exporter counts no system calls"
    return
  fi
  expect "the median of known sleeps from native buckets is accurate to the width of a bucket" within 20 median_agrees
  expect "the sleeps have classic buckets in text" has_classic_buckets
}

# Protobuf contains both kinds of buckets, text only the classic ones.
has_classic_buckets() {
  serves && grep -q "$scratch/metrics.txt" \
    -e 'perf_process_syscall_duration_seconds_bucket{comm="napper",.*le="0.0078125"'
}

# The stored series show the negotiated format: a native histogram has no classic buckets, and a histogram without native buckets has no
# count and quantile.
check_native() {
  local metric=perf_exporter_collect_duration_seconds
  expect "Prometheus with native histograms scrapes the target" within 20 holds_natively 'up{job="perf"} == 1'
  holds_natively 'up{job="perf"} == 1' || return 0
  expect "Prometheus negotiated protobuf and stored a native histogram" within 5 \
    holds_natively "histogram_count($metric) > 0 and histogram_quantile(0.9, $metric) > 0 unless on() ${metric}_bucket"
  expect "the counters have rates in Prometheus with native histograms" within 15 \
    holds_natively 'sum(rate(perf_cpu_context_switches_total{cpu=~".+"}[5s])) > 0'
  expect "Prometheus with native histograms logged no warning" test ! -s "$scratch/native.log"
  check_naps
  expect "every protobuf scrape of the last 3 s succeeded" holds_natively 'min_over_time(up{job="perf"}[3s]) == 1'
}

promtool_is_content() {
  scrape | promtool check metrics
}

check() {
  local cpus
  cpus=$(getconf _NPROCESSORS_ONLN)
  expect "the exporter answers within 10 s" within 10 serves
  serves || return 0 # all further checks would fail for the same reason, slowly
  expect "promtool accepts the text format" promtool_is_content
  expect "OpenMetrics is served on request, to its EOF" openmetrics_is_complete
  expect "the target is up within 20 s" within 20 holds 'up{job="perf"} == 1'
  holds 'up{job="perf"} == 1' || return 0
  expect "Prometheus negotiated OpenMetrics" within 5 negotiated_openmetrics
  expect "each of the $cpus CPUs has a rate of context switches" \
    within 15 holds "count(rate(perf_cpu_context_switches_total{cpu=~\".+\"}[5s])) == $cpus"
  expect "the CPUs have context switches" within 15 holds 'sum(rate(perf_cpu_context_switches_total[5s])) > 0'
  if [ -n "$cgroup_dir" ]; then
    # Other programs may use part of the loop's CPU, but not this much.
    expect "the busy cgroup uses a CPU: between 0.05 and 1.2 of it" within 15 \
      holds "rate(perf_cgroup_task_clock_seconds_total{cgroup=\"$cgroup\"}[5s]) > 0.05 < 1.2"
  fi
  expect "every scrape of the last 3 s succeeded" holds 'min_over_time(up{job="perf"}[3s]) == 1'
  check_native
}

clean_up_more() {
  if [ -n "$cgroup_dir" ]; then
    rmdir "$cgroup_dir"
  fi
}

cgroup=/perf-exporter-interop-$$ cgroup_dir=''
needs "$exporter" "prometheus promtool curl python3" prometheus, curl and python3
read -r prometheus_port native_port < <(free_ports 2)
start_busy_cgroup
start_napper
start_exporter "$exporter" <<END
counters:
  switches: {events: [context-switches], per: [cpu]}
  clock: {events: [task-clock], per: [cgroup]}
profiles: {}
cgroups: {include: ["$cgroup"]}
syscalls: {per: [process], include: ["*nanosleep"]}
processes: {include: [{comm: napper}]}
limits: {cpu: off}
END
start_prometheus prometheus "$prometheus_port"
start_prometheus native "$native_port" --enable-feature=native-histograms
check
finish exporter prometheus native
