//! The files behind descriptors, from `/proc/PID/fd`.
//!
//! A link of `/proc/PID/fd` is the file of a descriptor at the time of the reading, but the call with it was made earlier. The path belongs to the
//! call if nothing closed or replaced the descriptor between them, which the records up to the time of the reading show. A path that would
//! only be a guess is left out.

use std::fs;
use std::path::PathBuf;

use rustc_hash::FxHashMap;

use crate::error::printable;
use crate::syscall::CompletedCall;

/// Maximum number of descriptors with a state. Above it, the state of all is discarded.
const MAX: usize = 1 << 16;

/// The calls that end the use of a descriptor for a file: the kernel has to record them for correct paths.
pub(super) const CLOSING: [&str; 6] = ["close", "close_range", "dup2", "dup3", "execve", "execveat"];

/// A descriptor of a process between two changes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    pid: u32,
    number: i32,
    /// The change since which it is the same file.
    since: u64,
}

/// What is known of a number in one process.
#[derive(Debug, Default)]
struct State {
    /// The newest change.
    since: u64,
    /// The newest link, and the one before it: lines can still wait for that.
    links: [Option<Link>; 2],
}

/// A link as it was read.
#[derive(Debug)]
struct Link {
    /// The change since which it is the same file.
    since: u64,
    /// `None` if the link could not be read: the process has ended, or belongs to another user.
    path: Option<String>,
    /// Time of the reading, in nanoseconds of the clock of the records.
    time: u64,
}

/// The answer for a descriptor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer<'a> {
    /// Its path.
    Path(&'a str),
    /// Its path cannot be known.
    Unknown,
    /// Records up to the time of the reading are not handled yet.
    Later,
}

/// Descriptors of all traced processes.
#[derive(Debug)]
pub(super) struct Descriptors {
    proc: PathBuf,
    /// By process, then by number.
    states: FxHashMap<u32, FxHashMap<i32, State>>,
    /// Number of all states.
    count: usize,
    /// Number of changes.
    changes: u64,
}

impl Descriptor {
    /// Returns its number in the process.
    pub(super) fn number(self) -> i32 {
        self.number
    }
}

impl Descriptors {
    /// Creates an empty state. `proc` is the directory of procfs.
    pub(super) fn new(proc: PathBuf) -> Self {
        Self { proc, states: FxHashMap::default(), count: 0, changes: 0 }
    }

    /// Returns the descriptor that has this number now, in the order of the records.
    pub(super) fn now(&mut self, pid: u32, number: i32) -> Descriptor {
        Descriptor { pid, number, since: self.state(pid, number).since }
    }

    fn state(&mut self, pid: u32, number: i32) -> &mut State {
        if self.count >= MAX {
            self.lose();
        }
        let Self { states, count, changes, .. } = self;
        states.entry(pid).or_default().entry(number).or_insert_with(|| {
            *count += 1;
            *changes += 1;
            State { since: *changes, links: [None, None] }
        })
    }

    /// Notes what a completed call did to descriptors.
    pub(super) fn apply(&mut self, ended: &CompletedCall, registers: &[u64]) {
        let Some(name) = ended.call.name().filter(|name| CLOSING.contains(name)) else { return };
        let pid = ended.thread.pid;
        let number = |at: usize| registers.get(at).map(|register| *register as i32);
        match name {
            "close" => self.change(pid, number(0), ended.time - ended.took),
            "dup2" | "dup3" => self.change(pid, number(1), ended.time - ended.took),
            _ if ended.error().is_none() => self.forget(pid),
            _ => {}
        }
    }

    fn change(&mut self, pid: u32, number: Option<i32>, time: u64) {
        let Some(number) = number else { return };
        self.changes += 1;
        let change = self.changes;
        let state = self.state(pid, number);
        state.since = change;
        // The link belongs to the time before the change only if its reading was earlier.
        state.links[0] = state.links[0].take().filter(|link| link.time < time);
    }

    /// Notes that all descriptors of a process may have changed, or that it has ended.
    pub(super) fn forget(&mut self, pid: u32) {
        self.count -= self.states.remove(&pid).map_or(0, |states| states.len());
    }

    /// Notes that records were lost: any descriptor may have changed.
    pub(super) fn lose(&mut self) {
        self.states.clear();
        self.count = 0;
    }

    fn known(&self, descriptor: Descriptor) -> Option<&State> {
        self.states.get(&descriptor.pid)?.get(&descriptor.number)
    }

