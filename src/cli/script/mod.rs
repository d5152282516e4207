//! `perf-exporter script`: prints the samples of a recording, as perf script does, or in the format of a viewer.

mod args;
mod fields;
mod filter;
mod text;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};

use args::Format;
pub(super) use args::ScriptArgs;
use fields::{Field, Fields};
use filter::{Filter, Subject};
use text::Style;

use super::{FAILED, USAGE, fail, files, print_notes, reading_options, written};
use crate::event::format::{Address, Printer};
use crate::export::folded::{self, Folded};
use crate::export::timeline;
use crate::host::Roots;
use crate::profile::{Profile, Task};
use crate::recording;
use crate::recording::perf_data::{Attribute, Options, Reader, Sampled, Timeline};
use crate::stack::Frame;
use crate::symbol::Named;

/// Maximum number of locations with known functions.
const KNOWN: usize = 1 << 20;

/// Prints the recording.
pub(super) fn script(args: &ScriptArgs, roots: &Roots) -> ExitCode {
    let filter = match Filter::new(args) {
        Ok(filter) => filter,
        Err(error) => return fail(USAGE, &error),
    };
    let options = Options {
        return_addresses: args.format == Format::Text,
        times: args.time.clone(),
        ..reading_options()
    };
    let printed = match args.format {
        Format::Text => text(args, &filter, &options, roots),
        Format::Folded => folded(args, &filter, &options, roots),
        Format::Firefox => timeline(args, &filter, &options, roots, timeline::write_firefox),
        Format::Speedscope => timeline(args, &filter, &options, roots, timeline::write_speedscope),
        Format::Chrome => timeline(args, &filter, &options, roots, timeline::write_chrome),
    };
    match printed {
        Ok(result) => written(result),
        Err(error) => fail(FAILED, &error.context(format!("{}", args.input.display()))),
    }
}

/// Prints the sums of one event as folded stacks.
fn folded(
    args: &ScriptArgs,
    filter: &Filter<'_>,
    options: &Options,
    roots: &Roots,
) -> anyhow::Result<io::Result<()>> {
    let mut recording = recording::open(&args.input, options, &files(roots))?;
    for profile in &mut recording.profiles {
        let stacks = filter.stacks(profile);
        let (tasks, kind) = (&profile.tasks, &profile.kind);
        profile.samples.retain(|sample| {
            let of = (sample.stack, sample.task, sample.cpu);
            is_selected(filter, tasks, &stacks, of, &kind.name)
        });
        shorten(args, profile);
    }
    let profile = recording.profiles.iter().find(|profile| !profile.samples.is_empty());
    let profile = profile.context("the recording has no samples with these properties")?;
    let lines = Folded::new(profile, folded::Options::default()).text(true);
    print_notes(&recording.about);
    Ok(super::put(lines))
}

