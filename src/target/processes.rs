//! The processes of the host, followed through `/proc`.
//!
//! Parsers of our own rather than a crate's: this runs with every collection, reads two fields of one file for most
//! processes, and must take any bytes that a process gives itself as a name.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::process::Details;
use super::{Diff, Hierarchy, Process, ProcessKey};
use crate::error::FileError;
use crate::host::{Roots, entries, read_at_most};

/// How many processes are followed.
const MOST: usize = 65_536;

/// A process that was seen before is read again in every so manyth look: that is how long a new name (`execve`,
/// `prctl`) or a reused process id may go unnoticed. One that is gone is noticed at once, and a new one is read again
/// at the next look, for it often calls `execve` right after it was made.
const ROTATION: u64 = 8;

/// What `/proc/PID/stat` and `/proc/PID/cgroup` may hold: 52 numbers and a name, a line for each hierarchy.
const FILE_LIMIT: u64 = 64 << 10;

/// `PF_KTHREAD` of `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The processes as of the last look.
#[derive(Debug, Clone)]
pub(super) struct Processes {
    proc: PathBuf,
    known: BTreeMap<u32, Known>,
    looks: u64,
    left_out: u64,
}

#[derive(Debug, Clone)]
struct Known {
    process: Arc<Process>,
    found: u64,
}

/// What a look found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// What came and what went.
    pub diff: Diff<Arc<Process>, ProcessKey>,
    /// What is the same process with another name, program or cgroup.
    pub changed: Vec<Arc<Process>>,
}

impl Processes {
    pub(super) fn new(roots: &Roots) -> Self {
        Self { proc: roots.proc.clone(), known: BTreeMap::new(), looks: 0, left_out: 0 }
    }

    /// Looks again, reading of each process what `details` says. `hierarchy` is the one that perf events see.
    pub(super) fn refresh(
        &mut self,
        details: Details,
        hierarchy: Option<Hierarchy>,
    ) -> Result<Look, FileError> {
        self.looks += 1;
        self.left_out = 0;
        let mut look = Look::default();
        let mut before = std::mem::take(&mut self.known);
        let pids =
            entries(&self.proc)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        for pid in pids {
            if self.known.len() >= MOST {
                self.left_out += 1;
                continue;
            }
            let Some(old) = before.remove(&pid) else {
                if let Some(process) = self.read(pid, details, hierarchy) {
                    look.diff.added.push(Arc::clone(&process));
                    self.known.insert(pid, Known { process, found: self.looks });
                }
                continue;
            };
            let due = old.found + 1 == self.looks || u64::from(pid) % ROTATION == self.looks % ROTATION;
            let read = if due { self.read(pid, details, hierarchy) } else { Some(Arc::clone(&old.process)) };
            let known = match read {
                None => {
                    look.diff.removed.push(old.process.key);
                    continue;
                }
                Some(new) if new.key != old.process.key => {
                    look.diff.removed.push(old.process.key);
                    look.diff.added.push(Arc::clone(&new));
                    Known { process: new, found: self.looks }
                }
                Some(new) if new != old.process => {
                    look.changed.push(Arc::clone(&new));
                    Known { process: new, found: old.found }
                }
                Some(_) => old,
            };
            self.known.insert(pid, known);
        }
        look.diff.removed.extend(before.into_values().map(|known| known.process.key));
        Ok(look)
    }

    /// Those known, by process id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.known.values().map(|known| &known.process)
    }

    /// How many were not followed at the last look, because they were too many.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The threads of a process, by their ids.
    pub(super) fn threads(&self, key: ProcessKey) -> Result<Vec<u32>, FileError> {
        let dir = self.proc.join(key.pid.to_string()).join("task");
        let mut threads: Vec<u32> =
            entries(&dir)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
        threads.sort_unstable();
        Ok(threads)
    }

    /// Reads one process; `None` if it is gone, or may not be seen.
    fn read(&self, pid: u32, details: Details, hierarchy: Option<Hierarchy>) -> Option<Arc<Process>> {
        let dir = self.proc.join(pid.to_string());
        let stat = Stat::parse(&read_at_most(&dir.join("stat"), FILE_LIMIT).ok()?)?;
        let exe =
            (details.exe && !stat.kernel_thread).then(|| std::fs::read_link(dir.join("exe")).ok()).flatten();
        let cgroup = hierarchy.filter(|_| details.cgroup).and_then(|hierarchy| {
            cgroup_path(&read_at_most(&dir.join("cgroup"), FILE_LIMIT).ok()?, hierarchy)
        });
        Some(Arc::new(Process {
            key: ProcessKey { pid, start_time: stat.start_time },
            comm: stat.comm.into(),
            exe: exe.map(|path| path.to_string_lossy().into()),
            cgroup: cgroup.map(Into::into),
            kernel_thread: stat.kernel_thread,
        }))
    }
}

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    comm: String,
    start_time: u64,
    kernel_thread: bool,
}

