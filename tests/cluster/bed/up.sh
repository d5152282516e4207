#!/bin/bash
# up.sh [--reboot]
#
# Starts a Kubernetes cluster of one node and waits until the node is Ready: etcd, the API server, controllers, the scheduler, containerd, the
# kubelet, kube-proxy, and programs for DNS and network policies. Prints the line that sets up kubectl. Requires the programs of setup.sh.
#
# The node has its own mounts, network and host name. Its processes and cgroups are those of the machine: a pod with hostPID sees the
# machine. The kubelet changes settings of the kernel (vm.overcommit_memory, kernel.panic, …), which down.sh restores.
#
#   --reboot   keeps the database, the images and the identities of the previous run, as a node keeps its disk; /run is empty
#
# Requires root, nsenter, unshare, ip, openssl; cgroups v1 with the controllers cpu, cpuacct, cpuset, memory and pids, or v2. lib.sh lists
# the settings. Run down.sh afterwards, also after a failure.
# Exit code: 0; 1 if a component does not start, with its log in state/log.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

reboot=''
case ${1-} in
  '') ;;
  --reboot) reboot=1 ;;
  *) fail "$1: no such option; it is --reboot" ;;
esac

check_requirements() {
  local tool
  [ "$(id -u)" = 0 ] || fail "root is required"
  [ -x "$bin/kubelet" ] && [ -x "$deb/usr/bin/containerd" ] || fail "run setup.sh first"
  ! is_up || fail "the node is up"
  for tool in nsenter unshare ip openssl; do
    command -v "$tool" >/dev/null || fail "$tool is not installed"
  done
  ! ip link show "$link" >/dev/null 2>&1 || fail "the interface $link exists: run down.sh, or set KUBERNETES_LINK"
  [ -z "$reboot" ] || [ -d "$state/etcd" ] || fail "there is no previous run"
}

# started NAME COMMAND...: starts the command in the background, in the node and the directory pki, with its pid in pid/NAME and its output
# in log/NAME
started() {
  setsid nsenter --target "$(cat "$state/pid/holder")" --mount --net --uts -- sh -c 'cd "$0" && exec "$@"' "$state/pki" "${@:2}" >>"$state/log/$1" 2>&1 </dev/null &
  echo $! >"$state/pid/$1"
}

save_settings() {
  local name
  for name in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    if [ -f "/proc/sys/$name" ]; then
      echo "$name $(cat "/proc/sys/$name")"
    fi
  done >"$state/sysctl"
}

start_namespaces() {
  local dir
  setsid unshare --mount --net --uts --propagation private sleep infinity >/dev/null 2>&1 </dev/null &
  echo $! >"$state/pid/holder"
  holder=$!
  within 5 sh -c "[ \$(readlink /proc/$holder/ns/net) != \$(readlink /proc/$$/ns/net) ]" || fail "there is no namespace"
  # The programs expect these directories. /run, /var/log and so on of the machine stay as they are.
  for dir in kubelet cni; do
    [ -d "/var/lib/$dir" ] || { mkdir "/var/lib/$dir" && echo "/var/lib/$dir" >>"$state/made"; }
  done
  in_node sh -ec "
    mount --make-rshared /
    hostname $node
    mount -t tmpfs -o mode=755 tmpfs /run
    mkdir /run/containerd
    mount --bind $state/kubelet /var/lib/kubelet
    mount --bind $state/cni/lib /var/lib/cni
    mount --bind $state/podlogs /var/log
    mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing
    ip link set lo up
    ip addr add $services.10/32 dev lo
    sysctl -qw net.ipv4.ip_forward=1 || echo 1 >/proc/sys/net/ipv4/ip_forward
  "
  ip link add "$link" type veth peer name eth0 netns "$holder"
  ip addr add "$link_host/30" dev "$link"
  ip link set "$link" up
  in_node ip addr add "$link_node/30" dev eth0
  in_node ip link set eth0 up
  in_node ip route add default via "$link_host"
  ip route add "$pods.0/24" via "$link_node"
  ip route add "$services.0/24" via "$link_node"
}

# certificate NAME SUBJECT EXTENSIONS
certificate() {
  openssl ecparam -genkey -name prime256v1 -noout -out "$1.key"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -extfile <(echo "$3") -out "$1.crt" 2>/dev/null
}

# user NAME USER GROUP FILE
user() {
  local token
  token=$(openssl rand -hex 16)
  echo "$token,$2,$2,\"$3\"" >>tokens.csv
  cat >"$4" <<YAML
apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://$link_node:443", certificate-authority-data: $(base64 -w0 ca.crt)}}]
users: [{name: $1, user: {token: $token}}]
contexts: [{name: $1, context: {cluster: node, user: $1}}]
current-context: $1
YAML
}

