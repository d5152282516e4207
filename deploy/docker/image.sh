#!/bin/bash
# image.sh PROGRAM DIR
#
# Creates the file system of the image in DIR, which must not exist: the program with its capability, the libraries that it is
# linked to and their loader, CA certificates, and the user. Dockerfile calls this script.
# Needs root (for file capabilities), setcap (libcap2-bin) and readelf (binutils).
# Exit code: 0, or 1 if a file cannot be created or found.
set -euo pipefail

program=${1:?usage: image.sh PROGRAM DIR}
image=${2:?usage: image.sh PROGRAM DIR}

case $(readelf -h "$program" | sed -n 's/^ *Machine: *//p') in
  *X86-64*) libraries=lib/x86_64-linux-gnu ;;
  *AArch64*) libraries=lib/aarch64-linux-gnu ;;
  *)
    echo "image.sh: $program is for neither x86-64 nor arm64" >&2
    exit 1
    ;;
esac
mkdir "$image"
mkdir -p "$image"/{etc/ssl/certs,etc/perf-exporter,usr/bin,tmp,host/sys/fs/cgroup} "$image/$libraries"
install -m 755 "$program" "$image/usr/bin/perf-exporter"

# The program contains the path of the loader. Debian's loader searches Debian's library directories.
loader=$(readelf -l "$program" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
# A static program has neither a loader nor libraries.
if [ -n "$loader" ]; then
  mkdir -p "$image$(dirname "$loader")"
  cp -L "/$libraries/$(basename "$loader")" "$image$loader"
  while read -r name; do
    [ "$name" = "$(basename "$loader")" ] || cp -L "/$libraries/$name" "$image/$libraries/"
  done < <(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
fi

cp -L /etc/ssl/certs/ca-certificates.crt "$image/etc/ssl/certs/"
printf '%s\n' 'root:x:0:0:root:/:/sbin/nologin' 'perf-exporter:x:65532:65532:perf-exporter:/:/sbin/nologin' >"$image/etc/passwd"
printf '%s\n' 'root:x:0:' 'perf-exporter:x:65532:' >"$image/etc/group"
# To resolve the names of push receivers.
echo 'hosts: files dns' >"$image/etc/nsswitch.conf"
chmod 1777 "$image/tmp"

# Only this capability: the kernel does not execute a file with more capabilities than the container may have.
setcap cap_perfmon=ep "$image/usr/bin/perf-exporter"
