#!/bin/bash
# down.sh
#
# Stops everything that up.sh started: its processes by their pids, the processes of pods by their cgroups, then removes the cgroups, the
# interfaces and the mount points, and restores settings of the kernel. Images, the database and logs stay in state/.
# Exit code: 0; 1 if nothing was started, or if a cgroup cannot be removed.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

[ -d "$state/pid" ] || fail "nothing was started"

# ends PID...: sends SIGTERM, and SIGKILL after three seconds
ends() {
  local pid end=$((SECONDS + 3))
  kill "$@" 2>/dev/null || true
  for pid in "$@"; do
    # A zombie has ended.
    while grep -q '^State:.[^ZX]' "/proc/$pid/status" 2>/dev/null && [ $SECONDS -lt $end ]; do
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
}

stop_component() {
  local pid
  pid=$(cat "$state/pid/$1" 2>/dev/null || true)
  [ -z "$pid" ] || ends "$pid"
}

# The trees of cgroups with pods.
find_trees() {
  local tree
  trees=()
  for tree in /sys/fs/cgroup /sys/fs/cgroup/*/; do
    [ ! -d "$tree/kubepods" ] || trees+=("${tree%/}/kubepods")
  done
}

kill_pods() {
  local inside
  [ ${#trees[@]} -gt 0 ] || return 0
  mapfile -t inside < <(find "${trees[@]}" -name cgroup.procs -exec cat {} + 2>/dev/null | sort -un)
  [ ${#inside[@]} -eq 0 ] || kill -KILL "${inside[@]}" 2>/dev/null || true
}

# Processes with the mount namespace of the node.
kill_namespace() {
  local holder home rest p
  holder=$(cat "$state/pid/holder" 2>/dev/null || true)
  [ -n "$holder" ] && [ -e "/proc/$holder/ns/mnt" ] || return 0
  home=$(readlink "/proc/$holder/ns/mnt")
  mapfile -t rest < <(for p in /proc/[0-9]*; do [ "$(readlink "$p/ns/mnt" 2>/dev/null)" != "$home" ] || echo "${p#/proc/}"; done)
  [ ${#rest[@]} -eq 0 ] || ends "${rest[@]}"
}

remove_cgroups() {
  local tree
  for tree in "${trees[@]}"; do
    find "$tree" -depth -type d -exec rmdir {} \; 2>/dev/null || true
  done
  left=$(find /sys/fs/cgroup -maxdepth 2 -name kubepods 2>/dev/null | tr '\n' ' ')
  [ -z "$left" ]
}

restore_settings() {
  local name value
  while read -r name value; do
    echo "$value" >"/proc/sys/$name" || true
  done <"$state/sysctl"
}

# Components that would start pods again come first.
for name in kubelet kube-controller-manager kube-scheduler kube-proxy dns policy; do
  stop_component $name
done
find_trees
kill_pods
for name in containerd kube-apiserver etcd; do
  stop_component $name
done
kill_namespace
ip link del "$link" 2>/dev/null || true
left=''
within 5 remove_cgroups || true
if [ -f "$state/made" ]; then
  xargs rmdir <"$state/made" 2>/dev/null || true
fi
restore_settings
rm -rf "$state/pid" "$state/made"
remove_cgroups || fail "these cgroups could not be removed: $left"
echo "the node is down"
