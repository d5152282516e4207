//! State of CPUs and threads, derived from scheduler events in time order.
//!
//! The rules are those of `perf sched timehist` (`tools/perf/builtin-sched.c`). A thread runs from the switch at which it is the incoming
//! task to the switch at which it is the outgoing task. It is runnable after its first wakeup, or after it was preempted. The delay is the
//! time from then until it runs. The wait is the whole time since it left the CPU, and is attributed to the state in which it left.

use rustc_hash::FxHashMap;

use super::event::{Event, PrevState, RecordThread};

/// Maximum number of tracked threads. Events of further threads are counted as unknown.
const MAX: usize = 1 << 17;
/// Time on a CPU, in nanoseconds, after which the cgroup of a thread is considered final. A clock record of the switch stream normally
/// contains it much sooner. Without the stream, a thread alone on a CPU may write no record for this long.
const SETTLED: u64 = 1_000_000_000;
/// Maximum length of a thread name, in bytes (`TASK_COMM_LEN` without the NUL).
const NAME: usize = 15;

/// Thread name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm([u8; NAME + 1]);

impl Comm {
    /// Creates a name; longer names are truncated.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; NAME + 1];
        let length = name.len().min(NAME);
        bytes[..length].copy_from_slice(&name[..length]);
        Self(bytes)
    }

    /// Returns the bytes, which may be invalid UTF-8.
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }

    /// Reports whether this is `name`, which contains no NUL.
    #[inline]
    fn is(&self, name: &[u8]) -> bool {
        let length = name.len().min(NAME);
        self.0[..length] == name[..length] && self.0[length] == 0
    }
}

/// Identity of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Thread {
    /// Thread ID; 0 is the idle task of a CPU.
    pub tid: u32,
    /// Process ID; 0 while unknown.
    pub pid: u32,
    /// Cgroup ID from the thread's own records; 0 while unknown. Before its first record, that of its parent.
    pub cgroup: u64,
    /// Name.
    pub comm: Comm,
    /// Whether it is a kernel thread.
    pub kernel: bool,
}

/// Start of a thread's time on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchIn {
    /// Time in nanoseconds, on the clock of the records.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// Run queue latency in nanoseconds; `None` if its start was not observed.
    pub delay: Option<u64>,
    /// State in which the thread left its previous CPU, and nanoseconds since then; `None` if not observed.
    pub wait: Option<(PrevState, u64)>,
    /// Nanoseconds from runnable to the last migration to another CPU.
    pub migrated: Option<u64>,
}

/// End of a thread's time on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchOut {
    /// Time in nanoseconds, on the clock of the records.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// Start of the time on the CPU; `None` if it was not observed, so that the run time is unknown.
    pub switch_in: Option<SwitchIn>,
    /// State in which the thread leaves.
    pub prev_state: PrevState,
    /// Incoming task.
    pub next: Thread,
}

impl SwitchOut {
    /// Returns the run time in nanoseconds.
    pub fn run(&self) -> Option<u64> {
        self.switch_in.map(|switch_in| self.time - switch_in.time)
    }
}

/// Fact derived from events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchedFact {
    /// The thread starts to run on a CPU.
    SwitchIn(SwitchIn),
    /// The thread stops running.
    SwitchOut(SwitchOut),
    /// The thread ran for this many nanoseconds since the previously reported time.
    Ran(u64),
    /// The thread was migrated to another CPU.
    Migrated,
}

/// Counters of facts that could not be derived; monotonic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Untracked {
    /// Events with a time before their predecessor: the clocks of CPUs differ, or a record arrived late.
    pub backwards: u64,
    /// Switches from a thread whose start on the CPU was not observed.
    pub unseen: u64,
    /// Threads that run after sleeping without an observed wakeup, so that their latency is unknown. Some kernels write no records of
    /// interrupts while a CPU is idle.
    pub unwoken: u64,
    /// Threads whose in-flight state was discarded because records were lost.
    pub dropped: u64,
    /// Events of threads that were dropped because the table was full.
    pub full: u64,
}

