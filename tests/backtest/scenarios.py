"""The scenarios of the backtest: what happens on which machine, and which alerts are right.

A half is a fleet of its own, drawn from a seed of its own: `tuning`, with which rules and thresholds may be changed, `held-out`, with which
they are only measured, and `short` for each change of the repository. Each scenario is drawn from a seed that names it. So a new kind
does not change the others. test_backtest.py contains a checksum of all scenarios: they are frozen.

Times are minutes since Monday, 00:00. Rates are per second. An effect changes a field of simulated pods (see fleet.py) for a time.
"""

import dataclasses
import random

DAY = 1440
CPUS = 8


@dataclasses.dataclass(frozen=True)
class Half:
    nodes: tuple
    days: float
    # How many incidents of each kind.
    incidents: int


HALVES = {
    "tuning": Half(tuple(f"node-{n:02}" for n in range(1, 11)), 7, 2),
    "held-out": Half(tuple(f"node-{n:02}" for n in range(11, 21)), 7, 2),
    "short": Half(("node-31", "node-32", "node-33", "node-34"), 1.5, 1),
}

# Pods of each machine, by workload: namespace, and whether it is measured by system call. The workload `agent` is a service of systemd.
WORKLOADS = {
    "shop": ("web", True),
    "cart": ("web", True),
    "search": ("web", False),
    "db": ("data", True),
    "report": ("batch", False),
    "builder": ("ci", True),
    "agent": (None, False),
}
WEB = ("shop", "cart", "search")


@dataclasses.dataclass(frozen=True)
class Effect:
    workloads: tuple
    start: int
    end: int
    field: str
    # scale: multiplies; set: replaces; floor: at least
    how: str
    value: float


@dataclasses.dataclass
class Scenario:
    kind: str
    node: str
    start: int
    end: int
    effects: list
    # Alerts that find the incident: one of them suffices. Empty: no alert is right.
    expect: tuple = ()
    # Further alerts that are right.
    allow: tuple = ()
    # Workloads whose alerts are right; empty: those of the machine too.
    workloads: tuple = ()
    # Workloads that are replaced by new pods at the start.
    replaces: tuple = ()
    # Workloads whose containers restart in the same pod, at these minutes. With an uptime, they end after so many minutes.
    restarts: tuple = ()
    uptime: int = 0


def effects(workloads, start, length, **fields):
    """Returns the effects `field=(how, value)` on the workloads, from the start on."""
    return [Effect(tuple(workloads), start, start + length, field, how, round(value, 4)) for field, (how, value) in fields.items()]


def cold(rng, workloads, start):
    """Returns the first minutes of a program: cold caches, pages from disk, files that are searched."""
    minutes = rng.randint(5, 20)
    return [
        *effects(workloads, start, minutes, ipc=("scale", rng.uniform(0.55, 0.85)), mpki=("scale", rng.uniform(1.5, 3))),
        *effects(workloads, start, rng.randint(2, 6), faults=("floor", rng.uniform(50, 400)), slow=("scale", 3)),
        *effects(workloads, start, rng.randint(1, 3), forks=("floor", rng.uniform(20, 250)), errors=("floor", rng.uniform(0.05, 0.3))),
    ]


