//! Checks of `counters`: events, groups, and names that conflict.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::decode::At;
use super::derived::{Derived, used};
use super::file::Priority;
use super::metric_word::metric_word;
use super::per::per;
use super::problem::{all_of, shown};
use super::report::Report;
use super::selection::Selections;
use super::value::{Entries, Event, List};
use super::yaml::NodeId;
use super::{Counters, PmuSharing, file};
use crate::event::syntax::{self, Group, Name};
use crate::event::{self, is_word};
use crate::health::Scope;
use crate::metrics::Level;
use crate::targets::{Attribution, CgroupSelection, ProcessSelection, Targets};

/// Maximum number of events of all entries. It exceeds the capacity of any PMU and bounds the cost of a file.
const EVENT_LIMIT: usize = 4096;

/// Group with the node of its text or preset.
struct Written {
    node: NodeId,
    group: Group,
}

/// Returns the checked entries, in the order of the file.
pub(super) fn counters(
    entries: &At<Entries<file::Counters>>,
    derived: &[Arc<Derived>],
    selections: &Selections,
    report: &mut Report<'_>,
) -> Vec<Counters> {
    let mut clashes = Clashes::default();
    let mut events = 0;
    let mut counters = Vec::new();
    for (name, entry) in &entries.value.0 {
        metric_word(name.node, name, "entries", report);
        let written = groups(name, entry, report);
        events += written.iter().map(|written| written.group.events.len()).sum::<usize>();
        if events > EVENT_LIMIT {
            report.error(name.node, format!("more than {EVENT_LIMIT} events in total"), "remove some events");
            break;
        }
        let name: Arc<str> = name.value.as_str().into();
        let level = entry.level.as_ref().map_or(Level::default(), |at| at.value);
        let per = per(&entry.target_keys(), selections, report);
        clashes.look(&name, &per, &written, report);
        let metrics = used(entry.metrics.as_ref(), derived, report);
        let sharing = sharing(entry, &per, report);
        counters.push(Counters { name, groups: scheduled(entry, written), metrics, per, level, sharing });
    }
    counters
}

/// Returns the event groups of an entry of another section with the keys of an entry of `counters`.
pub(super) fn event_groups(
    name: &At<String>,
    entry: &At<file::Counters>,
    per: &Targets,
    report: &mut Report<'_>,
) -> Vec<Group> {
    let written = groups(name, entry, report);
    Clashes::default().look(&name.value.as_str().into(), std::slice::from_ref(per), &written, report);
    scheduled(entry, written)
}

/// Returns the groups of an entry as written.
fn groups(name: &At<String>, entry: &At<file::Counters>, report: &mut Report<'_>) -> Vec<Written> {
    match (&entry.events, &entry.preset) {
        (None, None) => {
            if entry.metrics.is_none() && !report.blames(entry.node) {
                let hint = "write `events: [cycles, instructions]`, `preset: detailed` or `metrics: [ipc]`";
                report.error(name.node, "the entry has no `events`, `preset` or `metrics`", hint);
            }
            Vec::new()
        }
        (Some(events), preset) => {
            if let Some(preset) = preset {
                let message = "`events` and `preset` are mutually exclusive";
                report.error(preset.node, message, "split it into two entries");
            } else {
                report.not_empty(Some(events), "contains no events", "add an event, or remove the entry");
                contradiction(entry, events, report);
            }
            events.iter().flat_map(|event| parse(event, report)).collect()
        }
        (None, Some(preset)) => {
            if let Some(group) = &entry.group {
                let message = "`group` is not allowed with `preset`, which defines its own groups";
                report.error(group.node, message, "leave it out");
            }
            preset.groups().into_iter().map(|group| Written { node: preset.node, group }).collect()
        }
    }
}

/// Reports `group: true` together with braces.
fn contradiction(entry: &file::Counters, events: &List<Event>, report: &mut Report<'_>) {
    if let Some(group) = entry.group.as_ref().filter(|group| group.value && has_braces(events)) {
        let message = "`group: true` conflicts with the groups in braces";
        report.error(group.node, message, "remove `group` or the braces");
    }
}

fn has_braces(events: &List<Event>) -> bool {
    events.iter().any(|event| event.event.contains('{'))
}

