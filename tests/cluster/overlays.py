"""Each overlay on the node: it becomes Ready, has the rights that it needs and no others, and knows the names of pods."""

import json
import subprocess
import urllib.error
import urllib.request

from node import PATIENCE, SPACE, apply_overlay, check, exporter, fetch, forwarded, kubectl, require, restarts, rolled_out, samples, total, until

# The metadata source of each overlay. `switches` comes before the overlays that share its objects.
SOURCES = {"default": "cri", "profiles": "cri", "full": "cri", "api-server": "api_server", "kubelet": "kubelet", "least-privilege": "api_server"}
# The rights that each source needs: resource and verb.
RIGHTS = {"cri": set(), "api_server": {("pods", "list")}, "kubelet": {("nodes/pods", "get")}}
CGROUPS = "perf_cgroup_task_clock_seconds_total"


def run_all():
    for name, source in SOURCES.items():
        one(name, source)


def one(name, source, apply=apply_overlay):
    """Applies an overlay, or a variant of the chart, and checks it."""
    with check(f"{name}: the pod passes its init container and becomes Ready, without a restart"):
        apply(name)
        rolled_out()
        pod = exporter()
        (first,) = pod["status"]["initContainerStatuses"]
        require(first["state"]["terminated"]["exitCode"] == 0, "the init container failed")
        require(restarts(pod) == 0, "a container was restarted")
    with check(f"{name}: CPUs and processes are counted, and no event is forbidden"):
        until(lambda: total("perf_cpu_task_clock_seconds_total") > 0, "no CPU time is counted")
        forbidden = [labels for labels, value in samples("perf_event_state") if labels["state"] == "forbidden" and value > 0]
        require(not forbidden, f"forbidden: {forbidden}")
    with check(f"{name}: series of a container have the names of its pod, from the source {source}"):
        until(lambda: names_a_pod(CGROUPS), lambda: f"no series has them; lookups: {samples('perf_exporter_container_lookups_total')}")
        failed = [entry for entry in samples("perf_exporter_container_lookups_total") if entry[0]["result"] != "ok" and entry[1] > 0]
        require(not failed, f"lookups failed: {failed}")
        require(total("perf_exporter_container_lookups_total", source=source, result="ok") > 0, "the source was not used")
    with check(f"{name}: perf_container_info has the name of the image" + ("" if source == "cri" else ", and the workload")):
        until(lambda: describes_a_container(source), lambda: f"perf_container_info: {samples('perf_container_info')[:3]}")
    with check(f"{name}: the service account has the rights that the source needs, and no others"):
        rights = rights_of(f"system:serviceaccount:{SPACE}:perf-exporter") - rights_of("system:serviceaccount:default:default")
        require(rights == RIGHTS[source], f"it has {sorted(rights)}")
        mounted = any("serviceAccountToken" in part for volume in exporter()["spec"]["volumes"]
                      for part in volume.get("projected", {}).get("sources", []))
        require(mounted == bool(RIGHTS[source]), f"a token is {'' if mounted else 'not '}mounted")
    if "profiles" in name or "full" in name:
        profiles(name)


def names_a_pod(metric):
    return any(labels.get("namespace") == "shop" and labels.get("pod", "").startswith("web-") and labels.get("container") == "app"
               for labels, _ in samples(metric))


def describes_a_container(source):
    for labels, _ in samples("perf_container_info"):
        if labels.get("namespace") == "shop" and labels.get("container") == "app" and labels.get("image", "").endswith("busybox:1.36"):
            workload = (labels.get("workload"), labels.get("workload_kind"))
            return source == "cri" or workload == ("web", "Deployment")
    return False


def rights_of(user):
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "kube-system"}}
    status = json.loads(kubectl("create", "--validate=false", "-o", "json", "--as", user, "-f", "-", given=json.dumps(review)))["status"]
    rights = {(resource, verb) for rule in status["resourceRules"] for resource in rule["resources"] for verb in rule["verbs"]}
    return rights | {(path, verb) for rule in status["nonResourceRules"] for path in rule["nonResourceURLs"] for verb in rule["verbs"]}


def profiles(name):
    with check(f"{name}: profiles of a pod are selected by its name, with symbolized functions"):
        with forwarded(exporter()) as url:
            until(lambda: has_stacks(f"{url}/folded?namespace=shop&pod=web-*"), "no stacks of the pod", PATIENCE * 2)
    with check(f"{name}: pages are open to kubectl port-forward, and closed to other clients"):
        require(fetch("/status")[0] == 403, "the page is open to a client outside of the pod")
        with forwarded(exporter()) as url, urllib.request.urlopen(f"{url}/status", timeout=20) as response:
            require(response.status == 200, f"the status is {response.status}")


def has_stacks(url):
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return any(";" in line and "[unknown]" not in line for line in response.read().decode().splitlines())
    except urllib.error.HTTPError:
        return False


def check_rights_are_needed():
    """Without its ClusterRoleBinding, the source must fail: the right is not one that every account has."""
    with check("api-server: without its ClusterRoleBinding, requests to the API server fail, and the exporter stays Ready"):
        apply_overlay("api-server")
        rolled_out()
        kubectl("delete", "clusterrolebinding", "perf-exporter")
        kubectl("-n", "shop", "delete", "pod", "-l", "app=web", "--wait=false")
        until(lambda: any(value > 0 for labels, value in samples("perf_exporter_container_lookups_total") if labels["result"] != "ok"), "none failed")
        require(fetch("/-/ready")[0] == 200, "it is not ready")
    with check("kubelet: the token of the exporter reads pods from the kubelet, and nothing else"):
        apply_overlay("kubelet")
        rolled_out()
        token = kubectl("-n", SPACE, "create", "token", "perf-exporter").strip()
        other = kubectl("-n", "default", "create", "token", "default").strip()
        answers = {path: kubelet(path, token) for path in ("/pods", "/metrics", "/configz", "/logs/", "/stats/summary")}
        require(answers.pop("/pods") == "200", "the kubelet rejects the token")
        require(set(answers.values()) == {"403"}, f"the token is too powerful: {answers}")
        require(kubelet("/pods", other) == "403", "the kubelet answers to every account")


def kubelet(path, token):
    address = exporter()["status"]["hostIP"]
    command = ["curl", "-sk", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"Authorization: Bearer {token}", f"https://{address}:10250{path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout
