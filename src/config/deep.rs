//! Checks of `deep`, and of requests for a set of events, which have the same keys.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::counters::{event_groups, metric_of, metrics_of_cgroups};
use super::decode::{At, decode};
use super::derived::{Derived, MetricUse, used};
use super::file::{self, Annotation, Deep};
use super::metric_word::metric_word;
use super::problem::{all_of, shown};
use super::report::Report;
use super::selection::patterns;
use super::value::{Entries, Period};
use super::yaml::{NodeId, Source};
use super::{Counters, Problems, finished, pods};
use crate::clean::clean;
use crate::event::syntax::Group;
use crate::targets::{Attribution, CgroupSelection, PodRule, PodSelection, Targets};

/// Bounds of `for`. A set that is needed for longer belongs to `counters`.
const LASTS: RangeInclusive<Period> = Period::seconds(1)..=Period::seconds(24 * 3600);

/// Time for which a request without `for` counts.
pub const REQUESTED: Duration = Duration::from_secs(600);

/// Time for which a pod with the annotation is counted, if its set has no `for`.
pub const ANNOTATED: Duration = REQUESTED;

/// Maximum number of sets in a file.
const SETS: usize = 64;

/// Maximum number of events of a set. Each needs a descriptor on each CPU for each cgroup.
const EVENTS: usize = 64;

/// Maximum number of patterns and of rules of a set.
const PATTERNS: usize = 16;

/// Maximum length of a name, in bytes.
const NAME: usize = 64;

/// Maximum length of the reason of a request, in bytes.
const REASON: usize = 300;

/// A set of events that is counted for a few cgroups, for a limited time.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepSet {
    /// Name in the file or in the request; empty for a request without a name.
    pub name: Arc<str>,
    /// The events.
    pub events: DeepEvents,
    /// The cgroups. Its attribution is `dedicated`.
    pub cgroups: CgroupSelection,
    /// How long it is counted; `None` = as long as it is in the file.
    pub lasts: Option<Duration>,
    /// Whether pods may request it by an annotation.
    pub annotation: bool,
}

/// The events of a set. Sets with the same ones are counted together.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepEvents {
    /// Event groups, as in [`Counters`].
    pub groups: Vec<Group>,
    /// Derived metrics, as in [`Counters`]: which events they need depends on the CPU.
    pub metrics: Vec<MetricUse>,
}

impl DeepEvents {
    /// Returns its event groups and the names of its metrics, as in a file.
    pub fn words(&self) -> Vec<String> {
        let groups = self.groups.iter().map(ToString::to_string);
        groups.chain(self.metrics.iter().map(|metric| metric.name().to_string())).collect()
    }
}

impl DeepSet {
    /// Returns the metric names of its events that are the same on all CPUs.
    pub fn metrics(&self) -> impl Iterator<Item = String> {
        self.events.groups.iter().flat_map(|group| &group.events).map(metric_of)
    }
}

/// A checked request for a set of events.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepRequest {
    /// The set, which has an end.
    pub set: DeepSet,
    /// Why the client wants it: one line, without control characters.
    pub reason: String,
}

/// Returns the sets of the file. `counters` are the entries that are counted all the time, `derived` the metrics of the file.
pub(super) fn deep(
    written: &Option<At<Entries<Deep>>>,
    base: &[DeepSet],
    (counters, derived): (&[Counters], &[Arc<Derived>]),
    report: &mut Report<'_>,
) -> Vec<DeepSet> {
    let Some(entries) = written else { return base.to_vec() };
    let all = &entries.value.0;
    report.too_many(entries.node, (all.len(), "sets"), SETS, None);
    let counted = metrics_of_cgroups(counters);
    let mut sets: Vec<DeepSet> = Vec::new();
    for (name, entry) in all.iter().take(SETS) {
        let set = set(name, entry, derived, report);
        if let Some(other) = sets.iter().find(|other| conflict(&set, other)) {
            let message = format!("it has some events of {}, and others", shown(&other.name));
            report.error(name.node, message, "give both the same events, or no common one");
        }
        let shared: Vec<String> = set.metrics().filter(|metric| counted.contains_key(metric)).collect();
        if !shared.is_empty() {
            let words: Vec<&str> = shared.iter().map(String::as_str).collect();
            let message =
                format!("{} in `counters` per cgroup already: the set adds nothing to it", all_of(&words));
            let hint = "remove it from the set, or give it another name: {event: …, name: …}";
            report.warning(name.node, message, hint);
        }
        sets.push(set);
    }
    sets
}

