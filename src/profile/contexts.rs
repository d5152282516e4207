//! The contexts that processes publish ([`ProcessContext`]), for the tasks of a profile.
//!
//! A read may block forever: a process can make a read of its memory hang. Therefore dedicated threads read, and each process has its own
//! result. A thread that does not finish in time is abandoned, and another thread continues with the other processes, up to four threads
//! in total. A process that exits before it was read has no context.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Task;
use crate::clock::{Clock, Monotonic};
use crate::targets::{ProcessContext, ProcessKey};

/// How long a context is valid: less than a window, so that each process is read once for all entries together.
const FRESH: Duration = Duration::from_secs(30);
/// How long a context is kept for a process without samples.
const RETENTION: Duration = Duration::from_secs(300);
/// How long a profile waits for all contexts.
const ALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a profile waits for one context before its thread is written off.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// The most threads, including written-off threads.
const MAX_THREADS: usize = 4;
/// The most processes that are read for one profile. Three times as many are kept.
const MAX: usize = 1 << 12;

/// Reads the context that a process publishes.
type Read = dyn Fn(ProcessKey) -> Option<ProcessContext> + Send + Sync;

#[derive(Debug)]
struct Known {
    asked: Monotonic,
    context: Option<Arc<ProcessContext>>,
}

/// The contexts of processes.
#[derive(Debug)]
pub(super) struct Contexts {
    known: FxHashMap<ProcessKey, Known>,
    shared: Arc<SharedState>,
}

/// The state that is shared with the reading threads.
struct SharedState {
    read: Box<Read>,
    work: Mutex<Work>,
    /// Notified when a result is available or a thread has ended.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Work {
    due: VecDeque<ProcessKey>,
    /// By the number of the read.
    under_way: FxHashMap<u64, PendingRead>,
    reads: u64,
    answers: Vec<(ProcessKey, Option<Arc<ProcessContext>>)>,
    threads: usize,
}

#[derive(Debug)]
struct PendingRead {
    key: ProcessKey,
    /// Whether the read has taken too long.
    written_off: bool,
}

impl Work {
    /// Reports whether there is a reading thread that is not written off.
    fn is_read(&self) -> bool {
        self.threads > self.under_way.values().filter(|read| read.written_off).count()
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("work", &self.work).finish_non_exhaustive()
    }
}

impl SharedState {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads processes until none is due.
    fn run(self: &Arc<Self>) {
        loop {
            let (number, key) = {
                let mut work = self.work();
                let Some(key) = work.due.pop_front() else { return };
                work.reads += 1;
                let number = work.reads;
                work.under_way.insert(number, PendingRead { key, written_off: false });
                (number, key)
            };
            let finished = OnDrop(Arc::clone(self), |work| {
                work.under_way.remove(&number);
            });
            let context = (self.read)(key).map(Arc::new);
            self.work().answers.push((key, context));
            drop(finished);
        }
    }
}

/// Marks the end of a read or a thread when it is dropped, also after a panic.
struct OnDrop<F: FnMut(&mut Work)>(Arc<SharedState>, F);

impl<F: FnMut(&mut Work)> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.work());
        self.0.changed.notify_all();
    }
}

impl Contexts {
    /// Creates an empty cache. `read` may block for any time.
    pub(super) fn new(read: impl Fn(ProcessKey) -> Option<ProcessContext> + Send + Sync + 'static) -> Self {
        let shared = SharedState { read: Box::new(read), work: Mutex::default(), changed: Condvar::new() };
        Self { known: FxHashMap::default(), shared: Arc::new(shared) }
    }

    /// Adds to each task the context of its process. Waits about a second at most. Contexts that were not read by then are available at the
    /// next call.
    pub(super) fn enter(&mut self, tasks: &mut [Task], clock: &Clock) {
        let now = clock.monotonic();
        self.known.retain(|_, known| now.since(known.asked) < RETENTION);
        let processes: FxHashSet<ProcessKey> = tasks.iter().map(Task::process).collect();
        self.ask(processes, now);
        for _ in 0..MAX_THREADS {
            if self.start() && self.wait(clock, now) {
                break;
            }
        }
        let answers = std::mem::take(&mut self.shared.work().answers);
        for (key, context) in answers {
            let before = self.known.remove(&key).and_then(|known| known.context);
            // A process that has exited keeps its last context.
            self.known.insert(key, Known { asked: now, context: context.or(before) });
        }
        for task in tasks {
            task.context = self.known.get(&task.process()).and_then(|known| known.context.clone());
        }
    }

