//! Runs and delays in the Chrome trace event format for Perfetto and `chrome://tracing`.
//!
//! Each CPU is a process with one track of its runs. Each thread has a track in its process, with its runs and its waits for a CPU. Source
//! of the format: "Trace Event Format", Google, the JSON object form.

use std::fmt;
use std::io::{self, Write};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::printable;
use crate::sched::{Comm, PrevState, Run, SchedFact, SwitchIn, SwitchOut, Thread};

/// Number of the "process" for CPU 0. Above all process IDs of the kernel (`PID_MAX_LIMIT`).
const CPUS: u64 = 1 << 23;

/// Maximum number of threads whose name is known to be in the file. Names of further threads are written again.
const MAX: usize = 1 << 17;

/// A trace that is being written.
pub struct TraceJson<W> {
    out: W,
    /// Text that has not been written yet.
    text: String,
    /// Whether the list has an element.
    begun: bool,
    named: FxHashMap<u32, Comm>,
    cpus: FxHashSet<u32>,
    /// The running thread of each CPU.
    running: FxHashMap<u32, (Thread, SwitchIn)>,
}

impl<W> fmt::Debug for TraceJson<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TraceJson").field("threads", &self.named.len()).finish_non_exhaustive()
    }
}

impl<W: Write> TraceJson<W> {
    /// Begins a trace.
    pub fn new(out: W) -> Self {
        Self::with_stack_frames(out, "")
    }

    /// Begins a trace of samples. `frames` is the content of the dictionary of stack frames in JSON.
    pub fn with_stack_frames(out: W, frames: &str) -> Self {
        let frames =
            if frames.is_empty() { String::new() } else { format!("\"stackFrames\":{{{frames}}},\n") };
        Self {
            out,
            text: format!("{{\"displayTimeUnit\":\"ns\",{frames}\"traceEvents\":["),
            begun: false,
            named: FxHashMap::default(),
            cpus: FxHashSet::default(),
            running: FxHashMap::default(),
        }
    }

    /// Adds a fact about a thread.
    pub fn add(&mut self, thread: &Thread, fact: &SchedFact) {
        if thread.tid == 0 {
            return;
        }
        match fact {
            SchedFact::SwitchIn(switch_in) => {
                self.name(thread);
                self.wait(thread, (switch_in.cpu, switch_in.time), switch_in.delay.unwrap_or(0));
                self.running.insert(switch_in.cpu, (*thread, *switch_in));
            }
            SchedFact::SwitchOut(switch_out) => {
                self.running.remove(&switch_out.cpu);
                self.ran(thread, switch_out);
                if switch_out.prev_state == PrevState::Dead {
                    self.named.remove(&thread.tid);
                }
            }
            SchedFact::Ran(_) | SchedFact::Migrated => {}
        }
    }

    fn ran(&mut self, thread: &Thread, switch_out: &SwitchOut) {
        let Some(switch_in) = switch_out.switch_in else { return };
        let next = if switch_out.next.tid == 0 { "idle".into() } else { shown(switch_out.next.comm.bytes()) };
        let args = format!("\"left\":\"{}\",\"next\":{}", switch_out.prev_state.letter(), quoted(&next));
        self.slices(thread, (switch_in.cpu, switch_in.time), switch_out.time, &args);
    }

    /// Adds a run, and the wait before it.
    pub fn add_run(&mut self, run: &Run<'_>) {
        self.name(run.thread);
        self.wait(run.thread, (run.cpu, run.from), run.delay);
        let args = format!("\"left\":\"{}\"", run.left.letter());
        self.slices(run.thread, (run.cpu, run.from), run.until, &args);
    }

    /// Adds a sample: its event and function, and the number of its innermost stack frame. `args` are further fields in JSON.
    pub fn sample(
        &mut self,
        thread: &Thread,
        (event, function): (&str, &str),
        time: u64,
        stack: Option<u32>,
        args: &str,
    ) {
        self.name(thread);
        let stack = stack.map_or_else(String::new, |stack| format!(",\"sf\":\"{stack}\""));
        let (event, function, time) = (quoted(event), quoted(function), microseconds(time));
        let what =
            format!("\"ph\":\"i\",\"s\":\"t\",\"cat\":{event},\"name\":{function},\"ts\":{time}{stack}");
        self.event(&what, track(thread), args);
    }

    /// Returns the number of bytes that are not written yet.
    pub fn buffered(&self) -> usize {
        self.text.len()
    }

    fn wait(&mut self, thread: &Thread, (cpu, until): (u32, u64), delay: u64) {
        if delay > 0 {
            let args = format!("\"cpu\":{cpu}");
            self.slice("waits for a CPU", (until.saturating_sub(delay), delay), track(thread), &args);
        }
    }

    fn slices(&mut self, thread: &Thread, (cpu, from): (u32, u64), until: u64, how: &str) {
        self.name(thread);
        self.name_cpu(cpu);
        let time = (from, until.saturating_sub(from));
        let more = if how.is_empty() { String::new() } else { format!(",{how}") };
        let args = format!("\"cpu\":{cpu}{more}");
        self.slice("runs", time, track(thread), &args);
        let cpu = CPUS + u64::from(cpu);
        let args = format!("\"tid\":{},\"pid\":{}{more}", thread.tid, thread.pid);
        self.slice(&shown(thread.comm.bytes()), time, (cpu, cpu), &args);
    }

