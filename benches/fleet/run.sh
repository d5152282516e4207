#!/bin/bash
# run.sh COMMAND: what real stores need for a simulated fleet
#
#   run.sh prometheus  Prometheus 3 scrapes the fleet, with the rules of deploy/prometheus. Prints series, samples, CPU time, memory, disk,
#                      the time of the rules and of the queries of all dashboards.
#   run.sh agent       A Prometheus agent scrapes the fleet and writes to VictoriaMetrics (remote write). Prints the same of both.
#   run.sh victoria    VictoriaMetrics scrapes the fleet.
#   run.sh disk        Imports two hours of scrapes of few nodes. Prints the bytes of a sample in blocks of Prometheus and VictoriaMetrics.
#
# Environment:
#   FLEET_NODES       number of nodes (100); `disk` takes at most 10
#   FLEET_OPTIONS     further options of the generator (`cargo bench --bench fleet -- --help`)
#   FLEET_INTERVAL    scrape interval in seconds (15)
#   FLEET_WARMUP      seconds before the measurement (120)
#   FLEET_MINUTES     minutes of the measurement (5)
#   FLEET_RULES       0 for no rules
#   FLEET_PROTOCOLS   scrape protocols of Prometheus (OpenMetricsText1.0.0). PrometheusProto stores native histograms
#   FLEET             the generator (built if not set)
#   PROMETHEUS3, PROMTOOL, VICTORIA_METRICS   the programs (prometheus, promtool, victoria-metrics)
#
# Requires python3 and curl. The load is real: 1000 nodes need about 6 GB of memory. CPU times are those of the processes, so they are
# valid on a busy machine; the times of rules and queries are not.
set -euo pipefail

command=${1:?usage: run.sh prometheus|agent|victoria|disk}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$here/../..
. "$top/tests/interop/lib.sh"

nodes=${FLEET_NODES:-100}
interval=${FLEET_INTERVAL:-15}
protocols=${FLEET_PROTOCOLS:-OpenMetricsText1.0.0}
prometheus=${PROMETHEUS3:-prometheus}
victoria=${VICTORIA_METRICS:-victoria-metrics}
promtool=${PROMTOOL:-promtool}
read -r -a options <<<"${FLEET_OPTIONS-}"
read -r fleet_port prometheus_port victoria_port < <(free_ports 3)
native=false
[[ $protocols != *Proto* ]] || native=true

# Builds the generator, and prints its path.
build_fleet() {
  (cd "$top" && cargo bench --locked --no-run --bench fleet 2>&1) | sed -n "s|.*Executable .*(\(/\{0,1\}.*\))|\1|p" |
    (cd "$top" && xargs readlink -f)
}
fleet=${FLEET:-$(build_fleet)}

measure() {
  python3 -B "$here/measure.py" "$@"
}

# Starts the generator.
serve() {
  "$fleet" --listen "127.0.0.1:$fleet_port" --nodes "$nodes" "${options[@]}" >"$scratch/fleet.log" 2>&1 &
  pids+=($!)
  fleet_pid=$!
  within 600 curl -sSf -o "$scratch/targets.json" "http://127.0.0.1:$fleet_port/targets" 2>/dev/null
}

# Scrapes are not compressed, because gzip would need more CPU time than everything else in the generator.
scrape_configs() {
  cat <<-END
	global: {scrape_interval: ${interval}s, scrape_timeout: ${interval}s, evaluation_interval: 1m}
	scrape_configs:
	  - job_name: perf-exporter
	    honor_labels: true
	    enable_compression: false
	    http_sd_configs: [{url: "http://127.0.0.1:$fleet_port/targets"}]
	END
}

# start_prometheus [OPTIONS]: starts it with the configuration in prometheus.yaml. Sets prometheus_pid.
start_prometheus() {
  "$prometheus" --config.file="$scratch/prometheus.yaml" --log.level=warn --web.listen-address="127.0.0.1:$prometheus_port" "$@" \
    >"$scratch/prometheus.log" 2>&1 &
  prometheus_pid=$!
  pids+=("$prometheus_pid")
}