    /// Makes the processes due that can be read and were not read recently. Replaces those of the previous call.
    fn ask(&self, processes: FxHashSet<ProcessKey>, now: Monotonic) {
        let mut work = self.shared.work();
        let room = MAX.min((3 * MAX).saturating_sub(self.known.len() + work.answers.len()));
        let is_fresh =
            |key: &ProcessKey| self.known.get(key).is_some_and(|known| now.since(known.asked) < FRESH);
        let under_way: FxHashSet<ProcessKey> = work.under_way.values().map(|read| read.key).collect();
        // A process that had exited at its first sample has no start time. A process whose read blocks is not read by a second thread.
        let due = (processes.into_iter())
            .filter(|key| key.start_time != 0 && !is_fresh(key) && !under_way.contains(key));
        work.due = due.take(room).collect();
    }

    /// Starts a thread that reads the due processes, if necessary. Returns whether one is running.
    fn start(&self) -> bool {
        let mut work = self.shared.work();
        if work.is_read() {
            return true;
        }
        if work.due.is_empty() || work.threads >= MAX_THREADS {
            return false;
        }
        let running = OnDrop(Arc::clone(&self.shared), |work| work.threads -= 1);
        work.threads += 1;
        drop(work);
        let started = thread::Builder::new().name("process-context".into()).spawn(move || running.0.run());
        started
            .inspect_err(
                |error| tracing::debug!(%error, "cannot start the thread that reads process contexts"),
            )
            .is_ok()
    }

