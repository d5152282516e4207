#!/usr/bin/env python3
"""sbom.py METADATA LOCK EPOCH RUST MUSL

Prints a software bill of materials (CycloneDX 1.5, JSON) of the released programs: the crates that are linked into them or run
while they are built, Rust's standard library and musl. METADATA is the output of `cargo metadata --filter-platform`, LOCK is
Cargo.lock, EPOCH the time of the commit, RUST and MUSL are versions.
"""

import json
import re
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path


def purl(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums, kind="library"):
    found = {
        "type": kind,
        "bom-ref": purl(package),
        "name": package["name"],
        "version": package["version"],
        "description": (package["description"] or "").strip(),
        # Older crates separate licenses by a slash, which SPDX does not have.
        "licenses": [{"expression": re.sub(r" */ *", " OR ", package["license"] or "NOASSERTION")}],
        "purl": purl(package),
    }
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        found["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    if package["repository"]:
        found["externalReferences"] = [{"type": "vcs", "url": package["repository"]}]
    return found


def toolchain(name, version, license, description):
    return {
        "type": "library",
        "bom-ref": f"pkg:generic/{name}@{version}",
        "name": name,
        "version": version,
        "description": description,
        "licenses": [{"expression": license}],
        "purl": f"pkg:generic/{name}@{version}",
    }


def reached(nodes, root):
    """Returns the direct dependencies of each package that the root needs, without dependencies for tests."""
    edges, waiting = {}, [root]
    while waiting:
        package = waiting.pop()
        if package in edges:
            continue
        edges[package] = sorted(
            dependency["pkg"]
            for dependency in nodes[package]["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        )
        waiting += edges[package]
    return edges


def main(metadata, lock, epoch, rust, musl):
    metadata = json.loads(Path(metadata).read_text())
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in tomllib.loads(Path(lock).read_text())["package"]}
    packages = {package["id"]: package for package in metadata["packages"]}
    root = metadata["resolve"]["root"]
    edges = reached({node["id"]: node for node in metadata["resolve"]["nodes"]}, root)
    program = component(packages[root], checksums, "application")
    linked = [
        toolchain("rust-std", rust, "MIT OR Apache-2.0", "Rust's standard library"),
        toolchain("musl", musl, "MIT", "The C library"),
    ]
    crates = sorted((component(packages[key], checksums) for key in edges if key != root), key=lambda found: found["bom-ref"])
    dependencies = [{"ref": purl(packages[key]), "dependsOn": [purl(packages[to]) for to in edges[key]]} for key in edges]
    for dependency in dependencies:
        if dependency["ref"] == program["bom-ref"]:
            dependency["dependsOn"] += [part["bom-ref"] for part in linked]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(int(epoch), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": program,
        },
        "components": crates + linked,
        "dependencies": sorted(dependencies, key=lambda found: found["ref"]),
    }
    document["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))}"
    print(json.dumps(document, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    main(*sys.argv[1:])
