#!/bin/bash
# profile_store.sh EXPORTER
#
# Pushes profiles by OTLP to a server that stores them, Parca, queries them back, and compares them with the exporter's own stacks of the same
# time: the number of samples of a program, and the samples of each of its functions, must be equal.
# Requires gcc, curl and python3. PROFILE_STORE is the path of the program parca (version 0.28 or later, with OTLP 1.10). Without it, all
# checks are skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `profile_store`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: profile_store.sh EXPORTER}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/lib.sh"

# Seconds of a profile.
interval=5

# Number of samples that the comparison needs.
enough=300

# Starts the server. It stores in memory, and asks no other server for symbols.
start_store() {
  cat >"$scratch/store.yaml" <<-END
	object_storage: {bucket: {type: FILESYSTEM, config: {directory: $scratch/store}}}
	END
  "$PROFILE_STORE" --config-path="$scratch/store.yaml" --http-address="127.0.0.1:$1" --debuginfo-cache-dir="$scratch/debuginfo" \
    --debuginfod-upstream-servers="http://127.0.0.1:9" >"$scratch/store.log" 2>&1 &
  pids+=($!)
  within 30 curl -sf --max-time 5 -o "$scratch/types" "http://127.0.0.1:$1/api/profiles/types"
}

# Prints the number of samples that the server has accepted.
accepted() {
  fetch /api/v1/status | python3 -c 'import json, sys; print(json.load(sys.stdin)["pushes"][0]["accepted"])'
}

# Reports whether another profile was accepted since the number of samples was $1.
pushed_since() {
  [ "$(accepted)" -gt "$1" ]
}

# stored PORT: queries the samples of the program by function into $scratch/stored
stored() {
  curl -sSf --max-time 30 -G -o "$scratch/stored" "http://127.0.0.1:$1/api/profiles/query" \
    -d mode=MODE_MERGE -d report_type=REPORT_TYPE_TOP \
    --data-urlencode 'merge.query=perf_exporter:samples:count:cpu:nanoseconds:delta{perf_comm="hot_stored"}' \
    -d "merge.start=$(date -u -d "@$from" +%FT%TZ)" -d "merge.end=$(date -u -d "@$to" +%FT%TZ)"
}

equal() {
  python3 - "$scratch" "$enough" >"$scratch/told" 2>&1 <<-'END'
	import collections, json, sys
	ours = collections.Counter()
	for line in open(f"{sys.argv[1]}/folded"):
	    stack, _, number = line.rpartition(" ")
	    ours[stack.rpartition(";")[2]] += int(number)
	theirs = collections.Counter()
	for node in json.load(open(f"{sys.argv[1]}/stored"))["top"]["list"]:
	    theirs[node["meta"]["function"]["name"]] += int(node.get("flat", 0))
	theirs = +theirs
	assert ours.total() >= int(sys.argv[2]), f"only {ours.total()} samples: {ours}"
	assert ours.total() == theirs.total(), f"{ours.total()} samples, stored {theirs.total()}: {ours}, {theirs}"
	assert ours == theirs, f"stored in addition {theirs - ours}, missing {ours - theirs}"
	print(f"{ours.total()} samples, by function", ours.most_common(3))
	END
}

needs "$exporter" "gcc curl python3" gcc curl python3
if [ ! -x "${PROFILE_STORE-}" ]; then
  lacks profile_store "profiles in a server that stores them" "PROFILE_STORE is not the path of a program"
  finish
fi
port=$(free_ports 1)
expect "the server starts" start_store "$port"
start_exporter "$exporter" <<END
profiles: {cpu: {event: cpu-clock, frequency: 99}}
export: {otlp: {endpoint: "http://127.0.0.1:$port", signals: [profiles], profiles: {interval: ${interval}s}}}
END
# The recording begins with the first profile.
expect "the server accepts profiles" within 60 pushed_since 0
from=$(date +%s)
start_hot hot_stored
sleep $((3 * interval))
stop "$hot_pid"
sleep 1
to=$(($(date +%s) + 1))
# The first of these profiles may have begun before the program ended.
for _ in 1 2; do
  within 60 pushed_since "$(accepted)" || true
done
fetch "/folded?type=cpu&comm=hot_stored&from=$from&to=$to" -o "$scratch/folded"
expect "the server returns the profile of the program" stored "$port"
expect "the stored samples equal the exporter's own, in total and by function" equal
cat "$scratch/told"
expect "the status reports that all profiles are accepted" \
  test "$(fetch /api/v1/status | python3 -c 'import json, sys
print([push["rejected"] + push["partly_rejected"] + push["dropped"] for push in json.load(sys.stdin)["pushes"]])')" = '[0]'
finish exporter
