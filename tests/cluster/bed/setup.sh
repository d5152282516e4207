#!/bin/bash
# setup.sh [--if-present] [--keep-sources]
#
# Downloads and builds the programs of the node in KUBERNETES_CACHE (target/testbed/kubernetes). It installs nothing on the machine.
#
#   deb/   Debian packages, unpacked: containerd, runc, CNI plugins, nft, busybox
#   bin/   programs from Go modules: the components of Kubernetes and etcd as one program (src/kube), kubectl, a pause program, helm
#
# Existing programs are kept, so a second run takes a second. A complete build takes 14 minutes of CPU time and 5 GB of disk, of which 0.4 GB
# are left.
#
#   --if-present     downloads and builds nothing: exit code 3 if a program is missing or older than its source
#   --keep-sources   keeps sources and compiled packages, so that a change in src compiles in 20 s
#
# Requires Debian, Go 1.24 or later, and access to Debian's archive and a Go module proxy. KUBERNETES_JOBS is the number of compilers (2).
# Exit code: 0; 1 if a program cannot be built; 3 if programs are missing with --if-present.
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

PACKAGES=(containerd runc containernetworking-plugins busybox
  nftables libnftables1 libnftnl11 libmnl0 libjansson4 libxtables12 libedit2 libbsd0)
# The kubelet of later versions rejects cgroup v1 by default.
VERSION=1.34.4
HELM=helm.sh/helm/v3/cmd/helm@v3.19.5

packages_is_present() {
  [ -f "$cache/deb/done" ]
}

# Identifies the sources by their content, because a checkout changes the times of files.
sources() {
  { echo $VERSION && cat "$kit"/src/kube/*; } | sha256sum
}

kubernetes_is_present() {
  [ -x "$bin/kube" ] && [ "$(sources)" = "$(cat "$bin/kube.sources" 2>/dev/null)" ]
}

pause_is_present() {
  [ -x "$bin/pause" ]
}

helm_is_present() {
  [ -x "$bin/helm" ]
}

packages() {
  mkdir -p "$cache/deb"
  (cd "$cache/deb" && apt-get -qq download "${PACKAGES[@]}" 2>/dev/null) ||
    fail "apt-get cannot download ${PACKAGES[*]}; run apt-get update"
  local file
  for file in "$cache"/deb/*.deb; do
    dpkg-deb -x "$file" "$deb"
  done
  cat >"$bin/nft" <<NFT
#!/bin/sh
LD_LIBRARY_PATH=$deb/usr/lib/$(uname -m)-linux-gnu:$deb/lib/$(uname -m)-linux-gnu exec "$deb/usr/sbin/nft" "\$@"
NFT
  chmod +x "$bin/nft"
  touch "$cache/deb/done"
}

# The program is each component whose name it is called by. Clients ask for the version.
kubernetes() {
  local name in=k8s.io/component-base/version
  (cd "$kit/src/kube" && "$go" build -trimpath -o "$bin/kube" -ldflags "-s -w -X $in.gitVersion=v$VERSION -X $in.gitMajor=${VERSION%%.*} \
    -X $in.gitMinor=$(cut -d. -f2 <<<"$VERSION") -X $in.gitTreeState=clean" .)
  for name in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kube-dns kube-policy kubectl; do
    ln -sf kube "$bin/$name"
  done
  sources >"$bin/kube.sources"
}

pause() {
  (cd "$kit/src/pause" && "$go" build -trimpath -ldflags '-s -w' -o "$bin/pause" .)
}

helm() {
  GOBIN=$bin "$go" install -trimpath -ldflags '-s -w' "$HELM"
}

prepare_go() {
  go=$(PATH=$PATH:/usr/local/go/bin command -v go) || fail "Go is not installed"
  export GOMODCACHE=$cache/gomod GOCACHE=$cache/gobuild CGO_ENABLED=0
  export GOFLAGS="-p=${KUBERNETES_JOBS:-2} -buildvcs=false -modcacherw"
}

if_present='' keep_sources=''
for word in "$@"; do
  case $word in
    --if-present) if_present=1 ;;
    --keep-sources) keep_sources=1 ;;
    *) fail "$word: no such option; they are --if-present --keep-sources" ;;
  esac
done
missing=()
for part in packages pause kubernetes helm; do
  "${part}_is_present" || missing+=("$part")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ -n "$if_present" ]; then
  echo "setup.sh: not in $cache: ${missing[*]}" >&2
  exit 3
fi
mkdir -p "$bin"
prepare_go
for part in "${missing[@]}"; do
  began=$SECONDS
  "$part"
  echo "$part: $((SECONDS - began)) s"
done
[ -n "$keep_sources" ] || rm -rf "$GOMODCACHE" "$GOCACHE"
