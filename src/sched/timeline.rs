//! State of CPUs and threads, derived from scheduler events in time order.
//!
//! The rules are those of `perf sched timehist` (`tools/perf/builtin-sched.c`). A thread runs from the switch at which it is the incoming
//! task to the switch at which it is the outgoing task. It is runnable after its first wakeup, or after it was preempted. The delay is the
//! time from then until it runs. The wait is the whole time since it left the CPU, and is attributed to the state in which it left.

use rustc_hash::FxHashMap;

use super::event::{Event, Left, Party};

/// Maximum number of tracked threads. Events of further threads are counted as unknown.
const MOST: usize = 1 << 17;
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
pub struct Who {
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
pub struct Came {
    /// Time in nanoseconds, on the clock of the records.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// Run queue latency in nanoseconds; `None` if its start was not observed.
    pub delay: Option<u64>,
    /// State in which the thread left its previous CPU, and nanoseconds since then; `None` if not observed.
    pub wait: Option<(Left, u64)>,
    /// Nanoseconds from runnable to the last migration to another CPU.
    pub migrated: Option<u64>,
}

/// End of a thread's time on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Went {
    /// Time in nanoseconds, on the clock of the records.
    pub time: u64,
    /// CPU.
    pub cpu: u32,
    /// Start of the time on the CPU; `None` if it was not observed, so that the run time is unknown.
    pub came: Option<Came>,
    /// State in which the thread leaves.
    pub left: Left,
    /// Incoming task.
    pub next: Who,
}

impl Went {
    /// Returns the run time in nanoseconds.
    pub fn run(&self) -> Option<u64> {
        self.came.map(|came| self.time - came.time)
    }
}

/// Fact derived from events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The thread starts to run on a CPU.
    Came(Came),
    /// The thread stops running.
    Went(Went),
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
    who: Who,
    /// Whether a record of the thread itself has contained its cgroup. A process can be created in another cgroup than its parent's
    /// (`CLONE_INTO_CGROUP`), which no record of its creation contains.
    placed: bool,
    /// Time and state in which it left the CPU.
    left: Option<(u64, Left)>,
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
    fn tell(&mut self, (pid, cgroup): (u32, u64)) {
        let reaped = pid == u32::MAX;
        if !reaped {
            self.who.pid = pid;
        }
        if cgroup != 0 && !(reaped && self.placed) {
            (self.who.cgroup, self.placed) = (cgroup, true);
        }
    }

    /// Returns the thread with its identity and without other state.
    fn anew(&self) -> Self {
        Self { who: self.who, placed: self.placed, ..Self::default() }
    }
}

/// Running thread of a CPU.
#[derive(Debug, Clone, Copy)]
struct Running {
    tid: u32,
    came: Came,
    /// Whether [`Told::Came`] was reported. It is delayed until the first record that contains the cgroup of the thread.
    announced: bool,
    /// Time up to which the run time was reported.
    told: u64,
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
    CameAt(u64),
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
            Occupant::Unknown | Occupant::CameAt(_) => None,
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
    /// incoming task of [`Event::Comes`]. `cgroup` is 0 if the record does not contain it. Calls `told` for each fact, with its thread.
    #[inline]
    pub fn enter(
        &mut self,
        (cpu, time): (u32, u64),
        (pid, cgroup): (u32, u64),
        event: Event<'_>,
        told: &mut impl FnMut(&Who, Told),
    ) {
        self.names_cgroups |= cgroup != 0;
        match event {
            Event::Switch { from, left, to } => {
                self.resolve(cpu, (pid, cgroup), from.tid, told);
                self.leaves((cpu, time), (pid, cgroup), (from, left), to, told);
                self.comes((cpu, time), to.tid, told);
                self.cpu(cpu).announced = Some(from.tid);
            }
            Event::Comes { tid } => self.came((cpu, time), tid, (pid, cgroup), told),
            Event::Leaves { tid } => self.left((cpu, time), (pid, cgroup), tid, told),
            Event::Runs { tid } => {
                self.resolve(cpu, (pid, cgroup), tid, told);
                self.place(cpu, (pid, cgroup), tid, told);
            }
            Event::Wakes(party) => {
                if let Some(task) = self.task(party).filter(|task| !task.runs && task.ready.is_none()) {
                    task.ready = Some(time);
                }
            }
            Event::Migrates(party) => {
                if let Some(task) = self.task(party) {
                    task.migrated = Some(time);
                    told(&task.who, Told::Migrated);
                }
            }
        }
    }

