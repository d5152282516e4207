//! Invariants for an arbitrary web configuration file and an arbitrary configuration file. Called by a fuzz target and by a test that keeps
//! the target working.

use perf_exporter::config::{Problems, Web, load, load_web};

/// Checks the text as either file.
pub(crate) fn holds(bytes: &[u8]) {
    match load_web(bytes, "web.yaml", &Web::default()) {
        Ok((web, _)) => {
            assert!(load_web(bytes, "web.yaml", &Web::default()).is_ok_and(|(again, _)| again == web));
        }
        Err(problems) => can_be_shown(&problems),
    }
    if let Err(problems) = load(bytes, "perf-exporter.yaml") {
        can_be_shown(&problems);
    }
}

/// Problems quote the file, which may contain anything: a terminal must not execute it.
fn can_be_shown(problems: &Problems) {
    let text = problems.to_string();
    assert!(!text.is_empty());
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    assert!(text.lines().count() <= 4 * 52, "{text}");
}
