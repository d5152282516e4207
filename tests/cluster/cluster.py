"""Checks of the manifests and of the chart on a node of Kubernetes, which run.sh starts.

cluster.py [GROUP...]     runs the groups of checks, or all of them
"""

import sys
import time
from pathlib import Path

import access
import chart
import load
import node
import overlays
import reboot
import rollouts

sys.path.append(str(node.HERE.parent / "interop"))
import checks  # noqa: E402: the module is in another directory


def run_overlays():
    overlays.run_all()
    overlays.check_rights_are_needed()
    check_hierarchies()


def check_hierarchies():
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    v1 = sorted({option for mount in mounts if mount[2] == "cgroup" for option in mount[3].split(",")} & {"perf_event", "memory"})
    v2 = any(mount[2] == "cgroup2" for mount in mounts)
    here = "v1 with perf_event" if "perf_event" in v1 else "hybrid" if v1 and v2 else "v2" if v2 else "v1"
    for kind in ("v1 with perf_event", "hybrid", "v2"):
        sentence = f"pods on a node with cgroups: {kind}"
        if kind != here:
            node.skipped(sentence, f"this machine has: {here}")
            continue
        with node.check(sentence):
            node.require(overlays.names_a_pod(overlays.CGROUPS), "their cgroups are not measured")


GROUPS = {"overlays": run_overlays, "rollouts": rollouts.run_all, "load": load.run_all, "access": access.run_all, "chart": chart.run_all,
          "reboot": reboot.run_all}

if __name__ == "__main__":
    for name in sys.argv[1:] or GROUPS:
        began = time.monotonic()
        node.apply(node.namespace("shop"))
        node.until(lambda: node.kubectl("-n", "shop", "get", "serviceaccount", "default"), "no service account")
        node.apply(node.deployment("web", 2, "while :; do read -r line </proc/uptime; done", resources={"limits": {"cpu": "100m"}}))
        with node.check(f"{name}: the preparation succeeds"):
            node.kubectl("-n", "shop", "rollout", "status", "deployment/web", "--timeout=60s", seconds=70)
        try:
            GROUPS[name]()
        except Exception as error:  # noqa: BLE001: a step between checks failed; the other groups can run
            node.expect(f"the steps between the checks of {name} succeed", False, getattr(error, "stderr", None) or repr(error))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    checks.finish()
