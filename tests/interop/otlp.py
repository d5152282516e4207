"""A receiver of OTLP with the stubs that OpenTelemetry generates for Python, and checks of the received data.

otlp.py receive DIR                    receives metrics, profiles, logs and traces over gRPC and HTTP; writes the ports to DIR/ports, and each
                                       request to a file DIR/PROTOCOL.SIGNAL.NUMBER
otlp.py equal DIR PROTOCOL EXPOSITION  every counter of a scrape, in text, has the same value in the newest metrics
otlp.py hot DIR PROTOCOL PID FUNCTION  the function is innermost in most on-CPU samples of the process, and files have build ids
otlp.py spans DIR PROTOCOL              there are spans of collections, scrapes and pushes, and none of pushes of spans
otlp.py counts DIR PROTOCOL SIGNAL     prints the number of requests

Exit code: 0 if the check passes, 1 with a reason if not.
"""

import collections
import gzip
import http.server
import itertools
import pathlib
import re
import sys
import threading
from concurrent import futures

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.profiles.v1development import (
    profiles_service_pb2,
    profiles_service_pb2_grpc,
)
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

SIGNALS = {
    "metrics": (
        metrics_service_pb2.ExportMetricsServiceRequest,
        metrics_service_pb2.ExportMetricsServiceResponse,
        metrics_service_pb2_grpc.MetricsServiceServicer,
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
        "/v1/metrics",
    ),
    "profiles": (
        profiles_service_pb2.ExportProfilesServiceRequest,
        profiles_service_pb2.ExportProfilesServiceResponse,
        profiles_service_pb2_grpc.ProfilesServiceServicer,
        profiles_service_pb2_grpc.add_ProfilesServiceServicer_to_server,
        "/v1development/profiles",
    ),
    "logs": (
        logs_service_pb2.ExportLogsServiceRequest,
        logs_service_pb2.ExportLogsServiceResponse,
        logs_service_pb2_grpc.LogsServiceServicer,
        logs_service_pb2_grpc.add_LogsServiceServicer_to_server,
        "/v1/logs",
    ),
    "traces": (
        trace_service_pb2.ExportTraceServiceRequest,
        trace_service_pb2.ExportTraceServiceResponse,
        trace_service_pb2_grpc.TraceServiceServicer,
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        "/v1/traces",
    ),
}


def receive(directory):
    numbers = itertools.count()

    def keep(protocol, signal, message):
        """Writes a file that appears with its complete content."""
        name = f"{protocol}.{signal}.{next(numbers):06}"
        (directory / ".new").write_bytes(message.SerializeToString())
        (directory / ".new").rename(directory / name)

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    for signal, (_, response, servicer, add, _) in SIGNALS.items():

        def export(self, request, context, signal=signal, response=response):
            keep("grpc", signal, request)
            return response()

        add(type("Servicer", (servicer,), {"Export": export})(), server)
    grpc_port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            known = [(signal, parts) for signal, parts in SIGNALS.items() if parts[4] == self.path]
            right = self.headers["Content-Type"] == "application/x-protobuf"
            answer = b""
            if known and right:
                signal, parts = known[0]
                keep("http", signal, parts[0].FromString(body))
                answer = parts[1]().SerializeToString()
            self.send_response(200 if known and right else 400)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_):
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    (directory / ".ports").write_text(f"{grpc_port} {web.server_port}\n")
    (directory / ".ports").rename(directory / "ports")
    threading.Thread(target=web.serve_forever, daemon=True).start()
    server.wait_for_termination()


def requests(directory, protocol, signal):
    files = sorted(pathlib.Path(directory).glob(f"{protocol}.{signal}.*"))
    return [SIGNALS[signal][0].FromString(file.read_bytes()) for file in files]


def scalar(value):
    return getattr(value, value.WhichOneof("value"))


def attributes(pairs):
    found = {pair.key: scalar(pair.value) for pair in pairs}
    assert len(found) == len(pairs), f"a key comes twice: {pairs}"
    assert all(found), f"an attribute without a key: {pairs}"
    return found


# Suffixes that the Collector's Prometheus exporters derive from a unit.
UNITS = {"s": "seconds", "By": "bytes", "J": "joules", "W": "watts", "Cel": "celsius"}

# Attribute keys that differ from the label names, with the labels.
LABELS = {
    "cpu.logical_number": "cpu",
    "perf.by_cgroup": "by_cgroup",
    "perf.cgroup": "cgroup",
    "perf.comm": "comm",
}


