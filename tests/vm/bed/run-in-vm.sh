#!/bin/bash
# run-in-vm.sh arm64|amd64 BINARY ARGUMENTS...
#
# A cargo runner. Runs one ELF binary with its shared libraries in a new guest.
#   CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/tests/vm/bed/run-in-vm.sh arm64"
#
# VM_OPTS   more options of vm.sh, separated by blanks: "-t 300 -p /some/dir:/some/dir"
# VM_FILES  a directory whose content is copied next to the binary
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
arch=$1
binary=$2
shift 2
read -ra options <<<"${VM_OPTS-}"

work=$(mktemp -d "${TMPDIR:-/tmp}/run-in-vm.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ -n "${VM_FILES-}" ]; then
  cp -r "$VM_FILES/." "$work/"
fi
name=$(basename "$binary")
# Debug information is most of a test binary, and packing it would take most of the time of a run.
case $arch in
  arm64) aarch64-linux-gnu-strip -g -o "$work/$name" "$binary" ;;
  *) strip -g -o "$work/$name" "$binary" ;;
esac
"$here/vm.sh" -a "$arch" -l "${options[@]}" "$work" -- "./$name" "$@"
