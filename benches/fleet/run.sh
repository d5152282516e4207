#!/bin/bash
# run.sh COMMAND: what real stores need for a simulated fleet
#
#   run.sh prometheus  Prometheus 3 scrapes the fleet, with the rules of deploy/prometheus. Prints series, samples, CPU time, memory, disk,
#                      the time of the rules and of the queries of all dashboards.
#   run.sh agent       Prometheus agents scrape the fleet and write to VictoriaMetrics (remote write). Prints the same of all.
#   run.sh victoria    VictoriaMetrics scrapes the fleet.
#   run.sh push        The fleet pushes OTLP metrics, each node on its own connection. Collectors with the configurations of
#                      deploy/otel-collector receive them, and push to a store. Prints the same of all. A sample of a Collector is a data point:
#                      a histogram is one.
#   run.sh disk        Imports two hours of scrapes of few nodes. Prints the bytes of a sample in blocks of Prometheus and VictoriaMetrics.
#
# Environment:
#   FLEET_NODES       number of nodes (100); `disk` takes at most 10
#   FLEET_OPTIONS     further options of the generator (`cargo bench --bench fleet -- --help`)
#   FLEET_INTERVAL    scrape interval in seconds (15)
#   FLEET_WARMUP      seconds before the measurement (120)
#   FLEET_MINUTES     minutes of the measurement (5)
#   FLEET_AGENTS      Prometheus agents, each with a share of the nodes (1)
#   FLEET_GATEWAYS    Collectors that receive pushes (1). With 2 or more, a further one distributes the nodes among them: gateway-balanced.yaml.
#                     With 0, the store receives the pushes
#   FLEET_STORE       store of pushes: victoria or prometheus (victoria)
#   FLEET_RULES       0 for no rules
#   FLEET_PROTOCOLS   scrape protocols of Prometheus (OpenMetricsText1.0.0). PrometheusProto stores native histograms
#   FLEET             the generator (built if not set)
#   PROMETHEUS3, PROMTOOL, VICTORIA_METRICS, COLLECTOR   the programs (prometheus, promtool, victoria-metrics, otelcol-contrib)
#
# Requires python3 and curl. The load is real: 1000 nodes need about 6 GB of memory. CPU times are those of the processes, so they are
# valid on a busy machine; the times of rules and queries are not.
set -euo pipefail

command=${1:?usage: run.sh prometheus|agent|victoria|push|disk}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
top=$here/../..
. "$top/tests/interop/lib.sh"

nodes=${FLEET_NODES:-100}
interval=${FLEET_INTERVAL:-15}
protocols=${FLEET_PROTOCOLS:-OpenMetricsText1.0.0}
prometheus=${PROMETHEUS3:-prometheus}
victoria=${VICTORIA_METRICS:-victoria-metrics}
promtool=${PROMTOOL:-promtool}
collector=${COLLECTOR:-otelcol-contrib}
agents=${FLEET_AGENTS:-1}
gateways=${FLEET_GATEWAYS:-1}
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
  local shard ports measured=()
  serve
  start_victoria
  read -r -a ports < <(free_ports "$agents")
  for ((shard = 0; shard < agents; shard++)); do
    {
      scrape_configs
      echo "    scrape_protocols: [$protocols]"
      echo "    relabel_configs:"
      echo "      - {source_labels: [__address__, __metrics_path__], modulus: $agents, target_label: __tmp_shard, action: hashmod}"
      echo "      - {source_labels: [__tmp_shard], regex: '$shard', action: keep}"
      echo "remote_write: [{url: 'http://127.0.0.1:$victoria_port/api/v1/write'}]"
    } >"$scratch/prometheus.yaml"
    prometheus_port=${ports[shard]}
    start_prometheus --agent --storage.agent.path="$scratch/agent-$shard"
    measured+=("agent-$shard=$prometheus_pid,http://127.0.0.1:$prometheus_port/metrics,$scratch/agent-$shard")
    # It has read the configuration then.
    within 30 curl -sSf -o "$scratch/health" "http://127.0.0.1:$prometheus_port/-/ready" 2>/dev/null
  done
  measure load "${measured[@]}" "victoria=$victoria_pid,http://127.0.0.1:$victoria_port/metrics,$scratch/victoria" "fleet=$fleet_pid"
  measure stored "http://127.0.0.1:$victoria_port"
  measure queries "http://127.0.0.1:$victoria_port"
}

