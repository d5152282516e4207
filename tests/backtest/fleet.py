"""Series of a simulated machine, one sample a minute.

The values of a pod's fields are a daily pattern with noise, changed by the effects of the scenarios. Counters are their sums. As in reality,
counters start at zero when the exporter or the container starts, and series end when the target cannot be scraped or the container is gone.
"""

import itertools
import math
import random

from scenarios import CPUS, DAY, WORKLOADS

# CPUs used, instructions per cycle, cache misses per 1000 instructions, waits for a CPU, preemptions per second of CPU time, forks, major
# faults, system calls, share of failed calls.
FIELDS = ("cpu", "ipc", "mpki", "waits", "invol", "forks", "faults", "calls", "errors")
BASES = {
    "shop": (0.8, 1.1, 4, 1500, 120, 1, 0.2, 6000, 0.02),
    "cart": (0.6, 1.3, 3, 1200, 100, 1, 0.2, 4000, 0.01),
    "search": (1.0, 0.9, 6, 1000, 80, 2, 0.5, 0, 0),
    "db": (1.0, 0.8, 8, 2500, 150, 0.5, 2, 9000, 0.015),
    "report": (0.05, 1.5, 2, 20, 50, 0.2, 0.1, 0, 0),
    "builder": (0.05, 1.0, 5, 30, 60, 2, 0.5, 200, 0.1),
    "agent": (0.1, 0.7, 9, 200, 90, 5, 0.1, 0, 0),
}
# Relative standard deviation of the noise of each field.
NOISE = {"cpu": 0.15, "ipc": 0.06, "mpki": 0.12, "waits": 0.1, "invol": 0.2, "forks": 0.3, "faults": 0.5, "calls": 0.1, "errors": 0.2, "slow": 0.4}
# Of all waits, a share is slow. Both kinds are distributed exponentially.
SLOW, SLOW_MEAN, FAST_MEAN = 0.004, 0.005, 0.0001
CLOCK = 2.5e9
# Buckets of the level `standard`: those of cgroups and of the machine.
POD_BOUNDS = (1 / 1024, 1 / 128, 1 / 32, 1 / 4)
NODE_BOUNDS = (1 / 1024, 1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
NODE_FIELDS = {"busy": 0, "down": 0, "lost": 0, "exporter_cpu": 0.04, "profile_age": 0.3, "snapshot_age": 0.5, "push_failing": 0, "reload_failed": 0}
POOL = 40009


def noise_pool():
    """Returns noise that changes slowly, with a standard deviation of 1."""
    rng, value, pool = random.Random("noise"), 0.0, []
    for _ in range(POOL):
        value = 0.9 * value + math.sqrt(1 - 0.81) * rng.gauss(0, 1)
        pool.append(value)
    return pool


POOL_OF_NOISE = noise_pool()


def daily(minute):
    """Returns the load at a time of the week, relative to its mean: highest at 14:00, lower on Saturday and Sunday."""
    return (1 + 0.5 * math.sin((minute - 480) / DAY * 2 * math.pi)) * (0.7 if minute // DAY % 7 >= 5 else 1)


def apply(effects, fields):
    for effect in effects:
        values = fields.get(effect.field)
        if values is None:
            continue
        for minute in range(max(0, effect.start), min(len(values), effect.end)):
            if effect.how == "scale":
                values[minute] *= effect.value
            elif effect.how == "set":
                values[minute] = effect.value
            else:
                values[minute] = max(values[minute], effect.value)


def longer(slow, mean, bound):
    """Returns the share of waits that are longer."""
    return slow * math.exp(-bound / mean) + (1 - slow) * math.exp(-bound / FAST_MEAN)


def present(first, values):
    """Yields the parts of a gauge that have samples, each with its first minute."""
    for known, part in itertools.groupby(values, lambda value: value is not None):
        part = list(part)
        if known:
            yield first, part
        first += len(part)


class Node:
    def __init__(self, name, minutes, happens):
        self.name, self.minutes = name, minutes
        self.happens = [scenario for scenario in happens if scenario.node == name]
        self.effects = [effect for scenario in self.happens for effect in scenario.effects]
        self.series = {}

    def noise(self, *parts):
        at = random.Random("/".join((self.name, *parts))).randrange(POOL)
        return [POOL_OF_NOISE[(at + minute) % POOL] for minute in range(self.minutes)]

    def of(self, workload):
        return [effect for effect in self.effects if workload in effect.workloads]

    def fields(self, workload):
        """Returns each field of a workload as a list by minute."""
        fields = {}
        for field, base in zip(FIELDS, BASES[workload]):
            daily_part = [daily(minute) for minute in range(self.minutes)] if field in ("cpu", "waits", "calls") else itertools.repeat(1)
            wide = NOISE[field]
            fields[field] = [base * part * math.exp(wide * noise) for part, noise in zip(daily_part, self.noise(workload, field))]
        fields["slow"] = [SLOW * math.exp(NOISE["slow"] * noise) for noise in self.noise(workload, "slow")]
        fields["slow_mean"] = [SLOW_MEAN] * self.minutes
        fields["throttle"] = [0] * self.minutes
        fields["stuck_stat"] = [None] * self.minutes
        fields["stuck_sync"] = [None] * self.minutes
        apply(self.of(workload), fields)
        return fields

    def lives(self, workload):
        """Yields the containers of a workload: name of the pod, number, first and last minute."""
        events = [(0, True, 0)]
        for scenario in self.happens:
            if workload in scenario.replaces:
                events.append((scenario.start, True, 0))
            elif scenario.restarts and workload in scenario.workloads:
                events += [(at, False, scenario.uptime) for at in scenario.restarts]
        events.sort()
        pod = 0
        for number, (start, new, uptime) in enumerate(events):
            end = events[number + 1][0] if number + 1 < len(events) else self.minutes
            # After a crash, the next container starts later. After the last one, it stays.
            if uptime and number + 1 < len(events) and end - start > uptime:
                end = start + uptime
            pod += new
            if end > start:
                yield f"{workload}-{self.name[-2:]}-{pod}", number, start, end

    def write(self, name, labels, start, end, rates, gauge=False):
        """Adds a series from a value per second for each minute, or from values of a gauge (None: no sample)."""
        inside = ",".join(f'{label}="{value}"' for label, value in {**labels, "instance": self.name, "job": "perf-exporter"}.items())
        segments = []
        for first, last in self.scraped:
            first, last = max(first, start), min(last, end)
            if first >= last:
                continue
            if gauge:
                segments += present(first, rates[first:last])
            else:
                total = itertools.accumulate(itertools.chain((0,), rates[first : last - 1]))
                segments.append((first, [round(60 * value) for value in total]))
        if segments:
            self.series[f"{name}{{{inside}}}"] = segments

    def write_container(self, workload, fields, pod, number, start, end):
        namespace, calls = WORKLOADS[workload]
        labels = {"cgroup": f"/kubepods/{pod}/{number}", "namespace": namespace, "pod": pod, "container": "main"}
        if namespace is None:
            labels = {"cgroup": f"/system.slice/{workload}.service"}
        write = lambda name, rates, **more: self.write(f"perf_cgroup_{name}", {**labels, **more}, start, end, rates)
        write("cycles_total", fields["cycles"])
        write("instructions_total", fields["instructions"])
        write("cache_misses_total", fields["misses"])
        write("task_clock_seconds_total", fields["cpu"])
        write("major_faults_total", fields["faults"])
        write("forks_total", fields["forks"])
        write("sched_switches_total", fields["preemptions"], kind="involuntary")
        write("sched_preemptions_total", fields["throttles"], by="throttled")
        for bound, rates in fields["buckets"].items():
            write("sched_runqueue_latency_seconds_bucket", rates, le=bound)
        write("sched_runqueue_latency_seconds_count", fields["waits"])
        if calls:
            write("syscalls_total", fields["calls"], syscall="newfstatat")
            write("syscall_errors_total", fields["failed"], syscall="newfstatat", errno="ENOENT")
        for field, call in (("stuck_stat", "newfstatat"), ("stuck_sync", "fsync")):
            values = fields[field]
            if any(value is not None for value in values[start:end]):
                self.write("perf_cgroup_syscalls_stuck_longest_seconds", {**labels, "syscall": call}, start, end, values, gauge=True)

    def derive(self, fields):
        """Adds the rates of counters that follow from the fields."""
        fields["cycles"] = [cpu * CLOCK for cpu in fields["cpu"]]
        fields["instructions"] = [cycles * ipc for cycles, ipc in zip(fields["cycles"], fields["ipc"])]
        fields["misses"] = [instructions * mpki / 1000 for instructions, mpki in zip(fields["instructions"], fields["mpki"])]
        fields["preemptions"] = [invol * cpu for invol, cpu in zip(fields["invol"], fields["cpu"])]
        fields["throttles"] = [share * waits for share, waits in zip(fields["throttle"], fields["waits"])]
        fields["failed"] = [share * calls for share, calls in zip(fields["errors"], fields["calls"])]
        waits = list(zip(fields["waits"], fields["slow"], fields["slow_mean"]))
        fields["buckets"] = {f"{bound:g}" if bound > 0.001 else "0.0009765625": [
            count * (1 - longer(slow, mean, bound)) for count, slow, mean in waits] for bound in POD_BOUNDS}
        fields["buckets"]["+Inf"] = fields["waits"]
        return waits

    def write_node(self, every, used):
        fields = {field: [value] * self.minutes for field, value in NODE_FIELDS.items()}
        fields["busy"] = [min(0.995, cpu / CPUS) for cpu in used]
        apply(self.of("node"), fields)
        write = lambda name, rates, gauge=False, **labels: self.write(name, labels, 0, self.minutes, rates, gauge)
        for bound in NODE_BOUNDS:
            write("perf_sched_runqueue_latency_seconds_bucket", [
                sum(count * (1 - longer(slow, mean, bound)) for count, slow, mean in pods) for pods in zip(*every)], le=f"{bound:.10g}")
        counts = [sum(count for count, _, _ in pods) for pods in zip(*every)]
        write("perf_sched_runqueue_latency_seconds_bucket", counts, le="+Inf")
        write("perf_sched_runqueue_latency_seconds_count", counts)
        write("perf_sched_runqueue_latency_seconds_sum", [
            sum(count * (slow * mean + (1 - slow) * FAST_MEAN) for count, slow, mean in pods) for pods in zip(*every)])
        write("perf_sched_run_seconds_total", [share * CPUS for share in fields["busy"]])
        for cpu in range(CPUS):
            write("perf_cpu_task_clock_seconds_total", [1] * self.minutes, cpu=cpu)
        switches = [2 * count for count in counts]
        lost = fields["lost"]
        write("perf_cpu_context_switches_total", switches, cpu=0)
        write("perf_ring_records_total", [count * (1 - share) for count, share in zip(switches, lost)], ring="switch")
        write("perf_lost_records_total", [count * share for count, share in zip(switches, lost)], ring="switch", reason="ring_full")
        write("perf_unattributed_context_switches_total", [2 * count * share for count, share in zip(switches, lost)], scope="cgroup", reason="lost")
        write("perf_exporter_cpu_seconds_total", fields["exporter_cpu"])
        write("perf_targets", [CPUS] * self.minutes, True, counters="os", leader="task-clock", scope="cpu", state="counted")
        write("perf_exporter_profile_age_seconds", fields["profile_age"], True)
        write("perf_exporter_snapshot_age_seconds", fields["snapshot_age"], True)
        write("perf_exporter_push_failing", fields["push_failing"], True, signal="metrics", format="otlp")
        write("perf_exporter_config_last_reload_successful", [1 - failed for failed in fields["reload_failed"]], True)
        write("perf_exporter_build_info", [1] * self.minutes, True, version="1")

    def simulate(self):
        """Returns the parts of each series without gaps: their first minute and their values."""
        down = {"down": [0] * self.minutes}
        apply(self.of("node"), down)
        up = [1 - value for value in down["down"]]
        self.scraped, at = [(0, self.minutes)], 0
        self.write("up", {}, 0, self.minutes, up, gauge=True)
        self.scraped = []
        for value, minutes in itertools.groupby(up):
            length = len(list(minutes))
            if value:
                self.scraped.append((at, at + length))
            at += length
        every, used = [], [0] * self.minutes
        for workload in WORKLOADS:
            fields = self.fields(workload)
            every.append(self.derive(fields))
            used = [before + cpu for before, cpu in zip(used, fields["cpu"])]
            for pod, number, start, end in self.lives(workload):
                self.write_container(workload, fields, pod, number, start, end)
        self.write_node(every, used)
        return self.series

