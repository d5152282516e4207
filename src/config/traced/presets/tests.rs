//! Tests of presets: their entries are valid configuration, and entries of the user take precedence.

use super::*;
use crate::config::Config;
use crate::config::tests::{good, report};
use crate::targets::Targets;

/// Returns the preset entries of a file, with their presets.
fn of_presets(text: &str) -> Vec<(&'static str, String)> {
    let entry = |entry: &Traced| Some((entry.kind.preset()?.as_str(), entry.name.to_string()));
    good(text).traced.iter().filter_map(entry).collect()
}

fn names(text: &str) -> Vec<String> {
    of_presets(text).into_iter().map(|(_, name)| name).collect()
}

#[test]
fn each_preset_is_a_file_that_means_the_same_when_it_is_copied() {
    for preset in Preset::ALL {
        let copied = good(&format!("{}\npresets: []\n", preset.text())).traced;
        let kind = TracedKind::Preset(preset);
        let copied: Vec<Traced> = copied.into_iter().map(|entry| Traced { kind, ..entry }).collect();
        assert!(!copied.is_empty());
        assert_eq!(good(&format!("presets: {}", preset.as_str())).traced, copied);
        let document: serde_json::Value = serde_yaml::from_str(preset.text()).unwrap();
        assert_eq!(document.as_object().unwrap().keys().collect::<Vec<_>>(), ["tracepoints"]);
        assert!(preset.question().ends_with('?'), "{}", preset.as_str());
    }
}

#[test]
fn all_presets_go_together_and_with_everything_that_is_built_in() {
    let names: Vec<&str> = Preset::ALL.iter().map(|preset| preset.as_str()).collect();
    let file = format!("presets: [{}]", names.join(", "));
    let mut sets: Vec<&str> = of_presets(&file).into_iter().map(|(set, _)| set).collect();
    sets.dedup();
    assert_eq!(sets, names, "in the order of the file");
    assert_eq!(good(&file).counters, Config::default().counters);
}

#[test]
fn a_list_replaces_the_built_in_one_and_other_sections_leave_it() {
    let built_in = ["forks", "execs", "exits"];
    assert_eq!(names("{}"), built_in);
    assert_eq!(names("counters: {a: {events: cycles}}"), built_in);
    assert_eq!(names("tracepoints: {a: {event: 'sys:one'}}"), built_in);
    assert_eq!(names("presets: irq"), ["irq_run"]);
    assert!(names("presets: []").is_empty());
}

#[test]
fn an_entry_of_the_file_replaces_the_preset_of_its_name() {
    let mine = "tracepoints: {forks: {event: 'sys:one'}}\nprobes: {exits: {kprobe: f}}";
    for text in [mine.to_owned(), format!("{mine}\npresets: [forks]")] {
        assert_eq!(names(&text), ["execs"]);
        let mine: Vec<_> = good(&text).traced.into_iter().take(2).map(|entry| entry.kind).collect();
        assert_eq!(mine, [TracedKind::Tracepoint, TracedKind::Probe]);
    }
}

#[test]
fn entries_of_presets_count_for_the_cgroups_of_the_file() {
    let entries = good("cgroups: {include: /a}\npresets: forks").traced;
    for entry in &entries {
        let [Targets::Cgroups(cgroups)] = &entry.per[..] else { panic!("{entry:?}") };
        assert_eq!(cgroups.include[0].as_str(), "/a");
    }
}

#[test]
fn a_name_that_is_none_is_answered_with_those_that_there_are() {
    assert_eq!(
        report("profiles: {}\npresets: [forks, blokc-io]"),
        "2:18: presets[1]: expected `block-io`, `irq`, `softirq`, `page-faults`, `forks`, `kworkers`, `locks`, \
         `kmem`, `tcp`, `ext4`, `xfs`, `oom`, `reclaim` or `kvm-exits`, found `blokc-io`; did you mean `block-io`?"
    );
    assert_eq!(
        report("presets: [irq, irq]"),
        "1:16: warning: presets[1]: duplicate item in this list; remove one of them"
    );
}

#[test]
fn a_metric_that_is_taken_is_said_of_what_was_asked_for_and_what_is_built_in_gives_way() {
    let taken = "counters: {mine: {events: [{event: cycles, name: forks}]}}\n";
    assert_eq!(names(taken), ["execs", "exits"]);
    assert_eq!(
        report(&format!("{taken}presets: [irq, forks]")),
        "2:16: presets[1]: the entry `forks` of this preset: `forks` is already the name of metrics of `counters.mine`; \
         remove one of them"
    );
}
