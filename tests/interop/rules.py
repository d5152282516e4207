#!/usr/bin/env python3
"""The parts of rules.sh in Python.

  rules.py history FILE     writes 14 hours of recorded series as OpenMetrics, up to now
  rules.py serve PORT       serves the continuation of the same series, for Prometheus to scrape
  rules.py receive PORT DIR receives notifications of Alertmanager, and writes each to a file in the directory
  rules.py lint PROMETHEUS REPOSITORY   checks that every rule is complete: a runbook, cases in the tests, …
  rules.py without_data PROMETHEUS JOB [PATTERN]   prints the recording rules without data that should have data
"""

import http.server
import itertools
import json
import os
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# The recorded machine: a pod of two containers, and a service. Counts per second, by metric. The numbers are made up: the pod has 1.25
# instructions per cycle, 4 cache misses in 1000 instructions, and so on.
APP = {"cgroup": "/kubepods/app", "namespace": "shop", "pod": "cart-1", "container": "app"}
SIDECAR = {"cgroup": "/kubepods/sidecar", "namespace": "shop", "pod": "cart-1", "container": "sidecar"}
SERVICE = {"cgroup": "/system.slice/db.service"}
COUNTERS = {
    "cycles": (3e9, 1e9, 2e9),
    "instructions": (4e9, 1e9, 1e9),
    "cache_references": (30e6, 10e6, 20e6),
    "cache_misses": (15e6, 5e6, 2e6),
    "branches": (800e6, 200e6, 200e6),
    "branch_misses": (8e6, 2e6, 4e6),
    "stalled_cycles_backend": (600e6, 200e6, 1e9),
}
# System calls need no hardware, but their rules compare with the past too.
SYSCALLS = (900, 100, 500)
ERRORS = (90, 10, 0)
HISTORY = 14 * 3600
STEP = 30

# Rules that need what this machine may lack: hardware events, or a history of more than 12 hours. They are evaluated with the recorded
# series, all others with the exporter.
NEEDS = {
    "cycles and instructions": [
        "cgroup:perf_instructions_per_cycle:ratio_rate5m",
        "pod:perf_cycles:rate5m",
        "pod:perf_instructions:rate5m",
        "pod:perf_instructions_per_cycle:ratio_rate5m",
        "instance:perf_instructions_per_cycle:ratio_rate5m",
    ],
    "cache-references and cache-misses": [
        "cgroup:perf_cache_misses_per_reference:ratio_rate5m",
        "pod:perf_cache_references:rate5m",
        "pod:perf_cache_misses:rate5m",
        "pod:perf_cache_misses_per_reference:ratio_rate5m",
        "instance:perf_cache_misses_per_reference:ratio_rate5m",
    ],
    "cache-misses and instructions": [
        "cgroup:perf_cache_misses_per_kiloinstruction:ratio_rate5m",
        "pod:perf_cache_misses_per_kiloinstruction:ratio_rate5m",
        "instance:perf_cache_misses_per_kiloinstruction:ratio_rate5m",
    ],
    "branches and branch-misses": [
        "cgroup:perf_branch_misses_per_branch:ratio_rate5m",
        "pod:perf_branches:rate5m",
        "pod:perf_branch_misses:rate5m",
        "pod:perf_branch_misses_per_branch:ratio_rate5m",
        "instance:perf_branch_misses_per_branch:ratio_rate5m",
    ],
    "branch-misses and instructions": [
        "pod:perf_branch_misses_per_kiloinstruction:ratio_rate5m",
        "instance:perf_branch_misses_per_kiloinstruction:ratio_rate5m",
    ],
    "stalled-cycles-backend and cycles": [
        "cgroup:perf_backend_stalls_per_cycle:ratio_rate5m",
        "pod:perf_stalled_cycles_backend:rate5m",
        "pod:perf_backend_stalls_per_cycle:ratio_rate5m",
        "instance:perf_backend_stalls_per_cycle:ratio_rate5m",
    ],
    "more than 12 hours": [
        "pod:perf_instructions_per_cycle:ratio_baseline1d",
        "pod:perf_instructions_per_cycle:ratio_low2d",
        "pod:perf_cache_misses_per_kiloinstruction:ratio_high2d",
        "pod:perf_cache_misses_per_kiloinstruction:ratio_baseline1d",
        "pod:perf_syscall_errors_per_syscall:ratio_baseline1d",
    ],
}
RECORDED = "recorded"