/// Parses one text into groups, with the name that the user gave its event.
fn parse(event: &At<Event>, report: &mut Report<'_>) -> Vec<Written> {
    let Event { event: text, name } = &event.value;
    let mut groups = match event::parse(text) {
        Ok(groups) => groups,
        Err(error) => {
            // In a flow sequence, YAML splits an event at the commas between its slashes.
            let split = text.matches('/').count() == 1 && !text.contains(',');
            let (why, hint) = if split {
                ("it has only one slash", "put it in quotes: inside brackets, YAML splits texts at commas")
            } else {
                (&*error.message, &*error.remedy)
            };
            report.error(text.node, format!("{} is not an event: {why}", shown(text)), hint);
            return Vec::new();
        }
    };
    if let Some(name) = name {
        metric_word(name.node, name, "events", report);
        alias(&mut groups, name, report);
    }
    groups.into_iter().map(|group| Written { node: text.node, group }).collect()
}

/// Sets the name of the single event of `groups`.
fn alias(groups: &mut [Group], name: &At<String>, report: &mut Report<'_>) {
    let total: usize = groups.iter().map(|group| group.events.len()).sum();
    let mut events = groups.iter_mut().flat_map(|group| &mut group.events);
    match (events.next(), total) {
        (Some(event), 1) if event.alias.is_some() => {
            let message = "the event already has a name from `name=`";
            report.error(name.node, message, "remove one of them");
        }
        (Some(event), 1) => event.alias = Some(name.as_str().into()),
        _ => {
            let message = format!("one name for {total} events");
            report.error(name.node, message, "write each event as a separate item");
        }
    }
}

/// Merges all events into one group, or returns the groups as written.
fn scheduled(entry: &file::Counters, written: Vec<Written>) -> Vec<Group> {
    let together = match (&entry.group, &entry.events) {
        (Some(group), _) => group.value,
        (None, Some(events)) => !has_braces(events),
        (None, None) => false,
    };
    let groups = written.into_iter().map(|written| written.group);
    if !together {
        return groups.collect();
    }
    let events: Vec<_> = groups.flat_map(|group| group.events).collect();
    if events.is_empty() { Vec::new() } else { vec![Group { events }] }
}

/// Returns how the groups of an entry share the PMU.
fn sharing(entry: &file::Counters, per: &[Targets], report: &mut Report<'_>) -> PmuSharing {
    let may_split = entry.group.is_none() && entry.events.as_ref().is_some_and(|events| !has_braces(events));
    let always = entry.priority.as_ref().filter(|priority| priority.value == Priority::Always);
    let is_streamed = |per: &&Targets| per.attribution() == Some(Attribution::Stream);
    if let (Some(always), Some(per)) = (always, per.iter().find(is_streamed)) {
        let message = format!(
            "`priority: always` needs events for each {}, but its attribution is `stream`",
            per.scope()
        );
        report.error(always.node, message, "remove it, or set `attribution: dedicated` for this entry");
    }
    PmuSharing { may_split, is_always: always.is_some() }
}

/// Detects events that would be published twice under one name.
#[derive(Default)]
struct Clashes {
    /// First entry that counts each metric in each scope, and its targets.
    first: BTreeMap<(Scope, String), (Arc<str>, Targets)>,
}

impl Clashes {
    fn look(&mut self, entry: &Arc<str>, per: &[Targets], written: &[Written], report: &mut Report<'_>) {
        for per in per {
            // One report for all events of a text or preset that conflict with the same entry in the same way.
            let mut clashes: BTreeMap<(NodeId, Arc<str>, bool), Vec<String>> = BTreeMap::new();
            for Written { node, group } in written {
                for event in &group.events {
                    let label = label(event);
                    let metric = (per.scope(), metric(&label));
                    match self.first.get(&metric) {
                        Some((first, targets)) => {
                            let clash = (*node, Arc::clone(first), same_targets(targets, per));
                            clashes.entry(clash).or_default().push(label);
                        }
                        None => drop(self.first.insert(metric, (Arc::clone(entry), per.clone()))),
                    }
                }
            }
            for ((node, first, same), labels) in clashes {
                let by = if first == *entry {
                    "in this entry".to_owned()
                } else {
                    format!("by {}", shown(&first))
                };
                report_clash(node, per.scope(), &by, same, &labels, report);
            }
        }
    }
}

