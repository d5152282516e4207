"""churn.py load DIRECTORY CGROUPS FILE | measure MINUTES FILE JOB=PORT...: the load of churn.sh, and its checks.

load: creates and removes cgroups in DIRECTORY until it is killed, and writes the number of created ones to FILE
measure: counts with `perf stat -a`, and compares the increase of the series that each job stored in Prometheus on PORT
"""

import contextlib
import ctypes
import heapq
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import checks

# Each event with the stem of its metrics, and the unit of perf's count in the unit of the metric.
EVENTS = {
    "context-switches": ("context_switches", 1),
    "page-faults": ("page_faults", 1),
    "task-clock": ("task_clock_seconds", 1e-3),
}
# Maximum relative difference between perf's count and the increase, without extrapolation. increase() extrapolates each series to the time
# between its last sample and the end of the range, or half an interval of scrapes if that is shorter. With series that live for a few
# scrapes, this is a larger difference than the exporter's. `anchored` does not extrapolate.
BOUND = 0.005
# Seconds of churn before and after the measurement.
MARGIN = 20
WORK = "echo $$ >{}/cgroup.procs; while :; do for i in {}; do /bin/true; done; sleep {}; done"


def load(directory, cgroups, file):
    """Keeps this many cgroups. Most exist for 20 to 160 seconds, some for less than 3. Half of them return under their previous name."""
    # Processes that lose their parent become children of this process, which waits for them.
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    created = 0
    due = [(time.monotonic() + 5 * slot / cgroups, slot, None) for slot in range(cgroups)]
    while True:
        at, slot, existing = heapq.heappop(due)
        time.sleep(max(0.0, at - time.monotonic()))
        if existing:
            remove(*existing)
            # The slot stays empty for a while.
            heapq.heappush(due, (time.monotonic() + random.expovariate(2), slot, None))
            continue
        created += 1
        path = f"{directory}/{f'service-{slot}' if slot % 2 else f'job-{created}'}"
        os.mkdir(path)
        pieces = " ".join(map(str, range(random.choice([1, 2, 4, 8, 16]))))
        work = WORK.format(path, pieces, random.choice([2, 3, 5, 10, 20]))
        worker = os.posix_spawn("/bin/sh", ["sh", "-c", work], os.environ, setpgroup=0)
        life = random.uniform(0.1, 3) if random.random() < 0.1 else random.uniform(20, 160)
        heapq.heappush(due, (time.monotonic() + life, slot, (path, worker)))
        pathlib.Path(file).write_text(str(created))


def remove(path, worker):
    while os.path.exists(path):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        with contextlib.suppress(OSError):
            os.rmdir(path)
            return
        time.sleep(0.002)


class Perf:
    """Counts of `perf stat -a` at each tenth of a second."""

    def __init__(self):
        command = ["perf", "stat", "-a", "-I", "100", "-x", ",", "-e", ",".join(EVENTS)]
        self.program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.counts = {event: [(0.0, 0.0)] for event in EVENTS}
        # Unix time of the start of perf: lines never arrive before the end of their interval.
        self.start = float("inf")
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.program.stderr:
            arrival = time.time()
            at, count, _, event, *_ = line.strip().split(",")
            self.start = min(self.start, arrival - float(at))
            if event in self.counts:
                total = self.counts[event][-1][1] + float(count) * EVENTS[event][1]
                self.counts[event].append((float(at), total))

    def stop(self):
        self.program.send_signal(signal.SIGINT)
        self.reader.join()

    def at(self, event, moment):
        """Returns the count up to a Unix time, interpolated within a tenth of a second."""
        moment -= self.start
        counts = self.counts[event]
        after = next(index for index, (at, _) in enumerate(counts) if at >= moment)
        (begin, low), (end, high) = counts[after - 1], counts[after]
        return low + (high - low) * (moment - begin) / (end - begin)


class Job:
    """The series of one scrape job."""

    def __init__(self, name, port):
        self.name = name
        self.port = port

    def query(self, text, at):
        parameters = urllib.parse.urlencode({"query": text, "time": f"{at:.3f}", "timeout": "10m"})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{parameters}", timeout=600) as answer:
            return json.load(answer)["data"]["result"]

    def value(self, text, at):
        """Returns a single value, or None if this Prometheus does not support the query."""
        try:
            result = self.query(text, at)
        except urllib.error.HTTPError:
            return None
        return float(result[0]["value"][1]) if result else 0.0

    def samples(self, metric, at, seconds):
        """Returns all samples of a metric before a time, by labels: lists of time and value."""
        result = self.query(f'{metric}{{job="{self.name}"}}[{seconds}s]', at)
        return {
            tuple(sorted((key, value) for key, value in series["metric"].items() if key != "__name__")): [
                (moment, float(value)) for moment, value in series["values"]
            ]
            for series in result
        }

    def scrapes(self, at, seconds):
        """Returns the times of successful scrapes, each with the time of the collection that answered it."""
        durations = next(iter(self.samples("scrape_duration_seconds", at, seconds).values()), [])
        ages = next(iter(self.samples("perf_exporter_snapshot_age_seconds", at, seconds).values()), [])
        ages = dict(ages)
        return [(moment, moment + duration - ages[moment]) for moment, duration in durations if moment in ages]


