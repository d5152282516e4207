#!/bin/bash
# scrapers.sh EXPORTER
#
# Lets several clients scrape one exporter at different intervals and in different formats: a Prometheus every second in OpenMetrics, a
# Prometheus with native histograms every three seconds in protobuf, and a program in the text format 0.0.4 several times a second. All of
# them must see the same counters: equal values of one snapshot, samples of one counter that never contradict each other, and the same
# increase, within the bound of their phases. Clients that read one byte a second must not delay any of them.
# Requires prometheus and python3, and a writable cgroup file system.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: scrapers.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# start_prometheus NAME PORT INTERVAL [OPTIONS]
start_prometheus() {
  cat >"$scratch/$1.yaml" <<-END
	global: {scrape_interval: $3, scrape_timeout: $3}
	scrape_configs:
	  - job_name: perf
	    static_configs: [{targets: ["$exporter_address"]}]
	END
  prometheus --config.file="$scratch/$1.yaml" --storage.tsdb.path="$scratch/$1.data" --log.level=warn \
    --web.listen-address="127.0.0.1:$2" "${@:4}" >"$scratch/$1.log" 2>&1 &
  pids+=($!)
}

clean_up_more() {
  if [ -n "$cgroup_dir" ]; then
    rmdir "$cgroup_dir"
  fi
}

cgroup=/perf-exporter-scrapers-$$ cgroup_dir=''
needs "$exporter" "prometheus python3" prometheus and python3
read -r fast_port slow_port < <(free_ports 2)
start_busy_cgroup
[ -n "$cgroup_dir" ] || finish
start_exporter "$exporter" <<END
collection: {interval: 1s, freshness: 500ms}
metrics: {level: full}
limits: {cpu: off}
END
start_prometheus fast "$fast_port" 1s
start_prometheus slow "$slow_port" 3s --enable-feature=native-histograms
expect "all scrapers see the same counters, and slow readers delay none of them" \
  python3 "$(dirname "${BASH_SOURCE[0]}")/scrapers.py" "$exporter_address" "$cgroup" "$fast_port" "$slow_port"
finish exporter fast slow
