//! Who is on which CPU, who waits for one and since when: what follows from the scheduler's events, in the order of their
//! times.
//!
//! The rules are those of `perf sched timehist` (`tools/perf/builtin-sched.c`): a thread runs from the switch that brings
//! it to the switch that takes it away. It is ready when somebody wakes it, first come, or when it is taken from a CPU
//! though it would go on; from then until it runs it waits for a CPU: that is the delay. All of the time since it left the
//! CPU before is its wait, which is put down to how it left.

use rustc_hash::FxHashMap;

use super::event::{Event, Left, Party};

/// How many threads are known at most. One more is nobody's: its time is counted as unknown.
const MOST: usize = 1 << 17;
/// For how long a thread runs before its cgroup is taken for known, in nanoseconds: the clock of the switch stream records it much
/// sooner. Without the stream it may run until then on a CPU of its own and write no record.
const SETTLED: u64 = 1_000_000_000;
/// The longest name of a thread, in bytes (`TASK_COMM_LEN` without its NUL).
const NAME: usize = 15;

/// The name of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Comm([u8; NAME + 1]);

impl Comm {
    /// What does not fit is left out.
    pub fn new(name: &[u8]) -> Self {
        let mut bytes = [0; NAME + 1];
        let length = name.len().min(NAME);
        bytes[..length].copy_from_slice(&name[..length]);
        Self(bytes)
    }

    /// Its bytes, whatever they are.
    pub fn bytes(&self) -> &[u8] {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        &self.0[..end]
    }

    fn is(&self, name: &[u8]) -> bool {
        self.bytes() == &name[..name.len().min(NAME)]
    }
}

/// What is known of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Who {
    /// The thread; 0 is the idle task of a CPU.
    pub tid: u32,
    /// Its process; 0 until that is known.
    pub pid: u32,
    /// Its cgroup, as its own records bear it; 0 until that is known. Until its first record, that of its parent.
    pub cgroup: u64,
    /// Its name.
    pub comm: Comm,
    /// Whether it is the kernel's.
    pub kernel: bool,
}

/// A thread comes onto a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Came {
    /// When, in nanoseconds of the clock of the records.
    pub time: u64,
    /// Where.
    pub cpu: u32,
    /// How long it was ready and waited for a CPU, in nanoseconds; `None` where nobody saw since when.
    pub delay: Option<u64>,
    /// How it had left the CPU before, and how long ago, in nanoseconds; `None` where nobody saw that.
    pub wait: Option<(Left, u64)>,
    /// How long it had been ready when it was given to another CPU the last time, in nanoseconds.
    pub migrated: Option<u64>,
}

/// A thread leaves a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Went {
    /// When, in nanoseconds of the clock of the records.
    pub time: u64,
    /// Where from.
    pub cpu: u32,
    /// How it came; `None` if nobody saw that, and its time on the CPU is not known.
    pub came: Option<Came>,
    /// How it leaves.
    pub left: Left,
    /// Who comes in its place.
    pub next: Who,
}

impl Went {
    /// How long it ran, in nanoseconds.
    pub fn run(&self) -> Option<u64> {
        self.came.map(|came| self.time - came.time)
    }
}

/// What comes of the events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// A thread comes onto a CPU.
    Came(Came),
    /// It leaves it again.
    Went(Went),
    /// It runs since the moment that was told last, and until this one: so many nanoseconds.
    Ran(u64),
    /// It was given to another CPU.
    Migrated,
}

/// What could not be told. Everything only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Untold {
    /// Times that lie before those that they follow: the clocks of CPUs differ, or a record came late.
    pub backwards: u64,
    /// Switches from a thread that was not seen to come onto the CPU.
    pub unseen: u64,
    /// Threads that slept and came onto a CPU, and nobody was seen to wake them: their delay is not known. Some kernels
    /// write no record of what interrupts do while a CPU is idle.
    pub unwoken: u64,
    /// Threads about which something was known that counts no more, for records were lost meanwhile.
    pub dropped: u64,
    /// Events of threads for which there was no room.
    pub full: u64,
}

/// Since when a thread is what it is. Times are 0 until they are known.
#[derive(Debug, Clone, Copy, Default)]
struct Task {
    who: Who,
    /// Whether a record of its own has named its cgroup. A process can be started in another one than its parent's
    /// (`CLONE_INTO_CGROUP`), and no record of its creation tells.
    placed: bool,
    /// When it left the CPU, and how.
    left: Option<(u64, Left)>,
    /// Since when it is ready.
    ready: Option<u64>,
    /// When it was given to another CPU.
    migrated: Option<u64>,
    /// Whether it runs.
    runs: bool,
}