    /// Waits for the due processes. Returns `true` when all are read, or when the wait since `begin` is too long. A read that takes too
    /// long is written off; then the result is whether no process is due.
    fn wait(&self, clock: &Clock, begin: Monotonic) -> bool {
        let mut work = self.shared.work();
        loop {
            if !work.is_read() {
                return work.due.is_empty();
            }
            if clock.monotonic().since(begin) > ALL_TIMEOUT {
                return true;
            }
            let before = work.reads;
            let (next, timeout) =
                self.shared.changed.wait_timeout(work, READ_TIMEOUT).unwrap_or_else(PoisonError::into_inner);
            work = next;
            if timeout.timed_out() && work.reads == before {
                for read in work.under_way.values_mut().filter(|read| !read.written_off) {
                    read.written_off = true;
                    tracing::debug!(pid = read.key.pid, "reading the memory of a process takes too long");
                }
                return work.due.is_empty();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;
    use crate::clock::Timestamp;
    use crate::files::Files;
    use crate::host::Roots;

    /// Returns a procfs directory. Process 10 publishes the service name `s` (encoded as in OTLP), process 11 publishes nothing.
    fn host() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let payload = b"\x0a\x15\x0a\x13\x0a\x0cservice.name\x12\x03\x0a\x01s";
        let mut memory = b"OTEL_CTX\x02\0\0\0".to_vec();
        memory.extend((payload.len() as u32).to_ne_bytes());
        memory.extend(7_u64.to_ne_bytes());
        memory.extend(32_u64.to_ne_bytes());
        memory.extend(payload);
        for pid in [10, 11] {
            let process = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(&process).unwrap();
            let stat = format!("{pid} (a) S 1 2 3 4 -1 0 6 7 8 9 10 11 12 13 20 0 1 0 99 5\n");
            fs::write(process.join("stat"), stat).unwrap();
            fs::write(process.join("mem"), &memory).unwrap();
            let name = if pid == 10 { "[anon:OTEL_CTX]" } else { "[heap]" };
            fs::write(process.join("maps"), format!("0-1000 rw-p 0 00:00 0 {name}\n")).unwrap();
        }
        dir
    }

    fn contexts(dir: &tempfile::TempDir) -> Contexts {
        let files = Files::here(&Roots::under(dir.path()));
        Contexts::new(move |key| ProcessContext::read(&files, key))
    }

    fn at(seconds: u64) -> Clock {
        Clock::manual(Timestamp(seconds * 1000))
    }

    fn tasks() -> Vec<Task> {
        [(10, 99), (11, 99), (10, 98), (10, 0)]
            .map(|(pid, start_time)| Task { pid, tid: pid, start_time, ..Task::default() })
            .into()
    }

    fn services(tasks: &[Task]) -> Vec<Option<&str>> {
        let name = |task: &Task| task.context.as_ref().map(|context| context.attributes()[0].0);
        tasks.iter().map(|task| name(task).map(|_| "s")).collect()
    }

    #[test]
    fn a_task_has_what_its_own_process_says_and_keeps_it_when_that_has_ended() {
        let dir = host();
        let mut contexts = contexts(&dir);
        let mut seen = tasks();
        contexts.enter(&mut seen, &at(1));
        assert_eq!(services(&seen), [Some("s"), None, None, None]);
        fs::remove_dir_all(dir.path().join("proc/10")).unwrap();
        let mut seen = tasks();
        contexts.enter(&mut seen, &at(60));
        assert_eq!(services(&seen), [Some("s"), None, None, None]);
    }

    #[test]
    fn a_process_is_not_asked_again_at_once() {
        let dir = host();
        let mut contexts = contexts(&dir);
        contexts.enter(&mut tasks(), &at(1));
        fs::write(dir.path().join("proc/11/maps"), "0-1000 rw-p 0 00:00 0 [anon:OTEL_CTX]\n").unwrap();
        let mut seen = tasks();
        contexts.enter(&mut seen, &at(20));
        assert_eq!(services(&seen), [Some("s"), None, None, None]);
        contexts.enter(&mut seen, &at(31));
        assert_eq!(services(&seen), [Some("s"), Some("s"), None, None]);
    }

    /// Returns one task for each process ID.
    fn many(pids: std::ops::Range<u32>) -> Vec<Task> {
        pids.map(|pid| Task { pid, tid: pid, start_time: 1, ..Task::default() }).collect()
    }

    /// Returns contexts whose reads of processes below `stuck` block until the sender is dropped, with a counter of such reads.
    fn hanging(stuck: u32) -> (Contexts, std::sync::mpsc::Sender<()>, Arc<AtomicUsize>) {
        let (release, released) = channel::<()>();
        let (released, begun) = (Mutex::new(released), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&begun);
        let contexts = Contexts::new(move |key: ProcessKey| {
            if key.pid < stuck {
                count.fetch_add(1, Ordering::SeqCst);
                released.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
            }
            ProcessContext::new([("service.name", "s")])
        });
        (contexts, release, begun)
    }

    #[test]
    fn a_process_whose_memory_does_not_answer_does_not_take_the_contexts_of_others() {
        let (mut contexts, release, begun) = hanging(2);
        for (turn, last) in [(0, 10), (40, 20), (80, 30)] {
            let answered = (0..100).map(|_| {
                let mut seen = many(1..last);
                contexts.enter(&mut seen, &at(turn));
                services(&seen).iter().flatten().count() as u32
            });
            // Threads may need some time to start.
            assert_eq!(answered.take_while(|&answered| answered < last - 2).count() / 100, 0, "turn {turn}");
        }
        assert_eq!(begun.load(Ordering::SeqCst), 1, "a process whose read blocks is not read again");
        drop(release);
        for turn in 200..10_000 {
            let mut seen = many(1..2);
            contexts.enter(&mut seen, &at(turn));
            if services(&seen) == [Some("s")] {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("its context does not arrive");
    }

    #[test]
    fn a_few_threads_are_stuck_at_most_and_answer_when_they_can() {
        let (mut contexts, release, begun) = hanging(10);
        for turn in 0..100 {
            contexts.enter(&mut many(1..10), &at(turn * 40));
            if begun.load(Ordering::SeqCst) >= MAX_THREADS && turn > 5 {
                break;
            }
        }
        assert_eq!(begun.load(Ordering::SeqCst), MAX_THREADS);
        drop(release);
        for turn in 200..10_000 {
            let mut seen = many(1..20);
            contexts.enter(&mut seen, &at(turn));
            if services(&seen).iter().all(Option::is_some) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        panic!("no reading thread is left");
    }
}
