"""Pods that come and go, a busy node, a full node, taints."""

import time
from pathlib import Path

from node import (PATIENCE, SPACE, apply, apply_overlay, busybox, check, deployment, exporter, exporters, fetch, get, is_ready, kubectl, pods, require, restarts,
                  rolled_out, samples, total, until)

CGROUPS = "perf_cgroup_task_clock_seconds_total"


def run_all():
    apply_overlay("default")
    rolled_out()
    check_churn()
    check_limits()
    check_priority()
    check_taints()


def check_churn():
    names = [f"short-{number}" for number in range(12)]
    with check("pods that live for a few seconds are measured with their names"):
        before = exporter()
        for start in range(0, len(names), 4):
            apply(*(busybox(name, "t=$(($(date +%s) + 8)); while [ $(date +%s) -lt $t ]; do :; done") for name in names[start:start + 4]))
        seen, peak = set(), 0
        end = time.monotonic() + PATIENCE
        while not seen >= set(names):
            require(time.monotonic() < end, f"only {sorted(seen)} were seen")
            seen |= pods_with_counts()
            peak = max(peak, cgroups())
    with check("after they end, their cgroups are not counted any more, and no container is without a name"):
        kubectl("-n", "shop", "delete", "pod", *names)
        until(lambda: cgroups() <= peak - len(names), lambda: f"{cgroups()} cgroups are counted, {peak} before")
        until(lambda: total("perf_exporter_unknown_containers") == 0, "containers without names remain")
        require(exporter()["metadata"]["uid"] == before["metadata"]["uid"] and restarts(exporter()) == 0, "the exporter was restarted")


def cgroups():
    return total("perf_targets", counters="os", scope="cgroup", state="counted")


def pods_with_counts():
    return {labels["pod"] for labels, _ in samples(CGROUPS) if labels.get("namespace") == "shop" and labels.get("container")}


def check_limits():
    with check("the kernel enforces the memory limit of the pod"):
        require(int(memory("limit_in_bytes", "max")) == 256 << 20, memory("limit_in_bytes", "max"))
    with check("under load, the exporter answers, and takes at most three quarters of its memory limit, without a restart"):
        apply(*(busybox(f"busy-{number}", "while :; do (sleep 0.01 & cat /proc/uptime >/dev/null); done", resources={"requests": {"cpu": "10m"}, "limits": {"cpu": "700m"}})
                for number in range(4)))
        until(lambda: len([pod for pod in pods("-n", "shop") if pod["metadata"]["name"].startswith("busy-") and is_ready(pod)]) == 4, "they do not run")
        peak = 0
        for _ in range(10):
            time.sleep(1)
            require(fetch("/metrics")[0] == 200, "no metrics")
            peak = max(peak, total("perf_exporter_resident_memory_bytes"))
        require(0 < peak < 192 << 20, f"{peak / (1 << 20)} MiB are in use")
        require(restarts(exporter()) == 0, "it was restarted")
        require(is_ready(exporter()), "it is not ready")
    kubectl("-n", "shop", "delete", "pod", *(f"busy-{number}" for number in range(4)))


def memory(v1, v2):
    """Reads a file of the memory controller for the pod of the exporter."""
    uid = exporter()["metadata"]["uid"]
    identity = exporter()["status"]["containerStatuses"][0]["containerID"].split("//")[1]
    for folder, name in (("/sys/fs/cgroup/memory", f"memory.{v1}"), ("/sys/fs/cgroup", f"memory.{v2}")):
        for path in Path(folder, "kubepods").glob(f"**/pod{uid}/{identity}/{name}"):
            return path.read_text().strip()
    raise KeyError(f"no memory cgroup of {uid}")


def check_priority():
    with check("on a full node, the exporter takes the place of a pod with a lower priority"):
        kubectl("-n", SPACE, "delete", "daemonset", "perf-exporter")
        until(lambda: not get("pods", "-n", SPACE), "the pod does not end")
        (node,) = get("nodes")
        used = sum(milli(part["resources"].get("requests", {}).get("cpu", "0"))
                   for pod in pods("-A") if pod["status"]["phase"] == "Running" for part in pod["spec"]["containers"])
        share = (milli(node["status"]["allocatable"]["cpu"]) - used) // 4
        # Four fit, and leave less than the exporter requests.
        apply(deployment("filler", 5, "sleep 3600", resources={"requests": {"cpu": f"{share}m"}}))
        until(lambda: [pod for pod in pods("-n", "shop", "-l", "app=filler") if pod["status"]["phase"] == "Pending" and is_unschedulable(pod)],
              "the node does not become full")
        running = {pod["metadata"]["uid"] for pod in pods("-n", "shop", "-l", "app=filler") if "nodeName" in pod["spec"]}
        apply_overlay("default")
        rolled_out()
        require(running - {pod["metadata"]["uid"] for pod in pods("-n", "shop", "-l", "app=filler")}, "no pod lost its place, so the node was not full")
    kubectl("-n", "shop", "delete", "deployment", "filler")


def milli(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


def is_unschedulable(pod):
    return any(part.get("reason") == "Unschedulable" for part in pod["status"].get("conditions", []))


def check_taints():
    with check("a taint evicts other pods; the exporter stays, and also starts on the tainted node"):
        (node,) = get("nodes")
        name = node["metadata"]["name"]
        before = exporter()["metadata"]["uid"]
        kubectl("taint", "node", name, "maintenance=now:NoExecute")
        try:
            until(lambda: not any("nodeName" in pod["spec"] for pod in pods("-n", "shop")), "the other pods stay")
            require(exporter()["metadata"]["uid"] == before, "the exporter was evicted")
            kubectl("-n", SPACE, "delete", "pod", exporter()["metadata"]["name"])
            until(lambda: any(pod["metadata"]["uid"] != before and is_ready(pod) for pod in exporters()), "no pod starts on the tainted node")
        finally:
            kubectl("taint", "node", name, "maintenance-")
