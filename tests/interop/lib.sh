# Common functions of the scripts in this directory. Scripts source it with `. lib.sh` after `set -euo pipefail`, and end with `finish`.
# Started processes are in `pids`, written files in `scratch`; both are removed at the end.
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

# expect SENTENCE COMMAND...: reports the sentence as passed if the command succeeds, else as failed
expect() {
  local sentence=$1
  shift
  if "$@"; then
    pass "$sentence"
  else
    fail "$sentence"
  fi
}

# within SECONDS COMMAND...: repeats the command until it succeeds; fails after this time
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.2
  done
}

# lacks FEATURE CHECK OBSTACLE: skips a check. This is a failure if PERF_EXPORTER_REQUIRE names the feature
lacks() {
  case ,${PERF_EXPORTER_REQUIRE-}, in
    *,"$1",*) fail "$2: $3" ;;
    *) echo "skipped: $2: needs $1, but $3" ;;
  esac
}

# needs EXPORTER TOOLS PACKAGES...: ends the script if the exporter or one of the tools is missing
needs() {
  local exporter=$1 tool missing=()
  for tool in $2; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    echo "${0##*/}: not found: ${missing[*]}; install the Debian packages ${*:3}" >&2
    exit 2
  fi
  if [ ! -x "$exporter" ]; then
    echo "${0##*/}: $exporter: no such program; build target/debug/perf-exporter by cargo build" >&2
    exit 2
  fi
}

# build_go NAME CHECK: builds the program in the directory NAME to $cache/NAME, unless it is current. If that is not possible, skips the check
# and fails.
build_go() {
  local source go
  source=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/$1
  if [ -x "$cache/$1" ] && [ -z "$(find "$source" -newer "$cache/$1")" ]; then
    return
  fi
  go=$(PATH=$PATH:/usr/local/go/bin command -v go || true)
  if [ -z "$go" ]; then
    lacks "$1" "$2" "Go is not installed"
    return 1
  fi
  if ! (cd "$source" && timeout 900 "$go" build -o "$cache/$1" .) >"$scratch/go.log" 2>&1; then
    lacks "$1" "$2" "it could not be built: $(tail -n 1 "$scratch/go.log")"
    return 1
  fi
}

# has_chromium CHECK: sets chromium to the path of the browser, or skips the check and fails
has_chromium() {
  chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
  [ -n "$chromium" ] || {
    lacks chromium "$1" "it is not in PATH; the Debian package is chromium"
    return 1
  }
}

# find_chromium CHECK: the same, but ends the script without a browser
find_chromium() {
  has_chromium "$1" || finish
}

# start_exporter EXPORTER [OPTIONS]: starts it with the configuration from standard input. Sets exporter_address when it serves; the log is in
# exporter.log.
start_exporter() {
  cat >"$scratch/exporter.yaml"
  : >"$scratch/exporter.log"
  "$1" run --config "$scratch/exporter.yaml" --listen 127.0.0.1:0 "${@:2}" >"$scratch/exporter.log" 2>&1 &
  pids+=($!)
  exporter_address=''
  within 20 serves_somewhere || true
}

# Only checks for an address. The caller checks whether the exporter answers.
serves_somewhere() {
  exporter_address=$(sed -n 's|.*serving on https\?://\([^/]*\)/.*|\1|p' "$scratch/exporter.log")
  [ -n "$exporter_address" ]
}

# fetch PATH [CURL ARGUMENTS]: requests a path of the exporter
fetch() {
  curl -sSf --max-time 120 "${@:2}" "http://$exporter_address$1"
}

# start_hot NAME [GCC ARGUMENTS]: compiles and starts a program with this name, $scratch/NAME, that only uses CPU time: three quarters of it
# in three_quarters(), the rest in one_quarter(). Sets hot_pid.
start_hot() {
  gcc -O2 "${@:2}" -o "$scratch/$1" "$(dirname "${BASH_SOURCE[0]}")/../data/programs/hot.c"
  "$scratch/$1" <<<'spins 3600000' >/dev/null &
  hot_pid=$!
  pids+=("$hot_pid")
}

# Prints the mount point of the hierarchy with perf_event: the v1 hierarchy that names it, else v2.
cgroup_mount() {
  awk '$3 == "cgroup" && $4 ~ /(^|,)perf_event(,|$)/ { v1 = $2 }
       $3 == "cgroup2" { v2 = $2 }
       END { print v1 != "" ? v1 : v2 }' /proc/self/mounts
}

# Creates the cgroup "$cgroup" with one process that only uses CPU time. Sets cgroup_dir, or leaves it empty.
start_busy_cgroup() {
  local mount
  mount=$(cgroup_mount)
  if [ -z "$mount" ] || ! mkdir "$mount$cgroup" 2>/dev/null; then
    lacks cgroup "the check of a cgroup" "none can be created in ${mount:-any hierarchy with perf_event}"
    return
  fi
  cgroup_dir=$mount$cgroup
  (
    echo "$BASHPID" >"$cgroup_dir/cgroup.procs"
    exec sh -c 'while :; do :; done'
  ) &
  pids+=($!)
}

# has_only PID CAPABILITIES...: reports whether each thread of the process and of its children has exactly these capabilities, cannot gain
# others, and has a filter of system calls
has_only() {
  python3 - "$@" <<'PYTHON'
import pathlib, sys
NAMES = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN
NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME
SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
CHECKPOINT_RESTORE""".split()
wanted, queue, threads, wrong = set(sys.argv[2:]), [sys.argv[1]], 0, []
while queue:
    for task in pathlib.Path("/proc", queue.pop(), "task").iterdir():
        queue += (task / "children").read_text().split()
        status = dict(line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line)
        names = lambda mask: {name for bit, name in enumerate(NAMES) if int(mask, 16) >> bit & 1}
        threads += 1
        if names(status["CapEff"]) != wanted or names(status["CapPrm"]) != wanted:
            wrong.append(f"{status['Name']}: {sorted(names(status['CapPrm']))} instead of {sorted(wanted)}")
        if not names(status["CapBnd"]) <= wanted:
            wrong.append(f"{status['Name']}: can gain {sorted(names(status['CapBnd']) - wanted)}")
        if (status["NoNewPrivs"], status["Seccomp"]) != ("1", "2"):
            wrong.append(f"{status['Name']}: NoNewPrivs {status['NoNewPrivs']}, Seccomp {status['Seccomp']}")
print(f"{threads} threads have {' '.join(sorted(wanted))}" if not wrong else "\n".join(wrong))
sys.exit(bool(wrong) or threads < 2)
PYTHON
}

# stop PID: kills a process without a message of the shell
stop() {
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# finish LOGS...: exits with the result; after a failure, prints the ends of these logs
finish() {
  local log
  [ $failures -gt 0 ] || exit 0
  for log in "$@"; do
    echo "-- the end of the log of the $log"
    tail -n 20 "$scratch/$log.log"
  done
  exit 1
}

# free_ports N: prints N different unused ports
free_ports() {
  python3 -c '
import socket, sys
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(socket.getsockname()[1] for socket in sockets))' "$1"
}

# Removes further objects of a script, besides `pids` and `scratch`.
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
