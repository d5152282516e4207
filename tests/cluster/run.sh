#!/bin/bash
# run.sh [--if-present] EXPORTER [GROUP...]
#
# Runs the exporter on a real node of Kubernetes, as users do: each overlay of deploy/kubernetes, the Helm chart, rollouts, pods that come and
# go, a full node, network policies, a restart of the node. Starts the node (bed/up.sh) and always stops it. Each line has the time of its check.
#
#   --if-present   does not build the programs of the node (bed/setup.sh), which takes 14 minutes of CPU time: exit code 3 if they are missing
#   GROUP          overlays, rollouts, load, access, chart, reboot; all of them by default
#
# Requires Debian, root, Go (only to build), python3, curl, setcap (libcap2-bin), readelf and strip (binutils), nsenter, unshare, ip (iproute2),
# openssl, and a mounted tracefs.
# Environment: KUBERNETES_CACHE   the programs of the node, and its data (TESTBED/kubernetes, or target/testbed/kubernetes)
# Exit code: 0 if every check passes, 1 if not, 2 if a requirement is missing, 3 if this machine cannot run a node.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
repository=$(cd "$here/../.." && pwd)
setup=()
if [ "${1-}" = --if-present ]; then
  setup=(--if-present)
  shift
fi
exporter=${1:?usage: run.sh [--if-present] EXPORTER [GROUP...]}
shift
. "$here/bed/lib.sh"

unavailable() {
  echo "run.sh: $*" >&2
  exit 3
}

check_requirements() {
  local tool
  [ -x "$exporter" ] || { echo "run.sh: $exporter: no such program" >&2 && exit 2; }
  [ "$(id -u)" = 0 ] || unavailable "root is required"
  [ -d /sys/kernel/tracing/events ] || unavailable "tracefs is not mounted"
  for tool in python3 curl setcap readelf strip nsenter unshare ip openssl; do
    command -v "$tool" >/dev/null || { echo "run.sh: $tool is not installed" >&2 && exit 2; }
  done
}

# shellcheck disable=SC2329 # called by trap
clean_up() {
  [ ! -d "$state/pid" ] || "$here/bed/down.sh" || true
  rm -rf "$scratch"
}

copy_sources() {
  local name
  for name in deploy dashboards config docs; do
    cp -r "$repository/$name" "$scratch/$name"
  done
}

load_exporter() {
  local version
  version=$(sed -n 's/.*newTag: \([0-9.]*\)}.*/\1/p' "$repository/deploy/kubernetes/base/kustomization.yaml")
  # Symbols are five times as large as the rest.
  strip -o "$scratch/perf-exporter" "$exporter"
  "$repository/deploy/docker/image.sh" "$scratch/perf-exporter" "$scratch/image"
  KUBERNETES_IMAGE_USER=65532:65532 KUBERNETES_IMAGE_CMD=run "$here/bed/load-image.sh" "perf-exporter:$version" "$scratch/image" /usr/bin/perf-exporter
  rm -rf "$scratch/image" "$scratch/perf-exporter"
  # The kubelet reads seccomp profiles from the disk of the node.
  mkdir -p "$state/kubelet/seccomp/profiles"
  cp "$repository/deploy/kubernetes/components/seccomp/perf-exporter.json" "$state/kubelet/seccomp/profiles/"
}

check_requirements
code=0
"$here/bed/setup.sh" "${setup[@]}" || code=$?
[ $code -ne 3 ] || exit 3
[ $code -eq 0 ] || unavailable "the programs of the node could not be built"
scratch=$(mktemp -d "${TMPDIR:-/tmp}/cluster.XXXXXX")
trap clean_up EXIT
trap 'exit 1' INT TERM
copy_sources
"$here/bed/up.sh"
load_exporter
export PYTHONDONTWRITEBYTECODE=1 KUBECONFIG=$state/admin.conf PATH=$bin:$PATH CLUSTER_SOURCES=$scratch
python3 -u "$here/cluster.py" "$@"
