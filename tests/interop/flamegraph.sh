#!/bin/bash
# flamegraph.sh EXPORTER
#
# Opens the pages of a running exporter in headless Chromium and uses them: searches the flame graph, enlarges a frame, sorts the table. The
# pages must not load anything from other servers. Screenshots stay in a directory in TMPDIR, whose name is the last line.
# Requires gcc, curl and python3. Without chromium all checks are skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `chromium`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: flamegraph.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Reports whether the profile of the last minute has enough samples for accurate shares.
has_samples() {
  fetch '/top?type=cpu&comm=flaming&format=json' 2>/dev/null |
    python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["samples"] < 500)' 2>/dev/null
}

needs "$exporter" "gcc curl python3" gcc, curl and python3
find_chromium "a browser shows the pages"
# Small stack copies, so that a debug build on a loaded machine does not fall behind.
start_exporter "$exporter" <<'YAML'
counters:
  os: {events: [task-clock, context-switches], per: [cpu, cgroup]}
profiles:
  cpu: {event: cpu-clock, frequency: 199, stack: 2KiB}
YAML
start_hot flaming
expect "the program is sampled" within 120 has_samples
pictures=$(mktemp -d "${TMPDIR:-/tmp}/flamegraph.XXXXXX")
python3 -B "$(dirname "${BASH_SOURCE[0]}")/flamegraph.py" "$chromium" "http://$exporter_address" flaming "$pictures" ||
  failures=$((failures + 1))
echo "screenshots: $pictures"
finish exporter
