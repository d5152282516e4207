//! The report of a check as text: errors first, then counted events, then resources.

use std::io::{self, Write};

use super::rows::{Descriptors, GroupRow};
use super::stream::{RingBound, StreamRow};
use super::words::{Together, bytes, count, heading, together};
use super::{
    Report, containers, derived, presets, profiles, publication, pushes, restrictions, rotation, traces,
};
use crate::error::printable;
use crate::health::{Line, Scope};
use crate::plan::NoStream;

/// Writes the report.
pub(super) fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let (errors, warnings) = (count(report.errors.len(), "error"), count(report.warnings.len(), "warning"));
    writeln!(out, "{}: {errors}, {warnings}", report.file)?;
    lines(out, &report.errors)?;
    lines(out, &report.warnings)?;
    heading(out, &report.notes, "Problems of this host")?;
    lines(out, &report.notes)?;
    refusals(out, &report.refusals)?;
    groups(out, report)?;
    derived::write(out, &report.metrics)?;
    presets::write(out, &report.presets)?;
    traces::write(out, &report.traces, &report.probes)?;
    publication::write(out, &report.unpublished)?;
    profiles::write(out, &report.profiles, report.profile_rings.as_ref())?;
    containers::write(out, &report.containers)?;
    pushes::write(out, &report.pushes)?;
    let is_opened = report.descriptors.as_ref().is_some_and(|descriptors| descriptors.used.is_some());
    rotation::write(out, &report.hardware_counters, is_opened)?;
    report.stream.iter().try_for_each(|row| stream(out, row))?;
    no_stream(out, &report.no_stream)?;
    report.descriptors.iter().try_for_each(|descriptors| summary(out, descriptors))?;
    restrictions::write(out, &report.restrictions)
}

fn lines(out: &mut impl Write, lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| writeln!(out, "  {line}"))
}

/// Writes the refusals, with each reason once.
fn refusals(out: &mut impl Write, rows: &[Line]) -> io::Result<()> {
    heading(out, rows, "Cannot be opened on this host")?;
    for reason in together(rows, |Line { refusal, .. }| (refusal.cause, &refusal.reason, &refusal.remedy)) {
        let refusal = &reason.first.refusal;
        writeln!(out, "  {}: {}", refusal.cause, printable(&refusal.reason))?;
        refusal.remedy.iter().try_for_each(|remedy| writeln!(out, "  {}", printable(remedy)))?;
        for place in
            together(reason.all, |line| (&line.entry, line.scope, &line.refusal.target, line.targets))
        {
            let event = |line: &&Line| match &line.position {
                Some(position) => format!("{} ({position})", line.refusal.event),
                None => line.refusal.event.to_string(),
            };
            let events: Vec<String> = place.all.iter().map(event).collect();
            let line = place.first;
            writeln!(out, "    {} per {}: {}{}", line.entry, line.scope, events.join(", "), places(line))?;
        }
    }
    Ok(())
}

/// Describes the targets, unless the entry and the scope already identify them.
fn places(line: &Line) -> String {
    let said = [
        String::from("this host"),
        format!("each {}", line.scope.words().target),
        format!("entry {}", line.entry),
    ];
    let target = &line.refusal.target;
    match line.targets {
        0 | 1 if said.contains(target) => String::new(),
        0 | 1 => format!(" ({target})"),
        more => format!(" ({target} and {} more)", more - 1),
    }
}

