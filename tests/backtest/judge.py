"""Compares pages with scenarios: which were right, which were in vain, and which incidents were found."""

import collections
import dataclasses
import statistics

# Rates are those of 5 minutes, and `for` delays alerts: a page this long after an incident can still be about it.
AFTER = 15


@dataclasses.dataclass
class Verdict:
    # Pages in vain: each with the kinds of scenarios on its machine.
    vain: list = dataclasses.field(default_factory=list)
    # Pages after the first one about an incident.
    repeated: list = dataclasses.field(default_factory=list)
    # The first page of each incident: minutes since its start, and the alert. None: not found.
    incidents: list = dataclasses.field(default_factory=list)


def workload(alert):
    """Returns the workload of an alert; None for one about a machine."""
    if "pod" in alert:
        return alert["pod"].split("-")[0]
    return alert["cgroup"].rpartition("/")[2].removesuffix(".service") if "cgroup" in alert else None


def about(alert, minute, scenario):
    of = workload(alert)
    return (
        alert["alertname"] in scenario.expect + scenario.allow
        and alert.get("instance", scenario.node) == scenario.node
        and scenario.start <= minute <= scenario.end + AFTER
        and (of in scenario.workloads if scenario.workloads else True)
    )


def judged(pages, happens):
    incidents = [scenario for scenario in happens if scenario.expect]
    found, verdict = {}, Verdict()
    for page in pages:
        name = page.group[0]
        fitting = [scenario for scenario in incidents if any(about(alert, page.minute, scenario) for alert in page.new)]
        if not fitting:
            verdict.vain.append((name, page, causes(page, happens)))
            continue
        fresh = [scenario for scenario in fitting if id(scenario) not in found and name in scenario.expect]
        for scenario in fresh:
            found[id(scenario)] = (page.minute - scenario.start, name)
        if not fresh:
            verdict.repeated.append((name, page))
    verdict.incidents = [(scenario, found.get(id(scenario))) for scenario in incidents]
    return verdict


def causes(page, happens):
    """Returns the kinds of scenarios that change the workloads of a page at this time."""
    kinds = set()
    for alert in page.new:
        of = workload(alert) or "node"
        for scenario in happens:
            if scenario.node == alert.get("instance") and scenario.start <= page.minute <= scenario.end + AFTER and any(
                of in effect.workloads or of == "node" for effect in scenario.effects
            ):
                kinds.add(scenario.kind)
    return sorted(kinds)


def table(verdicts, weeks):
    """Returns a table in Markdown: a line for each alert, three columns for each verdict by its name."""
    names = list(verdicts)
    lines = ["| alert | " + " | ".join(f"in vain, {name} | found, {name} | minutes, {name}" for name in names) + " |"]
    lines.append("|---|" + "---|" * 3 * len(names))
    alerts = set()
    for verdict in verdicts.values():
        alerts |= {name for name, *_ in verdict.vain} | {scenario.expect[0] for scenario, _ in verdict.incidents}
    for alert in [*sorted(alerts), None]:
        cells = []
        for verdict in verdicts.values():
            vain = sum(alert in (None, name) for name, *_ in verdict.vain)
            of = [page for scenario, page in verdict.incidents if alert in (None, scenario.expect[0])]
            delays = [page[0] for page in of if page]
            cells += [f"{vain / weeks:.2f}", f"{len(delays)}/{len(of)}" if of else "", f"{statistics.median(delays):.0f}" if delays else ""]
        lines.append(f"| {alert or '**all**'} | " + " | ".join(cells) + " |")
    lines += ["", *(f"{name}: {len(verdict.repeated) / weeks:.2f} further pages about an incident per node and week" for name, verdict in verdicts.items())]
    return "\n".join(lines)


def explained(verdict):
    """Returns the pages in vain by alert and cause."""
    counts = collections.Counter((name, ", ".join(kinds) or "noise") for name, _, kinds in verdict.vain)
    lines = [f"  {count:4} in vain: {name}: {kinds}" for (name, kinds), count in counts.most_common()]
    lines += [f"  not found: {scenario.kind}: {scenario.node}, minute {scenario.start} to {scenario.end}, {','.join(scenario.workloads)}"
              for scenario, page in verdict.incidents if not page]
    repeated = collections.Counter(name for name, _ in verdict.repeated)
    lines += [f"  {count:4} further: {name}" for name, count in repeated.most_common()]
    return "\n".join(lines)
