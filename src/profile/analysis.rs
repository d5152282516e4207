//! Turns records into sums of stacks. Every function here may read files of other processes, and block for any time.

mod past;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use self::past::KeptNames;
use self::room::HeldMemory;
use super::downsample::Downsampler;
use super::handoff::{Fresh, Handoff, Report, Series};
use super::log::SampleLog;
use super::memory::MemoryShares;
use super::model::Mode;
use super::open::{SIDE, SampleSource};
use super::rings::{Batch, Command, Rings};
use super::symbolizer_thread::SymbolizerWork;
use super::tally::{Key, Sum, Tally};
use super::tasks::{SampledThread, TaskId, Tasks};
use super::waits::{self, WaitStart, Waiting};
use crate::config::profiled::{Rate, SampledTargets, Unwind};
use crate::files::Files;
use crate::lock::Lock;
use crate::plan::Sampler;
use crate::ring::{Losses, Malformed, Record, Sample, time_of};
use crate::stack::{self, AnalyzedSample, Analyzer, Frame, ProcessId, StackId};
use crate::sys::Ring;
use crate::targets::{Cgroup, CgroupSelection, ContainerMetadata};

/// The stacks of one entry.
#[derive(Debug)]
struct Source {
    sampler: Arc<Sampler>,
    log: SampleLog,
    /// Sums of the current turn.
    fresh: FxHashMap<(TaskId, Mode, Option<u32>), Sum>,
    /// Samples of each stack since functions were last counted.
    unnamed: FxHashMap<StackId, u64>,
    /// Whether the samples of a task are selected.
    chosen: FxHashMap<TaskId, bool>,
    /// Threads that are off the CPU.
    waiting: Waiting,
    /// By CPU, for samplers whose records are waits.
    downsamplers: FxHashMap<u32, Downsampler>,
}

impl Source {
    /// Creates an entry that keeps samples for `history`, or for its window if that is longer.
    fn new(sampler: &Arc<Sampler>, history: Duration) -> Self {
        Self {
            sampler: Arc::clone(sampler),
            log: SampleLog::new(history.max(sampler.window)),
            fresh: FxHashMap::default(),
            unnamed: FxHashMap::default(),
            chosen: FxHashMap::default(),
            waiting: Waiting::default(),
            downsamplers: FxHashMap::default(),
        }
    }

    /// Returns the number of waits that this record represents, or `None` if the record is skipped.
    fn downsample(&mut self, cpu: u32, time: u64, weight: u64) -> Option<u64> {
        let Rate::Frequency(limit) = self.sampler.rate else { return Some(weight) };
        self.downsamplers.entry(cpu).or_insert_with(|| Downsampler::new(limit)).take(time, weight)
    }

    #[inline]
    fn chooses(&mut self, id: TaskId, tasks: &Tasks, containers: Option<&dyn ContainerMetadata>) -> bool {
        *self.chosen.entry(id).or_insert_with(|| {
            tasks.get(id).is_some_and(|seen| is_chosen(&self.sampler.targets, seen, containers))
        })
    }

    /// Reports whether it selects threads by the metadata of their containers.
    fn selects_pods(&self) -> bool {
        self.sampler.targets.cgroups.as_ref().is_some_and(|selection| !selection.pods.is_empty())
    }
}

fn is_chosen(
    targets: &SampledTargets,
    seen: &SampledThread,
    containers: Option<&dyn ContainerMetadata>,
) -> bool {
    let in_cgroup = |selection: &CgroupSelection| {
        let Some(path) = &seen.process.cgroup else { return false };
        let container = match selection.pods.is_empty() {
            true => None,
            false => containers
                .and_then(|containers| containers.identities(std::slice::from_ref(path)).pop().flatten()),
        };
        selection.matches(&Cgroup { container, ..Cgroup::at(path) })
    };
    targets.cgroups.as_ref().is_none_or(in_cgroup)
        && targets.processes.as_ref().is_none_or(|selection| selection.matches(&seen.process))
}

