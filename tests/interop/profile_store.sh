#!/bin/bash
# profile_store.sh EXPORTER
#
# Lets a server that stores profiles, Parca, scrape the exporter, queries the profile back, and compares it with the exporter's own stacks of
# the same time: the shares of the functions of a program must be equal, and at least 80 % of the samples must be stored. A scrape begins when
# the one before it has ended, so some percent of the samples are between two scrapes. The sum has no upper bound: merged queries of Parca
# (commit 3b5647c) return up to twice the CPU time that a program has used by /proc, which single profiles of the exporter do not exceed.
# Requires gcc, curl, python3, and Go, which is searched in PATH and in /usr/local/go/bin. PROFILE_STORE is the path of the program parca. Without
# it, all checks are skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `profile_store`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: profile_store.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Seconds of a profile.
interval=5

# Starts the server. It stores in files, and asks no other server for symbols.
start_store() {
  cat >"$scratch/store.yaml" <<-END
	object_storage: {bucket: {type: FILESYSTEM, config: {directory: $scratch/store}}}
	scrape_configs:
	  - job_name: perf-exporter
	    scrape_interval: ${interval}s
	    scrape_timeout: $((3 * interval))s
	    static_configs: [{targets: ["$exporter_address"]}]
	    profiling_config:
	      pprof_config:
	        memory: {enabled: false}
	        block: {enabled: false}
	        goroutine: {enabled: false}
	        mutex: {enabled: false}
	        process_cpu: {enabled: true, path: /debug/pprof/profile, delta: true}
	END
  "$PROFILE_STORE" --config-path="$scratch/store.yaml" --http-address="127.0.0.1:$1" --debuginfo-cache-dir="$scratch/debuginfo" \
    --debuginfod-upstream-servers="http://127.0.0.1:9" >"$scratch/store.log" 2>&1 &
  pids+=($!)
  within 30 curl -sf --max-time 5 -o "$scratch/types" "http://127.0.0.1:$1/api/profiles/types"
}

# Reports whether the server has a profile.
has_profile() {
  curl -sf --max-time 5 "http://127.0.0.1:$1/api/profiles/types" | grep -q process_cpu
}

# stored PORT: queries the profile of all programs, as a table of functions, into $scratch/stored
stored() {
  curl -sSf --max-time 30 -G -o "$scratch/stored.json" "http://127.0.0.1:$1/api/profiles/query" \
    -d mode=MODE_MERGE -d report_type=REPORT_TYPE_PPROF \
    --data-urlencode 'merge.query=process_cpu:cpu:nanoseconds:cpu:nanoseconds:delta{}' \
    -d "merge.start=$(date -u -d "@$((from - 2 * interval))" +%FT%TZ)" -d "merge.end=$(date -u -d "@$((to + interval))" +%FT%TZ)" &&
    python3 -c 'import base64, json, sys; sys.stdout.buffer.write(base64.b64decode(json.load(sys.stdin)["pprof"]))' \
      <"$scratch/stored.json" >"$scratch/stored.pb.gz" &&
    PPROF_TMPDIR=$scratch GOTOOLCHAIN=local "$go" tool pprof -top -unit=ns -nodefraction=0 -nodecount=100000 "$scratch/stored.pb.gz" \
      >"$scratch/stored" 2>"$scratch/pprof.log"
}

is_equal() {
  python3 - "$scratch" >"$scratch/compared" 2>&1 <<-'END'
	import collections, sys
	ours, theirs = collections.Counter(), collections.Counter()
	for line in open(f"{sys.argv[1]}/folded"):
	    stack, _, number = line.rpartition(" ")
	    for function in {*stack.split(";")}:
	        ours[function] += float(number)
	functions = "three_quarters", "one_quarter"
	for line in open(f"{sys.argv[1]}/stored"):
	    words = line.split()
	    if words and words[-1] in functions:
	        theirs[words[-1]] += float(words[3].removesuffix("ns"))
	sums = [sum(counts[function] for function in functions) for counts in (ours, theirs)]
	shares = [counts["three_quarters"] / max(total, 1) for counts, total in zip((ours, theirs), sums)]
	print("seconds, exporter and store:", [total / 1e9 for total in sums], "shares:", shares)
	assert sums[0] > 5e9, "too few samples"
	assert sums[1] >= 0.8 * sums[0], "samples are missing"
	assert abs(shares[0] - shares[1]) < 0.03, "the shares differ"
	END
}

needs "$exporter" "gcc curl python3" gcc curl python3
go=$(PATH=$PATH:/usr/local/go/bin command -v go || true)
if [ ! -x "${PROFILE_STORE-}" ] || [ -z "$go" ]; then
  lacks profile_store "profiles in a server that stores them" "PROFILE_STORE is not the path of a program, or there is no Go"
  finish
fi
port=$(free_ports 1)
start_exporter "$exporter" <<<'profiles: {cpu: {event: cpu-clock, frequency: 99}}'
expect "the server starts" start_store "$port"
expect "the server scrapes profiles" within 60 has_profile "$port"
from=$(date +%s)
start_hot hot_stored
sleep $((5 * interval))
stop "$hot_pid"
to=$(($(date +%s) + 1))
# The last profile ends, and the next one.
sleep $((3 * interval))
fetch "/folded?type=cpu&comm=hot_stored&from=$from&to=$to" -o "$scratch/folded"
expect "the server returns the profile" stored "$port"
expect "the stored functions have the shares of the exporter's own" is_equal
cat "$scratch/compared"
finish exporter
