//! Use of the hardware counters in the report of a check.

use std::io::{self, Write};
use std::sync::Arc;

use serde::Serialize;

use super::words::{heading, together};
use crate::event::{Capacity, Catalog};
use crate::plan::{ERROR_TIME, GroupUser, Plan, RotatedGroup, Rotation};

/// Maximum number of turns that the text shows.
const TURNS_SHOWN: usize = 8;

/// A PMU with a limited number of counters, and the groups that use it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct RotationRow {
    pmu: String,
    /// `None`: the number of counters is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    counters: Option<CountersRow>,
    /// Reason why the number of counters is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// Whether the NMI watchdog occupies a counter on every CPU.
    nmi_watchdog: bool,
    /// Duration of a turn, in milliseconds.
    turn_ms: u64,
    groups: Vec<RotatedRow>,
    /// Groups that are on the PMU in each turn, by their number in `groups`.
    turns: Vec<Vec<usize>>,
}

/// The counters of a PMU.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct CountersRow {
    general: u32,
    /// Events with a counter of their own.
    fixed: Vec<String>,
    /// Source of the numbers.
    source: String,
}

/// A group of events that use the PMU together.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct RotatedRow {
    entries: Vec<String>,
    /// `switch stream`, `profile`, or the scope with dedicated events.
    by: String,
    events: Vec<String>,
    pinned: bool,
    /// Expected share of the time in which the group is on the PMU.
    #[serde(skip_serializing_if = "Option::is_none")]
    running_ratio: Option<f64>,
    /// Expected standard error of a count in ten seconds of a busy CPU, in percent of the count.
    #[serde(skip_serializing_if = "Option::is_none")]
    standard_error_percent: Option<f64>,
    /// Events that do not fit on the PMU together with the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    left_out: Vec<String>,
    /// Expected share of the time if the events were in groups that fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    running_ratio_apart: Option<f64>,
}

impl RotationRow {
    /// Returns the rows of a plan. `capacity` returns the counters of a PMU.
    pub(super) fn all(
        plan: &Plan,
        catalog: &Catalog,
        capacity: impl Fn(Option<&str>) -> Capacity,
    ) -> Vec<Self> {
        if !catalog.has_core_pmu() {
            return Vec::new();
        }
        let rotations = plan.rotations(catalog, capacity);
        let limited = rotations.iter().filter(|rotation| rotation.capacity != Capacity::Unlimited);
        limited.map(|rotation| Self::new(rotation, catalog)).collect()
    }

    fn new(rotation: &Rotation, catalog: &Catalog) -> Self {
        let (counters, unknown) = match &rotation.capacity {
            Capacity::Limited(set) => {
                let fixed = set.fixed.iter().map(|fixed| fixed.event.to_string()).collect();
                let source = set.basis.to_string();
                (Some(CountersRow { general: set.general, fixed, source }), None)
            }
            Capacity::Unknown(unknown) => (None, Some(unknown.reason.clone())),
            Capacity::Unlimited => (None, None),
        };
        let pmu = rotation.pmu.as_deref().or_else(|| catalog.core_pmu()).unwrap_or("cpu");
        Self {
            pmu: pmu.to_owned(),
            counters,
            unknown,
            nmi_watchdog: rotation.watchdog,
            turn_ms: u64::try_from(rotation.interval.as_millis()).unwrap_or(u64::MAX),
            groups: rotation.groups.iter().map(|group| RotatedRow::new(group, rotation)).collect(),
            turns: rotation.turns.clone(),
        }
    }
}

impl RotatedRow {
    fn new(group: &RotatedGroup, rotation: &Rotation) -> Self {
        let names = |names: &[Arc<str>]| names.iter().map(ToString::to_string).collect();
        let percent = |error: f64| (error * 1e4).round() / 1e2;
        let rounded = |ratio: f64| (ratio * 1e4).round() / 1e4;
        Self {
            entries: names(&group.entries),
            by: match group.user {
                GroupUser::Stream => "switch stream".into(),
                GroupUser::Profile => "profile".into(),
                GroupUser::Dedicated(scope) => format!("per {scope}"),
            },
            events: names(&group.events),
            pinned: group.pinned,
            running_ratio: group.ratio.map(rounded),
            standard_error_percent: group.standard_error(rotation.interval).map(percent),
            left_out: names(&group.left_out),
            running_ratio_apart: group.ratio_apart.map(rounded),
        }
    }

    fn label(&self) -> String {
        format!("{} ({})", self.entries.join(", "), self.by)
    }

    fn is_starved(&self) -> bool {
        self.running_ratio == Some(0.0)
    }
}

