#!/bin/bash
# rules.sh EXPORTER
#
# Checks the rules of deploy/prometheus. promtool checks them and runs their tests. A real Prometheus scrapes a running exporter under load
# and evaluates every rule each second; each recording rule must have data. Rules that need hardware events or hours of history use recorded
# series, which promtool imports and a server continues (rules.py lists these rules and their needs). A second Prometheus with native
# histograms has the same rules with shorter times. There, two alerts must fire and one must resolve, and Debian's Alertmanager must notify
# a receiver in Python; with inhibition.yaml, the alert about the machine must suppress the one about the cgroup. In the short backtest
# (tests/backtest), the alerts must find all planted incidents.
# Requires prometheus, promtool and python3. Parts need a writable cgroup file system, a readable tracefs, or prometheus-alertmanager. They
# are skipped with a reason without them, or fail if PERF_EXPORTER_REQUIRE names `cgroup`, `tracepoint` or `alertmanager`. stress-ng adds to
# the load if it is installed.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: rules.sh EXPORTER}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/lib.sh"
repository=$(readlink -f "$here/../..")
rules=$repository/deploy/prometheus

tell() {
  python3 -B "$here/rules.py" "$@"
}

# told NAME ARGUMENTS...: runs the same and writes its output to a file with this name
told() {
  tell "${@:2}" >"$scratch/$1" 2>&1
}

# start_prometheus NAME PORT [OPTIONS]: starts it with the rules in $scratch/NAME.rules and the data in $scratch/NAME.data
start_prometheus() {
  cat >"$scratch/$1.yaml" <<-END
	global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
	rule_files: ["$scratch/$1.rules/*.yaml"]
	alerting: {alertmanagers: [{static_configs: [{targets: ["127.0.0.1:$alertmanager_port"]}]}]}
	scrape_configs:
	  - {job_name: perf-exporter, honor_labels: true, static_configs: [{targets: ["$exporter_address"]}]}
	  - job_name: recorded
	    static_configs: [{targets: ["127.0.0.1:$recorded_port"], labels: {instance: recorded}}]
	END
  prometheus --config.file="$scratch/$1.yaml" --storage.tsdb.path="$scratch/$1.data" --log.level=warn \
    --web.listen-address="127.0.0.1:$2" "${@:3}" >>"$scratch/$1.log" 2>&1 &
  pids+=($!)
  within 20 curl -sSf -o "$scratch/ready" "http://127.0.0.1:$2/-/ready" 2>/dev/null
}

# holds PORT PROMQL: reports whether the query has a result; a false comparison has none
holds() {
  curl -sSf --max-time 5 --get --data-urlencode "query=$2" "http://127.0.0.1:$1/api/v1/query" 2>/dev/null |
    grep -q '"result":\[{'
}

# Copies the rules without the intervals of groups, so that evaluation_interval (each second) applies.
copy_rules() {
  mkdir -p "$scratch/$1.rules"
  sed '/^    interval: /d' "$rules/recording.rules.yaml" >"$scratch/$1.rules/recording.yaml"
  sed '/^    interval: /d' "$rules/limits.rules.yaml" >"$scratch/$1.rules/limits.yaml"
  sed '/^    interval: /d' "$rules/alerts.rules.yaml" >"$scratch/$1.rules/alerts.yaml"
}