impl Task {
    /// Takes over process and cgroup from a record of its own. A thread that was reaped has lost its ids; `cgroup` is 0 if the record
    /// has none.
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

    /// The same thread, of which nothing is known but who it is.
    fn anew(&self) -> Self {
        Self { who: self.who, placed: self.placed, ..Self::default() }
    }
}

/// What runs on a CPU.
#[derive(Debug, Clone, Copy)]
struct Running {
    tid: u32,
    came: Came,
    /// Whether [`Told::Came`] was told. It waits for the first record that names the cgroup of the thread.
    announced: bool,
    /// Up to when its time was told.
    told: u64,
}

/// Who is on a CPU.
#[derive(Debug, Clone, Copy, Default)]
enum Occupant {
    /// Nobody knows who, or since when.
    #[default]
    Unknown,
    /// This thread.
    Known(Running),
    /// Nobody has told who came since a thread left at this time.
    CameAt(u64),
}

/// What is known of a CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    occupant: Occupant,
    /// Who left last, as `sched:sched_switch` told, until the record of the switch stream tells the same.
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

/// All CPUs and threads.
#[derive(Debug, Default)]
pub struct Timeline {
    cpus: FxHashMap<u32, Cpu>,
    tasks: FxHashMap<u32, Task>,
    /// Whether records name cgroups: one did.
    names_cgroups: bool,
    /// Threads that have any of these bits in their numbers are not followed.
    ignored: u32,
    untold: Untold,
}

impl Timeline {
    /// An event on a CPU. `pid` and `cgroup` are of the thread that ran there then, as its record tells: of a switch that
    /// is who leaves, of [`Event::Comes`] who comes; `cgroup` is 0 where the record does not tell. What comes of it is told
    /// with whom it is about.
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
                self.cpus.entry(cpu).or_default().announced = Some(from.tid);
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

