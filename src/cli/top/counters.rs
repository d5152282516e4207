//! Counters beside the functions: those of the target of the command, or of the selected threads or cgroup.

use std::sync::Arc;
use std::time::Duration;

use super::samples::Key;
use crate::clean::clean;
use crate::cli::observe::notes;
use crate::cli::observe::{Failure, Host, Subject, Target};
use crate::cli::stat::{Figures, Summed};
use crate::counter::Busy;
use crate::event::{parse, syntax};
use crate::host::CpuSet;
use crate::sys::{Budget, Kernel};

/// Events that every kernel counts.
const SOFTWARE: &str = "task-clock,context-switches,cpu-migrations,page-faults";

/// Hardware events, in one group, so that their ratio is that of the same time.
const HARDWARE: &str = "{cycles,instructions}";

/// The ratio that is shown.
const INSTRUCTIONS_PER_CYCLE: &str = "insn per cycle";

/// Maximum length of a title in bytes.
const TITLE: usize = 200;

/// What is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// The target of the command.
    Target,
    /// A cgroup with the cgroups below it.
    Cgroup(Arc<str>),
    /// Threads of a row, with the threads and processes that they start.
    Threads { of: Key, threads: Vec<u32> },
}

impl Scope {
    /// Reports whether both are the same row. The threads of a row change, but its counters stay open.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Threads { of, .. }, Self::Threads { of: other, .. }) => of == other,
            (one, other) => one == other,
        }
    }
}

/// Counters of an interval as texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CounterText {
    /// What was counted, without characters that a terminal interprets.
    pub(super) title: String,
    /// One text per counter: `1.94 CPUs`, `340 page-faults/s`.
    pub(super) items: Vec<String>,
    /// Why counters are missing.
    pub(super) missing: Option<String>,
}

/// The open counters.
#[derive(Debug)]
pub(super) struct Counters<'a, K: Kernel> {
    host: &'a Host<'a, K>,
    subject: &'a Subject,
    /// The text of `subject`.
    subject_text: &'a str,
    cpus: CpuSet,
    /// Descriptors that the sampler leaves.
    budget: Budget,
    scope: Scope,
    /// The counters, or why there are none.
    open: Result<Summed<K::Event>, String>,
    /// Busy time of the CPUs. `task-clock` of a CPU counts idle time, too.
    busy: Option<Busy>,
}

impl<'a, K: Kernel> Counters<'a, K> {
    /// Opens the counters of the target.
    pub(super) fn open(
        host: &'a Host<'a, K>,
        subject: &'a Subject,
        subject_text: &'a str,
        budget: Budget,
    ) -> Self {
        let busy = matches!(subject, Subject::Machine { .. }).then(|| {
            let mut busy = Busy::new(host.roots);
            busy.refresh();
            busy
        });
        let cpus = subject.event_cpus(host.facts());
        let (scope, open) = (Scope::Target, Err(String::new()));
        let mut counters = Self { host, subject, subject_text, cpus, budget, scope, open, busy };
        counters.open = counters.opened();
        counters
    }

    /// Returns the counters since the last call.
    pub(super) fn read(&mut self) -> CounterText {
        let hardware = self.host.catalog.has_core_pmu();
        let title = self.title();
        let now = self.host.clock.monotonic();
        let busy = self.busy();
        match &mut self.open {
            Ok(open) => {
                let figures = open.read(now);
                let refused = notes::refused(&open.refusals).into_iter();
                let refused = refused.map(|note| (note.events.join(", "), note.reason)).collect();
                text(title, &figures, busy, hardware, refused)
            }
            Err(reason) => {
                CounterText { title, items: Vec::new(), missing: Some(format!("not available: {reason}")) }
            }
        }
    }

    /// Counts for another scope from now on.
    pub(super) fn select(&mut self, scope: Scope) {
        if !self.scope.is_same(&scope) {
            self.scope = scope;
            // Close the counters first, for their descriptors.
            self.open = Err(String::new());
            self.open = self.opened();
        }
    }

    fn opened(&self) -> Result<Summed<K::Event>, String> {
        let found = match &self.scope {
            Scope::Target => return self.opened_for(self.subject),
            Scope::Cgroup(path) => {
                self.host.find(&Target::Cgroups(vec![path.to_string()], Some(self.cpus.clone())))
            }
            Scope::Threads { threads, .. } => Ok(Subject::Threads(threads.clone())),
        };
        found.map_err(|failure| words(&failure)).and_then(|subject| self.opened_for(&subject))
    }

