# What the scripts beside this file have in common: they read it with `. lib.sh`, after `set -euo pipefail`, and end with
# `finish`. Everything that they start is in `pids` and everything that they write in `scratch`; both are gone when they
# end.
# shellcheck shell=bash

failures=0
pids=()
scratch=$(mktemp -d "${TMPDIR:-/tmp}/interop.XXXXXX")

pass() {
  echo "ok: $*"
}

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect SENTENCE COMMAND...: what should be true, and the command that succeeds if it is
expect() {
  local sentence=$1
  shift
  if "$@"; then
    pass "$sentence"
  else
    fail "$sentence"
  fi
}

# within SECONDS COMMAND...: whether the command succeeds in that time
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

# lacks FEATURE CHECK OBSTACLE: a check that cannot be made, which is a failure if PERF_EXPORTER_REQUIRE names the feature
lacks() {
  case ,${PERF_EXPORTER_REQUIRE-}, in
    *,"$1",*) fail "$2: $3" ;;
    *) echo "skipped: $2: needs $1, but $3" ;;
  esac
}

# needs EXPORTER TOOLS PACKAGES...: ends the script if the exporter or one of the tools is not there
needs() {
  local exporter=$1 tool missing=()
  for tool in $2; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "${0##*/}: not found: ${missing[*]}; Debian has them in the packages ${*:3}" >&2
    exit 2
  fi
  if [ ! -x "$exporter" ]; then
    echo "${0##*/}: $exporter: no such program; cargo build makes target/debug/perf-exporter" >&2
    exit 2
  fi
}

# start_exporter EXPORTER: with the configuration of standard input. Sets exporter_address as soon as it serves; the log
# is in exporter.log.
start_exporter() {
  cat >"$scratch/exporter.yaml"
  : >"$scratch/exporter.log"
  "$1" run --config "$scratch/exporter.yaml" --listen 127.0.0.1:0 >"$scratch/exporter.log" 2>&1 &
  pids+=($!)
  exporter_address=''
  within 20 serves_somewhere || true
}

# The check of whether it answers is up to the caller: here it only has an address.
serves_somewhere() {
  exporter_address=$(sed -n 's|.*serving on http://\([^/]*\)/.*|\1|p' "$scratch/exporter.log")
  [ -n "$exporter_address" ]
}

# fetch PATH [CURL ARGUMENTS]: what the exporter has there
fetch() {
  curl -sSf --max-time 120 "${@:2}" "http://$exporter_address$1"
}

# start_hot NAME [GCC ARGUMENTS]: a program of that name, in $scratch/NAME, that does nothing but burn its CPU: below
# three_quarters() three quarters of its time, below one_quarter() the rest. Sets hot_pid.
start_hot() {
  gcc -O2 "${@:2}" -o "$scratch/$1" "$(dirname "${BASH_SOURCE[0]}")/../data/programs/hot.c"
  "$scratch/$1" <<<'spins 3600000' >/dev/null &
  hot_pid=$!
  pids+=("$hot_pid")
}

# Where the hierarchy that perf_event is on is mounted: the v1 hierarchy that names it, else v2.
cgroup_mount() {
  awk '$3 == "cgroup" && $4 ~ /(^|,)perf_event(,|$)/ { v1 = $2 }
       $3 == "cgroup2" { v2 = $2 }
       END { print v1 != "" ? v1 : v2 }' /proc/self/mounts
}

# The cgroup "$cgroup", in which one process does nothing but burn its CPU. Sets cgroup_dir, or leaves it empty.
start_busy_cgroup() {
  local mount
  mount=$(cgroup_mount)
  if [ -z "$mount" ] || ! mkdir "$mount$cgroup" 2>/dev/null; then
    lacks cgroup "the check of a cgroup" "none can be made in ${mount:-any hierarchy with perf_event}"
    return
  fi
  cgroup_dir=$mount$cgroup
  (
    echo "$BASHPID" >"$cgroup_dir/cgroup.procs"
    exec sh -c 'while :; do :; done'
  ) &
  pids+=($!)
}

# stop PID: ends a process at once, without a word of the shell about it
stop() {
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# finish LOGS...: the exit code; after a failure, the ends of these logs too
finish() {
  local log
  [ $failures -gt 0 ] || exit 0
  for log in "$@"; do
    echo "-- the end of the log of the $log"
    tail -n 20 "$scratch/$log.log"
  done
  exit 1
}

# Whatever the script has to remove besides what is in `pids` and `scratch`.
clean_up_more() {
  :
}

# shellcheck disable=SC2317  # the trap calls it
clean_up() {
  local pid
  for pid in "${pids[@]}"; do
    stop "$pid"
  done
  clean_up_more
  rm -rf "$scratch"
}

trap clean_up EXIT
trap 'exit 130' INT TERM HUP