/// Reports whether two sets share an event without being equal in all events. Their counts would be in the same metric.
fn conflict(one: &DeepSet, other: &DeepSet) -> bool {
    one.events != other.events && one.metrics().any(|metric| other.metrics().any(|own| own == metric))
}

fn set(
    name: &At<String>,
    At { node, value: entry }: &At<Deep>,
    derived: &[Arc<Derived>],
    report: &mut Report<'_>,
) -> DeepSet {
    metric_word(name.node, name, "sets", report);
    if name.len() > NAME {
        report.error(name.node, format!("the name has more than {NAME} bytes"), "use a shorter one");
    }
    let annotation = entry.annotation.as_ref().is_some_and(|at| at.value == Annotation::Allowed);
    let lasts = report.bounded(&entry.lasts, LASTS, None).map(|Period(lasts)| lasts);
    let cgroups = selection(*node, entry, annotation, report);
    DeepSet {
        name: name.value.as_str().into(),
        events: DeepEvents {
            groups: groups(name, *node, entry, &cgroups, report),
            metrics: used(entry.metrics.as_ref(), derived, report),
        },
        cgroups,
        lasts,
        annotation,
    }
}

/// Returns the event groups, which are written as those of an entry of `counters`.
fn groups(
    name: &At<String>,
    node: NodeId,
    entry: &Deep,
    cgroups: &CgroupSelection,
    report: &mut Report<'_>,
) -> Vec<Group> {
    let written = file::Counters {
        events: entry.events.clone(),
        preset: entry.preset,
        group: entry.group,
        metrics: entry.metrics.clone(),
        priority: None,
        per: None,
        cgroups: None,
        pods: None,
        processes: None,
        level: None,
    };
    let per = Targets::Cgroups(cgroups.clone());
    let groups = event_groups(name, &At { node, value: written }, &per, report);
    let events = groups.iter().map(|group| group.events.len()).sum();
    report.too_many(node, (events, "events"), EVENTS, "split the set");
    groups
}

fn selection(
    node: NodeId,
    Deep { cgroups, pods, .. }: &Deep,
    annotation: bool,
    report: &mut Report<'_>,
) -> CgroupSelection {
    if cgroups.is_none() && pods.is_none() && !annotation && !report.blames(node) {
        report.error(node, "the set selects no cgroups", "add `cgroups: [/PATH]` or `pods: [{pod: NAME}]`");
    }
    let (include, _) = patterns(cgroups, &None, "leave it out", report);
    let (rules, _) = pods::rules(pods, &None, report);
    let (include, rules): (Vec<_>, Vec<PodRule>) = (include.unwrap_or_default(), rules.unwrap_or_default());
    report.too_many(
        node,
        (include.len() + rules.len(), "patterns and rules"),
        PATTERNS,
        "use wider patterns",
    );
    CgroupSelection {
        include,
        pods: PodSelection { include: rules, exclude: Vec::new() },
        attribution: Attribution::Dedicated,
        ..CgroupSelection::default()
    }
}

