#!/bin/bash
# otlp.sh EXPORTER
#
# Pushes to independent receivers: one in Python with OpenTelemetry's generated stubs, over gRPC and HTTP, and the OpenTelemetry Collector.
# The received metrics must equal those of a scrape of the same collection, and the profiles must contain the hot function of a program. Two
# layers of Collectors must deliver each value once, and all series of a node to the same Collector.
# Requires gcc, curl and python3. The Python receiver requires the packages opentelemetry-proto and grpcio from PyPI; the Collector is built
# from Go modules. If these are not available, that part is skipped with a reason, or fails if PERF_EXPORTER_REQUIRE names `otlp` or
# `collector`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: otlp.sh EXPORTER}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/lib.sh"

# Cache for later runs: packages and the Collector.
cache=${OTLP_CACHE:-$(dirname "$exporter")/../interop}

# start PROTOCOL ENDPOINT: starts an exporter that pushes to the endpoint. Collections are made at the start and on request only, so that a
# scrape and a push contain the same one. With a history there would be one each second.
start() {
  start_exporter "$exporter" <<-END
	collection: {interval: 10m, freshness: 10m}
	history: {for: 0s}
	profiles: {cpu: {event: cpu-clock, frequency: 99}}
	cgroups: {include: ["$cgroup"]}
	export:
	  otlp: {endpoint: "$2", protocol: $1, signals: [metrics, profiles, logs, traces], metrics: {interval: 1s}, profiles: {interval: 5s}}
	END
}

reload() {
  curl -sSf -X POST --max-time 30 "http://$exporter_address/-/reload" >"$scratch/reload"
}

tell() {
  "$cache/venv/bin/python" "$here/otlp.py" "$@"
}

tells() {
  tell "$@" >"$scratch/told" 2>&1
}

# Reports whether this many requests of a signal have arrived.
has() {
  [ "$(tell counts "$scratch/received" "$1" "$2")" -ge "$3" ]
}

# Without a network, pip would retry for a long time.
install_stubs() {
  python3 -m venv "$cache/venv" &&
    timeout 180 "$cache/venv/bin/pip" install -q --timeout 15 --retries 1 'opentelemetry-proto>=1.45' grpcio
}

# Starts the Python receiver for both protocols. It writes to $scratch/received.
start_receiver() {
  if [ ! -x "$cache/venv/bin/python" ] || ! "$cache/venv/bin/python" -c 'import opentelemetry.proto, grpc' 2>/dev/null; then
    if ! install_stubs >"$scratch/pip.log" 2>&1; then
      rm -rf "$cache/venv"
      lacks otlp "pushing to a receiver in Python" "pip could not install it: $(tail -n 1 "$scratch/pip.log")"
      return 1
    fi
  fi
  mkdir "$scratch/received"
  "$cache/venv/bin/python" "$here/otlp.py" receive "$scratch/received" >"$scratch/receiver.log" 2>&1 &
  pids+=($!)
  within 20 test -s "$scratch/received/ports"
}

# check_receiver NAME PROTOCOL PORT
check_receiver() {
  local before
  start "$2" "http://127.0.0.1:$3"
  within 20 fetch /-/ready -o "$scratch/ready" || true
  start_hot "hot_$1"
  within 60 has "$1" profiles 2 || true
  # Later collections contain counts of the cgroup.
  within 60 reload || true
  before=$(tell counts "$scratch/received" "$1" metrics)
  # The second request from now on was made after the reload.
  within 20 has "$1" metrics $((before + 2)) || true
  fetch /metrics -o "$scratch/exposition"
  expect "over $2 the newest metrics equal those of a scrape of the same collection" \
    tells equal "$scratch/received" "$1" "$scratch/exposition"
  cat "$scratch/told"
  expect "profiles have the hot function on top, and build ids for every file" \
    tells hot "$scratch/received" "$1" "$hot_pid" burns
  cat "$scratch/told"
  expect "the log arrives" has "$1" logs 1
  expect "spans of collections, scrapes and pushes arrive, and none of pushes of spans" \
    within 20 tells spans "$scratch/received" "$1"
  cat "$scratch/told"
  expect "the status reports that all requests are accepted" \
    test "$(fetch /api/v1/status | python3 -c 'import json, sys
print(sum(push["accepted"] > 0 and not push["failing"] and push["rejected"] == push["partly_rejected"] == 0
    for push in json.load(sys.stdin)["pushes"]))')" = 4
  stop "$hot_pid"
  stop "${pids[-2]}"
}

# holds FILE PYTHON: reports whether the expression is true of `requests`, the requests in a file that the Collector wrote
holds() {
  python3 -c "import json, sys
requests = [json.loads(line) for line in open('$scratch/$1.json')]
sys.exit(not ($2))" 2>>"$scratch/holds.log"
}