create_identities() {
  openssl ecparam -genkey -name prime256v1 -noout -out ca.key
  openssl req -x509 -new -key ca.key -subj /CN=kubernetes -days 3650 -out ca.crt
  certificate server /CN=kube-apiserver \
    "subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:$services.1,IP:$link_node"
  certificate kubelet-client /O=system:masters/CN=kube-apiserver extendedKeyUsage=clientAuth
  # Signed by the cluster, as with serverTLSBootstrap. Without it, the kubelet signs its own certificate.
  certificate kubelet "/O=system:nodes/CN=system:node:$node" "subjectAltName=DNS:$node,IP:$link_node"
  openssl genrsa -out accounts.key 2048 2>/dev/null
  user admin admin system:masters "$state/admin.conf"
  user controllers system:kube-controller-manager '' controllers.conf
  user scheduler system:kube-scheduler '' scheduler.conf
  user kubelet "system:node:$node" system:nodes kubelet.conf
  user proxy system:kube-proxy '' proxy.conf
  user network network system:masters network.conf
  chmod 600 "$state/admin.conf" ./*.conf ./*.key tokens.csv
}

start_control_plane() {
  started etcd "$bin/etcd" --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn
  started kube-apiserver "$bin/kube-apiserver" --etcd-servers http://127.0.0.1:2379 --secure-port 443 --advertise-address "$link_node" \
    --tls-cert-file server.crt --tls-private-key-file server.key --client-ca-file ca.crt --token-auth-file tokens.csv \
    --kubelet-preferred-address-types InternalIP --kubelet-client-certificate kubelet-client.crt --kubelet-client-key kubelet-client.key \
    --service-account-key-file accounts.key --service-account-signing-key-file accounts.key --service-account-issuer https://kubernetes.default.svc \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --service-cluster-ip-range "$services.0/24" --allow-privileged
  within 90 kubectl get --raw /readyz || fail "the API server does not become ready"
  started kube-controller-manager "$bin/kube-controller-manager" --kubeconfig controllers.conf --root-ca-file ca.crt \
    --service-account-private-key-file accounts.key --use-service-account-credentials --leader-elect=false
  started kube-scheduler "$bin/kube-scheduler" --kubeconfig scheduler.conf --authentication-kubeconfig scheduler.conf \
    --authorization-kubeconfig scheduler.conf --leader-elect=false
}

write_configurations() {
  local snapshotter=overlayfs
  # An overlayfs cannot be the upper directory of another.
  [ "$(stat -f -c %T "$state")" != overlayfs ] || snapshotter=native
  cat >"$state/containerd.toml" <<TOML
version = 2
root = "$state/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # Without CAP_SYS_RESOURCE, the runtime may not lower oom_score_adj.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$deb/usr/lib/cni"
    conf_dir = "$state/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$deb/usr/sbin/runc"
        SystemdCgroup = false
TOML
  cat >"$state/cni/net.d/10-ptp.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "$pods.0/24", "routes": [{"dst": "0.0.0.0/0"}]}}]}
JSON
  cat >"$state/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $state/pki/kubelet.crt
tlsPrivateKeyFile: $state/pki/kubelet.key
cgroupDriver: cgroupfs
# The controllers of the machine may be those of v1.
failCgroupV1: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
clusterDNS: [$services.10]
clusterDomain: cluster.local
failSwapOn: false
# The disk belongs to the machine, so the kubelet must not clean it up.
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%, imagefs.inodesFree: 1%}
nodeStatusUpdateFrequency: 5s
syncFrequency: 10s
registerNode: true
YAML
}

load_images() {
  local image library name
  image=$(mktemp -d)
  install -m 755 "$bin/pause" "$image/pause"
  "$kit/load-image.sh" localhost/pause:1 "$image" /pause
  mkdir "$image/bin"
  rm "$image/pause"
  install -m 755 "$deb/bin/busybox" "$image/bin/busybox"
  # Not the static busybox, which crashes at DNS queries.
  for library in $(ldd "$deb/bin/busybox" | grep -o '/[^ ]*'); do
    install -D "$library" "$image$library"
  done
  for name in $("$deb/bin/busybox" --list); do
    [ "$name" = busybox ] || ln -s busybox "$image/bin/$name"
  done
  # Debian's busybox crashes at `wget -T`.
  rm "$image/bin/wget"
  cat >"$image/bin/wget" <<'SH'
#!/bin/sh
limit=
for word; do
  shift
  case $limit in
    next) limit=$word ;;
    *) if [ "$word" = -T ]; then limit=next; else set -- "$@" "$word"; fi ;;
  esac
done
exec ${limit:+timeout "$limit"} busybox wget "$@"
SH
  chmod 755 "$image/bin/wget"
  mkdir -m 1777 "$image/tmp"
  "$kit/load-image.sh" busybox:1.36 "$image" /bin/sh
  rm -rf "$image"
}

start_node() {
  started containerd "$deb/usr/bin/containerd" --config "$state/containerd.toml"
  within 30 in_node "$deb/usr/bin/ctr" version || fail "containerd does not start"
  [ -n "$reboot" ] || load_images
  started kubelet "$bin/kubelet" --config "$state/kubelet.yaml" --kubeconfig "$state/pki/kubelet.conf" --hostname-override "$node" \
    --node-ip "$link_node" --root-dir /var/lib/kubelet
  started kube-proxy "$bin/kube-proxy" --kubeconfig proxy.conf --hostname-override "$node" --proxy-mode nftables --cluster-cidr "$pods.0/24" \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s
  started dns "$bin/kube-dns" --kubeconfig network.conf --listen "$services.10:53"
  started policy "$bin/kube-policy" --kubeconfig network.conf
  within 90 kubectl wait --for=condition=Ready "node/$node" --timeout=1s || fail "the node does not become Ready"
  within 30 kubectl -n default get serviceaccount default || fail "there are no service accounts"
}

check_requirements
began=$SECONDS
trap 'status=$?; [ $status = 0 ] || echo "up.sh failed: see $state/log, then run down.sh" >&2' EXIT
[ -n "$reboot" ] || rm -rf "$state"
mkdir -p "$state"/{pid,log,pki,etcd,containerd,kubelet,cni/net.d,cni/lib,podlogs}
export PATH=$bin:$deb/usr/bin:$deb/usr/sbin:$PATH
save_settings
start_namespaces
cd "$state/pki"
[ -n "$reboot" ] || create_identities
start_control_plane
echo "the control plane is ready: $((SECONDS - began)) s"
[ -n "$reboot" ] || write_configurations
start_node
echo "the node is Ready: $((SECONDS - began)) s"
echo "export KUBECONFIG=$state/admin.conf PATH=$bin:\$PATH"
