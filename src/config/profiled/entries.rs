//! The entries of `profiles`: what each kind of them may say, and what all of them have.

use std::ops::RangeInclusive;

use super::sampled::{event, off_cpu, probe};
use super::{Profiled, STACKS, Source, Unwind, Whose};
use crate::config::counters::metric_word;
use crate::config::decode::At;
use crate::config::file::{self, FUNCTIONS_MAX, Profile, STACK_MAX, STACK_MIN};
use crate::config::report::Report;
use crate::config::selection::{Lists, patterns, rules};
use crate::config::traced::one_place;
use crate::config::value::{Entries, Period, Size};
use crate::target::{CgroupSelection, Glob, ProcessRule, ProcessSelection};

/// The most entries: each has events on every CPU, and a window of stacks in memory.
const ENTRY_LIMIT: usize = 16;
/// The functions with metrics of their own unless the entry says otherwise.
const FUNCTIONS: usize = 50;
/// How far pages look back, and the bounds of that.
const WINDOW: Period = Period::seconds(60);
const WINDOWS: RangeInclusive<Period> = Period::seconds(10)..=Period::seconds(600);
/// How much of a stack is copied: what all but deep recursion and large buffers on the stack stay below.
pub const STACK: u32 = 16 << 10;

/// What the section says; what `base` says if the file does not mention it.
pub(in crate::config) fn profiled(
    entries: Option<&At<Entries<Profile>>>,
    base: &[Profiled],
    report: &mut Report<'_>,
) -> Vec<Profiled> {
    let Some(At { node, value: Entries(entries) }) = entries else { return base.to_vec() };
    let hint = "each is opened on every CPU: leave some out";
    if report.too_many(*node, (entries.len(), "entries"), ENTRY_LIMIT, hint) {
        return Vec::new();
    }
    entries.iter().filter_map(|(name, entry)| profile(name, entry, report)).collect()
}