/// Writes the counted groups. Groups that differ only in their PMU are merged.
fn groups(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let counted = report.groups.iter().filter(|group| !group.is_refused());
    let mut title = Some(match report.descriptors {
        Some(Descriptors { used: Some(_), .. }) => "Counted on this host:",
        _ => "To be counted on this host:",
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
        let way = if group.is_streamed() { "switch stream" } else { "dedicated" };
        group.why.iter().try_for_each(|why| write!(out, ", {way} ({why})"))?;
        writeln!(out, "{}", takes(&same))?;
        let width = group.events.iter().map(String::len).max().unwrap_or(0);
        for (event, metric) in group.events.iter().zip(&group.metrics) {
            let is_refused = |line: &Line| line.is_of(&group.entry, group.scope, event);
            let refused = if report.refusals.iter().any(is_refused) {
                "  (cannot be opened on some targets)"
            } else {
                ""
            };
            writeln!(out, "    {event:width$}  {metric}{refused}")?;
        }
    }
    Ok(())
}

/// Describes the number of counted targets and the descriptors that each needs.
fn takes(same: &Together<'_, GroupRow>) -> String {
    let targets: Option<usize> = same.all.iter().map(|group| group.targets).sum();
    let left_out: usize = same.all.iter().filter_map(|group| group.left_out).sum();
    // Each CPU has one of several core PMUs. A cgroup or a thread is opened on all of them.
    let of_all = same.all.iter().map(|group| group.descriptors_per_target).sum();
    let (scope, first) = (same.first.scope, same.first.descriptors_per_target);
    let descriptors = if matches!(scope, Scope::Cpus(_)) { first } else { of_all };
    let each = scope.words().each;
    let counted = match (targets, left_out) {
        (None, _) => None,
        (Some(0), 0) => Some("no targets at present".to_owned()),
        (Some(targets), 0) => Some(format!("{targets} counted")),
        (Some(targets), left_out) => Some(format!("{targets} counted, {left_out} left out")),
    };
    let each = format!("{} per {each}", count(descriptors, "descriptor"));
    let said: Vec<String> = counted.into_iter().chain((!same.first.is_streamed()).then_some(each)).collect();
    if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) }
}

/// Writes the resources of the switch stream, compared with dedicated counters.
fn stream(out: &mut impl Write, stream: &StreamRow) -> io::Result<()> {
    let StreamRow { leader, cpus, descriptors, descriptors_per_cpu, record_bytes, dedicated, .. } = stream;
    let between = if stream.granularity == "cgroup" { "cgroups" } else { "threads" };
    let all = if descriptors_per_cpu * cpus == *descriptors { "" } else { "at most " };
    writeln!(out, "\nSwitch stream: one record per context switch between {between}")?;
    writeln!(out, "  leader       {leader}, on {}", count(*cpus, "CPU"))?;
    writeln!(out, "  descriptors  {all}{descriptors_per_cpu} per CPU, {descriptors} in total")?;
    let instead = each(&dedicated.takes.shares());
    let now = dedicated.at_least_now.map(|now| format!("; at least {now} at present")).unwrap_or_default();
    writeln!(out, "  replaces     {instead}{now}")?;
    writeln!(out, "  records      {record_bytes} bytes")?;
    let bound = match stream.ring_bound {
        RingBound::RingMemory => "limits.memory",
        RingBound::MlockKb => "kernel.perf_event_mlock_kb, which does not apply with CAP_IPC_LOCK",
        RingBound::Ample => "maximum useful size",
    };
    let (used, limit) = (bytes(stream.ring_bytes), bytes(stream.ring_bytes_limit));
    writeln!(
        out,
        "  rings        {used} of locked memory in total, up to {limit} if they overflow ({bound})"
    )?;
    if stream.groups.len() > 1 { turns(out, stream) } else { Ok(()) }
}

/// Writes the groups that do not fit on the PMU together, and the remedy.
fn turns(out: &mut impl Write, stream: &StreamRow) -> io::Result<()> {
    let why = "groups of hardware events per CPU, because they do not fit on the PMU together:";
    writeln!(out, "  groups       {} {why}", stream.groups.len())?;
    stream.groups.iter().try_for_each(|entries| writeln!(out, "    {}", entries.join(", ")))?;
    let how = "multiplexed and their counts are scaled. Each group writes records of its own.";
    write!(out, "  The groups are {how}\n  Remedy: configure fewer events")?;
    if stream.nmi_watchdog {
        write!(out, ", or set kernel.nmi_watchdog=0: the NMI watchdog uses a counter of every CPU")?;
    }
    writeln!(out)
}

