//! Conversion of requested events into groups to open on this host, and into output lines.

use std::sync::Arc;

use super::derive::{Count, View, has_rate};
use crate::event::metric::{CLOCK, resolved_key};
use crate::event::{Catalog, Event, Kind, Missing, Modes, Scale, Unresolved, parse, syntax};
use crate::health::Refusal;
use crate::plan::{self, Group};
use crate::targets::Targets;

/// Entry name of the measurement in refusals.
const ENTRY: &str = "stat";

/// Clock events count nanoseconds; perf shows milliseconds.
const NANOSECONDS_IN_A_MILLISECOND: f64 = 1e6;

/// One output line. As in perf, an event on the core PMUs of a hybrid machine has one line per PMU. An event on several instances of an
/// uncore PMU has one line for all instances.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    /// Event name as perf prints it, with modifiers.
    pub name: Arc<str>,
    /// Unit of the value. Empty for a plain number.
    pub unit: Arc<str>,
    scale: Option<Scale>,
    /// The key of the event in formulas. Empty if this host does not have the event.
    pub key: Arc<str>,
    pub view: View,
    /// Whether counts of other views are related to it: it is not an event of the cores.
    has_no_view: bool,
    has_rate: bool,
    /// Index of the requested group that contains the event.
    pub group: usize,
}

impl Line {
    /// Creates the line of an event. `event` is `None` if this host does not have it.
    fn of(event: Option<(&Event, &syntax::Name)>, name: Arc<str>, group: usize) -> Self {
        let key = event.map(|(event, written)| resolved_key(event, written)).unwrap_or_default();
        let event = event.map(|(event, _)| event);
        let has_rate = event.is_some_and(|event| has_rate(event, &key));
        let has_no_view = event.is_some_and(|event| event.kind == Kind::Pmu) || &*key == CLOCK;
        let view = event.map(View::of).unwrap_or_default();
        let scale = event.and_then(|event| event.scale.clone());
        let unit = match &scale {
            _ if &*key == CLOCK => "msec".into(),
            Some(scale) => Arc::clone(&scale.unit),
            None => "".into(),
        };
        Self { name, unit, scale, key, view, has_no_view, has_rate, group }
    }

    /// Creates the line of an event in a recording.
    pub(super) fn recorded(event: &Event) -> Self {
        let written = parse(&event.name).ok().and_then(|groups| groups.into_iter().next());
        let written = written.and_then(|group| group.events.into_iter().next());
        let name = written.map_or_else(|| syntax::Name::Symbol(Arc::clone(&event.name)), |event| event.name);
        Self::of(Some((event, &name)), Arc::clone(&event.name), 0)
    }

    /// Converts `count` to the unit of the line.
    pub(super) fn quantity(&self, count: u64) -> f64 {
        match &self.scale {
            _ if self.is_clock() => count as f64 / NANOSECONDS_IN_A_MILLISECOND,
            Some(scale) => scale.quantity(count),
            None => count as f64,
        }
    }

    /// Reports whether a metric of `own` may combine its count with this one as the operand `key`. Clocks and events outside of the cores
    /// have no view.
    pub(super) fn is_related(&self, key: &str, own: &Self) -> bool {
        *self.key == *key && (self.has_no_view || self.view == own.view)
    }

    /// Converts a quantity of the line to the base unit of its event, as formulas need it.
    pub(super) fn in_base_unit(&self, quantity: f64) -> f64 {
        if self.is_clock() { quantity / 1e3 } else { quantity }
    }

    /// Returns a count of the line, for metrics.
    pub(super) fn count(&self, quantity: f64) -> Count<'_> {
        let value = self.in_base_unit(quantity);
        Count { key: &self.key, pmu: self.view.pmu.as_deref(), has_rate: self.has_rate, value }
    }

    fn is_clock(&self) -> bool {
        &*self.key == CLOCK
    }

    /// Returns the value of one count in the unit of the line.
    pub(super) fn factor(&self) -> f64 {
        match &self.scale {
            _ if self.is_clock() => 1.0 / NANOSECONDS_IN_A_MILLISECOND,
            Some(scale) => scale.factor,
            None => 1.0,
        }
    }

    /// Reports whether the value is shown with decimals.
    pub(super) fn is_quantity(&self) -> bool {
        self.scale.is_some()
    }
}

