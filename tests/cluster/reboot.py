"""A node that restarts: its disk is kept, its processes and /run are not."""

import subprocess

from node import HERE, apply_overlay, check, exporter, fetch, is_ready, kubectl, require, rolled_out, samples, skipped, until
from overlays import CGROUPS, names_a_pod


def run_all():
    apply_overlay("default")
    rolled_out()
    with check("after a restart of the node, the exporter becomes Ready, and series have the names of pods again"):
        before = container(exporter())
        for command in (["down.sh"], ["up.sh", "--reboot"]):
            done = subprocess.run([HERE / "bed" / command[0], *command[1:]], check=False, capture_output=True, text=True, timeout=300)
            require(done.returncode == 0, done.stdout + done.stderr)
        until(lambda: container(exporter()) != before and is_ready(exporter()), "no new container becomes ready")
        until(lambda: fetch("/-/ready")[0] == 200, "it does not answer")
        until(lambda: names_a_pod(CGROUPS), lambda: f"no names; lookups: {samples('perf_exporter_container_lookups_total')}")
    with check("and kubectl still reaches it"):
        require("perf-exporter" in kubectl("-n", "perf-exporter", "logs", exporter()["metadata"]["name"], "--tail=5", "--prefix"), "no log")
    skipped("a restart of the kernel", "the node shares the kernel of this machine")


def container(pod):
    return pod["status"]["containerStatuses"][0].get("containerID")