/// A recording that was requested.
#[derive(Debug)]
struct Recording {
    sampler: Arc<Sampler>,
    /// The start, on the clock of the records.
    begin: u64,
    /// Whether it follows another recording, which contains all records analyzed before: late records belong to this one.
    follows: bool,
    /// Whether CPUs are distinguished.
    by_cpu: bool,
    tally: Tally,
    /// The losses at its start.
    before: Losses,
}

/// Stacks with their sums, before symbolization.
#[derive(Debug)]
pub(super) struct Counted {
    pub(super) sampler: Arc<Sampler>,
    pub(super) tally: Tally,
    /// Nanoseconds on the clock of the records.
    pub(super) begin: u64,
    pub(super) end: u64,
    /// Records lost in this time; for a range of the past, since the start.
    pub(super) losses: Losses,
}

/// The most processes with run-time generated code that are tracked.
const MAX_JIT_PROCESSES: usize = 1 << 12;

/// The most added or removed kernel functions that are queued for the symbolizer: BPF programs come in dozens.
const MAX_KERNEL_FUNCTIONS: usize = 1 << 14;

/// The state that is derived from records: stacks, tasks, sample logs and recordings.
#[derive(Debug)]
pub(super) struct Analysis {
    sources: Vec<Source>,
    /// Metadata of containers, for selections of pods, and its generation in the last turn.
    containers: Option<Arc<dyn ContainerMetadata>>,
    generation: u64,
    /// How long samples are kept. Windows that are longer are kept whole.
    history: Duration,
    /// By event, the format of its records.
    sample_sources: FxHashMap<u64, SampleSource>,
    pub(super) analyzer: Analyzer,
    pub(super) tasks: Tasks,
    /// Processes that generate code at run time, by pid.
    jit_processes: FxHashMap<u32, ProcessId>,
    /// Work for the symbolizer.
    work: SymbolizerWork,
    /// Switches of each CPU in the current turn.
    switches: FxHashMap<u32, u64>,
    /// The number of stacks when the last new stack was examined.
    looked_at: usize,
    kept_names: KeptNames,
    recordings: BTreeMap<u64, Recording>,
    /// Records read here, and records that could not be read.
    own: Losses,
    /// Records lost before the analysis, as of the last batch.
    before: Losses,
    /// All records before this time are analyzed. Nanoseconds on the clock of the records.
    analyzed: u64,
    /// The buffer that each turn reuses.
    batch: Batch,
    held_memory: HeldMemory,
}

impl Analysis {
    /// Creates an analysis without records.
    pub(super) fn new(files: impl Into<Files>) -> Self {
        let files = files.into();
        Self {
            sources: Vec::new(),
            containers: None,
            generation: 0,
            history: Duration::ZERO,
            sample_sources: FxHashMap::default(),
            analyzer: Analyzer::new(&files, stack::Limits::default()),
            jit_processes: FxHashMap::default(),
            work: SymbolizerWork::default(),
            switches: FxHashMap::default(),
            looked_at: 0,
            kept_names: KeptNames::default(),
            tasks: Tasks::new(files.roots()),
            recordings: BTreeMap::new(),
            own: Losses::default(),
            before: Losses::default(),
            analyzed: 0,
            batch: Batch::default(),
            held_memory: HeldMemory::new(&MemoryShares::for_command()),
        }
    }

    /// Uses this metadata to select threads by their containers.
    pub(super) fn with_metadata(self, containers: Arc<dyn ContainerMetadata>) -> Self {
        Self { containers: Some(containers), ..self }
    }

