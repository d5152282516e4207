#!/bin/bash
# load-image.sh NAME:TAG DIR [ENTRYPOINT...]
#
# Makes an image of the files in DIR, including their capabilities, and imports it into the containerd of the node, without a registry.
# KUBERNETES_IMAGE_USER and KUBERNETES_IMAGE_CMD set the user and the arguments of the image.
# Requires tar and sha256sum, and a started node (up.sh).
. "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/lib.sh"

name=${1:?usage: load-image.sh NAME:TAG DIR [ENTRYPOINT...]}
dir=${2:?usage: load-image.sh NAME:TAG DIR [ENTRYPOINT...]}
shift 2
case $(uname -m) in
  x86_64) machine=amd64 ;;
  aarch64) machine=arm64 ;;
  *) fail "$(uname -m): no such architecture" ;;
esac

# json WORDS...: prints a list of strings
json() {
  local word list=
  for word in "$@"; do
    list+="${list:+, }\"$word\""
  done
  echo "[$list]"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tar -C "$dir" --format=pax --numeric-owner --owner=0 --group=0 --sort=name --mtime=@0 --xattrs --xattrs-include=security.capability -cf "$work/layer.tar" .
layer=$(sha256sum "$work/layer.tar" | cut -d' ' -f1)
read -ra cmd <<<"${KUBERNETES_IMAGE_CMD:-}"
cat >"$work/config.json" <<JSON
{"architecture": "$machine", "os": "linux", "created": "1970-01-01T00:00:00Z", "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "load-image.sh"}],
 "config": {"User": "${KUBERNETES_IMAGE_USER:-}", "Env": ["PATH=/usr/bin:/bin"], "Entrypoint": $(json "$@"), "Cmd": $(json "${cmd[@]}")},
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}}
JSON
echo "[{\"Config\": \"config.json\", \"RepoTags\": [\"$name\"], \"Layers\": [\"layer.tar\"]}]" >"$work/manifest.json"
tar -C "$work" -cf "$work/image.tar" manifest.json config.json layer.tar
in_node "$deb/usr/bin/ctr" -n k8s.io images import "$work/image.tar" >/dev/null