    /// Tells of those that run, and have run for a while: nobody else may want their CPU for long. Of a thread whose cgroup no record
    /// has named, it waits for that, for a second at most.
    /// What comes of it is told with the CPU.
    pub fn pass(&mut self, time: u64, mut told: impl FnMut(u32, &Who, Told)) {
        for (&number, cpu) in &mut self.cpus {
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

    /// Those that wait for a CPU, and since when.
    pub fn ready(&self) -> impl Iterator<Item = (&Who, u64)> {
        self.tasks.values().filter(|task| !task.runs).filter_map(|task| Some((&task.who, task.ready?)))
    }

    /// Enters a thread as `/proc` describes it, unless records have told of it.
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

    /// Records were lost: what is under way is not known any more. Names stay, unless there are so many that most may be of
    /// threads whose end was lost.
    pub fn mark_gap(&mut self) {
        let many = self.tasks.len() > MOST / 2;
        for task in self.tasks.values_mut() {
            let knew = task.left.is_some() || task.ready.is_some() || task.runs;
            self.untold.dropped += u64::from(knew);
            *task = task.anew();
        }
        self.cpus.clear();
        if many {
            self.tasks.clear();
        }
    }

    /// Others may have run on a CPU since the switch stream told of it: since when its thread runs there is not known, unless the CPU
    /// itself has told who came.
    pub fn miss(&mut self, cpu: u32) {
        if let Some(known) = self.cpus.get_mut(&cpu)
            && matches!(known.occupant, Occupant::CameAt(_))
        {
            known.occupant = Occupant::Unknown;
        }
    }

    /// A thread was made: nothing of what was known about its number counts any more.
    pub fn born(&mut self, who: Who) {
        if who.tid != 0
            && self.follows(who.tid)
            && (self.tasks.len() < MOST || self.tasks.contains_key(&who.tid))
        {
            self.tasks.insert(who.tid, Task { who, ..Task::default() });
        }
    }

    /// What is known of a thread.
    pub fn who(&self, tid: u32) -> Option<&Who> {
        self.tasks.get(&tid).map(|task| &task.who)
    }

    /// Follows only one of so many threads from now on, a power of two, by the last bits of their numbers. Of the others
    /// nothing is told.
    pub fn sample(&mut self, one_of: u32) {
        self.ignored = one_of.max(1) - 1;
        let ignored = self.ignored;
        self.tasks.retain(|tid, _| tid & ignored == 0);
    }

    #[inline]
    fn follows(&self, tid: u32) -> bool {
        tid & self.ignored == 0
    }

    /// A thread has ended without leaving a CPU that was seen.
    pub fn forget(&mut self, tid: u32) {
        if self.tasks.get(&tid).is_some_and(|task| !task.runs) {
            self.tasks.remove(&tid);
        }
    }

    /// What could not be told so far.
    pub fn untold(&self) -> Untold {
        self.untold
    }

    /// How many threads are known.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The thread that a record names; `None` for the idle task, and where there is no room.
    #[inline]
    fn task(&mut self, party: Party<'_>) -> Option<&mut Task> {
        let task = self.task_of(party.tid)?;
        if !task.who.comm.is(party.comm) {
            task.who.comm = Comm::new(party.comm);
        }
        Some(task)
    }

    /// The same by its number alone.
    #[inline]
    fn task_of(&mut self, tid: u32) -> Option<&mut Task> {
        if tid == 0 || !self.follows(tid) {
            return None;
        }
        if self.tasks.len() >= MOST && !self.tasks.contains_key(&tid) {
            self.untold.full += 1;
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
        let running = self.cpus.remove(&cpu).and_then(Cpu::running);
        running.iter().filter(|running| running.tid != from.tid).for_each(|other| self.announce(other, told));
        let seen = running.filter(|running| running.tid == from.tid);
        self.untold.unseen += u64::from(running.is_some() && seen.is_none() && self.follows(from.tid));
        let late = seen.is_some_and(|seen| seen.came.time > time);
        self.untold.backwards += u64::from(late);
        let unannounced = seen.filter(|seen| !seen.announced);
        let seen = seen.filter(|_| !late);
        // Of one that is not followed only the name is known.
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
        self.cpus.insert(cpu, Cpu { occupant, announced: None });
    }

    /// Tells that a thread came, if that still waits, with what is known of the thread.
    fn announce(&self, running: &Running, told: &mut impl FnMut(&Who, Told)) {
        let task = self.tasks.get(&running.tid).filter(|_| !running.announced);
        task.into_iter().for_each(|task| told(&task.who, Told::Came(running.came)));
    }

    /// A record of the thread that runs on a CPU names its cgroup: what waits for that is told.
    #[inline]
    fn place(&mut self, cpu: u32, of: (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        let Some(Cpu { occupant: Occupant::Known(running), .. }) = self.cpus.get_mut(&cpu) else { return };
        if running.announced || running.tid != tid || of.1 == 0 {
            return;
        }
        running.announced = true;
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.tell(of);
            told(&task.who, Told::Came(running.came));
        }
    }

    /// A thread leaves a CPU, as the switch stream tells.
    fn left(&mut self, (cpu, time): (u32, u64), of: (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        let known = self.cpus.entry(cpu).or_default();
        if known.announced.take().is_some_and(|from| from == tid || tid == u32::MAX) {
            return;
        }
        self.resolve(cpu, of, tid, told);
        if tid != u32::MAX {
            let known = self.tasks.get(&tid).map_or(Comm::default(), |task| task.who.comm);
            let from = (Party { tid, comm: known.bytes() }, Left::Sleeping);
            self.leaves((cpu, time), of, from, Party::default(), told);
        }
        self.cpus.entry(cpu).or_default().occupant = Occupant::CameAt(time);
    }

    /// Who runs on a CPU is known by now: this thread came when the one before left.
    #[inline]
    fn resolve(&mut self, cpu: u32, of: (u32, u64), tid: u32, told: &mut impl FnMut(&Who, Told)) {
        let Some(&Cpu { occupant: Occupant::CameAt(time), announced }) = self.cpus.get(&cpu) else { return };
        if tid == u32::MAX {
            return;
        }
        self.cpus.insert(cpu, Cpu { occupant: Occupant::Unknown, announced });
        if let Some(task) = self.task_of(tid) {
            task.tell(of);
            // Who is woken while it runs does not wait for a CPU.
            task.ready = task.ready.filter(|&ready| ready <= time);
        }
        self.comes((cpu, time), tid, told);
    }

    /// A thread is on a CPU now, which a switch may have told before.
    fn came(&mut self, (cpu, time): (u32, u64), tid: u32, of: (u32, u64), told: &mut impl FnMut(&Who, Told)) {
        let before = self.cpus.get(&cpu).copied().and_then(Cpu::running);
        if before.is_some_and(|before| before.tid == tid) {
            return;
        }
        // Between two threads every kernel tells of the switch. So it was idle, or somebody was missed before.
        if let Some(before) = before
            && before.tid != 0
        {
            self.untold.unseen += 1;
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
        self.untold.unwoken += u64::from(unwoken);
        self.untold.backwards += backwards;
        self.runs(cpu, tid, came, announced);
        if announced {
            told(&who, Told::Came(came));
        }
    }
}

#[cfg(test)]
mod tests;
