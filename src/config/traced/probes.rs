//! The entries of `probes`: where, what is taken from there, and what becomes of it.

use std::sync::Arc;

use super::fields::{Fields, Time, compared, filter, histogram, labels, measure, values};
use super::{Label, Measure, Traced, TracedKind, What};
use crate::config::decode::At;
use crate::config::file::{Histogram, PID_MAX, Probe, Within};
use crate::config::per::per;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::selection::Selections;
use crate::config::value::List;
use crate::probe::argument::Argument;
use crate::probe::{self, Definition, Location, ProbeKind, Root};

/// The kernel's `MAX_TRACE_ARGS`.
const ARGUMENT_LIMIT: usize = 128;

/// What an entry says; `None` if it does not say where.
pub(super) fn probe(
    name: &At<String>,
    entry: &At<Probe>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Traced> {
    let histogram = histogram(entry.histogram.as_ref(), report);
    let place = place(name, entry, report);
    let kind = place.as_ref().map(|(kind, _)| *kind);
    let root = root(entry.within.as_ref(), kind, report);
    let ends = kind.is_none_or(|kind| kind.returns() || is_timed(kind, histogram));
    let arguments = arguments(entry.arguments.as_ref(), ends, report);
    let names: Vec<Arc<str>> = arguments.iter().map(|argument| Arc::clone(&argument.name)).collect();
    // Of what is wrong here, nothing else follows.
    let known = match &entry.arguments {
        Some(arguments) if report.blames(arguments.node) => None,
        None if kind.is_none_or(|kind| kind == ProbeKind::Usdt) || report.gives(entry.node, "arguments") => {
            None
        }
        _ => Some(&names[..]),
    };
    let fields = Fields::Probe(known);
    let per = per(&entry.whom(), selections, report);
    let filter = filter(entry.filter.as_ref(), fields, report);
    let labels = labels(entry.labels.as_ref(), fields, &per, report);
    let values = values(entry.values.as_ref(), entry.labels.as_ref(), entry.node, report);
    let time = time(place.as_ref());
    let measure = measure(entry.sum.as_ref(), histogram, time, fields, report);
    let (_, location) = place?;
    let arguments = match (known, kind) {
        (None, Some(ProbeKind::Usdt)) if entry.arguments.is_none() => {
            of_marker(&labels, &measure, filter.as_deref())
        }
        _ => arguments,
    };
    let definition = Definition { location: location?, root, arguments };
    let what = match measure {
        Measure::Elapsed(_) => What::Timed(definition),
        _ => What::Probe(definition),
    };
    let (kind, name) = (TracedKind::Probe, name.value.as_str().into());
    Some(Traced { kind, name, what, per, filter, labels, measure, values })
}

/// The arguments of a marker that an entry makes use of, by their places: `arg1`, `arg2`, … Which of them it has, its file
/// tells.
fn of_marker(labels: &[Label], measure: &Measure, filter: Option<&str>) -> Vec<Argument> {
    let mut fields: Vec<&str> = labels.iter().map(|label| &*label.field).collect();
    fields.extend(filter.into_iter().flat_map(compared));
    if let Measure::Sum(of) | Measure::Histogram(of, _) = measure {
        fields.push(&of.field);
    }
    fields.retain(|field| field.starts_with("arg"));
    fields.sort_unstable();
    fields.dedup();
    fields.iter().filter_map(|field| Argument::parse(&format!("{field}=${field}")).ok()).collect()
}

/// The probe of an entry: its kind, and where it is; no place if that cannot be understood.
pub(in crate::config) type Place = (ProbeKind, Option<Location>);

/// What an entry says about where a probe is, in the order of [`ProbeKind::ALL`].
type Written<'e> = [Option<&'e At<String>>; ProbeKind::ALL.len()];

fn place(name: &At<String>, entry: &At<Probe>, report: &mut Report<'_>) -> Option<Place> {
    let Probe { kprobe, kretprobe, uprobe, uretprobe, usdt, .. } = &entry.value;
    let place = one_place([kprobe, kretprobe, uprobe, uretprobe, usdt].map(Option::as_ref), report);
    if place.is_none() && !report.blames(entry.node) {
        let message = "the entry does not say where";
        let hint = "write one of `kprobe`, `kretprobe`, `uprobe`, `uretprobe` and `usdt`";
        report.error(name.node, message, hint);
    }
    place
}

/// Which kind of probe an entry has, and where. `None` if it has none.
pub(in crate::config) fn one_place(written: Written<'_>, report: &mut Report<'_>) -> Option<Place> {
    let written = ProbeKind::ALL.into_iter().zip(written);
    let mut written = written.filter_map(|(kind, text)| Some((kind, text?)));
    let (kind, text) = written.next()?;
    if let Some((_, second)) = written.next() {
        let message = "an entry is of one probe";
        report.error(second.node, message, "make two entries of it");
    }
    let location = report.parsed(text, &format!("no place of a {kind}"), Location::parse(kind, text));
    Some((kind, location))
}

