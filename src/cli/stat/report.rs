//! `stat report`: the counts of a recording, in the layouts of `stat`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use perf_event_open_sys::bindings as abi;

use super::aggregation::{Aggregation, Part, Parts};
use super::command::ReportArgs;
use super::metric_list::Shown;
use super::metric_table::MetricTable;
use super::print::Printer;
use super::select::Line;
use super::table::{Frame, Key, Reading, Totals};
use crate::cli::observe::{Ending, Failure};
use crate::cli::print_note;
use crate::counter::scale;
use crate::error::printable;
use crate::event::{Event, Kind, Modifiers, Scale, Selector};
use crate::recording::perf_data::{self as recorded, AggregationMode, Attribute, CountReader};
use crate::recording::{Invalid, open_file};

/// Prints the counts of a recording.
pub(super) fn report(args: &ReportArgs) -> Result<Ending, Failure> {
    let asked = args.aggregation().map_err(Failure::Usage)?;
    let path = || args.input.display().to_string();
    let (file, _) = open_file(&args.input).with_context(path)?;
    let mut reader = CountReader::new(&file).with_context(path)?;
    let first = reader.next_reading().with_context(path)?.ok_or(Invalid::NoCounts).with_context(path)?;
    let mut counted = Counted::new(&reader, &first, asked)?;
    let metrics = Shown::of_recording(args.metrics());
    let (mut parts, mut reading) = counted.reading(&reader, &first);
    let frame = Frame { cgroups: &counted.cgroups, metrics: &metrics, ..Frame::of(&counted.lines, &parts) };
    let table = args.output_args.metric_only.then(|| MetricTable::new(&frame));
    let mut printer = Printer::open(&args.output_args, false, table)?;
    let mut at = first.at;
    loop {
        let frame =
            Frame { cgroups: &counted.cgroups, metrics: &metrics, ..Frame::of(&counted.lines, &parts) };
        if reader.has_intervals() {
            printer.interval(&frame, &reading, at)?;
        } else {
            printer.run(&frame, &reading, 1)?;
            let totals = Totals::of(&counted.lines, &reading);
            printer.result(&command(&reader), &frame, &totals.rows(&frame), &totals, None)?;
        }
        let Some(next) = reader.next_reading().with_context(path)? else { break };
        at = next.at;
        (parts, reading) = counted.reading(&reader, &next);
    }
    printer.notes(&[])?;
    Ok(Ending::Done)
}

/// Returns the command line of the recording, as perf shows it in place of the target.
fn command(reader: &CountReader<'_>) -> String {
    let words: Vec<&str> = reader.about().command.iter().map(|word| &**word).collect();
    format!("'{}'", printable(&words.join(" ")))
}

/// The lines and the parts of a recording.
struct Counted {
    lines: Vec<Line>,
    cgroups: Vec<Arc<str>>,
    /// Index of the cgroup and of the line of each event.
    places: Vec<(usize, usize)>,
    aggregation: Aggregation,
    /// The part of each CPU.
    cpus: BTreeMap<u32, Part>,
    /// The time of the previous reading.
    last: Duration,
}

impl Counted {
    /// Describes the events. `asked` are the requested parts; those of the recording, if none are requested.
    fn new(reader: &CountReader<'_>, first: &recorded::Reading, asked: Aggregation) -> Result<Self, Failure> {
        let has_cpus = first.counts.iter().any(|count| count.cpu.is_some());
        let own = of_mode(reader.mode());
        let aggregation = match if asked == Aggregation::Whole { own } else { asked } {
            Aggregation::Thread if has_cpus => {
                let why = "--per-thread: the recording has counts of CPUs, not of threads; use -A, or record with -p and --per-thread";
                return Err(Failure::Usage(anyhow!(why)));
            }
            Aggregation::Whole => Aggregation::Whole,
            Aggregation::Thread => Aggregation::Thread,
            parts if has_cpus => parts,
            parts => {
                print_note(&format!(
                    "{}: the recording has counts of threads, not of CPUs; they are shown without it",
                    parts.option()
                ));
                own
            }
        };
        let mut counted = Self {
            lines: Vec::new(),
            cgroups: Vec::new(),
            places: Vec::new(),
            aggregation,
            cpus: BTreeMap::new(),
            last: Duration::ZERO,
        };
        let is_own = reader.about().version.as_deref().is_some_and(|version| version.starts_with(OWN));
        for (index, attribute) in reader.about().events.iter().enumerate() {
            let name = printable(&attribute.name);
            let (name, cgroup) = match name.split_once(" /").filter(|_| is_own) {
                Some((name, path)) => (name, Some(format!("/{path}"))),
                None => (&*name, None),
            };
            let event = event(name, attribute, reader.unit(index));
            counted.add(&event, cgroup.map(Into::into));
        }
        Ok(counted)
    }

