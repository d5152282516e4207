//! `record -o perf.data`: the records of the kernel, written as they are while they arrive.
//!
//! ```text
//! rings ─► Merger (by time) ─► perf_data::Writer ─► file
//! ```
//!
//! Nothing is symbolized or summed up, so the memory does not depend on the duration. The thread that empties the rings also writes the
//! file: while the disk is too slow, the rings fill up, and the kernel counts the records that it drops.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::Notify;

use super::output::{Output, create, discard};
use super::summary::{Closing, progress};
use super::{Line, TICK};
use crate::cli::observe::rings::{OpenRings, start};
use crate::cli::observe::{Ending, Failure, Host, Program, Subject, WaitEvent, measure, notes};
use crate::cli::sample::{explained, user_space_only};
use crate::clock::Clock;
use crate::event;
use crate::export::flamegraph::nothing;
use crate::lock::IoLock;
use crate::perf_data::{
    BuildIds, EventSection, Existing, ExistingProcesses, FINISHED_ROUND, Features, Machine, Writer,
    module_names,
};
use crate::plan::Sampler;
use crate::profile::{Profile, SIDE, Shortfalls, holders};
use crate::ring::{
    Losses, Merger, Reader, Record, Records, Request, RingId, RingSet, RingWriters, is_sample, time_of,
};
use crate::stack::MappingKinds;
use crate::sys::live::attr_bytes;
use crate::sys::scheduling::Urgency;
use crate::sys::spawn::Waiting;
use crate::sys::{Attr, Event, Fields, Inherit, Kernel, Ring, Sampling, Sideband, Start};

/// Maximum bytes of the ring of a CPU.
const RING: usize = 4 << 20;

/// Interval at which rings are read that did not wake the reader.
const READ: Duration = Duration::from_millis(100);

/// Interval at which records are written at the latest, in nanoseconds.
const COMMIT: u64 = 500_000_000;

/// Reordering window in nanoseconds. A record can still be written on one CPU while a younger record of another CPU is read.
const BEHIND: u64 = 5_000_000;

/// The fields of all samples up to the time, which are also at the end of all other records.
const STORED: Fields = Fields { cpu: true, ..SIDE };

/// Length of these fields at the end of a record, in bytes: thread, time, CPU, identifier.
const TRAILER: usize = 4 * 8;

/// What is recorded into a file, apart from the events.
#[derive(Debug, Clone, Copy)]
pub(in crate::cli) struct FileRecording<'a> {
    pub(in crate::cli) command: &'a [OsString],
    pub(in crate::cli) duration: Option<Duration>,
    /// Whether records are compressed.
    pub(in crate::cli) compress: bool,
}

/// Records into a file, and ends like the command.
pub(super) fn record<K: Kernel>(
    args: FileRecording<'_>,
    output: &Output,
    host: &Host<'_, K>,
    subject: &Subject,
    sampler: &Sampler,
) -> Result<Ending, Failure> {
    let (program, clock) = (Program::new(args.command), &host.clock);
    measure(async |signals| {
        let child = program.fork()?;
        let mut recorder = Recorder::open(host, subject, sampler, child.as_ref().map(Waiting::pid))?;
        let stream = recorder.begin(output, host, (subject, sampler), args.compress)?;
        let failed = recorder.listen(&stream, clock);
        start(&recorder.opened).map_err(|errno| anyhow::anyhow!("cannot enable the events: {errno}"))?;
        let begin = clock.monotonic();
        let started = program.start(child, subject.ends_with(host.roots), signals, Some(TICK), args.duration);
        let mut wait = started.inspect_err(|_| discard(output))?;
        let mut line = Line::on_terminal(!matches!(subject, Subject::Command));
        let happened = loop {
            let happened = tokio::select! {
                happened = wait.next() => happened,
                () = failed.notified() => break None,
            };
            if happened != WaitEvent::Interval {
                break Some(happened);
            }
            // The thread that writes the file may wait for the disk.
            if let Some(stream) = stream.lock_within(Duration::ZERO) {
                let size = Some(stream.writer.size());
                line.show(&progress(clock.monotonic().since(begin), &stream.losses, size));
            }
        };
        let duration = clock.monotonic().since(begin);
        recorder.stop();
        line.clear();
        let mut stream = stream.lock();
        stream.finish();
        let closing = Recorded { output, duration, recorder: &recorder, stream: &stream };
        if let Some(error) = &stream.failed {
            let failure = closing.failure(error);
            // A command that is only a duration has nothing to wait for.
            let continues = matches!(subject, Subject::Command);
            if happened.is_none() && continues {
                writeln!(io::stderr(), "perf-exporter: {failure}; the command continues")?;
            }
            let over = if continues { WaitEvent::Interval } else { WaitEvent::TimeUp };
            wait.end(happened.unwrap_or(over)).await;
            return Err(Failure::Failed(anyhow::anyhow!(failure)));
        }
        closing.report(user_space_only(subject, host.facts()))?;
        drop(stream);
        Ok(wait.end(happened.unwrap_or(WaitEvent::Ended)).await)
    })
}

/// The open events.
#[derive(Debug)]
struct Recorder<E: Event> {
    opened: RingSet<RingWriters<E, usize>>,
    /// Rings that no thread reads yet.
    rings: BTreeMap<u32, E::Ring>,
    refusals: Vec<crate::health::Refusal>,
    /// Number of CPUs on which the event was opened.
    cpus: usize,
}

impl<E: Event> Recorder<E> {
    /// Opens the event on each CPU. It is not enabled.
    ///
    /// # Errors
    /// If it cannot be opened, or if `subject` has ended.
    fn open<K: Kernel<Event = E>>(
        host: &Host<'_, K>,
        subject: &Subject,
        sampler: &Sampler,
        child: Option<u32>,
    ) -> Result<Self, Failure> {
        let open_targets = subject.distinct_targets(host.roots, child)?;
        let cpus = subject.event_cpus(host.facts());
        let open = |cpu| request(sampler, cpu);
        let OpenRings { opened, rings, refusals } =
            OpenRings::open(host, "samples", &open_targets, &cpus, RING, open);
        let refusals = explained(refusals, subject, host.facts());
        let cpus = rings.len();
        if cpus == 0 { Err(Failure::Nothing(refusals)) } else { Ok(Self { opened, rings, refusals, cpus }) }
    }

    /// Begins the file: the header, then records of what existed before. Sideband records are enabled before, so that no change is missed.
    fn begin<K: Kernel<Event = E>>(
        &mut self,
        output: &Output,
        host: &Host<'_, K>,
        (subject, sampler): (&Subject, &Sampler),
        compress: bool,
    ) -> Result<Arc<IoLock<Stream<E::Ring>>>, Failure> {
        let (roots, clock) = (host.roots, &host.clock);
        let events = self.events(subject, sampler).context("cannot describe the events")?;
        let command_line: Vec<_> = std::env::args_os().collect();
        let wall = clock.now().0.saturating_mul(1_000_000);
        let mut features =
            Features::new(&Machine::read(roots), &events, &command_line, (wall, clock.kernel()));
        let tracepoints = sampler.events.iter().filter(|event| Sampling::stored(sampler, event).fields.raw);
        features
            .add_tracepoints(roots, tracepoints.map(|event| &*event.name))
            .context("cannot read the format of the tracepoint")?;
        let files = crate::cli::files(roots);
        let build_ids =
            BuildIds::start(files.clone(), module_names(roots)).context("cannot start a thread")?;
        let cannot_write = || format!("cannot write {}", output.name());
        let file = create(output).with_context(cannot_write)?;
        let mut writer = Writer::begin(file, &events, features, Some(build_ids), STORED, compress)
            .with_context(cannot_write)?;
        let sideband = self.opened.writers().try_for_each(|(_, writers)| writers.start_sideband());
        sideband.map_err(|errno| anyhow::anyhow!("cannot enable the events: {errno}"))?;
        let (processes, mappings) = (processes(subject), mapping_kinds(sampler));
        let existing = Existing { files: &files, processes, mappings, trailer: TRAILER };
        let mut written = Ok(());
        existing.records(|record| {
            writer.append(record);
            if written.is_ok() && writer.is_due() {
                written = writer.commit();
            }
        });
        written.and_then(|()| writer.commit()).with_context(cannot_write)?;
        Ok(Arc::new(IoLock::new(Stream {
            rings: std::mem::take(&mut self.rings),
            merger: Merger::default(),
            writer,
            losses: Losses::default(),
            committed: clock.kernel(),
            failed: None,
        })))
    }