# start_collector NAME [SHIPPED]: starts a Collector with the shipped configuration of this name, changed by the file NAME
start_collector() {
  "$cache/collector" --config "file:$deployed/${2-$1}.yaml" --config "file:$scratch/$1.yaml" --feature-gates=+service.profilesSupport \
    >"$scratch/$1.log" 2>&1 &
  pids+=($!)
}

same_resource() {
  python3 - "$scratch" <<-'END'
	import json, sys
	def resources(name, signal):
	    requests = [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.json")]
	    return [(sorted((a["key"], json.dumps(a["value"])) for a in x["resource"]["attributes"]), x["schemaUrl"]) for r in requests for x in r[signal]]
	logs, spans = resources("logs", "resourceLogs"), resources("traces", "resourceSpans")
	assert logs and spans and all(one == logs[0] for one in logs + spans), (logs, spans)
	END
}

joined() {
  python3 - "$scratch" "$cgroup" <<-'END'
	import json, sys
	def read(name): return [json.loads(line) for line in open(f"{sys.argv[1]}/{name}.json")]
	def text(pair): return pair["key"], pair["value"].get("stringValue")
	points = [point.get("attributes", []) for r in read("metrics") for x in r["resourceMetrics"] for s in x["scopeMetrics"] for m in s["metrics"]
	          for point in m.get("sum", {}).get("dataPoints", [])]
	assert any(("perf.cgroup", sys.argv[2]) in map(text, point) for point in points), "no metric"
	def entries(r): return {(r["dictionary"]["stringTable"][e.get("keyStrindex", 0)], e.get("value", {}).get("stringValue"))
	                        for e in r["dictionary"]["attributeTable"]}
	assert any(("perf.cgroup", sys.argv[2]) in entries(r) for r in read("profiles")), "no sample"
	END
}

# has_names PORT: reports whether the page of a Collector has all names of counters of cgroups of the exporter
has_names() {
  local name
  fetch /metrics -o "$scratch/exposition"
  curl -sSf --max-time 5 -o "$scratch/page" "http://127.0.0.1:$1/metrics" || return 1
  for name in $(grep -o '^perf_cgroup_[a-z_]*_total' "$scratch/exposition" | sort -u); do
    grep -q "^$name{" "$scratch/page" || return 1
  done
  grep -q "^perf_cgroup_task_clock_seconds_total{.*perf_cgroup=\"$cgroup\"" "$scratch/page"
}

no_warnings() {
  ! grep -P '\twarn\t' "$scratch/single-machine.log" "$scratch/gateway.log"
}

check_collector() {
  local port machine_port page_port
  read -r port machine_port page_port < <(free_ports 3)
  # The gateway sends to the Collector of the machine in place of the backends.
  cat >"$scratch/gateway.yaml" <<-END
	receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:$port"}, http: {endpoint: "127.0.0.1:0"}}}}
	exporters:
	  otlp_http/metrics: {endpoint: "http://127.0.0.1:$machine_port"}
	  otlp_http/profiles: {endpoint: "http://127.0.0.1:$machine_port"}
	  otlp_http/logs: {endpoint: "http://127.0.0.1:$machine_port"}
	  otlp_http/traces: {endpoint: "http://127.0.0.1:$machine_port"}
	service: {telemetry: {metrics: {level: none}}}
	END
  cat >"$scratch/single-machine.yaml" <<-END
	receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:$machine_port"}}}}
	exporters:
	  prometheus: {endpoint: "127.0.0.1:$page_port"}
	  file/metrics: {path: $scratch/metrics.json}
	  file/profiles: {path: $scratch/profiles.json}
	  file/logs: {path: $scratch/logs.json}
	  file/traces: {path: $scratch/traces.json}
	service:
	  telemetry: {metrics: {level: none}}
	  pipelines:
	    metrics: {exporters: [prometheus, file/metrics]}
	    profiles: {exporters: [debug, file/profiles]}
	    logs: {exporters: [debug, file/logs]}
	    traces: {exporters: [debug, file/traces]}
	END
  # Without a cluster, a node agent cannot look up pods.
  expect "the configuration of a node agent is valid" env K8S_NODE_NAME=here \
    "$cache/collector" validate --config "file:$deployed/node-agent.yaml" --feature-gates=+service.profilesSupport
  start_collector single-machine
  start_collector gateway
  start_hot hot_collected
  start grpc "http://127.0.0.1:$port"
  # The first collection is made after some milliseconds, when the cgroup may not have run on a CPU yet.
  sleep 1
  reload
  expect "a Collector accepts metrics, and writes those of cgroups with their values" within 60 holds metrics \
    "any(m['name'] == 'perf.cgroup.task_clock' and m['unit'] == 's' and any(point['asDouble'] > 0 for point in m['sum']['dataPoints'])
        for r in requests for x in r['resourceMetrics'] for s in x['scopeMetrics'] for m in s['metrics'])"
  expect "a Collector accepts profiles with the hot function" within 60 holds profiles \
    "any('burns' in r['dictionary']['stringTable'] for r in requests)"
  expect "every sample of the profiles has a stack" within 10 holds profiles \
    "all(0 < s['stackIndex'] < len(r['dictionary']['stackTable'])
        for r in requests for x in r['resourceProfiles'] for y in x['scopeProfiles'] for p in y['profiles'] for s in p['samples'])"
  expect "a Collector accepts the log of the exporter" within 60 holds logs \
    "any(record['body']['stringValue'] == 'configuration applied'
        for r in requests for x in r['resourceLogs'] for y in x['scopeLogs'] for record in y['logRecords'])"
  fetch /metrics -o "$scratch/exposition"
  expect "a Collector accepts the spans of the exporter" within 60 holds traces \
    "{'collect', 'scrape', 'push'} <= {span['name'] for r in requests for x in r['resourceSpans'] for y in x['scopeSpans'] for span in y['spans']}"
  expect "spans and records of the log have the same resource" within 10 same_resource
  expect "metrics and samples of a cgroup have the same attribute" within 10 joined
  expect "the page of the Collector has the counters of cgroups under the names of a scrape" within 20 has_names "$page_port"
  expect "no Collector warns about its configuration" no_warnings
  stop "$hot_pid"
}