    /// Analyzes some of the queued records, in order, and hands over the results. Returns whether no records are left: otherwise the caller
    /// releases the lock, so that other threads get their turn.
    pub(super) fn turn<R: Ring>(&mut self, rings: &Lock<Rings<R>>, handoff: &Lock<Handoff>) -> bool {
        let mut batch = std::mem::take(&mut self.batch);
        let all = rings.lock().take(&mut batch);
        self.forget_unknown_containers();
        self.before = batch.losses;
        if batch.torn {
            self.records_lost();
        }
        batch.records().for_each(|(cpu, record)| self.read(cpu, record));
        batch.commands.drain(..).for_each(|command| self.apply(command));
        self.analyzed = self.analyzed.max(batch.up_to);
        self.batch = batch;
        let now = self.analyzed;
        self.sources.iter_mut().for_each(|source| source.log.start(now));
        self.report(handoff);
        if all {
            let gone = self.sources.iter_mut().fold(false, |gone, source| source.log.forget(now) | gone);
            self.make_room(gone);
        }
        all
    }

    /// Decides again which threads are selected by the metadata of their containers, if there is new metadata.
    fn forget_unknown_containers(&mut self) {
        let mut concerned = self.sources.iter_mut().filter(|source| source.selects_pods()).peekable();
        if concerned.peek().is_none() {
            return;
        }
        let generation = self.containers.as_ref().map_or(0, |containers| containers.generation());
        if std::mem::replace(&mut self.generation, generation) != generation {
            concerned.for_each(|source| source.chosen.clear());
        }
    }

    /// Returns the time before which all records are analyzed. Nanoseconds on the clock of the records.
    pub(super) fn analyzed(&self) -> u64 {
        self.analyzed
    }

    fn apply(&mut self, command: Command) {
        match command {
            Command::Samplers(samplers) => self.set_samplers(&samplers),
            Command::SampleSource { id, sample_source } => {
                self.sample_sources.insert(id, sample_source);
            }
            Command::Weigh { id, weight } => {
                if let Some(sample_source) = self.sample_sources.get_mut(&id) {
                    sample_source.weight = Some(weight);
                }
            }
            Command::Forget(ids) => self.sample_sources.retain(|id, _| !ids.contains(id)),
            Command::Begin { number, entry, at, by_cpu } => self.begin(number, &entry, at, by_cpu),
            Command::Abandon(number) => drop(self.recordings.remove(&number)),
            Command::Memory(shares) => self.keep_within(&shares),
            Command::Keep(history) => self.keep_for(history),
        }
    }