/// State of a thread. Unknown times are `None`.
#[derive(Debug, Clone, Copy, Default)]
struct Task {
    thread: Thread,
    /// Whether a record of the thread itself has contained its cgroup. A process can be created in another cgroup than its parent's
    /// (`CLONE_INTO_CGROUP`), which no record of its creation contains.
    placed: bool,
    /// Time and state in which it left the CPU.
    prev_state: Option<(u64, PrevState)>,
    /// Time at which it became runnable.
    ready: Option<u64>,
    /// Time of its last migration.
    migrated: Option<u64>,
    /// Whether it is running.
    runs: bool,
}

impl Task {
    /// Sets process and cgroup from a record of the thread. A reaped thread has lost its IDs; `cgroup` is 0 if the record has none.
    #[inline]
    fn set_ids(&mut self, (pid, cgroup): (u32, u64)) {
        let reaped = pid == u32::MAX;
        if !reaped {
            self.thread.pid = pid;
        }
        if cgroup != 0 && !(reaped && self.placed) {
            (self.thread.cgroup, self.placed) = (cgroup, true);
        }
    }

    /// Returns the thread with its identity and without other state.
    fn identity_only(&self) -> Self {
        Self { thread: self.thread, placed: self.placed, ..Self::default() }
    }
}

/// Running thread of a CPU.
#[derive(Debug, Clone, Copy)]
struct Running {
    tid: u32,
    switch_in: SwitchIn,
    /// Whether [`SchedFact::SwitchIn`] was reported. It is delayed until the first record that contains the cgroup of the thread.
    announced: bool,
    /// Time up to which the run time was reported.
    reported: u64,
}

/// Occupant of a CPU.
#[derive(Debug, Clone, Copy, Default)]
enum Occupant {
    /// Thread or start time unknown.
    #[default]
    Unknown,
    /// Known thread.
    Known(Running),
    /// Unknown thread that started when the previous one left, at this time.
    SwitchedInAt(u64),
}

/// State of a CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    occupant: Occupant,
    /// Outgoing task of the last `sched:sched_switch`, until the corresponding record of the switch stream.
    announced: Option<u32>,
}

impl Cpu {
    fn running(self) -> Option<Running> {
        match self.occupant {
            Occupant::Known(running) => Some(running),
            Occupant::Unknown | Occupant::SwitchedInAt(_) => None,
        }
    }
}

/// State of all CPUs and threads.
#[derive(Debug, Default)]
pub struct Timeline {
    /// By the number of the CPU. CPUs without records are in their initial state, or beyond the end.
    cpus: Vec<Cpu>,
    tasks: FxHashMap<u32, Task>,
    /// Whether records contain cgroups, because one did.
    names_cgroups: bool,
    /// Bits of thread IDs that must be 0 for a thread to be tracked.
    ignored: u32,
    untracked: Untracked,
}

impl Timeline {
    /// Processes an event on a CPU. `pid` and `cgroup` are those of the current thread of the record: the outgoing task of a switch, or the
    /// incoming task of [`Event::Incoming`]. `cgroup` is 0 if the record does not contain it. Calls `report` for each fact, with its
    /// thread.
    #[inline]
    pub fn enter(
        &mut self,
        (cpu, time): (u32, u64),
        (pid, cgroup): (u32, u64),
        event: Event<'_>,
        report: &mut impl FnMut(&Thread, SchedFact),
    ) {
        self.names_cgroups |= cgroup != 0;
        match event {
            Event::Switch { from, prev_state, to } => {
                self.resolve(cpu, (pid, cgroup), from.tid, report);
                self.outgoing((cpu, time), (pid, cgroup), (from, prev_state), to, report);
                self.incoming((cpu, time), to.tid, report);
                self.cpu(cpu).announced = Some(from.tid);
            }
            Event::Incoming { tid } => self.switch_record_in((cpu, time), tid, (pid, cgroup), report),
            Event::Outgoing { tid } => self.switch_record_out((cpu, time), (pid, cgroup), tid, report),
            Event::Runs { tid } => {
                self.resolve(cpu, (pid, cgroup), tid, report);
                self.place(cpu, (pid, cgroup), tid, report);
            }
            Event::Wakes(party) => {
                if let Some(task) = self.task(party).filter(|task| !task.runs && task.ready.is_none()) {
                    task.ready = Some(time);
                }
            }
            Event::Migrates(party) => {
                if let Some(task) = self.task(party) {
                    task.migrated = Some(time);
                    report(&task.thread, SchedFact::Migrated);
                }
            }
        }
    }

