"""Checks of two layers of Collectors with the metrics of several nodes.

layers.py push PORT ROUND [NODE]...  pushes a request for each of these nodes, or of all, to the first layer, by OTLP in JSON; prints the nodes whose
                                     request was rejected with a code that the exporter retries
layers.py check ROUNDS DIR...        the files of the second layer, in a directory for each Collector, contain each value of these rounds once, and
                                     all series of a node are in one directory

Exit code: 0 if the check passes, 1 with a reason if not.
"""

import collections
import json
import pathlib
import sys
import urllib.error
import urllib.request

NODES, SERIES = 40, 25
RETRIED = (429, 502, 503, 504)


def request(node, number):
    """Returns the metrics of a node. As in a node agent, each container has its own resource."""

    def resource(container):
        attributes = {"service.name": "perf-exporter", "service.instance.id": f"node-{node}", "container.id": f"{node}-{container}"}
        points = [
            {
                "attributes": [{"key": "cpu", "value": {"intValue": str(series)}}],
                "startTimeUnixNano": "1700000000000000000",
                "timeUnixNano": str(1700000000000000000 + number * 10**9),
                "asInt": str(number),
            }
            for series in range(SERIES)
        ]
        total = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": points}
        return {
            "resource": {"attributes": [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]},
            "scopeMetrics": [{"metrics": [{"name": "perf.cgroup.forks", "sum": total}]}],
        }

    return {"resourceMetrics": [resource(container) for container in range(3)]}


def push(port, number, *nodes):
    for node in nodes or range(NODES):
        body = json.dumps(request(node, int(number))).encode()
        post = urllib.request.Request(f"http://127.0.0.1:{port}/v1/metrics", body, {"Content-Type": "application/json"})
        try:
            urllib.request.urlopen(post, timeout=20).close()
        except urllib.error.HTTPError as error:
            if error.code not in RETRIED:
                sys.exit(f"node {node}: {error.code} {error.read()}")
            print(node)


def values(directory):
    """Returns the values in all files of a directory: node, container, series, round."""
    for line in (line for file in pathlib.Path(directory).iterdir() for line in file.open()):
        for of_resource in json.loads(line)["resourceMetrics"]:
            attributes = {pair["key"]: pair["value"].get("stringValue") for pair in of_resource["resource"]["attributes"]}
            for scope in of_resource["scopeMetrics"]:
                for metric in scope["metrics"]:
                    for point in metric["sum"]["dataPoints"]:
                        series = point["attributes"][0]["value"]["intValue"]
                        yield attributes["service.instance.id"], attributes["container.id"], series, int(point["asInt"])


def check(rounds, *directories):
    found = [collections.Counter(values(directory)) for directory in directories]
    total = sum(found, collections.Counter())
    expected = NODES * 3 * SERIES * int(rounds)
    if len(total) != expected or set(total.values()) != {1}:
        sys.exit(f"{len(total)} different values instead of {expected}; most often: {total.most_common(1)}")
    nodes = [{value[0] for value in values} for values in found]
    print("nodes of each Collector:", *map(len, nodes))
    if not all(nodes) or len(set.union(*nodes)) != sum(map(len, nodes)):
        sys.exit("a Collector has no node, or several have the same one")


if __name__ == "__main__":
    {"push": push, "check": check}[sys.argv[1]](*sys.argv[2:])
