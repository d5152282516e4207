#!/bin/bash
# pprof.sh EXPORTER
#
# Reads profiles of a program with known shares of its time by `go tool pprof`, as a user and as the scrapers of Pyroscope and Parca do.
# Checks the table of functions; the files, processes and cgroups in the profile; and the hot instructions of a position-independent
# program, of one with a fixed address, and of one whose file is at another path.
# Requires gcc, readelf, curl and Go, which is searched in PATH and in /usr/local/go/bin. (The pprof of google-perftools reads an older
# format only.) Without Go all checks are skipped with a reason, or fail if PERF_EXPORTER_REQUIRE names `pprof`.
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing.
set -euo pipefail

exporter=${1:?usage: pprof.sh EXPORTER}
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Number of samples that a profile needs for accurate shares.
enough=300

go=$(PATH=$PATH:/usr/local/go/bin command -v go || true)

# Nothing is downloaded, and only Go's cache of built programs is written elsewhere.
pprof() {
  PPROF_TMPDIR=$scratch GOTOOLCHAIN=local "$go" tool pprof "$@"
}

# take WHOM: fetches their profile by pprof into $scratch/profile.pb.gz. Succeeds if it has enough samples.
take() {
  pprof -proto -output="$scratch/profile.pb.gz" \
    "http://$exporter_address/debug/pprof/profile?seconds=3&type=cpu&$1" >"$scratch/pprof.log" 2>&1 &&
    pprof -raw "$scratch/profile.pb.gz" >"$scratch/raw" 2>>"$scratch/pprof.log" &&
    [ "$(samples)" -ge "$enough" ]
}

# Prints the number of samples in the profile.
samples() {
  awk '/^Samples:/ { inside = 1 } /^Locations/ { inside = 0 } inside && /^ +[0-9]+ +[0-9]+: / { sum += $1 }
    END { print sum + 0 }' "$scratch/raw"
}

# report OPTIONS...: writes a report of the profile to $scratch/report
report() {
  pprof "$@" "$scratch/profile.pb.gz" >"$scratch/report" 2>>"$scratch/pprof.log"
}

# says PATTERN: reports whether a line of the profile, in the format of -raw, matches
says() {
  grep -Eq -- "$1" "$scratch/raw"
}

# share FUNCTION COLUMN: prints its share in percent from `-top`: column 2 is flat, column 5 is cumulative
share() {
  awk -v name="$1" -v column="$2" '$NF == name { sub("%", "", $column); print $column; found = 1 }
    END { if (!found) print -1 }' "$scratch/report"
}

# is_about NUMBER FROM TO
is_about() {
  awk -v n="$1" -v from="$2" -v to="$3" 'BEGIN { exit !(n >= from && n <= to) }'
}

first_function() {
  awk '$1 == "flat" { getline; print $NF; exit }' "$scratch/report"
}

build_id() {
  readelf -n "$1" | sed -n 's/.*Build ID: *//p'
}

# Prints the cgroup path in the profile's samples. On a machine with v1, the kernel has several for a process.
labelled_cgroup() {
  sed -n 's/.*cgroup:\[\([^]]*\)\].*/\1/p' "$scratch/raw" | sort -u
}

is_in_cgroup() {
  [ -n "$2" ] && cut -d: -f3- "/proc/$1/cgroup" | grep -qxF -- "$2"
}

# Reports whether the report of -disasm contains the function and attributes all of its values to instructions. A value at an address
# without an instruction is only in the sum of the function.
instructions_have_it_all() {
  awk -v name="$1" '
    function ms(text) { return text ~ /ms$/ ? text + 0 : text ~ /us$/ ? text / 1000 : text ~ /s$/ ? text * 1000 : 0 }
    $1 == "ROUTINE" { inside = $3 == name; next }
    inside && /% of Total/ { whole = ms($1); next }
    inside && $3 ~ /^[0-9a-f]+:$/ { lines++; sum += ms($1) }
    END { exit !(lines > 3 && whole > 0 && sum > 0.98 * whole && sum < 1.02 * whole) }' "$scratch/report"
}

# Reports whether no time is shown twice: functions at equal addresses of two files have at most the total time.
time_is_shown_once() {
  awk -v name="$1" '
    function ms(text) { return text ~ /ms$/ ? text + 0 : text ~ /us$/ ? text / 1000 : text ~ /s$/ ? text * 1000 : 0 }
    $1 == "Total:" { total = ms($2) }
    $1 == "ROUTINE" { inside = $3 == name; routines += inside; next }
    inside && /% of Total/ { sum += ms($1) }
    END { exit !(routines == 2 && sum > 0.9 * total && sum < 1.02 * total) }' "$scratch/report"
}