    /// Writes the name of a thread, unless it was already written.
    fn name(&mut self, thread: &Thread) {
        if self.named.get(&thread.tid) == Some(&thread.comm) {
            return;
        }
        if self.named.len() >= MAX {
            self.named.clear();
        }
        self.named.insert(thread.tid, thread.comm);
        let (pid, tid) = track(thread);
        let name = format!("\"name\":{}", quoted(&shown(thread.comm.bytes())));
        self.meta("thread_name", (pid, tid), &name);
        if pid == tid {
            self.meta("process_name", (pid, tid), &name);
        }
    }

    fn name_cpu(&mut self, cpu: u32) {
        if !self.cpus.insert(cpu) {
            return;
        }
        let number = CPUS + u64::from(cpu);
        let name = format!("\"name\":\"CPU {cpu}\"");
        self.meta("process_name", (number, number), &name);
        self.meta("thread_name", (number, number), &name);
        // Sorts CPUs before all processes, whose index is 0.
        let index = format!("\"sort_index\":{}", i64::from(cpu) - (1 << 20));
        self.meta("process_sort_index", (number, number), &index);
    }

    fn meta(&mut self, what: &str, track: (u64, u64), args: &str) {
        self.event(&format!("\"ph\":\"M\",\"name\":\"{what}\""), track, args);
    }

    fn slice(&mut self, name: &str, (from, long): (u64, u64), track: (u64, u64), args: &str) {
        let (name, from, long) = (quoted(name), microseconds(from), microseconds(long));
        let what = format!("\"ph\":\"X\",\"cat\":\"sched\",\"name\":{name},\"ts\":{from},\"dur\":{long}");
        self.event(&what, track, args);
    }

    fn event(&mut self, what: &str, (pid, tid): (u64, u64), args: &str) {
        self.text.push_str(if std::mem::replace(&mut self.begun, true) { ",\n" } else { "\n" });
        self.text.push_str(&format!("{{{what},\"pid\":{pid},\"tid\":{tid},\"args\":{{{args}}}}}"));
    }

    /// Writes the buffered text.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(self.text.as_bytes())?;
        self.text.clear();
        Ok(())
    }

    /// Writes the runs that have not ended, and the end of the file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(&mut self, now: u64) -> io::Result<()> {
        let mut running: Vec<_> = std::mem::take(&mut self.running).into_iter().collect();
        running.sort_unstable_by_key(|(cpu, _)| *cpu);
        for (cpu, (thread, switch_in)) in &running {
            self.slices(thread, (*cpu, switch_in.time), now, "");
        }
        self.text.push_str("\n]}\n");
        self.flush()?;
        self.out.flush()
    }
}

/// Returns the process and thread IDs of a track.
fn track(thread: &Thread) -> (u64, u64) {
    let pid = if thread.pid == 0 { thread.tid } else { thread.pid };
    (pid.into(), thread.tid.into())
}

fn shown(comm: &[u8]) -> String {
    printable(&String::from_utf8_lossy(comm))
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the content of the file for these observations.
    fn written(facts: &[(Thread, SchedFact)], now: u64) -> serde_json::Value {
        let kept = Kept::default();
        let mut json = TraceJson::new(kept.clone());
        for (thread, fact) in facts {
            json.add(thread, fact);
            json.flush().unwrap();
        }
        json.end(now).unwrap();
        let bytes = kept.0.lock().unwrap();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_trace_is_json_whatever_threads_are_called_and_ends_with_those_who_run() {
        let thread = |tid, name: &[u8]| Thread { tid, pid: 7, comm: Comm::new(name), ..Thread::default() };
        let (web, hostile) = (thread(7, b"web"), thread(8, b"\"},\x00\xff\n\\"));
        let switch_in = SwitchIn { time: 5_000_100, cpu: 1, delay: Some(2_000), wait: None, migrated: None };
        let switch_out = SwitchOut {
            time: 6_000_100,
            cpu: 1,
            switch_in: Some(switch_in),
            prev_state: PrevState::Preempted,
            next: hostile,
        };
        let next = SwitchIn { time: 6_000_100, delay: None, ..switch_in };
        let facts = [
            (web, SchedFact::SwitchIn(switch_in)),
            (web, SchedFact::SwitchOut(switch_out)),
            (hostile, SchedFact::SwitchIn(next)),
            (Thread::default(), SchedFact::SwitchIn(next)),
        ];
        let written = written(&facts, 7_000_100);
        let events = written["traceEvents"].as_array().unwrap();
        let lines: Vec<String> = events.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(lines.join("\n"));
    }

    #[test]
    fn an_empty_trace_is_a_trace() {
        assert_eq!(written(&[], 0)["traceEvents"].as_array().map(Vec::len), Some(0));
    }
}
