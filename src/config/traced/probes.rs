//! Checks of the entries of `probes`: location, arguments and measured value.

use std::sync::Arc;

use super::fields::{Fields, Time, compared, filter, histogram, labels, measure, values};
use super::{EventSource, Label, Measure, Traced, TracedKind};
use crate::config::decode::{At, node_of};
use crate::config::file::{self, Histogram, PID_MAX, Probe};
use crate::config::per::per;
use crate::config::pods;
use crate::config::problem::shown;
use crate::config::report::Report;
use crate::config::selection::{Path, Selections, below_mount, path};
use crate::config::value::List;
use crate::metrics::Level;
use crate::probe::argument::Argument;
use crate::probe::{self, Definition, Location, ProbeKind, Root, Within};
use crate::targets::ContainerRule;

/// The kernel's `MAX_TRACE_ARGS`.
const ARGUMENT_LIMIT: usize = 128;

/// Returns the checked entry; `None` if it has no location.
pub(super) fn probe(
    name: &At<String>,
    entry: &At<Probe>,
    selections: &Selections,
    report: &mut Report<'_>,
) -> Option<Traced> {
    let histogram = histogram(&entry.histogram, report);
    let place = place(name, entry, report);
    let kind = place.as_ref().map(|(kind, _)| *kind);
    let within = within(&entry.within, kind, report);
    let ends = kind.is_none_or(|kind| kind.returns() || is_timed(kind, histogram));
    let arguments = arguments(&entry.arguments, ends, report);
    let names: Vec<Arc<str>> = arguments.iter().map(|argument| Arc::clone(&argument.name)).collect();
    // Invalid arguments cause no further problems.
    let known = match &entry.arguments {
        Some(arguments) if report.blames(arguments.node) => None,
        None if kind.is_none_or(|kind| kind == ProbeKind::Usdt) || report.gives(entry.node, "arguments") => {
            None
        }
        _ => Some(&names[..]),
    };
    let fields = Fields::Probe(known);
    let per = per(&entry.target_keys(), selections, report);
    let filter = filter(&entry.filter, fields, report);
    let labels = labels(&entry.labels, fields, &per, report);
    let level = entry.level.as_ref().map_or(Level::default(), |at| at.value);
    let values = values(&entry.values, &entry.labels, entry.node, report);
    let time = time(place.as_ref());
    let measure = measure(&entry.sum, histogram, time, fields, report);
    let (_, location) = place?;
    let arguments = match (known, kind) {
        (None, Some(ProbeKind::Usdt)) if entry.arguments.is_none() => {
            of_usdt_probe(&labels, &measure, filter.as_deref())
        }
        _ => arguments,
    };
    let definition = Definition { location: location?, within, arguments };
    let source = match measure {
        Measure::Elapsed(_) => EventSource::Timed(definition),
        _ => EventSource::Probe(definition),
    };
    let (kind, name) = (TracedKind::Probe, name.value.as_str().into());
    Some(Traced { kind, name, source, per, filter, labels, measure, values, level })
}

/// Returns the arguments of a USDT probe that an entry uses, by position: `arg1`, `arg2`, … The file of the program determines which of
/// them exist.
fn of_usdt_probe(labels: &[Label], measure: &Measure, filter: Option<&str>) -> Vec<Argument> {
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

/// Kind and location of a probe; `None` if the location is invalid.
pub(in crate::config) type Place = (ProbeKind, Option<Location>);

/// Texts of the probe location keys, in the order of [`ProbeKind::ALL`].
type Written<'e> = [&'e Option<At<String>>; ProbeKind::ALL.len()];

fn place(name: &At<String>, entry: &At<Probe>, report: &mut Report<'_>) -> Option<Place> {
    let Probe { kprobe, kretprobe, uprobe, uretprobe, usdt, .. } = &entry.value;
    let place = one_place([kprobe, kretprobe, uprobe, uretprobe, usdt], report);
    if place.is_none() && !report.blames(entry.node) {
        let message = "the entry has no probe location";
        let hint = "write one of `kprobe`, `kretprobe`, `uprobe`, `uretprobe` and `usdt`";
        report.error(name.node, message, hint);
    }
    place
}

/// Returns the kind and location of the probe of an entry; `None` if it has none.
pub(in crate::config) fn one_place(written: Written<'_>, report: &mut Report<'_>) -> Option<Place> {
    let written = ProbeKind::ALL.into_iter().zip(written);
    let mut written = written.filter_map(|(kind, text)| Some((kind, text.as_ref()?)));
    let (kind, text) = written.next()?;
    if let Some((_, second)) = written.next() {
        let message = "an entry has only one probe";
        report.error(second.node, message, "split it into two entries");
    }
    let location =
        report.parsed(text, &format!("not a valid location of a {kind}"), Location::parse(kind, text));
    Some((kind, location))
}

