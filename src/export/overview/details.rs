//! Lists about one cgroup or program, from the last collection: time of its threads by state, preemptions, system calls, probes.

use std::collections::BTreeMap;

use super::chart::Shown;
use crate::export::page::figures::{count, duration, percent};
use crate::export::page::html::Html;
use crate::history::{Figure, Scope};
use crate::metrics::{Labels, Snapshot, Value};

/// Maximum number of lines in each list.
const LINES: usize = 10;

/// A number for each name, the largest first.
type Ranking = Vec<(String, f64)>;

/// The lists about a subject.
#[derive(Debug, Default, PartialEq)]
struct Details {
    /// Seconds by state: on a CPU, waiting for one, sleeping.
    states: Ranking,
    preempted_by: Ranking,
    preempts: Ranking,
    calls: Ranking,
    errors: Ranking,
    /// Counts of tracepoints and probes.
    probes: Ranking,
}

/// Writes the lists. They count since the start of the series.
pub(super) fn details(html: &mut Html, scope: Scope, name: &str, snapshot: &Snapshot) {
    let details = collect(scope, name, snapshot);
    if details == Details::default() {
        return;
    }
    html.raw("<h2>Details<small>since the exporter began to count it</small></h2><div class=\"cards\">");
    let total: f64 = details.states.iter().map(|state| state.1).sum();
    list(html, "Time of its threads", &details.states, |seconds| {
        let seconds_text = duration(std::time::Duration::try_from_secs_f64(seconds).unwrap_or_default());
        format!("{seconds_text}, {}", percent(100.0 * seconds / total.max(f64::MIN_POSITIVE)))
    });
    let number = |value: f64| count(value as u64);
    list(html, "Preempted by", &details.preempted_by, number);
    list(html, "Preempts", &details.preempts, number);
    list(html, "System calls", &details.calls, number);
    list(html, "Errors of system calls", &details.errors, number);
    list(html, "Tracepoints and probes", &details.probes, number);
    html.raw("</div>");
}

/// Writes how much of the machine's CPU time a subject uses.
pub(super) fn share(html: &mut Html, own: Option<f64>, machine: Option<f64>) {
    let (Some(own), Some(machine)) = (own, machine) else { return };
    if machine > 0.0 {
        html.put(
            "<p class=\"quiet\">It uses {} CPUs of {} in use on this machine: {}.</p>",
            [&Shown(Figure::Cpu, own), &Shown(Figure::Cpu, machine), &percent(100.0 * own / machine)],
        );
    }
}

fn list(html: &mut Html, title: &'static str, lines: &Ranking, shown: impl Fn(f64) -> String) {
    if lines.is_empty() {
        return;
    }
    html.raw("<section class=\"card\"><header><h3>").raw(title).raw("</h3></header><table>");
    for (name, value) in lines.iter().take(LINES) {
        html.put("<tr><td>{}</td><td class=\"number\">{}</td></tr>", [name, &shown(*value)]);
    }
    html.raw("</table>");
    if let Some(more) = lines.len().checked_sub(LINES).filter(|&more| more > 0) {
        html.put("<p class=\"quiet\">and {} more</p>", [&count(more as u64)]);
    }
    html.raw("</section>");
}

fn collect(scope: Scope, name: &str, snapshot: &Snapshot) -> Details {
    let (prefix, label) = match scope {
        Scope::Machine => return Details::default(),
        Scope::Cgroup => ("perf_cgroup_", "cgroup"),
        Scope::Program => ("perf_process_", "comm"),
    };
    let sums = |family: &str, by: &str, is_own: &dyn Fn(&Labels) -> bool| -> Ranking {
        let points = snapshot.family(&format!("{prefix}{family}")).map_or(&[][..], |family| family.points());
        let own = points.iter().filter(|point| is_own(&point.labels));
        ranked(own.filter_map(|point| Some((point.labels.get(by)?.to_owned(), point.value.number()?))))
    };
    let is_own = |labels: &Labels| labels.get(label) == Some(name);
    let by_own = |labels: &Labels| labels.get("by_cgroup") == Some(name) && !is_own(labels);
    let by_others = |labels: &Labels| is_own(labels) && labels.get("by_cgroup") != Some(name);
    let run =
        sums("sched_run_seconds", label, &is_own).pop().map(|(_, seconds)| ("on a CPU".to_owned(), seconds));
    let states =
        run.into_iter().chain(sums("sched_wait_seconds", "state", &is_own)).filter(|state| state.1 > 0.0);
    let by_cgroup = sums("sched_preempted_by_cgroup", "by_cgroup", &by_others);
    let preempted_by =
        if by_cgroup.is_empty() { sums("sched_preemptions", "by", &is_own) } else { by_cgroup };
    Details {
        states: states.collect(),
        preempted_by,
        preempts: sums("sched_preempted_by_cgroup", label, &by_own),
        calls: sums("syscalls", "syscall", &is_own),
        errors: sums("syscall_errors", "errno", &is_own),
        probes: probes(snapshot, prefix, &is_own),
    }
}

