//! The report of a check for people: what is wrong first, then what is counted, then what it takes.

use std::io::{self, Write};

use super::{Descriptors, GroupRow, RefusalRow, Report};
use crate::error::printable;

/// Writes the report.
pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (errors, warnings) = (count(report.errors.len(), "error"), count(report.warnings.len(), "warning"));
    writeln!(out, "{}: {errors}, {warnings}", report.file)?;
    lines(out, &report.errors)?;
    lines(out, &report.warnings)?;
    if !report.notes.is_empty() {
        writeln!(out, "\nOn this host:")?;
        lines(out, &report.notes)?;
    }
    refusals(out, &report.refusals)?;
    groups(out, report)?;
    report.descriptors.iter().try_for_each(|descriptors| summary(out, descriptors))
}

fn lines(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "  {line}"))
}

/// What is refused, each reason once.
fn refusals(out: &mut impl Write, rows: &[RefusalRow]) -> io::Result<()> {
    if !rows.is_empty() {
        writeln!(out, "\nNot counted here:")?;
    }
    for reason in together(rows, |row| (row.cause, &row.reason, &row.remedy)) {
        let row = reason.first;
        writeln!(out, "  {}: {}", row.cause, printable(&row.reason))?;
        row.remedy.iter().try_for_each(|remedy| writeln!(out, "  {}", printable(remedy)))?;
        for place in together(reason.all, |row| (&row.entry, row.scope, &row.target, row.targets)) {
            let events: Vec<&str> = place.all.iter().map(|row| &*row.event).collect();
            let row = place.first;
            writeln!(out, "    {} per {}: {}{}", row.entry, row.scope, events.join(", "), places(row))?;
        }
    }
    Ok(())
}

/// Where, if that says more than the entry and the scope do.
fn places(row: &RefusalRow) -> String {
    let said = [String::from("this host"), format!("each {}", row.scope), format!("entry {}", row.entry)];
    match row.targets {
        0 | 1 if said.contains(&row.target) => String::new(),
        0 | 1 => format!(" ({})", row.target),
        more => format!(" ({} and {} more)", row.target, more - 1),
    }
}

/// What is counted. Groups that differ in their PMU alone are told together.
fn groups(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let counted = report.groups.iter().filter(|group| !group.is_refused());
    let mut title = Some(match report.descriptors {
        Some(Descriptors { used: Some(_), .. }) => "Counted here:",
        _ => "To be counted here:",
    });
    for same in together(counted, |group| (&group.entry, group.scope, &group.metrics)) {
        let group = same.first;
        if let Some(title) = title.take() {
            writeln!(out, "\n{title}")?;
        }
        write!(out, "  {} per {}", group.entry, group.scope)?;
        let pmus: Vec<&str> = same.all.iter().filter_map(|group| group.pmu.as_deref()).collect();
        if !pmus.is_empty() {
            write!(out, " on {}", pmus.join(", "))?;
        }
        writeln!(out, ": {}", takes(&same))?;
        let width = group.events.iter().map(String::len).max().unwrap_or(0);
        for (event, metric) in group.events.iter().zip(&group.metrics) {
            let refused = report.refusals.iter().filter(|row| row.is_of(group, event)).count();
            let refused = if refused > 0 { "  (refused in some places)" } else { "" };
            writeln!(out, "    {event:width$}  {metric}{refused}")?;
        }
    }
    Ok(())
}

impl RefusalRow {
    fn is_of(&self, group: &GroupRow, event: &str) -> bool {
        self.entry == group.entry && self.scope == group.scope && self.event == event
    }
}

/// For how many a group counts, and what each of them takes.
fn takes(same: &Together<'_, GroupRow>) -> String {
    let targets: Option<usize> = same.all.iter().map(|group| group.targets).sum();
    let left_out: usize = same.all.iter().filter_map(|group| group.left_out).sum();
    // A CPU has one of several core PMUs; a cgroup and a thread are opened on all of them.
    let of_all = same.all.iter().map(|group| group.descriptors_per_target).sum();
    let (descriptors, each) = match same.first.scope {
        "cgroup" => (of_all, "cgroup"),
        "process" => (of_all, "thread"),
        "pmu" => (same.first.descriptors_per_target, "cpu of each PMU"),
        _ => (same.first.descriptors_per_target, "cpu"),
    };
    let each = format!("{} for each {each}", count(descriptors, "descriptor"));
    match (targets, left_out) {
        (None, _) => each,
        (Some(0), 0) => format!("there is none now, {each}"),
        (Some(targets), 0) => format!("{targets} counted, {each}"),
        (Some(targets), left_out) => format!("{targets} counted, {left_out} left out, {each}"),
    }
}

fn summary(out: &mut impl Write, descriptors: &Descriptors) -> io::Result<()> {
    let Descriptors { used, limit, cpus, per_cgroup, per_thread } = *descriptors;
    let each = [(cpus, "all CPUs"), (per_cgroup, "each cgroup"), (per_thread, "each thread")];
    let takes: Vec<String> = each
        .iter()
        .filter(|(descriptors, _)| *descriptors > 0)
        .map(|(descriptors, whom)| format!("{} for {whom}", count(*descriptors, "descriptor")))
        .collect();
    let takes = if takes.is_empty() { "no descriptors".to_owned() } else { takes.join(", ") };
    match used {
        Some(used) => writeln!(out, "\nIt takes {takes}; {used} of {limit} are used"),
        None => writeln!(out, "\nIt takes {takes}; {limit} are allowed. Nothing was opened"),
    }
}

/// Rows that agree in what matters.
struct Together<'a, T> {
    first: &'a T,
    /// All of them, the first included.
    all: Vec<&'a T>,
}

/// Rows that have the same key, in the order in which each key comes first.
fn together<'a, T, K: PartialEq>(
    rows: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> Vec<Together<'a, T>> {
    let mut groups: Vec<Together<'a, T>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| key(group.first) == key(row)) {
            Some(group) => group.all.push(row),
            None => groups.push(Together { first: row, all: vec![row] }),
        }
    }
    groups
}

/// `no warnings`, `1 warning`, `2 warnings`.
fn count(number: usize, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        more => format!("{more} {what}s"),
    }
}
