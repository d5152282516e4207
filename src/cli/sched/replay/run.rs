//! Threads that do the steps of a workload again.

use std::io;
use std::iter::repeat_with;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::workload::{Step, Task, Workload};
use crate::clock::Clock;
use crate::sys::usage;

/// Interval at which a waiting thread looks whether the replay was stopped.
const LOOK: Duration = Duration::from_millis(100);

/// Stack of a thread. It calls only a few functions.
const STACK: usize = 128 << 10;

/// A semaphore that is posted once.
#[derive(Debug, Default)]
pub(super) struct Semaphore {
    is_posted: Mutex<bool>,
    changed: Condvar,
}

impl Semaphore {
    fn post(&self) {
        *self.is_posted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until the semaphore is posted, or until the replay is stopped.
    fn wait(&self, stopped: &AtomicBool) {
        let mut is_posted = self.is_posted.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_posted && !stopped.load(Ordering::Relaxed) {
            is_posted = self.changed.wait_timeout(is_posted, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A workload that is replayed, and the overhead of its measurement.
#[derive(Debug)]
pub(super) struct Replay {
    workload: Workload,
    clock: Clock,
    stopped: Arc<AtomicBool>,
    /// Overhead of measuring a run, in nanoseconds.
    overhead: u64,
    repeat: u32,
}

/// Times of the repetitions so far, in nanoseconds.
#[derive(Debug, Default)]
struct Averages {
    elapsed: Option<u64>,
    cpu: Option<u64>,
}

impl Replay {
    /// `stopped` ends the replay when it becomes `true`.
    pub(super) fn new(workload: Workload, repeat: u32, clock: Clock, stopped: Arc<AtomicBool>) -> Self {
        Self { workload, clock, stopped, overhead: 0, repeat }
    }

    /// Replays the workload, and passes each line to `print`.
    ///
    /// # Errors
    /// If a thread cannot be started, or if a line cannot be written.
    pub(super) fn run(mut self, print: impl Fn(String) -> io::Result<()>) -> io::Result<()> {
        print(self.calibrate())?;
        print(self.workload.text())?;
        print(format!("{}\n", "-".repeat(60)))?;
        let mut averages = Averages::default();
        for number in 1..=self.repeat {
            let (elapsed, cpu) = self.once()?;
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            print(averages.line(number, (elapsed, cpu), self.repeat))?;
        }
        Ok(())
    }

    /// Measures the overhead of measuring, as perf does, and returns its lines.
    fn calibrate(&mut self) -> String {
        const SLEEP: u64 = 10_000;
        const TEST: u64 = 1_000_000;
        let clock = self.clock.clone();
        let time = |work: &dyn Fn()| {
            let begun = clock.kernel();
            work();
            clock.kernel().saturating_sub(begun)
        };
        let least = |work: &dyn Fn()| (0..10).map(|_| time(work)).min().unwrap_or_default();
        self.overhead = least(&|| self.burn(0));
        let sleep = least(&|| thread::sleep(Duration::from_nanos(SLEEP))).saturating_sub(SLEEP);
        let run_test = time(&|| self.burn(TEST));
        let sleep_test = time(&|| thread::sleep(Duration::from_nanos(TEST)));
        format!(
            "run measurement overhead: {} nsecs\nsleep measurement overhead: {sleep} nsecs\nthe run test took {run_test} nsecs\n\
             the sleep test took {sleep_test} nsecs\n",
            self.overhead
        )
    }

    /// Replays the workload once, and returns the elapsed time and the CPU time of all threads.
    fn once(&self) -> io::Result<(u64, u64)> {
        let semaphores: Vec<Semaphore> =
            repeat_with(Semaphore::default).take(self.workload.semaphores()).collect();
        let start = Semaphore::default();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for task in &self.workload.tasks {
                let work = || {
                    start.wait(&self.stopped);
                    let before = usage::thread_cpu_time();
                    self.steps(task, &semaphores);
                    usage::thread_cpu_time().saturating_sub(before)
                };
                let builder = thread::Builder::new().stack_size(STACK);
                match builder.spawn_scoped(scope, work) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        // The threads that exist must end before the scope does.
                        self.stopped.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            let begun = self.clock.kernel();
            start.post();
            let cpu: Duration = threads.into_iter().filter_map(|thread| thread.join().ok()).sum();
            let elapsed = self.clock.kernel().saturating_sub(begun);
            Ok((elapsed, u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX)))
        })
    }

    fn steps(&self, task: &Task, semaphores: &[Semaphore]) {
        for step in &task.steps {
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            let semaphore = |index: usize| semaphores.get(index);
            match *step {
                Step::Run(time) => self.burn(time),
                Step::Sleep(time) => self.sleep(time),
                Step::Wait(index) => {
                    semaphore(index).into_iter().for_each(|semaphore| semaphore.wait(&self.stopped));
                }
                Step::Post(index) => semaphore(index).into_iter().for_each(Semaphore::post),
            }
        }
    }

    /// Uses the CPU for this time, in nanoseconds.
    fn burn(&self, time: u64) {
        let end = self.clock.kernel().saturating_add(time);
        while self.clock.kernel().saturating_add(self.overhead) < end && !self.stopped.load(Ordering::Relaxed)
        {
        }
    }

    /// Sleeps for this time, in nanoseconds.
    fn sleep(&self, time: u64) {
        let mut left = Duration::from_nanos(time);
        while !left.is_zero() && !self.stopped.load(Ordering::Relaxed) {
            let part = left.min(LOOK);
            thread::sleep(part);
            left -= part;
        }
    }
}

impl Averages {
    /// Returns the line of perf for a repetition. Averages are weighted by the number of repetitions, as in perf.
    fn line(&mut self, number: u32, (elapsed, cpu): (u64, u64), repeat: u32) -> String {
        let repeat = u64::from(repeat.max(1));
        let add = |average: &mut Option<u64>, time: u64| {
            let before = average.unwrap_or(time);
            let now = (before * (repeat - 1) + time) / repeat;
            *average = Some(now);
            now as f64 / 1e6
        };
        let (average, average_cpu) = (add(&mut self.elapsed, elapsed), add(&mut self.cpu, cpu));
        let [elapsed, cpu] = [elapsed, cpu].map(|time| time as f64 / 1e6);
        format!("#{number:<3}: {elapsed:.3}, ravg: {average:.2}, cpu: {cpu:.2} / {average_cpu:.2}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::sched::machine::Observation;
    use crate::sched::{PrevState, SchedFact, SwitchIn, SwitchOut, Thread};

    #[test]
    fn a_repetition_takes_the_time_of_its_steps_and_waits_for_what_is_posted() {
        let mut workload = Workload::default();
        let [one, other] = [7, 8].map(|tid| Thread { tid, pid: tid, ..Thread::default() });
        let switch_in =
            |time| SchedFact::SwitchIn(SwitchIn { time, cpu: 0, delay: None, wait: None, migrated: None });
        let leave = |time, prev_state| {
            let next = Thread::default();
            SchedFact::SwitchOut(SwitchOut { time, cpu: 0, switch_in: None, prev_state, next })
        };
        // The first thread runs for 5 ms and wakes the other, which then runs for 10 ms.
        workload.take(&Observation::Fact { thread: &one, fact: switch_in(0) });
        workload.take(&Observation::Wakes { at: (0, 5_000_000), by: one, thread: other });
        workload.take(&Observation::Fact { thread: &one, fact: leave(5_000_000, PrevState::Dead) });
        workload.take(&Observation::Fact { thread: &other, fact: switch_in(5_000_000) });
        workload.take(&Observation::Fact { thread: &other, fact: leave(15_000_000, PrevState::Dead) });
        let lines = Mutex::new(String::new());
        let replay = Replay::new(workload, 2, Clock::system(), Arc::default());
        let print = |line: String| {
            lines.lock().unwrap().push_str(&line);
            Ok(())
        };
        replay.run(print).unwrap();
        let lines = lines.into_inner().unwrap();
        let repetitions: Vec<&str> = lines.lines().filter(|line| line.starts_with('#')).collect();
        assert_eq!(repetitions.len(), 2, "{lines}");
        for line in repetitions {
            let elapsed = line.split([':', ',']).nth(1).unwrap().trim();
            assert!(elapsed.parse::<f64>().unwrap() >= 14.9, "{lines}");
        }
    }

    #[test]
    fn a_stopped_replay_ends_without_a_post() {
        let stopped = Arc::new(AtomicBool::new(true));
        Semaphore::default().wait(&stopped);
        let replay = Replay::new(Workload::default(), 3, Clock::system(), stopped);
        replay.sleep(u64::MAX);
        replay.burn(u64::MAX);
        replay.run(|_| Ok(())).unwrap();
    }

    #[test]
    fn averages_are_weighted_by_the_number_of_repetitions() {
        let mut averages = Averages::default();
        assert_eq!(
            averages.line(1, (10_000_000, 4_000_000), 10),
            "#1  : 10.000, ravg: 10.00, cpu: 4.00 / 4.00\n"
        );
        assert_eq!(
            averages.line(2, (20_000_000, 4_000_000), 10),
            "#2  : 20.000, ravg: 11.00, cpu: 4.00 / 4.00\n"
        );
    }
}