    /// Reports running threads with their run time up to `time`, because a thread can occupy a CPU for long without a switch. Threads whose
    /// cgroup is not confirmed by a record are reported after at most a second. Calls `told` for each fact, with its CPU and thread.
    pub fn pass(&mut self, time: u64, mut told: impl FnMut(u32, &Who, Told)) {
        for (number, cpu) in (0..).zip(&mut self.cpus) {
            let Occupant::Known(running) = &mut cpu.occupant else { continue };
            if !running.announced && time.saturating_sub(running.came.time) < SETTLED {
                continue;
            }
            let ran = time.saturating_sub(running.told);
            running.told = running.told.max(time);
            let idle = Who::default();
            let who = self.tasks.get(&running.tid).map_or(&idle, |task| &task.who);
            if !std::mem::replace(&mut running.announced, true) {
                told(number, who, Told::Came(running.came));
            }
            if ran > 0 {
                told(number, who, Told::Ran(ran));
            }
        }
    }

    /// Returns the runnable threads that wait for a CPU, with the time since when.
    pub fn ready(&self) -> impl Iterator<Item = (&Who, u64)> {
        self.tasks.values().filter(|task| !task.runs).filter_map(|task| Some((&task.who, task.ready?)))
    }

    /// Adds a thread as described by `/proc`, without overriding records.
    pub fn describe(&mut self, who: Who) {
        if who.tid == 0 || !self.follows(who.tid) || self.tasks.len() >= MOST {
            return;
        }
        let task = self.tasks.entry(who.tid).or_insert_with(|| Task { who, ..Task::default() });
        task.who.kernel |= who.kernel;
        if task.who.pid == 0 {
            task.who.pid = who.pid;
        }
        if task.who.cgroup == 0 {
            task.who.cgroup = who.cgroup;
        }
    }

    /// Discards in-flight state after lost records. Identities are kept, unless there are so many threads that most may have exited
    /// unnoticed.
    pub fn mark_gap(&mut self) {
        let many = self.tasks.len() > MOST / 2;
        for task in self.tasks.values_mut() {
            let knew = task.left.is_some() || task.ready.is_some() || task.runs;
            self.untracked.dropped += u64::from(knew);
            *task = task.anew();
        }
        self.cpus.clear();
        if many {
            self.tasks.clear();
        }
    }

    /// Handles missed switches on a CPU since the last record of the switch stream: the start of its thread is unknown, unless the CPU
    /// itself has reported the incoming task.
    pub fn miss(&mut self, cpu: u32) {
        let known = self.cpu(cpu);
        if matches!(known.occupant, Occupant::CameAt(_)) {
            known.occupant = Occupant::Unknown;
        }
    }

    /// Handles the creation of a thread: earlier state of its ID is discarded.
    pub fn born(&mut self, who: Who) {
        if who.tid != 0
            && self.follows(who.tid)
            && (self.tasks.len() < MOST || self.tasks.contains_key(&who.tid))
        {
            self.tasks.insert(who.tid, Task { who, ..Task::default() });
        }
    }