/// Names of the built-in metrics behind the scope: the rest are entries of the configuration.
const BUILT_IN: [&str; 10] = [
    "cycles",
    "instructions",
    "cache_",
    "task_clock",
    "context_switches",
    "cpu_migrations",
    "page_faults",
    "major_faults",
    "sched_",
    "syscall",
];

/// Returns the counts of the other families of the scope.
fn probes(snapshot: &Snapshot, prefix: &str, is_own: &dyn Fn(&Labels) -> bool) -> Ranking {
    let names = snapshot.families().iter().filter_map(|family| {
        let entry = family.metadata().name().strip_prefix(prefix)?;
        let is_built_in = BUILT_IN.iter().any(|known| entry.starts_with(known));
        (!is_built_in).then_some((entry, family))
    });
    ranked(names.flat_map(|(entry, family)| {
        let own = family.points().iter().filter(|point| is_own(&point.labels));
        own.filter_map(move |point| {
            let value = match &point.value {
                Value::Histogram(histogram) => histogram.count() as f64,
                value => value.number()?,
            };
            Some((entry.to_owned(), value))
        })
    }))
}

/// Adds up the values of equal names and sorts them, the largest first.
fn ranked(values: impl Iterator<Item = (String, f64)>) -> Ranking {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    values
        .filter(|(_, value)| *value > 0.0)
        .for_each(|(name, value)| *sums.entry(name).or_default() += value);
    let mut ranking: Ranking = sums.into_iter().collect();
    ranking.sort_by(|one, other| other.1.total_cmp(&one.1));
    ranking
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::metrics::{Family, Kind, Metadata, Point};

    fn family(name: &str, points: &[(&[(&str, &str)], u64)]) -> Family {
        let metadata = Metadata::new(name, "help", "", Kind::Counter).unwrap();
        let point = |&(labels, count): &(&[(&str, &str)], u64)| Point {
            labels: Labels::new(labels.iter().copied()),
            value: Value::Integer(count),
            start: Timestamp(0),
        };
        Family::new(metadata, points.iter().map(point).collect())
    }

    #[test]
    fn lists_contain_the_subject_only_and_begin_with_the_most() {
        let snapshot = Snapshot::new(
            Timestamp(0),
            [
                family(
                    "perf_cgroup_syscalls",
                    &[
                        (&[("cgroup", "/a"), ("syscall", "read")], 5),
                        (&[("cgroup", "/a"), ("syscall", "write")], 7),
                        (&[("cgroup", "/b"), ("syscall", "close")], 9),
                    ],
                ),
                family(
                    "perf_cgroup_sched_preempted_by_cgroup",
                    &[
                        (&[("by_cgroup", "/a"), ("cgroup", "/a")], 100),
                        (&[("by_cgroup", "/b"), ("cgroup", "/a")], 3),
                        (&[("by_cgroup", "/a"), ("cgroup", "/b")], 4),
                    ],
                ),
                family("perf_cgroup_tcp_send", &[(&[("cgroup", "/a")], 12)]),
                family("perf_cgroup_page_faults", &[(&[("cgroup", "/a")], 12)]),
            ],
        );
        let details = collect(Scope::Cgroup, "/a", &snapshot);
        let line = |name: &str, value: f64| (name.to_owned(), value);
        assert_eq!(details.calls, [line("write", 7.0), line("read", 5.0)]);
        assert_eq!(details.preempted_by, [line("/b", 3.0)]);
        assert_eq!(details.preempts, [line("/b", 4.0)]);
        assert_eq!(details.probes, [line("tcp_send", 12.0)]);
    }

    #[test]
    fn a_subject_without_details_has_no_section() {
        let mut html = Html::default();
        details(&mut html, Scope::Program, "a", &Snapshot::default());
        assert_eq!(html.finish(), "");
    }
}