/// Writes the counters of each PMU and the groups on it. PMUs that differ only in their number are merged.
pub(super) fn write(out: &mut impl Write, rows: &[RotationRow], is_opened: bool) -> io::Result<()> {
    heading(out, rows, "Hardware counters")?;
    let without_pmu = |row: &RotationRow| RotationRow { pmu: String::new(), ..row.clone() };
    for same in together(rows, without_pmu) {
        let pmus: Vec<&str> = same.all.iter().map(|row| &*row.pmu).collect();
        write_pmu(out, same.first, &pmus.join(", "), is_opened)?;
    }
    Ok(())
}

fn write_pmu(out: &mut impl Write, row: &RotationRow, pmu: &str, is_opened: bool) -> io::Result<()> {
    let Some(CountersRow { general, fixed, source }) = &row.counters else {
        let reason = row.unknown.as_deref().unwrap_or_default();
        writeln!(out, "  {pmu}: unknown number of counters: {reason}")?;
        return match is_opened {
            true => Ok(()),
            false => writeln!(out, "    To measure it, run check without --no-open"),
        };
    };
    write!(out, "  {pmu}: {general} general")?;
    if !fixed.is_empty() {
        write!(out, ", {} fixed ({})", fixed.len(), fixed.join(", "))?;
    }
    writeln!(out, "; {source}")?;
    if row.nmi_watchdog {
        writeln!(out, "    The NMI watchdog uses a counter. To free it, set kernel.nmi_watchdog=0")?;
    }
    if row.groups.iter().all(|group| group.running_ratio == Some(1.0) && group.left_out.is_empty()) {
        let names: Vec<String> = row.groups.iter().map(|group| name(row, group)).collect();
        return writeln!(out, "    All groups are on the PMU at all times: {}", names.join(", "));
    }
    groups(out, row)?;
    turns(out, row)
}

/// Writes the expected ratio and error of each group.
fn groups(out: &mut impl Write, row: &RotationRow) -> io::Result<()> {
    let seconds = ERROR_TIME.as_secs();
    writeln!(out, "    Running ratio, and standard error of a count in {seconds} s of a busy CPU:")?;
    let labels: Vec<String> = row.groups.iter().map(|group| name(row, group)).collect();
    let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    for (group, label) in row.groups.iter().zip(&labels) {
        let ratio = percent(group.running_ratio.unwrap_or(0.0));
        let error = match group.standard_error_percent {
            Some(error) if error > 0.0 => format!("  ±{error:.1} %"),
            _ => String::new(),
        };
        writeln!(out, "      {label:width$}  {ratio:>5}{error}")?;
        problem(out, group)?;
    }
    Ok(())
}

/// Writes what prevents a group from counting, and the remedy.
fn problem(out: &mut impl Write, group: &RotatedRow) -> io::Result<()> {
    if !group.left_out.is_empty() {
        writeln!(out, "        does not fit together with the rest: {}", group.left_out.join(", "))?;
        if let Some(ratio) = group.running_ratio_apart {
            let ratio = percent(ratio);
            writeln!(out, "        with group: false, or in several groups, the running ratio is {ratio}")?;
        }
    }
    match (group.is_starved(), group.pinned) {
        (false, _) => Ok(()),
        (true, true) => {
            writeln!(out, "        never counts: the counters that it needs are occupied at all times")
        }
        (true, false) => writeln!(
            out,
            "        never counts: pinned groups, groups of CPUs or the watchdog occupy the counters that it needs; use \
             smaller groups"
        ),
    }
}

/// Writes the turns, if there are several.
fn turns(out: &mut impl Write, row: &RotationRow) -> io::Result<()> {
    if row.turns.len() < 2 {
        return Ok(());
    }
    writeln!(out, "    {} turns of {} ms:", row.turns.len(), row.turn_ms)?;
    for turn in row.turns.iter().take(TURNS_SHOWN) {
        let groups = turn.iter().filter_map(|&number| row.groups.get(number));
        let groups: Vec<String> = groups.map(|group| name(row, group)).collect();
        let groups = if groups.is_empty() { "none".to_owned() } else { groups.join(" + ") };
        writeln!(out, "      {groups}")?;
    }
    match row.turns.len().saturating_sub(TURNS_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "      and {more} more"),
    }
}

/// Returns the name of a group: its entries, and its first event if other groups have the same entries.
fn name(row: &RotationRow, group: &RotatedRow) -> String {
    let label = group.label();
    let same = row.groups.iter().filter(|other| other.label() == label).count();
    match &*group.events {
        [event] if same > 1 => format!("{label}: {event}"),
        [event, rest @ ..] if same > 1 => format!("{label}: {event} and {} more", rest.len()),
        _ => label,
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.0} %", ratio * 100.0)
}