    /// Adds an event. Each cgroup has the same lines.
    fn add(&mut self, event: &Event, cgroup: Option<Arc<str>>) {
        let place = match cgroup {
            None => 0,
            Some(cgroup) => self.cgroups.iter().position(|other| *other == cgroup).unwrap_or_else(|| {
                self.cgroups.push(cgroup);
                self.cgroups.len() - 1
            }),
        };
        let line = self.places.iter().filter(|(other, _)| *other == place).count();
        if line == self.lines.len() {
            self.lines.push(Line::recorded(event));
        }
        self.places.push((place, line));
    }

    /// Returns the parts as of a reading, and its sums.
    fn reading(&mut self, reader: &CountReader<'_>, of: &recorded::Reading) -> (Parts, Reading) {
        let mut reading = Reading { elapsed: of.at.saturating_sub(self.last), ..Reading::default() };
        self.last = of.at;
        for count in &of.counts {
            let Some(&(cgroup, line)) = self.places.get(count.event) else { continue };
            let part = match (self.aggregation, count.cpu) {
                (Aggregation::Thread, _) => {
                    Part::Thread(reader.threads().get(count.thread).map_or(u32::MAX, |thread| thread.tid))
                }
                (aggregation, Some(cpu)) => {
                    let part = part(aggregation, cpu, reader);
                    self.cpus.insert(cpu, part);
                    part
                }
                (_, None) => Part::Whole,
            };
            let sum = reading.sums.entry(Key { cgroup, line, part }).or_default();
            sum.add(count.raw, scale(count.raw, count.interval), count.interval);
            sum.places += 1;
        }
        let named = reader.threads().iter().map(|thread| (thread.tid, thread.comm.as_bytes()));
        let parts = match self.aggregation {
            Aggregation::Whole => Parts::default(),
            Aggregation::Thread => Parts::of_threads(named),
            aggregation => Parts::of_cpus(aggregation, self.cpus.clone()),
        };
        (parts, reading)
    }
}

/// Begin of the version of files that this program wrote.
const OWN: &str = "perf-exporter";

fn of_mode(mode: AggregationMode) -> Aggregation {
    match mode {
        AggregationMode::Global => Aggregation::Whole,
        AggregationMode::Cpu => Aggregation::Cpu,
        AggregationMode::Core => Aggregation::Core,
        AggregationMode::Die => Aggregation::Die,
        AggregationMode::Socket => Aggregation::Socket,
        AggregationMode::Node => Aggregation::Node,
        AggregationMode::Thread => Aggregation::Thread,
    }
}

/// Returns the part of a CPU of the recorded machine.
fn part(aggregation: Aggregation, cpu: u32, reader: &CountReader<'_>) -> Part {
    let position = reader.topology().position(cpu);
    match aggregation {
        Aggregation::Whole => Part::Whole,
        Aggregation::Core => Part::Core(position),
        Aggregation::Die => Part::Die(position.socket, position.die),
        Aggregation::Socket => Part::Socket(position.socket),
        Aggregation::Node => Part::Node(reader.topology().node(cpu)),
        Aggregation::Cpu | Aggregation::Cache(_) | Aggregation::Thread => Part::Cpu(cpu),
    }
}

/// Returns an event of a recording.
fn event(name: &str, attribute: &Attribute, (unit, factor): (&str, f64)) -> Event {
    let kind = match attribute.kind {
        abi::PERF_TYPE_HARDWARE => Kind::Hardware,
        abi::PERF_TYPE_SOFTWARE => Kind::Software,
        abi::PERF_TYPE_TRACEPOINT => Kind::Tracepoint,
        abi::PERF_TYPE_HW_CACHE => Kind::Cache,
        abi::PERF_TYPE_RAW => Kind::Raw,
        abi::PERF_TYPE_BREAKPOINT => Kind::Breakpoint,
        _ => Kind::Pmu,
    };
    let selector = Selector { kind: attribute.kind, config: [attribute.config, 0, 0, 0] };
    let [exclude_user, exclude_kernel, exclude_hv, exclude_idle, exclude_host, exclude_guest] =
        attribute.excluded;
    // On hybrid machines, the upper half of the event is the PMU.
    let pmu = attribute.config >> 32;
    let is_generic = matches!(kind, Kind::Hardware | Kind::Cache);
    let has_unit = factor != 1.0 || !unit.is_empty();
    Event {
        name: name.into(),
        modifiers: Modifiers {
            exclude_user,
            exclude_kernel,
            exclude_hv,
            exclude_idle,
            exclude_host,
            exclude_guest,
            ..Modifiers::default()
        },
        pmu: (is_generic && pmu > 0).then(|| pmu.to_string().into()),
        scale: has_unit.then(|| Scale { factor, unit: printable(unit).into() }),
        ..Event::unnamed(kind, selector, String::new())
    }
}
