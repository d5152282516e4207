//! Figures that are not measured, why, and what turns them on: one calm line.

use super::chart::name;
use crate::export::page::html::Html;
use crate::export::page::joined;
use crate::health::Cause;
use crate::history::{Figure, Scope};
use crate::status::Status;

/// Figures with the same reason.
struct Missing {
    figures: &'static [Figure],
    why: &'static str,
    /// The lines of the configuration that enable them for the machine and cgroups, and for programs.
    yaml: [&'static str; 2],
}

const ALL: [Missing; 5] = [
    Missing {
        figures: &[Figure::Ipc, Figure::CacheMisses],
        why: "cycles, instructions and cache misses are not configured here",
        yaml: [
            "counters:\n  core: {events: [cycles, instructions], per: [cpu, cgroup]}\n  \
             cache: {events: [cache-references, cache-misses], per: [cpu, cgroup]}\n  \
             os: {events: [task-clock, context-switches, cpu-migrations, page-faults], per: [cpu, cgroup, process]}\n",
            "counters:\n  core: {events: [cycles, instructions, cache-misses], per: [cpu, cgroup, process]}\n  \
             os: {events: [task-clock, context-switches, cpu-migrations, page-faults], per: [cpu, cgroup, process]}\n",
        ],
    },
    Missing {
        figures: &[Figure::RunqueueLatency, Figure::Preemptions],
        why: "the metrics of the scheduler are off here",
        yaml: [
            "scheduler: {per: [host, cgroup], preemption: true}\n",
            "scheduler: {per: [host, cgroup, process], preemption: true}\n",
        ],
    },
    Missing {
        figures: &[Figure::Calls, Figure::Errors],
        why: "the metrics of system calls are off here: they cost about 1 \u{b5}s for each call",
        yaml: ["syscalls: {per: [host, cgroup]}\n", "syscalls: {per: [host, cgroup, process]}\n"],
    },
    Missing {
        figures: &[Figure::Forks],
        why: "forks are not counted here, or no cgroup is counted",
        yaml: [
            "presets: [forks]\n",
            "tracepoints:\n  forks: {event: \"sched:sched_process_fork\", per: [cgroup, process]}\npresets: []\n",
        ],
    },
    Missing {
        figures: &[Figure::BlockLatency],
        why: "block I/O is not measured, or there was none: it costs three records for each request",
        yaml: ["presets: [forks, block-io]\n", ""],
    },
];

/// Why there are no hardware counters.
const NO_HARDWARE: &str = "this machine has no hardware counters";

/// Writes a line about the figures that are not measured, with the details behind it.
pub(super) fn missing(html: &mut Html, status: &Status, scope: Scope, is_measured: impl Fn(Figure) -> bool) {
    let yaml = |missing: &Missing| missing.yaml[usize::from(scope == Scope::Program)];
    // Block I/O is measured for the machine only.
    let is_possible = |missing: &&Missing| {
        !yaml(missing).is_empty()
            && (scope == Scope::Machine || !missing.figures.contains(&Figure::BlockLatency))
    };
    let is_missing = |missing: &&Missing| !missing.figures.iter().any(|&figure| is_measured(figure));
    let missing: Vec<&Missing> = ALL.iter().filter(is_possible).filter(is_missing).collect();
    if missing.is_empty() {
        return;
    }
    html.raw("<details class=\"missing\"><summary>Not measured: ");
    let write = |html: &mut Html, figure: &Figure| {
        html.raw(name(*figure));
    };
    joined(html, ", ", missing.iter().flat_map(|missing| missing.figures), write);
    html.raw("</summary><dl>");
    for missing in missing {
        html.raw("<dt>");
        joined(html, ", ", missing.figures, write);
        html.raw("</dt><dd>");
        if missing.figures.contains(&Figure::Ipc) && lacks_hardware(status) {
            html.raw(NO_HARDWARE).raw("</dd>");
        } else {
            html.raw(missing.why).raw("<pre>").raw(yaml(missing)).raw("</pre></dd>");
        }
    }
    html.raw("</dl></details>");
}

/// Reports whether cycles are configured, and absent on this machine.
fn lacks_hardware(status: &Status) -> bool {
    let absent = status.refusals.iter().filter(|refusal| refusal.cause == Cause::Absent);
    absent.flat_map(|refusal| &refusal.events).any(|event| event.contains("cycles"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::status::tests::example;

    #[test]
    fn the_lines_that_enable_a_figure_are_a_configuration() {
        for yaml in ALL.iter().flat_map(|missing| missing.yaml).filter(|yaml| !yaml.is_empty()) {
            let loaded = config::load(yaml.as_bytes(), "page.yaml");
            let (_, warnings) = loaded.unwrap_or_else(|error| panic!("{yaml}: {error}"));
            assert!(warnings.is_empty(), "{yaml}");
        }
    }

    #[test]
    fn where_everything_is_measured_nothing_is_missing() {
        let mut html = Html::default();
        missing(&mut html, &example(), Scope::Machine, |_| true);
        assert_eq!(html.finish(), "");
    }

    #[test]
    fn absent_hardware_takes_one_line() {
        let mut status = example();
        status.refusals.iter_mut().for_each(|refusal| {
            refusal.cause = Cause::Absent;
            refusal.events = vec!["cycles".into()];
        });
        let mut html = Html::default();
        missing(&mut html, &status, Scope::Machine, |figure| {
            ![Figure::Ipc, Figure::CacheMisses].contains(&figure)
        });
        let text = html.finish();
        assert!(text.contains("Not measured: Instructions per cycle, Cache misses"), "{text}");
        assert!(text.contains(NO_HARDWARE) && !text.contains("<pre>"), "{text}");
    }
}
