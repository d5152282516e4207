#!/usr/bin/env python3
"""oci.py DOCKERFILE VERSION EPOCH OUT ARCHITECTURE=DIR...

Writes an OCI image archive for several architectures, without a container engine. Each DIR is the file system of the image for
one architecture, as deploy/docker/image.sh makes it. The configuration of the image is that of the last stage of DOCKERFILE.
EPOCH is the time of all files, in seconds since 1970, so the same input gives the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import re
import sys
import tarfile
from datetime import datetime, timezone
from pathlib import Path

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def settings(dockerfile, version):
    """Returns the section `config` of the image, from the instructions of the last stage."""
    text = Path(dockerfile).read_text().replace("\\\n", " ").split("\nFROM ")[-1]
    lines = dict(re.findall(r"^(USER|EXPOSE|ENTRYPOINT|CMD|LABEL) +(.+)$", text, re.M))
    labels = {name: value.replace("$VERSION", version) for name, value in re.findall(r'([\w.]+)="([^"]*)"', lines["LABEL"])}
    return {
        "User": lines["USER"].strip(),
        "ExposedPorts": {f"{lines['EXPOSE'].strip()}/tcp": {}},
        "Entrypoint": json.loads(lines["ENTRYPOINT"]),
        "Cmd": json.loads(lines["CMD"]),
        "Env": ["PATH=/usr/bin"],
        "Labels": labels,
    }


def layer(root, epoch):
    """Returns a tar archive of the directory, in the order of names, with capabilities of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(Path(root).rglob("*")):
            entry = archive.gettarinfo(path, arcname=str(path.relative_to(root)))
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mtime = epoch
            if entry.isreg() and "security.capability" in os.listxattr(path):
                value = os.getxattr(path, "security.capability")
                entry.pax_headers["SCHILY.xattr.security.capability"] = value.decode("ascii")
            if entry.isreg():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return out.getvalue()


class Image:
    def __init__(self):
        self.blobs = {}

    def add(self, kind, data):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    def add_json(self, kind, value):
        return self.add(kind, json.dumps(value, sort_keys=True).encode())

    def platform(self, architecture, root, config, epoch, annotations):
        tar = layer(root, epoch)
        platform = {"architecture": architecture, "os": "linux"}
        if architecture == "arm64":
            platform["variant"] = "v8"
        time = datetime.fromtimestamp(epoch, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        described = {
            **platform,
            "created": time,
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest()]},
            "history": [{"created": time, "created_by": "deploy/release/oci.py"}],
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.add_json(CONFIG, described),
            "layers": [self.add(LAYER, gzip.compress(tar, 9, mtime=0))],
            "annotations": annotations,
        }
        return {**self.add_json(MANIFEST, manifest), "platform": platform}


def write(path, files, epoch):
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(data), epoch, 0o644
            archive.addfile(entry, io.BytesIO(data))


def main(dockerfile, version, epoch, out, *roots):
    epoch = int(epoch)
    config = settings(dockerfile, version)
    image = Image()
    manifests = []
    for pair in roots:
        architecture, root = pair.split("=", 1)
        manifests.append(image.platform(architecture, root, config, epoch, config["Labels"]))
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests, "annotations": config["Labels"]}
    # One entry with a name: an image of several platforms, which engines take as one tag.
    name = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"docker.io/library/perf-exporter:{version}"}
    top = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [{**image.add_json(INDEX, index), "annotations": name}]}
    files = [
        ("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
        ("index.json", json.dumps(top, sort_keys=True).encode()),
        *((f"blobs/sha256/{digest}", data) for digest, data in sorted(image.blobs.items())),
    ]
    write(out, files, epoch)


if __name__ == "__main__":
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
