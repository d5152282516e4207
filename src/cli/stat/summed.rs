//! Counters for the display of another command: opened once for a target, read at intervals, summed over its CPUs, threads and cgroups.

use std::sync::Arc;
use std::time::Duration;

use super::aggregation::{Part, Parts};
use super::select::Selection;
use super::session::{open_all, read_all};
use super::table::{Frame, Key, Row, Totals, Value};
use crate::cli::observe::{Failure, Host, Subject};
use crate::clock::Monotonic;
use crate::counter::Measurement;
use crate::event::{Modes, syntax};
use crate::health::Refusal;
use crate::sys::{Budget, Event, Kernel};

/// The count of one event in an interval.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Figure {
    /// Name of the event as perf prints it.
    pub(in crate::cli) event: Arc<str>,
    /// The count; milliseconds for clocks. `None` if the event could not be opened, was never on the PMU, or its target did not run.
    pub(in crate::cli) value: Option<f64>,
    /// Ratios that perf derives from the count, with their units: (0.83, `insn per cycle`).
    pub(in crate::cli) ratios: Vec<(f64, String)>,
}

/// The counts of one interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub(in crate::cli) struct Figures {
    /// Duration of the interval.
    pub(in crate::cli) elapsed: Duration,
    /// The events in the requested order.
    pub(in crate::cli) figures: Vec<Figure>,
}

/// Open counters of a target. Dropping them closes them.
#[derive(Debug)]
pub(in crate::cli) struct Summed<E> {
    selection: Selection,
    open: Vec<Measurement<E>>,
    read: Monotonic,
    /// Reasons why other events could not be opened.
    pub(in crate::cli) refusals: Vec<Refusal>,
}

impl<E: Event> Summed<E> {
    /// Opens and enables `events` for `subject`, as far as the kernel permits and descriptors are left in `budget`.
    ///
    /// # Errors
    /// If an event does not exist on any host, or if the target has ended.
    pub(in crate::cli) fn open<K: Kernel<Event = E>>(
        host: &Host<'_, K>,
        subject: &Subject,
        events: &[syntax::Group],
        mut budget: Budget,
    ) -> Result<Self, Failure> {
        let modes = Modes::permitted(subject.user_space_only(host.facts()));
        let selection = Selection::new(&host.catalog, modes, &subject.per(), events)
            .map_err(|unresolved| Failure::Usage(anyhow::Error::new(unresolved)))?;
        let targets = subject.distinct_targets(host.roots, None)?;
        let core_pmu = host.catalog.has_core_pmu();
        let (open, refusals) =
            open_all(host.kernel, host.facts(), core_pmu, &mut budget, &selection, &targets);
        let started = open.iter().try_for_each(Measurement::start);
        started.map_err(|errno| anyhow::anyhow!("cannot enable the counters: {errno}"))?;
        Ok(Self { selection, open, read: host.clock.monotonic(), refusals })
    }

    /// Returns the counts since the last call, or since the counters were opened.
    pub(in crate::cli) fn read(&mut self, now: Monotonic) -> Figures {
        let elapsed = now.since(self.read);
        self.read = now;
        let summed = |_, line, _| Key { cgroup: 0, line, part: Part::Whole };
        let reading = read_all(&mut self.open, &self.selection, elapsed, false, summed);
        let (lines, parts) = (&self.selection.lines, Parts::default());
        let frame = Frame::of(lines, &parts);
        let figures = Totals::of(lines, &reading).rows(&frame).into_iter().map(figure).collect();
        Figures { elapsed, figures }
    }
}

fn figure(row: Row) -> Figure {
    let value = match row.value {
        Value::Counted(value) => Some(value),
        Value::NotCounted | Value::NotSupported => None,
    };
    let ratios = row.metrics.into_iter().map(|metric| (metric.value, metric.unit)).collect();
    Figure { event: row.event, value, ratios }
}
