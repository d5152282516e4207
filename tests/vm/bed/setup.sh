#!/bin/bash
# setup.sh [--dir DIR] [--arch arm64,amd64] [--kernel 6.12,6.1] [--no-rust] [--perf]
#
# Builds the test bed: the files that vm.sh boots, and a Rust compiler for the arm64 guest. All parts are packages of Debian's archive. QEMU
# and the cross gcc are installed; kernels, busybox and rustc are only unpacked in DIR. Existing parts of DIR are kept, so a second run
# takes a second.
#
#   --dir DIR   target directory (TESTBED, or target/testbed of this repository)
#   --arch      guests to prepare (both)
#   --kernel    Debian kernels: 6.12 from backports, 6.1 from the release (6.12)
#   --no-rust   without the compiler for arm64 (about 600 MB)
#   --perf      also Debian's arm64 perf in DIR/perf-arm64, to compare counts inside the guest
#
# Requires Debian 12 on x86-64, and root.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)

say() {
  printf 'setup.sh: [%3d s] %s\n' $SECONDS "$*"
}

die() {
  echo "setup.sh: $*" >&2
  exit 1
}

parse_arguments() {
  local dir=${TESTBED:-$here/../../../target/testbed}
  arches=(arm64 amd64) kernels=(6.12) rust=1 perf=''
  while [ $# -gt 0 ]; do
    case $1 in
      --dir) dir=${2:?--dir needs a directory} && shift ;;
      --arch) IFS=, read -ra arches <<<"${2:?--arch needs arm64, amd64 or both}" && shift ;;
      --kernel) IFS=, read -ra kernels <<<"${2:?--kernel needs 6.12, 6.1 or both}" && shift ;;
      --no-rust) rust='' ;;
      --perf) perf=1 ;;
      *) die "$1: no such option; they are --dir --arch --kernel --no-rust --perf" ;;
    esac
    shift
  done
  local word
  for word in "${arches[@]}"; do
    case $word in arm64 | amd64) ;; *) die "--arch $word: the architectures are arm64 and amd64" ;; esac
  done
  for word in "${kernels[@]}"; do
    case $word in 6.12 | 6.1) ;; *) die "--kernel $word: the kernels are 6.12 and 6.1" ;; esac
  done
  mkdir -p "$dir"
  TESTBED=$(cd "$dir" && pwd)
  export TESTBED
}

wants() {
  [[ " ${arches[*]} " == *" $1 "* ]]
}

check_machine() {
  local id version
  id=$(sed -n 's/^ID=//p' /etc/os-release)
  version=$(sed -n 's/^VERSION_ID=//p' /etc/os-release | tr -d '"')
  if [ "$id $version" != "debian 12" ] || [ "$(uname -m)" != x86_64 ]; then
    die "this is $id $version on $(uname -m); the test bed is made from the packages of Debian 12 on x86-64"
  fi
  [ "$(id -u)" = 0 ] || die "installing qemu needs root: run it as root, or in a container of Debian 12"
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_packages() {
  local package missing=()
  local wanted=(binutils gcc libc6-dev python3 xz-utils zstd)
  if wants amd64; then
    wanted+=(qemu-system-x86)
  fi
  if wants arm64; then
    wanted+=(qemu-system-arm gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
  fi
  for package in "${wanted[@]}"; do
    is_installed "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  # An older qemu-utils conflicts with the newer qemu. It is upgraded by name, so that apt does not remove it.
  if is_installed qemu-utils; then
    missing+=(qemu-utils)
  fi
  say "installing ${missing[*]}"
  apt-get -q update >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends "${missing[@]}" >/dev/null
}

# Updates the package lists of an architecture, once per run and only before a download.
declare -A listed=()
update_lists() {
  [ -z "${listed[$1]-}" ] || return 0
  say "package lists for $1"
  # aptq.sh gets the archives from apt, and apt reports only archives with package lists. Container images have none.
  if [ -z "$(apt-get indextargets 'Created-By: Packages')" ]; then
    apt-get -q update >/dev/null
  fi
  "$here/aptq.sh" "$1" apt-get update >/dev/null
  listed[$1]=1
}

# download ARCH PACKAGE... → the .deb files, in $scratch/debs
download() {
  local arch=$1
  shift
  update_lists "$arch"
  rm -rf "$scratch/debs"
  mkdir "$scratch/debs"
  (cd "$scratch/debs" && "$here/aptq.sh" "$arch" apt-get download "$@" >/dev/null)
}

# depends ARCH PACKAGE PATTERN [RELEASE] → the first dependency whose name matches. Uses the newest package of the release and its updates,
# or of backports if RELEASE names them.
depends() {
  "$here/aptq.sh" "$1" apt-cache -o "APT::Default-Release=${4-}" depends "$2" |
    sed -n "s/.*Depends: \($3\)\$/\1/p" | sed -n 1p
}

# unpack DIR [PATTERN...]: unpacks the downloaded packages, or their matching members, below DIR
unpack() {
  local dir=$1 deb
  shift
  mkdir -p "$dir"
  for deb in "$scratch"/debs/*.deb; do
    dpkg-deb --fsys-tarfile "$deb" | tar -C "$dir" -x --wildcards "$@"
  done
}

setup_kernel() {
  local arch=$1 version=$2 dir=$TESTBED/kernel/$1-$2 release="" package members=('./boot/vmlinuz-*')
  [ ! -d "$dir" ] || return 0
  case $version in
    6.12) release=$codename-backports ;;
    # Of the two kernels, only this one has virtio as modules.
    6.1) members+=('*/drivers/virtio/*.ko*' '*/drivers/char/virtio_console.ko*') ;;
  esac
  update_lists "$arch"
  package=$(depends "$arch" "linux-image-$arch" 'linux-image-[0-9].*' "$release")
  case $package in
    "linux-image-$version."*) ;;
    *) die "Debian now has ${package:-no kernel} for $arch where $version was: name the new version in vm.sh and here" ;;
  esac
  say "kernel $package"
  download "$arch" "$package"
  unpack "$scratch/kernel" "${members[@]}"
  mv "$scratch"/kernel/boot/vmlinuz-* "$scratch/kernel/vmlinuz"
  if [ "$arch" = amd64 ]; then
    python3 "$here/xvmlinux.py" "$scratch/kernel/vmlinuz" "$scratch/kernel/vmlinux"
  fi
  if [ -d "$scratch/kernel/lib" ]; then
    pack_modules "$arch" "$version"
  fi
  mkdir -p "$TESTBED/kernel"
  mv "$scratch/kernel" "$dir" # last, because an existing directory counts as complete
}

