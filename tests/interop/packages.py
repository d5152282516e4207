"""Checks of packages.sh. Each command prints the errors, and fails if there is any.

packages.py unit TABLE FILE...      a unit with its drop-ins has the capabilities that its features require by TABLE, which is
                                     docs/privileges.md
packages.py calls FILE SUMMARY      SystemCallFilter= of a unit allows all system calls in the summary of `strace -c`
packages.py assets ROOT             every file of the Debian package exists
packages.py docker ROOT             every file that the Dockerfile copies exists, and .dockerignore does not exclude it
packages.py notified SOCKET SECONDS a service sends READY=1 and then WATCHDOG=1 to systemd
"""

import fnmatch
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

COUNTING = {"counters-cpu", "counters-cgroup", "counters-process", "tracepoints", "scheduler", "syscalls"}
SAMPLING = {"profiles", "user-names", "unreadable-files", "deleted-files", "kernel-names", "rings", "processes-by-exe"}
PROBING = {"probe-arguments", "container-probes"}
problems = []


def wrong(text):
    problems.append(text)
    print(text)


def settings(paths):
    """Returns the effective settings: values are appended, and an empty value clears the list."""
    found = {}
    for path in paths:
        for line in Path(path).read_text().splitlines():
            if "=" in line and not line.startswith(("#", "[")):
                key, value = line.split("=", 1)
                found[key] = [*found.get(key, []), value] if value else []
    return found


def unit(table, *paths):
    rows = {}
    for line in Path(table).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if len(cells) == 5 and re.fullmatch(r"`[a-z-]+`", cells[0]):
            rows[cells[0].strip("`")] = [set(re.findall(r"`([A-Z_]+)`", cell)) for cell in cells[2:4]]
    names = {Path(path).name for path in paths}
    features = COUNTING | (SAMPLING if len(paths) > 1 else set()) | (PROBING if "probes.conf" in names else set())
    found = settings(paths)
    root = found.get("User", ["nobody"])[-1] == "root"
    needed = {f"CAP_{name}" for feature in features for name in rows[feature][0 if root else 1]}
    for key in ("AmbientCapabilities", "CapabilityBoundingSet"):
        given = set(" ".join(found[key]).split())
        if given != needed:
            wrong(f"{key} is {sorted(given)} instead of {sorted(needed)}")
    if "CAP_SYSLOG" in needed and (found["ProtectKernelLogs"][-1], found["ProtectKernelTunables"][-1]) != ("no", "no"):
        wrong("the names of the kernel's functions are out of reach")
    if root and (found["DynamicUser"][-1] != "no" or found["ReadWritePaths"] != ["/sys/kernel/tracing"]):
        wrong("it should be a user that is there, and write tracefs and nothing else")


def members(group, seen=()):
    listed = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", group], capture_output=True, text=True, check=True)
    names = set()
    for line in listed.stdout.splitlines()[1:]:
        word = line.strip()
        if word.startswith("@"):
            names |= members(word) if word not in seen else set()
        elif word and not word.startswith("#"):
            names.add(word)
    return names


def calls(path, summary):
    allowed = set()
    for value in settings([path])["SystemCallFilter"]:
        words = value.lstrip("~").split()
        named = set().union(*(members(word) if word.startswith("@") else {word} for word in words))
        allowed = allowed - named if value.startswith("~") else allowed | named
    used = {line.split()[-1] for line in Path(summary).read_text().splitlines()[2:] if line and not line.startswith(("-", "100.00"))}
    # Called before the filter is installed
    used -= {"execve", "total"}
    if len(used) < 20:
        wrong(f"strace recorded only {sorted(used)}")
    for name in sorted(used - allowed):
        wrong(f"{name} is called, but SystemCallFilter= does not allow it")


def assets(root):
    package = tomllib.loads(Path(root, "Cargo.toml").read_text())["package"]["metadata"]["deb"]
    targets = set()
    for source, target, _ in package["assets"]:
        found = list(Path(root).glob(source))
        # Built by cargo, or generated
        if not found and not source.startswith(("target/", "dashboards/", "deploy/prometheus/")):
            wrong(f"{source} does not exist")
        targets |= {f"/{target}{path.name}" if target.endswith("/") else f"/{target}" for path in found}
    for path in package["conf-files"]:
        if path not in targets:
            wrong(f"{path} is a conffile, but not in the package")
    for name in ("postinst", "prerm", "postrm"):
        text = Path(root, package["maintainer-scripts"], name).read_text()
        if "\n#DEBHELPER#\n" not in text or not text.startswith("#!/bin/sh\n"):
            wrong(f"{name} lacks the placeholder for starting and stopping the service")
    unit = Path(root, package["systemd-units"]["unit-scripts"], f"{package['systemd-units']['unit-name']}.service")
    if f"--config {package['conf-files'][0]}" not in unit.read_text():
        wrong(f"{unit} reads another configuration")


def docker(root):
    ignored = [line for line in Path(root, ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]

    def sent(path):
        verdict = True
        for pattern in ignored:
            parts = [path, *map(str, Path(path).parents)][:-1]
            if any(fnmatch.fnmatch(part, pattern.lstrip("!")) for part in parts):
                verdict = pattern.startswith("!")
        return verdict

    text = Path(root, "deploy/docker/Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.M):
        for source in line.split()[:-1]:
            if not Path(root, source).exists():
                wrong(f"{source} is copied, but does not exist")
            if not sent(source):
                wrong(f"{source} is copied, but .dockerignore excludes it")
    for path in ("target", ".git", "tests", "deploy/helm"):
        if sent(path):
            wrong(f"{path} is sent to Docker, but not used")
    # Files that cargo requires
    for bench in tomllib.loads(Path(root, "Cargo.toml").read_text()).get("bench", []):
        if not sent(f"benches/{bench['name']}.rs"):
            wrong(f"benches/{bench['name']}.rs is in Cargo.toml, but not sent to Docker")


def notified(path, seconds):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(path)
    listener.settimeout(float(seconds))
    told = []
    while not {"READY=1", "WATCHDOG=1"} <= set(told):
        try:
            told += listener.recv(4096).decode().splitlines()
        except TimeoutError:
            wrong(f"the service sent {told}")
            return


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    {"unit": unit, "calls": calls, "assets": assets, "docker": docker, "notified": notified}[command](*arguments)
    sys.exit(bool(problems))
