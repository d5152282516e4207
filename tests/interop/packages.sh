#!/bin/bash
# packages.sh EXPORTER
#
# Checks the systemd unit with its drop-ins, the Debian package and the Dockerfile. Units must be valid, restricted and have the
# capabilities of docs/privileges.md. With these, the exporter must count, make no forbidden system call, and notify systemd. Packages must
# contain all their files.
# Requires python3 and curl. Some checks require systemd-analyze (systemd), strace, setpriv (util-linux) and cargo-deb. Without them they
# are skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `systemd`, `strace`, `notify` or `cargo-deb`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: packages.sh EXPORTER}
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
. "$here/lib.sh"
root=$(cd "$here/../.." && pwd)
unit=$root/deploy/systemd/perf-exporter.service

judge() {
  python3 "$here/packages.py" "$@"
}

# has_units NAME DROPINS...: creates a directory of units with the path of this exporter
has_units() {
  local dir=$scratch/$1 name
  mkdir -p "$dir/perf-exporter.service.d"
  sed "s|/usr/bin/perf-exporter|$exporter|" "$unit" >"$dir/perf-exporter.service"
  for name in "${@:2}"; do
    cp "$root/deploy/systemd/$name.conf" "$dir/perf-exporter.service.d/"
  done
}

verified() {
  SYSTEMD_UNIT_PATH="$scratch/$1:" systemd-analyze verify --man=no "$scratch/$1/perf-exporter.service" >"$scratch/verified" 2>&1 &&
    ! grep -v '^$' "$scratch/verified"
}

# closed NAME EXPOSURE: checks that systemd's exposure level of a service (0.0 to 10.0) is at most EXPOSURE, in tenths
closed() {
  SYSTEMD_UNIT_PATH="$scratch/$1:" systemd-analyze security --offline=true --no-pager --threshold="$2" "$scratch/$1/perf-exporter.service" \
    >"$scratch/security" 2>&1
  local code=$?
  grep 'Overall exposure' "$scratch/security" || cat "$scratch/security"
  return $code
}

check_units() {
  if ! command -v systemd-analyze >/dev/null; then
    lacks systemd "the unit" "systemd-analyze is not installed"
    return
  fi
  has_units alone
  has_units sampling profiles
  has_units probing probes
  has_units both profiles probes
  has_units keeping state
  local name
  for name in alone sampling probing both keeping; do
    expect "systemd accepts the unit ($name)" verified "$name"
  done
  expect "the service is restricted" closed alone 25
  expect "the service with profiles is restricted" closed sampling 40
  expect "the service with a state directory is restricted" closed keeping 26
  if ! command -v strace >/dev/null; then
    lacks strace "the calls of the exporter" "strace is not installed"
    return
  fi
  check_calls
}

check_calls() {
  start_traced <<-END
	counters: {os: {events: [task-clock], per: [cpu, cgroup, process]}}
	profiles: {cpu: {event: cpu-clock, frequency: 99}}
	export: {otlp: {endpoint: "http://127.0.0.1:1", signals: [metrics, profiles, logs]}}
	END
  within 60 fetch /top -o "$scratch/top" 2>/dev/null || true
  fetch /metrics -o "$scratch/metrics" || true
  # strace does not forward its own signals.
  pkill -TERM -P "$traced" || true
  within 60 test -s "$scratch/calls" || true
  expect "the unit allows all system calls of the exporter" judge calls "$unit" "$scratch/calls"
}

# The same as start_exporter, under strace.
start_traced() {
  cat >"$scratch/exporter.yaml"
  : >"$scratch/exporter.log"
  strace -f -c -S name -o "$scratch/calls" "$exporter" run --config "$scratch/exporter.yaml" --listen 127.0.0.1:0 >"$scratch/exporter.log" 2>&1 &
  traced=$!
  pids+=($!)
  within 60 serves_somewhere || true
}

# As in the unit: a user with ambient capabilities.
check_rights() {
  if [ "$(id -u)" != 0 ] || [ ! -d /sys/kernel/tracing/events ]; then
    lacks tracefs "counting with the unit's capabilities" "it requires root and a mounted tracefs"
    return
  fi
  chmod 755 "$scratch"
  install -m 755 "$exporter" "$scratch/program"
  runs_with alone 65534
  runs_with profiles 65534 "$root/deploy/systemd/profiles.conf"
  runs_with probes 0 "$root/deploy/systemd/probes.conf"
}