/// In whose files the path is.
pub(in crate::config) fn root(
    written: Option<&At<Within>>,
    kind: Option<ProbeKind>,
    report: &mut Report<'_>,
) -> Root {
    let Some(At { node, value: Within { cgroup, pid } }) = written else { return Root::Host };
    if matches!(kind, Some(ProbeKind::Kprobe | ProbeKind::Kretprobe)) {
        let message = "a probe of the kernel is in no file";
        let hint = "leave it out; it is the same for everybody";
        report.error(*node, message, hint);
    }
    match (cgroup, pid) {
        (Some(cgroup), None) => {
            cgroup_path(cgroup, report);
            Root::Cgroup(cgroup.value.as_str().into())
        }
        (None, Some(pid)) => report.number(Some(pid), PID_MAX).map_or(Root::Host, Root::Process),
        (Some(_), Some(pid)) => {
            report.error(pid.node, "a path is in the files of a `cgroup` or a `pid`, not of both", None);
            Root::Host
        }
        (None, None) => {
            if !report.blames(*node) {
                let hint = "write {cgroup: /…} or {pid: 123}, or leave it out for the files of the host";
                report.error(*node, "this does not say in whose files", hint);
            }
            Root::Host
        }
    }
}

fn cgroup_path(cgroup: &At<String>, report: &mut Report<'_>) {
    let (message, hint) = if let Some(below) = cgroup.strip_prefix("/sys/fs/cgroup") {
        let below = below.strip_prefix("/unified").unwrap_or(below);
        (
            format!("{} is not below the mount point", shown(cgroup)),
            format!("write `{}`", if below.is_empty() { "/" } else { below }),
        )
    } else if cgroup.contains(['*', '?', '[', '{']) {
        let message = format!("{} is a pattern, and files are those of one cgroup", shown(cgroup));
        (message, "write its path".into())
    } else if !cgroup.starts_with('/') {
        (format!("{} is not the path of a cgroup", shown(cgroup)), format!("write `/{}`", cgroup.value))
    } else {
        return;
    };
    report.error(cgroup.node, message, hint);
}

/// What is taken, each under a name of its own; if the function `ends` at the probe, also what it returns.
fn arguments(written: Option<&At<List<String>>>, ends: bool, report: &mut Report<'_>) -> Vec<Argument> {
    let Some(list) = written else { return Vec::new() };
    report.not_empty(written, "takes nothing", "leave it out");
    if list.len() > ARGUMENT_LIMIT {
        let message = format!("{} arguments, and the kernel takes {ARGUMENT_LIMIT}", list.len());
        report.error(list.node, message, None);
        return Vec::new();
    }
    let mut arguments: Vec<Argument> = Vec::new();
    for (place, text) in (1..).zip(list.iter()) {
        let parsed = Argument::parse_nth(text, place);
        let Some(argument) = report.parsed(text, "no argument", parsed) else { continue };
        if !ends && argument.fetch.is_returned() {
            let message = "what a function returns is not known before it does";
            let hint = "write `kretprobe` or `uretprobe`, or measure `histogram: seconds` until it returns";
            report.error(text.node, message, hint);
        }
        if arguments.iter().any(|other| other.name == argument.name) {
            let message = format!("two arguments {}", shown(&argument.name));
            report.error(text.node, message, format!("name one apart: {}_2=…", argument.name));
        }
        arguments.push(argument);
    }
    arguments
}

/// Whether an entry is about a function from its entry to its return.
fn is_timed(kind: ProbeKind, histogram: Option<&At<Histogram>>) -> bool {
    matches!(kind, ProbeKind::Kprobe | ProbeKind::Uprobe)
        && histogram.is_some_and(|histogram| histogram.of().is_none())
}

/// What time can pass at a probe.
fn time(place: Option<&Place>) -> Time {
    let instead = "write `kprobe` or `uprobe` for the time from a function's entry to its return";
    match place {
        Some((kind, _)) if kind.returns() => Time::None("a return takes none", instead),
        Some((ProbeKind::Usdt, _)) => Time::None("a marker takes none", instead),
        Some((_, Some(location))) if !is_entry(location) => Time::None(
            "it ends where the function returns, so it begins at its entry",
            "leave out the offset",
        ),
        _ => Time::Call,
    }
}

/// Whether a place is the entry of a function.
fn is_entry(location: &Location) -> bool {
    match location {
        Location::Kernel { offset, .. } => *offset == 0,
        Location::User { at: probe::At::Symbol { offset, .. }, .. } => *offset == 0,
        // Whoever gives an offset in the file says that it is one.
        Location::User { at: probe::At::Offset(_), .. } => true,
        Location::Usdt { .. } => false,
    }
}