    /// Reports running threads with their run time up to `time`, because a thread can occupy a CPU for long without a switch. Threads whose
    /// cgroup is not confirmed by a record are reported after at most a second. Calls `report` for each fact, with its CPU and thread.
    pub fn pass(&mut self, time: u64, mut report: impl FnMut(u32, &Thread, SchedFact)) {
        for (number, cpu) in (0..).zip(&mut self.cpus) {
            let Occupant::Known(running) = &mut cpu.occupant else { continue };
            if !running.announced && time.saturating_sub(running.switch_in.time) < SETTLED {
                continue;
            }
            let ran = time.saturating_sub(running.reported);
            running.reported = running.reported.max(time);
            let idle = Thread::default();
            let thread = self.tasks.get(&running.tid).map_or(&idle, |task| &task.thread);
            if !std::mem::replace(&mut running.announced, true) {
                report(number, thread, SchedFact::SwitchIn(running.switch_in));
            }
            if ran > 0 {
                report(number, thread, SchedFact::Ran(ran));
            }
        }
    }

    /// Adds a thread as described by `/proc`, without overriding records.
    pub fn describe(&mut self, thread: Thread) {
        if thread.tid == 0 || !self.follows(thread.tid) || self.tasks.len() >= MAX {
            return;
        }
        let task = self.tasks.entry(thread.tid).or_insert_with(|| Task { thread, ..Task::default() });
        task.thread.kernel |= thread.kernel;
        if task.thread.pid == 0 {
            task.thread.pid = thread.pid;
        }
        if task.thread.cgroup == 0 {
            task.thread.cgroup = thread.cgroup;
        }
    }

    /// Discards in-flight state after lost records. Identities are kept, unless there are so many threads that most may have exited
    /// unnoticed.
    pub fn mark_gap(&mut self) {
        let many = self.tasks.len() > MAX / 2;
        for task in self.tasks.values_mut() {
            let knew = task.prev_state.is_some() || task.ready.is_some() || task.runs;
            self.untracked.dropped += u64::from(knew);
            *task = task.identity_only();
        }
        self.cpus.clear();
        if many {
            self.tasks.clear();
        }
    }

    /// Handles missed switches on a CPU since the last record of the switch stream: the start of its thread is unknown, unless the CPU
    /// itself has reported the incoming task. `tid` is that thread, by the next record.
    pub fn miss(&mut self, cpu: u32, tid: u32) {
        let known = self.cpu(cpu);
        if matches!(known.occupant, Occupant::SwitchedInAt(_)) {
            known.occupant = Occupant::Unknown;
            self.untracked.unseen += u64::from(self.follows(tid));
        }
    }

    /// Handles the creation of a thread: earlier state of its ID is discarded.
    pub fn created(&mut self, thread: Thread) {
        if thread.tid != 0
            && self.follows(thread.tid)
            && (self.tasks.len() < MAX || self.tasks.contains_key(&thread.tid))
        {
            self.tasks.insert(thread.tid, Task { thread, ..Task::default() });
        }
    }

    /// Returns the identity of a thread.
    pub fn thread(&self, tid: u32) -> Option<&Thread> {
        self.tasks.get(&tid).map(|task| &task.thread)
    }

    /// Restricts tracking to one in N threads, N a power of two, by the last bits of their IDs. Other threads are not reported.
    pub fn sample(&mut self, one_of: u32) {
        self.ignored = one_of.max(1) - 1;
        let ignored = self.ignored;
        self.tasks.retain(|tid, _| tid & ignored == 0);
    }

    #[inline]
    fn follows(&self, tid: u32) -> bool {
        tid & self.ignored == 0
    }

    /// Handles the exit of a thread that was not observed on a CPU.
    pub fn forget(&mut self, tid: u32) {
        if self.tasks.get(&tid).is_some_and(|task| !task.runs) {
            self.tasks.remove(&tid);
        }
    }

    /// Returns the counters of facts that could not be derived.
    pub fn untracked(&self) -> Untracked {
        self.untracked
    }

