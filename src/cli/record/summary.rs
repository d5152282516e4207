//! Progress and summary texts of `record` on standard error, without I/O.

use std::time::Duration;

use crate::export::page::figures::{bytes, count, duration, plain};
use crate::profile::Shortfalls;
use crate::ring::{Losses, Records};

/// Prefix of each line.
pub(super) const PREFIX: &str = "[ perf-exporter record:";

/// Returns the progress line, with the size of the file in bytes if it is written during the recording.
pub(super) fn progress(elapsed: Duration, losses: &Losses, size: Option<u64>) -> String {
    let lost: u64 = losses.reasons(Records::Samples).iter().map(|(_, count)| count).sum();
    let samples = count(losses.records);
    plain(&format!(
        "{PREFIX} {}, {samples} samples, {} lost{}; press Ctrl-C to stop ]",
        duration(elapsed),
        count(lost),
        size.map(|size| format!(", {}", bytes(size))).unwrap_or_default()
    ))
}

/// The summary of a recording.
#[derive(Debug, Clone)]
pub(super) struct Closing<'a> {
    /// Name of the output, and its size in bytes.
    pub(super) written: (&'a str, u64),
    /// Number of samples.
    pub(super) taken: u64,
    pub(super) duration: Duration,
    /// The reason why there are no samples, if there are none.
    pub(super) nothing: &'a str,
    /// Lost records by reason.
    pub(super) lost: &'a [(&'static str, u64)],
    pub(super) cpus: usize,
    pub(super) throttled: u64,
    pub(super) shortfalls: &'a Shortfalls,
}

impl Closing<'_> {
    /// Returns the summary: what was written, what is missing, and remedies, one per line.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { written: (name, size), taken, cpus, .. } = self;
        let mut first = format!(
            "{PREFIX} wrote {} to {}: {} {} in {} on {cpus} {}",
            bytes(*size),
            crate::error::printable(name),
            count(*taken),
            if *taken == 1 { "sample" } else { "samples" },
            duration(self.duration),
            if *cpus == 1 { "CPU" } else { "CPUs" },
        );
        for ([one, many], reasons) in self.missing() {
            let total = reasons.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
            let what = if total == 1 { one } else { many };
            first += &format!("; {} {what} ({})", count(total), by_reason(&reasons));
        }
        first.push_str(" ]");
        let mut lines = vec![plain(&first)];
        if *taken == 0 {
            lines.push(format!("  {}", plain(self.nothing)));
        }
        lines.extend(self.hints().into_iter().map(|hint| format!("  {hint}")));
        lines
    }

    /// Returns what is missing, with counts by reason. Each kind has a singular and a plural name.
    fn missing(&self) -> Vec<([&'static str; 2], Reasons)> {
        let Self { lost, throttled, shortfalls, .. } = self;
        let mut missing = vec![
            (["record lost", "records lost"], lost.to_vec()),
            (["throttling of an event", "throttlings of events"], vec![("throttled", *throttled)]),
            (["truncated stack", "truncated stacks"], shortfalls.cut.clone()),
            (["unsymbolized frame", "unsymbolized frames"], shortfalls.unnamed.clone()),
        ];
        missing.iter_mut().for_each(|(_, reasons)| reasons.retain(|(_, count)| *count > 0));
        missing.retain(|(_, reasons)| !reasons.is_empty());
        missing
    }

    /// Returns remedies for what is missing.
    fn hints(&self) -> Vec<&'static str> {
        let Self { lost, shortfalls, throttled, .. } = self;
        let lost = |reason: &str| lost.iter().any(|&(other, count)| other == reason && count > 0);
        let cut = |reason: &str| shortfalls.cut.iter().any(|&(other, _)| other == reason);
        let unnamed = |reason: &str| shortfalls.unnamed.iter().any(|&(other, _)| other == reason);
        let hints = [
            (
                lost("ring_full"),
                "ring_full: sample less often (-F), copy less of the stack (--call-graph fp, or dwarf,SIZE), or grant CAP_IPC_LOCK",
            ),
            (
                lost("table_full"),
                "table_full: the profile has too many distinct stacks; record for a shorter time",
            ),
            (*throttled > 0, "throttled: the kernel throttled the event; sample less often (-F, -c)"),
            (
                cut("copy"),
                "copy: stacks are deeper than the stack copy; copy more (--call-graph dwarf,32768)",
            ),
            (
                unnamed("kernel_forbidden"),
                "kernel_forbidden: kernel symbols require CAP_SYSLOG, or sysctl kernel.kptr_restrict=0",
            ),
            (
                unnamed("map_missing"),
                "map_missing: JIT code is symbolized if the program writes a perf map (node --perf-basic-prof, java \
                 with perf-map-agent)",
            ),
        ];
        hints.into_iter().filter(|(holds, _)| *holds).map(|(_, hint)| hint).collect()
    }
}

/// Reasons with counts.
type Reasons = Vec<(&'static str, u64)>;

/// Formats reasons, the most frequent first. The count is omitted for a single reason.
fn by_reason(reasons: &[(&'static str, u64)]) -> String {
    if let [(reason, _)] = reasons {
        return (*reason).to_owned();
    }
    let mut reasons: Vec<_> = reasons.iter().collect();
    reasons.sort_by_key(|(reason, count)| (std::cmp::Reverse(*count), *reason));
    let said = reasons.iter().map(|(reason, number)| format!("{} {reason}", count(*number)));
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::flamegraph::nothing;
    use crate::profile::Profile;
    use crate::profile::sample_profiles::example;

    fn closing<'a>(profile: &'a Profile, nothing: &'a str, shortfalls: &'a Shortfalls) -> Closing<'a> {
        Closing {
            written: ("profile.pb.gz", 1_258_291),
            taken: profile.taken(),
            duration: profile.duration,
            nothing,
            lost: &profile.lost,
            cpus: 8,
            throttled: 0,
            shortfalls,
        }
    }

    #[test]
    fn the_last_words_are_as_recorded() {
        let whole = Profile { lost: Vec::new(), ..example() };
        let none = Shortfalls::default();
        let fine = closing(&whole, "", &none);
        let shortfalls = Shortfalls {
            cut: vec![("deep", 1), ("copy", 2_040)],
            unnamed: vec![("stripped", 12), ("kernel_forbidden", 311), ("map_missing", 4)],
        };
        let lossy = Profile { lost: vec![("ring_full", 1_234), ("late", 1), ("table_full", 7)], ..example() };
        let bad = closing(&lossy, "", &shortfalls);
        let bad = Closing { written: ("a\n\u{1b}[2J.svg", 17), cpus: 1, throttled: 3, ..bad };
        let empty = Profile { duration: Duration::from_secs(4), ..Profile::default() };
        let why = nothing(&empty, 0);
        let idle = closing(&empty, &why, &none);
        let said = [fine, bad, idle].map(|closing| closing.lines().join("\n"));
        insta::assert_snapshot!(said.join("\n"));
    }

    #[test]
    fn progress_fits_on_a_line() {
        let losses = Losses { records: 4711, ring_full: 12, late: 1, ..Losses::default() };
        let line = |size| progress(Duration::from_millis(12_345), &losses, size);
        assert_eq!(
            line(None),
            "[ perf-exporter record: 12.3 s, 4 711 samples, 13 lost; press Ctrl-C to stop ]"
        );
        let sized = "[ perf-exporter record: 12.3 s, 4 711 samples, 13 lost, 1.5 MiB; press Ctrl-C to stop ]";
        assert_eq!(line(Some(3 << 19)), sized);
    }
}
