"""Measurements of run.sh.

measure.py load NAME=PID[,METRICS,DIRECTORY]...: prints CPU time, memory and disk of processes, and the samples that stores append, over
    FLEET_MINUTES after FLEET_WARMUP seconds
measure.py stored PROMETHEUS: prints scrapes and series of the head
measure.py rules PROMETHEUS: prints the time of each rule group, and of the slowest rules
measure.py queries STORE: runs every query of every dashboard as Grafana does; prints the times
measure.py bytes SAMPLES BYTES: prints the ratio
"""

import collections
import json
import os
import pathlib
import re
import statistics
import sys
import time
import urllib.request

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "dashboards"), str(HERE.parents[1] / "tests/interop")]

import dashboards  # noqa: E402
from src import grafana  # noqa: E402

TICKS = os.sysconf("SC_CLK_TCK")
# Samples that a store has appended, or that an agent or a Collector has received, and the series of a store.
APPENDED = {
    "prometheus_tsdb_head_samples_appended_total",
    "prometheus_agent_samples_appended_total",
    "vm_rows_added_to_storage_total",
    "otelcol_receiver_accepted_metric_points",
    "otelcol_receiver_accepted_metric_points_total",
}
SERIES = {"prometheus_tsdb_head_series", "prometheus_agent_active_series", 'vm_cache_entries{type="storage/hour_metric_ids"}'}
# Range and rate window of the dashboards' queries.
SHOWN, RATE = 600, 60


def cpu_seconds(pid):
    fields = pathlib.Path("/proc", pid, "stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid):
    status = pathlib.Path("/proc", pid, "status").read_text()
    return {name: int(re.search(rf"{name}:\s+(\d+)", status)[1]) * 1024 for name in ("VmRSS", "VmHWM", "RssAnon")}


def length(directory):
    return sum(file.stat().st_size for file in pathlib.Path(directory).rglob("*") if file.is_file())


def own_metrics(url):
    """Returns appended samples and series from a store's own metrics."""
    appended = series = 0
    with urllib.request.urlopen(url, timeout=60) as answer:
        for line in map(bytes.decode, answer):
            name, _, value = line.rpartition(" ")
            if name.split("{")[0] in APPENDED:
                appended += float(value)
            if name in SERIES:
                series = float(value)
    return appended, series


class Process:
    def __init__(self, text):
        self.name, rest = text.split("=", 1)
        self.pid, self.url, self.directory = (rest.split(",") + ["", ""])[:3]

    def read(self):
        at, cpu = time.monotonic(), cpu_seconds(self.pid)
        return at, cpu, *(own_metrics(self.url) if self.url else (0, 0)), length(self.directory) if self.directory else 0


def load(*texts):
    processes = [Process(text) for text in texts]
    time.sleep(float(os.environ.get("FLEET_WARMUP", 120)))
    before = [process.read() for process in processes]
    time.sleep(60 * float(os.environ.get("FLEET_MINUTES", 5)))
    for process, (at, cpu, appended, _, disk) in zip(processes, before):
        now = process.read()
        seconds, used, added = now[0] - at, now[1] - cpu, now[2] - appended
        held = memory(process.pid)
        print(f"{process.name}: {used / seconds:.3f} CPUs over {seconds:.0f} s")
        print("  memory: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in held.items()))
        if now[3]:
            print(f"  series: {now[3]:.0f}; {held['RssAnon'] / now[3]:.0f} bytes of anonymous memory each")
        if process.url:
            print(f"  samples: {added / seconds:.0f} a second; {1e6 * used / max(added, 1):.2f} µs of CPU time each")
        if process.directory:
            print(f"  disk: {now[4] / 1e6:.0f} MB, {(now[4] - disk) / max(added, 1):.2f} bytes for each sample")


def value(prometheus, query):
    found = prometheus.now(query, time.time())
    return float(found[0][1][0][1]) if found else float("nan")


def stored(url):
    prometheus = grafana.Prometheus(url)
    for name, query in {
        "targets up": "sum(up)",
        "targets down": "count(up == 0) or vector(0)",
        "samples of a scrape": "avg(scrape_samples_scraped)",
        "seconds of a scrape": "avg(scrape_duration_seconds)",
        "new series of a scrape": "avg(avg_over_time(scrape_series_added[2m]))",
        "series of the scrapes": "sum(scrape_samples_post_metric_relabeling)",
        "recorded series": 'count({__name__=~".+:.+"}) or vector(0)',
    }.items():
        print(f"{name}: {value(prometheus, query):.3f}")


def rules(url):
    slow = []
    with urllib.request.urlopen(f"{url}/api/v1/rules", timeout=60) as answer:
        groups = json.load(answer)["data"]["groups"]
    for group in groups:
        print(f"group {group['name']}: {group['evaluationTime']:.3f} s each {group['interval']} s")
        slow += [(rule["evaluationTime"], rule["name"], rule.get("lastError", "")) for rule in group["rules"]]
    for seconds, name, error in sorted(slow, reverse=True)[:12]:
        print(f"  {seconds:.3f} s  {name} {error}")


def queries(url):
    prometheus, now = grafana.Prometheus(url), time.time()
    slow, of_file = [], collections.defaultdict(list)
    for file, dashboard in dashboards.dashboards():
        for instance in ("node-00001", ".*"):
            chosen = {"names": "prometheus", "instance": instance, "group": "pod"}
            values = grafana.values_of(dashboard, chosen, prometheus, now, SHOWN, RATE)
            for where, query, instant in dashboards.queries_of(dashboard):
                query = grafana.replaced(query, values)
                begin = time.monotonic()
                try:
                    result = prometheus.now(query, now) if instant else prometheus.over(query, now - SHOWN, now, 15)
                    found = f"{len(result)} series"
                except (ValueError, OSError) as error:
                    found = str(error)
                took = time.monotonic() - begin
                of_file[file, instance].append(took)
                slow.append((took, file, instance, where, found))
    for (file, instance), times in of_file.items():
        print(
            f"{file}, instance {instance}: {len(times)} queries, p50 {statistics.median(times):.3f} s, max {max(times):.3f} s, "
            f"sum {sum(times):.1f} s"
        )
    for took, *where in sorted(slow, reverse=True)[:15]:
        print(f"  {took:.3f} s ", *where)


def bytes_of(samples, size):
    print(f"{int(size) / int(samples):.3f} bytes for each sample")


COMMANDS = {"load": load, "stored": stored, "rules": rules, "queries": queries, "bytes": bytes_of}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