def series():
    """Yields each metric with its labels and its increase per second."""
    for event, rates in COUNTERS.items():
        yield f"perf_cgroup_{event}", list(zip((APP, SIDECAR, SERVICE), rates))
        yield f"perf_cpu_{event}", [({"cpu": str(cpu)}, sum(rates) / 2) for cpu in range(2)]
    calls = {"syscall": "openat"}
    owners = (APP, SIDECAR, SERVICE)
    yield "perf_cgroup_syscalls", [(owner | calls, rate) for owner, rate in zip(owners, SYSCALLS)]
    yield "perf_cgroup_syscall_errors", [
        (owner | calls | {"errno": "ENOENT"}, rate) for owner, rate in zip(owners, ERRORS) if rate
    ]


def written(name, labels, rate, now):
    # The counters have grown for about a week, by the same amount at each call.
    grown = rate * (now % (7 * 86400) + 86400)
    inside = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}_total{{{inside}}} {grown:.3f}"


def history(path):
    now = int(time.time())
    target = {"job": RECORDED, "instance": RECORDED}
    with open(path, "w", encoding="utf-8") as file:
        for name, of in series():
            file.write(f"# TYPE {name} counter\n")
            for labels, rate in of:
                for at in range(now - HISTORY, now, STEP):
                    file.write(f"{written(name, labels | target, rate, at)} {at}\n")
        file.write("# EOF\n")
    print(now - HISTORY, now)


class Quiet(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, kind, text):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())


class Exporter(Quiet):
    def do_GET(self):
        now = time.time()
        lines = []
        for name, of in series():
            lines.append(f"# TYPE {name} counter")
            lines += [written(name, labels, rate, now) for labels, rate in of]
        self.answer("application/openmetrics-text; version=1.0.0; charset=utf-8", "\n".join([*lines, "# EOF\n"]))


def receiver(directory):
    number = itertools.count()

    class Receiver(Quiet):
        def do_POST(self):
            post = self.rfile.read(int(self.headers["Content-Length"]))
            name = os.path.join(directory, f"{next(number):04}")
            with open(name + ".new", "wb") as file:
                file.write(post)
            os.rename(name + ".new", name + ".json")
            self.answer("text/plain", "")

    return Receiver


def serve(port, handler):
    http.server.HTTPServer(("127.0.0.1", int(port)), handler).serve_forever()


def ask(prometheus, path, **parameters):
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{prometheus}/api/v1/{path}?{query}", timeout=20) as answer:
        return json.load(answer)["data"]


def rules(prometheus):
    return [rule for group in ask(prometheus, "rules")["groups"] for rule in group["rules"]]