/// Writes why groups with automatic attribution do not use the stream.
fn no_stream(out: &mut impl Write, rows: &[NoStream]) -> io::Result<()> {
    for same in together(rows, |row| (&row.why.reason, &row.why.remedy)) {
        let why = &same.first.why;
        let scopes: Vec<&str> = same.all.iter().map(|row| row.scope.words().targets).collect();
        writeln!(out, "\nNo switch stream for {}: {}", scopes.join(" and "), printable(&why.reason))?;
        why.remedy.iter().try_for_each(|remedy| writeln!(out, "  {}", printable(remedy)))?;
    }
    Ok(())
}

/// Describes the descriptors and the units that need them.
fn each(takes: &[(usize, &str)]) -> String {
    let some = takes.iter().filter(|(descriptors, _)| *descriptors > 0).enumerate();
    let said = |(place, (descriptors, target)): (usize, &(usize, &str))| match place {
        0 => format!("{} for {target}", count(*descriptors, "descriptor")),
        _ => format!("{descriptors} for {target}"),
    };
    let takes: Vec<String> = some.map(said).collect();
    if takes.is_empty() { "no descriptors".to_owned() } else { takes.join(", ") }
}

fn summary(out: &mut impl Write, descriptors: &Descriptors) -> io::Result<()> {
    let Descriptors { used, limit, stream, traced, sampled, takes } = *descriptors;
    let (tracing, sampling) = ("decoded tracepoints and probes", "profiles");
    let rings = [(stream, "the switch stream"), (traced, tracing), (sampled, sampling)];
    let takes = each(&[rings, takes.shares()].concat());
    match used {
        Some(used) => {
            writeln!(out, "\nRequires {takes}. The check opened {used} of at most {limit} descriptors")
        }
        None => writeln!(out, "\nRequires {takes}. At most {limit} may be open. The check opened none"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::GroupDescriptors;
    use super::super::stream::Dedicated;
    use super::*;

    fn text(row: &StreamRow) -> String {
        let mut out = Vec::new();
        stream(&mut out, row).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn row(groups: &[&[&str]]) -> StreamRow {
        let group = |entries: &&[&str]| entries.iter().map(|&entry| entry.to_owned()).collect();
        StreamRow {
            granularity: "cgroup".into(),
            leader: "cgroup-switches",
            cpus: 3,
            descriptors: 23,
            descriptors_per_cpu: 8,
            groups: groups.iter().map(group).collect(),
            record_bytes: 104,
            ring_bytes: 768 << 10,
            ring_bytes_limit: 3 << 19,
            ring_bound: RingBound::RingMemory,
            nmi_watchdog: true,
            dedicated: Dedicated {
                takes: GroupDescriptors { cpus: 18, per_cgroup: 12, per_thread: 0 },
                at_least_now: Some(42),
            },
        }
    }

    #[test]
    fn what_does_not_fit_on_the_pmu_together_is_named_with_what_helps() {
        let expected = "
Switch stream: one record per context switch between cgroups
  leader       cgroup-switches, on 3 CPUs
  descriptors  at most 8 per CPU, 23 in total
  replaces     18 descriptors for all CPUs, 12 for each cgroup; at least 42 at present
  records      104 bytes
  rings        768 KiB of locked memory in total, up to 1.5 MiB if they overflow (limits.memory)
  groups       2 groups of hardware events per CPU, because they do not fit on the PMU together:
    core
    cache, os
  The groups are multiplexed and their counts are scaled. Each group writes records of its own.
  Remedy: configure fewer events, or set kernel.nmi_watchdog=0: the NMI watchdog uses a counter of every CPU
";
        assert_eq!(text(&row(&[&["core"], &["cache", "os"]])), expected);
        let text = text(&row(&[&["cache", "core", "os"]]));
        assert!(!text.contains("multiplexed"), "{text}");
    }

    #[test]
    fn without_a_watchdog_nobody_is_told_to_stop_it() {
        let row = StreamRow { nmi_watchdog: false, ..row(&[&["core"], &["cache"]]) };
        assert!(!text(&row).contains("watchdog"), "{}", text(&row));
    }
}