impl Stat {
    /// Reads `PID (comm) state …` of `proc_pid_stat(5)`. The name may hold anything, brackets and newlines too, so it
    /// ends at the last bracket.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|&b| b == b'(')?;
        let close = bytes.iter().rposition(|&b| b == b')')?;
        let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
        let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        // Fields are numbered from 1; what follows the name begins with field 3.
        let field = |number: usize| rest.split_ascii_whitespace().nth(number - 3)?.parse::<u64>().ok();
        Some(Self { comm, kernel_thread: field(9)? & KERNEL_THREAD != 0, start_time: field(22)? })
    }
}

/// The path in the line of the wanted hierarchy of `/proc/PID/cgroup`: `0::/path`, `5:perf_event:/path`.
fn cgroup_path(bytes: &[u8], hierarchy: Hierarchy) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (id, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let wanted = match hierarchy {
            Hierarchy::V2 => id == "0",
            Hierarchy::V1 => controllers.split(',').any(|controller| controller == "perf_event"),
        };
        wanted.then(|| path.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use proptest::prelude::*;

    fn stat(pid: u32, comm: &str, start: u64) -> String {
        format!(
            "{pid} ({comm}) S 1 1 1 0 -1 4194560 10 0 0 0 1 2 0 0 20 0 1 0 {start} 4096 1 18446744073709551615"
        )
    }

    fn put(roots: &Roots, pid: u32, comm: &str, start: u64) {
        let dir = roots.proc.join(pid.to_string());
        fs::create_dir_all(dir.join("task").join(pid.to_string())).unwrap();
        fs::write(dir.join("stat"), stat(pid, comm, start)).unwrap();
        fs::write(dir.join("cgroup"), "5:perf_event:/v1\n0::/v2\n").unwrap();
    }

    fn host() -> (tempfile::TempDir, Roots) {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        fs::create_dir(&roots.proc).unwrap();
        (dir, roots)
    }

    fn look(processes: &mut Processes) -> Look {
        processes.refresh(Details { exe: true, cgroup: true }, Some(Hierarchy::V2)).unwrap()
    }

    #[test]
    fn a_name_may_hold_brackets_spaces_and_newlines() {
        let parsed = Stat::parse(stat(1, "a) S (b\n c", 77).as_bytes()).unwrap();
        assert_eq!(parsed, Stat { comm: "a) S (b\n c".into(), start_time: 77, kernel_thread: false });
        assert_eq!(Stat::parse(b"1 (x) S 1 1 1 0 -1 2097152 0"), None);
    }

    #[test]
    fn processes_come_change_their_name_and_go() {
        let (_dir, roots) = host();
        put(&roots, 10, "sh", 5);
        fs::write(roots.proc.join("uptime"), "1").unwrap();
        let mut processes = Processes::new(&roots);
        let first = look(&mut processes);
        assert_eq!(first.diff.added[0].key, ProcessKey { pid: 10, start_time: 5 });
        assert_eq!(first.diff.added[0].cgroup.as_deref(), Some("/v2"));
        put(&roots, 10, "nginx", 5);
        let second = look(&mut processes);
        assert_eq!((second.diff, &*second.changed[0].comm), (Diff::default(), "nginx"));
        fs::remove_dir_all(roots.proc.join("10")).unwrap();
        assert_eq!(look(&mut processes).diff.removed, [ProcessKey { pid: 10, start_time: 5 }]);
        assert_eq!(look(&mut processes), Look::default());
    }

    #[test]
    fn a_reused_process_id_is_noticed_within_one_rotation() {
        let (_dir, roots) = host();
        put(&roots, 10, "sh", 5);
        let mut processes = Processes::new(&roots);
        look(&mut processes);
        look(&mut processes);
        put(&roots, 10, "sh", 6);
        let seen =
            (0..ROTATION).map(|_| look(&mut processes).diff).find(|diff| !diff.added.is_empty()).unwrap();
        assert_eq!(seen.removed, [ProcessKey { pid: 10, start_time: 5 }]);
        assert_eq!(seen.added[0].key, ProcessKey { pid: 10, start_time: 6 });
    }

    #[test]
    fn the_cgroup_is_that_of_the_hierarchy_which_events_see() {
        let text = b"9:name=systemd:/s\n5:cpu,perf_event:/a:b\n0::/v2\n";
        assert_eq!(cgroup_path(text, Hierarchy::V1).unwrap(), "/a:b");
        assert_eq!(cgroup_path(text, Hierarchy::V2).unwrap(), "/v2");
        assert_eq!(cgroup_path(b"", Hierarchy::V2), None);
    }

    #[test]
    fn this_process_and_its_threads_are_found_on_the_real_host() {
        let mut processes = Processes::new(&Roots::default());
        let own = std::process::id();
        let found =
            look(&mut processes).diff.added.into_iter().find(|process| process.key.pid == own).unwrap();
        assert!(found.exe.is_some() && !found.kernel_thread);
        assert!(processes.threads(found.key).unwrap().contains(&own));
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parsers_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&bytes);
            let _ = cgroup_path(&bytes, Hierarchy::V1);
        }
    }
}
