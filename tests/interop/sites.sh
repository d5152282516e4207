#!/bin/bash
# sites.sh EXPORTER
#
# Opens hostile pages in headless Chromium: a name of another site that resolves to the exporter (DNS rebinding), and pages of another site
# that send requests to it (CSRF). Requires curl and python3. Without chromium all checks are skipped with a reason, or fail if
# PERF_EXPORTER_REQUIRE names `chromium`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: sites.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

reloads() {
  grep -c 'reload of the configuration requested by HTTP' "$scratch/exporter.log" || true
}

needs "$exporter" "curl python3" curl and python3
find_chromium "hostile pages in a browser"
start_exporter "$exporter" <<'YAML'
counters:
  os: {events: [task-clock], per: [cpu]}
web: {hosts: ["*.perf.example"]}
YAML
python3 -B "$(dirname "${BASH_SOURCE[0]}")/sites.py" "$chromium" "${exporter_address##*:}" || failures=$((failures + 1))
expect "no hostile page caused a reload" [ "$(reloads)" = 0 ]
expect "curl can reload" fetch /-/reload -X POST
expect "the reload is in the log with its peer" grep -q 'requested by HTTP.*peer=127.0.0.1' "$scratch/exporter.log"
finish exporter