    /// Returns the identity of a thread.
    pub fn who(&self, tid: u32) -> Option<&Who> {
        self.tasks.get(&tid).map(|task| &task.who)
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
    fn task(&mut self, party: Party<'_>) -> Option<&mut Task> {
        let task = self.task_of(party.tid)?;
        if !task.who.comm.is(party.comm) {
            task.who.comm = Comm::new(party.comm);
        }
        Some(task)
    }

    /// Returns the thread with this ID, under the same conditions.
    #[inline]
    fn task_of(&mut self, tid: u32) -> Option<&mut Task> {
        if tid == 0 || !self.follows(tid) {
            return None;
        }
        if self.tasks.len() >= MOST && !self.tasks.contains_key(&tid) {
            self.untracked.full += 1;
            return None;
        }
        let task = self.tasks.entry(tid).or_default();
        task.who.tid = tid;
        Some(task)
    }

    fn leaves(
        &mut self,
        (cpu, time): (u32, u64),
        (pid, cgroup): (u32, u64),
        (from, left): (Party<'_>, Left),
        to: Party<'_>,
        told: &mut impl FnMut(&Who, Told),
    ) {
        let running = std::mem::take(self.cpu(cpu)).running();
        running.iter().filter(|running| running.tid != from.tid).for_each(|other| self.announce(other, told));
        let seen = running.filter(|running| running.tid == from.tid);
        self.untracked.unseen += u64::from(running.is_some() && seen.is_none() && self.follows(from.tid));
        let late = seen.is_some_and(|seen| seen.came.time > time);
        self.untracked.backwards += u64::from(late);
        let unannounced = seen.filter(|seen| !seen.announced);
        let seen = seen.filter(|_| !late);
        // For a thread that is not tracked, only the name is known.
        let stranger = Who { tid: to.tid, comm: Comm::new(to.comm), ..Who::default() };
        let next = self.task(to).map_or(stranger, |task| task.who);
        let mut idle = Task::default();
        let task = match self.task(from) {
            Some(task) => task,
            None if from.tid == 0 => &mut idle,
            None => return,
        };
        if from.tid != 0 {
            task.tell((pid, cgroup));
        }
        let ready = (left == Left::Preempted && from.tid != 0).then_some(time);
        *task = Task { left: Some((time, left)), ready, ..task.anew() };
        let who = task.who;
        if left == Left::Dead {
            self.tasks.remove(&from.tid);
        }
        if let Some(unannounced) = unannounced {
            told(&who, Told::Came(unannounced.came));
        }
        let ran = seen.map_or(0, |seen| time.saturating_sub(seen.told));
        if ran > 0 {
            told(&who, Told::Ran(ran));
        }
        let came = seen.map(|seen| seen.came);
        told(&who, Told::Went(Went { time, cpu, came, left, next }));
    }

    fn runs(&mut self, cpu: u32, tid: u32, came: Came, announced: bool) {
        let occupant = Occupant::Known(Running { tid, came, announced, told: came.time });
        *self.cpu(cpu) = Cpu { occupant, announced: None };
    }

    /// Reports the start of a thread that is still unreported, with its known identity.
    fn announce(&self, running: &Running, told: &mut impl FnMut(&Who, Told)) {
        let task = self.tasks.get(&running.tid).filter(|_| !running.announced);
        task.into_iter().for_each(|task| told(&task.who, Told::Came(running.came)));
    }

    /// Reports the delayed start of a running thread, if this record contains its cgroup.
    #[inline]
    fn place(&mut self, cpu: u32, of: (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        let Occupant::Known(running) = &mut self.cpu(cpu).occupant else { return };
        if running.announced || running.tid != tid || of.1 == 0 {
            return;
        }
        running.announced = true;
        let came = running.came;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.tell(of);
            told(&task.who, Told::Came(came));
        }
    }

    /// Handles an outgoing task in the switch stream.
    fn left(&mut self, (cpu, time): (u32, u64), of: (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        if self.cpu(cpu).announced.take().is_some_and(|from| from == tid || tid == u32::MAX) {
            return;
        }
        self.resolve(cpu, of, tid, told);
        if tid != u32::MAX {
            let known = self.tasks.get(&tid).map_or(Comm::default(), |task| task.who.comm);
            let from = (Party { tid, comm: known.bytes() }, Left::Sleeping);
            self.leaves((cpu, time), of, from, Party::default(), told);
        }
        self.cpu(cpu).occupant = Occupant::CameAt(time);
    }

    /// Handles a record that identifies the running thread: it started when the previous thread left.
    #[inline]
    fn resolve(&mut self, cpu: u32, of: (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        let known = self.cpu(cpu);
        let Occupant::CameAt(time) = known.occupant else { return };
        if tid == u32::MAX {
            return;
        }
        known.occupant = Occupant::Unknown;
        if let Some(task) = self.task_of(tid) {
            task.tell(of);
            // A thread that is woken while it runs does not wait for a CPU.
            task.ready = task.ready.filter(|&ready| ready <= time);
        }
        self.comes((cpu, time), tid, told);
    }

    /// Handles an incoming task, which a switch may have reported before.
    fn came(&mut self, (cpu, time): (u32, u64), tid: u32, of: (u32, u64), told: &mut impl FnMut(&Who, Told)) {
        let before = self.cpu(cpu).running();
        if before.is_some_and(|before| before.tid == tid) {
            return;
        }
        // All kernels report switches between two threads. So the CPU was idle, or an earlier switch was missed.
        if let Some(before) = before
            && before.tid != 0
        {
            self.untracked.unseen += 1;
            self.announce(&before, told);
            if let Some(task) = self.tasks.get_mut(&before.tid) {
                *task = task.anew();
            }
        }
        self.comes((cpu, time), tid, told);
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.tell(of);
        }
    }

    fn comes(&mut self, (cpu, time): (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        let mut backwards = 0;
        let mut since = |moment: Option<u64>| {
            let elapsed = moment.map(|moment| time.checked_sub(moment));
            backwards += u64::from(elapsed == Some(None));
            elapsed.flatten()
        };
        let nothing = Came { time, cpu, delay: None, wait: None, migrated: None };
        let names_cgroups = self.names_cgroups;
        let Some(task) = self.task_of(tid) else {
            if tid == 0 {
                self.runs(cpu, 0, nothing, true);
                told(&Who::default(), Told::Came(nothing));
            }
            return;
        };
        let delay = since(task.ready);
        let wait = task.left.and_then(|(moment, left)| Some((left, since(Some(moment))?)));
        let migrated =
            task.migrated.zip(task.ready).and_then(|(migrated, ready)| migrated.checked_sub(ready));
        let came = Came { delay, wait, migrated, ..nothing };
        let unwoken = task.ready.is_none() && task.left.is_some();
        (task.runs, task.ready, task.migrated) = (true, None, None);
        let (who, announced) = (task.who, task.placed || !names_cgroups);
        self.untracked.unwoken += u64::from(unwoken);
        self.untracked.backwards += backwards;
        self.runs(cpu, tid, came, announced);
        if announced {
            told(&who, Told::Came(came));
        }
    }
}

#[cfg(test)]
mod tests;
