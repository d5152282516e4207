"""Checks of manifests.sh on rendered manifests. Each command prints one line for each error, and fails if there is any.

manifests.py schemas VERSION FILE...      the objects are valid for this version of Kubernetes; unknown fields are errors
manifests.py custom CRDS FILE...          the same for objects of the Prometheus Operator, by its CustomResourceDefinitions
manifests.py least MODE NAMES TABLE FILE  a DaemonSet has the privileges that the mode requires, no more; TABLE is docs/privileges.md
manifests.py whole FILE...                references between objects are valid, labels match, dashboards can be applied
manifests.py same FILE FILE               two renderings give pods the same rights, mounts, probes and configuration
manifests.py delivers FILE RULES...       every rule of these files is in the rendered file
manifests.py configs DIR FILE...          writes each perf-exporter.yaml of a ConfigMap to a file
manifests.py prunes README FILE...        the command in README that removes old objects names each kind that some of these files lack
manifests.py customized FILE              the values of check_helm for pods and labels have an effect
manifests.py bundle FILE CONTAINER IMAGE SECCOMP ADDRESS DIR
                                          writes DIR/config.json, with which runc runs this container of the DaemonSet as containerd
                                          would: with its files, user, capabilities, mounts and configuration. The container uses the
                                          network of this machine, and listens at ADDRESS
"""

import json
import re
import sys
from pathlib import Path

import yaml

CUSTOM = "monitoring.coreos.com/"
# Annotation in which kubectl stores the applied object; it may contain arbitrary text.
APPLIED = 256 * 1024
# The features in the table of privileges that each mode has.
FEATURES = {
    "least-privilege": {"counters-cpu", "counters-cgroup", "counters-process"},
    "metrics": {"tracepoints", "scheduler", "syscalls"},
    "profiles": {"profiles", "user-names", "unreadable-files", "deleted-files", "kernel-names", "processes-by-exe", "rings"},
    "full": {"probe-arguments", "container-probes"},
}
INHERITS = {"least-privilege": [], "metrics": ["least-privilege"], "profiles": ["least-privilege", "metrics"],
            "full": ["least-privilege", "metrics", "profiles"]}
# The rights that each metadata source needs, no more.
RULES = {
    "api-server": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}],
    "kubelet": [{"apiGroups": [""], "resources": ["nodes/pods"], "verbs": ["get"]}],
}
# Every object has it, so that old objects can be selected.
NAME = {"app.kubernetes.io/name": "perf-exporter"}
problems = []


def wrong(text):
    problems.append(text)
    print(text)


def objects(path):
    with open(path) as file:
        return [entry for entry in yaml.safe_load_all(file) if entry]


def name_of(entry):
    return f"{entry['kind']} {entry['metadata']['name']}"


def the(entries, kind):
    found = [entry for entry in entries if entry["kind"] == kind]
    return found[0] if len(found) == 1 else None


def schemas(version, *paths):
    import kubernetes_validate

    for path in paths:
        for entry in objects(path):
            if entry["apiVersion"].startswith(CUSTOM):
                continue
            try:
                kubernetes_validate.validate(entry, version, strict=True)
            except Exception as error:  # noqa: BLE001: several kinds of exceptions, all with a useful message
                wrong(f"{path}: {name_of(entry)}: Kubernetes {version}: {str(error).splitlines()[0]}")


