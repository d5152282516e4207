#!/bin/bash
# run.sh [--arch arm64,amd64] [--kernel 6.12,6.1] [--test NAME]... [-- ARGUMENTS OF THE TESTS]
#
# Runs integration tests in guests: the target `vm`, or the targets given with --test; `guest` compares recordings with those of perf. The
# arm64 guest has an emulated PMU that counts cycles and instructions, and Debian's perf. The x86-64 guest has kprobes, no PMU, and the perf
# of this machine. Sets up the test bed if it is missing. Tests may not be skipped for a feature that their guest offers.
#
# Environment:
#   TESTBED          directory of the test bed (target/testbed)
#   VM_LIMIT         limit of a run, in seconds (900)
#   HOTPLUG_CYCLES   for the tests that take a CPU offline
#   FOREIGN_SECONDS  for the tests beside other users of the PMU; `-- --ignored foreign:: --nocapture` prints their figures
#   FOREIGN_PERF     the path of perf in the guest (/usr/bin/perf), for the figures beside that program
set -euo pipefail

repository=$(cd "$(dirname "$(readlink -f "$0")")/../.." && pwd)
bed=$repository/tests/vm/bed
common=software,tracepoint,cgroup,uprobe,kprobe,stream,tracefs,perf

parse_arguments() {
  arches=arm64,amd64 kernels=6.12 tests=() arguments=()
  while [ $# -gt 0 ]; do
    case $1 in
      --arch) arches=${2:?--arch needs arm64, amd64 or both} && shift ;;
      --kernel) kernels=${2:?--kernel needs 6.12, 6.1 or both} && shift ;;
      --test) tests+=(--test "${2:?--test needs the name of a test target}") && shift ;;
      --)
        shift
        arguments=("$@")
        break
        ;;
      *)
        echo "run.sh: $1: no such option; they are --arch --kernel --test" >&2
        exit 2
        ;;
    esac
    shift
  done
  if [ ${#tests[@]} -eq 0 ]; then
    tests=(--test vm)
  fi
}

# Builds the program and the tests for an architecture, and sets the variables that depend on it.
build() {
  local target
  target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
  case $1 in
    arm64)
      perf=$bed_dir/perf-arm64/usr/bin/perf
      VM_LIBPATH="$bed_dir/perf-arm64/lib/aarch64-linux-gnu $bed_dir/perf-arm64/usr/lib/aarch64-linux-gnu"
      cargo=$bed/cargo-arm64 strip=aarch64-linux-gnu-strip features=$common,pmu,emulated
      program=$target/arm64/aarch64-unknown-linux-gnu/debug/perf-exporter
      ;;
    amd64)
      perf=$(command -v perf) VM_LIBPATH=''
      cargo=cargo strip=strip features=$common,hotplug
      program=$target/debug/perf-exporter
      ;;
  esac
  "$cargo" test --locked --no-run "${tests[@]}"
  # The tests run the program at the path that was compiled into them, in the guest as on this machine.
  "$strip" -g -o "$scratch/perf-exporter-$1" "$program"
}

run_tests() {
  local arch=$1 kernel=$2
  echo "== $arch, kernel $kernel"
  local limit=${VM_LIMIT:-900}
  # The command's own limit is reached first: only then does the guest pass its output on.
  VM_OPTS="-v -k $kernel -t $((limit * 29 / 30)) -T $limit -e RUST_BACKTRACE=1 -e PERF_EXPORTER_REQUIRE=$features"
  VM_OPTS+=" ${HOTPLUG_CYCLES:+-e HOTPLUG_CYCLES=$HOTPLUG_CYCLES}"
  VM_OPTS+=" ${FOREIGN_SECONDS:+-e FOREIGN_SECONDS=$FOREIGN_SECONDS}"
  VM_OPTS+=" ${FOREIGN_PERF:+-e FOREIGN_PERF=$FOREIGN_PERF} -p $perf:/usr/bin/perf"
  VM_OPTS+=" -p $scratch/perf-exporter-$arch:$program"
  export VM_OPTS VM_LIBPATH
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$bed/run-in-vm.sh arm64" \
    CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$bed/run-in-vm.sh amd64" \
    "$cargo" test --locked --no-fail-fast "${tests[@]}" -- "${arguments[@]}"
}

parse_arguments "$@"
cd "$repository"
"$bed/setup.sh" --arch "$arches" --kernel "$kernels" --perf
bed_dir=${TESTBED:-$PWD/target/testbed}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/vm-tests.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
failed=0
for arch in ${arches//,/ }; do
  build "$arch"
  for kernel in ${kernels//,/ }; do
    run_tests "$arch" "$kernel" || failed=1
  done
done
exit $failed