    fn set_samplers(&mut self, samplers: &[Arc<Sampler>]) {
        let mut old = std::mem::take(&mut self.sources);
        for sampler in samplers {
            let kept = old.iter().position(|source| sampler.continues(&source.sampler));
            self.sources
                .push(kept.map_or_else(|| Source::new(sampler, self.history), |at| old.swap_remove(at)));
        }
        let window = samplers.iter().map(|sampler| sampler.window).max().unwrap_or_default();
        self.analyzer.keep_open_for(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX));
        self.sample_sources.clear();
    }

    /// Hands over the results of this turn.
    fn report(&mut self, handoff: &Lock<Handoff>) {
        let tasks = &self.tasks;
        let of = |source: &mut Source| {
            let mut sums = FxHashMap::default();
            for ((task, mode, cpu), sum) in source.fresh.drain() {
                let Some(task) = tasks.get(task) else { continue };
                let series = Series {
                    comm: Arc::clone(&task.comm),
                    cgroup: task.process.cgroup.clone(),
                    kernel_thread: task.process.kernel_thread,
                    mode,
                    cpu,
                };
                *sums.entry(series).or_default() += sum.count;
            }
            Fresh { sampler: Arc::clone(&source.sampler), sums }
        };
        let fresh: Vec<Fresh> =
            self.sources.iter_mut().filter(|source| !source.fresh.is_empty()).map(of).collect();
        let report = Report {
            losses: self.own,
            accounts: self.analyzer.accounts().clone(),
            analyzed: self.analyzed,
            dropped: self.held_memory.dropped,
            logs: self.sources.iter().map(Source::extent).collect(),
        };
        let switches = std::mem::take(&mut self.switches);
        handoff.lock().put(fresh, &switches, report);
    }

    fn read(&mut self, cpu: u32, bytes: &[u8]) {
        // The identifier follows the header of every sample, whatever other fields its event writes.
        let id = bytes.get(8..16).and_then(|id| id.first_chunk()).map(|&id| u64::from_ne_bytes(id));
        let sample_source = id.and_then(|id| self.sample_sources.get(&id)).copied();
        let fields = sample_source.map_or(SIDE, |sample_source| sample_source.fields);
        match (Record::parse(bytes, &fields), sample_source) {
            (Ok(Record::Sample(sample)), Some(SampleSource { sampler, weight, .. })) => {
                self.sample(cpu, sampler, &sample, weight.unwrap_or(sample.period));
            }
            (Ok(Record::Switch { out: true, .. }), _) => *self.switches.entry(cpu).or_default() += 1,
            (Ok(Record::Switch { tid, out: false, .. }), _) => {
                self.resume(tid, time_of(bytes, &SIDE).unwrap_or_default());
            }
            (Ok(Record::Sample(_)), None) | (Err(Malformed), _) => self.own.unreadable += 1,
            (Ok(Record::Lost { count, .. } | Record::LostSamples { count }), _) => {
                self.own.ring_full = self.own.ring_full.saturating_add(count);
                self.records_lost();
            }
            (Ok(Record::Throttle { .. }), _) => self.own.throttled += 1,
            (Ok(record), _) => {
                if let Record::Exit(task) = record {
                    for source in &mut self.sources {
                        source.waiting.end(task.tid);
                    }
                    self.leave(task.pid, task.tid);
                }
                if let Record::Ksymbol(symbol) = record
                    && self.work.kernel_functions.len() < MAX_KERNEL_FUNCTIONS
                {
                    self.work.kernel_functions.push((
                        symbol.address,
                        symbol.length,
                        symbol.removed,
                        symbol.name.into(),
                    ));
                }
                self.analyzer.apply_record(&record);
                self.tasks.apply_record(&record);
            }
        }
    }

    fn sample(&mut self, cpu: u32, place: usize, sample: &Sample<'_>, weight: u64) {
        let Some(source) = self.sources.get_mut(place) else { return };
        self.own.records += 1;
        let task = self.tasks.id(sample);
        if !source.chooses(task, &self.tasks, self.containers.as_deref()) {
            return;
        }
        let (mode, weight) = match &source.sampler.waits {
            None => (None, weight),
            Some(waits) => {
                let Some(mode) = waits::mode(waits, sample.raw) else { return };
                let Some(weight) = source.downsample(cpu, sample.time, weight) else { return };
                (Some(mode), weight)
            }
        };
        // No kernel supports more CPUs than 16 bits can number.
        let cpu = u16::try_from(cpu).ok();
        let unwind = match source.sampler.unwind {
            Unwind::Auto { .. } => stack::Unwind::Auto,
            // Without a call chain, a stack is only the sampled address.
            Unwind::FramePointers | Unwind::Nothing => stack::Unwind::FramePointers,
            Unwind::Dwarf { .. } => stack::Unwind::Dwarf,
        };
        let taken = self.analyzer.stack(sample, unwind);
        self.notice(taken);
        let running = if taken.kernel { Mode::Kernel } else { Mode::User };
        let key = Key { stack: taken.stack, task, mode: mode.unwrap_or(running), cpu };
        match self.sources.get_mut(place) {
            Some(source) if mode.is_some() => {
                source.waiting.begin(sample.tid, WaitStart { key, time: sample.time, weight });
            }
            _ => self.count(place, sample.time, key, Sum { count: 1, value: weight }),
        }
    }

    /// Ends the wait of a thread that runs again.
    fn resume(&mut self, tid: u32, now: u64) {
        for place in 0..self.sources.len() {
            let Some(source) = self.sources.get_mut(place) else { continue };
            let Some(waits) = &source.sampler.waits else { continue };
            let Some(WaitStart { key, time, weight }) = source.waiting.end(tid) else { continue };
            let elapsed = now.saturating_sub(time);
            if u128::from(elapsed) >= waits.threshold.as_nanos() {
                let sum = Sum { count: weight, value: elapsed.saturating_mul(weight) };
                self.count(place, now, key, sum);
            }
        }
    }

    fn count(&mut self, place: usize, time: u64, key: Key, sum: Sum) {
        let Some(source) = self.sources.get_mut(place) else { return };
        let cpu = source.sampler.per.zip(key.cpu).map(|(per, cpu)| per.number_of(cpu.into()));
        source.fresh.entry((key.task, key.mode, cpu)).or_default().add(sum);
        source.log.add(time, key, sum);
        if source.sampler.functions > 0 {
            *source.unnamed.entry(key.stack).or_default() += sum.count;
        }
        for recording in self.recordings.values_mut() {
            if Arc::ptr_eq(&recording.sampler, &source.sampler)
                && (recording.follows || recording.begin <= time)
            {
                let key = if recording.by_cpu { key } else { key.anywhere() };
                recording.tally.add(key, sum);
            }
        }
    }

    /// Registers processes that generate code at run time: their symbols must be found while they run.
    fn notice(&mut self, taken: AnalyzedSample) {
        if self.looked_at >= self.analyzer.stacks().len() {
            return;
        }
        // The stack is new.
        self.looked_at = self.analyzer.stacks().len();
        let made = |frame: Frame| match frame {
            Frame::Memory { process, .. } => Some(process),
            _ => None,
        };
        let process = self.analyzer.stacks().frames(taken.stack).find_map(made);
        let Some(process) = process.filter(|_| self.jit_processes.len() < MAX_JIT_PROCESSES) else { return };
        let pid = self.analyzer.code().processes.get(process.0 as usize).map(|process| process.pid);
        if let Some(pid) = pid
            && self.jit_processes.insert(pid, process) != Some(process)
        {
            self.work.jit_processes.push(process);
        }
    }

    /// Handles the exit of a thread. If its process has exited, its symbols must be read now.
    fn leave(&mut self, pid: u32, tid: u32) {
        if pid == tid && self.work.ended.len() < MAX_JIT_PROCESSES {
            self.work.ended.extend(self.jit_processes.remove(&pid));
        }
    }

    /// Returns the work for the symbolizer since the last call, if there is any. With `functions`, it includes the innermost frames of all
    /// samples, and frames whose names must be kept.
    pub(super) fn take_work(&mut self, functions: bool) -> Option<SymbolizerWork> {
        if functions {
            self.work.innermost = self.take_innermost();
            self.work.kept = self.take_frames();
        }
        let code = || self.analyzer.code().clone();
        (!self.work.is_empty()).then(|| SymbolizerWork { code: code(), ..std::mem::take(&mut self.work) })
    }

    /// Discards the state of processes that may be wrong because records were lost.
    fn records_lost(&mut self) {
        self.analyzer.records_lost();
        self.tasks.records_lost();
        self.sources.iter_mut().for_each(|source| source.waiting.clear());
    }

    /// Drops stacks and tasks that are no longer used. Takes time proportional to their number and to the number of chunks of the logs.
    pub(super) fn tidy(&mut self) {
        let Self { sources, recordings, analyzer, tasks, jit_processes, .. } = self;
        let mut used_tasks = vec![false; tasks.len()];
        let used = keys(sources, recordings).map(|key| {
            if let Some(used) = used_tasks.get_mut(key.task.0 as usize) {
                *used = true;
            }
            key.stack
        });
        let unnamed = sources.iter().flat_map(|source| source.unnamed.keys().copied());
        let retained = analyzer.retain(used.chain(unnamed), jit_processes.values().copied());
        // The numbers of these processes are reused in a later turn at the earliest.
        let processes = &analyzer.code().processes;
        let gone = retained.processes.iter();
        let gone = gone.filter_map(|id| Some((*id, processes.get(id.0 as usize)?.clone())));
        let room = MAX_JIT_PROCESSES.saturating_sub(self.work.gone.len());
        self.work.gone.extend(gone.take(room));
        let stacks = retained.stacks;
        self.looked_at = analyzer.stacks().len();
        self.kept_names.restart();
        let tasks = tasks.retain(&used_tasks);
        let renumber =
            |key: Key| Some(Key { stack: stacks.get(key.stack)?, task: tasks.get(key.task)?, ..key });
        for source in sources {
            // Every logged key is used.
            source.log.renumber(|key| {
                renumber(key).unwrap_or(Key { stack: StackId(0), task: TaskId::OTHER, ..key })
            });
            source.chosen.clear();
            let unnamed = std::mem::take(&mut source.unnamed);
            source.unnamed =
                unnamed.into_iter().filter_map(|(stack, count)| Some((stacks.get(stack)?, count))).collect();
            source.waiting.renumber(renumber);
        }
        recordings.values_mut().for_each(|recording| recording.tally.renumber(renumber));
    }

    fn source(&self, entry: &str) -> Option<&Source> {
        self.sources.iter().find(|source| &*source.sampler.entry == entry)
    }

    /// Begins a recording of an entry, unless the entry was removed in the meantime. It distinguishes CPUs if it is `by_cpu`, and if all
    /// recordings of the entry do.
    fn begin(&mut self, number: u64, entry: &str, at: u64, by_cpu: bool) {
        let before = self.losses();
        let Some(source) = self.source(entry) else { return };
        let sampler = Arc::clone(&source.sampler);
        let by_cpu = by_cpu || sampler.cpus;
        let tally = Tally::default();
        let recording = Recording { sampler, begin: at, follows: false, by_cpu, tally, before };
        self.recordings.insert(number, recording);
    }

    /// Ends a recording. Returns `None` if its entry was removed in the meantime.
    pub(super) fn end(&mut self, number: u64, now: u64) -> Option<Counted> {
        let Recording { sampler, begin, tally, before, .. } = self.recordings.remove(&number)?;
        self.sources.iter().find(|source| Arc::ptr_eq(&source.sampler, &sampler))?;
        Some(Counted { sampler, tally, begin, end: now, losses: self.losses().since(before) })
    }

    /// Ends a recording and begins the next one of the same entry under the same number. Records analyzed so far are in this one, all
    /// others in the next. Returns `None` if the entry was removed in the meantime.
    pub(super) fn renew(&mut self, number: u64) -> Option<Counted> {
        // Younger records have not been analyzed.
        let Recording { begin, by_cpu, .. } = *self.recordings.get(&number)?;
        let begin = self.analyzed.max(begin);
        let counted = self.end(number, begin)?;
        let (sampler, tally, before) = (Arc::clone(&counted.sampler), Tally::default(), self.losses());
        self.recordings.insert(number, Recording { sampler, begin, follows: true, by_cpu, tally, before });
        Some(counted)
    }

    /// Returns, by entry, the innermost frames of all samples since the last call.
    fn take_innermost(&mut self) -> Vec<(Arc<Sampler>, FxHashMap<Frame, u64>)> {
        let Self { sources, analyzer, .. } = self;
        let of = |source: &mut Source| {
            let mut frames = FxHashMap::default();
            for (stack, count) in std::mem::take(&mut source.unnamed) {
                if let Some(frame) = analyzer.stacks().frames(stack).next() {
                    *frames.entry(frame).or_default() += count;
                }
            }
            (Arc::clone(&source.sampler), frames)
        };
        sources.iter_mut().map(of).collect()
    }

    /// Returns the numbers of records read and lost, up to the current state of the analysis.
    fn losses(&self) -> Losses {
        self.own.plus(self.before)
    }
}

/// Returns the keys of all samples, recordings and waits.
fn keys<'a>(sources: &'a [Source], recordings: &'a BTreeMap<u64, Recording>) -> impl Iterator<Item = Key> {
    let logged = sources.iter().flat_map(|source| source.log.keys());
    let waiting = sources.iter().flat_map(|source| source.waiting.keys());
    let recorded = recordings.values().flat_map(|recording| recording.tally.iter().map(|(key, _)| key));
    logged.chain(waiting).chain(recorded)
}

#[cfg(test)]
mod tests;