    /// Returns the number of known threads.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Reports whether no thread is known.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Returns the state of a CPU. The numbers of CPUs are those of rings, and thus small.
    #[inline]
    fn cpu(&mut self, cpu: u32) -> &mut Cpu {
        let place = cpu as usize;
        if place >= self.cpus.len() {
            self.cpus.resize(place + 1, Cpu::default());
        }
        &mut self.cpus[place]
    }

    /// Returns the thread of a record; `None` for the idle task, or if the table is full.
    #[inline]
    fn task(&mut self, party: RecordThread<'_>) -> Option<&mut Task> {
        let task = self.task_of(party.tid)?;
        if !task.thread.comm.is(party.comm) {
            task.thread.comm = Comm::new(party.comm);
        }
        Some(task)
    }

    /// Returns the thread with this ID, under the same conditions.
    #[inline]
    fn task_of(&mut self, tid: u32) -> Option<&mut Task> {
        if tid == 0 || !self.follows(tid) {
            return None;
        }
        if self.tasks.len() >= MAX && !self.tasks.contains_key(&tid) {
            self.untracked.full += 1;
            return None;
        }
        let task = self.tasks.entry(tid).or_default();
        task.thread.tid = tid;
        Some(task)
    }

    fn outgoing(
        &mut self,
        (cpu, time): (u32, u64),
        (pid, cgroup): (u32, u64),
        (from, prev_state): (RecordThread<'_>, PrevState),
        to: RecordThread<'_>,
        report: &mut impl FnMut(&Thread, SchedFact),
    ) {
        let running = std::mem::take(self.cpu(cpu)).running();
        running
            .iter()
            .filter(|running| running.tid != from.tid)
            .for_each(|other| self.announce(other, report));
        let seen = running.filter(|running| running.tid == from.tid);
        self.untracked.unseen += u64::from(running.is_some() && seen.is_none() && self.follows(from.tid));
        let late = seen.is_some_and(|seen| seen.switch_in.time > time);
        self.untracked.backwards += u64::from(late);
        let unannounced = seen.filter(|seen| !seen.announced);
        let seen = seen.filter(|_| !late);
        // For a thread that is not tracked, only the name is known.
        let stranger = Thread { tid: to.tid, comm: Comm::new(to.comm), ..Thread::default() };
        let next = self.task(to).map_or(stranger, |task| task.thread);
        let mut idle = Task::default();
        let task = match self.task(from) {
            Some(task) => task,
            None if from.tid == 0 => &mut idle,
            None => return,
        };
        if from.tid != 0 {
            task.set_ids((pid, cgroup));
        }
        let ready = (prev_state == PrevState::Preempted && from.tid != 0).then_some(time);
        *task = Task { prev_state: Some((time, prev_state)), ready, ..task.identity_only() };
        let thread = task.thread;
        if prev_state == PrevState::Dead {
            self.tasks.remove(&from.tid);
        }
        if let Some(unannounced) = unannounced {
            report(&thread, SchedFact::SwitchIn(unannounced.switch_in));
        }
        let ran = seen.map_or(0, |seen| time.saturating_sub(seen.reported));
        if ran > 0 {
            report(&thread, SchedFact::Ran(ran));
        }
        let switch_in = seen.map(|seen| seen.switch_in);
        report(&thread, SchedFact::SwitchOut(SwitchOut { time, cpu, switch_in, prev_state, next }));
    }

    fn runs(&mut self, cpu: u32, tid: u32, switch_in: SwitchIn, announced: bool) {
        let occupant = Occupant::Known(Running { tid, switch_in, announced, reported: switch_in.time });
        *self.cpu(cpu) = Cpu { occupant, announced: None };
    }

    /// Reports the start of a thread that is still unreported, with its known identity.
    fn announce(&self, running: &Running, report: &mut impl FnMut(&Thread, SchedFact)) {
        let task = self.tasks.get(&running.tid).filter(|_| !running.announced);
        task.into_iter().for_each(|task| report(&task.thread, SchedFact::SwitchIn(running.switch_in)));
    }

    /// Reports the delayed start of a running thread, if this record contains its cgroup.
    #[inline]
    fn place(&mut self, cpu: u32, of: (u32, u64), tid: u32, report: &mut impl FnMut(&Thread, SchedFact)) {
        let Occupant::Known(running) = &mut self.cpu(cpu).occupant else { return };
        if running.announced || running.tid != tid || of.1 == 0 {
            return;
        }
        running.announced = true;
        let switch_in = running.switch_in;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.set_ids(of);
            report(&task.thread, SchedFact::SwitchIn(switch_in));
        }
    }