# runs_with NAME UID DROPINS...: runs with the capabilities of the unit and its drop-ins. An empty line of a drop-in removes those before it.
runs_with() {
  local list names program=$scratch/program
  mapfile -t names < <(sed -n 's/^AmbientCapabilities=//p' "$unit" "${@:3}" | awk '{ if ($0 == "") all = ""; else all = all " " $0 } END { print all }' |
    tr ' ' '\n' | sed -n 's/^CAP_//p')
  list=-all$(printf ',+%s' "${names[@],,}")
  cp "$root/deploy/systemd/perf-exporter.yaml" "$scratch/service.yaml"
  : >"$scratch/exporter.log"
  setpriv --reuid="$2" --regid="$2" --clear-groups --no-new-privs --bounding-set="$list" --inh-caps="$list" --ambient-caps="$list" \
    "$program" run --config "$scratch/service.yaml" --listen 127.0.0.1:0 >"$scratch/exporter.log" 2>&1 &
  pids+=($!)
  within 20 serves_somewhere || true
  expect "$1: with the unit's capabilities all events of its configuration are counted" within 20 nothing_is_forbidden
  expect "$1: at run time, it has the capabilities of the unit and no others" has_only "${pids[-1]}" "${names[@]}"
  stop "${pids[-1]}"
}

checked() {
  "$exporter" check --no-open --config "$root/deploy/systemd/perf-exporter.yaml" >"$scratch/checked" 2>&1 &&
    grep -q 'no errors, no warnings' "$scratch/checked"
}

nothing_is_forbidden() {
  fetch /metrics >"$scratch/metrics" && grep -q '^perf_sched_run_seconds_total [0-9]*[1-9]' "$scratch/metrics" &&
    ! grep '^perf_event_state.*state="forbidden".* [1-9]' "$scratch/metrics"
}

check_notify() {
  if ! grep -aq NOTIFY_SOCKET "$exporter"; then
    lacks notify "notifications to systemd" "this perf-exporter does not support NOTIFY_SOCKET"
    return
  fi
  judge notified "$scratch/notify" 30 >"$scratch/notified" 2>&1 &
  local listener=$!
  within 10 test -S "$scratch/notify" || true
  NOTIFY_SOCKET=$scratch/notify WATCHDOG_USEC=2000000 start_exporter "$exporter" <<<'profiles: {}'
  expect "the service notifies systemd of its start, and then the watchdog" wait "$listener"
  cat "$scratch/notified"
}

check_deb() {
  expect "the Debian package is described, and its files exist" judge assets "$root"
  expect "the syntax of dpkg's scripts is valid" sh -n "$root"/deploy/debian/postinst
  if ! command -v cargo-deb >/dev/null; then
    lacks cargo-deb "building the Debian package" "cargo-deb is not installed"
    return
  fi
  # With the program of this test, in a copy of the sources.
  mkdir -p "$scratch/deb/target/release"
  (cd "$root" && tar -c --exclude=./target --exclude=./.git .) | tar -xC "$scratch/deb"
  cp "$exporter" "$scratch/deb/target/release/perf-exporter"
  # cargo-deb requires a file for each pattern.
  compgen -G "$scratch/deb/dashboards/*.json" >/dev/null || echo '{}' >"$scratch/deb/dashboards/made-up.json"
  compgen -G "$scratch/deb/deploy/prometheus/*.rules.yaml" >/dev/null || echo 'groups: []' >"$scratch/deb/deploy/prometheus/made-up.rules.yaml"
  expect "cargo deb builds the package" builds_deb
  expect "the package has the program, the unit and the configuration, which is a conffile" has_contents
}

builds_deb() {
  (cd "$scratch/deb" && cargo deb --no-build --no-strip --fast --quiet --output "$scratch/package.deb") >"$scratch/deb.log" 2>&1 || {
    cat "$scratch/deb.log"
    return 1
  }
}

has_contents() {
  local file
  dpkg-deb --contents "$scratch/package.deb" >"$scratch/contents"
  for file in ./usr/bin/perf-exporter ./etc/perf-exporter/perf-exporter.yaml perf-exporter.service ./usr/share/perf-exporter/systemd/profiles.conf; do
    grep -q "$file" "$scratch/contents" || {
      echo "$file is not in the package"
      return 1
    }
  done
  dpkg-deb --ctrl-tarfile "$scratch/package.deb" | tar -xC "$scratch" ./conffiles ./postinst
  grep -qx /etc/perf-exporter/perf-exporter.yaml "$scratch/conffiles" && grep -q deb-systemd-helper "$scratch/postinst" && sh -n "$scratch/postinst"
}

needs "$exporter" "python3 curl" python3 curl
exporter=$(readlink -f "$exporter")
expect "the unit has the capabilities of its features" judge unit "$root/docs/privileges.md" "$unit"
expect "with profiles.conf it has the capabilities of profiles" judge unit "$root/docs/privileges.md" "$unit" "$root/deploy/systemd/profiles.conf"
expect "with probes.conf it has the capabilities of probes" judge unit "$root/docs/privileges.md" "$unit" "$root/deploy/systemd/probes.conf"
expect "with both it has the capabilities of both" judge unit "$root/docs/privileges.md" "$unit" "$root"/deploy/systemd/{profiles,probes}.conf
expect "perf-exporter accepts the installed configuration" checked
expect "the files that the Dockerfile copies exist" judge docker "$root"
check_units
check_rights
check_notify
check_deb
finish exporter
