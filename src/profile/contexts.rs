//! What processes publish about themselves ([`ProcessContext`]), for the tasks of a profile.
//!
//! It is read by a thread for the purpose: a process can have a read of its memory last for ever, and then nobody else's
//! is read any more, but nobody waits. A process that ends before it was asked stays without.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::Task;
use crate::clock::Monotonic;
use crate::host::Roots;
use crate::target::{ProcessContext, ProcessKey};

/// For how long what was read is believed: less than a window, so that each one looks once, for all entries together.
const FRESH: Duration = Duration::from_secs(30);
/// For how long it is known of a process that nobody sees any more.
const KEPT: Duration = Duration::from_secs(300);
/// How long a profile waits for it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most processes that are asked at a time, and three times that are known.
const MOST: usize = 1 << 12;

/// What some processes say.
type Said = Vec<(ProcessKey, Option<Arc<ProcessContext>>)>;

#[derive(Debug)]
struct Known {
    asked: Monotonic,
    context: Option<Arc<ProcessContext>>,
}

/// What is known of processes.
#[derive(Debug)]
pub(super) struct Contexts {
    roots: Roots,
    known: FxHashMap<ProcessKey, Known>,
    /// From whom there will be an answer.
    answer: Option<Receiver<Said>>,
    /// When those were asked who answer last.
    asked: Monotonic,
}

impl Contexts {
    /// Nobody was asked yet.
    pub(super) fn new(roots: &Roots) -> Self {
        Self { roots: roots.clone(), known: FxHashMap::default(), answer: None, asked: Monotonic::default() }
    }

    /// Writes to each task what its process says. Waits for a second at most.
    pub(super) fn enter(&mut self, tasks: &mut [Task], now: Monotonic) {
        self.hear(Duration::ZERO);
        let processes: FxHashSet<ProcessKey> = tasks.iter().map(Task::process).collect();
        let due: Vec<ProcessKey> = processes.into_iter().filter(|key| self.is_due(*key, now)).collect();
        if self.answer.is_none() && !due.is_empty() {
            self.known.retain(|_, known| now.since(known.asked) < KEPT);
            self.ask(due, now);
            self.hear(PATIENCE);
        }
        for task in tasks {
            task.context = self.known.get(&task.process()).and_then(|known| known.context.clone());
        }
    }

    /// Whether a process can be asked and was not of late.
    fn is_due(&self, key: ProcessKey, now: Monotonic) -> bool {
        let fresh = |known: &Known| now.since(known.asked) < FRESH;
        // One that had ended when it was seen has no time.
        key.start_time != 0 && !self.known.get(&key).is_some_and(fresh)
    }

    fn ask(&mut self, mut due: Vec<ProcessKey>, now: Monotonic) {
        due.truncate(MOST.min((3 * MOST).saturating_sub(self.known.len())));
        let proc = self.roots.proc.clone();
        let (send, answer) = sync_channel(1);
        let started = thread::Builder::new().name("process-context".into()).spawn(move || {
            let read = |key: ProcessKey| {
                let said = ProcessContext::read(&proc.join(key.pid.to_string()), key);
                (key, said.map(Arc::new))
            };
            // Whoever asked may be gone.
            send.send(due.into_iter().map(read).collect::<Said>()).ok();
        });
        match started {
            Ok(_) => (self.answer, self.asked) = (Some(answer), now),
            Err(error) => tracing::debug!(%error, "there is no thread to ask processes what they publish"),
        }
    }

    /// Takes the answer, if there is one soon.
    fn hear(&mut self, patience: Duration) {
        let Some(answer) = &self.answer else { return };
        let said = match answer.try_recv() {
            Err(TryRecvError::Empty) if patience > Duration::ZERO => answer.recv_timeout(patience).ok(),
            Err(TryRecvError::Empty) => None,
            // Who was asked is gone: a bug, of which its panic tells.
            Err(TryRecvError::Disconnected) => Some(Vec::new()),
            Ok(said) => Some(said),
        };
        let Some(said) = said else { return };
        self.answer = None;
        for (key, context) in said {
            let before = self.known.remove(&key).and_then(|known| known.context);
            // One that has ended since says nothing more, and was what it was.
            self.known.insert(key, Known { asked: self.asked, context: context.or(before) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A directory of procfs in which process 10 says that it is the service `s` (as OTLP's bytes), and 11 nothing.
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
        let mut contexts = Contexts::new(&Roots::under(dir.path()));
        let at = |seconds| Monotonic(Duration::from_secs(seconds));
        let mut seen = tasks();
        contexts.enter(&mut seen, at(1));
        assert_eq!(services(&seen), [Some("s"), None, None, None]);
        fs::remove_dir_all(dir.path().join("proc/10")).unwrap();
        let mut seen = tasks();
        contexts.enter(&mut seen, at(60));
        assert_eq!(services(&seen), [Some("s"), None, None, None]);
    }

    #[test]
    fn a_process_is_not_asked_again_at_once() {
        let dir = host();
        let mut contexts = Contexts::new(&Roots::under(dir.path()));
        let at = |seconds| Monotonic(Duration::from_secs(seconds));
        contexts.enter(&mut tasks(), at(1));
        fs::write(dir.path().join("proc/11/maps"), "0-1000 rw-p 0 00:00 0 [anon:OTEL_CTX]\n").unwrap();
        let mut seen = tasks();
        contexts.enter(&mut seen, at(20));
        assert_eq!(services(&seen), [Some("s"), None, None, None]);
        contexts.enter(&mut seen, at(31));
        assert_eq!(services(&seen), [Some("s"), Some("s"), None, None]);
    }
}
