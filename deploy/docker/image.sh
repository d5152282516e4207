#!/bin/bash
# image.sh PROGRAM DIR
#
# Makes the file system of the image in DIR, which must not be there: the program with its capability, the libraries that it
# is linked to and their loader, certificates, and the user. Dockerfile calls it.
# Needs root, for capabilities of files; setcap (libcap2-bin), readelf (binutils).
# Exit code: 0, or 1 if something cannot be made or found.
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

# The path of the loader stands in the program. Debian's loader looks for libraries where Debian has them.
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
# Names of receivers that are pushed to.
echo 'hosts: files dns' >"$image/etc/nsswitch.conf"
chmod 1777 "$image/tmp"

# Only this one: the kernel refuses to execute a file that has more than the container may have.
setcap cap_perfmon=ep "$image/usr/bin/perf-exporter"
