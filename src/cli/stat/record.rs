//! `stat record`: the counts of each reading, written into a file in the format of `perf stat record`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::aggregation::{Aggregation, Parts};
use super::select::Selection;
use super::table::Reading;
use crate::cli::observe::{Failure, Host, Subject};
use crate::cli::record::output::{self, Output};
use crate::perf_data::counts::{self, ANY, AggregationMode, Count};
use crate::perf_data::{EventSection, Features, Machine, Writer};
use crate::sys::live::attr_bytes;
use crate::sys::{Attr, Fields, Inherit, Kernel, Start};

/// The file of a recording.
pub(super) struct Recorder {
    output: Output,
    writer: Writer,
    /// Number of lines of each cgroup.
    lines: usize,
    /// Whether the counts are those of threads, not of CPUs.
    of_threads: bool,
    /// Whether threads without counts are omitted.
    omits_idle: bool,
    /// The settings before the first reading.
    settings: Vec<u8>,
    /// Names of threads, if they are shown.
    names: BTreeMap<u32, String>,
    /// Index of each thread.
    threads: BTreeMap<u32, u32>,
    /// Counts since the start, by event and CPU or thread.
    totals: BTreeMap<(usize, u32), Count>,
    intervals: bool,
}

impl Recorder {
    /// Creates the file, with the events and the settings.
    ///
    /// # Errors
    /// If the file cannot be written, or has too many threads.
    pub(super) fn begin<K: Kernel>(
        path: &Path,
        host: &Host<'_, K>,
        subject: &Subject,
        selection: &Selection,
        parts: &Parts,
        interval: Option<Duration>,
    ) -> Result<Self, Failure> {
        let threads = parts.places().count();
        if parts.aggregation == Aggregation::Thread && threads > counts::THREADS {
            return Err(Failure::Failed(anyhow::anyhow!(
                "a recording has at most {} threads, but {threads} are selected; select fewer with -p or -t",
                counts::THREADS
            )));
        }
        let cgroups = subject.cgroups();
        let events = sections(subject, selection, &cgroups);
        let command_line: Vec<_> = std::env::args_os().collect();
        let clock = &host.clock;
        let wall = clock.now().0.saturating_mul(1_000_000);
        let mut features =
            Features::new(&Machine::read(host.roots), &events, &command_line, (wall, clock.kernel()))
                .of_counts();
        let tracepoints = selection.lines.iter().map(|line| &*line.name);
        // perf does not store formats of tracepoints, and then rejects its own file.
        features
            .add_tracepoints(host.roots, tracepoints)
            .context("cannot read the format of a tracepoint")?;
        let output = Output::in_place(path)?;
        let file = output::create(&output).with_context(|| format!("cannot write {}", path.display()))?;
        let writer = Writer::begin(file, &events, features, None, Fields::default(), false)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let milliseconds = interval.map_or(0, |interval| interval.as_millis() as u64);
        let mut settings = counts::stat_config(mode(parts.aggregation), milliseconds);
        for (id, line) in (0..).zip(&selection.lines).filter(|(_, line)| !line.unit.is_empty()) {
            for cgroup in 0..cgroups.len().max(1) {
                let id = (cgroup * selection.lines.len()) as u64 + id;
                settings.splice(0..0, counts::unit(FIRST + id, &line.unit, line.factor()));
            }
        }
        let names = parts.places().map(|tid| (tid, parts.thread_name(tid).to_owned()));
        let by_thread = parts.aggregation == Aggregation::Thread;
        Ok(Self {
            output,
            writer,
            lines: selection.lines.len(),
            of_threads: subject.is_processes(),
            omits_idle: parts.shows_busiest(),
            settings,
            names: if by_thread { names.collect() } else { BTreeMap::new() },
            threads: BTreeMap::new(),
            totals: BTreeMap::new(),
            intervals: interval.is_some(),
        })
    }

