#!/bin/bash
# run-in-vm.sh arm64|amd64 BINARY ARGUMENTS...
#
# A cargo runner: runs one ELF binary, with the shared libraries that it needs, in a guest of its own.
#   CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$PWD/tests/vm/bed/run-in-vm.sh arm64"
#
# VM_OPTS   more options of vm.sh, split at blanks: "-t 300 -p /some/dir:/some/dir"
# VM_FILES  a directory whose content is put beside the binary
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
# Debug data is most of a test binary, and packing it most of the time that a guest takes.
case $arch in
  arm64) aarch64-linux-gnu-strip -g -o "$work/$name" "$binary" ;;
  *) strip -g -o "$work/$name" "$binary" ;;
esac
"$here/vm.sh" -a "$arch" -l "${options[@]}" "$work" -- "./$name" "$@"
