//! The workload to replay: what each thread did, from observations, in bounded memory.

use rustc_hash::FxHashMap;

use super::super::machine::Observation;
use crate::cli::follow::shown;
use crate::sched::{PrevState, SchedFact, SwitchIn, SwitchOut, Thread};

/// Maximum number of steps of all threads, and of threads: each is a thread of the replay.
const MAX_STEPS: usize = 1 << 20;
const MAX_TASKS: usize = 1 << 10;

/// A step of a thread. Times are in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Uses the CPU for this time.
    Run(u64),
    /// Sleeps for this time. No thread of the target ended the sleep.
    Sleep(u64),
    /// Sleeps until another thread posts this semaphore.
    Wait(usize),
    /// Posts this semaphore.
    Post(usize),
}

/// A thread of the workload.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) thread: Thread,
    pub(super) steps: Vec<Step>,
    /// Begin of the part of the current run that is not a step yet.
    since: Option<u64>,
}

/// The steps of all threads, and the numbers that perf prints about them.
#[derive(Debug, Default)]
pub(super) struct Workload {
    pub(super) tasks: Vec<Task>,
    by_tid: FxHashMap<u32, usize>,
    steps: usize,
    semaphores: usize,
    sleeps: u64,
    /// Number of wakeups of threads that did not sleep.
    targetless: u64,
    /// Number of wakeups of threads that another thread had already woken.
    multitarget: u64,
    /// Number of runs that continue the previous one after a preemption.
    merged: u64,
    omitted: u64,
}

impl Workload {
    /// Adds what was observed.
    pub(super) fn take(&mut self, seen: &Observation<'_>) {
        match seen {
            // The idle task does nothing, and the others need no thread that does the same.
            Observation::Fact { thread, .. } if thread.tid == 0 => {}
            Observation::Fact { thread, fact: SchedFact::SwitchIn(switch_in) } => {
                self.switch_in(thread, switch_in);
            }
            Observation::Fact { thread, fact: SchedFact::SwitchOut(switch_out) } => {
                self.switch_out(thread, switch_out);
            }
            Observation::Wakes { at: (_, time), by, thread } => self.wakes(*time, by, thread),
            _ => {}
        }
    }