pack_modules() {
  local modules=$scratch/modules name file
  rm -rf "$modules"
  mkdir "$modules"
  # In the order of loading. Modules that are built into a kernel have no file.
  for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_console; do
    file=$(find "$scratch/kernel/lib" -name "$name.ko*")
    [ -n "$file" ] || continue
    case $file in
      *.xz) xz -dc "$file" >"$modules/$name.ko" ;;
      *) cp "$file" "$modules/" ;;
    esac
    echo "/mods/$name.ko" >>"$modules/order"
  done
  python3 "$here/mkcpio.py" "$TESTBED/modules-$1-$2.cpio" "$modules:/mods"
}

setup_base() {
  local arch=$1 busybox=$TESTBED/busybox-$1
  if [ ! -x "$busybox" ]; then
    say "busybox for $arch"
    download "$arch" busybox-static
    unpack "$scratch/busybox" ./bin/busybox
    mv "$scratch/busybox/bin/busybox" "$busybox"
  fi
  python3 "$here/mkcpio.py" "$TESTBED/base-$arch.cpio" @nodes "$here/init:/init" "$busybox:/bin/busybox"
}

# Unpacks a rustc with std for arm64: Debian's rustc-web, which Debian keeps current for browsers. Its version may differ from that of
# rust-toolchain or rustup, but must not be older than the MSRV.
setup_rust() {
  local std llvm
  [ ! -d "$TESTBED/rust/usr" ] || return 0
  update_lists amd64
  std=$(depends amd64 libstd-rust-web-dev 'libstd-rust-web-[0-9.]*')
  llvm=$(depends amd64 "$std" 'libllvm[0-9]*')
  say "rustc-web with $std and $llvm"
  download amd64 rustc-web libstd-rust-web-dev "$std" "$llvm"
  unpack "$scratch/rust"
  download arm64 libstd-rust-web-dev
  unpack "$scratch/rust"
  mkdir -p "$TESTBED/rust"
  mv "$scratch/rust/usr" "$TESTBED/rust/"
  "$here/rustc-cross" --version
}

setup_perf() {
  local archives=$TESTBED/apt/arm64/cache/archives
  [ ! -d "$TESTBED/perf-arm64" ] || return 0
  say "perf for arm64"
  update_lists arm64
  "$here/aptq.sh" arm64 apt-get install -y --download-only linux-perf >/dev/null
  mkdir -p "$scratch/debs"
  rm -f "$scratch"/debs/*
  mv "$archives"/*.deb "$scratch/debs/" # perf and all its libraries
  unpack "$scratch/perf"
  rm -rf "$scratch/perf/usr/share"
  mv "$scratch/perf" "$TESTBED/perf-arm64"
}

parse_arguments "$@"
check_machine
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
exec 9>"$TESTBED/.lock"
flock 9 # of two concurrent runs, the second waits and finds the work done
# On the same file system as the bed, so that a finished part is moved there atomically.
scratch=$(mktemp -d "$TESTBED/.setup.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
install_packages
for arch in "${arches[@]}"; do
  setup_base "$arch"
  for kernel in "${kernels[@]}"; do
    setup_kernel "$arch" "$kernel"
  done
done
if wants arm64 && [ -n "$rust" ]; then
  setup_rust
fi
if wants arm64 && [ -n "$perf" ]; then
  setup_perf
fi
say "ready in $TESTBED"