def counters_of(request):
    """Returns the values of monotonic sums, by Prometheus name and labels."""
    found = {}
    for metric in (m for r in request.resource_metrics for s in r.scope_metrics for m in s.metrics):
        if not metric.HasField("sum") or not metric.sum.is_monotonic:
            continue
        assert metric.sum.aggregation_temporality == 2, f"{metric.name} is not cumulative"
        name = re.sub(r"[^a-z0-9_]", "_", metric.name)
        unit = UNITS.get(metric.unit)
        name += f"_{unit}_total" if unit and not name.endswith(unit) else "_total"
        for point in metric.sum.data_points:
            assert 0 < point.start_time_unix_nano <= point.time_unix_nano, f"{metric.name} has no beginning"
            labels = {LABELS.get(key, key): str(value) for key, value in attributes(point.attributes).items()}
            for derived in ("container.id", "k8s.pod.uid"):
                labels.pop(derived, None)
            key = (name, frozenset(labels.items()))
            assert key not in found, f"{key} comes twice"
            found[key] = getattr(point, point.WhichOneof("value"))
    return found


SAMPLE = re.compile(r'^([a-z_0-9]+_total)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-z_0-9]+)="((?:[^"\\]|\\.)*)"')


def counters_in(text):
    """Returns the same from an exposition, without the exporter's own metrics, which change between collections."""
    found = {}
    for line in text.splitlines():
        match = SAMPLE.match(line)
        if match and match[1].startswith(("perf_cpu_", "perf_cgroup_", "perf_process_")):
            unescape = lambda value: re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value)
            labels = {name: unescape(value) for name, value in LABEL.findall(match[2] or "")}
            found[(match[1], frozenset(labels.items()))] = float(match[3])
    return found


def equal(directory, protocol, exposition):
    ours = counters_of(requests(directory, protocol, "metrics")[-1])
    theirs = counters_in(pathlib.Path(exposition).read_text())
    assert len(theirs) > 20, f"only {len(theirs)} counters were scraped"
    assert any("cgroup" in dict(labels) for _, labels in theirs), "no counter of a cgroup was scraped"
    different = {key: (value, ours.get(key)) for key, value in theirs.items() if ours.get(key) != value}
    assert not different, f"{len(different)} of {len(theirs)} differ: {list(different.items())[:3]}"
    print(f"{len(theirs)} counters")


def hot(directory, protocol, pid, function):
    innermost = collections.Counter()
    for request in requests(directory, protocol, "profiles"):
        tables = request.dictionary
        text = tables.string_table
        told = lambda indices: {
            text[tables.attribute_table[i].key_strindex]: scalar(tables.attribute_table[i].value) for i in indices
        }
        for mapping in tables.mapping_table[1:]:
            keys = told(mapping.attribute_indices)
            ids = [key for key in keys if key.startswith("process.executable.build_id.")]
            assert ids, f"{text[mapping.filename_strindex]} has no build id: {keys}"
        for resource in request.resource_profiles:
            host = attributes(resource.resource.attributes)
            assert host["host.name"] and "service.name" not in host, host
            for profile in (p for s in resource.scope_profiles for p in s.profiles):
                kind = text[profile.sample_type.type_strindex], text[profile.period_type.type_strindex]
                if kind != ("samples", "cpu"):
                    continue
                for sample in profile.samples:
                    stack = tables.stack_table[sample.stack_index]
                    if str(told(sample.attribute_indices).get("process.pid")) != pid:
                        continue
                    location = tables.location_table[stack.location_indices[0]]
                    names = [text[tables.function_table[line.function_index].name_strindex] for line in location.lines]
                    innermost[names[0] if names else ""] += sum(sample.values) or len(sample.timestamps_unix_nano)
    total = sum(innermost.values())
    assert total > 10, f"only {total} samples of the process: {innermost}"
    assert innermost[function] > 0.85 * total, f"{innermost}"
    print(f"{innermost[function]} of {total} samples")


def spans(directory, protocol):
    number, pushed = collections.Counter(), set()
    for request in requests(directory, protocol, "traces"):
        for resource in request.resource_spans:
            assert attributes(resource.resource.attributes)["service.name"] == "perf-exporter"
            for span in (span for s in resource.scope_spans for span in s.spans):
                told = attributes(span.attributes)
                number[span.name] += 1
                assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano, span
                if span.name == "scrape":
                    assert (told["http.response.status_code"], told["url.path"]) == (200, "/metrics"), told
                if span.name == "push":
                    assert told["server.address"] == "127.0.0.1", told
                    assert told["perf_exporter.push.outcome"] == "accepted", told
                    pushed.add(told["perf_exporter.push.signal"])
    assert set(number) == {"collect", "scrape", "push"}, number
    assert pushed == {"metrics", "profiles", "logs"}, pushed
    print(dict(number))


def counts(directory, protocol, signal):
    print(len(requests(directory, protocol, signal)))


def main():
    command, directory, *rest = sys.argv[1:]
    if command == "receive":
        return receive(pathlib.Path(directory))
    try:
        {"equal": equal, "hot": hot, "spans": spans, "counts": counts}[command](directory, *rest)
    except (AssertionError, IndexError) as error:
        sys.exit(f"{command}: {error!r}")


main()