/// What an entry says; `None` if it does not say what to sample.
fn profile(name: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Profiled> {
    metric_word(name.node, name, "entries", report);
    let source = source(name, entry, report);
    let unwind = unwind(entry, report);
    let whose = Whose {
        cgroups: cgroups(entry.cgroups.as_ref(), report),
        processes: processes(entry.processes.as_ref(), report),
        cpus: entry.cpus.as_ref().map(|cpus| cpus.0.clone()),
    };
    let per = entry.per.as_ref().map(|at| at.value.into());
    let lines = entry.lines.is_some_and(|at| at.value);
    let functions = functions(entry.functions.as_ref(), report);
    let Period(window) = report.setting(entry.window.as_ref(), WINDOWS, WINDOW);
    let name = name.value.as_str().into();
    Some(Profiled { name, source: source?, unwind, lines, whose, per, functions, window })
}

/// What an entry samples. One of three kinds, told apart by `event`, the keys of probes, and `threshold`.
fn source(name: &At<String>, entry: &At<Profile>, report: &mut Report<'_>) -> Option<Source> {
    let waits = entry
        .threshold
        .as_ref()
        .map(|at| ("threshold", at.node))
        .or_else(|| entry.limit.as_ref().map(|at| ("limit", at.node)));
    let Profile { kprobe, kretprobe, uprobe, uretprobe, usdt, .. } = &entry.value;
    let place = one_place([kprobe, kretprobe, uprobe, uretprobe, usdt].map(Option::as_ref), report);
    if let (Some(within), None) = (&entry.within, &place) {
        let message = "`in` is about the file of a probe, and this entry has none";
        report.error(within.node, message, "leave it out");
    }
    match (&entry.event, place, waits) {
        (Some(text), Some(_), _) => {
            let message = "an entry samples an event or a probe, not both";
            report.error(text.node, message, "make two entries of it");
            None
        }
        (event, place, Some((word, node))) if event.is_some() || place.is_some() => {
            let (what, key) =
                if event.is_some() { ("an event", "`event`") } else { ("a probe", "the probe") };
            let message = format!("`{word}` is about waits, and this entry samples {what}");
            let hint = format!("make two entries of it: one with {key}, one with `threshold`");
            report.error(node, message, hint);
            None
        }
        (Some(text), None, _) => event(text, entry, report),
        (None, Some(place), _) => probe(place, entry, report),
        (None, None, Some(_)) => Some(off_cpu(entry, report)),
        (None, None, None) => {
            if !report.blames(entry.node) {
                let hint = "write `event: cpu-clock`, or `threshold: 1ms` for the time off the CPU";
                report.error(name.node, "the entry does not say what to sample", hint);
            }
            None
        }
    }
}

fn unwind(entry: &Profile, report: &mut Report<'_>) -> Unwind {
    let usual = Size(STACK.into());
    let Size(bytes) = report.setting(entry.stack.as_ref(), Size(STACK_MIN)..=Size(STACK_MAX), usual);
    if let Some(At { node, value: size }) = &entry.stack
        && !bytes.is_multiple_of(8)
        && STACKS.contains(&bytes)
    {
        let message = format!("{size} is not a multiple of 8 bytes, in which the kernel copies");
        report.error(*node, message, format!("write `{}`", bytes.next_multiple_of(8)));
    }
    let stack = u32::try_from(bytes).unwrap_or(STACK);
    match entry.unwind.map_or(file::Unwind::Auto, |at| at.value) {
        file::Unwind::Auto => Unwind::Auto { stack },
        file::Unwind::Dwarf => Unwind::Dwarf { stack },
        file::Unwind::Fp => {
            if let Some(stack) = &entry.stack {
                let message = "`stack` has no meaning with `unwind: fp`, which copies none";
                report.error(stack.node, message, "leave out one of them");
            }
            Unwind::FramePointers
        }
    }
}

/// A pattern of ours, which is well formed.
fn everything() -> Vec<Glob> {
    // The root cgroup is taken by its own name alone.
    ["/", "/**"].into_iter().filter_map(|pattern| Glob::new(pattern).ok()).collect()
}

/// The lists of a selection, if there is any: what is not included by name, is included as `all`.
fn selected<R>((include, exclude): Lists<R>, all: impl FnOnce() -> Vec<R>) -> Option<(Vec<R>, Vec<R>)> {
    let any = include.is_some() || exclude.is_some();
    any.then(|| (include.unwrap_or_else(all), exclude.unwrap_or_default()))
}

fn cgroups(written: Option<&At<file::SampledCgroups>>, report: &mut Report<'_>) -> Option<CgroupSelection> {
    let At { value: file::SampledCgroups { include, exclude }, .. } = written?;
    let lists = patterns(include.as_ref(), exclude.as_ref(), "leave it out for every cgroup", report);
    let (include, exclude) = selected(lists, everything)?;
    Some(CgroupSelection { include, exclude, ..CgroupSelection::default() })
}

fn processes(
    written: Option<&At<file::SampledProcesses>>,
    report: &mut Report<'_>,
) -> Option<ProcessSelection> {
    let At { value: file::SampledProcesses { include, exclude }, .. } = written?;
    let lists = rules(include.as_ref(), exclude.as_ref(), "leave it out for every process", report);
    // A rule without conditions is met by everybody.
    let (include, exclude) = selected(lists, || vec![ProcessRule::default()])?;
    Some(ProcessSelection { include, exclude, ..ProcessSelection::default() })
}

fn functions(written: Option<&At<u64>>, report: &mut Report<'_>) -> usize {
    let Some(At { node, value }) = written else { return FUNCTIONS };
    if *value > FUNCTIONS_MAX {
        let message = format!("{value} is not between 0 and {FUNCTIONS_MAX}");
        report.error(*node, message, "each is a series; profiles have all of them");
    }
    usize::try_from(*value).unwrap_or(FUNCTIONS)
}
