#!/bin/bash
# overview.sh EXPORTER
#
# Uses the overview page of a running exporter in headless Chromium: a load that begins at a known second is in the charts at that second, a
# range can be selected, its flame graph has the functions of that range, the report of an incident works without the exporter, and the rates
# are those of perf stat. Screenshots stay in a
# directory in TMPDIR, whose name is the last line.
# Requires gcc, curl and python3. Without chromium or perf, the checks with them are skipped with a reason, or fail if
# PERF_EXPORTER_REQUIRE names `chromium` or `perf`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: overview.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

needs "$exporter" "gcc curl python3" gcc, curl and python3
find_chromium "a browser shows the overview"
# Small stack copies, so that a debug build on a loaded machine does not fall behind.
start_exporter "$exporter" <<YAML
counters:
  os: {events: [task-clock, context-switches, cpu-migrations, page-faults], per: [cpu, cgroup, process]}
scheduler: {per: [host, cgroup], preemption: true}
syscalls: {per: [host]}
presets: []
incidents: {directory: $scratch/incidents}
profiles:
  cpu: {event: cpu-clock, frequency: 199, stack: 2KiB}
YAML
gcc -O2 -o "$scratch/phased" "$(dirname "${BASH_SOURCE[0]}")/../data/programs/hot.c"
perf=$(command -v perf || true)
[ -n "$perf" ] || lacks perf "rates are those of perf stat" "perf is not installed"
pictures=$(mktemp -d "${TMPDIR:-/tmp}/overview.XXXXXX")
python3 -B "$(dirname "${BASH_SOURCE[0]}")/overview.py" "$chromium" "http://$exporter_address" "$scratch/phased" "$pictures" "$perf" ||
  failures=$((failures + 1))
echo "screenshots: $pictures"
finish exporter
