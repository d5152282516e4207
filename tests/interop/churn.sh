#!/bin/bash
# churn.sh EXPORTER
#
# Compares the increase of all series with the counts of `perf stat -a` while cgroups are created and removed all the time and
# `limits.series` is lower than the number of cgroups. Several jobs scrape the same exporter, each sees only some of its collections.
# The increase from created timestamps must be within 0.5 % of perf's count, and a total may only fall with a newer created timestamp.
# Prometheus 3 scrapes protobuf and OpenMetrics with created-timestamp-zero-ingestion, and text 0.0.4. Without Prometheus 3, the increase
# is computed from the `_created` samples that an older Prometheus stores.
# Requires prometheus, perf, python3 and a writable cgroup file system. Without Prometheus 3 or a cgroup file system, checks are skipped
# with a reason, or fail if PERF_EXPORTER_REQUIRE names `prometheus3` or `cgroup`.
#
# Environment:
#   CHURN_MINUTES  duration of the measurement (2)
#   CHURN_CGROUPS  number of cgroups at the same time (500)
#   PROMETHEUS3    the program of Prometheus 3 (prometheus)
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: churn.sh EXPORTER}
here=$(dirname "${BASH_SOURCE[0]}")
. "$here/lib.sh"

minutes=${CHURN_MINUTES:-2}
cgroups=${CHURN_CGROUPS:-500}
interval=5s

# version PROGRAM: prints the version of a Prometheus, or 0
version() {
  { "$1" --version 2>&1 || true; } | sed -n 's/^prometheus, version \([0-9.]*\).*/\1/p' | grep . || echo 0
}

# is_version_3 PROGRAM
is_version_3() {
  local number
  number=$(version "$1")
  [ "${number%%.*}" -ge 3 ]
}

# start_prometheus PROGRAM NAME PORT [OPTIONS]: starts it with the scrape jobs from standard input
start_prometheus() {
  {
    echo "global: {scrape_interval: $interval, scrape_timeout: $interval}"
    echo "scrape_configs:"
    cat
  } >"$scratch/$2.yaml"
  "$1" --config.file="$scratch/$2.yaml" --storage.tsdb.path="$scratch/$2.data" --log.level=warn \
    --web.listen-address="127.0.0.1:$3" "${@:4}" >"$scratch/$2.log" 2>&1 &
  pids+=($!)
}

# job NAME FIELDS: prints a scrape job
job() {
  echo "  - {job_name: $1, static_configs: [{targets: ['$exporter_address']}]${2:+, $2}}"
}

# Kills the processes of all cgroups, and removes the cgroups. Succeeds when none is left.
remove_cgroups() {
  local pid
  # An exiting process can be listed as 0, and kill 0 would kill the process group of this script.
  cat "$top"/*/cgroup.procs 2>/dev/null | while read -r pid; do
    [ "$pid" = 0 ] || kill -KILL "$pid" 2>/dev/null || true
  done
  rmdir "$top"/*/ "$top" 2>/dev/null || true
  [ ! -e "$top" ]
}

clean_up_more() {
  if [ -n "$top" ]; then
    within 20 remove_cgroups || echo "${0##*/}: $top is left" >&2
  fi
}

top=''
needs "$exporter" "prometheus perf python3" prometheus, linux-perf and python3
mount=$(cgroup_mount)
if [ -z "$mount" ] || ! mkdir "$mount/perf-exporter-churn-$$" 2>/dev/null; then
  lacks cgroup "the check of short-lived cgroups" "none can be created in ${mount:-any hierarchy with perf_event}"
  finish
fi
top=$mount/perf-exporter-churn-$$
read -r stored_port native_port < <(free_ports 2)
start_exporter "$exporter" <<END
counters:
  os: {events: [context-switches, page-faults, task-clock], per: [cgroup]}
presets: []
profiles: {}
scheduler: {per: []}
syscalls: {per: []}
limits: {series: 50, cpu: off}
END

# Without created-timestamp-zero-ingestion, Prometheus stores `_created` samples as series. Its version 2 negotiates OpenMetrics without
# scrape_protocols, which it may not support.
protocols=''
if is_version_3 prometheus; then
  protocols="scrape_protocols: [OpenMetricsText1.0.0], "
fi
job stored "${protocols}params: {created: ['true']}" | start_prometheus prometheus stored "$stored_port"
servers=("stored=$stored_port") native=()

prometheus3=${PROMETHEUS3:-prometheus}
if is_version_3 "$prometheus3"; then
  {
    job protobuf "scrape_protocols: [PrometheusProto]"
    job openmetrics "scrape_protocols: [OpenMetricsText1.0.0], params: {created: ['true']}"
    job text "scrape_protocols: [PrometheusText0.0.4]"
  } | start_prometheus "$prometheus3" native "$native_port" \
    --enable-feature=created-timestamp-zero-ingestion,promql-extended-range-selectors
  native=(native)
  servers+=("protobuf=$native_port" "openmetrics=$native_port" "text=$native_port")
else
  lacks prometheus3 "the check of created-timestamp-zero-ingestion" \
    "$prometheus3 has version $(version "$prometheus3"); set PROMETHEUS3 to the program of Prometheus 3"
fi

python3 "$here/churn.py" load "$top" "$cgroups" "$scratch/created" &
pids+=($!)
python3 "$here/churn.py" measure "$minutes" "$scratch/created" "${servers[@]}" || failures=$((failures + 1))
finish exporter stored "${native[@]}"