    /// Returns the events as they are described in the file: those that are sampled, then the one that writes the sideband records.
    fn events(&self, subject: &Subject, sampler: &Sampler) -> anyhow::Result<Vec<EventSection>> {
        let inherit = if subject.is_processes() { Inherit::Children } else { Inherit::Nothing };
        let starts = if matches!(subject, Subject::Command) { Start::OnExec } else { Start::Later };
        let bytes = |attr: Attr| attr_bytes(&Attr { inherit, start: starts, ..attr });
        let mut events = Vec::new();
        for (place, event) in sampler.events.iter().enumerate() {
            let writers = self.opened.writers().flat_map(|(_, writers)| &writers.events);
            let ids: Vec<u64> = writers.filter(|writer| writer.of == place).map(|writer| writer.id).collect();
            if !ids.is_empty() {
                let attr = bytes(attr(sampler, event));
                events.push(EventSection { name: event.name.to_string(), attr, ids });
            }
        }
        let mut ids = Vec::new();
        for (_, writers) in self.opened.writers() {
            ids.extend(writers.sideband_ids()?);
        }
        let holder = sideband(sampler).into_iter().next();
        events.extend(holder.map(|holder| EventSection { name: "dummy".into(), attr: bytes(holder), ids }));
        Ok(events)
    }

    /// Starts the thread that writes the file. The result is notified if the file cannot be written.
    fn listen(&mut self, stream: &Arc<IoLock<Stream<E::Ring>>>, clock: &Clock) -> Arc<Notify> {
        let failed = Arc::new(Notify::new());
        for ring in self.opened.ids() {
            let (stream, clock, failed) = (Arc::clone(stream), clock.clone(), Arc::clone(&failed));
            self.opened.listen(ring, || {
                Reader::start("perf-data", Some(READ), Urgency::Raised, move |_| {
                    let mut stream = stream.lock();
                    let now = clock.kernel();
                    if stream.pull(now.saturating_sub(BEHIND), now) {
                        failed.notify_one();
                    }
                })
            });
        }
        failed
    }

    /// Disables the events, and ends the thread.
    fn stop(&mut self) {
        self.opened.writers().for_each(|(_, writers)| writers.stop());
        self.opened.stop_reader();
    }
}

/// Returns the events to open on a CPU, with their places in the list of the sampler.
fn request(sampler: &Sampler, cpu: u32) -> Request<'_, usize> {
    let events = sampler.events.iter().enumerate().filter(|(_, event)| event.is_on(cpu));
    let events = events.map(|(place, event)| (attr(sampler, event), event, place));
    Request { holders: sideband(sampler), events: events.collect() }
}

/// Returns the options for sampling an event into a file.
pub(in crate::cli) fn attr(sampler: &Sampler, event: &event::Event) -> Attr {
    let leader = sampler.leader(event).map(|leader| Box::new(Attr::counting(leader)));
    Attr { leader, ..Attr::sampling(event, Sampling::stored(sampler, event)) }
}

/// Returns the options of the event that writes the sideband records, in the order of preference.
fn sideband(sampler: &Sampler) -> Vec<Attr> {
    let mmap_data = mapping_kinds(sampler) != MappingKinds::Executable;
    let more = Sideband { mmap_data, ..Sideband::default() };
    holders(STORED, more, sampler.events.iter().all(|event| event.modifiers.exclude_kernel))
}

/// Returns the mappings that readers need: those of data for memory accesses, and those of files to unwind copies of stacks, because the
/// unwind information of a program is in a mapping that is not executable.
fn mapping_kinds(sampler: &Sampler) -> MappingKinds {
    let unwinds = |event| Sampling::stored(sampler, event).fields.user_stack > 0;
    match sampler.memory {
        Some(_) => MappingKinds::All,
        None if sampler.events.iter().any(unwinds) => MappingKinds::Files,
        None => MappingKinds::Executable,
    }
}

