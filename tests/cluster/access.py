"""Clients and levels of security: network policies, tokens of the cluster, Pod Security, seccomp, priority of the node."""

import re
import subprocess

from node import (SPACE, apply, apply_overlay, busybox, check, exporter, fetch, get, kubectl, namespace, overlay, rejected, require, rolled_out, skipped,
                  until)

# Minimal definitions of the objects of the Prometheus Operator; manifests.sh compares the objects with the real ones.
CUSTOM = {"PodMonitor": "podmonitors", "PrometheusRule": "prometheusrules"}
DENIED = re.compile("timed out|Terminated|exit code|command terminated")


def run_all():
    check_pod_security()
    check_network_policy()
    check_components()


def check_pod_security():
    with check("the namespace admits the pod; the levels baseline and restricted reject it for the documented reasons"):
        apply_overlay("default")
        rolled_out()
        for level, reasons in (("privileged", []), ("baseline", ["host namespaces", "hostPath volumes", "non-default capabilities"])):
            done = subprocess.run(["kubectl", "label", "--dry-run=server", "--overwrite", "namespace", SPACE, f"pod-security.kubernetes.io/enforce={level}"],
                                  check=True, capture_output=True, text=True, timeout=60)
            warned = re.findall(r"perf-exporter-\S+(?: \(and .*?\))?: (.*)", done.stderr)
            found = sorted(reason.strip() for line in warned for reason in line.split(","))
            require(found == sorted(reasons), f"{level}: {done.stderr}")
    with check("the least privileges do not satisfy the level restricted, as documented"):
        apply(namespace("strict", **{"pod-security.kubernetes.io/enforce": "restricted"}))
        daemonset = get("daemonset", "perf-exporter", "-n", SPACE)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "strict"}, "spec": daemonset["spec"]["template"]["spec"]}
        pod["spec"].pop("serviceAccountName", None)
        pod["spec"].pop("serviceAccount", None)
        import json
        message = rejected("kubectl", "create", "-f", "-", given=json.dumps(pod))
        require("hostPID" in message or "host namespaces" in message, message)


def definition(kind, plural):
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.monitoring.coreos.com"},
            "spec": {"group": "monitoring.coreos.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                     "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}]}}


def check_network_policy():
    with check("prometheus-operator: all objects are stored, and the pod becomes Ready: probes pass the network policy"):
        apply(*(definition(kind, plural) for kind, plural in CUSTOM.items()))
        for plural in CUSTOM.values():
            kubectl("wait", "--for=condition=Established", f"crd/{plural}.monitoring.coreos.com", "--timeout=30s")
        apply_overlay("prometheus-operator", "--server-side")
        rolled_out()
        require(len(get("prometheusrule", "-n", SPACE)) >= 3 and len(get("podmonitor", "-n", SPACE)) == 1, "objects are missing")
        require(len(get("configmap", "-n", SPACE, "-l", "grafana_dashboard=1")) >= 6, "dashboards are missing")
    with check("the network policy admits clients in the namespace monitoring, and no others"):
        apply(namespace("monitoring"))
        until(lambda: kubectl("-n", "monitoring", "get", "serviceaccount", "default"), "no service account")
        apply(busybox("client", "sleep 3600", space="monitoring"), busybox("client", "sleep 3600"))
        for space in ("monitoring", "shop"):
            kubectl("-n", space, "wait", "--for=condition=Ready", "pod/client", "--timeout=60s", seconds=70)
        until(lambda: "perf_cpu_task_clock_seconds_total" in requested("monitoring"), "the client in monitoring gets no metrics")
        until(lambda: not requested("shop"), "the client in shop gets metrics", 20)
        require("perf_cpu_task_clock_seconds_total" in requested("monitoring"), "the client in monitoring gets no metrics")
    kubectl("-n", "monitoring", "delete", "pod", "client")
    kubectl("-n", SPACE, "delete", "networkpolicy,podmonitor,prometheusrule", "--all")
    kubectl("-n", SPACE, "delete", "configmap", "-l", "grafana_dashboard=1")
    with check("without the network policy, every pod can scrape metrics, and none can open pages"):
        until(lambda: "perf_cpu_task_clock_seconds_total" in requested("shop"), "the client gets no metrics")
        require("403" in requested("shop", "/status", "2>&1"), "the page is open")
    kubectl("-n", "shop", "delete", "pod", "client")


def requested(space, path="/metrics", more=""):
    """Returns the response to a request of the pod `client`, or an empty text."""
    url = f"http://perf-exporter.{SPACE}.svc:7373{path}"
    done = subprocess.run(["kubectl", "-n", space, "exec", "client", "--", "sh", "-c", f"wget -q -T 4 -O - {url} {more}"],
                          check=False, capture_output=True, text=True, timeout=60)
    return done.stdout


def check_components():
    overlay("components", "default", ["authorization", "node-critical", "seccomp"])
    with check("the components authorization, node-critical and seccomp: the pod becomes Ready"):
        # The kubelet reads profiles from the disk of the node.
        apply_overlay("components")
        rolled_out()
        pod = exporter()
        require(pod["spec"]["priorityClassName"] == "system-node-critical", pod["spec"]["priorityClassName"])
        require(pod["spec"]["securityContext"]["seccompProfile"]["type"] == "Localhost", "it has another seccomp profile")
    with check("RBAC decides about clients with a token: without a role 403, with the role viewer 200, for pages only"):
        kubectl("-n", "shop", "create", "serviceaccount", "viewer")
        kubectl("create", "clusterrolebinding", "viewers", "--clusterrole=perf-exporter-viewer", "--serviceaccount=shop:viewer")
        viewer, other = (kubectl("-n", "shop", "create", "token", name).strip() for name in ("viewer", "default"))
        until(lambda: fetch("/status", Authorization=f"Bearer {viewer}")[0] == 200, "the viewer is rejected")
        require(fetch("/status", Authorization=f"Bearer {other}")[0] == 403, "an account without the role is admitted")
        require(fetch("/status")[0] in (401, 403), "a client without a token is admitted")
        require(fetch("/status", Authorization="Bearer x")[0] in (401, 403), "a client with a made-up token is admitted")
        require(fetch("/metrics")[0] == 200, "metrics need a token")
    skipped("the component selinux", "this kernel does not enforce SELinux")