/// Parses and checks a request for a set of events: a JSON object with the keys of an entry of `deep`, and with `name` and `reason`.
///
/// # Errors
/// All problems of the request, as [`load`](super::load) returns them. Warnings are errors, because a client does not see them otherwise.
pub fn load_deep(text: &[u8]) -> Result<DeepRequest, Problems> {
    let source = Source::parse(text, "request").map_err(|problem| Problems(vec![problem]))?;
    let mut report = Report::new(&source);
    let root = source.root();
    let written = decode::<file::DeepRequest>(root, &mut report);
    let checked = written.map(|written| request(root.id, written, &mut report));
    let (request, warnings) = finished(checked, report)?;
    if warnings.is_empty() { Ok(request) } else { Err(Problems(warnings)) }
}

fn request(node: NodeId, written: file::DeepRequest, report: &mut Report<'_>) -> DeepRequest {
    let file::DeepRequest { name, events, preset, group, metrics, cgroups, pods, lasts, reason } = written;
    for labels in pods.iter().flat_map(|at| at.value.iter()).filter_map(|rule| rule.value.labels.as_ref()) {
        let message = "a request cannot select pods by labels, which are only read if the file names them";
        report.error(labels.node, message, "select them by `namespace` and `pod`, or add a set to the file");
    }
    let is_named = name.is_some();
    let name = name.unwrap_or_else(|| At { node, value: "request".to_owned() });
    let entry = Deep { events, preset, group, metrics, cgroups, pods, lasts, annotation: None };
    // A request is checked without the file, so it cannot use the metrics of `derived`.
    let set = set(&name, &At { node, value: entry }, &[], report);
    let name = if is_named { Arc::clone(&set.name) } else { "".into() };
    let lasts = set.lasts.or(Some(REQUESTED));
    let reason = reason.map(|reason| clean(&reason, REASON).into_owned()).unwrap_or_default();
    DeepRequest { set: DeepSet { name, lasts, ..set }, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    fn refused(request: &str) -> String {
        load_deep(request.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_set_has_events_cgroups_and_an_end() {
        let config = good(
            "deep: {io: {events: [minor-faults, alignment-faults], group: false, cgroups: [/a, /b/*], pods: {pod: web-0}, for: 10m}}",
        );
        let [set] = &config.deep[..] else { panic!("{:?}", config.deep) };
        assert_eq!((&*set.name, set.lasts, set.annotation), ("io", Some(Duration::from_secs(600)), false));
        assert_eq!(set.metrics().collect::<Vec<_>>(), ["minor_faults", "alignment_faults"]);
        assert_eq!(
            (set.events.groups.len(), set.cgroups.include.len(), set.cgroups.pods.include.len()),
            (2, 2, 1)
        );
        assert_eq!(set.cgroups.attribution, Attribution::Dedicated);
    }

    #[test]
    fn the_labels_of_a_set_and_the_annotation_are_requested_from_the_sources() {
        let config = good(
            "deep: {a: {events: minor-faults, pods: {labels: {app: web}}}, b: {events: emulation-faults, annotation: allowed}}",
        );
        assert_eq!(config.containers.selecting, ["app".into()]);
        assert!(
            config.containers.deep
                && config.deep[1].cgroups
                    == CgroupSelection { attribution: Attribution::Dedicated, ..CgroupSelection::default() }
        );
        assert!(!good("{}").containers.deep);
    }

    #[test]
    fn a_set_that_cannot_be_counted_is_an_error_with_a_remedy() {
        let deep = |entry: &str| report(&format!("deep: {{a: {{{entry}}}}}"));
        for (entry, expected) in [
            ("events: minor-faults", "the set selects no cgroups; add `cgroups: [/PATH]`"),
            ("cgroups: /a", "the entry has no `events`, `preset` or `metrics`"),
            ("metrics: ipx, cgroups: /a", "there is no metric `ipx`; did you mean"),
            ("events: minor-faults, cgroups: a", "paths of cgroups begin with a slash"),
            ("events: minor-faults, cgroups: /a, for: 25h", "90000s is not between 1s and 86400s"),
            ("events: minor-faults, cgroups: /a, for: 10", "the number 10 has no unit"),
            ("events: minor-faults, cgroups: /a, per: cpu", "unknown setting `per`"),
            (
                "events: [minor-faults, minor-faults], cgroups: /a",
                "is already counted per cgroup in this entry",
            ),
            (
                "events: page-faults, cgroups: /a",
                "warning: deep.a: `page_faults` in `counters` per cgroup already",
            ),
            ("events: minor-faults, annotation: yes", "deep.a.annotation"),
            ("events: minor-faults, pods: {}", "a rule without conditions"),
        ] {
            let report = deep(entry);
            assert!(report.contains(expected), "{entry}: {report}");
        }
        let patterns = (0..17).map(|number| format!("/{number}")).collect::<Vec<_>>().join(", ");
        let many = deep(&format!("events: minor-faults, cgroups: [{patterns}]"));
        assert!(many.contains("17 patterns and rules, at most 16 are allowed"), "{many}");
        let name = "a".repeat(65);
        let long = report(&format!("deep: {{{name}: {{events: minor-faults, cgroups: /a}}}}"));
        assert!(long.contains("the name has more than 64 bytes"), "{long}");
    }

    #[test]
    fn two_sets_have_the_same_events_or_none_in_common() {
        let two = |other: &str| {
            report(&format!(
                "deep: {{a: {{events: [minor-faults, alignment-faults], cgroups: /a}}, b: {{events: {other}, cgroups: /b}}}}"
            ))
        };
        assert_eq!(two("[minor-faults, alignment-faults]"), "");
        assert_eq!(two("emulation-faults"), "");
        let partly = two("minor-faults");
        assert!(
            partly.contains("deep.b: it has some events of `a`, and others; give both the same events"),
            "{partly}"
        );
    }

    #[test]
    fn a_request_has_the_keys_of_a_set_and_always_an_end() {
        let request = load_deep(
            br#"{"name": "faults", "events": ["minor-faults"], "cgroups": ["/a"], "for": "2s", "reason": "slow\u001b[2J"}"#,
        );
        let DeepRequest { set, reason } = request.unwrap();
        assert_eq!((&*set.name, set.lasts), ("faults", Some(Duration::from_secs(2))));
        assert!(reason.starts_with("slow") && !reason.contains('\u{1b}'), "{reason:?}");
        let shortest =
            load_deep(br#"{"events": "minor-faults", "pods": {"namespace": "shop", "pod": "web-0"}}"#)
                .unwrap();
        assert_eq!((&*shortest.set.name, shortest.set.lasts), ("", Some(REQUESTED)));
    }

    #[test]
    fn a_request_with_problems_is_refused_with_all_of_them() {
        for (text, expected) in [
            ("", "expected"),
            ("3", "expected"),
            ("[]", "expected"),
            ("{\"events\": [", "request:2:1: an unquoted"),
            (r#"{"events": ["cycles"]}"#, "the set selects no cgroups"),
            (
                r#"{"events": ["cycles"], "cgroups": ["/a"], "annotation": "allowed"}"#,
                "unknown setting `annotation`",
            ),
            (
                r#"{"events": ["cycles"], "pods": [{"labels": {"app": "web"}}]}"#,
                "cannot select pods by labels",
            ),
            (r#"{"name": "../x", "events": ["cycles"], "cgroups": ["/a"]}"#, "is not a valid name"),
            (r#"{"events": ["cycles"], "cgroups": ["/a", "/a["]}"#, "is not a pattern"),
            (r#"{"events": ["{cycles"], "cgroups": ["/a"]}"#, "is not an event"),
            (r#"{"events": ["cycles"], "cgroups": ["/a"], "for": "0s"}"#, "not between 1s and 86400s"),
        ] {
            let report = refused(text);
            assert!(report.contains(expected), "{text}: {report}");
        }
        let all = refused(r#"{"events": ["cycles"], "cgroups": ["a"], "for": "1"}"#);
        assert_eq!(all.lines().count(), 2, "{all}");
    }
}
