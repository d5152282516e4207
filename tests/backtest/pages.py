"""Pages: what Alertmanager sends for firing alerts, with inhibition.yaml and the grouping that README.md of deploy/prometheus recommends."""

import dataclasses
import re

GROUP_BY = ("alertname", "cluster", "instance")
GROUP_INTERVAL = 5
PAGING = ("warning", "critical")


@dataclasses.dataclass(frozen=True)
class Inhibition:
    source: re.Pattern
    target: re.Pattern
    equal: tuple


@dataclasses.dataclass
class Page:
    minute: int
    group: tuple
    # Alerts that fire and were not in the last notification of the group.
    new: list


def inhibitions(text):
    """Reads the rules in the layout of inhibition.yaml."""
    rule = re.compile(r'source_matchers: \[\W*alertname =~? "(.*)"\W*\]\s+target_matchers: \[\W*alertname =~? "(.*)"\W*\]\s+equal: \[(.*)\]')
    return [Inhibition(re.compile(source), re.compile(target), tuple(equal.split(", "))) for source, target, equal in rule.findall(text)]


def inhibited(alert, firing, rules):
    return any(
        rule.target.fullmatch(alert["alertname"])
        and any(rule.source.fullmatch(other["alertname"]) and all(other.get(name) == alert.get(name) for name in rule.equal) for other in firing)
        for rule in rules)


def sent(alerts, rules, length):
    """Returns the pages, from pairs of an alert's labels and the minutes at which it fires.

    A group is sent when its first alert fires, and again at each group_interval at which another alert fires. Notifications of alerts that
    ended, and repetitions after repeat_interval, are no pages. An alert is not sent while it is inhibited.
    """
    by_minute = {}
    for labels, minutes in alerts:
        for minute in minutes:
            by_minute.setdefault(minute, []).append(labels)
    pages, groups = [], {}
    for minute in range(length):
        firing = by_minute.get(minute, [])
        members = {}
        for alert in firing:
            members.setdefault(tuple(alert.get(name, "") for name in GROUP_BY), []).append(alert)
        for key in [key for key in groups if key not in members]:
            del groups[key]
        for key, group in members.items():
            begin, notified = groups.get(key, (minute, []))
            # An inhibited alert that was sent before is not sent again when it is no longer inhibited.
            notified = [alert for alert in notified if alert in group]
            groups[key] = (begin, notified)
            if (minute - begin) % GROUP_INTERVAL:
                continue
            current = [alert for alert in group if not inhibited(alert, firing, rules)]
            new = [alert for alert in current if alert not in notified]
            if new:
                pages.append(Page(minute, key, new))
                groups[key] = (begin, notified + new)
    return pages
