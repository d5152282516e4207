# Common settings and functions of the scripts in this directory. Scripts source it; it is not a program.
# shellcheck shell=bash
set -euo pipefail

kit=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
# Downloads and programs, which are kept, and data of the node, which are removed by the next `up.sh`.
cache=$(realpath -m "${KUBERNETES_CACHE:-${TESTBED:-$kit/../../../target/testbed}/kubernetes}")
state=$(realpath -m "${KUBERNETES_STATE:-$cache/state}")

# The node has a network of its own. The machine reaches it by a pair of interfaces. Change the values if they are in use.
node=${KUBERNETES_NODE:-node-1}
link=${KUBERNETES_LINK:-kube0}
link_host=${KUBERNETES_LINK_HOST:-172.31.73.1}
link_node=${KUBERNETES_LINK_NODE:-172.31.73.2}
pods=${KUBERNETES_PODS:-10.173.0}         # a /24
services=${KUBERNETES_SERVICES:-10.174.0} # a /24; .1 is the API server

deb=$cache/deb/root
bin=$cache/bin

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# in_node COMMAND...: runs it with the mounts, the network and the host name of the node
in_node() {
  nsenter --target "$(cat "$state/pid/holder")" --mount --net --uts -- "$@"
}

is_up() {
  [ -f "$state/pid/holder" ] && kill -0 "$(cat "$state/pid/holder")" 2>/dev/null
}

kubectl() {
  "$bin/kubectl" --kubeconfig "$state/admin.conf" "$@"
}

# within SECONDS COMMAND...: repeats the command until it succeeds; fails after this time
within() {
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || return 1
    sleep 0.3
  done
}