/// Returns the metric names of these entries, each with the name of its entry.
pub(super) fn metrics(counters: &[Counters]) -> BTreeMap<String, &str> {
    let events =
        |entry: &Counters| entry.groups.iter().flat_map(|group| &group.events).map(label).collect::<Vec<_>>();
    // In reverse, so that the first of several entries with an event remains.
    let metrics = counters
        .iter()
        .rev()
        .flat_map(|entry| events(entry).into_iter().map(|label| (metric(&label), &*entry.name)));
    metrics.collect()
}

/// Returns the metric names of the events that these entries count per cgroup, each with its entry.
pub fn metrics_of_cgroups(counters: &[Counters]) -> BTreeMap<String, Arc<str>> {
    let counted = counters.iter().filter(|entry| is_per_cgroup(&entry.per));
    let groups = counted.flat_map(|entry| entry.groups.iter().map(move |group| (&entry.name, group)));
    let events = groups.flat_map(|(name, group)| group.events.iter().map(move |event| (name, event)));
    events.map(|(name, event)| (metric(&label(event)), Arc::clone(name))).collect()
}

/// Returns the normalized metric name of an event, which identifies its metric.
pub fn metric_of(event: &syntax::Event) -> String {
    metric(&label(event))
}

/// Reports whether cgroups are among the targets.
pub(super) fn is_per_cgroup(per: &[Targets]) -> bool {
    per.iter().any(|targets| matches!(targets, Targets::Cgroups(_)))
}

/// Returns the normalized metric name of a label.
pub(super) fn metric(label: &str) -> String {
    label.to_ascii_lowercase().replace(['-', '.', ':', '/'], "_")
}

/// Reports whether both select the same targets, whatever their attribution.
fn same_targets(one: &Targets, other: &Targets) -> bool {
    match (one, other) {
        (Targets::Cgroups(one), Targets::Cgroups(other)) => {
            *one == CgroupSelection { attribution: one.attribution, ..other.clone() }
        }
        (Targets::Processes(one), Targets::Processes(other)) => {
            *one == ProcessSelection { attribution: one.attribution, ..other.clone() }
        }
        _ => one == other,
    }
}

fn report_clash(
    node: NodeId,
    scope: Scope,
    by: &str,
    same: bool,
    labels: &[String],
    report: &mut Report<'_>,
) {
    const SHOWN: usize = 3;
    let words: Vec<&str> = labels.iter().map(String::as_str).collect();
    let what = match words.len() {
        ..=SHOWN => all_of(&words),
        all => format!("{} and {} more", all_of(&words[..SHOWN]), all - SHOWN),
    };
    let is = if words.len() == 1 { "is" } else { "are" };
    let name = words.first().map_or_else(String::new, |word| word.replace(|c: char| !is_word(c), "_"));
    let hint = match words[..] {
        [word] => format!(
            "remove it from one entry, or give it another name: {{event: \"{word}\", name: {name}_2}}"
        ),
        _ => format!("remove `{scope}` from `per` of one entry, or remove these events"),
    };
    if same {
        let message = format!("{what} {is} already counted per {scope} {by}, under the same name");
        report.error(node, message, hint);
    } else {
        let message = format!(
            "{what} {is} also counted per {scope} {by}: targets selected twice are counted twice under one name"
        );
        report.warning(node, message, hint);
    }
}