def closed(schema):
    """Returns the same schema with unknown fields as errors."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {key: closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        schema.setdefault("additionalProperties", False)
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("anyOf", None)
        schema["type"] = ["integer", "string"]
    return schema


def custom(crds, *paths):
    import jsonschema

    known = {}
    for path in Path(crds).glob("*.yaml"):
        definition = yaml.safe_load(path.read_text())["spec"]
        known[definition["names"]["kind"]] = definition["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    for path in paths:
        for entry in objects(path):
            if entry["apiVersion"].startswith(CUSTOM):
                for error in jsonschema.Draft7Validator(closed(known[entry["kind"]])).iter_errors(entry["spec"]):
                    where = ".".join(map(str, error.absolute_path))
                    wrong(f"{path}: {name_of(entry)}: {where}: {error.message[:200]}")


def table(path):
    """Returns the capabilities that each feature requires for uid 0 and for other users, by its key."""
    rows = {}
    for line in Path(path).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) >= 4 and re.fullmatch(r"`[a-z-]+`", cells[0]):
            rows[cells[0].strip("`")] = [set(re.findall(r"`([A-Z_]+)`", cell)) for cell in cells[2:4]]
    return rows


def least(mode, names, table_path, path):
    entries = objects(path)
    daemons = the(entries, "DaemonSet")
    pod = daemons["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    rights, shared = container["securityContext"], pod["securityContext"]
    features = set().union(FEATURES[mode], *(FEATURES[other] for other in INHERITS[mode]))
    rows = table(table_path)
    needed = set().union(*(rows[feature][1 if mode == "least-privilege" else 0] for feature in features))
    given = set(rights["capabilities"]["add"])
    for what, holds in {
        f"has {sorted(given)}, and {mode} takes {sorted(needed)}": given == needed,
        "keeps capabilities that the runtime gives": rights["capabilities"]["drop"] == ["ALL"],
        "is privileged": rights["privileged"] is False,
        "may gain privileges": rights["allowPrivilegeEscalation"] is False,
        "can write its root": rights["readOnlyRootFilesystem"] is True,
        "has no seccomp profile": shared["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost"),
        "AppArmor": ("appArmorProfile" in shared) == (mode in ("profiles", "full")),
        "the user": shared["runAsUser"] == (65532 if mode == "least-privilege" else 0),
        "shares the network or IPC of the node": not pod.get("hostNetwork") and not pod.get("hostIPC"),
        "does not see the pids of the node": pod["hostPID"] is True,
        "has no bounds of memory": "memory" in container["resources"]["limits"],
        "is throttled": "cpu" not in container["resources"]["limits"],
        "has no probes": {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys(),
        "is not on every node": {"operator": "Exists"} in pod["tolerations"],
        "the token": pod["automountServiceAccountToken"] is (names in RULES),
        "RBAC": [entry["rules"] for entry in entries if entry["kind"] == "ClusterRole"] == ([RULES[names]] if names in RULES else []),
        "binds roles that do not exist": sum(entry["kind"] == "ClusterRoleBinding" for entry in entries) == (names in RULES),
        "has roles of namespaces": not any(entry["kind"] in ("Role", "RoleBinding") for entry in entries),
        "updates several nodes at once": daemons["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
        "has no priority": bool(pod.get("priorityClassName")),
        "levels of Pod Security": all(allows_hosts(entry) for entry in entries if entry["kind"] == "Namespace"),
        "the reason of a failure is not in its status": all(
            part["terminationMessagePolicy"] == "FallbackToLogsOnError" for part in pod["containers"] + pod["initContainers"]),
    }.items():
        if not holds:
            wrong(f"{path}: {what}")
    volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
    mounts = {volumes[mount["name"]]: mount for mount in container["volumeMounts"]}
    wanted = {None, "/sys/fs/cgroup"}
    wanted |= set() if mode == "least-privilege" else {"/sys/kernel/tracing"}
    wanted |= {"/run/containerd", "/run/crio", "/run/k3s/containerd"} if names == "cri" else set()
    if set(mounts) != wanted or set(volumes.values()) != wanted:
        wrong(f"{path}: mounts {sorted(map(str, mounts))} instead of {sorted(map(str, wanted))}")
    for host, mount in mounts.items():
        if mount.get("readOnly", False) is (mode == "full" and host == "/sys/kernel/tracing"):
            wrong(f"{path}: {host} is readOnly: {mount.get('readOnly', False)}")
    checks_first(mode, path, pod, volumes)


def allows_hosts(namespace):
    labels = namespace["metadata"]["labels"]
    return all(labels.get(f"pod-security.kubernetes.io/{kind}") == "privileged" for kind in ("enforce", "audit", "warn"))


def checks_first(mode, path, pod, volumes):
    """The init container checks the same configuration by the same program, and can do nothing else."""
    (first,), (container,) = pod["initContainers"], pod["containers"]
    rights = first["securityContext"]
    mounts = {volumes[mount["name"]]: mount for mount in first["volumeMounts"]}
    of_container = {mount["name"]: mount for mount in container["volumeMounts"]}
    for what, holds in {
        "does not check": first["args"][:2] == ["check", "--no-open"],
        "is another program": first["image"] == container["image"],
        "has other limits": first["resources"] == container["resources"],
        "reads another file": [env for env in container["env"] if env["name"] == "PERF_EXPORTER_CONFIG"] == first["env"][:1],
        "has rights": rights == {**container["securityContext"], "capabilities": {"drop": ["ALL"], "add": ["PERFMON"]}},
        "mounts": set(mounts) == {None} | (set() if mode == "least-privilege" else {"/sys/kernel/tracing"}),
        "can write": all(mount["readOnly"] for mount in mounts.values()),
        "sees other files": all(of_container[mount["name"]]["mountPath"] == mount["mountPath"] for mount in mounts.values()),
    }.items():
        if not holds:
            wrong(f"{path}: the init container {what}")


def whole(*paths):
    for path in paths:
        entries = objects(path)
        keys = [(name_of(entry), entry["metadata"].get("namespace")) for entry in entries]
        for key in {key for key in keys if keys.count(key) > 1}:
            wrong(f"{path}: {key[0]} is duplicated")
        there = {name for name, _ in keys}
        daemons = the(entries, "DaemonSet")
        template = daemons["spec"]["template"]
        labels, pod = template["metadata"]["labels"], template["spec"]
        names = [f"ConfigMap {volume['configMap']['name']}" for volume in pod["volumes"] if "configMap" in volume]
        names.append(f"ServiceAccount {pod['serviceAccountName']}")
        names.append(f"PriorityClass {pod.get('priorityClassName', 'system-node-critical')}")
        for name in names:
            if name not in there | {"ServiceAccount default", "PriorityClass system-node-critical"}:
                wrong(f"{path}: the DaemonSet refers to {name}, which does not exist")
        unused = {name for name in there if name.startswith("PriorityClass ")} - set(names)
        if unused:
            wrong(f"{path}: unused: {unused}")
        tests(path, entries, template)
        for entry in entries:
            if name_of(entry) in names and entry["kind"] == "ConfigMap":
                if entry.get("immutable") is not True or not re.search("-[0-9a-z]{10}$", entry["metadata"]["name"]):
                    wrong(f"{path}: {name_of(entry)} can be edited, which has no effect, or has the same name after a change")
            if not is_test(entry) and not NAME.items() <= entry["metadata"].get("labels", {}).items():
                wrong(f"{path}: {name_of(entry)} lacks the label {NAME}")
        selectors = {name_of(daemons): daemons["spec"]["selector"]["matchLabels"]}
        for entry in entries:
            spec = entry.get("spec", {})
            if entry["kind"] == "Service":
                selectors[name_of(entry)] = spec["selector"]
            elif entry["kind"] == "NetworkPolicy":
                selectors[name_of(entry)] = spec["podSelector"]["matchLabels"]
            elif entry["kind"] == "PodMonitor":
                selectors[name_of(entry)] = spec["selector"]["matchLabels"]
            elif entry["kind"] == "ConfigMap" and "dashboard" in entry["metadata"]["name"]:
                if len(json.dumps(entry)) > APPLIED:
                    wrong(f"{path}: {name_of(entry)} is too large for kubectl apply")
                for text in entry["data"].values():
                    if not json.loads(text)["title"]:
                        wrong(f"{path}: {name_of(entry)} has no title")
        for name, selector in selectors.items():
            if not selector or not selector.items() <= labels.items():
                wrong(f"{path}: {name} selects {selector}, but pods have {labels}")


def is_test(entry):
    return entry["metadata"].get("annotations", {}).get("helm.sh/hook") == "test"


def tests(path, entries, template):
    """Pods of `helm test` connect to the port of the container, and every network policy of the exporter admits them."""
    labels = template["metadata"]["labels"]
    (port,) = template["spec"]["containers"][0]["ports"]
    policies = [entry["spec"] for entry in entries if entry["kind"] == "NetworkPolicy"]
    policies = [spec for spec in policies if spec["podSelector"]["matchLabels"].items() <= labels.items()]
    peers = [peer for spec in policies for rule in spec["ingress"] for peer in rule["from"]]
    for entry in entries:
        if not is_test(entry) or entry["kind"] != "Pod":
            continue
        own = entry["metadata"]["labels"]
        (text,) = entry["spec"]["containers"][0]["args"]
        if f".svc:{port['containerPort']}\n" not in text:
            wrong(f"{path}: the test does not use the port {port['containerPort']} of the pods")
        admits = [peer for peer in peers if set(peer) == {"podSelector"} and peer["podSelector"]["matchLabels"].items() <= own.items()]
        if policies and not admits:
            wrong(f"{path}: no network policy admits the pod of the test")
        if NAME.items() <= own.items():
            wrong(f"{path}: the pod of the test is selected as an exporter")


def prunes(readme, *paths):
    """Kinds of which a switch of overlays can leave an object: those that are not in all of them, and ConfigMaps, whose names change."""
    text = Path(readme).read_text()
    (selector,) = re.findall(r"--prune -l (\S+)", text)
    if selector != "=".join(*NAME.items()):
        wrong(f"{readme}: selects {selector}")
    listed = set(re.findall(r"--prune-allowlist=(\S+)", text))
    kinds = [{f"{'' if '/' in entry['apiVersion'] else 'core/'}{entry['apiVersion']}/{entry['kind']}" for entry in objects(path)} for path in paths]
    needed = set().union(*kinds) - set.intersection(*kinds) | {"core/v1/ConfigMap"}
    needed = {kind for kind in needed if not kind.startswith(CUSTOM)}
    if listed != needed:
        wrong(f"{readme}: the command removes {sorted(listed)} instead of {sorted(needed)}")


def customized(path):
    entries = objects(path)
    daemons = the(entries, "DaemonSet")
    template = daemons["spec"]["template"]
    pod = template["spec"]
    container = pod["containers"][0]
    for what, holds in {
        "extraContainers": [part["name"] for part in pod["containers"]] == ["perf-exporter", "proxy"],
        "extraVolumes": any(volume["name"] == "certificates" for volume in pod["volumes"]),
        "extraVolumeMounts": all(any(mount["name"] == "certificates" for mount in part["volumeMounts"]) for part in (container, *pod["initContainers"])),
        "dnsPolicy": pod["dnsPolicy"] == "Default",
        "dnsConfig": pod["dnsConfig"] == {"options": [{"name": "ndots", "value": "1"}]},
        "commonLabels": all(entry["metadata"]["labels"].get("team") == "a" for entry in (*entries, template)),
        "commonLabels in a selector": "team" not in daemons["spec"]["selector"]["matchLabels"],
        "probes": container["livenessProbe"]["failureThreshold"] == 9 and container["livenessProbe"]["periodSeconds"] == 30,
        "the scheme of the probes": all(container[f"{kind}Probe"]["httpGet"]["scheme"] == "HTTPS" for kind in ("startup", "liveness", "readiness")),
        "priorityClass": the(entries, "PriorityClass")["value"] == 7 and the(entries, "PriorityClass")["preemptionPolicy"] == "Never",
        "updateStrategy": daemons["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "5%",
    }.items():
        if not holds:
            wrong(f"{path}: {what} has no effect")


def comparable(path):
    entries = objects(path)
    entries = [entry for entry in entries if not is_test(entry)]
    spec = the(entries, "DaemonSet")["spec"]
    pod = spec["template"]["spec"]
    config = next(volume["configMap"].pop("name") for volume in pod["volumes"] if "configMap" in volume)
    pod.pop("serviceAccountName")
    for container in pod["containers"] + pod["initContainers"]:
        container["image"] = container["image"].rsplit(":", 1)[0]
    (config,) = [entry["data"] for entry in entries if entry["kind"] == "ConfigMap" and entry["metadata"]["name"] == config]
    roles = [entry["rules"] for entry in entries if entry["kind"] == "ClusterRole"]
    policies = [{**entry["spec"], "podSelector": None} for entry in entries if entry["kind"] == "NetworkPolicy"]
    classes = [{key: value for key, value in entry.items() if key != "metadata"} for entry in entries if entry["kind"] == "PriorityClass"]
    monitors = [entry["spec"]["podMetricsEndpoints"] for entry in entries if entry["kind"] == "PodMonitor"]
    rules = {entry["metadata"]["name"]: entry["spec"] for entry in entries if entry["kind"] == "PrometheusRule"}
    dashboards = {name: text for entry in entries if "dashboard" in entry["metadata"]["name"] for name, text in entry["data"].items()}
    return {"pod": pod, "classes": classes, "update": spec["updateStrategy"], "roles": roles, "policies": policies, "monitors": monitors,
            "rules": rules, "dashboards": dashboards, "config": {name: yaml.safe_load(text) for name, text in config.items()}}


def ordered(value):
    """Returns the same value with sorted lists, because kustomize and helm write volumes in different orders."""
    if isinstance(value, dict):
        return {key: ordered(part) for key, part in sorted(value.items())}
    if isinstance(value, list):
        return sorted((ordered(part) for part in value), key=lambda part: json.dumps(part, sort_keys=True))
    return value


def differences(one, other, where):
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            differences(one.get(key), other.get(key), f"{where}.{key}")
    elif one != other:
        wrong(f"{where}: {json.dumps(one)[:300]} and {json.dumps(other)[:300]}")


def same(one, other):
    differences(ordered(comparable(one)), ordered(comparable(other)), f"{one} and {other}")


def delivers(path, *sources):
    groups = {}
    for entry in objects(path):
        if entry["kind"] == "PrometheusRule":
            groups.update({group["name"]: group for group in entry["spec"]["groups"]})
    for source in sources:
        for group in yaml.safe_load(Path(source).read_text())["groups"]:
            if groups.get(group["name"]) != group:
                wrong(f"{path}: group {group['name']} of {source} differs from the file or is missing")


def configs(folder, *paths):
    for path in paths:
        for entry in objects(path):
            for name, text in entry.get("data", {}).items() if entry["kind"] == "ConfigMap" else []:
                if name == "perf-exporter.yaml":
                    Path(folder, Path(path).name).write_text(text)


def bundle(path, name, image, seccomp, address, folder):
    entries = objects(path)
    pod = the(entries, "DaemonSet")["spec"]["template"]["spec"]
    (container,) = [part for part in pod["containers"] + pod["initContainers"] if part["name"] == name]
    rights, shared = container["securityContext"], pod["securityContext"]
    capabilities = [f"CAP_{name}" for name in rights["capabilities"]["add"]]
    environment = [f"{entry['name']}={entry['value']}" for entry in container["env"] if "value" in entry]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]},
        {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
        {"destination": "/sys/fs/cgroup", "type": "cgroup", "source": "cgroup", "options": ["nosuid", "noexec", "nodev", "ro"]},
    ]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container["volumeMounts"]:
        volume = volumes[mount["name"]]
        if "configMap" in volume:
            source = Path(folder, "config").absolute()
            source.mkdir()
            name = volume["configMap"]["name"]
            for entry in entries:
                if entry["kind"] == "ConfigMap" and entry["metadata"]["name"] == name:
                    for file, text in entry["data"].items():
                        (source / file).write_text(text)
        else:
            source = Path(volume["hostPath"]["path"])
            if volume["hostPath"].get("type") == "DirectoryOrCreate" and not source.exists():
                source = Path(folder, mount["name"]).absolute()
                source.mkdir()
        mounts.append({"destination": mount["mountPath"], "type": "bind", "source": str(source), "options": [
            "rbind", "ro" if mount.get("readOnly") else "rw", "rslave" if mount.get("mountPropagation") else "rprivate"]})
    spaces = ["mount", "uts", "cgroup"] + ([] if pod.get("hostIPC") else ["ipc"]) + ([] if pod.get("hostPID") else ["pid"])
    Path(folder, "config.json").write_text(json.dumps({
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": shared["runAsUser"], "gid": shared["runAsGroup"]},
            "args": ["/usr/bin/perf-exporter", *container["args"]],
            # The metadata source for pods is an unreachable address, so that it does not disturb.
            "env": ["PATH=/usr/bin", "NODE_NAME=here", "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1", *environment, f"PERF_EXPORTER_LISTEN={address}"],
            "cwd": "/",
            # As containerd sets them: none inheritable, none ambient.
            "capabilities": {kind: capabilities for kind in ("bounding", "effective", "permitted")},
            "noNewPrivileges": not rights["allowPrivilegeEscalation"],
        },
        "root": {"path": str(Path(image).absolute()), "readonly": rights["readOnlyRootFilesystem"]},
        "hostname": "perf-exporter",
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": space} for space in spaces],
            "cgroupsPath": f"/{Path(folder).name}",
            "seccomp": json.loads(Path(seccomp).read_text()),
            "maskedPaths": ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats",
                            "/proc/sched_debug", "/proc/scsi", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"],
        },
    }, indent=1))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"schemas": schemas, "custom": custom, "least": least, "whole": whole, "same": same, "delivers": delivers,
     "prunes": prunes, "customized": customized,
     "configs": configs, "bundle": bundle}[command](*arguments)
    sys.exit(bool(problems))