run_victoria() {
  serve
  scrape_configs | sed '/^global/s/, evaluation_interval: 1m//' >"$scratch/victoria.yaml"
  start_victoria -promscrape.config="$scratch/victoria.yaml"
  measure load "victoria=$victoria_pid,http://127.0.0.1:$victoria_port/metrics,$scratch/victoria" "fleet=$fleet_pid"
  measure queries "http://127.0.0.1:$victoria_port"
}

# start_collector NAME SHIPPED TELEMETRY_PORT: starts a Collector with a shipped configuration, changed by the file NAME. Appends to `measured`.
start_collector() {
  cat >>"$scratch/$1.yaml" <<-END
	service:
	  telemetry:
	    metrics: {level: normal, readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: $3}}}}]}
	END
  "$collector" --config "file:$top/deploy/otel-collector/$2.yaml" --config "file:$scratch/$1.yaml" \
    --feature-gates=+service.profilesSupport >"$scratch/$1.log" 2>&1 &
  pids+=($!)
  measured+=("$1=$!,http://127.0.0.1:$3/metrics")
  within 30 curl -sSf -o "$scratch/$1.metrics" "http://127.0.0.1:$3/metrics" 2>/dev/null
}

# listens GRPC_PORT HTTP_PORT: prints the receivers of a Collector
listens() {
  echo "receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:$1'}, http: {endpoint: '127.0.0.1:$2'}}}}"
}

# start_gateways: starts the Collectors. Sets push_port to the one that receives the pushes.
start_gateways() {
  local number ports hostnames=''
  read -r -a ports < <(free_ports $((3 * gateways + 3)))
  for ((number = 0; number < gateways; number++)); do
    {
      listens "${ports[3 * number]}" "${ports[3 * number + 1]}"
      echo "exporters: {otlp_http/metrics: {endpoint: '$store_url'}}"
    } >"$scratch/gateway-$number.yaml"
    start_collector "gateway-$number" gateway "${ports[3 * number + 2]}"
    hostnames+="${hostnames:+, }'127.0.0.1:${ports[3 * number]}'"
  done
  push_port=${ports[1]}
  [ "$gateways" -gt 1 ] || return 0
  push_port=${ports[-2]}
  {
    listens "${ports[-3]}" "$push_port"
    echo "exporters: {load_balancing: {resolver: {dns: null, static: {hostnames: [$hostnames]}}}}"
  } >"$scratch/balancer.yaml"
  start_collector balancer gateway-balanced "${ports[-1]}"
}

# start_store: starts the store of pushes. Sets store_url, its OTLP endpoint, and store, the process to measure.
start_store() {
  if [ "${FLEET_STORE:-victoria}" = prometheus ]; then
    echo '{}' >"$scratch/prometheus.yaml"
    start_prometheus --storage.tsdb.path="$scratch/prometheus" --web.enable-otlp-receiver
    store_url=http://127.0.0.1:$prometheus_port/api/v1/otlp
    store=prometheus=$prometheus_pid,http://127.0.0.1:$prometheus_port/metrics,$scratch/prometheus
    within 30 curl -sSf -o "$scratch/health" "http://127.0.0.1:$prometheus_port/-/ready" 2>/dev/null
    return
  fi
  start_victoria -opentelemetry.usePrometheusNaming
  store_url=http://127.0.0.1:$victoria_port/opentelemetry
  store=victoria=$victoria_pid,http://127.0.0.1:$victoria_port/metrics,$scratch/victoria
  within 30 curl -sSf -o "$scratch/health" "http://127.0.0.1:$victoria_port/health" 2>/dev/null
}

run_push() {
  local measured=() push_port url store store_url
  start_store
  url=$store_url/v1/metrics
  if [ "$gateways" -gt 0 ]; then
    start_gateways
    url=http://127.0.0.1:$push_port/v1/metrics
  fi
  "$fleet" --push "$url" --interval "$interval" --nodes "$nodes" "${options[@]}" >"$scratch/fleet.log" 2>&1 &
  fleet_pid=$!
  pids+=("$fleet_pid")
  measure load "${measured[@]}" "$store" "fleet=$fleet_pid"
  tail -n 1 "$scratch/fleet.log"
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