    fn opened_for(&self, subject: &Subject) -> Result<Summed<K::Event>, String> {
        let events = events(subject, self.host.catalog.has_core_pmu());
        Summed::open(self.host, subject, &events, self.budget).map_err(|failure| words(&failure))
    }

    /// Returns the busy time of the CPUs of the target since the last call, if it is what is counted.
    fn busy(&mut self) -> Option<Duration> {
        let busy = self.busy.as_mut()?;
        busy.refresh();
        let times = self.cpus.iter().map(|cpu| busy.time(cpu));
        times.sum::<Option<Duration>>().filter(|_| self.scope == Scope::Target)
    }

    fn title(&self) -> String {
        match &self.scope {
            Scope::Target => self.subject_text.to_owned(),
            Scope::Cgroup(path) => format!("cgroup {}", clean(path, TITLE)),
            Scope::Threads { of, threads } if matches!(of, Key::Comm(_)) => {
                let plural = if threads.len() == 1 { "" } else { "s" };
                format!("{} ({} thread{plural})", of.name(), threads.len())
            }
            Scope::Threads { of, .. } => of.name(),
        }
    }
}

/// Returns the events to count.
fn events(subject: &Subject, hardware: bool) -> Vec<syntax::Group> {
    let software = match subject {
        Subject::Machine { .. } => SOFTWARE.trim_start_matches("task-clock,"),
        _ => SOFTWARE,
    };
    let texts = [Some(software), Some(HARDWARE).filter(|_| hardware)];
    texts.into_iter().flatten().flat_map(|text| parse(text).unwrap_or_default()).collect()
}

/// Returns the reason of a failure in one line.
fn words(failure: &Failure) -> String {
    match failure {
        Failure::Usage(error) | Failure::Failed(error) => format!("{error:#}"),
        Failure::Nothing(refusals) => {
            let mut notes = notes::refused(refusals).into_iter();
            notes.next().map_or_else(|| "the target has ended".to_owned(), |note| note.reason)
        }
        Failure::Command { error, .. } | Failure::Output(error) => error.to_string(),
    }
}

/// Formats counters. `busy` is the busy time of CPUs instead of a clock. `refused` are events that could not be opened, with the reasons.
fn text(
    title: String,
    Figures { elapsed, figures }: &Figures,
    busy: Option<Duration>,
    hardware: bool,
    refused: Vec<(String, String)>,
) -> CounterText {
    let seconds = elapsed.as_secs_f64();
    let per_second = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
    let mut items: Vec<String> = Vec::new();
    items.extend(busy.map(|busy| format!("{:.2} CPUs", per_second(busy.as_secs_f64()))));
    let mut uncounted = Vec::new();
    for figure in figures {
        let is_refused =
            refused.iter().any(|(events, _)| events.split(", ").any(|name| *name == *figure.event));
        match figure.value {
            Some(value) if figure.event.starts_with("task-clock") => {
                items.push(format!("{:.2} CPUs", per_second(value / 1e3)));
            }
            Some(value) => items.push(format!("{} {}/s", short(per_second(value)), figure.event)),
            None if !is_refused => uncounted.push(&*figure.event),
            None => {}
        }
        let ratios = figure.ratios.iter().filter(|(_, unit)| unit == INSTRUCTIONS_PER_CYCLE);
        items.extend(ratios.map(|(value, unit)| format!("{value:.2} {unit}")));
    }
    let mut missing: Vec<String> = Vec::new();
    missing.extend((!hardware).then(|| "no hardware counters on this machine".to_owned()));
    missing.extend(refused.into_iter().map(|(events, reason)| format!("not available: {events}: {reason}")));
    if !uncounted.is_empty() {
        missing.push(format!("not counted in this interval: {}", uncounted.join(", ")));
    }
    CounterText { title, items, missing: (!missing.is_empty()).then(|| missing.join("; ")) }
}