/// Returns the identity of an event in metric names: its alias, or its text with the modifiers that change the meaning of a count.
/// Modifiers of sampling and scheduling are omitted.
fn label(event: &syntax::Event) -> String {
    if let Some(alias) = &event.alias {
        return alias.to_string();
    }
    let name = match &event.name {
        name @ Name::Pmu { .. } => format!("{name}/"),
        Name::Breakpoint { address, length: None, access } => format!("mem:{address:#x}/0:{access}"),
        name => name.to_string(),
    };
    let mut letters: Vec<char> = event.modifiers.chars().filter(|c| "ukhIGH".contains(*c)).collect();
    letters.sort_unstable();
    let colon = if letters.is_empty() { "" } else { ":" };
    format!("{name}{colon}{}", letters.into_iter().collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{PmuSharing, label};
    use crate::config::tests::{good, report};
    use crate::event::parse;

    /// Returns the sizes of the groups of one entry.
    fn sizes(entry: &str) -> Vec<usize> {
        let config = good(&format!("counters: {{a: {{{entry}}}}}"));
        config.counters[0].groups.iter().map(|group| group.events.len()).collect()
    }

    /// Returns the report about the entry `a`, without the position.
    fn entry(entry: &str) -> String {
        let report = report(&format!("counters:\n  a: {{{entry}}}\n"));
        report.split_once(": counters.a").map(|(_, text)| text.to_owned()).unwrap_or_default()
    }

    #[test]
    fn an_entry_is_one_group_unless_braces_or_the_setting_say_otherwise() {
        assert_eq!(sizes("events: [cycles, instructions, faults]"), [3]);
        assert_eq!(sizes("events: 'cycles,instructions'"), [2]);
        assert_eq!(sizes("events: [cycles, instructions], group: false"), [1, 1]);
        assert_eq!(sizes("events: ['{cycles,instructions}:u', faults]"), [2, 1]);
        assert_eq!(sizes("events: ['{cycles,instructions}', faults], group: false"), [2, 1]);
        assert!(sizes("preset: detailed").len() > 2);
    }

    #[test]
    fn only_events_that_the_file_does_not_keep_together_may_be_split() {
        let sharing = |entry: &str| good(&format!("counters: {{a: {{{entry}}}}}")).counters[0].sharing;
        for (entry, may_split, is_always) in [
            ("events: [cycles, instructions]", true, false),
            ("events: [cycles, instructions], group: true, priority: rotate", false, false),
            ("events: ['{cycles,instructions}', faults]", false, false),
            ("preset: detailed", false, false),
            ("events: cycles, priority: always", true, true),
        ] {
            assert_eq!(sharing(entry), PmuSharing { may_split, is_always }, "{entry}");
        }
    }

    #[test]
    fn an_entry_that_is_always_on_the_pmu_is_not_for_the_stream() {
        let always = "events: cycles, per: cgroup, priority: always";
        assert!(entry(&format!("{always}, cgroups: {{attribution: stream}}")).starts_with(
            ".priority: `priority: always` needs events for each cgroup, but its attribution is `stream`; remove it"
        ));
        assert_eq!(entry(&format!("{always}, cgroups: {{attribution: dedicated}}")), "");
        assert!(entry("events: cycles, priority: allways").contains("allways"));
    }

    #[test]
    fn braces_beside_group_true_contradict_each_other() {
        assert_eq!(
            entry("events: '{cycles,instructions}', group: true"),
            ".group: `group: true` conflicts with the groups in braces; \
             remove `group` or the braces"
        );
    }

    #[test]
    fn an_event_may_have_a_name() {
        let config = good("counters: {a: {events: {event: cycles:u, name: mine}}}");
        assert_eq!(config.counters[0].groups[0].events[0].alias.as_deref(), Some("mine"));
        assert!(entry("events: {event: cycles, name: My-Cycles}").ends_with("write `my_cycles`"));
        assert!(entry("events: {event: 'cycles,faults', name: m}").contains(".name: one name for 2 events;"));
        assert!(entry("events: {event: cycles/name=x/, name: m}").contains("already has a name"));
    }

    #[test]
    fn an_entry_counts_events_or_a_preset_and_not_both_or_neither() {
        assert!(entry("per: cpu").starts_with(": the entry has no `events`, `preset` or `metrics`"));
        assert!(
            entry("preset: default, events: cycles")
                .starts_with(".preset: `events` and `preset` are mutually exclusive")
        );
        assert!(
            entry("preset: default, group: true").starts_with(".group: `group` is not allowed with `preset`")
        );
        assert!(entry("events: []").starts_with(".events: an empty list contains no events"));
        assert_eq!(entry("events: [5]").lines().count(), 1);
        assert_eq!(entry("presett: default").lines().count(), 1);
        assert!(
            report("counters: {}\npresets: []\nprofiles: {}\nscheduler: {per: []}")
                .starts_with("1:1: counters: no metrics or profiles are enabled")
        );
    }

    #[test]
    fn an_event_that_is_none_says_why() {
        assert_eq!(
            entry("events: ['{cycles']"),
            ".events[0]: `{cycles` is not an event: the group is not closed; expected ',' or '}'"
        );
        let split = "is not an event: it has only one slash; put it in quotes: inside brackets, YAML splits texts at commas";
        assert_eq!(
            entry("events: [cpu/event=1,umask=2/]").lines().next(),
            Some(&*format!(".events[0]: `cpu/event=1` {split}"))
        );
    }

    #[test]
    fn names_of_entries_are_words() {
        assert!(report("counters: {L1-data: {events: cycles}}").ends_with("write `l1_data`"));
        assert!(report("counters: {9: {events: cycles}}").ends_with("write `_9`"));
    }

    #[test]
    fn an_event_counted_twice_for_the_same_is_an_error_that_tells_how_to_name_it() {
        let two = |a: &str, b: &str| report(&format!("counters:\n  a: {{{a}}}\n  b: {{{b}}}\n"));
        assert_eq!(
            two("events: [cycles, cs]", "events: cs"),
            "3:15: counters.b.events: `cs` is already counted per cpu by `a`, under the same name; \
             remove it from one entry, or give it another name: {event: \"cs\", name: cs_2}"
        );
        assert!(entry("events: [cycles:uk, cycles:ku]").contains("is already counted per cpu in this entry"));
        let preset = two("events: [cycles, instructions]", "preset: default, per: [cpu, cgroup]");
        assert!(preset.starts_with(
            "3:15: counters.b.preset: `cycles` and `instructions` are already counted per cpu by `a`"
        ));
        for different in [
            ("events: cycles", "events: cycles:u"),
            ("events: cycles", "events: cycles, per: cgroup"),
            ("events: cycles", "events: {event: cycles, name: other}"),
            ("events: cpu/event=1/", "events: cpu/event=2/"),
        ] {
            assert_eq!(two(different.0, different.1), "", "{different:?}");
        }
    }

    #[test]
    fn an_event_counted_for_two_selections_is_a_warning() {
        let web = "web: {events: faults, per: process, processes: {include: {comm: nginx}}}";
        let report = report(&format!("counters:\n  os: {{events: faults, per: process}}\n  {web}\n"));
        assert!(
            report.starts_with(
                "3:17: warning: counters.web.events: `faults` is also counted per process by `os`"
            )
        );
    }

    #[test]
    fn an_event_counted_in_two_ways_for_the_same_is_an_error() {
        for (per, selection) in [("cgroup", "cgroups"), ("process", "processes")] {
            let other = format!("b: {{events: faults, per: {per}, {selection}: {{attribution: dedicated}}}}");
            let report = report(&format!("counters:\n  a: {{events: faults, per: {per}}}\n  {other}\n"));
            let expected = format!("3:15: counters.b.events: `faults` is already counted per {per} by `a`");
            assert!(report.starts_with(&expected), "{report}");
        }
    }

    #[test]
    fn an_override_for_a_scope_that_is_not_counted_is_a_warning() {
        assert!(entry("events: cycles, cgroups: {depth: 2}").starts_with(".cgroups: this has no effect"));
        assert_eq!(entry("events: cycles, per: [cgruop], cgroups: {depth: 2}").lines().count(), 1);
    }

    #[test]
    fn repeated_words_are_counted_once() {
        assert!(entry("events: cycles, per: [cpu, cpu]").starts_with(".per[1]: duplicate item in this list"));
    }

    #[test]
    fn every_preset_is_known_to_the_event_language() {
        for preset in ["default", "detailed", "very-detailed", "all-detailed"] {
            assert!(!sizes(&format!("preset: {preset}")).is_empty());
        }
    }

    #[test]
    fn labels_tell_apart_what_metrics_tell_apart() {
        let labelled = |text: &str| label(&parse(text).unwrap()[0].events[0]);
        for (text, expected) in [
            ("cycles:kuppp", "cycles:ku"),
            ("r1A8", "r1a8"),
            ("1:2", "1:0x2"),
            ("cpu/event=0x3c,inv,call=x/u", "cpu/event=0x3c,inv,call=x/:u"),
            ("sched:sched_switch", "sched:sched_switch"),
            ("mem:0x10/8:w", "mem:0x10/8:w"),
        ] {
            assert_eq!(labelled(text), expected);
        }
    }
}
