//! Checks of the entries of `profiles`: the keys of each kind, and the common keys.

use std::ops::RangeInclusive;

use super::sampled::{event, off_cpu, probe};
use super::{Profiled, STACKS, SampledTargets, Source, Unwind};
use crate::config::counters::metric_word;
use crate::config::decode::At;
use crate::config::file::{self, FUNCTIONS_MAX, Profile, STACK_MAX, STACK_MIN};
use crate::config::report::Report;
use crate::config::selection::{Lists, patterns, rules};
use crate::config::traced::one_place;
use crate::config::value::{Entries, Period, Size};
use crate::targets::{CgroupSelection, Glob, ProcessRule, ProcessSelection};

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
    entries.iter().filter_map(|(name, entry)| profile(name, entry, report)).collect()
}

/// Returns the checked entry; `None` if it has no valid sampled event.
fn profile(name: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Profiled> {
    metric_word(name.node, name, "entries", report);
    let source = source(name, entry, report);
    let unwind = unwind(entry, report);
    let targets = SampledTargets {
        cgroups: cgroups(&entry.cgroups, report),
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

fn cgroups(written: &Option<At<file::SampledCgroups>>, report: &mut Report<'_>) -> Option<CgroupSelection> {
    let At { value: file::SampledCgroups { include, exclude }, .. } = written.as_ref()?;
    let lists = patterns(include, exclude, "leave it out for every cgroup", report);
    let (include, exclude) = selected(lists, everything)?;
    Some(CgroupSelection { include, exclude, ..CgroupSelection::default() })
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
