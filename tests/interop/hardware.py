#!/usr/bin/env python3
"""hardware.py PORT [EXPORTER_ADDRESS]

Serves synthetic series with the real names of metrics that a machine without a PMU, or a healthy one, cannot have: hardware counters
of pods on four nodes, events that could not be opened, lost records, stuck calls.
`/metrics?node=1` is one node, `node=2` the next. Two minutes after the start (or after `noise=SECONDS`) a batch job starts on node 1
and causes cache misses in other pods, which dashboards and alerts must show.

`/otlp?node=1` has the same series with the labels of OTLP, by the table of attributes in docs/otlp.md. `/otlp` alone has the series of
the exporter at the address in that form.
"""

import http.server
import math
import pathlib
import re
import sys
import threading
import time
import urllib.parse
import urllib.request

CPUS = 4
CLOCK = 3.0e9
# The bounds of the exporter, because buckets of several nodes are added up.
LATENCY_BOUNDS = [2.0**power for power in range(-20, 5)]

# For each pod: node, namespace, used CPUs, instructions per cycle, cache misses per 1000 instructions, share of mispredicted branches.
PODS = {
    "cart-7f5d9": (1, "shop", 0.9, 1.6, 2.0, 0.010),
    "checkout-5c8bb": (1, "shop", 0.5, 1.2, 4.0, 0.015),
    "reindex-28112": (1, "batch", 0.05, 0.7, 25.0, 0.020),
    "search-9d7c4": (2, "shop", 1.4, 0.9, 9.0, 0.045),
    "coredns-66bff": (2, "kube-system", 0.1, 1.9, 0.8, 0.004),
}


