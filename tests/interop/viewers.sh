#!/bin/bash
# viewers.sh EXPORTER
#
# Records a program with known shares of its time into perf.data, with copies of its stack, converts the recording, and reads the results by the viewers themselves:
# the parser of hotspot, Firefox Profiler (its command line, which has the code of the page), and speedscope in headless Chromium.
# Requires gcc and python3. hotspot, npm with access to its registry, and chromium are searched. The checks of those that are missing are
# skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `hotspot`, `npm` or `chromium`. The packages of npm stay in the directory
# VIEWERS_CACHE (default: ../interop beside the directory of the exporter).
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: viewers.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cache=${VIEWERS_CACHE:-$(dirname "$exporter")/../interop}
here=$(dirname "${BASH_SOURCE[0]}")

# Prints the number of samples of the program, as `script` prints them.
samples() {
  "$exporter" script -i "$scratch/perf.data" 2>/dev/null | grep -c '^hot '
}

# has_share FUNCTION FROM TO: reports whether the total share of a function in Firefox Profiler is in this range, in percent
has_share() {
  profiler thread functions --json --limit 0 | python3 -c '
import json, sys
name, least, most = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
shares = [function["totalPercentage"] for function in json.load(sys.stdin)["functions"]
          if function["nameWithLibrary"] == name]
print(f"{name}: {shares}")
sys.exit(not (len(shares) == 1 and least <= shares[0] <= most))' "$@"
}

# The session of Firefox Profiler and its files stay in the scratch directory.
profiler() {
  HOME=$scratch timeout 120 "$cache/viewers/node_modules/.bin/profiler-cli" "$@"
}

has_names() {
  local name
  strings -a "$scratch/hotspot" >"$scratch/strings"
  for name in main three_quarters one_quarter burns; do
    grep -q "$name" "$scratch/strings" || return 1
  done
}

check_hotspot() {
  local parser
  parser=$(find /usr/lib /usr/libexec -name hotspot-perfparser -type f 2>/dev/null | head -n 1)
  if [ -z "$parser" ]; then
    lacks hotspot "hotspot reads perf.data" "its parser is not installed; the Debian package is hotspot"
    return
  fi
  timeout 120 "$parser" --input "$scratch/perf.data" --output "$scratch/hotspot" >"$scratch/hotspot.log" 2>&1 || true
  expect "hotspot finds the functions of the program in perf.data" has_names
}

install_viewers() {
  mkdir -p "$cache/viewers"
  timeout 300 npm install --silent --no-audit --no-fund --prefix "$cache/viewers" \
    @firefox-devtools/profiler-cli@0.10 speedscope@1.25 >"$scratch/npm.log" 2>&1
}

check_firefox() {
  profiler load "$scratch/firefox.json" >"$scratch/firefox.log" 2>&1 || fail "Firefox Profiler loads the recording: $(cat "$scratch/firefox.log")"
  expect "Firefox Profiler attributes three quarters of the time" has_share 'hot!three_quarters' 60 90
  expect "Firefox Profiler attributes one quarter of the time" has_share 'hot!one_quarter' 10 40
  profiler stop --all >>"$scratch/firefox.log" 2>&1 || true
}

check_speedscope() {
  has_chromium "speedscope shows the recording" || return 0
  python3 -B "$here/viewers.py" "$chromium" "$cache/viewers/node_modules/speedscope/dist/release" "$scratch" ||
    failures=$((failures + 1))
}

# is_chrome_trace SAMPLES: reports whether each sample is an instant whose stack frames exist
is_chrome_trace() {
  python3 - "$scratch/chrome.json" "$1" <<'PYTHON'
import json, sys
trace = json.load(open(sys.argv[1]))
instants = [event for event in trace["traceEvents"] if event["ph"] == "i"]
frames = trace["stackFrames"]
broken = [event for event in instants if "sf" in event and event["sf"] not in frames]
broken += [frame for frame in frames.values() if "parent" in frame and frame["parent"] not in frames]
print(f"{len(instants)} instants, {len(frames)} frames, {len(broken)} broken references")
sys.exit(len(instants) != int(sys.argv[2]) or bool(broken))
PYTHON
}

needs "$exporter" "gcc python3 strings" gcc, python3 and binutils
gcc -O2 -g -o "$scratch/hot" "$here/../data/programs/hot.c"
"$exporter" record -F 499 --call-graph dwarf -o "$scratch/perf.data" "$scratch/hot" <<<'spins 3000' >/dev/null 2>"$scratch/record.log"
for format in firefox speedscope chrome; do
  "$exporter" script -i "$scratch/perf.data" --comms hot --format "$format" >"$scratch/$format.json" 2>"$scratch/script.log"
done
taken=$(samples)
echo "$taken samples"
expect "the recording has samples" test "$taken" -gt 500
expect "each sample is in the trace for Perfetto" is_chrome_trace "$taken"
check_hotspot
if ! command -v npm >/dev/null; then
  lacks npm "Firefox Profiler and speedscope read the recording" "it is not installed"
elif ! install_viewers; then
  lacks npm "Firefox Profiler and speedscope read the recording" "its packages cannot be installed: $(tail -n 1 "$scratch/npm.log")"
else
  check_firefox
  check_speedscope
fi
finish record script