    /// Reads the link of a descriptor that is in use, unless it was read before. `now` is the time, in nanoseconds of the clock of the
    /// records.
    pub(super) fn read(&mut self, descriptor: Descriptor, now: u64) {
        let Descriptor { pid, number, since } = descriptor;
        let is_read = |state: &State| state.links[0].as_ref().is_some_and(|link| link.since == since);
        if !self.known(descriptor).is_some_and(|state| state.since == since && !is_read(state)) {
            return;
        }
        // The kernel writes the path of an open file without asking its file system.
        let link = fs::read_link(self.proc.join(format!("{pid}/fd/{number}"))).ok();
        let path = link.map(|link| printable(&link.to_string_lossy()));
        let [newest, before] = &mut self.state(pid, number).links;
        *before = newest.replace(Link { since, path, time: now });
    }

    /// Returns the path of a descriptor. All records before `until` are handled.
    pub(super) fn path(&self, descriptor: Descriptor, until: u64) -> Answer<'_> {
        let mut links = self.known(descriptor).into_iter().flat_map(|state| state.links.iter().flatten());
        match links.find(|link| link.since == descriptor.since) {
            Some(Link { path: Some(path), time, .. }) if *time < until => Answer::Path(path),
            Some(Link { path: Some(_), .. }) => Answer::Later,
            _ => Answer::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Thread;
    use crate::syscall::{Abi, Call};

    fn descriptors() -> (tempfile::TempDir, Descriptors) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("7/fd")).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", dir.path().join("7/fd/3")).unwrap();
        let descriptors = Descriptors::new(dir.path().to_owned());
        (dir, descriptors)
    }

    fn ended(number: u32, time: u64) -> CompletedCall {
        let thread = Thread { tid: 7, pid: 7, ..Thread::default() };
        CompletedCall { thread, call: Call { abi: Abi::X86_64, number }, time, took: 1, result: 0 }
    }

    #[test]
    fn a_path_is_known_once_the_records_up_to_its_reading_show_no_change() {
        let (_dir, mut descriptors) = descriptors();
        let used = descriptors.now(7, 3);
        assert_eq!(descriptors.path(used, 100), Answer::Unknown);
        descriptors.read(used, 100);
        assert_eq!(descriptors.path(used, 90), Answer::Later);
        assert_eq!(descriptors.path(used, 101), Answer::Path("/etc/hostname"));
    }

    #[test]
    fn a_descriptor_that_was_closed_before_its_link_was_read_has_no_path() {
        let (_dir, mut descriptors) = descriptors();
        let used = descriptors.now(7, 3);
        descriptors.read(used, 100);
        descriptors.apply(&ended(3, 95), &[3]);
        assert_eq!(descriptors.path(used, 200), Answer::Unknown);
        descriptors.read(used, 300);
        assert_eq!(descriptors.path(used, 400), Answer::Unknown, "the link is that of the next file");
        let next = descriptors.now(7, 3);
        descriptors.read(next, 300);
        assert_eq!(descriptors.path(next, 400), Answer::Path("/etc/hostname"));
    }

    #[test]
    fn a_descriptor_that_was_closed_later_keeps_the_path_for_the_calls_before() {
        let (_dir, mut descriptors) = descriptors();
        let used = descriptors.now(7, 3);
        descriptors.read(used, 100);
        descriptors.apply(&ended(3, 150), &[3]);
        assert_eq!(descriptors.path(used, 200), Answer::Path("/etc/hostname"));
        let next = descriptors.now(7, 3);
        assert_ne!(next, used);
        descriptors.read(next, 250);
        assert_eq!(descriptors.path(used, 300), Answer::Path("/etc/hostname"));
    }

    #[test]
    fn execve_close_range_losses_and_the_end_of_a_process_change_all_descriptors() {
        let (_dir, mut descriptors) = descriptors();
        let used = descriptors.now(7, 3);
        descriptors.read(used, 100);
        descriptors.apply(&ended(59, 150), &[0; 6]);
        assert_ne!(descriptors.now(7, 3), used);
        assert_eq!(descriptors.path(used, 200), Answer::Unknown);
        let used = descriptors.now(7, 3);
        descriptors.read(used, 100);
        descriptors.lose();
        assert_eq!(descriptors.path(used, 200), Answer::Unknown);
        let other = descriptors.now(7, 8);
        descriptors.read(other, 100);
        assert_eq!(descriptors.path(other, 200), Answer::Unknown, "there is no such link");
    }
}
