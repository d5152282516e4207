"""Evaluates rules with `promtool test rules`, so with the rule manager of Prometheus: slow, and the reference for the evaluation of rules.py.

promtool has no command that prints alerts over time. But it prints the result of a query that does not match the expected one. So each
minute has a query of the firing alerts that is expected to be empty.
"""

import json
import os
import re
import subprocess
import tempfile

from rules import SKIPPED, minutes

FIRING = 'ALERTS{alertstate="firing"}'
TIME = re.compile(r'expr: ".*", time: (\w+),')
SAMPLE = re.compile(r"\{(.*?)\} 1E\+00")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
# The order of groups, and the interval of the baselines, delay the rule manager by so many minutes.
TOLERANCE = 2


def notation(segments, length):
    """Returns the values of a series in the notation of promtool. A series that ends is marked as stale, as by a scrape."""
    parts, at = [], 0
    for first, values in segments:
        if first > at:
            parts.append(f"_x{first - at}")
        parts += map(str, values)
        at = first + len(values)
        if at < length:
            parts.append("stale")
            at += 1
    return " ".join(parts)


def firing(series, length, texts):
    """Returns the minutes at which each alert fires."""
    with tempfile.TemporaryDirectory(prefix="backtest.") as directory:
        for number, text in enumerate(texts):
            with open(os.path.join(directory, f"{number}.rules.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
        test = {
            "rule_files": ["*.rules.yaml"],
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [{"series": name, "values": notation(segments, length)} for name, segments in series.items()],
                "promql_expr_test": [{"expr": FIRING, "eval_time": f"{minute}m"} for minute in range(1, length)],
            }],
        }
        path = os.path.join(directory, "test.yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(test, file)
        done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    return parsed(done.stdout + done.stderr)


def parsed(output):
    alerts, at = {}, None
    for line in output.splitlines():
        time = TIME.search(line)
        if time:
            at = round(minutes(time[1]))
        elif line.strip().startswith("got:"):
            for inside in SAMPLE.findall(line):
                labels = {name: value for name, value in LABEL.findall(inside) if name not in ("__name__", "alertstate", "severity")}
                alerts.setdefault(tuple(sorted(labels.items())), []).append(at)
    if at is None and "SUCCESS" not in output:
        raise RuntimeError(output[:2000])
    return {labels: times for labels, times in alerts.items() if dict(labels)["alertname"] not in SKIPPED}


def episodes(times):
    """Returns the first and last minutes of each time without gaps."""
    result = []
    for minute in times:
        if result and minute == result[-1][1] + 1:
            result[-1][1] = minute
        else:
            result.append([minute, minute])
    return result


def equal(expected, ours):
    """Prints the episodes of both, and returns whether they begin and end at the same time."""
    same = True
    for labels in sorted({*expected, *ours}):
        left, right = episodes(expected.get(labels, [])), episodes(ours.get(labels, []))
        matches = len(left) == len(right) and all(abs(a - b) <= TOLERANCE for one, two in zip(left, right) for a, b in zip(one, two))
        same = same and matches
        where = ",".join(value for name, value in labels if name in ("alertname", "pod", "cgroup"))
        print("same:" if matches else "DIFFERENT:", where, "promtool", left, "backtest", right)
    return same