    /// Discards the state of running threads, because the end of their run may have been lost.
    pub(super) fn mark_gap(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.since = None);
    }

    /// Returns the number of steps that were omitted, because the workload was too large.
    pub(super) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// Returns the number of semaphores.
    pub(super) fn semaphores(&self) -> usize {
        self.semaphores
    }

    /// Returns what perf prints about the workload.
    pub(super) fn text(&self) -> String {
        let runs = self.tasks.iter().flat_map(|task| &task.steps);
        let runs = runs.filter(|step| matches!(step, Step::Run(_))).count();
        let mut text = format!(
            "nr_run_events:        {runs}\nnr_sleep_events:      {}\nnr_wakeup_events:     {}\n",
            self.sleeps, self.semaphores
        );
        for (count, what) in [
            (self.targetless, "target-less wakeups:  "),
            (self.multitarget, "multi-target wakeups: "),
            (self.merged, "run atoms optimized: "),
        ] {
            if count > 0 {
                text.push_str(&format!("{what}{count}\n"));
            }
        }
        for (number, Task { thread, steps, .. }) in self.tasks.iter().enumerate() {
            let name = shown(thread.comm.bytes());
            text.push_str(&format!(
                "task {number:>6} ({name:>20}:{:>10}), nr_events: {}\n",
                thread.tid,
                steps.len()
            ));
        }
        text
    }

    /// Returns the index of the thread; `None` if there are too many.
    fn index(&mut self, thread: &Thread) -> Option<usize> {
        let known = self.by_tid.get(&thread.tid).copied();
        let index = match known {
            Some(index) => index,
            None if self.tasks.len() < MAX_TASKS => {
                self.tasks.push(Task { thread: *thread, steps: Vec::new(), since: None });
                self.by_tid.insert(thread.tid, self.tasks.len() - 1);
                self.tasks.len() - 1
            }
            None => {
                self.omitted += 1;
                return None;
            }
        };
        // The name of a thread changes when it executes a program.
        self.tasks.get_mut(index)?.thread = *thread;
        Some(index)
    }

    fn push(&mut self, index: usize, step: Step) {
        let Some(task) = self.tasks.get_mut(index) else { return };
        if let (Some(Step::Run(before)), Step::Run(time)) = (task.steps.last_mut(), step) {
            *before = before.saturating_add(time);
            self.merged += 1;
            return;
        }
        if self.steps >= MAX_STEPS {
            self.omitted += 1;
            return;
        }
        self.steps += 1;
        task.steps.push(step);
    }

    fn switch_in(&mut self, thread: &Thread, switch_in: &SwitchIn) {
        let Some(index) = self.index(thread) else { return };
        let Some(task) = self.tasks.get_mut(index) else { return };
        task.since = Some(switch_in.time);
        if let (Some(Step::Sleep(time)), Some((_, off))) = (task.steps.last_mut(), switch_in.wait) {
            *time = off.saturating_sub(switch_in.delay.unwrap_or_default());
        }
    }

    fn switch_out(&mut self, thread: &Thread, switch_out: &SwitchOut) {
        let Some(index) = self.index(thread) else { return };
        self.ran_until(index, switch_out.time);
        if let Some(task) = self.tasks.get_mut(index) {
            task.since = None;
        }
        match switch_out.prev_state {
            PrevState::Sleeping | PrevState::Blocked => {
                self.sleeps += 1;
                self.push(index, Step::Sleep(0));
            }
            // The ID of a thread that has ended can be reused.
            PrevState::Dead => drop(self.by_tid.remove(&thread.tid)),
            PrevState::Preempted => {}
        }
    }

    /// Adds the current run until `time` as a step.
    fn ran_until(&mut self, index: usize, time: u64) {
        let Some(since) = self.tasks.get_mut(index).and_then(|task| task.since.replace(time)) else { return };
        self.push(index, Step::Run(time.saturating_sub(since)));
    }

    /// Connects the sleep of a thread with the thread that ends it. A sleep that an interrupt ends, or a thread that does not belong to the
    /// target, keeps its time.
    fn wakes(&mut self, time: u64, by: &Thread, thread: &Thread) {
        let Some(waker) = self.by_tid.get(&by.tid).copied().filter(|_| by.tid != 0) else { return };
        let Some(wakee) = self.index(thread) else { return };
        // Both steps are added, or none of them.
        if self.steps + 3 > MAX_STEPS || wakee == waker {
            self.omitted += u64::from(wakee != waker);
            return;
        }
        let semaphore = self.semaphores;
        let Some(task) = self.tasks.get_mut(wakee) else { return };
        match task.steps.last_mut() {
            Some(step @ Step::Sleep(_)) => *step = Step::Wait(semaphore),
            // A new thread, or one that slept before the recording.
            None if task.since.is_none() => {
                task.steps.push(Step::Wait(semaphore));
                self.steps += 1;
            }
            Some(Step::Wait(_)) => {
                self.multitarget += 1;
                return;
            }
            _ => {
                self.targetless += 1;
                return;
            }
        }
        self.semaphores += 1;
        self.ran_until(waker, time);
        self.push(waker, Step::Post(semaphore));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Comm;

    fn thread(tid: u32, name: &str) -> Thread {
        Thread { tid, pid: tid, comm: Comm::new(name.as_bytes()), ..Thread::default() }
    }

    fn arrives(workload: &mut Workload, thread: &Thread, time: u64, off: Option<u64>) {
        let wait = off.map(|off| (PrevState::Sleeping, off));
        let switch_in = SwitchIn { time, cpu: 0, delay: Some(5), wait, migrated: None };
        workload.take(&Observation::Fact { thread, fact: SchedFact::SwitchIn(switch_in) });
    }

    fn leaves(workload: &mut Workload, thread: &Thread, time: u64, prev_state: PrevState) {
        let out = SwitchOut { time, cpu: 0, switch_in: None, prev_state, next: Thread::default() };
        workload.take(&Observation::Fact { thread, fact: SchedFact::SwitchOut(out) });
    }

    #[test]
    fn a_thread_that_wakes_another_posts_what_the_other_waits_for() {
        let mut workload = Workload::default();
        let (ping, pong, idle) = (thread(7, "ping"), thread(8, "pong"), Thread::default());
        arrives(&mut workload, &ping, 100, None);
        arrives(&mut workload, &pong, 100, None);
        leaves(&mut workload, &pong, 130, PrevState::Sleeping);
        workload.take(&Observation::Wakes { at: (0, 150), by: ping, thread: pong });
        workload.take(&Observation::Wakes { at: (0, 151), by: ping, thread: pong });
        arrives(&mut workload, &pong, 160, Some(30));
        workload.take(&Observation::Wakes { at: (0, 165), by: ping, thread: pong });
        // A timer ends this sleep, after 100 ns of which 5 are a delay.
        leaves(&mut workload, &ping, 170, PrevState::Sleeping);
        workload.take(&Observation::Wakes { at: (0, 265), by: idle, thread: ping });
        arrives(&mut workload, &ping, 270, Some(100));
        // A preempted thread continues its run.
        leaves(&mut workload, &ping, 280, PrevState::Preempted);
        arrives(&mut workload, &ping, 290, None);
        leaves(&mut workload, &ping, 295, PrevState::Dead);
        let steps: Vec<_> = workload.tasks.iter().map(|task| task.steps.clone()).collect();
        assert_eq!(
            steps[0],
            [Step::Run(50), Step::Post(0), Step::Run(20), Step::Sleep(95), Step::Run(15)],
            "{workload:?}"
        );
        assert_eq!(steps[1], [Step::Run(30), Step::Wait(0)]);
        insta::assert_snapshot!(workload.text());
    }

    #[test]
    fn a_new_thread_waits_for_the_thread_that_starts_it() {
        let mut workload = Workload::default();
        let (parent, child) = (thread(7, "parent"), thread(8, "child"));
        arrives(&mut workload, &parent, 100, None);
        workload.take(&Observation::Wakes { at: (0, 110), by: parent, thread: child });
        arrives(&mut workload, &child, 120, None);
        leaves(&mut workload, &child, 140, PrevState::Dead);
        assert_eq!(workload.tasks[1].steps, [Step::Wait(0), Step::Run(20)]);
        // Another thread with the same ID is another thread.
        arrives(&mut workload, &thread(8, "other"), 150, None);
        assert_eq!(workload.tasks.len(), 3);
    }

    #[test]
    fn a_run_whose_end_may_be_lost_is_no_step() {
        let mut workload = Workload::default();
        let web = thread(7, "web");
        arrives(&mut workload, &web, 100, None);
        workload.mark_gap();
        leaves(&mut workload, &web, 1_000_000, PrevState::Sleeping);
        assert_eq!(workload.tasks[0].steps, [Step::Sleep(0)]);
    }
}
