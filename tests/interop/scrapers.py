"""scrapers.py EXPORTER CGROUP PORT_1S PORT_3S

Compares what several scrapers see of one exporter, while clients read its answers one byte a second. CGROUP has one process that only uses CPU
time. The ports are those of two Prometheis, which scrape every second and every three seconds. Prints each check; exits with 1 if one fails.
"""

import concurrent.futures
import json
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse
import urllib.request

EXPORTER, CGROUP, FAST, SLOW = sys.argv[1:5]
METRIC = "perf_cgroup_task_clock_seconds_total"
TEXT = "text/plain;version=0.0.4"
OPENMETRICS = "application/openmetrics-text;version=1.0.0"
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
# `collection.freshness` of the exporter: a sample may be older than its scrape by this time.
FRESHNESS = 0.5
# Time of a scrape on a loaded machine, within which its timestamp may be off.
SCRAPE = 0.5
# The maximum rate of the counter: the process has one thread.
RATE = 1.02
WINDOW = 24
READERS = 3

failures = 0


def expect(sentence, holds, detail=""):
    global failures
    print(f"{'ok' if holds else 'FAILED'}: {sentence}{'' if holds else f': {detail}'}")
    failures += not holds


def fetch(accept):
    request = urllib.request.Request(f"http://{EXPORTER}/metrics", headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=5) as answer:
        return answer.read()


def of_text(body):
    """The values of counters and of counts of histograms, by series."""
    values = {}
    for line in body.decode().splitlines():
        found = re.fullmatch(r"(\w+(?:_total|_count))(?:\{(.*)\})? (\S+)(?: #.*| \d.*)?", line)
        if found:
            labels = frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', found[2] or ""))
            values[found[1], labels] = float(found[3])
    return values


def fields(message):
    """The fields of a protobuf message: number and value."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 2:
            length = varint()
            yield key >> 3, message[at : at + length]
            at += length
        else:
            size = 8 if kind == 1 else 4
            yield key >> 3, message[at : at + size]
            at += size


def of_protobuf(body):
    """The same as of_text, for counters only."""
    values = {}
    escaped = lambda text: text.decode().replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    at = 0
    while at < len(body):
        length = shift = 0
        while True:
            byte = body[at]
            at += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        family = list(fields(body[at : at + length]))
        at += length
        name = dict(family)[1].decode()
        for _, metric in (field for field in family if field[0] == 4):
            parts = list(fields(metric))
            labels = [dict(fields(value)) for number, value in parts if number == 1]
            labels = frozenset((label[1].decode(), escaped(label.get(2, b""))) for label in labels)
            for counter in (value for number, value in parts if number == 3):
                value = struct.unpack("<d", dict(fields(counter)).get(1, bytes(8)))[0]
                values[name, labels] = value
    return values


def check_one_snapshot():
    """Fetches all three formats at once, until all are of one collection."""
    collections = ("perf_exporter_collect_duration_seconds_count", frozenset())
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for _ in range(40):
            text, openmetrics, protobuf = pool.map(fetch, (TEXT, OPENMETRICS, PROTOBUF))
            again = of_text(fetch(TEXT))
            text, openmetrics, protobuf = of_text(text), of_text(openmetrics), of_protobuf(protobuf)
            # The one fetched last is of the same collection, so the protobuf answer between them is too.
            if text[collections] == openmetrics[collections] == again[collections]:
                break
        else:
            return expect("the formats of one collection can be compared", False, "no collection answered all of them")
    counters = {series for series in protobuf if series[0].endswith("_total")}
    shared = {series for series in text if series[0].endswith("_total")}
    expect(f"{len(counters)} counters are in every format", counters == shared == {s for s in openmetrics if s[0].endswith("_total")} and len(counters) > 50,
           f"{list(counters ^ shared)[:3]}")
    differing = [s for s in counters & shared if not text[s] == protobuf[s] == openmetrics.get(s)]
    expect("their values are equal in text, OpenMetrics and protobuf", not differing, f"{len(differing)}: {differing[:3]}")


def samples(port, metric=METRIC, labels=f'{{cgroup="{CGROUP}"}}'):
    """The samples that a Prometheus has stored: times and values."""
    query = urllib.parse.urlencode({"query": f"{metric}{labels}[{WINDOW + 30}s]"})
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=5) as answer:
        result = json.load(answer)["data"]["result"]
    return [(time, float(value)) for time, value in result[0]["values"]] if result else []


class TextScraper(threading.Thread):
    """Scrapes the text format several times a second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.samples, self.failures, self.ends, self.longest = [], [], threading.Event(), 0.0

    def run(self):
        while not self.ends.wait(0.3):
            begin, clock = time.time(), time.monotonic()
            try:
                values = of_text(fetch(TEXT))
            except OSError as error:
                self.failures.append(str(error))
                continue
            self.longest = max(self.longest, time.monotonic() - clock)
            found = [v for (name, labels), v in values.items() if name == METRIC and ("cgroup", CGROUP) in labels]
            self.samples += [(begin, value) for value in found]


