"""Changes of the configuration and of the overlay: rollouts, errors, old objects, the time without metrics."""

import json
import re
import threading
import time
from pathlib import Path

from node import (SELECTOR, SPACE, apply, apply_overlay, check, exporter, exporters, fetch, get, is_ready, kubectl, overlay, rejected, require, rolled_out,
                  samples, sources, until)

# The interval of the PodMonitor, in seconds.
INTERVAL = 15
NAME = "perf-exporter"


def run_all():
    config = (sources / "deploy/kubernetes/base/perf-exporter.yaml").read_text()
    overlay("changed", "default", config=config + "\npresets: [forks, page-faults]\n")
    overlay("broken", "default", config=config + "\ncgroup: {depth: 8}\n")
    apply_overlay("default")
    rolled_out()
    check_change()
    check_edit()
    check_error()
    check_breadth()
    check_old_objects()


def check_change():
    watch = Watch()
    with check("a changed configuration rolls out, and its new metrics are published"):
        before = exporter()
        apply_overlay("changed")
        rolled_out()
        require(configuration(before) != configuration(exporter()), "the ConfigMap has the same name")
        until(lambda: samples("perf_cgroup_page_faults_user_total"), "the new preset has no metrics")
    gap = watch.stop()
    # A scrape at each multiple of the interval misses floor(gap / interval) of them, or one more.
    with check(f"a rollout leaves a gap of at most one scrape: {gap:.1f} s without metrics at an interval of {INTERVAL} s"):
        require(gap < 2 * INTERVAL, "the gap is longer")
    with check("counters of the new pod begin at its start, which their created timestamps show"):
        started = min(float(value) for _, value in samples("process_start_time_seconds"))
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        created = re.findall(r"^perf_cpu_task_clock_seconds_created\S* (\S+)", fetch("/metrics?created=true", **accept)[1], re.M)
        require(created and all(float(time) >= started for time in created), f"start {started}, created {created[:2]}")


class Watch:
    """Requests metrics all the time, and remembers the longest time without a response."""

    def __init__(self):
        self.ended, self.gap = threading.Event(), 0.0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        last, pod = time.monotonic(), exporter()
        while not self.ended.wait(0.2):
            try:
                pod = pod if pod else exporter()
                if fetch("/metrics", pod, seconds=5)[0] == 200:
                    self.gap, last = max(self.gap, time.monotonic() - last), time.monotonic()
            except Exception:  # noqa: BLE001: no pod, no address, no connection: all of them are the gap
                pod = None

    def stop(self):
        self.ended.set()
        self.thread.join()
        return self.gap


def configuration(pod):
    (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == "config"]
    return volume["configMap"]["name"]


def check_edit():
    with check("the API server rejects an edit of the ConfigMap, which would not be loaded"):
        name = configuration(exporter())
        message = rejected("kubectl", "-n", SPACE, "patch", "configmap", name, "-p", json.dumps({"data": {"perf-exporter.yaml": "{}"}}))
        require("immutable" in message, message)


def check_error():
    with check("a configuration with an error stops in the init container, and the message of the pod contains the error"):
        apply_overlay("broken")
        state = until(failed_init, "no init container failed")
        require("cgroup" in state.get("message", ""), f"the message is: {state}")
    with check("kubectl rollout undo restores the previous configuration"):
        kubectl("-n", SPACE, "rollout", "undo", "daemonset/perf-exporter")
        rolled_out()
        require(is_ready(exporter()), "it is not ready")


def failed_init():
    for pod in exporters():
        for status in pod["status"].get("initContainerStatuses", []):
            for state in (status["state"], status["lastState"]):
                if state.get("terminated", {}).get("exitCode"):
                    return state["terminated"]
    return None


def check_breadth():
    """Two more nodes exist only as objects. The pods that the DaemonSet creates for them are reported as Ready by this script."""
    with check("a configuration with an error reaches one of three nodes"):
        others = ["made-up-1", "made-up-2"]
        try:
            apply(*map(node, others))
            for name in others:
                kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps({"status": READY_NODE}))
                apply({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": "kube-node-lease"},
                       "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())}})
            until(lambda: len(exporters()) == 3, "there are not three pods")
            for pod in exporters():
                if pod["spec"]["nodeName"] in others:
                    kubectl("-n", SPACE, "patch", "pod", pod["metadata"]["name"], "--subresource=status", "-p", json.dumps({"status": READY_POD}))
            rolled_out(30)
            before = {pod["metadata"]["uid"] for pod in exporters()}
            apply_overlay("broken")
            until(lambda: before - {pod["metadata"]["uid"] for pod in exporters()}, "no pod was replaced")
            # The controller would replace the next pod within this time.
            time.sleep(5)
            kept = before & {pod["metadata"]["uid"] for pod in exporters()}
            require(len(kept) == 2, f"{len(kept)} of 3 pods have the previous configuration")
        finally:
            kubectl("delete", "node", *others)
            for pod in get("pods", "-n", SPACE, "-l", SELECTOR):
                if pod["spec"].get("nodeName") in others:
                    kubectl("-n", SPACE, "delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
            apply_overlay("default")
            rolled_out()


READY_NODE = {"capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"}, "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
              "conditions": [{"type": "Ready", "status": "True", "reason": "MadeUp"}]}
READY_POD = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                                                {"type": "ContainersReady", "status": "True"}]}


def node(name):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/os": "linux", "made-up": "true"}}}


def check_old_objects():
    with check("a switch of overlays leaves a ClusterRole and old ConfigMaps, which the documented command removes"):
        apply_overlay("api-server")
        rolled_out()
        apply_overlay("default")
        rolled_out()
        require(leftovers(), "nothing was left, so the command has no purpose")
        kubectl("apply", "-k", str(sources / "deploy/kubernetes/overlays/default"), *documented_options())
        until(lambda: not leftovers(), lambda: f"these are left: {leftovers()}", 20)
        require(is_ready(exporter()), "the exporter is not ready")


def documented_options():
    """Returns the options of the command in deploy/kubernetes/README.md."""
    text = Path(sources, "deploy/kubernetes/README.md").read_text()
    command = re.search(r"kubectl apply -k \S+overlays/default (--prune.*?)\n```", text, re.S)
    require(command, "README.md has no such command")
    return command[1].replace("\\\n", " ").split()


def leftovers():
    used = configuration(exporter())
    roles = [role["metadata"]["name"] for role in get("clusterrole,clusterrolebinding", "-l", SELECTOR)]
    return roles + [entry["metadata"]["name"] for entry in get("configmap", "-n", SPACE, "-l", SELECTOR) if entry["metadata"]["name"] != used]