class Node:
    """Counters that grow with time, computed at each request."""

    def __init__(self, number, noise):
        self.number = number
        self.noise = noise
        self.start = self.last = time.monotonic()
        self.totals = {}
        self.kinds = {}
        self.gauges = {}
        self.lock = threading.Lock()

    def add(self, metric, labels, amount):
        key = (metric, tuple(sorted(labels.items())))
        self.totals[key] = self.totals.get(key, 0) + amount

    def observe(self, metric, labels, amount, median):
        """Adds this many observations around the median. Each further power of two has a quarter of the observations."""
        for bound in LATENCY_BOUNDS:
            away = math.log2(bound / median)
            part = 1 - 0.5 * 0.25**away if away >= 0 else 0.5 * 0.25**-away
            self.add(metric + "_bucket", {**labels, "le": repr(bound)}, amount * part)
        self.add(metric + "_bucket", {**labels, "le": "+Inf"}, amount)
        self.add(metric + "_sum", labels, amount * median * 2)
        self.add(metric + "_count", labels, amount)

    def hardware(self, scope, labels, cpus, ipc, mpki, branch, seconds):
        cycles = cpus * CLOCK * seconds
        instructions = cycles * ipc
        misses = instructions * mpki / 1000
        for event, amount in {
            "cycles": cycles,
            "instructions": instructions,
            "cache_references": misses * (3 if mpki > 10 else 12),
            "cache_misses": misses,
            "branches": instructions / 5,
            "branch_misses": instructions / 5 * branch,
            "task_clock_seconds": cpus * seconds if scope == "cgroup" else seconds,
            "context_switches": 900 * cpus * seconds,
            "cpu_migrations": 20 * cpus * seconds,
            "page_faults": 400 * cpus * seconds,
            "major_faults": 0.5 * cpus * seconds,
        }.items():
            self.add(f"perf_{scope}_{event}_total", labels, amount)

    def advance(self):
        now = time.monotonic()
        seconds, self.last = now - self.last, now
        noisy = now - self.start > self.noise
        used = 0
        for pod, (node, namespace, cpus, ipc, mpki, branch) in PODS.items():
            if node != self.number:
                continue
            if noisy and node == 1:
                cpus, ipc, mpki = (2.4, 0.5, 32.0) if namespace == "batch" else (cpus, ipc * 0.45, mpki * 5)
            # No load is constant.
            cpus *= 1 + 0.1 * ((int(now / 7) + len(pod)) % 3 - 1)
            used += cpus
            labels = {
                "namespace": namespace,
                "pod": pod,
                "container": pod.split("-")[0],
                "service": pod.split("-")[0],
                "cgroup": f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{len(namespace)}d6.slice/cri-containerd-{pod}.scope",
            }
            self.hardware("cgroup", labels, cpus, ipc, mpki, branch, seconds)
            self.add("perf_cgroup_sched_run_seconds_total", labels, cpus * seconds)
            wait = 2.0**-9 if noisy and node == 1 else 2.0**-15
            self.observe("perf_cgroup_sched_runqueue_latency_seconds", labels, 400 * cpus * seconds, wait)
            self.observe("perf_sched_runqueue_latency_seconds", {}, 400 * cpus * seconds, wait)
            self.add(
                "perf_cgroup_sched_preemptions_total",
                {**labels, "by": "throttled"},
                (40 if namespace == "batch" else 1) * cpus * seconds,
            )
            self.add("perf_cgroup_lock_waits_total", labels, 30 * cpus * seconds)
            self.add("perf_cgroup_oom_kills_total", labels, 0.001 * seconds)
            self.observe("perf_cgroup_memcg_reclaim_seconds", labels, seconds, 2.0**-11)
            self.observe("perf_cgroup_direct_reclaim_seconds", {**labels, "order": "0"}, seconds, 2.0**-10)
            self.add("perf_cgroup_forks_total", labels, 2 * seconds)
            self.add("perf_cgroup_execs_total", labels, 1 * seconds)
        self.add("perf_sched_run_seconds_total", {}, used * seconds)
        self.add("perf_sched_preemptions_total", {"by": "throttled"}, 4 * seconds)
        for cpu in range(CPUS):
            heavy = noisy and self.number == 1
            self.hardware("cpu", {"cpu": str(cpu)}, used / CPUS, 0.55 if heavy else 1.3, 20 if heavy else 4, 0.02, seconds)
        for cpu in ("0",):
            memory = {"pmu": "uncore_imc_0", "cpu": cpu}
            self.add("perf_pmu_uncore_imc_cas_count_read_bytes_total", memory, (9e9 if noisy else 2e9) * seconds)
            self.add("perf_pmu_uncore_imc_cas_count_write_bytes_total", memory, (4e9 if noisy else 8e8) * seconds)
            self.add("perf_pmu_power_energy_pkg_joules_total", {"pmu": "power", "cpu": cpu}, (30 + 12 * used) * seconds)
        self.trouble(seconds)
        self.presets(seconds)

    def trouble(self, seconds):
        """Adds series that a healthy node does not have."""
        self.add("perf_lost_records_total", {"ring": "switches", "reason": "ring_full"}, 3 * seconds)
        self.add("perf_lost_records_total", {"ring": "samples", "reason": "ring_full"}, 0.5 * seconds)
        self.add("perf_series_aggregated_total", {"counters": "os", "leader": "task-clock", "scope": "cgroup"}, 0.1 * seconds)
        self.add("perf_dropped_hits_total", {"entry": "tcp_send", "reason": "negative"}, 0.2 * seconds)
        self.add("perf_tracepoint_block_errors_total", {"device": "259,0", "op": "W"}, 0.05 * seconds)
        self.add("perf_frames_without_line_total", {"reason": "no_debug_info"}, 0.5 * seconds)
        self.add("perf_throttled_total", {}, 0.01 * seconds)
        self.add("perf_exporter_http_connections_aborted_total", {"reason": "timeout"}, 0.02 * seconds)
        for outcome, amount in {"accepted": 900, "dropped": 1, "rejected": 1}.items():
            self.add("perf_exporter_push_items_total", {"signal": "metrics", "outcome": outcome}, amount * seconds)
        self.add("perf_exporter_push_requests_total", {"signal": "metrics", "outcome": "accepted"}, seconds / 15)
        self.add("perf_exporter_push_bytes_total", {"signal": "metrics"}, 40000 * seconds)
        self.observe("perf_exporter_push_duration_seconds", {"signal": "metrics"}, seconds / 15, 0.01)
        self.add("perf_exporter_cpu_seconds_total", {}, 0.03 * seconds)
        for gauge, labels, value in [
            ("perf_exporter_build_info", {"version": "0.1.0", "arch": "x86_64"}, 1),
            ("perf_exporter_config_last_reload_successful", {}, int(self.number != 2)),
            (
                "perf_exporter_config_last_reload_success_timestamp_seconds",
                {},
                time.time() - (now_since := time.monotonic() - self.start),
            ),
            ("perf_exporter_detail_reduced", {}, int(self.number == 2)),
            ("perf_exporter_resident_memory_bytes", {}, 41e6),
            ("perf_exporter_open_descriptors", {}, 96),
            ("perf_exporter_push_failing", {"signal": "metrics"}, 0),
            ("perf_exporter_push_queue_bytes", {"signal": "metrics"}, 2e5),
            ("perf_series_in_other", {"counters": "os", "leader": "task-clock", "scope": "cgroup"}, 12 * (self.number == 2)),
            ("perf_event_state", {"event": "stalled-cycles-backend", "scope": "cpu", "state": "absent"}, CPUS),
            ("perf_event_state", {"event": "LLC-loads", "scope": "cpu", "state": "never_ran"}, 1),
            ("perf_event_state", {"event": "cycles", "scope": "cpu", "state": "counting"}, CPUS),
            ("perf_event_running_ratio", {"counters": "core", "leader": "cycles", "scope": "cpu", "cpu": "0"}, 1),
            (
                "perf_event_running_ratio",
                {"counters": "cache", "leader": "cache-references", "scope": "cpu", "cpu": "0"},
                0.62 if now_since % 60 < 30 else 0.7,
            ),
            ("perf_syscalls_stuck", {"syscall": "fsync"}, 2),
            ("perf_syscalls_stuck_longest_seconds", {"syscall": "fsync"}, now_since),
        ]:
            self.gauges[(gauge, tuple(sorted(labels.items())))] = value

    def presets(self, seconds):
        """Adds series of presets that need a file system, a virtual machine or a lack of memory."""
        disk = {"device": "259,0"}
        for metric, labels, amount, median in [
            ("lock_wait", {"type": "MUTEX"}, 200, 2.0**-12),
            ("lock_wait", {"type": "SPIN"}, 900, 2.0**-19),
            ("direct_reclaim", {"order": "0"}, 2, 2.0**-10),
            ("memcg_reclaim", {}, 5, 2.0**-11),
            ("compaction", {"sync": "1"}, 0.5, 2.0**-8),
            ("ext4_fsync", disk, 40, 2.0**-8),
            ("jbd2_commit", disk, 4, 2.0**-6),
            ("xfs_log_reserve", disk, 100, 2.0**-16),
            ("xfs_buffer_wait", disk, 30, 2.0**-10),
            ("kvm_exit", {"reason": "HLT"}, 300, 2.0**-9),
        ]:
            self.observe(f"perf_tracepoint_{metric}_seconds", labels, amount * seconds, median)
        for metric, labels, amount in [
            ("kmalloc", {"function": "alloc_bprm"}, 50),
            ("kmalloc_bytes", {"function": "alloc_bprm"}, 50 * 512),
            ("pages_allocated", {"order": "3"}, 400),
            ("pages_fragmented", {"order": "3"}, 1),
            ("kswapd_wakes", {"node": "0"}, 0.2),
            ("oom_kills", {}, 0.01),
            ("xfs_fsyncs", disk, 10),
            ("xfs_log_forces", {"function": "xfs_log_force_seq"}, 10),
            ("tcp_retransmits", {"state": "TCP_ESTABLISHED"}, 3),
            ("tcp_synack_retransmits", {}, 0.1),
            ("tcp_resets_sent", {}, 1),
            ("tcp_resets_received", {}, 2),
            ("tcp_transitions", {"from": "TCP_SYN_SENT", "to": "TCP_CLOSE"}, 0.5),
        ]:
            self.add(f"perf_tracepoint_{metric}_total", labels, amount * seconds)

    def text(self):
        with self.lock:
            self.advance()
            families = {}
            for (metric, labels), value in {**self.totals, **self.gauges}.items():
                family = re.sub(r"_(bucket|sum|count)$", "", metric)
                inside = ",".join(f'{name}="{of}"' for name, of in labels)
                families.setdefault(family, []).append(f"{metric}{{{inside}}} {value!r}")
            lines = []
            for family, series in sorted(families.items()):
                kind = (
                    "counter"
                    if family.endswith("_total")
                    else "histogram"
                    if any(line.startswith(family + "_bucket{") for line in series)
                    else "gauge"
                )
                lines += [f"# TYPE {family} {kind}", *series]
            return "\n".join(lines) + "\n"