class Draw:
    """Draws the scenarios of a half."""

    def __init__(self, half):
        self.name, self.half = half, HALVES[half]
        self.minutes = int(self.half.days * DAY)
        self.scenarios = []
        # Times of incidents on each machine, for the distance between them.
        self.taken = {node: [] for node in self.half.nodes}

    def rng(self, *parts):
        return random.Random("/".join([self.name, *map(str, parts)]))

    def add(self, kind, node, start, end, changes, **more):
        if end < self.minutes:
            self.scenarios.append(Scenario(kind, node, start, end, changes, **more))

    def workday(self, rng, day, first=8, last=19):
        return day * DAY + rng.randint(first * 60, last * 60)

    # What happens in every week. No alert is right.

    def deploys(self, node):
        for workload in WEB:
            rng = self.rng(node, "deploy", workload)
            for day in sorted(rng.sample(range(7), 3)):
                at = self.workday(rng, day)
                self.add("deploy", node, at, at + 30, cold(rng, [workload], at), replaces=(workload,))

    def database(self, node):
        rng = self.rng(node, "db-restart")
        at = self.workday(rng, rng.randint(0, 6))
        self.add("database restart", node, at, at + 60, cold(rng, ["db"], at), restarts=(at,), workloads=("db",))
        if rng.random() < 0.5:
            for day in range(7):
                rng = self.rng(node, "compaction", day)
                for _ in range(rng.randint(1, 3)):
                    at = day * DAY + rng.randint(0, DAY - 60)
                    length = rng.randint(10, 50)
                    self.add("database compaction", node, at, at + length, effects(
                        ["db"], at, length, cpu=("scale", 1.5), ipc=("scale", rng.uniform(0.5, 0.8)), mpki=("scale", rng.uniform(1.3, 2.2))))

    def nights(self, node):
        for day in range(7):
            rng = self.rng(node, "night", day)
            at, length = day * DAY + 120 + rng.randint(0, 5), rng.randint(60, 150)
            # One program with more threads than CPUs, at the lowest weight: it fills the machine and waits, the others hardly notice.
            waiting, waits = rng.uniform(4, 24), rng.uniform(100, 400)
            self.add("nightly batch job", node, at, at + length, [
                *effects(["report"], at, length, cpu=("set", CPUS), ipc=("scale", rng.uniform(0.7, 1.2)), waits=("set", waits),
                         slow=("set", 0.9), slow_mean=("set", waiting / waits / 0.9), invol=("set", rng.uniform(50, 500))),
                *effects([*WEB, "db"], at, length, slow=("scale", rng.uniform(1, 2)), ipc=("scale", rng.uniform(0.75, 0.95)),
                         mpki=("scale", rng.uniform(1.1, 1.7)))])
            at, length = day * DAY + 210 + rng.randint(0, 10), rng.randint(10, 40)
            self.add("nightly backup", node, at, at + length, [
                *effects(["db"], at, length, faults=("floor", rng.uniform(20, 150)), mpki=("scale", rng.uniform(1.2, 2.2)),
                         ipc=("scale", rng.uniform(0.6, 0.9)), cpu=("scale", 1.3)),
                *effects(["db"], at + length - 3, rng.randint(1, 3), stuck_sync=("set", 60))])

    def cron(self, node):
        for hour in range(int(self.half.days * 24)):
            rng = self.rng(node, "cron", hour)
            at, length = hour * 60, rng.randint(1, 4)
            self.add("hourly job", node, at, at + length, [
                *effects(["agent"], at, length, cpu=("floor", 1), forks=("floor", rng.uniform(100, 800)), waits=("floor", 300)),
                *effects(rng.sample(WEB, 2), at, length, slow=("floor", rng.uniform(0.01, 0.08)), slow_mean=("floor", rng.uniform(0.02, 0.08)),
                         invol=("scale", rng.uniform(1, 4)))])

    def builds(self, node):
        for day in range(5):
            rng = self.rng(node, "build", day)
            for _ in range(rng.randint(2, 6)):
                at, length = self.workday(rng, day, 8, 18), rng.randint(4, 40)
                self.add("build", node, at, at + length, effects(
                    ["builder"], at, length, cpu=("set", rng.uniform(1, 3)), forks=("set", rng.uniform(100, 900)), ipc=("scale", rng.uniform(0.7, 1)),
                    waits=("set", 3000), slow=("set", rng.uniform(0.005, 0.03)), slow_mean=("set", rng.uniform(0.01, 0.05)),
                    calls=("set", 20000), errors=("set", rng.uniform(0.1, 0.25)), invol=("set", rng.uniform(50, 600))))

    def bursts(self, node):
        for day in range(7):
            rng = self.rng(node, "bursts", day)
            at, length = day * DAY + rng.randint(60, DAY - 60), rng.randint(1, 6)
            self.add("burst of errors", node, at, at + length, effects(
                [rng.choice(["shop", "cart", "db"])], at, length, errors=("set", rng.uniform(0.2, 0.8))))
            at, length = day * DAY + rng.randint(60, DAY - 60), rng.randint(3, 10)
            self.add("short storm of records", node, at, at + length, effects(
                ["node"], at, length, lost=("set", rng.uniform(0.02, 0.2)), exporter_cpu=("set", rng.uniform(0.1, 0.25))))
            at, length = day * DAY + rng.randint(60, DAY - 60), rng.randint(1, 4)
            self.add("short pause of the exporter", node, at, at + length, effects(
                ["node"], at, length, **{rng.choice(["profile_age", "snapshot_age"]): ("set", rng.uniform(61, 200))}))
            at = day * DAY + rng.randint(60, DAY - 60)
            self.add("slow network file system", node, at, at + 2, effects(["shop"], at, 1, stuck_stat=("set", rng.uniform(31, 70))))
        rng = self.rng(node, "receiver")
        at, length = rng.randint(DAY, 6 * DAY), rng.randint(2, 8)
        self.add("restart of the receiver", node, at, at + length, effects(["node"], at, length, push_failing=("set", 1)))

    def unseen(self, node):
        """What happens only on the machines of the held-out half: rules that are changed with the other half have not seen it."""
        for day in (1, 4):
            rng = self.rng(node, "unseen", day)
            at, length = day * DAY + rng.randint(60, DAY - 120), rng.randint(20, 60)
            self.add("scan of large tables", node, at, at + length, effects(
                ["db"], at, length, faults=("floor", rng.uniform(20, 200)), mpki=("scale", rng.uniform(1.2, 2.5)), cpu=("scale", 1.5)))
            at, length = self.workday(rng, day), rng.randint(30, 60)
            self.add("load test", node, at, at + length, effects(
                ["shop", "cart"], at, length, cpu=("scale", 2.5), waits=("scale", 3), calls=("scale", 3), ipc=("scale", rng.uniform(0.7, 1.1)),
                mpki=("scale", rng.uniform(0.8, 1.6)), slow=("scale", rng.uniform(1, 2.5)), slow_mean=("scale", 1.5), invol=("scale", 3)))
            at, length = day * DAY + rng.randint(60, DAY - 120), rng.randint(3, 12)
            self.add("pull of an image", node, at, at + length, [
                *effects(["agent"], at, length, cpu=("floor", 2), waits=("floor", 500), forks=("floor", 20)),
                *effects(WEB, at, length, faults=("floor", rng.uniform(10, 80)))])
        rng = self.rng(node, "unseen", "release")
        if rng.random() < 0.3:
            at = self.workday(rng, rng.randint(1, 4))
            self.add("release with failing calls", node, at, at + DAY, effects(["cart"], at, self.minutes, errors=("floor", rng.uniform(0.04, 0.2))))

    def maintenance(self, node, number):
        rng = self.rng(node, "upgrade")
        at = 2 * DAY + 600 + 5 * number
        self.add("upgrade of the exporter", node, at, at + 5, effects(["node"], at, rng.randint(1, 3), down=("set", 1)))
        at = rng.randint(0, 6 * DAY)
        self.add("restart of the exporter", node, at, at + 2, effects(["node"], at, 1, down=("set", 1)))
        rng = self.rng(node, "reboot")
        at, length = 3 * DAY + 1320 + 15 * number if self.half.days > 2 else 1350 + 20 * number, rng.randint(3, 12)
        started = at + length
        self.add("reboot", node, at, started + 20, [
            *effects(["node"], at, length, down=("set", 1)),
            *cold(rng, [*WEB, "db", "agent"], started),
            *effects([*WEB, "db", "agent"], started, rng.randint(2, 6), slow=("floor", 0.08), slow_mean=("floor", 0.1)),
        ], replaces=(*WEB, "report", "builder"), restarts=(at,), workloads=("db",))

    def loops(self):
        rng = self.rng("crash loop")
        for number in range(self.half.incidents):
            node = rng.choice(self.half.nodes)
            at = rng.randint(400, self.minutes - 400)
            length = rng.randint(120, 300)
            starts, when, pause = [], at, 1
            while when < at + length:
                starts.append(when)
                when += 1 + pause
                pause = min(5, pause * 2)
            changes = [effect for start in starts for effect in effects(
                ["search"], start, 1, ipc=("scale", 0.6), mpki=("scale", 2.5), faults=("floor", rng.uniform(50, 300)), forks=("floor", 30))]
            self.add("crash loop", node, at, at + length, changes, restarts=tuple(starts), uptime=2, workloads=("search",))

    # Incidents. Their alerts are right.

    def place(self, rng, shortest, longest, first=480):
        """Returns a machine and a time at which no other incident and no maintenance is near."""
        while True:
            node = rng.choice(self.half.nodes)
            length = rng.randint(shortest, longest)
            start = rng.randint(first, self.minutes - length - 60)
            if all(start > end + 90 or start + length + 90 < begin for begin, end in self.taken[node]):
                self.taken[node].append((start, start + length))
                return node, start, length

    def incident(self, kind, number, lengths, expect, draw, allow=(), first=480):
        rng = self.rng("incident", kind, number)
        node, start, length = self.place(rng, *lengths, first=first)
        workloads, changes = draw(rng, start, length)
        self.add(kind, node, start, start + length, changes, expect=expect, allow=allow, workloads=workloads)

    def incidents(self):
        for scenario in self.scenarios:
            if scenario.kind in ("reboot", "upgrade of the exporter", "restart of the exporter", "crash loop"):
                self.taken[scenario.node].append((scenario.start, scenario.end))
        latency = ("PerfRunQueueLatencyHigh",)
        for number in range(self.half.incidents):
            self.incident("neighbor that uses the cache", number, (60, 240), ("PerfIpcCollapse", "PerfCacheMissSurge"), cache, first=DAY // 2)
            self.incident("neighbor with more weight", number, (30, 180), latency, weight,
                          ("PerfInvoluntarySwitchStorm", "PerfNodeOverloaded"))
            self.incident("overloaded machine", number, (45, 120), ("PerfNodeOverloaded", *latency), overload, ("PerfInvoluntarySwitchStorm",))
            # Rules before PerfCpuThrottled reported throttling as latency.
            self.incident("lower CPU limit", number, (120, 360), ("PerfCpuThrottled", *latency), throttled)
            self.incident("fork storm", number, (30, 120), ("PerfForkStorm",), forks)
            self.incident("too little memory", number, (20, 120), ("PerfMajorFaultsHigh",), memory)
            self.incident("failing system calls", number, (20, 120), ("PerfSyscallErrorSurge",), failing)
            self.incident("hanging file system", number, (5, 40), ("PerfSyscallStuck",), hanging)
            self.incident("preemptions all the time", number, (30, 120), ("PerfInvoluntarySwitchStorm",), preempted)
            self.incident("exporter down", number, (30, 180), ("PerfExporterDown",), machine(down=1))
            self.incident("stalled exporter", number, (15, 60), ("PerfExporterStale",), growing("snapshot_age"))
            self.incident("stalled profiles", number, (15, 60), ("PerfExporterProfileStalled",), growing("profile_age"))
            self.incident("lost records", number, (40, 120), ("PerfRecordsLost",), machine(lost=0.08, exporter_cpu=0.15), ("PerfSwitchesLost",))
            self.incident("failing pushes", number, (20, 120), ("PerfExporterPushFailing",), machine(push_failing=1))
            self.incident("invalid configuration", number, (60, 300), ("PerfExporterConfigReloadFailed",), machine(reload_failed=1))
            self.chronic(number)

    def chronic(self, number):
        """A pod whose CPU limit is too low for the busy hours of each day. The first page is right, the others repeat it."""
        rng = self.rng("chronic", number)
        node = rng.choice(self.half.nodes)
        changes = []
        for day in range(int(self.half.days + 0.5)):
            at = day * DAY + rng.randint(8 * 60, 10 * 60)
            changes += effects(["cart"], at, rng.randint(300, 500), throttle=("set", rng.uniform(0.02, 0.1)),
                               slow=("floor", rng.uniform(0.02, 0.1)), slow_mean=("floor", 0.06))
        self.add("chronic throttling", node, changes[0].start, self.minutes - 1, changes, expect=("PerfCpuThrottled", "PerfRunQueueLatencyHigh"), workloads=("cart",))

    def all(self):
        for number, node in enumerate(self.half.nodes):
            for kind in (self.deploys, self.database, self.nights, self.cron, self.builds, self.bursts):
                kind(node)
            self.maintenance(node, number)
            if self.name == "held-out":
                self.unseen(node)
        self.loops()
        self.incidents()
        return self.scenarios


def cache(rng, start, length):
    return WEB, effects(WEB, start, length, ipc=("scale", rng.uniform(0.3, 0.55)), mpki=("scale", rng.uniform(2.3, 4)), cpu=("scale", 1.5))


def weight(rng, start, length):
    return WEB, [
        *effects(WEB, start, length, slow=("floor", rng.uniform(0.02, 0.06)), slow_mean=("floor", rng.uniform(0.06, 0.12)), invol=("scale", 2)),
        *effects(["db"], start, length, cpu=("scale", 2))]


def overload(rng, start, length):
    slow, mean = rng.uniform(0.04, 0.15), rng.uniform(0.08, 0.2)
    return (), [
        *effects([*WEB, "db", "agent"], start, length, slow=("floor", slow), slow_mean=("floor", mean), invol=("scale", rng.uniform(1, 3))),
        *effects(["node"], start, length, busy=("floor", rng.uniform(0.95, 0.995)))]


def throttled(rng, start, length):
    return ("shop",), effects(["shop"], start, length, throttle=("set", rng.uniform(0.02, 0.2)), slow=("floor", rng.uniform(0.03, 0.2)),
                              slow_mean=("floor", rng.uniform(0.05, 0.08)))


def forks(rng, start, length):
    workload = rng.choice([*WEB, "agent", "db"])
    return (workload,), effects([workload], start, length, forks=("floor", rng.uniform(300, 2000)))


def memory(rng, start, length):
    workload = rng.choice([*WEB, "db"])
    return (workload,), effects([workload], start, length, faults=("floor", rng.uniform(80, 800)))


def failing(rng, start, length):
    workload = rng.choice(["shop", "cart", "db"])
    return (workload,), effects([workload], start, length, errors=("floor", rng.uniform(0.15, 0.7)))


def hanging(_, start, length):
    return ("cart",), [effect for minute in range(length) for effect in effects(["cart"], start + minute, 1, stuck_stat=("set", 60 * minute + 20))]


def preempted(rng, start, length):
    workload = rng.choice(WEB)
    return (workload,), effects([workload], start, length, invol=("floor", rng.uniform(1500, 4000)), cpu=("floor", 0.5))


def machine(**fields):
    return lambda _, start, length: ((), effects(["node"], start, length, **{field: ("set", value) for field, value in fields.items()}))


def growing(field):
    return lambda _, start, length: ((), [
        effect for minute in range(length) for effect in effects(["node"], start + minute, 1, **{field: ("set", 60 * minute + 30)})])


def drawn(half):
    return Draw(half).all()
