#!/usr/bin/env python3
"""Replays a simulated week of twenty machines and counts pages in vain and incidents found, for sets of rules.

  backtest.py run HALF [--data DIR] [--check] [--explain] RULES...
  backtest.py scenarios HALF
  backtest.py compare NODE MINUTES RULES

HALF is tuning, held-out, or short (four machines, 36 hours). RULES is NAME=FILE,FILE,… with the rule files and at most one inhibition.yaml; each
file is a path, or REVISION:PATH for git. --data keeps the simulated series in a directory, and reads them from there if it exists. --check
fails if a page of the last set is in vain, or if it finds an incident too late or not at all. `compare` proves that the evaluation here equals that of `promtool test rules`.
Requires prometheus and promtool in PATH.
"""

import argparse
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


def firing(address, rules, length, severities):
    for alert in rules.alerts:
        if alert.name in SKIPPED or alert.severity not in severities:
            continue
        for labels, active in server.active(address, rules.expanded(alert.expr), length):
            minutes = fires(active, alert.hold, alert.keep, length)
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
            for name, (rules, inhibit) in sets.items():
                alerts = list(firing(address, rules, length, pages.PAGING))
                verdicts[name] = judge.judged(pages.sent(alerts, inhibit, length), happens)
                if arguments.explain:
                    print(f"{name}:\n{judge.explained(verdicts[name])}", flush=True)
    print(judge.table(verdicts, weeks))
    last = list(verdicts.values())[-1]
    return not arguments.check or not (last.vain or any(page is None for _, page in last.incidents))


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
            for labels, minutes in firing(address, Rules(texts), arguments.minutes, ("info", "warning", "critical")):
                ours[tuple(sorted(labels.items()))] = minutes
    return evaluate.equal(expected, ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.set_defaults(action=run)
    command.add_argument("half", choices=scenarios.HALVES)
    command.add_argument("--data")
    command.add_argument("--check", action="store_true")
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