check_functions() {
  report -top
  expect "pprof -top has the hot function first" test "$(first_function)" = burns
  expect "the hot function has nearly all of the time" is_about "$(share burns 2)" 90 100
  expect "one caller has three quarters of the time" is_about "$(share three_quarters 5)" 62 88
  expect "the other caller has one quarter" is_about "$(share one_quarter 5)" 12 38
  expect "everything is below main()" is_about "$(share main 5)" 95 100
}

# check_contents NAME PID
check_contents() {
  expect "the values are samples and, by default, CPU time" says '^samples/count cpu/nanoseconds\[dflt\]$'
  expect "the period matches the frequency" says '^Period: 2004008$'
  expect "the program is the first mapping, with its path and build id" \
    says "^1: 0x[0-9a-f]+/0x[0-9a-f]+/0x[0-9a-f]+ $scratch/$1 $(build_id "$scratch/$1") \[FN"
  expect "every function of the program has a name" \
    test "$(grep -cE ' M=1 .*\+0x' "$scratch/raw")" = 0
  expect "samples have the name of the thread" says "comm:\[$1\]"
  expect "samples have the ids of the process and the thread" says "pid:\[$2\] tid:\[$2\]"
  expect "samples have the mode, user or kernel" says 'mode:\[user\]'
  expect "samples have the cgroup" is_in_cgroup "$2" "$(labelled_cgroup)"
  report -tags
  expect "pprof -tags shows the labels" grep -qE "comm: Total" "$scratch/report"
  report -top -tagfocus="comm=$1"
  expect "pprof can select by labels" test "$(first_function)" = burns
}

# check_instructions WHAT [FILE]: checks instructions in FILE, if the file is not at the path in the profile. pprof matches the name with
# the address before it, so the pattern cannot begin with ^.
check_instructions() {
  report -disasm='\bburns\b' "${@:2}" || true
  expect "pprof -disasm attributes all of the time to instructions of $1" instructions_have_it_all burns
}

# Checks instructions next to source lines, which pprof finds in the program's debug information.
check_lines() {
  start_hot lined -g
  if within 60 take "pid=$hot_pid"; then
    report -symbolize=force -weblist='\bburns\b' -output="$scratch/weblist.html" || true
    # A source line with time, and instructions of that line after it.
    expect "pprof -weblist has the hot line of the source" \
      grep -Eq '[0-9.]+m?s +[0-9.]+m?s .*sink .*= i . i;' "$scratch/weblist.html"
    expect "pprof -weblist has the hot instructions" grep -Eiq '[0-9.]+m?s +[0-9.]+m?s +[0-9a-f]+: .*\b(i?mul|add|madd)' "$scratch/weblist.html"
  else
    fail "pprof fetches a profile of a program with debug information"
  fi
  stop "$hot_pid"
}

# Two programs whose functions have equal addresses in their files.
check_neighbours() {
  local first
  start_hot neighbour1
  first=$hot_pid
  start_hot neighbour2 -g
  if within 60 take "comm=neighbour*"; then
    report -disasm='\bburns\b' || true
    expect "pprof -disasm distinguishes two programs" time_is_shown_once burns
  else
    fail "pprof fetches a profile of two programs"
  fi
  stop "$first"
  stop "$hot_pid"
}

# Checks that scrapers rely on: one layer of gzip, with a binary content type.
check_transport() {
  fetch '/debug/pprof/profile?seconds=1' -D "$scratch/headers" -H 'Accept-Encoding: gzip' -o "$scratch/scraped" || true
  expect "the content type is application/octet-stream" \
    grep -qi $'^content-type: application/octet-stream\r$' "$scratch/headers"
  expect "gzip is part of the format, not an HTTP encoding" \
    test "$(grep -ci '^content-encoding:' "$scratch/headers")" = 0
  expect "the response is a gzip stream" gzip -t "$scratch/scraped"
  expect "the gzip stream contains no other gzip stream" test "$(gzip -dc "$scratch/scraped" | head -c 2 | od -An -tx1)" != ' 1f 8b'
}

# Checks the same stacks as text, added up without another program.
check_folded() {
  fetch "/folded?type=cpu&pid=$hot_pid" -o "$scratch/folded" || true
  local in_hot
  in_hot=$(awk '{ all += $NF } /;burns [0-9]+$/ { hot += $NF } END { print all ? 100 * hot / all : 0 }' "$scratch/folded")
  expect "folded stacks agree: $in_hot % of the time ends in the hot function" is_about "$in_hot" 90 100
}