def otlp_labels():
    """Returns the labels with another name in docs/otlp.md, as Prometheus writes that name."""
    manual = pathlib.Path(__file__).resolve().parents[2] / "docs" / "otlp.md"
    rows = manual.read_text(encoding="utf-8").split("## Attributes", 1)[1].split("\n\n", 2)[1]
    found = dict(re.findall(r"^\| `(\w+)` \| `([\w.]+)`", rows, re.M))
    return {label: attribute.replace(".", "_") for label, attribute in found.items()}


def by_otlp(text):
    """Returns the text with the label names of OTLP."""
    renamed = otlp_labels()
    # A quote inside a value has a backslash before it, so no value looks like a label.
    return re.sub(r'(?<=[{,])(\w+)(?==")', lambda found: renamed.get(found[1], found[1]), text)


def serve(port, exporter):
    nodes = {}

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            url = urllib.parse.urlsplit(self.path)
            asked = dict(urllib.parse.parse_qsl(url.query))
            try:
                if "node" in asked:
                    key = (url.path, asked["node"])
                    if key not in nodes:
                        nodes[key] = Node(int(asked["node"]), float(asked.get("noise", 120)))
                    text = nodes[key].text()
                else:
                    with urllib.request.urlopen(f"http://{exporter}/metrics", timeout=10) as metrics:
                        text = metrics.read().decode()
            except OSError as error:
                self.send_error(502, str(error))
                return
            body = (by_otlp(text) if url.path == "/otlp" else text).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__.strip())
    serve(int(sys.argv[1]), sys.argv[2] if len(sys.argv) == 3 else None)
