"""Reads the rule files of this repository, and replaces recorded series in expressions by their definitions.

Only the layout of these files is understood: the standard library has no parser of YAML.
"""

import dataclasses
import re

RULE = re.compile(r"(?m)^      - (?=(?:record|alert): )")
RECORDED = re.compile(r"\b(?:cgroup|pod|instance|namespace):\w+:\w+")
LIMIT = re.compile(r'\bperf:\w+:limit(?:\{namespace(!?)=""\})?')
AFTER = re.compile(r"(?P<range>\[\w+\])?(?P<offset>\s+offset\s+\w+)?")
DURATION = re.compile(r"(\d+)(w|d|h|m|s)")
UNITS = {"w": 10080, "d": 1440, "h": 60, "m": 1, "s": 1 / 60}
# Not evaluated, because it counts thresholds by a pattern.
SKIPPED = ("PerfThresholdMissing",)
# The rule on existing namespaces cannot be replaced, because it selects recorded series by a pattern. It is simulated.
SIMULATED = "namespace:perf_pods:exist"


@dataclasses.dataclass
class Alert:
    name: str
    expr: str
    hold: int
    keep: int
    severity: str


def minutes(duration):
    return sum(int(number) * UNITS[unit] for number, unit in DURATION.findall(duration or ""))


def field(block, name):
    match = re.search(rf"(?m)^        {name}: (\|\n(?:          .*\n)+|.*\n)", block)
    if not match:
        return None
    return re.sub(r"^\|\n", "", match[1]).strip()


class Rules:
    def __init__(self, texts):
        self.recorded, self.alerts, self.limits = {}, [], []
        for block in (block for text in texts for block in RULE.split(text)[1:]):
            block = re.sub(r"(?m)^ *#.*\n", "", block) + "\n"
            kind, name = re.match(r"(record|alert): (\S+)", block).groups()
            if kind == "alert":
                self.alerts.append(Alert(name, field(block, "expr"), round(minutes(field(block, "for"))), round(minutes(field(block, "keep_firing_for"))),
                                         re.search(r"severity: (\w+)", block)[1]))
            elif name.startswith("perf:"):
                namespace = re.search(r"namespace: (\w+)", block)
                value = re.search(r"expr: vector\((.*)\)", block)[1]
                self.limits.append((name, namespace and namespace[1], float(value)))
            else:
                self.recorded[name] = field(block, "expr")

    def limit(self, match):
        """Returns the thresholds that a selector selects: all, the general one, or those of namespaces."""
        name = match[0].partition("{")[0]
        general, own = match[0].endswith(('{namespace=""}', ":limit")), not match[0].endswith('{namespace=""}')
        values = [
            f'label_replace(vector({value}), "namespace", "{namespace}", "", "")' if namespace else f"vector({value})"
            for of, namespace, value in self.limits if of == name and (own if namespace else general)
        ]
        return f"({' or '.join(values)})" if values else "(vector(0) < 0)"

    def expanded(self, expr):
        """Returns the expression without recorded series and thresholds.

        Where a rule reads the past of a recorded series, a subquery computes it: each minute, for a day each 5 minutes, and for two days each
        15 minutes. Rates are those of 5 minutes, so their mean over a day covers all of it.
        """
        expr = LIMIT.sub(self.limit, expr)
        parts, at = [], 0
        for match in RECORDED.finditer(expr):
            if match.start() < at or match[0] == SIMULATED:
                continue
            after = AFTER.match(expr, match.end())
            inside = f"({self.expanded(self.recorded[match[0]])})"
            back = after["offset"] or ""
            if after["range"]:
                step = "1m" if minutes(after["range"]) < 1440 else "5m" if minutes(after["range"]) < 2880 else "15m"
                inside = f"{inside}{after['range'][:-1]}:{step}]{back}"
            elif back:
                inside = f"last_over_time({inside}[1m:1m]{back})"
            else:
                after = None
            parts += expr[at : match.start()], inside
            at = after.end() if after else match.end()
        return "".join(parts) + expr[at:]


def fires(active, hold, keep, length):
    """Applies `for` and `keep_firing_for`: returns the minutes at which an alert fires, from those at which its expression has a result."""
    firing, since, seen = [], None, None
    for minute in range(length):
        if minute in active:
            since = minute if since is None else since
            seen = minute
        elif since is not None:
            # A pending alert ends at once, one that fired continues for a time.
            fired = bool(firing) and firing[-1] == minute - 1
            if not fired or minute - seen > keep:
                since = None
        if since is not None and minute - since >= hold:
            firing.append(minute)
    return firing
