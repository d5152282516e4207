#!/bin/bash
# aptq.sh ARCH apt-get|apt-cache ARGUMENTS...
#
# Runs apt for a foreign architecture and for backports, in a separate root. It finds and downloads packages that setup.sh unpacks, and does
# not change the installed packages. It uses the mirrors of this machine.
set -euo pipefail

here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
bed=${TESTBED:-$here/../../../target/testbed}
arch=$1
tool=$2
shift 2
root=$bed/apt/$arch

# Prints the Debian archives among the machine's sources, one line each: URI and suite. apt reports both formats of source lists, so the
# files are not parsed here.
debian_sources() {
  # shellcheck disable=SC2016  # these are apt's variables, not the shell's
  local format='$(ORIGIN) $(REPO_URI) $(RELEASE) $(COMPONENT)'
  apt-get indextargets --format "$format" 'Created-By: Packages' |
    awk '$1 == "Debian" && $4 == "main" { print $2, $3 }' | sort -u
}

write_sources() {
  local keys=/usr/share/keyrings/debian-archive-keyring.gpg
  local codename uri suite
  codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  debian_sources | while read -r uri suite; do
    echo "deb [signed-by=$keys] $uri $suite main"
    if [ "$suite" = "$codename" ]; then
      echo "deb [signed-by=$keys] $uri $codename-backports main"
    fi
  done >"$root/etc/sources.list"
  if [ ! -s "$root/etc/sources.list" ]; then
    echo "aptq.sh: apt knows no Debian archive: run apt-get update, and see that its sources name Debian" >&2
    exit 1
  fi
}

if [ ! -s "$root/etc/sources.list" ]; then
  mkdir -p "$root"/etc/{preferences.d,sources.list.d} "$root/state/lists/partial" "$root/cache/archives/partial"
  : >"$root/status"
  write_sources
fi

options=(
  -o "Dir::Etc=$root/etc"
  -o "Dir::Etc::sourceparts=sources.list.d"
  -o "Dir::Etc::sourcelist=sources.list"
  -o "Dir::State=$root/state"
  -o "Dir::State::status=$root/status" # no package is installed in this root, so none is "already the newest"
  -o "Dir::Cache=$root/cache"
  -o "APT::Architecture=$arch"
  -o "APT::Architectures::=$arch"
  -o "APT::Install-Recommends=0"
  -o "APT::Keep-Downloaded-Packages=1"
  -o "APT::Sandbox::User=root" # the user _apt may not write below the working tree
  -o "Debug::NoLocking=1"
)
exec "$tool" -q "${options[@]}" "$@"