/// Formats a number with three digits and a prefix: `340`, `1.23k`, `2.10G`.
fn short(number: f64) -> String {
    let scales = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    // From 999.5 on, a number would be rounded to four digits.
    let scale = scales.into_iter().find(|(scale, _)| number >= scale * 0.9995);
    let (number, prefix) = scale.map_or((number, ""), |(scale, prefix)| (number / scale, prefix));
    let digits = match number {
        _ if number == 0.0 => 0,
        ..9.995 => 2,
        9.995..99.95 => 1,
        _ => 0,
    };
    format!("{number:.digits$}{prefix}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::Figure;

    fn figure(event: &str, value: Option<f64>) -> Figure {
        Figure { event: event.into(), value, ratios: Vec::new() }
    }

    fn shown(
        figures: Vec<Figure>,
        busy: Option<Duration>,
        hardware: bool,
        refused: &[(&str, &str)],
    ) -> CounterText {
        let figures = Figures { elapsed: Duration::from_secs(2), figures };
        let refused = refused.iter().map(|(events, reason)| ((*events).to_owned(), (*reason).to_owned()));
        text("x".into(), &figures, busy, hardware, refused.collect())
    }

    #[test]
    fn counts_are_shown_per_second_and_the_clock_in_cpus() {
        let mut instructions = figure("instructions", Some(3e9));
        instructions.ratios =
            vec![(1.5, INSTRUCTIONS_PER_CYCLE.into()), (0.1, "stalled cycles per insn".into())];
        let found = shown(
            vec![
                figure("task-clock", Some(3880.0)),
                figure("page-faults", Some(680.0)),
                figure("cycles", Some(2e9)),
                instructions,
            ],
            None,
            true,
            &[],
        );
        assert_eq!(
            found.items,
            [
                "1.94 CPUs",
                "340 page-faults/s",
                "1.00G cycles/s",
                "1.50G instructions/s",
                "1.50 insn per cycle"
            ]
        );
        assert_eq!(found.missing, None);
    }

    #[test]
    fn the_busy_time_of_cpus_replaces_the_clock() {
        let found = shown(vec![figure("page-faults", Some(0.0))], Some(Duration::from_secs(1)), false, &[]);
        assert_eq!(found.items, ["0.50 CPUs", "0 page-faults/s"]);
        assert_eq!(found.missing.as_deref(), Some("no hardware counters on this machine"));
    }

    #[test]
    fn a_missing_counter_has_a_reason() {
        let found = shown(
            vec![figure("cycles", None), figure("instructions", None), figure("page-faults", None)],
            None,
            true,
            &[("cycles, instructions", "forbidden: CAP_PERFMON is missing")],
        );
        assert_eq!(
            found.missing.as_deref(),
            Some(
                "not available: cycles, instructions: forbidden: CAP_PERFMON is missing; not counted in this interval: \
                 page-faults"
            )
        );
    }

    #[test]
    fn an_interval_without_duration_has_no_rate() {
        let figures = Figures { elapsed: Duration::ZERO, figures: vec![figure("page-faults", Some(5.0))] };
        assert_eq!(text("x".into(), &figures, None, true, Vec::new()).items, ["0 page-faults/s"]);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (number, expected) in [
            (0.0, "0"),
            (0.5, "0.50"),
            (9.996, "10.0"),
            (99.96, "100"),
            (340.0, "340"),
            (999.6, "1.00k"),
            (12_345.0, "12.3k"),
            (2.1e9, "2.10G"),
            (1e15, "1000T"),
        ] {
            assert_eq!(short(number), expected);
        }
    }

    #[test]
    fn all_events_are_known_and_a_cpu_has_no_clock_that_counts_idle_time() {
        let machine = Subject::Machine { cpus: CpuSet::default(), chosen: false };
        let count = |subject: &Subject, hardware| {
            events(subject, hardware).iter().map(|group| group.events.len()).sum::<usize>()
        };
        assert_eq!((count(&machine, true), count(&machine, false)), (5, 3));
        assert_eq!(count(&Subject::Threads(vec![1]), true), 6);
    }

    #[test]
    fn a_row_keeps_its_counters_when_its_threads_change() {
        let threads = |comm: &str, threads: &[u32]| Scope::Threads {
            of: Key::Comm(comm.into()),
            threads: threads.to_vec(),
        };
        assert!(threads("a", &[1]).is_same(&threads("a", &[2])));
        assert!(
            !threads("a", &[1]).is_same(&threads("b", &[1])) && !threads("a", &[1]).is_same(&Scope::Target)
        );
    }
}