# Copies the rules with windows of 10 s and a `for` of 2 s, so that an alert fires and resolves within the time of a test. The objective for
# run queues is 2 ms, as for a user who wants early alerts.
shorten_rules() {
  sed -i 's/\[5m\]/[10s]/g; s/^        for: .*/        for: 2s/' "$scratch/$1.rules"/*.yaml
  sed -i '/record: perf:runqueue_latency_seconds:limit/{n;s/vector(.*)/vector(0.002)/}' "$scratch/$1.rules/limits.yaml"
}

# Imports the history of the recorded machine: its counters, and the results of the recording rules, which are computed by a Prometheus with
# the counters.
import_history() {
  local start end
  mkdir -p "$scratch/prometheus.data"
  read -r start end < <(tell history "$scratch/recorded.om")
  promtool tsdb create-blocks-from openmetrics -q "$scratch/recorded.om" "$scratch/prometheus.data" >"$scratch/import" 2>&1 ||
    return 1
  # A rule sees the results of others only after Prometheus has loaded them, which it does at its start.
  for _ in 1 2; do
    start_prometheus prometheus "$prometheus_port" || return 1
    promtool tsdb create-blocks-from rules --start="$start" --end="$end" --url="http://127.0.0.1:$prometheus_port" \
      --output-dir="$scratch/prometheus.data" "$rules/recording.rules.yaml" >>"$scratch/import" 2>&1 || return 1
    kill "${pids[-1]}"
    wait "${pids[-1]}" || true
    unset 'pids[-1]'
  done
}

# in_cgroup COMMAND...: starts the command in the cgroup "$cgroup"
in_cgroup() {
  (
    echo "$BASHPID" >"$cgroup_dir/cgroup.procs"
    exec "$@"
  ) >>"$scratch/load" 2>&1 &
  pids+=($!)
}

# Starts a load that covers the rules: sleeps and wakeups, missing files, new processes.
start_load() {
  in_cgroup python3 -c '
import os, time
while True:
    for _ in range(50):
        time.sleep(0.002)
        try:
            os.stat("/nonexistent")
        except OSError:
            pass
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)'
  if command -v stress-ng >/dev/null; then
    in_cgroup stress-ng --quiet --switch 1 --switch-freq 200 --fault 1 --fault-ops 20000 --timeout 100
  fi
}

# Starts two loops that only start processes. Sets forkers.
start_forkers() {
  local i
  forkers=()
  for i in 1 2; do
    in_cgroup sh -c 'while :; do (:); done'
    forkers+=("${pids[-1]}")
  done
}

# Starts four loops for each CPU that only use CPU time.
start_spinners() {
  local i
  for ((i = 0; i < 4 * $(getconf _NPROCESSORS_ONLN); i++)); do
    in_cgroup sh -c 'while :; do :; done'
  done
}

# told_of STATUS ALERT: reports whether the receiver was notified for the cgroup, with the expected labels and annotations
told_of() {
  python3 - "$scratch/posts" "$cgroup" "$exporter_address" "$1" "$2" <<-'END'
	import glob, json, sys
	directory, cgroup, instance, status, alert = sys.argv[1:]
	labels = {"alertname": alert, "cgroup": cgroup, "instance": instance, "job": "perf-exporter", "severity": "warning"}
	posts = [json.load(open(name)) for name in sorted(glob.glob(directory + "/*.json"))]
	sys.exit(not any(
	    told["status"] == status and told["labels"] == labels and cgroup in told["annotations"]["summary"]
	    and told["annotations"]["runbook"] == "docs/runbooks.md#" + alert.lower()
	    for post in posts for told in post["alerts"]))
	END
}

# inhibited ALERT: reports whether Alertmanager suppresses the alert of the cgroup, because of the alert about its machine
inhibited() {
  curl -sSf "http://127.0.0.1:$alertmanager_port/api/v2/alerts" 2>/dev/null | python3 -c '
import json, sys
cgroup, name = sys.argv[1:]
alerts = json.load(sys.stdin)
sources = {alert["fingerprint"] for alert in alerts if alert["labels"]["alertname"] == "PerfNodeOverloaded"}
sys.exit(not any(
    sources & set(alert["status"]["inhibitedBy"]) for alert in alerts
    if alert["labels"].get("cgroup") == cgroup and alert["labels"]["alertname"] == name))' "$cgroup" "$1"
}

start_alertmanager() {
  cat >"$scratch/alertmanager.yaml" <<-END
	route: {receiver: python, group_by: [alertname, cgroup], group_wait: 1s, group_interval: 1s, repeat_interval: 1h}
	receivers:
	  - {name: python, webhook_configs: [{url: "http://127.0.0.1:$receiver_port/", send_resolved: true}]}
	END
  mkdir "$scratch/posts"
  python3 -B "$here/rules.py" receive "$receiver_port" "$scratch/posts" >"$scratch/receiver.log" 2>&1 &
  pids+=($!)
  "$alertmanager" --config.file="$scratch/alertmanager.yaml" --storage.path="$scratch/alertmanager.data" \
    --web.listen-address="127.0.0.1:$alertmanager_port" --cluster.listen-address= --log.level=warn \
    >"$scratch/alertmanager.log" 2>&1 &
  pids+=($!)
  alertmanager_pid=$!
  within 20 curl -sSf -o "$scratch/ready" "http://127.0.0.1:$alertmanager_port/-/ready" 2>/dev/null
}

check_files() {
  expect "promtool accepts the rules" promtool check rules "$rules"/*.rules.yaml
  # These tests cover days and take a while, so that other checks, which mostly wait, run meanwhile.
  promtool test rules "$rules"/tests/*.test.yaml >"$scratch/tests" 2>&1 &
  tests=$!
  pids+=("$tests")
}

check_tests() {
  expect "the tests of the rules pass" wait "$tests"
  cat "$scratch/tests"
}

# Replays 36 hours of four machines: every planted incident has a page.
check_backtest() {
  expect "the tests of the backtest pass" told_of_backtest -m unittest discover -s "$backtest"
  expect "in the backtest, alerts find all incidents, and page in vain at most $in_vain times" told_of_backtest \
    "$backtest/backtest.py" run short --explain --check "$in_vain" \
    "rules=$rules/alerts.rules.yaml,$rules/recording.rules.yaml,$rules/limits.rules.yaml,$backtest/namespaces.rules.yaml,$rules/inhibition.yaml"
  cat "$scratch/backtest"
}

# told_of_backtest ARGUMENTS...: runs python3, and writes its output to a file
told_of_backtest() {
  python3 -B "$@" >"$scratch/backtest" 2>&1
}

check_alerts() {
  if ! alertmanager=$(command -v prometheus-alertmanager || command -v alertmanager); then
    lacks alertmanager "the delivery of alerts" "it is not in PATH; the Debian package is prometheus-alertmanager"
    return
  fi
  expect "Alertmanager is ready within 20 s" start_alertmanager
  start_forkers
  expect "a notification of a fork storm has the labels of its cgroup" within 45 told_of firing PerfForkStorm
  stop "${forkers[0]}"
  stop "${forkers[1]}"
  start_spinners
  expect "the end of the fork storm is notified" within 45 told_of resolved PerfForkStorm
  expect "long runqueue latency is notified, from native histograms" \
    within 45 told_of firing PerfRunQueueLatencyHigh
  expect "no classic bucket was stored for it" \
    holds "$native_port" 'absent(perf_cgroup_sched_runqueue_latency_seconds_bucket)'
  cat "$rules/inhibition.yaml" >>"$scratch/alertmanager.yaml"
  kill -HUP "$alertmanager_pid"
  expect "the alert about the overloaded machine suppresses it" within 45 inhibited PerfRunQueueLatencyHigh
}

check_data() {
  expect "the recorded history can be imported" import_history
  expect "Prometheus is ready within 20 s" start_prometheus prometheus "$prometheus_port"
  expect "every rule is documented and tested" told lint lint "http://127.0.0.1:$prometheus_port" "$repository"
  cat "$scratch/lint"
  expect "every recording rule has data" within 40 \
    told missing without_data "http://127.0.0.1:$prometheus_port" perf-exporter
  cat "$scratch/missing"
  expect "instructions per cycle match the recording: pod 1.25, service 0.5, machine 1" within 20 \
    holds "$prometheus_port" 'abs(pod:perf_instructions_per_cycle:ratio_rate5m{job="recorded",pod="cart-1"} - 1.25) < 0.01
      and on () abs(pod:perf_instructions_per_cycle:ratio_baseline1d{job="recorded",pod="cart-1"} - 1.25) < 0.01
      and on () abs(pod:perf_instructions_per_cycle:ratio_rate5m{job="recorded",pod=""} - 0.5) < 0.01
      and on () abs(instance:perf_instructions_per_cycle:ratio_rate5m{job="recorded"} - 1) < 0.01'
  expect "used and idle CPUs add up to at most the number of CPUs" within 20 \
    holds "$prometheus_port" '0 < instance:perf_cpu_seconds:rate5m <= 1.1 * instance:perf_cpus:count'
  expect "with native histograms, runqueue latency has data too" within 20 \
    told missing_natively without_data "http://127.0.0.1:$native_port" perf-exporter runqueue
  cat "$scratch/missing_natively"
}

clean_up_more() {
  if [ -n "$cgroup_dir" ]; then
    # Children of the loops exit with them, but not at once.
    within 5 rmdir "$cgroup_dir" 2>/dev/null || true
  fi
}

cgroup=/perf-exporter-rules-$$ cgroup_dir=''
backtest=$repository/tests/backtest
# On the first two nights, backups and compactions have no past.
in_vain=7
needs "$exporter" "prometheus promtool curl python3" prometheus, curl and python3
check_files
check_backtest
mount=$(cgroup_mount)
if [ -z "$mount" ] || ! mkdir "$mount$cgroup" 2>/dev/null; then
  lacks cgroup "that rules have data and alerts fire" "none can be created in ${mount:-any hierarchy with perf_event}"
  check_tests
  finish
fi
cgroup_dir=$mount$cgroup
read -r prometheus_port native_port alertmanager_port recorded_port receiver_port < <(free_ports 5)
start_load
start_exporter "$exporter" <<END
counters:
  os: {events: [task-clock, context-switches, cpu-migrations, page-faults, major-faults], per: [cpu, cgroup, process]}
scheduler: {per: [host, cgroup]}
syscalls: {per: [host, cgroup], include: ["*stat*", "*nanosleep", fsync], stuck: 1s}
profiles: {}
cgroups: {include: ["$cgroup"]}
limits: {cpu: off}
END
if ! within 10 fetch /metrics -o "$scratch/metrics.txt" 2>/dev/null; then
  fail "the exporter answers within 10 s"
  finish exporter
fi
sleep 1
fetch /metrics -o "$scratch/metrics.txt"
if ! grep -q '^perf_cgroup_forks_total{' "$scratch/metrics.txt"; then
  lacks tracepoint "that rules have data and alerts fire" "the exporter counts no forks"
  check_tests
  finish
fi
python3 -B "$here/rules.py" serve "$recorded_port" >"$scratch/recorded.log" 2>&1 &
pids+=($!)
copy_rules prometheus
copy_rules native
shorten_rules native
start_prometheus native "$native_port" --enable-feature=native-histograms
check_data
check_tests
check_alerts
finish exporter prometheus native
