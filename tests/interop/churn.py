"""churn.py EXPORTER PROMETHEUS [MINUTES]: tests how Prometheus 3 handles short-lived series.

Up to 500 cgroups are created and removed while two servers scrape the exporter, one as protobuf and one as OpenMetrics, both with
created-timestamp-zero-ingestion. At the end, the increase of all series, including `other`, and of unattributed counts is compared with
the counts of `perf stat -a`. A counter may only fall with a newer created timestamp, which Prometheus stores as a zero.

PROMETHEUS is the program of version 3.8 or later (`increase(... anchored)`). Needs root, perf and a cgroup2 file system.
Prints a line for each figure. Exit code: 0 if all are within their bounds, else 1.
"""

import contextlib
import json
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

EVENTS = {"page-faults": "page_faults", "context-switches": "context_switches"}
CGROUPS = 500
SERIES = 50
# Maximum relative difference between perf's count and the increase.
BOUND = 0.005
# Seconds without churn at both ends, so that counts between the last scrape and the end of perf are few.
QUIET = 15
WORK = "while :; do for i in 1 2 3 4 5; do /bin/true; done; sleep {pause}; done"

CONFIG = f"""
collection: {{interval: 1s}}
counters: {{os: {{events: [{", ".join(EVENTS)}], per: [cgroup]}}}}
presets: []
profiles: {{}}
scheduler: {{per: []}}
syscalls: {{per: []}}
limits: {{series: {SERIES}, cpu: off}}
"""

PROTOCOLS = {"protobuf": "PrometheusProto", "openmetrics": "OpenMetricsText1.0.0"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if condition():
                return
        time.sleep(0.2)
    sys.exit("a program that was started does not answer")


class Server:
    """A Prometheus that scrapes in one format."""

    def __init__(self, program, protocol, target, scratch, running):
        self.port = free_port()
        config = scratch / f"{protocol}.yaml"
        config.write_text(
            "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
            "scrape_configs:\n"
            f"  - {{job_name: perf, scrape_protocols: [{protocol}], params: {{created: ['true']}}, "
            f"static_configs: [{{targets: ['127.0.0.1:{target}']}}]}}\n"
        )
        arguments = [
            program, f"--config.file={config}", f"--storage.tsdb.path={scratch / protocol}", "--log.level=error",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--enable-feature=created-timestamp-zero-ingestion,promql-extended-range-selectors",
        ]
        running.enter_context(subprocess.Popen(arguments, stdout=subprocess.DEVNULL))
        until(lambda: fetch(f"http://127.0.0.1:{self.port}/-/ready"))

    def query(self, text, at):
        parameters = urllib.parse.urlencode({"query": text, "time": at})
        return json.loads(fetch(f"http://127.0.0.1:{self.port}/api/v1/query?{parameters}"))["data"]["result"]

    def increase(self, metric, begin, end):
        result = self.query(f"sum(increase({metric}[{end - begin}s] anchored))", end)
        return float(result[0]["value"][1]) if result else 0.0

    def falls(self, metric, begin, end):
        """Returns how often a series fell to the zero of a created timestamp, and how often otherwise."""
        explained = others = 0
        for series in self.query(f"{metric}[{end - begin}s]", end):
            values = [float(value) for _, value in series["values"]]
            for before, after in zip(values, values[1:]):
                explained += after < before and after == 0
                others += after < before and after != 0
        return explained, others


def churn(top, end):
    """Creates and removes cgroups until `end`; each exists for 10 to 120 seconds."""
    there = []
    number = 0
    while time.monotonic() < end:
        for cgroup, worker, ends in [one for one in there if one[2] < time.monotonic()]:
            there.remove((cgroup, worker, ends))
            remove(cgroup, worker)
        if len(there) < CGROUPS:
            number += 1
            cgroup = top / f"churn-{number}"
            cgroup.mkdir()
            work = WORK.format(pause=random.choice([1, 2, 5, 10]))
            command = f"echo $$ >{cgroup}/cgroup.procs; {work}"
            worker = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL)
            there.append((cgroup, worker, time.monotonic() + random.uniform(10, 120)))
        time.sleep(0.1)
    for cgroup, worker, _ in there:
        remove(cgroup, worker)
    return number


def remove(cgroup, worker):
    while (cgroup / "cgroup.procs").read_text():
        (cgroup / "cgroup.kill").write_text("1")
        worker.wait()
        time.sleep(0.01)
    cgroup.rmdir()


def main(exporter, prometheus, minutes=60.0):
    mounts = [line.split() for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    root = next(pathlib.Path(at) for _, at, kind, *_ in mounts if kind == "cgroup2")
    top = root / "perf-exporter-churn"
    top.mkdir(exist_ok=True)
    missed = 0
    with contextlib.ExitStack() as running:
        scratch = pathlib.Path(running.enter_context(tempfile.TemporaryDirectory()))
        (scratch / "perf-exporter.yaml").write_text(CONFIG)
        target = free_port()
        arguments = [exporter, "--config", scratch / "perf-exporter.yaml", "--listen", f"127.0.0.1:{target}"]
        service = running.enter_context(subprocess.Popen(arguments, stderr=subprocess.DEVNULL))
        running.callback(service.terminate)
        until(lambda: fetch(f"http://127.0.0.1:{target}/-/ready"))
        servers = {name: Server(prometheus, protocol, target, scratch, running) for name, protocol in PROTOCOLS.items()}
        running.callback(lambda: subprocess.run(["pkill", "-f", str(scratch)], check=False))
        time.sleep(QUIET)
        begin = int(time.time())
        length = minutes * 60
        counting = subprocess.Popen(
            ["perf", "stat", "-a", "-x", ",", "-e", ",".join(EVENTS), "sleep", str(length + 2 * QUIET)],
            stderr=subprocess.PIPE, text=True,
        )
        time.sleep(QUIET)
        number = churn(top, time.monotonic() + length)
        true = {line.split(",")[2]: int(line.split(",")[0]) for line in counting.communicate()[1].splitlines() if line}
        end = int(time.time())
        time.sleep(3)
        print(f"{number} cgroups in {minutes:g} minutes, {SERIES} series a metric")
        for name, server in servers.items():
            for event, metric in EVENTS.items():
                attributed = server.increase(f"perf_cgroup_{metric}_total", begin, end)
                rest = server.increase(f"perf_unattributed_{metric}_total", begin, end)
                error = (attributed + rest) / true[event] - 1
                explained, others = server.falls(f"perf_cgroup_{metric}_total", begin, end)
                missed += abs(error) > BOUND or others > 0
                print(
                    f"{name} {event}: perf {true[event]}, series {attributed:.0f}, unattributed {rest:.0f}, difference {error:+.3%}; "
                    f"falls to a zero {explained}, others {others}"
                )
    top.rmdir()
    sys.exit(missed > 0)


main(*sys.argv[1:3], *map(float, sys.argv[3:]))
