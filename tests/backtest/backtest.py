#!/usr/bin/env python3
"""Replays a simulated week of twenty machines and counts pages in vain and incidents found, for sets of rules.

  backtest.py run HALF [--data DIR] [--check PAGES] [--explain] RULES...
  backtest.py scenarios HALF
  backtest.py compare NODE MINUTES RULES

HALF is tuning, held-out, or short (four machines, 36 hours). RULES is NAME=FILE,FILE,… with the rule files and at most one inhibition.yaml; each
file is a path, or REVISION:PATH for git. --data keeps the simulated series in a directory, and results of
expressions next to it, and reads them from there if they exist. --check
fails if the last set has more pages in vain than this number, or if it does not find an incident. `compare` proves that the evaluation here equals that of `promtool test rules`.
Requires prometheus and promtool in PATH.
"""

import argparse
import concurrent.futures
import os
import subprocess
import sys
import tempfile

import evaluate
import judge
import pages
import scenarios
import server
from fleet import Node
from rules import SKIPPED, Rules, fires


def read(name):
    if os.path.exists(name):
        with open(name, encoding="utf-8") as file:
            return file.read()
    return subprocess.run(["git", "show", name], capture_output=True, text=True, check=True).stdout


def rule_sets(arguments):
    """Returns each set by name: its rules, and the inhibition rules."""
    sets = {}
    for argument in arguments:
        name, _, files = argument.partition("=")
        texts = {file: read(file) for file in files.split(",")}
        inhibit = "".join(text for file, text in texts.items() if file.endswith("inhibition.yaml"))
        sets[name] = (Rules([text for file, text in texts.items() if not file.endswith("inhibition.yaml")]), pages.inhibitions(inhibit))
    return sets


def firing(results, rules, length, severities):
    """Yields the labels of each alert that fires, with the minutes at which it does."""
    alerts = [alert for alert in rules.alerts if alert.name not in SKIPPED and alert.severity in severities]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        every = pool.map(results.active, [rules.expanded(alert.expr) for alert in alerts])
        for alert, active in zip(alerts, every):
            for labels, minutes in active:
                minutes = fires(minutes, alert.hold, alert.keep, length)
                if minutes:
                    yield {**labels, "alertname": alert.name}, minutes


def run(arguments):
    draw = scenarios.Draw(arguments.half)
    happens, length = draw.all(), draw.minutes
    sets = rule_sets(arguments.rules)
    weeks = len(draw.half.nodes) * draw.half.days / 7
    verdicts = {}
    with tempfile.TemporaryDirectory(prefix="backtest.") as scratch:
        data = arguments.data or os.path.join(scratch, "data")
        if not os.path.exists(data):
            server.write_fleet(os.path.join(scratch, "fleet.om"), arguments.half)
            server.blocks(os.path.join(scratch, "fleet.om"), data)
        with server.prometheus(data) as address:
            results = server.Results(address, length, data + ".results")
            for name, (rules, inhibit) in sets.items():
                alerts = list(firing(results, rules, length, pages.PAGING))
                verdicts[name] = judge.judged(pages.sent(alerts, inhibit, length), happens)
                if arguments.explain:
                    print(f"{name}:\n{judge.explained(verdicts[name])}", flush=True)
    print(judge.table(verdicts, weeks))
    last = list(verdicts.values())[-1]
    if arguments.check is None:
        return True
    return len(last.vain) <= arguments.check and all(page for _, page in last.incidents)


def listed(arguments):
    for scenario in scenarios.drawn(arguments.half):
        at = f"{scenario.start // 1440} {scenario.start % 1440 // 60:02}:{scenario.start % 60:02}"
        print(f"{at}  {scenario.end - scenario.start:5} min  {scenario.node}  {scenario.kind}  {' or '.join(scenario.expect) or '-'}")
    return True


def compare(arguments):
    """Evaluates the rules for one machine in both ways, and compares the minutes at which each alert fires."""
    half = next(name for name, half in scenarios.HALVES.items() if arguments.node in half.nodes)
    happens = scenarios.drawn(half)
    series = Node(arguments.node, arguments.minutes, happens).simulate()
    texts = [read(file) for file in arguments.rules[0].split(",")]
    expected = evaluate.firing(series, arguments.minutes, texts)
    ours = {}
    with tempfile.TemporaryDirectory(prefix="backtest.") as scratch:
        path = os.path.join(scratch, "fleet.om")
        server.write_nodes(path, [series], arguments.minutes)
        server.blocks(path, os.path.join(scratch, "data"))
        with server.prometheus(os.path.join(scratch, "data")) as address:
            results = server.Results(address, arguments.minutes, os.path.join(scratch, "results"))
            for labels, minutes in firing(results, Rules(texts), arguments.minutes, ("info", "warning", "critical")):
                ours[tuple(sorted(labels.items()))] = minutes
    return evaluate.equal(expected, ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(action=run)
    command.add_argument("half", choices=scenarios.HALVES)
    command.add_argument("--data")
    command.add_argument("--check", type=int, metavar="PAGES")
    command.add_argument("--explain", action="store_true")
    command.add_argument("rules", nargs="+")
    command = commands.add_parser("scenarios")
    command.set_defaults(action=listed)
    command.add_argument("half", choices=scenarios.HALVES)
    command = commands.add_parser("compare")
    command.set_defaults(action=compare)
    command.add_argument("node")
    command.add_argument("minutes", type=int)
    command.add_argument("rules", nargs=1)
    arguments = parser.parse_args()
    sys.exit(not arguments.action(arguments))


if __name__ == "__main__":
    main()
