"""Tests of the backtest itself: python3 -m unittest discover -s tests/backtest"""

import hashlib
import unittest

import judge
import pages
import rules
import scenarios
from fleet import Node

# Of all scenarios of a half. Rules are changed after the scenarios are fixed, never the reverse.
FROZEN = {
    "tuning": "a6b280d08d41aee9",
    "held-out": "620c938ecd918294",
    "short": "8947705706ebee42",
}
INHIBIT = """
inhibit_rules:
  - source_matchers: [alertname = "NodeBad"]
    target_matchers: ['alertname =~ "PodBad|PodSlow"']
    equal: [cluster, instance]
"""


def pod(name, instance="n1", alert="PodBad"):
    return {"alertname": alert, "instance": instance, "pod": name}


class Scenarios(unittest.TestCase):
    def test_scenarios_are_those_that_were_frozen(self):
        for half, expected in FROZEN.items():
            with self.subTest(half=half):
                self.assertEqual(hashlib.sha256(repr(scenarios.drawn(half)).encode()).hexdigest()[:16], expected)

    def test_the_halves_share_no_machine(self):
        tuning, held_out = (set(scenarios.HALVES[half].nodes) for half in ("tuning", "held-out"))
        self.assertEqual((len(tuning | held_out), tuning & held_out), (20, set()))


class Fleet(unittest.TestCase):
    def simulated(self, *scenario):
        return Node("n1", 60, scenario).simulate()

    def test_counters_start_at_zero_after_an_exporter_was_down(self):
        down = scenarios.Scenario("", "n1", 10, 12, scenarios.effects(["node"], 10, 2, down=("set", 1)))
        of = self.simulated(down)['perf_exporter_cpu_seconds_total{instance="n1",job="perf-exporter"}']
        self.assertEqual([(first, len(values), values[0]) for first, values in of], [(0, 10, 0), (12, 48, 0)])

    def test_a_deploy_ends_the_series_of_the_old_pod_and_begins_those_of_a_new_one(self):
        deploy = scenarios.Scenario("", "n1", 20, 50, [], replaces=("shop",))
        series = {name: of for name, of in self.simulated(deploy).items() if name.startswith("perf_cgroup_cycles_total") and "shop" in name}
        self.assertEqual(sorted((first, len(values)) for of in series.values() for first, values in of), [(0, 20), (20, 40)])


class Rules(unittest.TestCase):
    def of(self, *records, limits=()):
        text = "".join(f"      - record: {name}\n        expr: {expr}\n" for name, expr in records)
        text += "".join(f"      - record: {name}\n        expr: vector({value})\n{labels}" for name, value, labels in limits)
        return rules.Rules([text])

    def test_recorded_series_are_replaced_by_their_expressions(self):
        of = self.of(("pod:a:rate5m", "rate(a[5m])"), ("pod:b:ratio", "pod:a:rate5m / 2"))
        self.assertEqual(of.expanded("pod:b:ratio > 1"), "((rate(a[5m])) / 2) > 1")
        self.assertEqual(of.expanded("pod:a:rate5m offset 6h"), "last_over_time((rate(a[5m]))[1m:1m] offset 6h)")
        self.assertEqual(of.expanded("avg_over_time(pod:a:rate5m[1d] offset 1h)"), "avg_over_time((rate(a[5m]))[1d:5m] offset 1h)")

    def test_thresholds_are_selected_by_namespace(self):
        own = "        labels: {namespace: batch}\n"
        of = self.of(limits=[("perf:x:limit", 1, ""), ("perf:x:limit", 2, own)])
        self.assertEqual(of.expanded('perf:x:limit{namespace=""}'), "(vector(1.0))")
        self.assertEqual(of.expanded('perf:x:limit{namespace!=""}'), '(label_replace(vector(2.0), "namespace", "batch", "", ""))')
        self.assertEqual(self.of(limits=[("perf:x:limit", 1, "")]).expanded('perf:x:limit{namespace!=""}'), "(vector(0) < 0)")

    def test_an_alert_fires_after_its_expression_was_true_for_the_whole_time(self):
        self.assertEqual(rules.fires({1, 2, 3, 5, 6, 7, 8}, 3, 0, 12), [8])

    def test_an_alert_that_fired_continues_for_the_time_to_keep_it(self):
        self.assertEqual(rules.fires({1, 2, 5}, 1, 2, 12), [2, 3, 4, 5, 6, 7])


class Pages(unittest.TestCase):
    def sent(self, *alerts, inhibit=INHIBIT):
        return [(page.minute, len(page.new)) for page in pages.sent(alerts, pages.inhibitions(inhibit), 60)]

    def test_alerts_of_a_machine_that_begin_together_are_one_page(self):
        self.assertEqual(self.sent((pod("a"), range(5, 20)), (pod("b"), range(5, 20)), (pod("c", "n2"), range(5, 20))), [(5, 2), (5, 1)])

    def test_a_later_alert_is_sent_at_the_next_interval_of_its_group(self):
        self.assertEqual(self.sent((pod("a"), range(5, 20)), (pod("b"), range(7, 20))), [(5, 1), (10, 1)])

    def test_the_alert_of_a_machine_silences_those_of_its_pods(self):
        node = {"alertname": "NodeBad", "instance": "n1"}
        self.assertEqual(self.sent((node, range(5, 20)), (pod("a"), range(5, 20))), [(5, 1)])
        self.assertEqual(self.sent((node, range(5, 20)), (pod("a", "n2"), range(5, 20))), [(5, 1), (5, 1)])
        self.assertEqual(self.sent((node, range(8, 20)), (pod("a"), range(5, 40))), [(5, 1), (8, 1)])


class Judge(unittest.TestCase):
    INCIDENT = scenarios.Scenario("bad", "n1", 100, 200, [], expect=("PodBad",), allow=("PodSlow",), workloads=("shop",))

    def verdict(self, *sent):
        of = [pages.Page(minute, (alert["alertname"],), [alert]) for minute, alert in sent]
        return judge.judged(of, [self.INCIDENT])

    def test_a_page_about_an_incident_finds_it_and_others_are_in_vain(self):
        verdict = self.verdict((50, pod("shop-1")), (110, pod("shop-1")), (120, pod("cart-1")), (130, pod("shop-1", alert="PodOdd")))
        self.assertEqual([page for _, page in verdict.incidents], [(10, "PodBad")])
        self.assertEqual([page.minute for _, page, _ in verdict.vain], [50, 120, 130])

    def test_further_pages_about_an_incident_are_repetitions(self):
        verdict = self.verdict((110, pod("shop-1")), (150, pod("shop-2")), (160, pod("shop-1", alert="PodSlow")))
        self.assertEqual((len(verdict.repeated), verdict.vain), (2, []))

    def test_an_allowed_alert_alone_does_not_find_an_incident(self):
        self.assertEqual([page for _, page in self.verdict((110, pod("shop-1", alert="PodSlow"))).incidents], [None])


if __name__ == "__main__":
    unittest.main()
