//! Checks of `incidents`: where evidence is kept, and how much of it.

use std::path::PathBuf;
use std::time::Duration;

use super::decode::At;
use super::file::{self, INCIDENTS_MAX, INCIDENTS_SIZE_MAX, INCIDENTS_SIZE_MIN};
use super::report::Report;
use super::value::{Period, Size};
use crate::incident::Bounds;

/// Part of `size` that one incident may use: one in this number.
const PART: u64 = 4;

/// Where the evidence of incidents is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Incidents {
    /// The directory; `None` = no evidence is kept.
    pub directory: Option<PathBuf>,
    /// Limits of all incidents.
    pub bounds: Bounds,
    /// Time after the begin of an incident in which further triggers of the same cgroup are ignored.
    pub cooldown: Duration,
    /// Whether each incident creates an event of Kubernetes.
    pub kubernetes_events: bool,
}

impl Incidents {
    /// Returns the maximum size of one incident, in bytes.
    pub fn each(&self) -> u64 {
        self.bounds.bytes / PART
    }
}

/// Returns the settings of `incidents`, with the values of `base` for omitted ones.
pub(super) fn incidents(
    written: &Option<At<file::Incidents>>,
    base: &Incidents,
    report: &mut Report<'_>,
) -> Incidents {
    let Some(At { value, .. }) = written else { return base.clone() };
    let file::Incidents { directory, number, size, cooldown, kubernetes_events } = value;
    let directory = directory.as_ref().map(|At { node, value }| {
        if !value.starts_with('/') {
            let message = format!("{value:?} is not an absolute path");
            report.error(*node, message, "write `/var/lib/perf-exporter/incidents`");
        }
        PathBuf::from(value)
    });
    let sizes = Size(INCIDENTS_SIZE_MIN)..=Size(INCIDENTS_SIZE_MAX);
    let Size(bytes) = report.setting(size, sizes, Size(base.bounds.bytes));
    let cooldowns = Period::seconds(0)..=Period::seconds(24 * 3600);
    let Period(cooldown) = report.setting(cooldown, cooldowns, Period(base.cooldown));
    Incidents {
        directory: directory.or_else(|| base.directory.clone()),
        bounds: Bounds { number: report.number(number, INCIDENTS_MAX).unwrap_or(base.bounds.number), bytes },
        cooldown,
        kubernetes_events: kubernetes_events.as_ref().map_or(base.kubernetes_events, |at| at.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    #[test]
    fn without_a_directory_no_evidence_is_kept() {
        let incidents = good("{}").incidents;
        assert_eq!(incidents.directory, None);
        assert_eq!(incidents.bounds, Bounds { number: 100, bytes: 256 << 20 });
        assert_eq!((incidents.each(), incidents.cooldown), (64 << 20, Duration::from_secs(600)));
    }

    #[test]
    fn each_setting_is_read_and_bounded() {
        let yaml = "incidents: {directory: /var/lib/i, number: 3, size: 8MiB, cooldown: 1m, kubernetes_events: true}";
        let expected = Incidents {
            directory: Some("/var/lib/i".into()),
            bounds: Bounds { number: 3, bytes: 8 << 20 },
            cooldown: Duration::from_secs(60),
            kubernetes_events: true,
        };
        assert_eq!(*good(yaml).incidents, expected);
        for (yaml, expected) in [
            ("incidents: {directory: var/lib}", "is not an absolute path"),
            ("incidents: {number: 0}", "not between 1 and 10000"),
            ("incidents: {size: 1KiB}", "not between 1MiB and 100GiB"),
            ("incidents: {cooldown: 2d}", "incidents"),
        ] {
            let report = report(yaml);
            assert!(report.contains(expected), "{yaml}: {report}");
        }
    }
}