/// Prints the samples in a format with a time axis.
fn timeline(
    args: &ScriptArgs,
    filter: &Filter<'_>,
    options: &Options,
    roots: &Roots,
    write: fn(&Timeline, &mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<io::Result<()>> {
    let mut timeline = Timeline::open(&args.input, options, &files(roots))?;
    let Timeline { tables, kinds, samples, .. } = &mut timeline;
    let stacks = filter.stacks(tables);
    samples.retain(|sample| {
        let of = (sample.stack, sample.task, sample.cpu);
        let kind = kinds.get(sample.event as usize);
        is_selected(filter, &tables.tasks, &stacks, of, kind.map_or("", |kind| &kind.name))
    });
    shorten(args, tables);
    if samples.is_empty() {
        bail!("the recording has no samples with these properties");
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = write(&timeline, &mut out).and_then(|()| out.flush());
    print_notes(&timeline.about);
    Ok(written)
}

/// Reports whether a sample with this stack, task and CPU is selected.
fn is_selected(
    filter: &Filter<'_>,
    tasks: &[Task],
    stacks: &[bool],
    (stack, task, cpu): (u32, u32, Option<u16>),
    event: &str,
) -> bool {
    let of_task = tasks.get(task as usize).is_some_and(|task| {
        let (pid, tid, comm) = (task.pid, task.tid, &*task.comm);
        filter.takes(Subject { pid, tid, comm, cpu: cpu.map(u32::from), event })
    });
    of_task && stacks.get(stack as usize).is_some_and(|&is_selected| is_selected)
}

/// Removes the outermost functions of call chains that are too long.
fn shorten(args: &ScriptArgs, tables: &mut Profile) {
    let most = if args.hide_call_graph { 1 } else { args.max_stack.unwrap_or(usize::MAX).max(1) };
    for stack in tables.stacks.iter_mut().filter(|stack| stack.len() > most) {
        *stack = stack.iter().take(most).copied().collect();
    }
}

/// Prints each sample. The outer error is that of the recording, the inner one that of standard output.
fn text(
    args: &ScriptArgs,
    filter: &Filter<'_>,
    options: &Options,
    roots: &Roots,
) -> anyhow::Result<io::Result<()>> {
    let file = open(&args.input)?;
    let mut reader = Reader::new(&file, options, &files(roots))?;
    let chains = !args.hide_call_graph;
    let events = reader.about().events;
    let fields = |event: &Attribute| match &args.fields {
        None => Ok(Fields::default_of(event, chains)),
        Some(list) => Fields::parse(list, event, chains),
    };
    let style = Style { chains, width: events.iter().map(|event| event.name.len()).max().unwrap_or(0) };
    let fields = events.iter().map(fields).collect::<Result<Vec<_>, _>>()?;
    let printer = |event: &Attribute| reader.format(event.config).map(|(_, format)| format.printer());
    let printers = events.iter().map(printer).collect();
    let (known, text) = (HashMap::new(), String::new());
    let mut lines = Lines { args, filter, style, fields, events, known, printers, text };
    let mut out = BufWriter::new(io::stdout().lock());
    let ended = loop {
        let sample = match reader.next_sample() {
            Ok(Some(sample)) => sample,
            Ok(None) => break Ok(()),
            // Everything before the damage is printed.
            Err(error) => break Err(error),
        };
        lines.add(&mut reader, &sample)?;
        if let Err(error) = out.write_all(lines.text.as_bytes()) {
            return Ok(Err(error));
        }
        lines.text.clear();
    };
    let flushed = out.flush();
    print_notes(&reader.about());
    ended?;
    Ok(flushed)
}

fn open(path: &Path) -> anyhow::Result<File> {
    File::open(path).context("cannot open the recording")
}

/// The text of samples.
struct Lines<'a> {
    args: &'a ScriptArgs,
    filter: &'a Filter<'a>,
    style: Style,
    /// By event.
    fields: Vec<Fields>,
    events: Vec<Attribute>,
    known: HashMap<Frame, Arc<Named>>,
    /// Of tracepoints, by event.
    printers: Vec<Option<Printer>>,
    text: String,
}

impl Lines<'_> {
    /// Appends a sample, if it is selected.
    fn add(&mut self, reader: &mut Reader<'_>, sample: &Sampled) -> anyhow::Result<()> {
        let (Some(event), Some(&fields)) = (self.events.get(sample.event), self.fields.get(sample.event))
        else {
            return Ok(());
        };
        let &Sampled { pid, tid, cpu, ref comm, .. } = sample;
        if !self.filter.takes(Subject { pid, tid, comm, cpu, event: &event.name }) {
            return Ok(());
        }
        let is_chain = text::is_chain(sample, fields, self.style);
        let most = if is_chain { self.args.max_stack.unwrap_or(usize::MAX) } else { 1 };
        let places = &sample.chain[..sample.chain.len().min(most.max(1))];
        let names = resolve(&mut self.known, reader, places.iter().map(|place| place.frame));
        if let (Some(place), Some(named)) = (places.first(), names.first()) {
            let dso = text::dso(reader, sample, place, named);
            if !self.filter.takes_place(&dso, text::symbol(named)) {
                return Ok(());
            }
        }
        let printer = self.printers.get(sample.event).and_then(Option::as_ref);
        let printer = printer.filter(|_| fields.has(Field::Trace)).zip(sample.raw.as_deref());
        let known = &mut self.known;
        let trace = printer.map(|(printer, raw)| {
            let mut look = |address| {
                let address = match address {
                    Address::Function(address) => address,
                    Address::Text(address) => return reader.text(address).map(str::to_owned),
                };
                let named = resolve(known, reader, std::iter::once(Frame::Kernel(address))).pop()?;
                let offset = named.address.wrapping_sub(named.function?.0);
                Some(format!("{}+{offset:#x}", text::symbol(&named)?))
            };
            printer.print(raw, &mut look)
        });
        let out = &mut self.text;
        text::start(out, sample, event, (fields, self.style), trace.as_deref())?;
        if fields.has(Field::Ip) {
            out.push(if is_chain { '\n' } else { ' ' });
            for (place, named) in places.iter().zip(&names) {
                if is_chain {
                    out.push('\t');
                }
                text::place(out, reader, sample, (place, named), (fields, is_chain))?;
                if is_chain {
                    out.push('\n');
                }
            }
        }
        out.push('\n');
        Ok(())
    }
}

/// Looks up the functions of locations that are not known.
fn resolve(
    known: &mut HashMap<Frame, Arc<Named>>,
    reader: &mut Reader<'_>,
    frames: impl Iterator<Item = Frame> + Clone,
) -> Vec<Arc<Named>> {
    let missing: Vec<Frame> = frames.clone().filter(|frame| !known.contains_key(frame)).collect();
    if !missing.is_empty() {
        if known.len() >= KNOWN {
            known.clear();
        }
        let missing: Vec<Frame> = if known.is_empty() { frames.clone().collect() } else { missing };
        known.extend(missing.iter().copied().zip(reader.resolve(&missing)));
    }
    frames.filter_map(|frame| known.get(&frame).map(Arc::clone)).collect()
}