# uploaded KEY: prints a value of the response to the last upload
uploaded() {
  sed -n "s/.*\"$1\": *\"\{0,1\}\([0-9a-f]*\).*/\1/p" "$scratch/uploaded"
}

# compared FUNCTION BASE_FROM BASE_TO FROM TO: reports whether the shares of a function in the uploaded profile and in the exporter's own are
# in these ranges, in percent
compared() {
  fetch "/top?type=cpu&pid=$hot_pid&base=$(uploaded base)&limit=10000&format=json" -o "$scratch/compared" || return 1
  python3 - "$scratch/compared" "$@" <<'END'
import json, sys
file, name, *bounds = sys.argv[1:]
table = json.load(open(file))
row = next((row for row in table["functions"] if row["function"] == name), None)
own = row["total_percent"] if row else -1
base = own - row["total_points"] if row else -1
low_base, high_base, low, high = map(float, bounds)
print(f"-- {name}: {base:.1f} % of the file, {own:.1f} % now")
sys.exit(not (low_base <= base <= high_base and low <= own <= high))
END
}

# Profiles of other programs as the base of a comparison: one that pprof wrote again, and one of Go's own profiler.
check_baseline() {
  fetch /api/v1/baselines --data-binary "@$scratch/profile.pb.gz" -o "$scratch/uploaded" || true
  expect "a profile that pprof wrote again has all its samples" test "$(uploaded samples)" = "$(samples)"
  expect "and the share of the hot function as now" compared burns 90 100 90 100
  mkdir -p "$scratch/go"
  cat >"$scratch/go/main.go" <<'END'
package main

import (
	"os"
	"runtime/pprof"
	"syscall"
)

// The profile has a sample for each 10 ms of CPU time, so the load of the machine makes no difference.
func used() int64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano()
}

//go:noinline
func spins(nanoseconds int64) (sum int) {
	for end := used() + nanoseconds; used() < end; {
		for i := 0; i < 1000000; i++ {
			sum += i * i
		}
	}
	return sum
}

func main() {
	pprof.StartCPUProfile(os.Stdout)
	defer pprof.StopCPUProfile()
	spins(2_000_000_000)
}
END
  (cd "$scratch/go" && GOTOOLCHAIN=local GOFLAGS=-mod=mod "$go" run main.go) >"$scratch/go.pb.gz" 2>"$scratch/go.log" || true
  fetch /api/v1/baselines --data-binary "@$scratch/go.pb.gz" -o "$scratch/uploaded" || true
  expect "a profile of Go is read: $(uploaded samples) samples" test "$(uploaded samples)" -ge 50
  expect "its function is in the comparison, and has vanished" compared main.spins 60 100 0 0
}

check() {
  expect "the exporter answers within 20 s" within 20 fetch /-/ready -o "$scratch/ready"
  check_transport
  start_hot movable
  if ! within 60 take "pid=$hot_pid"; then
    fail "pprof fetches a profile of $enough samples"
    return
  fi
  pass "pprof fetches a profile of $enough samples"
  check_functions
  check_contents movable "$hot_pid"
  check_instructions "a program that may be anywhere"
  check_folded
  check_baseline
  mv "$scratch/movable" "$scratch/elsewhere"
  check_instructions "one whose file is elsewhere, and given" "$scratch/elsewhere"
  stop "$hot_pid"
  check_neighbours
  check_lines
  start_hot unmovable -no-pie
  if within 60 take "pid=$hot_pid"; then
    check_instructions "a program that has its addresses for good"
  else
    fail "pprof fetches a profile of a program that has its addresses for good"
  fi
}

needs "$exporter" "gcc readelf curl gzip python3" gcc, binutils, curl, gzip and python3
if [ -z "$go" ]; then
  lacks pprof "pprof reads profiles" "go is neither in PATH nor in /usr/local/go/bin; the Debian package is golang-go"
  finish
fi
if ! pprof -h >"$scratch/pprof.log" 2>&1 && ! grep -q 'Output formats' "$scratch/pprof.log"; then
  lacks pprof "pprof reads profiles" "$go tool pprof does not run: $(tail -n 1 "$scratch/pprof.log")"
  finish
fi
# Small stack copies, so that a debug build on a loaded machine does not fall behind.
start_exporter "$exporter" <<END
counters: {}
profiles:
  cpu: {event: cpu-clock, frequency: 499, stack: 2KiB}
END
check
finish exporter pprof