/// Returns the processes that existed before. A command has not started yet.
fn processes(subject: &Subject) -> ExistingProcesses {
    match subject {
        Subject::Machine { .. } | Subject::Cgroups { .. } => ExistingProcesses::All,
        Subject::Processes(ids) | Subject::Threads(ids) => {
            ExistingProcesses::Of(ids.iter().copied().collect())
        }
        Subject::Command => ExistingProcesses::Of([].into()),
    }
}

/// The rings, and the file that their records are written into.
#[derive(Debug)]
struct Stream<R> {
    rings: BTreeMap<u32, R>,
    merger: Merger,
    writer: Writer,
    losses: Losses,
    /// When records were last written, on the clock of the records.
    committed: u64,
    /// Why the file cannot be written any longer.
    failed: Option<io::Error>,
}

impl<R: Ring> Stream<R> {
    /// Empties the rings, and writes the records from before `until`. Returns whether the file could not be written. Nothing more is read
    /// then.
    fn pull(&mut self, until: u64, now: u64) -> bool {
        if self.failed.is_some() {
            return true;
        }
        let Self { rings, merger, writer, losses, failed, .. } = self;
        let late = merger.late();
        for (&cpu, ring) in rings {
            let drained = ring.drain(|record| match time_of(record, &STORED) {
                Some(time) => merger.push(RingId::of_cpu(cpu), time, record),
                None => losses.unreadable += 1,
            });
            losses.unreadable += u64::from(drained.torn);
        }
        losses.late += merger.late() - late;
        let mut any = false;
        merger.flush(until, |_, record| {
            if failed.is_none() {
                any = true;
                account(record, losses);
                writer.append(record);
                *failed = if writer.is_due() { writer.commit().err() } else { None };
            }
        });
        if any {
            writer.append(FINISHED_ROUND);
        }
        if failed.is_none() && now.saturating_sub(self.committed) >= COMMIT {
            self.committed = now;
            *failed = writer.commit().err();
        }
        failed.is_some()
    }

    /// Writes everything that is left in the rings.
    fn finish(&mut self) {
        if !self.pull(u64::MAX, self.committed) {
            self.failed = self.writer.finish().err();
        }
    }
}

/// Accounts a record that is written.
fn account(record: &[u8], losses: &mut Losses) {
    if is_sample(record) {
        losses.records += 1;
        return;
    }
    match Record::parse(record, &STORED) {
        Ok(Record::Lost { count, .. } | Record::LostSamples { count }) => {
            losses.ring_full = losses.ring_full.saturating_add(count);
        }
        Ok(Record::Throttle { .. }) => losses.throttled += 1,
        _ => {}
    }
}

/// The end of a recording.
struct Recorded<'a, E: Event> {
    output: &'a Output,
    duration: Duration,
    recorder: &'a Recorder<E>,
    stream: &'a Stream<E::Ring>,
}

impl<E: Event> Recorded<'_, E> {
    /// Reports on standard error what was written, and what is missing.
    fn report(&self, user_space_only: Option<&str>) -> io::Result<()> {
        let Self { output, duration, recorder, stream } = *self;
        let losses = stream.losses;
        let mut lost = losses.reasons(Records::Samples);
        // Records that arrive late are in the file.
        lost.retain(|(reason, _)| *reason != "late");
        let empty = Profile { duration, lost, ..Profile::default() };
        let closing = Closing {
            written: (&output.name(), stream.writer.size()),
            taken: losses.records,
            duration,
            nothing: &nothing(&empty, 0),
            lost: &empty.lost,
            cpus: recorder.cpus,
            throttled: losses.throttled,
            shortfalls: &Shortfalls::default(),
        };
        let mut out = io::stderr().lock();
        closing.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
        user_space_only.iter().try_for_each(|text| writeln!(out, "  {text}"))?;
        notes::write_refused(&mut out, "recorded", &recorder.refusals)
    }

    /// Describes a recording that ended because the file could not be written.
    fn failure(&self, error: &io::Error) -> String {
        let name = self.output.name();
        format!(
            "cannot write {name}: {error}; the recording stopped, and {name} contains what was written before"
        )
    }
}