class SlowReader(threading.Thread):
    """Requests the metrics and reads a byte of the answer each second."""

    def __init__(self):
        super().__init__(daemon=True)
        self.read = 0

    def run(self):
        host, port = EXPORTER.rsplit(":", 1)
        with socket.socket() as connection:
            # A small buffer, so that the exporter cannot hand over the whole answer.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect((host, int(port)))
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: exporter\r\nAccept: text/plain\r\n\r\n")
            while connection.recv(1):
                self.read += 1
                time.sleep(1)


def value_at(points, when):
    """The last value at or before a time."""
    return [value for at, value in points if at <= when][-1]


def contradictions(points):
    """Pairs of samples of one counter, of any scrapers, that no growth of the counter explains."""
    wrong = []
    slack = FRESHNESS + SCRAPE
    for at, (time_1, value_1) in enumerate(points):
        for time_2, value_2 in points[at + 1 : at + 40]:
            apart = time_2 - time_1
            if apart > slack and value_2 < value_1 or value_2 - value_1 > RATE * (apart + slack):
                wrong.append(((time_1, value_1), (time_2, value_2)))
    return wrong


def main():
    readers = [SlowReader() for _ in range(READERS)]
    [reader.start() for reader in readers]
    time.sleep(1)
    text = TextScraper()
    text.start()
    begin = time.time()
    deadline = begin + 60
    while time.time() < deadline and not (samples(FAST) and samples(SLOW) and text.samples):
        time.sleep(0.3)
    begin = time.time()
    check_one_snapshot()
    time.sleep(max(0, begin + WINDOW + 4 - time.time()))
    text.ends.set()
    text.join(10)
    seen = {"OpenMetrics every 1 s": (samples(FAST), 1), "protobuf every 3 s": (samples(SLOW), 3), "text": (text.samples, 0.5)}
    start, end = begin + 4, begin + 4 + WINDOW - 4
    increases = {}
    for name, (points, interval) in seen.items():
        within = [point for point in points if start <= point[0] <= end]
        expect(f"{name}: has a sample for each interval", len(within) >= (end - start) / max(interval, 0.5) - 2, f"{len(within)}")
        increases[name] = value_at(points, end) - value_at(points, start)
    for one in increases:
        for other in increases:
            if one < other:
                # Each end of the window is up to one interval and the age of a snapshot before its time.
                bound = 2 * RATE * (max(seen[one][1], seen[other][1]) + FRESHNESS + SCRAPE)
                apart = abs(increases[one] - increases[other])
                expect(f"{one} and {other}: increases {increases[one]:.2f} and {increases[other]:.2f} s, within {bound:.1f} s",
                       apart <= bound and min(increases.values()) > 1, f"{apart:.2f} s apart")
    merged = sorted(point for points, _ in seen.values() for point in points)
    wrong = contradictions(merged)
    expect(f"{len(merged)} samples of all scrapers, by time, are one growing counter", not wrong, f"{len(wrong)}: {wrong[:2]}")
    for port in (FAST, SLOW):
        up = samples(port, "up", '{job="perf"}')
        expect(f"every scrape of the Prometheus on port {port} succeeded", up and all(v == 1 for _, v in up), f"{up}")
    expect(f"every scrape of the text format succeeded; the longest took {text.longest:.2f} s", not text.failures, f"{text.failures[:3]}")
    bytes_read = [reader.read for reader in readers]
    expect(f"{READERS} slow readers read {bytes_read} bytes meanwhile", all(bytes_read), "one was not answered")
    sys.exit(failures > 0)


main()