# start_gateway NUMBER: starts a Collector of the second layer. It writes the metrics to a file. Sets gateway_pid.
start_gateway() {
  start_collector "gateway-$1" gateway
  gateway_pid=${pids[-1]}
  within 20 grep -qs 'Everything is ready' "$scratch/gateway-$1.log"
}

# push_round NUMBER [NODES...]: pushes a round of these nodes, or of all, to the first layer. Rejected nodes are in $scratch/rejected.
push_round() {
  python3 "$here/layers.py" push "$balancer_port" "$@" >"$scratch/rejected"
}

none_rejected() {
  push_round "$@" && [ ! -s "$scratch/rejected" ]
}

some_rejected() {
  push_round "$@" && [ -s "$scratch/rejected" ]
}

# Pushes again what was rejected.
retried() {
  local nodes
  mapfile -t nodes <"$scratch/rejected"
  none_rejected "$1" "${nodes[@]}"
}

# Files are written once a second.
arrived() {
  python3 "$here/layers.py" check "$1" "$scratch/layer-1" "$scratch/layer-2" >"$scratch/layers.log" 2>&1
}

retry_arrives() {
  within 20 retried "$1" && within 20 arrived "$1"
}

check_layers() {
  local number ports balancer_port gateway_pid
  read -r -a ports < <(free_ports 3)
  balancer_port=${ports[0]}
  for number in 1 2; do
    mkdir "$scratch/layer-$number"
    cat >"$scratch/gateway-$number.yaml" <<-END
	receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:${ports[$number]}"}, http: {endpoint: "127.0.0.1:0"}}}}
	exporters: {file/metrics: {path: $scratch/layer-$number/metrics.json}}
	service:
	  telemetry: {metrics: {level: none}}
	  pipelines: {metrics: {exporters: [file/metrics]}}
	END
    start_gateway $number || true
  done
  cat >"$scratch/gateway-balanced.yaml" <<-END
	receivers: {otlp: {protocols: {grpc: {endpoint: "127.0.0.1:0"}, http: {endpoint: "127.0.0.1:$balancer_port"}}}}
	exporters:
	  load_balancing: {resolver: {dns: null, static: {hostnames: ["127.0.0.1:${ports[1]}", "127.0.0.1:${ports[2]}"]}}}
	service: {telemetry: {metrics: {level: none}}}
	END
  expect "the configuration of a first layer is valid" \
    "$cache/collector" validate --config "file:$deployed/gateway-balanced.yaml" --feature-gates=+service.profilesSupport
  start_collector gateway-balanced
  within 20 grep -qs 'Everything is ready' "$scratch/gateway-balanced.log" || true
  expect "a first layer accepts the metrics of all nodes" none_rejected 1
  expect "each value arrives once, and all series of a node at the same Collector of the second layer" within 20 arrived 1
  cat "$scratch/layers.log"
  stop "$gateway_pid"
  expect "the first layer rejects only nodes whose Collector is down, with a code that the exporter retries" some_rejected 2
  mv "$scratch/layer-2/metrics.json" "$scratch/layer-2/before.json"
  start_gateway 2 || true
  expect "when the Collector is back, their values arrive once, at the same Collector" retry_arrives 2
  cat "$scratch/layers.log"
}

clean_up_more() {
  if [ -n "$cgroup_dir" ]; then
    rmdir "$cgroup_dir"
  fi
}

needs "$exporter" "gcc curl python3" gcc curl python3
deployed=$here/../../deploy/otel-collector
cgroup=/perf-exporter-interop-$$ cgroup_dir=''
start_busy_cgroup
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
if start_receiver; then
  read -r grpc_port http_port <"$scratch/received/ports"
  check_receiver grpc grpc "$grpc_port"
  check_receiver http http/protobuf "$http_port"
fi
if build_go collector "pushing to a Collector"; then
  check_collector
  check_layers
fi
finish exporter