/// The groups to open and the lines to show.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// Lines in the requested order.
    pub lines: Vec<Line>,
    /// Groups to open for each target.
    pub groups: Vec<Arc<Group>>,
    /// Index of the line, by group and counter.
    line_of: Vec<Vec<usize>>,
    /// Reasons why events are not in `groups`.
    pub refusals: Vec<Refusal>,
}

impl Selection {
    /// Resolves the events in `written` on this host. `modes` applies to events without `u`, `k` or `h`.
    ///
    /// # Errors
    /// If an event does not exist on any host, which indicates a typing error. Events that only this host lacks are added to the refusals.
    pub(super) fn new(
        catalog: &Catalog,
        modes: Modes,
        per: &Targets,
        written: &[syntax::Group],
    ) -> Result<Self, Unresolved> {
        let mut selection = Self::default();
        for (index, group) in written.iter().enumerate() {
            let mut members = Vec::new();
            for event in &group.events {
                match catalog.resolve_in(event, modes) {
                    Ok(instances) => members.extend(selection.show(event, instances, index)),
                    Err(unresolved) if is_mistake(unresolved.cause) => return Err(unresolved),
                    Err(unresolved) => {
                        selection.lines.push(Line::of(None, Arc::clone(&unresolved.event), index));
                        selection.refusals.push(plan::refusal(event, &unresolved));
                    }
                }
            }
            selection.plan(per, members);
        }
        Ok(selection)
    }

    /// Returns the line of a counter in a group.
    pub(super) fn line_of(&self, group: usize, counter: usize) -> Option<usize> {
        self.line_of.get(group)?.get(counter).copied()
    }

    /// Returns the event of a line. For an event on several instances of a PMU, that of one instance. `None` if this host does not have
    /// the event.
    pub(super) fn event(&self, line: usize) -> Option<&Event> {
        let groups = self.line_of.iter().zip(&self.groups);
        let mut counters = groups.flat_map(|(lines, group)| lines.iter().zip(&group.counters));
        counters.find(|(of, _)| **of == line).map(|(_, counter)| &counter.event)
    }

    /// Adds the lines of one requested event, and returns each instance with its line.
    fn show(&mut self, written: &syntax::Event, instances: Vec<Event>, group: usize) -> Vec<(usize, Event)> {
        let together = instances.len() > 1 && instances.iter().all(|event| event.kind == Kind::Pmu);
        let with_line = |(place, event): (usize, Event)| {
            if !together {
                self.lines.push(Line::of(Some((&event, &written.name)), Arc::clone(&event.name), group));
            } else if place == 0 {
                let name = written.alias.clone().unwrap_or_else(|| written.to_string().into());
                self.lines.push(Line::of(Some((&event, &written.name)), name, group));
            }
            (self.lines.len() - 1, event)
        };
        instances.into_iter().enumerate().map(with_line).collect()
    }

    /// Plans the events of one requested group.
    fn plan(&mut self, per: &Targets, members: Vec<(usize, Event)>) {
        let (lines, events): (Vec<usize>, Vec<Event>) = members.into_iter().unzip();
        let planned = plan::groups(&ENTRY.into(), per, events.clone());
        // The only refusals of the plan concern uncore PMUs. Their remedies apply to the configuration file, so they are replaced.
        let remedy = || Some("count the whole machine with -a".into());
        let refusals = planned.refusals.into_iter().map(|refused| refused.refusal);
        self.refusals.extend(refusals.map(|refusal| Refusal { remedy: remedy(), ..refusal }));
        // The same event may have been requested twice. Equal events keep their order.
        let mut unplaced: Vec<(usize, Event)> = lines.into_iter().zip(events).collect();
        for group in planned.groups {
            let mut place = |event: &Event| {
                let at = unplaced.iter().position(|(_, other)| other == event)?;
                Some(unplaced.remove(at).0)
            };
            let lines = group.counters.iter().filter_map(|counter| place(&counter.event)).collect();
            self.line_of.push(lines);
            self.groups.push(group);
        }
    }
}

