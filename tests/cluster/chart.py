"""The Helm chart on the node: its variants, `helm test`, values for pods, errors and rollbacks, a hung exporter."""

import os
import signal
from pathlib import Path

import overlays
from node import (PATIENCE, SELECTOR, SPACE, apply, check, exporter, exporters, fetch, get, is_ready, kubectl, namespace, rejected, require, restarts, rolled_out, run,
                  sources, until)

# Variants of the chart beside the default, and the metadata source of each.
VARIANTS = {"profiles, names from the kubelet": ("kubelet", "mode=profiles,names=kubelet"),
            "full, names from the API server": ("api_server", "mode=full,names=api-server"),
            "least-privilege": ("api_server", "mode=least-privilege")}
CUSTOMIZED = """
commonLabels: {team: a}
dnsPolicy: Default
extraContainers: [{name: proxy, image: "busybox:1.36", command: [sleep, "3600"]}]
extraVolumes: [{name: extra, emptyDir: {}}]
extraVolumeMounts: [{name: extra, mountPath: /extra, readOnly: true}]
networkPolicy: {enabled: true}
service: {port: 80}
"""


def helm(*arguments, seconds=PATIENCE * 2):
    return run("helm", *arguments, "-n", SPACE, seconds=seconds)


def upgrade(*arguments):
    return ("upgrade", "--install", "perf-exporter", str(sources / "deploy/helm/perf-exporter"), *arguments)


def waited(*arguments):
    """Installs or upgrades the release, and waits until the pods are Ready."""
    helm(*upgrade("--wait", f"--timeout={PATIENCE}s", *arguments))
    rolled_out()


def run_all():
    kubectl("delete", "namespace", SPACE, "--ignore-not-found", seconds=PATIENCE)
    kubectl("delete", "clusterrole,clusterrolebinding,priorityclass", "-l", SELECTOR)
    apply(namespace(SPACE, **{"pod-security.kubernetes.io/enforce": "privileged"}))
    overlays.one("chart", "cri", apply=lambda _: waited())
    with check("helm test passes"):
        helm("test", "perf-exporter", f"--timeout={PATIENCE}s")
    check_values()
    check_errors()
    for name, (source, values) in VARIANTS.items():
        overlays.one(f"chart, {name}", source, apply=lambda _, values=values: waited("--set", values))
    check_hang()
    check_uninstall()


def check_values():
    file = Path(sources, "customized.yaml")
    file.write_text(CUSTOMIZED)
    with check("values for labels, DNS, volumes and another container have an effect on the running pod"):
        waited("--values", str(file))
        pod = exporter()
        require(len(pod["spec"]["containers"]) == 2 and is_ready(pod), "the other container does not run")
        require(pod["spec"]["dnsPolicy"] == "Default" and pod["metadata"]["labels"]["team"] == "a", "a value has no effect")
    with check("helm test passes with a network policy and another service port"):
        helm("test", "perf-exporter", f"--timeout={PATIENCE}s")


def revision():
    return kubectl("-n", SPACE, "get", "secret", "-l", "owner=helm", "-o", "name").split()


def check_errors():
    with check("helm rejects an unknown key of the configuration, and stores nothing"):
        before = revision()
        message = rejected("helm", *upgrade("--set", "config.limits.seriess=1"), "-n", SPACE)
        require("seriess" in message, message)
        require(revision() == before, "a revision was stored")
    # helm upgrade --wait accepts as many pods that are not Ready as maxUnavailable permits, so it succeeds.
    with check("an event that does not exist stops the rollout, its name is in the message of the pod, and helm rollback restores the release"):
        helm(*upgrade("--set-json", 'config={"counters":{"made_up":{"events":["no-such-event"],"per":["cpu"]}}}'))
        until(failed_check, "no init container failed with the name of the event")
        rejected("kubectl", "-n", SPACE, "rollout", "status", "daemonset/perf-exporter", "--timeout=2s")
        helm("rollback", "perf-exporter", "--wait", f"--timeout={PATIENCE}s")
        rolled_out()
        require(is_ready(exporter()), "it is not ready")


def failed_check():
    for pod in exporters():
        for status in pod["status"].get("initContainerStatuses", []):
            for state in (status["state"], status["lastState"]):
                if "no-such-event" in state.get("terminated", {}).get("message", ""):
                    return True
    return False


def check_hang():
    values = "probes.liveness.periodSeconds=1,probes.liveness.timeoutSeconds=1,probes.liveness.failureThreshold=3,terminationGracePeriodSeconds=2"
    with check("a hung exporter is restarted by its liveness probe"):
        waited("--set", values)
        pod = exporter()
        stop(pod)
        until(lambda: restarts(exporter()) > 0, "the container was not restarted")
        until(lambda: is_ready(exporter()), "it does not become ready")
    with check("a killed exporter is restarted, and counts again"):
        before = restarts(exporter())
        stop(exporter(), signal.SIGKILL)
        until(lambda: restarts(exporter()) > before, "the container was not restarted")
        until(lambda: is_ready(exporter()) and fetch("/-/ready")[0] == 200, "it does not become ready")


def stop(pod, how=signal.SIGSTOP):
    """Sends a signal to the exporter. Its pid is that of the machine."""
    uid = pod["metadata"]["uid"]
    for folder in Path("/proc").iterdir():
        try:
            if uid in (folder / "cgroup").read_text() and (folder / "comm").read_text() == "perf-exporter\n":
                os.kill(int(folder.name), how)
        except (OSError, ValueError):
            continue


def check_uninstall():
    with check("helm uninstall leaves no object"):
        helm("uninstall", "perf-exporter", "--wait")
        kinds = "daemonset,service,configmap,serviceaccount,networkpolicy,clusterrole,clusterrolebinding,priorityclass"
        left = until(lambda: [get(kinds, "-A", "-l", SELECTOR)], "") [0]
        require(not left, [entry["metadata"]["name"] for entry in left])
