//! Checks of the entries of `profiles`: the keys of each kind, and the common keys.

use std::ops::RangeInclusive;

use super::sampled::{event, off_cpu, over, probe};
use super::{Profiled, STACKS, SampledTargets, Source, Unwind};
use crate::config::decode::At;
use crate::config::file::{self, FUNCTIONS_MAX, Profile, STACK_MAX, STACK_MIN};
use crate::config::metric_word::metric_word;
use crate::config::patterns::Lists;
use crate::config::pods;
use crate::config::report::Report;
use crate::config::selection::{patterns, rules};
use crate::config::traced::one_place;
use crate::config::value::{Entries, Period, Size};
use crate::targets::{CgroupSelection, Glob, PodSelection, ProcessRule, ProcessSelection};

/// Maximum number of entries: each opens events on all CPUs and keeps a window of stacks in memory.
const ENTRY_LIMIT: usize = 16;
/// Default number of functions with their own metrics.
const FUNCTIONS: usize = 50;
/// Default and bounds of the time range of the pages.
const WINDOW: Period = Period::seconds(60);
const WINDOWS: RangeInclusive<Period> = Period::seconds(10)..=Period::seconds(600);
/// Default size of the copied stack in bytes. Only deep recursion and large buffers on the stack exceed it.
pub const STACK: u32 = 16 << 10;

/// Returns the checked section, or `base` if the file omits it.
pub(in crate::config) fn profiled(
    entries: &Option<At<Entries<Profile>>>,
    base: &[Profiled],
    report: &mut Report<'_>,
) -> Vec<Profiled> {
    let Some(At { node, value: Entries(entries) }) = entries else { return base.to_vec() };
    let hint = "each entry is opened on every CPU: remove some";
    if report.too_many(*node, (entries.len(), "entries"), ENTRY_LIMIT, hint) {
        return Vec::new();
    }
    let of_base = |name: &str| base.iter().find(|profiled| *profiled.name == *name);
    entries.iter().filter_map(|(name, entry)| profile(name, entry, of_base(name), report)).collect()
}

/// Returns the checked entry; `None` if it has no valid sampled event. An entry that does not say what it samples has the source of `base`,
/// the built-in entry with its name.
fn profile(
    name: &At<String>,
    entry: &At<Profile>,
    base: Option<&Profiled>,
    report: &mut Report<'_>,
) -> Option<Profiled> {
    metric_word(name.node, name, "entries", report);
    let source = match base.filter(|_| has_no_source(entry, report)) {
        Some(base) => Some(over(&base.source, entry, report)),
        None => source(name, entry, report),
    };
    let unwind = unwind(entry, report);
    let targets = SampledTargets {
        cgroups: cgroups(&entry.cgroups, &entry.pods, report),
        processes: processes(&entry.processes, report),
        cpus: entry.cpus.as_ref().map(|cpus| cpus.0.clone()),
    };
    let per = entry.per.as_ref().map(|at| at.value.into());
    let lines = entry.lines.is_some_and(|at| at.value);
    let functions = functions(&entry.functions, report);
    let Period(window) = report.setting(&entry.window, WINDOWS, WINDOW);
    let name = name.value.as_str().into();
    Some(Profiled { name, source: source?, unwind, lines, targets, per, functions, window })
}

/// Reports whether an entry does not say what it samples.
fn has_no_source(entry: &At<Profile>, report: &Report<'_>) -> bool {
    let Profile { event, kprobe, kretprobe, uprobe, uretprobe, usdt, threshold, limit, within, .. } =
        &entry.value;
    let texts = [event, kprobe, kretprobe, uprobe, uretprobe, usdt];
    let of_others = threshold.is_some() || limit.is_some() || within.is_some();
    !of_others && texts.into_iter().all(Option::is_none) && !report.blames(entry.node)
}

