"""The node and the exporter on it: kubectl, helm, requests, and checks with their times."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "interop"))
from checks import expect  # noqa: E402: the module is in another directory

SPACE = "perf-exporter"
SELECTOR = "app.kubernetes.io/name=perf-exporter"
# Limit of a step that usually takes ten seconds, in seconds: the machine may be busy.
PATIENCE = 90
# Copies of deploy and of the directories that it refers to, which checks may extend.
sources = Path(os.environ.get("CLUSTER_SOURCES", "."))


class Unmet(Exception):
    """A condition of a check that does not hold."""


@contextlib.contextmanager
def check(sentence):
    """Reports the sentence as passed if the block raises nothing, with the time of the block."""
    began = time.monotonic()
    try:
        yield
    except (Unmet, subprocess.SubprocessError, OSError, KeyError, IndexError, ValueError) as error:
        reason = getattr(error, "stderr", None) or getattr(error, "output", None) or repr(error)
        expect(f"{sentence} [{time.monotonic() - began:.1f} s]", False, str(reason).strip())
    else:
        expect(f"{sentence} [{time.monotonic() - began:.1f} s]", True)


def skipped(sentence, reason):
    print(f"skipped: {sentence}: {reason}", flush=True)


def require(condition, otherwise):
    if not condition:
        raise Unmet(otherwise)


def until(function, otherwise, seconds=PATIENCE):
    """Calls the function until it returns a true value, which is returned. `otherwise` may be a function too."""
    end = time.monotonic() + seconds
    error = ""
    while time.monotonic() < end:
        try:
            value = function()
            if value:
                return value
        except (OSError, subprocess.SubprocessError, IndexError, KeyError, json.JSONDecodeError) as failure:
            error = f" ({getattr(failure, 'stderr', None) or failure!r})"
        time.sleep(0.3)
    raise Unmet((otherwise() if callable(otherwise) else otherwise) + error)


def run(*command, given=None, seconds=PATIENCE):
    """Returns the standard output of a command, which must succeed."""
    return subprocess.run(command, input=given, check=True, text=True, capture_output=True, timeout=seconds).stdout


def kubectl(*arguments, **options):
    return run("kubectl", *arguments, **options)


def rejected(*command, given=None):
    """Returns the message of a command that must fail."""
    done = subprocess.run(command, input=given, check=False, text=True, capture_output=True, timeout=PATIENCE)
    require(done.returncode != 0, f"{' '.join(command)} succeeded")
    return done.stderr + done.stdout


def get(*arguments):
    """Returns the objects that kubectl lists, or the one object."""
    found = json.loads(kubectl("get", "-o", "json", *arguments))
    return found["items"] if found["kind"].endswith("List") else found


def apply(*objects):
    """Applies objects that are given as dictionaries."""
    kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


def apply_overlay(name, *options):
    kubectl("apply", *options, "-k", str(sources / "deploy/kubernetes/overlays" / name))


def overlay(name, base, components=(), config=None):
    """Creates an overlay on top of another, as users write it."""
    folder = sources / "deploy/kubernetes/overlays" / name
    folder.mkdir(exist_ok=True)
    text = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: {SPACE}\nresources: [../{base}]\ncomponents:\n"
    text += "".join(f"  - ../../components/{component}\n" for component in components) if components else "  []\n"
    if config is not None:
        (folder / "perf-exporter.yaml").write_text(config)
        text += "configMapGenerator:\n  - {name: perf-exporter, behavior: replace, files: [perf-exporter.yaml], options: {immutable: true}}\n"
    (folder / "kustomization.yaml").write_text(text)


def is_ready(pod):
    return any(part["type"] == "Ready" and part["status"] == "True" for part in pod["status"].get("conditions", []))


def pods(*selection):
    """Returns pods that are not being deleted."""
    return [pod for pod in get("pods", *selection) if "deletionTimestamp" not in pod["metadata"]]


def exporters():
    return pods("-n", SPACE, "-l", SELECTOR)


def exporter():
    """Returns the pod of the exporter on the node."""
    return exporters()[0]


def rolled_out(seconds=PATIENCE):
    kubectl("-n", SPACE, "rollout", "status", "daemonset/perf-exporter", f"--timeout={seconds}s", seconds=seconds + 10)


def restarts(pod):
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def fetch(path, pod=None, seconds=10, **headers):
    """Returns the status and the text of a request to the exporter, from outside of the cluster."""
    address = (pod or exporter())["status"]["podIP"]
    request = urllib.request.Request(f"http://{address}:7373{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(name, pod=None):
    """Returns the labels and the value of each sample of a metric."""
    found = []
    for line in fetch("/metrics", pod)[1].splitlines():
        match = re.fullmatch(r'([a-z_:A-Z0-9]+)(?:\{(.*)\})? (\S+)(?: \S+)?', line)
        if match and match[1] == name:
            labels = dict(re.findall(r'([a-z_A-Z0-9]+)="((?:[^"\\]|\\.)*)"', match[2] or ""))
            found.append((labels, float(match[3])))
    return found


def total(name, pod=None, **wanted):
    return sum(value for labels, value in samples(name, pod) if wanted.items() <= labels.items())


@contextlib.contextmanager
def forwarded(pod):
    """Forwards a port of this machine to the pod, as users open pages. Yields the URL."""
    command = ["kubectl", "-n", SPACE, "port-forward", pod["metadata"]["name"], ":7373"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            match = re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())
            require(match, "kubectl port-forward printed no address")
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            process.terminate()


def busybox(name, command, labels=(), space="shop", **spec):
    """Returns a pod with this command."""
    container = {"name": "app", "image": "busybox:1.36", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", command],
                 "resources": spec.pop("resources", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": space, "labels": dict(labels)},
            "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, **spec}}


def deployment(name, replicas, command, space="shop", **spec):
    pod = busybox(name, command, **spec)
    template = {"metadata": {"labels": {"app": name}}, "spec": {**pod["spec"], "restartPolicy": "Always"}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": space},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}}


def namespace(name, **labels):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