/// Reports whether the requested text is invalid. On the command line, PMU terms refer to the PMUs of this host.
fn is_mistake(cause: Missing) -> bool {
    cause.is_mistake() || cause == Missing::BadTerm
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::tests::testing::selection;

    fn names(selection: &Selection) -> Vec<&str> {
        selection.lines.iter().map(|line| &*line.name).collect()
    }

    /// Returns the lines of the counters, by opened group.
    fn opened(selection: &Selection) -> Vec<Vec<&str>> {
        let line =
            |group: usize, counter: usize| &*selection.lines[selection.line_of(group, counter).unwrap()].name;
        let counters = |(index, group): (usize, &Arc<Group>)| {
            (0..group.counters.len()).map(|counter| line(index, counter)).collect()
        };
        selection.groups.iter().enumerate().map(counters).collect()
    }

    #[test]
    fn instances_of_an_uncore_pmu_share_a_line_and_kinds_of_cores_do_not() {
        let server =
            selection("intel-server", &Targets::CPU, "uncore_imc/cas_count_read/,power/energy-pkg/").unwrap();
        assert_eq!(names(&server), ["uncore_imc/cas_count_read/", "power/energy-pkg/"]);
        assert!(server.groups.len() > 2, "{}", server.groups.len());
        assert_eq!(server.lines[1].unit.as_ref(), "joules");
        let hybrid = selection("intel-hybrid", &Targets::CPU, "{cycles,instructions}").unwrap();
        let expected =
            ["cpu_atom/cycles/", "cpu_core/cycles/", "cpu_atom/instructions/", "cpu_core/instructions/"];
        assert_eq!(names(&hybrid), expected);
        assert_eq!(opened(&hybrid).len(), 2);
        for group in opened(&hybrid) {
            assert_eq!(group.len(), 2, "{group:?}");
        }
    }

    #[test]
    fn an_event_that_is_written_twice_has_two_lines_and_is_counted_twice() {
        let twice = selection("amd", &Targets::CPU, "{cycles,instructions},{cycles,cycles}").unwrap();
        assert_eq!(names(&twice), ["cycles", "instructions", "cycles", "cycles"]);
        assert_eq!(opened(&twice), [["cycles", "instructions"], ["cycles", "cycles"]]);
        assert_eq!(twice.line_of(1, 1), Some(3));
        assert!(twice.refusals.is_empty(), "{:?}", twice.refusals);
    }

    #[test]
    fn what_this_host_lacks_has_a_line_and_what_no_host_has_is_an_error() {
        let vm = selection("vm", &Targets::CPU, "power/energy-pkg/,task-clock").unwrap();
        assert_eq!(names(&vm), ["power/energy-pkg/", "task-clock"]);
        assert_eq!(opened(&vm), [["task-clock"]]);
        assert_eq!(vm.refusals.len(), 1);
        let error = selection("vm", &Targets::CPU, "task-clock,cylces").unwrap_err();
        assert_eq!(error.suggestion.as_deref(), Some("cycles"));
    }

    #[test]
    fn clocks_are_shown_in_milliseconds() {
        let clocks = selection("vm", &Targets::CPU, "task-clock,page-faults").unwrap();
        assert_eq!(clocks.lines[0].quantity(1_500_000), 1.5);
        assert_eq!((&*clocks.lines[0].unit, clocks.lines[0].is_quantity()), ("msec", true));
        assert_eq!(clocks.lines[1].quantity(1_500_000), 1_500_000.0);
        assert_eq!((&*clocks.lines[1].unit, clocks.lines[1].is_quantity()), ("", false));
    }
}