/// Returns what an entry samples. The keys `event`, those of probes, and `threshold` determine the kind.
fn source(name: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let waits = entry
        .threshold
        .as_ref()
        .map(|at| ("threshold", at.node))
        .or_else(|| entry.limit.as_ref().map(|at| ("limit", at.node)));
    let Profile { kprobe, kretprobe, uprobe, uretprobe, usdt, .. } = &entry.value;
    let place = one_place([kprobe, kretprobe, uprobe, uretprobe, usdt], report);
    if let (Some(within), None) = (&entry.within, &place) {
        let message = "`in` applies only to a probe in a file, and this entry has none";
        report.error(within.node, message, "leave it out");
    }
    match (&entry.event, place, waits) {
        (Some(text), Some(_), _) => {
            let message = "an entry samples an event or a probe, not both";
            report.error(text.node, message, "split it into two entries");
            None
        }
        (event, place, Some((word, node))) if event.is_some() || place.is_some() => {
            let (what, key) =
                if event.is_some() { ("an event", "`event`") } else { ("a probe", "the probe") };
            let message = format!("`{word}` applies only to waits, and this entry samples {what}");
            let hint = format!("split it into two entries: one with {key}, one with `threshold`");
            report.error(node, message, hint);
            None
        }
        (Some(text), None, _) => event(text, entry, report),
        (None, Some(place), _) => probe(place, entry, report),
        (None, None, Some(_)) => Some(off_cpu(entry, report)),
        (None, None, None) => {
            if !report.blames(entry.node) {
                let hint = "write `event: cpu-clock`, or `threshold: 1ms` for the time off the CPU";
                report.error(name.node, "the entry has no event, probe or threshold", hint);
            }
            None
        }
    }
}

fn unwind(entry: &Profile, report: &mut Report<'_>) -> Unwind {
    let usual = Size(STACK.into());
    let Size(bytes) = report.setting(&entry.stack, Size(STACK_MIN)..=Size(STACK_MAX), usual);
    if let Some(At { node, value: size }) = &entry.stack
        && !bytes.is_multiple_of(8)
        && STACKS.contains(&bytes)
    {
        let message = format!("{size} is not a multiple of 8 bytes, which the kernel requires");
        report.error(*node, message, format!("write `{}`", bytes.next_multiple_of(8)));
    }
    let stack = u32::try_from(bytes).unwrap_or(STACK);
    match entry.unwind.map_or(file::Unwind::Auto, |at| at.value) {
        file::Unwind::Auto => Unwind::Auto { stack },
        file::Unwind::Dwarf => Unwind::Dwarf { stack },
        file::Unwind::Fp => {
            if let Some(stack) = &entry.stack {
                let message = "`stack` has no effect with `unwind: fp`, which copies no stack";
                report.error(stack.node, message, "remove one of them");
            }
            Unwind::FramePointers
        }
    }
}

/// Returns patterns that match all cgroups.
fn everything() -> Vec<Glob> {
    // `/**` does not match the root cgroup.
    ["/", "/**"].into_iter().filter_map(|pattern| Glob::new(pattern).ok()).collect()
}

/// Returns the lists of a selection, if there are any. Without `include`, `all` is included.
fn selected<R>((include, exclude): Lists<R>, all: impl FnOnce() -> Vec<R>) -> Option<(Vec<R>, Vec<R>)> {
    let any = include.is_some() || exclude.is_some();
    any.then(|| (include.unwrap_or_else(all), exclude.unwrap_or_default()))
}

fn cgroups(
    written: &Option<At<file::SampledCgroups>>,
    written_pods: &Option<At<file::PodsOrRules>>,
    report: &mut Report<'_>,
) -> Option<CgroupSelection> {
    let nothing = file::SampledCgroups { include: None, exclude: None };
    let file::SampledCgroups { include, exclude } = written.as_ref().map_or(&nothing, |at| &at.value);
    let (include, exclude) = patterns(include, exclude, "leave it out for every cgroup", report);
    let (pods_include, pods_exclude) = pods::selection(written_pods, report);
    let any = include.is_some() || exclude.is_some() || pods_include.is_some() || pods_exclude.is_some();
    let all = || if pods_include.is_some() { Vec::new() } else { everything() };
    any.then(|| CgroupSelection {
        include: include.unwrap_or_else(all),
        exclude: exclude.unwrap_or_default(),
        pods: PodSelection {
            include: pods_include.clone().unwrap_or_default(),
            exclude: pods_exclude.unwrap_or_default(),
        },
        ..CgroupSelection::default()
    })
}

fn processes(
    written: &Option<At<file::SampledProcesses>>,
    report: &mut Report<'_>,
) -> Option<ProcessSelection> {
    let At { value: file::SampledProcesses { include, exclude }, .. } = written.as_ref()?;
    let lists = rules(include, exclude, "leave it out for every process", report);
    // A rule without conditions matches every process.
    let (include, exclude) = selected(lists, || vec![ProcessRule::default()])?;
    Some(ProcessSelection { include, exclude, ..ProcessSelection::default() })
}

fn functions(written: &Option<At<u64>>, report: &mut Report<'_>) -> usize {
    let Some(At { node, value }) = written else { return FUNCTIONS };
    if *value > FUNCTIONS_MAX {
        let message = format!("{value} is not between 0 and {FUNCTIONS_MAX}");
        report.error(*node, message, "each is a series; profiles contain all functions");
    }
    usize::try_from(*value).unwrap_or(FUNCTIONS)
}
