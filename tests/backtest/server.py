"""Simulated series in a Prometheus, and the results of expressions over the whole time."""

import contextlib
import hashlib
import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from fleet import Node
from rules import SIMULATED
from scenarios import WORKLOADS, Draw

# Monday, 2024-01-01 00:00 UTC.
BEGIN = 1704067200


def write_series(file, name, segments):
    for first, values in segments:
        at = BEGIN + 60 * first
        file.write("".join([f"{name} {value} {at + 60 * minute}\n" for minute, value in enumerate(values)]))


def write_nodes(path, nodes, length):
    """Writes the series of machines as OpenMetrics."""
    with open(path, "w", encoding="utf-8") as file:
        for series in nodes:
            for name, segments in series.items():
                write_series(file, name, segments)
        namespaces = {namespace for namespace, _ in WORKLOADS.values() if namespace}
        for labels in ["", *(f'{{namespace="{namespace}"}}' for namespace in sorted(namespaces))]:
            write_series(file, f"{SIMULATED}{labels}", [(0, [1] * length)])
        file.write("# EOF\n")


def write_fleet(path, half):
    draw = Draw(half)
    happens = draw.all()
    write_nodes(path, (Node(node, draw.minutes, happens).simulate() for node in draw.half.nodes), draw.minutes)


def blocks(path, directory):
    """Imports a file of OpenMetrics. Blocks of a week, because promtool reads the file once for each block."""
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=162h", path, directory], check=True)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextlib.contextmanager
def prometheus(directory):
    """Runs a Prometheus on imported blocks, and gives its address. A sample is valid for the minute until the next scrape."""
    port = free_port()
    config = os.path.join(directory, "prometheus.yaml")
    with open(config, "w", encoding="utf-8") as file:
        file.write("{}\n")
    with open(os.path.join(directory, "prometheus.log"), "w", encoding="utf-8") as log, subprocess.Popen(
        ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={directory}", f"--web.listen-address=127.0.0.1:{port}",
         "--storage.tsdb.retention.time=20y", "--query.lookback-delta=30s", "--query.max-samples=1000000000", "--query.timeout=1h"],
        stdout=log, stderr=log,
    ) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{address}/-/ready", timeout=5).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield address
        finally:
            server.terminate()


def query(address, expr, length):
    """Returns the labels of each result of an expression, with the minutes at which it exists."""
    parameters = urllib.parse.urlencode({"query": expr, "start": BEGIN, "end": BEGIN + 60 * (length - 1), "step": 60}).encode()
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query_range", parameters, timeout=3600) as answer:
            result = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{expr}: {error.read().decode()}") from error
    return [
        ({name: value for name, value in series["metric"].items() if name != "__name__"}, [(int(at) - BEGIN) // 60 for at, _ in series["values"]])
        for series in result
    ]


class Results:
    """Results of expressions, kept in a directory: most alerts are the same in two sets of rules."""

    def __init__(self, address, length, directory):
        self.address, self.length, self.directory = address, length, directory
        os.makedirs(directory, exist_ok=True)

    def active(self, expr):
        path = os.path.join(self.directory, hashlib.sha256(expr.encode()).hexdigest()[:16])
        if not os.path.exists(path):
            result = query(self.address, expr, self.length)
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(result, file)
            os.rename(path + ".new", path)
        with open(path, encoding="utf-8") as file:
            return [(labels, set(minutes)) for labels, minutes in json.load(file)]