/// Returns where the path is searched.
pub(in crate::config) fn within(
    written: &Option<At<file::Within>>,
    kind: Option<ProbeKind>,
    report: &mut Report<'_>,
) -> Within {
    let Some(At { node, value }) = written else { return Within::default() };
    let file::Within { cgroup, namespace, pod, container, labels, pid } = value;
    if matches!(kind, Some(ProbeKind::Kprobe | ProbeKind::Kretprobe)) {
        let message = "a kernel probe has no file";
        let hint = "leave it out; kernel probes are the same for all processes";
        report.error(*node, message, hint);
    }
    let of_pod = [node_of(namespace), node_of(pod), node_of(container), node_of(labels)];
    let has_rule = of_pod.into_iter().any(|node| node.is_some());
    if let (Some(pid), true) = (pid, cgroup.is_some() || has_rule) {
        let message = match has_rule {
            true => "`pid` selects one process, so other conditions have no effect",
            false => "`cgroup` and `pid` are mutually exclusive",
        };
        report.error(pid.node, message, None);
        return Within::default();
    }
    if !has_rule && cgroup.is_none() && pid.is_none() {
        if !report.blames(*node) {
            let hint = "write {cgroup: /…}, {namespace: …, pod: …, container: …} or {pid: 123}, or leave it out for the \
                        exporter's own files";
            report.error(*node, "it names no cgroup, container or process", hint);
        }
        return Within::default();
    }
    if pid.is_some() {
        return Within::Root(report.number(pid, PID_MAX).map_or(Root::Host, Root::Process));
    }
    match cgroup.as_ref().filter(|path| !has_rule && !is_pattern(path)) {
        Some(path) => {
            cgroup_path(path, report);
            Within::Root(Root::Cgroup(path.value.as_str().into()))
        }
        None => {
            let cgroup = cgroup.as_ref().and_then(|pattern| path(pattern, Path::Cgroup, report));
            let pod = pods::rule(pods::Written { namespace, pod, container, labels }, report);
            Within::Containers(Box::new(ContainerRule { cgroup, pod }))
        }
    }
}

fn is_pattern(path: &str) -> bool {
    path.contains(['*', '?', '[', '{'])
}

fn cgroup_path(cgroup: &At<String>, report: &mut Report<'_>) {
    let (message, hint) = if let Some(below) = below_mount(cgroup) {
        (format!("{} is not relative to the mount point", shown(cgroup)), format!("write `{below}`"))
    } else if !cgroup.starts_with('/') {
        (format!("{} is not the path of a cgroup", shown(cgroup)), format!("write `/{}`", cgroup.value))
    } else {
        return;
    };
    report.error(cgroup.node, message, hint);
}

/// Returns the arguments, which must have distinct names. If the function `ends` at the probe, the return value is allowed.
fn arguments(written: &Option<At<List<String>>>, ends: bool, report: &mut Report<'_>) -> Vec<Argument> {
    let Some(list) = written else { return Vec::new() };
    report.not_empty(written.as_ref(), "contains no arguments", "leave it out");
    if list.len() > ARGUMENT_LIMIT {
        let message = format!("{} arguments, the kernel accepts at most {ARGUMENT_LIMIT}", list.len());
        report.error(list.node, message, None);
        return Vec::new();
    }
    let mut arguments: Vec<Argument> = Vec::new();
    for (place, text) in (1..).zip(list.iter()) {
        let parsed = Argument::parse_nth(text, place);
        let Some(argument) = report.parsed(text, "not a valid argument", parsed) else { continue };
        if !ends && argument.fetch.is_returned() {
            let message = "the return value is not available before the function returns";
            let hint = "write `kretprobe` or `uretprobe`, or measure `histogram: seconds` until it returns";
            report.error(text.node, message, hint);
        }
        if arguments.iter().any(|other| other.name == argument.name) {
            let message = format!("duplicate argument {}", shown(&argument.name));
            report.error(text.node, message, format!("rename one: {}_2=…", argument.name));
        }
        arguments.push(argument);
    }
    arguments
}

/// Reports whether an entry measures a function from its entry to its return.
fn is_timed(kind: ProbeKind, histogram: Option<&At<Histogram>>) -> bool {
    matches!(kind, ProbeKind::Kprobe | ProbeKind::Uprobe)
        && histogram.is_some_and(|histogram| histogram.of().is_none())
}

/// Returns the duration that can be measured at a probe.
fn time(place: Option<&Place>) -> Time {
    let instead = "write `kprobe` or `uprobe` for the time from a function's entry to its return";
    match place {
        Some((kind, _)) if kind.returns() => Time::None("a return has no duration", instead),
        Some((ProbeKind::Usdt, _)) => Time::None("a USDT probe has no duration", instead),
        Some((_, Some(location))) if !is_entry(location) => {
            Time::None("the duration of a function begins at its entry", "leave out the offset")
        }
        _ => Time::Call,
    }
}

/// Reports whether a location is the entry of a function.
fn is_entry(location: &Location) -> bool {
    match location {
        Location::Kernel { offset, .. } => *offset == 0,
        Location::User { at: probe::At::Symbol { offset, .. }, .. } => *offset == 0,
        // An explicit offset in the file is assumed to be an entry.
        Location::User { at: probe::At::Offset(_), .. } => true,
        Location::Usdt { .. } => false,
    }
}