    /// Adds a reading that ended `at` after the start.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(super) fn add(&mut self, reading: &Reading, at: Duration) -> io::Result<()> {
        for count in &reading.counts {
            let event = count.cgroup * self.lines + count.line;
            let id = FIRST + event as u64;
            let total = self.totals.entry((event, count.place)).or_insert(Count { id, ..Count::default() });
            total.value = total.value.saturating_add(count.raw);
            total.enabled = total.enabled.saturating_add(count.interval.enabled);
            total.running = total.running.saturating_add(count.interval.running);
        }
        if !self.settings.is_empty() {
            self.write_settings();
        }
        for ((_, place), total) in &self.totals {
            if self.omits_idle && total.value == 0 {
                continue;
            }
            let thread = self.threads.get(place).copied().unwrap_or(0);
            let cpu = if self.of_threads { ANY } else { *place };
            self.writer.append(&Count { cpu, thread, ..*total }.record());
        }
        // As in perf, a recording of intervals has no final reading.
        let time = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        self.writer.append(&counts::round(!self.intervals, time));
        self.writer.commit()
    }

    /// Writes the settings, after the first reading: its counts list the threads.
    fn write_settings(&mut self) {
        let places: BTreeSet<u32> =
            self.totals.keys().map(|(_, place)| *place).chain(self.names.keys().copied()).collect();
        if self.of_threads {
            self.threads = places.into_iter().take(counts::THREADS).zip(0..).collect();
            let names = &self.names;
            let named =
                self.threads.keys().map(|tid| (*tid, names.get(tid).map_or(&[][..], |name| name.as_bytes())));
            let named: Vec<_> = named.collect();
            self.writer.append(&counts::thread_map(named.into_iter()));
            self.writer.append(&counts::cpu_map([].into_iter()));
        } else {
            let places: Vec<u32> = places.into_iter().collect();
            self.writer.append(&counts::thread_map([(ANY, &[][..])].into_iter()));
            self.writer.append(&counts::cpu_map(places.into_iter()));
        }
        self.writer.append(&std::mem::take(&mut self.settings));
    }

    /// Removes the file of a measurement that failed.
    pub(super) fn discard(&self) {
        output::discard(&self.output);
    }
}

/// The first identifier of events. 0 would be no identifier.
const FIRST: u64 = 1;

/// Returns the events of the file: the lines of each cgroup. Events that this machine does not have are without identifiers, as in perf.
fn sections(subject: &Subject, selection: &Selection, cgroups: &[Arc<str>]) -> Vec<EventSection> {
    let inherit = if subject.is_processes() { Inherit::Children } else { Inherit::Nothing };
    let start = if matches!(subject, Subject::Command) { Start::OnExec } else { Start::Later };
    let mut sections = Vec::new();
    for cgroup in 0..cgroups.len().max(1) {
        for (index, line) in selection.lines.iter().enumerate() {
            let event = selection.event(index);
            let attr = event.map(|event| attr_bytes(&Attr { inherit, start, ..Attr::counting(event) }));
            let id = FIRST + sections.len() as u64;
            let of = cgroups.get(cgroup).map(|path| format!(" {path}")).unwrap_or_default();
            let ids = if event.is_some() { vec![id] } else { Vec::new() };
            let name = format!("{}{of}", line.name);
            sections.push(EventSection::counted(name, attr.unwrap_or_default(), ids));
        }
    }
    sections
}

fn mode(aggregation: Aggregation) -> AggregationMode {
    match aggregation {
        Aggregation::Whole => AggregationMode::Global,
        Aggregation::Cpu | Aggregation::Cache(_) => AggregationMode::Cpu,
        Aggregation::Core => AggregationMode::Core,
        Aggregation::Die => AggregationMode::Die,
        Aggregation::Socket => AggregationMode::Socket,
        Aggregation::Node => AggregationMode::Node,
        Aggregation::Thread => AggregationMode::Thread,
    }
}
