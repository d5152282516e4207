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
    /// Its cgroup, as records bear it; 0 until that is known.
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
    /// When it left the CPU, and how.
    left: Option<(u64, Left)>,
    /// Since when it is ready.
    ready: Option<u64>,
    /// When it was given to another CPU.
    migrated: Option<u64>,
    /// Whether it runs.
    runs: bool,
}

/// What runs on a CPU.
#[derive(Debug, Clone, Copy)]
struct Running {
    tid: u32,
    came: Option<Came>,
    /// Up to when its time was told.
    told: u64,
}

/// All CPUs and threads.
#[derive(Debug, Default)]
pub struct Timeline {
    cpus: FxHashMap<u32, Running>,
    tasks: FxHashMap<u32, Task>,
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
        match event {
            Event::Switch { from, left, to } => {
                self.leaves((cpu, time), (pid, cgroup), (from, left), to, told);
                self.comes((cpu, time), to, told);
            }
            Event::Comes { tid } => self.came((cpu, time), tid, (pid, cgroup), told),
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

    /// Tells of those that run, and have run for a while: nobody else may want their CPU for long.
    pub fn pass(&mut self, time: u64, mut told: impl FnMut(&Who, Told)) {
        for running in self.cpus.values_mut().filter(|running| running.came.is_some()) {
            let ran = time.saturating_sub(running.told);
            running.told = running.told.max(time);
            let idle = Who::default();
            let who = self.tasks.get(&running.tid).map_or(&idle, |task| &task.who);
            if ran > 0 {
                told(who, Told::Ran(ran));
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
            *task = Task { who: task.who, ..Task::default() };
        }
        self.cpus.clear();
        if many {
            self.tasks.clear();
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
        if party.tid == 0 || !self.follows(party.tid) {
            return None;
        }
        if self.tasks.len() >= MOST && !self.tasks.contains_key(&party.tid) {
            self.untold.full += 1;
            return None;
        }
        let task = self.tasks.entry(party.tid).or_default();
        if task.who.tid == 0 || !task.who.comm.is(party.comm) {
            (task.who.tid, task.who.comm) = (party.tid, Comm::new(party.comm));
        }
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
        let running = self.cpus.remove(&cpu);
        let seen = running.filter(|running| running.tid == from.tid);
        self.untold.unseen += u64::from(running.is_some() && seen.is_none() && self.follows(from.tid));
        let late = seen.is_some_and(|seen| seen.came.is_some_and(|came| came.time > time));
        self.untold.backwards += u64::from(late);
        let came = seen.and_then(|seen| seen.came).filter(|_| !late);
        // Of one that is not followed only the name is known.
        let stranger = Who { tid: to.tid, comm: Comm::new(to.comm), ..Who::default() };
        let next = self.task(to).map_or(stranger, |task| task.who);
        let mut idle = Task::default();
        let task = match self.task(from) {
            Some(task) => task,
            None if from.tid == 0 => &mut idle,
            None => return,
        };
        if pid != u32::MAX && from.tid != 0 {
            (task.who.pid, task.who.cgroup) = (pid, cgroup);
        }
        let ready = (left == Left::Preempted && from.tid != 0).then_some(time);
        *task = Task { left: Some((time, left)), ready, migrated: None, runs: false, who: task.who };
        let who = task.who;
        if left == Left::Dead {
            self.tasks.remove(&from.tid);
        }
        if let Some(seen) = seen.filter(|_| came.is_some()) {
            let ran = time.saturating_sub(seen.told);
            if ran > 0 {
                told(&who, Told::Ran(ran));
            }
        }
        told(&who, Told::Went(Went { time, cpu, came, left, next }));
    }

    /// A thread is on a CPU now, which a switch may have told before.
    fn came(
        &mut self,
        (cpu, time): (u32, u64),
        tid: u32,
        (pid, cgroup): (u32, u64),
        told: &mut impl FnMut(&Who, Told),
    ) {
        let before = self.cpus.get(&cpu).copied();
        if before.is_some_and(|before| before.tid == tid) {
            return;
        }
        // Between two threads every kernel tells of the switch. So it was idle, or somebody was missed before.
        if let Some(before) = before
            && before.tid != 0
        {
            self.untold.unseen += 1;
            if let Some(task) = self.tasks.get_mut(&before.tid) {
                *task = Task { who: task.who, ..Task::default() };
            }
        }
        let known = self.tasks.get(&tid).map_or(Comm::default(), |task| task.who.comm);
        self.comes((cpu, time), Party { tid, comm: known.bytes() }, told);
        if let Some(task) = self.tasks.get_mut(&tid)
            && pid != u32::MAX
        {
            task.who.pid = pid;
            if cgroup != 0 {
                task.who.cgroup = cgroup;
            }
        }
    }

    fn comes(&mut self, (cpu, time): (u32, u64), to: Party<'_>, told: &mut impl FnMut(&Who, Told)) {
        let mut backwards = 0;
        let mut since = |moment: Option<u64>| {
            let elapsed = moment.map(|moment| time.checked_sub(moment));
            backwards += u64::from(elapsed == Some(None));
            elapsed.flatten()
        };
        let nothing = Came { time, cpu, delay: None, wait: None, migrated: None };
        let Some(task) = self.task(to) else {
            if to.tid == 0 {
                self.cpus.insert(cpu, Running { tid: 0, came: Some(nothing), told: time });
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
        let who = task.who;
        self.untold.unwoken += u64::from(unwoken);
        self.untold.backwards += backwards;
        self.cpus.insert(cpu, Running { tid: to.tid, came: Some(came), told: time });
        told(&who, Told::Came(came));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Party<'_> = Party { tid: 1, comm: b"one" };
    const TWO: Party<'_> = Party { tid: 2, comm: b"two" };
    const IDLE: Party<'_> = Party { tid: 0, comm: b"swapper/0" };

    /// Who came, after which delay, and how long ago it had left and how.
    type CameRow = (u32, Option<u64>, Option<(Left, u64)>);

    /// What is told, with the thread that it is about.
    #[derive(Default)]
    struct Machine {
        timeline: Timeline,
        told: Vec<(u32, Told)>,
    }

    impl Machine {
        fn switch(&mut self, cpu: u32, time: u64, from: Party<'_>, left: Left, to: Party<'_>) {
            let tid = from.tid;
            self.enter((cpu, time), (tid + 100, u64::from(tid) + 1000), Event::Switch { from, left, to });
        }

        fn enter(&mut self, at: (u32, u64), of: (u32, u64), event: Event<'_>) {
            let told = &mut self.told;
            self.timeline.enter(at, of, event, &mut |who: &Who, what| told.push((who.tid, what)));
        }

        fn wakes(&mut self, time: u64, party: Party<'_>) {
            self.enter((0, time), (0, 0), Event::Wakes(party));
        }

        /// Delays and waits of those that came, in order.
        fn came(&self) -> Vec<CameRow> {
            let of = |&(tid, told): &(u32, Told)| match told {
                Told::Came(came) if tid != 0 => Some((tid, came.delay, came.wait)),
                _ => None,
            };
            self.told.iter().filter_map(of).collect()
        }

        fn runs(&self) -> Vec<(u32, Option<u64>)> {
            let of = |&(tid, told): &(u32, Told)| match told {
                Told::Went(went) => Some((tid, went.run())),
                _ => None,
            };
            self.told.iter().filter_map(of).collect()
        }
    }

    #[test]
    fn a_sleeper_is_delayed_from_the_first_who_wakes_it_and_has_waited_since_it_slept() {
        let mut machine = Machine::default();
        machine.switch(0, 10, IDLE, Left::Preempted, ONE);
        machine.switch(0, 30, ONE, Left::Sleeping, IDLE);
        machine.wakes(50, ONE);
        machine.wakes(60, ONE);
        machine.switch(0, 75, IDLE, Left::Preempted, ONE);
        assert_eq!(machine.came(), [(1, None, None), (1, Some(25), Some((Left::Sleeping, 45)))]);
        assert_eq!(machine.runs(), [(0, None), (1, Some(20)), (0, Some(45))]);
    }

    #[test]
    fn who_is_preempted_is_delayed_from_then_on_and_who_takes_its_place_is_known() {
        let mut machine = Machine::default();
        machine.switch(0, 10, TWO, Left::Sleeping, ONE);
        machine.wakes(20, TWO);
        machine.switch(0, 30, ONE, Left::Preempted, TWO);
        machine.switch(0, 42, TWO, Left::Blocked, ONE);
        let came = machine.came();
        assert_eq!(
            came[1..],
            [(2, Some(10), Some((Left::Sleeping, 20))), (1, Some(12), Some((Left::Preempted, 12)))]
        );
        let by = machine.told.iter().find_map(|&(tid, told)| match told {
            Told::Went(went) if tid == 1 => Some((went.left, went.next.tid, went.next.pid, went.next.cgroup)),
            _ => None,
        });
        assert_eq!(by, Some((Left::Preempted, 2, 102, 1002)), "it was seen before");
    }

    #[test]
    fn who_comes_without_a_switch_is_seen_if_the_cpu_tells_and_is_not_told_twice() {
        let mut machine = Machine::default();
        machine.switch(0, 10, ONE, Left::Sleeping, IDLE);
        machine.wakes(40, ONE);
        machine.enter((0, 45), (101, 0), Event::Comes { tid: 1 });
        machine.enter((0, 46), (101, 0), Event::Comes { tid: 1 });
        machine.switch(0, 60, ONE, Left::Sleeping, IDLE);
        machine.enter((0, 61), (0, 0), Event::Comes { tid: 0 });
        assert_eq!(machine.came(), [(1, Some(5), Some((Left::Sleeping, 35)))]);
        assert_eq!(machine.runs(), [(1, None), (1, Some(15))]);
        assert_eq!(machine.timeline.untold(), Untold::default());
    }

    #[test]
    fn a_wake_up_of_one_that_runs_is_no_delay() {
        let mut machine = Machine::default();
        machine.switch(0, 10, IDLE, Left::Preempted, ONE);
        machine.wakes(20, ONE);
        machine.switch(0, 30, ONE, Left::Sleeping, IDLE);
        machine.wakes(90, ONE);
        machine.switch(0, 91, IDLE, Left::Preempted, ONE);
        assert_eq!(machine.came().last(), Some(&(1, Some(1), Some((Left::Sleeping, 61)))));
    }

    #[test]
    fn who_comes_without_having_been_woken_has_no_delay_and_is_counted() {
        let mut machine = Machine::default();
        machine.switch(0, 10, IDLE, Left::Preempted, ONE);
        machine.switch(0, 30, ONE, Left::Sleeping, IDLE);
        machine.switch(0, 75, IDLE, Left::Preempted, ONE);
        assert_eq!(machine.came(), [(1, None, None), (1, None, Some((Left::Sleeping, 45)))]);
        assert_eq!(machine.timeline.untold(), Untold { unwoken: 1, ..Untold::default() });
    }

    #[test]
    fn clocks_that_differ_give_no_time_and_are_counted() {
        let mut machine = Machine::default();
        machine.switch(0, 100, ONE, Left::Sleeping, IDLE);
        machine.wakes(200, ONE);
        machine.switch(1, 150, IDLE, Left::Preempted, ONE);
        assert_eq!(machine.came(), [(1, None, Some((Left::Sleeping, 50)))]);
        machine.switch(1, 140, ONE, Left::Sleeping, IDLE);
        assert_eq!(machine.runs().last(), Some(&(1, None)));
        assert_eq!(machine.timeline.untold().backwards, 2);
    }

    #[test]
    fn after_a_loss_nothing_is_told_of_what_was_under_way() {
        let mut machine = Machine::default();
        machine.switch(0, 10, TWO, Left::Sleeping, ONE);
        machine.wakes(20, TWO);
        machine.timeline.mark_gap();
        machine.switch(0, 90, ONE, Left::Sleeping, TWO);
        assert_eq!(machine.runs().last(), Some(&(1, None)));
        assert_eq!(machine.came().last(), Some(&(2, None, None)));
        assert_eq!(machine.timeline.untold(), Untold { dropped: 2, ..Untold::default() });
    }

    #[test]
    fn a_switch_from_somebody_who_was_not_seen_to_come_is_counted_and_gives_no_time() {
        let mut machine = Machine::default();
        machine.switch(0, 10, TWO, Left::Sleeping, IDLE);
        machine.switch(0, 50, ONE, Left::Sleeping, TWO);
        assert_eq!(machine.runs().last(), Some(&(1, None)));
        assert_eq!(machine.timeline.untold().unseen, 1);
    }

    #[test]
    fn who_never_leaves_its_cpu_runs_all_the_same_and_no_time_is_told_twice() {
        let mut machine = Machine::default();
        machine.switch(0, 10, IDLE, Left::Preempted, ONE);
        let mut ran = Vec::new();
        for time in [25, 20, 40] {
            machine.timeline.pass(time, |who, told| ran.push((who.tid, told)));
        }
        assert_eq!(ran, [(1, Told::Ran(15)), (1, Told::Ran(15))]);
        machine.switch(0, 47, ONE, Left::Sleeping, IDLE);
        assert!(machine.told.contains(&(1, Told::Ran(7))));
        assert_eq!(machine.runs().last(), Some(&(1, Some(37))));
    }

    #[test]
    fn the_dead_are_forgotten_and_a_number_that_comes_again_is_another_thread() {
        let mut machine = Machine::default();
        machine.switch(0, 10, IDLE, Left::Preempted, ONE);
        machine.switch(0, 20, ONE, Left::Dead, IDLE);
        assert!(machine.timeline.is_empty());
        let other = Party { tid: 1, comm: b"other" };
        machine.wakes(30, other);
        machine.switch(0, 31, IDLE, Left::Preempted, other);
        assert_eq!(machine.came().last(), Some(&(1, Some(1), None)));
    }

    #[test]
    fn how_long_it_was_ready_before_it_moved_is_told() {
        let mut machine = Machine::default();
        machine.wakes(10, ONE);
        machine.enter((0, 14), (0, 0), Event::Migrates(ONE));
        machine.switch(1, 20, IDLE, Left::Preempted, ONE);
        assert_eq!(machine.told[0], (1, Told::Migrated));
        let came = Came { time: 20, cpu: 1, delay: Some(10), wait: None, migrated: Some(4) };
        assert!(machine.told.contains(&(1, Told::Came(came))), "{:?}", machine.told);
    }

    #[test]
    fn a_name_is_fifteen_bytes_of_any_kind() {
        let name = Comm::new(b"\xff\n0123456789abcdef");
        assert_eq!(name.bytes(), b"\xff\n0123456789abc");
        assert!(name.is(b"\xff\n0123456789abcdef"));
        assert!(!Comm::new(b"one").is(b"ones"));
    }
}