    /// Handles an outgoing task in the switch stream.
    fn switch_record_out(
        &mut self,
        (cpu, time): (u32, u64),
        of: (u32, u64),
        tid: u32,
        report: &mut impl FnMut(&Thread, SchedFact),
    ) {
        if self.cpu(cpu).announced.take().is_some_and(|from| from == tid || tid == u32::MAX) {
            return;
        }
        self.resolve(cpu, of, tid, report);
        if tid != u32::MAX {
            let known = self.tasks.get(&tid).map_or(Comm::default(), |task| task.thread.comm);
            let from = (RecordThread { tid, comm: known.bytes() }, PrevState::Sleeping);
            self.outgoing((cpu, time), of, from, RecordThread::default(), report);
        }
        self.cpu(cpu).occupant = Occupant::SwitchedInAt(time);
    }

    /// Handles a record that identifies the running thread: it started when the previous thread left.
    #[inline]
    fn resolve(&mut self, cpu: u32, of: (u32, u64), tid: u32, report: &mut impl FnMut(&Thread, SchedFact)) {
        let known = self.cpu(cpu);
        let Occupant::SwitchedInAt(time) = known.occupant else { return };
        if tid == u32::MAX {
            return;
        }
        known.occupant = Occupant::Unknown;
        if let Some(task) = self.task_of(tid) {
            task.set_ids(of);
            // A thread that is woken while it runs does not wait for a CPU.
            task.ready = task.ready.filter(|&ready| ready <= time);
        }
        self.incoming((cpu, time), tid, report);
    }

    /// Handles an incoming task, which a switch may have reported before.
    fn switch_record_in(
        &mut self,
        (cpu, time): (u32, u64),
        tid: u32,
        of: (u32, u64),
        report: &mut impl FnMut(&Thread, SchedFact),
    ) {
        let before = self.cpu(cpu).running();
        if before.is_some_and(|before| before.tid == tid) {
            return;
        }
        // All kernels report switches between two threads. So the CPU was idle, or an earlier switch was missed.
        if let Some(before) = before
            && before.tid != 0
        {
            self.untracked.unseen += 1;
            self.announce(&before, report);
            if let Some(task) = self.tasks.get_mut(&before.tid) {
                *task = task.identity_only();
            }
        }
        self.incoming((cpu, time), tid, report);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.set_ids(of);
        }
    }

    fn incoming(&mut self, (cpu, time): (u32, u64), tid: u32, report: &mut impl FnMut(&Thread, SchedFact)) {
        let mut backwards = 0;
        let mut since = |moment: Option<u64>| {
            let elapsed = moment.map(|moment| time.checked_sub(moment));
            backwards += u64::from(elapsed == Some(None));
            elapsed.flatten()
        };
        let nothing = SwitchIn { time, cpu, delay: None, wait: None, migrated: None };
        let names_cgroups = self.names_cgroups;
        let Some(task) = self.task_of(tid) else {
            if tid == 0 {
                self.runs(cpu, 0, nothing, true);
                report(&Thread::default(), SchedFact::SwitchIn(nothing));
            }
            return;
        };
        let delay = since(task.ready);
        let wait = task.prev_state.and_then(|(moment, prev_state)| Some((prev_state, since(Some(moment))?)));
        let migrated =
            task.migrated.zip(task.ready).and_then(|(migrated, ready)| migrated.checked_sub(ready));
        let switch_in = SwitchIn { delay, wait, migrated, ..nothing };
        let unwoken = task.ready.is_none() && task.prev_state.is_some();
        (task.runs, task.ready, task.migrated) = (true, None, None);
        let (thread, announced) = (task.thread, task.placed || !names_cgroups);
        self.untracked.unwoken += u64::from(unwoken);
        self.untracked.backwards += backwards;
        self.runs(cpu, tid, switch_in, announced);
        if announced {
            report(&thread, SchedFact::SwitchIn(switch_in));
        }
    }
}

#[cfg(test)]
mod tests;