# start_victoria [OPTIONS]: sets victoria_pid
start_victoria() {
  "$victoria" -storageDataPath="$scratch/victoria" -httpListenAddr="127.0.0.1:$victoria_port" -retentionPeriod=1d -loggerLevel=WARN \
    -memory.allowedBytes="${FLEET_VICTORIA_MEMORY:-4GB}" "$@" >"$scratch/victoria.log" 2>&1 &
  victoria_pid=$!
  pids+=("$victoria_pid")
}

run_prometheus() {
  serve
  {
    scrape_configs
    echo "    scrape_protocols: [$protocols]"
    echo "    scrape_native_histograms: $native"
    [ "${FLEET_RULES:-1}" = 0 ] || echo "rule_files: ['$(readlink -f "$top")/deploy/prometheus/*.rules.yaml']"
  } >"$scratch/prometheus.yaml"
  start_prometheus --storage.tsdb.path="$scratch/prometheus"
  measure load "prometheus=$prometheus_pid,http://127.0.0.1:$prometheus_port/metrics,$scratch/prometheus" "fleet=$fleet_pid"
  measure stored "http://127.0.0.1:$prometheus_port"
  measure rules "http://127.0.0.1:$prometheus_port"
  measure queries "http://127.0.0.1:$prometheus_port"
}

run_agent() {
  serve
  start_victoria
  {
    scrape_configs
    echo "    scrape_protocols: [$protocols]"
    echo "remote_write: [{url: 'http://127.0.0.1:$victoria_port/api/v1/write'}]"
  } >"$scratch/prometheus.yaml"
  start_prometheus --agent --storage.agent.path="$scratch/agent"
  measure load "agent=$prometheus_pid,http://127.0.0.1:$prometheus_port/metrics,$scratch/agent" \
    "victoria=$victoria_pid,http://127.0.0.1:$victoria_port/metrics,$scratch/victoria" "fleet=$fleet_pid"
  measure queries "http://127.0.0.1:$victoria_port"
}

run_victoria() {
  serve
  scrape_configs | sed '/^global/s/, evaluation_interval: 1m//' >"$scratch/victoria.yaml"
  start_victoria -promscrape.config="$scratch/victoria.yaml"
  measure load "victoria=$victoria_pid,http://127.0.0.1:$victoria_port/metrics,$scratch/victoria" "fleet=$fleet_pid"
  measure queries "http://127.0.0.1:$victoria_port"
}

# Prints the length of the files below a directory. Blocks of file systems are not counted.
length() {
  find "$1" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }'
}

run_disk() {
  [ "$nodes" -le 10 ] || nodes=5
  "$fleet" --history 2 --interval "$interval" --nodes "$nodes" "${options[@]}" >"$scratch/history.txt"
  samples=$(grep -vc '^#' "$scratch/history.txt")
  "$promtool" tsdb create-blocks-from openmetrics "$scratch/history.txt" "$scratch/blocks" >"$scratch/promtool.log"
  echo "prometheus: $samples samples, $(length "$scratch/blocks") bytes"
  measure bytes "$samples" "$(length "$scratch/blocks")"
  start_victoria
  within 30 curl -sSf -o "$scratch/health" "http://127.0.0.1:$victoria_port/health" 2>/dev/null
  # The importer expects milliseconds.
  sed -E '/^#/d; s/ ([0-9]+)\.([0-9]{3})$/ \1\2/' "$scratch/history.txt" |
    curl -sSf -X POST -T - "http://127.0.0.1:$victoria_port/api/v1/import/prometheus"
  curl -sSf "http://127.0.0.1:$victoria_port/internal/force_flush"
  curl -sSf "http://127.0.0.1:$victoria_port/internal/force_merge"
  sleep 20
  echo "victoria: $samples samples, data and index"
  measure bytes "$samples" "$(length "$scratch/victoria")"
}

"run_$command"