def increase(samples, begin, end):
    """Returns the increase of a series in (begin, end], without extrapolation, and the number of falls to zero and to other values."""
    total, zeros, others = 0.0, 0, 0
    before = None
    for moment, value in samples:
        if moment > end:
            break
        if before is not None and value < before:
            zeros += value == 0
            others += value != 0
        if moment > begin and before is not None:
            total += value - before if value >= before else value
        before = value
    return total, zeros, others


def with_created(samples, created):
    """Inserts a sample of value zero at each new created timestamp, as created-timestamp-zero-ingestion does. Also returns the number of
    samples that are less than the previous one without a newer created timestamp."""
    created = dict(created)
    all_samples, falls = [], 0
    before = None
    for moment, value in samples:
        start = created.get(moment, 0.0)
        if before is None or start > before[1]:
            if before is None or start > before[2]:
                all_samples.append((start, 0.0))
        elif value < before[0]:
            falls += 1
        all_samples.append((moment, value))
        before = (value, start, moment)
    return all_samples, falls


class Result:
    """The sums over all series of an event that a job stored."""

    def __init__(self, job, stem, begin, end, seconds):
        self.raw = self.first = 0.0
        self.series = self.zeros = self.others = self.unexplained = 0
        for scope in ["cgroup", "unattributed"]:
            metric = f"perf_{scope}_{stem}"
            created = job.samples(f"{metric}_created", end, seconds)
            for labels, samples in job.samples(f"{metric}_total", end, seconds).items():
                plain = increase(samples, begin, end)
                if created:
                    samples, falls = with_created(samples, created.get(labels, []))
                    self.unexplained += falls
                raw, zeros, others = increase(samples, begin, end)
                self.raw += raw
                self.first += raw - plain[0]
                self.series += scope == "cgroup"
                self.zeros += zeros
                self.others += others
        milliseconds = round((end - begin) * 1000)
        series = f'{{__name__=~"perf_(cgroup|unattributed)_{stem}_total",job="{job.name}"}}'
        # A range excludes its begin in Prometheus 3. `anchored` begins at the last sample that is not after the begin.
        self.extrapolated = job.value(f"sum(increase({series}[{milliseconds + 1}ms]))", end)
        self.anchored = job.value(f"sum(increase({series}[{milliseconds}ms] anchored))", end)


def measure(minutes, file, servers):
    started = time.time()
    jobs = [Job(name, port) for name, port in (server.split("=") for server in servers)]
    perf = Perf()
    time.sleep(MARGIN)
    begin = time.time()
    time.sleep(float(minutes) * 60)
    end = time.time()
    created = pathlib.Path(file).read_text()
    time.sleep(8)
    perf.stop()
    now = time.time()
    seconds = round(now - started) + 60
    print(f"{created} cgroups created in {float(minutes):g} minutes and {MARGIN} seconds")
    for job in jobs:
        scrapes = job.scrapes(now, seconds)
        within = [scrape for scrape in scrapes if begin <= scrape[0] <= end]
        if len(within) < 2:
            checks.expect(f"{job.name}: the exporter is scraped", False, f"{len(within)} scrapes of {len(scrapes)}")
            continue
        (first, collected_first), (last, collected_last) = within[0], within[-1]
        for event, (stem, _) in EVENTS.items():
            counted = perf.at(event, collected_last) - perf.at(event, collected_first)
            result = Result(job, stem, first, last, seconds)
            report(job, event, counted, result)


def report(job, event, counted, result):
    def difference(value):
        return "none" if value is None else f"{value:.10g} ({value / counted - 1:+.3%})"

    print(
        f"{job.name}, {event}: perf {counted:.10g}, samples {difference(result.raw)}, anchored increase {difference(result.anchored)}, "
        f"increase {difference(result.extrapolated)}; {result.series} series, {result.zeros} falls to zero, {result.others} others"
    )
    if job.name == "text":
        print(f"{job.name}, {event}: first samples lose {1 - result.raw / counted:.3%}")
        return
    sums = [result.raw] if result.anchored is None else [result.raw, result.anchored]
    error = max((total / counted - 1 for total in sums), key=abs)
    checks.expect(f"{job.name}, {event}: the increase is within {BOUND:.1%} of perf's count", abs(error) <= BOUND, f"{error:+.3%}")
    falls = result.unexplained + (0 if job.name == "stored" else result.others)
    checks.expect(f"{job.name}, {event}: totals only fall with a newer created timestamp", falls == 0, f"{falls} other falls")
    if job.name == "stored":
        print(f"{job.name}, {event}: without created timestamps, first samples lose {result.first / counted:.3%}")


if __name__ == "__main__":
    if sys.argv[1] == "load":
        load(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        measure(sys.argv[2], sys.argv[3], sys.argv[4:])
        checks.finish()