def anchors(path):
    """Returns the anchors of a Markdown page, as Git forges generate them."""
    with open(path, encoding="utf-8") as file:
        headings = [line.lstrip("#").strip() for line in file if line.startswith("#")]
    return {re.sub(r"[^a-z0-9 _-]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cases(tests):
    """Returns for each alert, in order of its test cases, whether it must fire."""
    fires = {}
    # The two forms of a case: on one line without alerts, or with the expected alerts below.
    case = re.compile(r"alertname: (\w+)(?:, exp_alerts: (\[\])|\s+exp_alerts:\s*(\[\])?)")
    for match in case.finditer(tests):
        fires.setdefault(match[1], []).append(not (match[2] or match[3]))
    return fires


def queries(path):
    """Returns the queries of a page, each on one line."""
    with open(path, encoding="utf-8") as file:
        blocks = re.findall(r"```promql\n(.*?)```", file.read(), re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line]


def is_metric(repository):
    """Returns a function that reports whether a metric exists. docs/otlp.md lists all metrics; another test checks it."""
    with open(os.path.join(repository, "docs/otlp.md"), encoding="utf-8") as file:
        names = re.findall(r"^\| `(perf_[^`]+)` \|", file.read(), re.MULTILINE)
    patterns = "|".join(re.sub(r"<\w+>", r"\\w+", name) for name in names)
    return re.compile(rf"(?:{patterns})(?:_bucket|_sum|_count)?").fullmatch


def lint(prometheus, repository):
    problems = []
    directory = os.path.join(repository, "deploy/prometheus")
    tests = ""
    for name in sorted(os.listdir(os.path.join(directory, "tests"))):
        with open(os.path.join(directory, "tests", name), encoding="utf-8") as file:
            tests += file.read()
    fires = cases(tests)
    everything = rules(prometheus)
    alerts = [rule for rule in everything if rule["type"] == "alerting"]
    known = is_metric(repository)
    runbooks = anchors(os.path.join(repository, "docs/runbooks.md"))
    for alert in alerts:
        name = alert["name"]
        if alert["labels"].get("severity") not in ("info", "warning", "critical"):
            problems.append(f"{name} has no severity")
        missing = {"summary", "description", "runbook"} - set(alert["annotations"])
        if missing:
            problems.append(f"{name} has no {' and no '.join(sorted(missing))}")
        if alert["annotations"].get("runbook") != f"docs/runbooks.md#{name.lower()}" or name.lower() not in runbooks:
            problems.append(f"{name} has no section in docs/runbooks.md")
        expected = fires.get(name, [])
        if not re.search("ftf", "".join("t" if fired else "f" for fired in expected)):
            problems.append(f"{name} is not tested before, while and after it fires")
    with open(os.path.join(directory, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    recorded = {rule["name"] for rule in everything if rule["type"] == "recording"}
    for name in sorted(recorded):
        if name.startswith("perf:"):
            if name not in readme:
                problems.append(f"{name} is not in deploy/prometheus/README.md")
        elif name not in tests:
            problems.append(f"{name} is not tested")
    for name in {name for names in NEEDS.values() for name in names} - recorded:
        problems.append(f"rules.py: there is no rule {name}")
    # Every metric with a colon in its name that a rule uses must be recorded.
    for rule in everything:
        for name in re.findall(r"\b(?:perf|namespace|cgroup|pod|instance):\w+:\w+", rule["query"]):
            if name not in recorded:
                problems.append(f"{rule['name']} uses {name}, which no rule records")
    # Queries that users type during an incident must be valid.
    typed = queries(os.path.join(repository, "docs/runbooks.md"))
    for query in [rule["query"] for rule in everything] + typed:
        for name in re.findall(r"(?<![:\w])perf_\w+", query):
            if not known(name):
                problems.append(f"{query}: there is no metric {name}")
    for query in typed:
        try:
            ask(prometheus, "query", query=query)
        except urllib.error.HTTPError as error:
            problems.append(f"docs/runbooks.md: {query}: {json.load(error)['error']}")
    print(*problems, sep="\n")
    print(f"{len(alerts)} alerts, {len(recorded)} recording rules")
    return not problems


def without_data(prometheus, job, pattern="."):
    needs = {name: what for what, names in NEEDS.items() for name in names}
    missing = []
    recorded = [rule["name"] for rule in rules(prometheus) if rule["type"] == "recording"]
    for name in filter(re.compile(pattern).search, recorded):
        selector = "" if name.startswith(("perf:", "namespace:")) else f'{{job="{RECORDED if name in needs else job}"}}'
        # NaN counts as missing data.
        if not ask(prometheus, "query", query=f"{name}{selector} > -Inf")["result"]:
            missing.append(name + (f" (needs {needs[name]})" if name in needs else ""))
    # Failed rules are reported with their error.
    missing += [f"{rule['name']}: {rule['lastError']}" for rule in rules(prometheus) if rule.get("lastError")]
    print(*missing, sep="\n")
    return not missing


def main():
    match sys.argv[1:]:
        case ["history", path]:
            history(path)
        case ["serve", port]:
            serve(port, Exporter)
        case ["receive", port, directory]:
            serve(port, receiver(directory))
        case ["lint", prometheus, repository]:
            sys.exit(not lint(prometheus, repository))
        case ["without_data", prometheus, job, *pattern]:
            sys.exit(not without_data(prometheus, job, *pattern))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
