//! Repeated scans of the processes.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::stat::Stat;
use super::{Changed, Need, Process, ProcessKey};
use crate::error::FileError;
use crate::host::{self, Roots};
use crate::targets::{CgroupMount, Diff, Obstacle, SkippedTargets};

/// Maximum number of processes, and of threads of one process.
const COUNT_LIMIT: usize = 1 << 16;

/// Maximum number of refreshes until a known process is read again.
const ROUNDS: u64 = 10;

/// Maximum number of processes for which every refresh reads all of them.
const FEW: usize = 256;

/// Maximum size of a `stat` file in bytes: 52 numbers and a name.
const STAT_LIMIT: u64 = 4 << 10;

/// Maximum size of a `cgroup` file in bytes: a path for each cgroup v1 hierarchy.
const CGROUP_LIMIT: u64 = 64 << 10;

/// The processes of this machine: those of its own pid namespace. If procfs is mounted with `hidepid`, processes of other users are visible
/// only with `CAP_SYS_PTRACE`.
#[derive(Debug)]
pub struct Processes {
    proc: PathBuf,
    cgroups: Option<CgroupMount>,
    need: Need,
    known: HashMap<u32, Known>,
    round: u64,
    left_out: SkippedTargets,
    /// Processes that started to exit, and had not ended at the last refresh.
    ending: Vec<u32>,
}

#[derive(Debug)]
struct Known {
    state: State,
    /// The inode number of `/proc/PID`, which readdir returns at no extra cost. The kernel drops the inode when the process ends, so the
    /// next process with this pid has another one.
    inode: u64,
    /// The last refresh that found it.
    round: u64,
}

impl Known {
    fn process(&self) -> Option<&Arc<Process>> {
        match &self.state {
            State::Running(process) => Some(process),
            State::Ignored(_) => None,
        }
    }
}

#[derive(Debug)]
enum State {
    Running(Arc<Process>),
    /// A zombie, or a process that cannot be read.
    Ignored(Obstacle),
}

/// Whether a process existed when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    There,
    Gone,
}

impl Processes {
    /// Returns the processes in `roots.proc`. `cgroups` is needed to map their cgroups; without it they are unknown. Reads nothing yet.
    pub fn new(roots: &Roots, cgroups: Option<CgroupMount>) -> Self {
        Self {
            proc: roots.proc.clone(),
            cgroups,
            need: Need::default(),
            known: HashMap::new(),
            round: 0,
            left_out: SkippedTargets::default(),
            ending: Vec::new(),
        }
    }

    /// Scans the processes and returns the changes, each list sorted by pid. The first refresh adds everything. Zombies are omitted,
    /// because they count nothing.
    ///
    /// New processes, ended ones and reused pids are found at once. Other changes are found within ten refreshes, or at once if there are
    /// at most 256 processes. These are a new name or executable (`exec`, `prctl`), a move to another cgroup, and a change to a zombie. A
    /// refresh with another `need` reads all processes again.
    ///
    /// The cost is one readdir, and for each process that is read one `stat` and the files for `need`.
    ///
    /// # Errors
    /// When `/proc` itself cannot be listed; all known processes are kept then. A process that cannot be read is counted in
    /// [`left_out`](Self::left_out); if it is known, it stays unchanged.
    pub fn refresh(&mut self, need: Need) -> Result<Diff<Arc<Process>, ProcessKey>, FileError> {
        let mut left_out = SkippedTargets::default();
        let pids = self.pids(&mut left_out)?;
        let everything = self.known.len() <= FEW || need != self.need;
        let mut diff = Diff::default();
        self.need = need;
        self.round += 1;

        for (pid, inode) in pids {
            let due = everything || u64::from(pid) % ROUNDS == self.round % ROUNDS;
            match self.known.get_mut(&pid) {
                Some(known) if known.inode == inode && !due => known.round = self.round,
                _ => {
                    self.look_at(pid, inode, &mut diff);
                }
            }
        }
        self.known.retain(|_, known| {
            let there = known.round == self.round;
            match &known.state {
                State::Ignored(obstacle) if there => left_out.count(*obstacle),
                State::Running(process) if !there => diff.removed.push(process.key),
                _ => {}
            }
            there
        });
        diff.added.sort_unstable_by_key(|process| process.key);
        diff.changed.sort_unstable_by_key(|process| process.key);
        diff.removed.sort_unstable();
        self.left_out = left_out;
        self.ending.clear();
        Ok(diff)
    }

    /// Like [`refresh`](Self::refresh), but reads only the processes in `changed`. The first refresh, and one with another `need`, reads
    /// all processes.
    ///
    /// # Errors
    /// As for [`refresh`](Self::refresh).
    pub fn refresh_changed(
        &mut self,
        need: Need,
        changed: &Changed,
    ) -> Result<Diff<Arc<Process>, ProcessKey>, FileError> {
        if self.round == 0 || need != self.need {
            return self.refresh(need);
        }
        let mut diff = Diff::default();
        let ending = changed.ending.iter().copied().chain(std::mem::take(&mut self.ending));
        let ending: BTreeSet<u32> = ending.collect();
        let all: BTreeSet<u32> = changed.changed.iter().copied().chain(ending.iter().copied()).collect();
        for pid in all {
            let there = self.look_at_one(pid, &mut diff);
            if there && ending.contains(&pid) {
                // The record is written when the exit begins.
                self.ending.push(pid);
            }
        }
        diff.removed.sort_unstable();
        Ok(diff)
    }

    /// Reads a process outside of a full refresh. Returns whether it is running.
    fn look_at_one(&mut self, pid: u32, diff: &mut Diff<Arc<Process>, ProcessKey>) -> bool {
        let inode = fs::metadata(self.proc.join(pid.to_string())).map(|dir| dir.ino());
        let room = self.known.len() < COUNT_LIMIT || self.known.contains_key(&pid);
        let Some(inode) = inode.ok().filter(|_| room) else {
            self.forget(pid, diff);
            return false;
        };
        if self.look_at(pid, inode, diff) == Seen::Gone {
            self.forget(pid, diff);
        }
        self.known.get(&pid).is_some_and(|known| known.process().is_some())
    }

    fn forget(&mut self, pid: u32, diff: &mut Diff<Arc<Process>, ProcessKey>) {
        let known = self.known.remove(&pid);
        diff.removed.extend(known.iter().filter_map(Known::process).map(|process| process.key));
    }

    /// Returns the known processes, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.known.values().filter_map(Known::process)
    }

    /// Returns the number of processes that the last refresh found and skipped.
    pub fn left_out(&self) -> SkippedTargets {
        self.left_out
    }

    /// Returns the IDs of the threads of a process, in ascending order, at most 65 536.
    ///
    /// # Errors
    /// The kernel's error; `ESRCH` if the process has ended, even if its pid was reused.
    pub fn threads(&self, key: ProcessKey) -> Result<Vec<u32>, FileError> {
        let dir = self.proc.join(key.pid.to_string());
        let threads = host::entries(&dir.join("task"))?.filter_map(|entry| pid_of(&entry.ok()?));
        let mut threads: Vec<u32> = threads.take(COUNT_LIMIT).collect();
        threads.sort_unstable();
        // Checked afterwards, so that the list cannot be that of another process with this pid.
        if read_stat(&dir)?.key != key {
            return Err(FileError::io(dir, &io::Error::from_raw_os_error(libc::ESRCH)));
        }
        Ok(threads)
    }

    /// Returns the pids in `/proc`, each with the inode number of its directory.
    fn pids(&self, left_out: &mut SkippedTargets) -> Result<Vec<(u32, u64)>, FileError> {
        let mut pids = Vec::with_capacity(self.known.len());
        for entry in host::entries(&self.proc)? {
            let entry = entry.map_err(|error| FileError::io(&*self.proc, &error))?;
            match pid_of(&entry) {
                Some(_) if pids.len() == COUNT_LIMIT => left_out.too_many += 1,
                Some(pid) => pids.push((pid, entry.ino())),
                None => {}
            }
        }
        Ok(pids)
    }

    /// Reads one process and applies the result.
    fn look_at(&mut self, pid: u32, inode: u64, diff: &mut Diff<Arc<Process>, ProcessKey>) -> Seen {
        let found = read(&self.proc.join(pid.to_string()), self.cgroups.as_ref(), self.need);
        let before = self.known.get(&pid).and_then(Known::process).cloned();
        let state = match (found, before) {
            (Ok(Some(found)), Some(before)) if *before == found => State::Running(before),
            (Ok(Some(found)), before) => {
                let found = Arc::new(found);
                match before {
                    Some(before) if before.key == found.key => diff.changed.push(Arc::clone(&found)),
                    before => {
                        diff.removed.extend(before.map(|before| before.key));
                        diff.added.push(Arc::clone(&found));
                    }
                }
                State::Running(found)
            }
            (Ok(None), before) => {
                diff.removed.extend(before.map(|before| before.key));
                State::Ignored(Obstacle::Absent)
            }
            // It ended between the listing and the read: its round is outdated at the end of the refresh.
            (Err(Obstacle::Absent), _) => return Seen::Gone,
            (Err(_), Some(before)) => State::Running(before),
            (Err(obstacle), None) => State::Ignored(obstacle),
        };
        self.known.insert(pid, Known { state, inode, round: self.round });
        Seen::There
    }
}

impl Process {
    /// Reads one process from its procfs directory (`/proc/812`). `None` if it has ended, or cannot be read.
    pub fn read(dir: &Path, cgroups: Option<&CgroupMount>, need: Need) -> Option<Self> {
        read(dir, cgroups, need).ok().flatten()
    }
}

/// Reads the process in `dir`; `None` for a zombie.
fn read(dir: &Path, cgroups: Option<&CgroupMount>, need: Need) -> Result<Option<Process>, Obstacle> {
    let stat = read_stat(dir).map_err(|error| Obstacle::of(&error))?;
    if stat.zombie {
        return Ok(None);
    }
    let exe = if need.exe && !stat.kernel_thread { read_exe(dir) } else { None };
    let cgroup = match cgroups {
        Some(mount) if need.cgroup => read_cgroup(dir, mount)?,
        _ => None,
    };
    let Stat { key, comm, kernel_thread, .. } = stat;
    Ok(Some(Process { key, comm, exe, cgroup, kernel_thread }))
}

/// Returns the pid of a directory in `/proc`; `None` for all other entries.
fn pid_of(entry: &DirEntry) -> Option<u32> {
    let name = entry.file_name();
    let name = name.to_str()?;
    name.bytes().all(|byte| byte.is_ascii_digit()).then(|| name.parse().ok())?
}

fn read_stat(dir: &Path) -> Result<Stat, FileError> {
    let path = dir.join("stat");
    let content = host::read_at_most(&path, STAT_LIMIT)?;
    Stat::parse(&content).ok_or_else(|| FileError::malformed(path, "expected PID (COMM) STATE and numbers"))
}

fn read_exe(dir: &Path) -> Option<Arc<str>> {
    let target = fs::read_link(dir.join("exe")).ok()?;
    let target = target.to_string_lossy();
    Some(target.strip_suffix(" (deleted)").unwrap_or(&target).into())
}

fn read_cgroup(dir: &Path, mount: &CgroupMount) -> Result<Option<Arc<str>>, Obstacle> {
    match host::read_at_most(&dir.join("cgroup"), CGROUP_LIMIT) {
        Ok(content) => Ok(mount.cgroup_of(&String::from_utf8_lossy(&content))),
        // A list that is too long is considered to contain no cgroup.
        Err(error) if error.errno().is_none() => Ok(None),
        // A process without a known cgroup is still counted. Other errors, such as a lack of descriptors, are not related to the process
        // and must not discard its known state.
        Err(error) => match Obstacle::of(&error) {
            Obstacle::Broken => Err(Obstacle::Broken),
            Obstacle::Absent | Obstacle::Forbidden => Ok(None),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{self, Command, Stdio};

    use super::*;
    use crate::error::Errno;
    use crate::targets::testing::unprivileged;

    const ALL: Need = Need { exe: true, cgroup: true };

    /// A directory used as `/proc`.
    struct Fixture {
        dir: tempfile::TempDir,
        roots: Roots,
    }

    impl Fixture {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let roots = Roots::under(dir.path());
            fs::create_dir_all(roots.proc.join("self")).unwrap();
            fs::create_dir_all(dir.path().join("cg")).unwrap();
            fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
            fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
            fs::write(roots.proc.join("version"), "").unwrap();
            Self { dir, roots }
        }

        fn processes(&self) -> Processes {
            Processes::new(&self.roots, Some(CgroupMount::find(&self.roots).unwrap()))
        }

        fn stat(&self, pid: u32, comm: &[u8], state: &str, start_time: u64) {
            let dir = self.roots.proc.join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let tail = format!(") {state} 1 2 3 4 -1 0 6 7 8 9 10 11 12 13 20 0 1 0 {start_time} 99\n");
            fs::write(dir.join("stat"), [format!("{pid} (").as_bytes(), comm, tail.as_bytes()].concat())
                .unwrap();
        }

        fn exe(&self, pid: u32, target: &str) {
            let link = self.roots.proc.join(pid.to_string()).join("exe");
            drop(fs::remove_file(&link));
            symlink(target, link).unwrap();
        }

        /// Reuses a pid for another process: a new directory, as in `/proc`.
        fn reuse(&self, pid: u32, comm: &[u8], start_time: u64) {
            let dir = self.roots.proc.join(pid.to_string());
            fs::rename(&dir, self.dir.path().join("old")).unwrap();
            self.stat(pid, comm, "S", start_time);
            fs::remove_dir_all(self.dir.path().join("old")).unwrap();
        }
    }

    fn key(pid: u32, start_time: u64) -> ProcessKey {
        ProcessKey { pid, start_time }
    }

    #[test]
    fn the_first_look_adds_everything_and_the_second_nothing() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        fixture.stat(5, b"a) b\n(", "R", 50);
        fixture.exe(7, "/bin/sh (deleted)");
        fs::write(fixture.roots.proc.join("7/cgroup"), "4:cpu:/no\n0::/web/a\n").unwrap();
        let mut processes = fixture.processes();
        let diff = processes.refresh(ALL).unwrap();
        let [first, second] = &diff.added[..] else { panic!("{diff:?}") };
        assert_eq!((first.key, &*first.comm, &first.exe), (key(5, 50), "a) b\n(", &None));
        assert_eq!((second.key, &*second.comm), (key(7, 70), "sh"));
        assert_eq!((second.exe.as_deref(), second.cgroup.as_deref()), (Some("/bin/sh"), Some("/web/a")));
        assert!(processes.refresh(ALL).unwrap().is_empty());
        assert_eq!(processes.left_out(), SkippedTargets::default());
    }

    /// Returns changes with these changed and ending processes.
    fn changed(changed: &[u32], ending: &[u32]) -> Changed {
        Changed { changed: changed.iter().copied().collect(), ending: ending.iter().copied().collect() }
    }

    #[test]
    fn only_processes_that_changed_are_looked_at_where_that_is_known() {
        let fixture = Fixture::new();
        fixture.stat(5, b"old", "S", 50);
        fixture.stat(6, b"gone", "S", 60);
        let mut processes = fixture.processes();
        processes.refresh_changed(ALL, &changed(&[], &[])).unwrap();
        assert_eq!(processes.iter().count(), 2, "the first refresh reads everything");
        fixture.stat(5, b"new", "S", 50);
        fixture.stat(7, b"sh", "S", 70);
        fs::remove_dir_all(fixture.roots.proc.join("6")).unwrap();
        assert!(
            processes.refresh_changed(ALL, &changed(&[], &[])).unwrap().is_empty(),
            "not reported as changed"
        );
        let diff = processes.refresh_changed(ALL, &changed(&[5, 7, 9], &[6])).unwrap();
        assert_eq!(
            (&*diff.changed[0].comm, diff.added[0].key, &diff.removed[..]),
            ("new", key(7, 70), &[key(6, 60)][..])
        );
        assert!(
            processes.refresh(ALL).unwrap().is_empty(),
            "the result is the same as that of a full refresh"
        );
    }

    #[test]
    fn a_process_that_has_not_ended_yet_is_looked_at_again() {
        let fixture = Fixture::new();
        fixture.stat(5, b"slow", "S", 50);
        let mut processes = fixture.processes();
        processes.refresh(ALL).unwrap();
        assert!(processes.refresh_changed(ALL, &changed(&[], &[5])).unwrap().is_empty());
        fixture.stat(5, b"slow", "Z", 50);
        let diff = processes.refresh_changed(ALL, &changed(&[], &[])).unwrap();
        assert_eq!(diff.removed, [key(5, 50)]);
        assert!(processes.refresh_changed(ALL, &changed(&[], &[5])).unwrap().is_empty());
    }

    #[test]
    fn what_is_not_needed_is_not_read_until_it_is() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        fixture.exe(7, "/bin/sh");
        let mut processes = fixture.processes();
        assert_eq!(processes.refresh(Need::default()).unwrap().added[0].exe, None);
        let diff = processes.refresh(ALL).unwrap();
        assert_eq!(diff.changed[0].exe.as_deref(), Some("/bin/sh"));
        assert!(diff.added.is_empty() && diff.removed.is_empty());
    }

    #[test]
    fn exec_changes_a_process_and_does_not_make_another() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        let mut processes = fixture.processes();
        processes.refresh(ALL).unwrap();
        fixture.stat(7, b"nginx", "S", 70);
        let diff = processes.refresh(ALL).unwrap();
        assert_eq!((diff.changed[0].key, &*diff.changed[0].comm), (key(7, 70), "nginx"));
        assert!(diff.added.is_empty() && diff.removed.is_empty());
    }

    #[test]
    fn a_pid_that_comes_again_is_another_process() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        let mut processes = fixture.processes();
        processes.refresh(ALL).unwrap();
        fixture.reuse(7, b"sh", 71);
        let diff = processes.refresh(ALL).unwrap();
        assert_eq!(diff.removed, [key(7, 70)]);
        assert_eq!(diff.added[0].key, key(7, 71));
        assert!(diff.changed.is_empty());
    }

    #[test]
    fn with_many_processes_pids_that_came_again_are_seen_at_once_and_exec_within_ten_rounds() {
        let fixture = Fixture::new();
        for pid in 1000..1000 + FEW as u32 + 20 {
            fixture.stat(pid, b"sh", "S", 70);
        }
        let mut processes = fixture.processes();
        processes.refresh(ALL).unwrap();
        fixture.reuse(1003, b"sh", 71);
        fixture.stat(1004, b"nginx", "S", 70);
        fs::remove_dir_all(fixture.roots.proc.join("1005")).unwrap();
        let rounds: Vec<_> = (0..ROUNDS).map(|_| processes.refresh(ALL).unwrap()).collect();
        assert_eq!(rounds[0].added[0].key, key(1003, 71));
        assert_eq!(rounds[0].removed, [key(1003, 70), key(1005, 70)]);
        assert_eq!(rounds.iter().map(|diff| diff.changed.len()).sum::<usize>(), 1);
        assert!(processes.refresh(ALL).unwrap().is_empty());
    }

    #[test]
    fn a_zombie_is_as_good_as_ended() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        fixture.stat(8, b"sh", "Z", 80);
        let mut processes = fixture.processes();
        assert_eq!(processes.refresh(ALL).unwrap().added.len(), 1);
        fixture.stat(7, b"sh", "Z", 70);
        assert_eq!(processes.refresh(ALL).unwrap().removed, [key(7, 70)]);
        fs::remove_dir_all(fixture.roots.proc.join("7")).unwrap();
        assert!(processes.refresh(ALL).unwrap().is_empty());
        assert_eq!(processes.left_out(), SkippedTargets::default());
    }

    #[test]
    fn a_broken_entry_is_counted_and_the_others_are_followed() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        for (pid, content) in [("8", "8 sh S".to_owned()), ("9", format!("9 ({}", "x".repeat(5000)))] {
            fs::create_dir(fixture.roots.proc.join(pid)).unwrap();
            fs::write(fixture.roots.proc.join(pid).join("stat"), content).unwrap();
        }
        // It is ending: still listed, but already without its files.
        fs::create_dir(fixture.roots.proc.join("10")).unwrap();
        let mut processes = fixture.processes();
        assert_eq!(processes.refresh(ALL).unwrap().added.len(), 1);
        assert_eq!(processes.left_out(), SkippedTargets { broken: 2, ..SkippedTargets::default() });
    }

    #[test]
    fn a_known_process_that_cannot_be_read_for_a_while_stays_as_it_was() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        let mut processes = fixture.processes();
        processes.refresh(ALL).unwrap();
        fs::write(fixture.roots.proc.join("7/stat"), "").unwrap();
        assert!(processes.refresh(ALL).unwrap().is_empty());
        fixture.stat(7, b"sh", "S", 70);
        assert!(processes.refresh(ALL).unwrap().is_empty());
    }

    #[test]
    fn a_comm_of_4_kilobytes_and_one_of_no_text_at_all_are_only_data() {
        let fixture = Fixture::new();
        fixture.stat(7, &[b'x'; 3900], "S", 70);
        fixture.stat(8, b"\xff\n\x1b[31m\"\\", "S", 80);
        let added = fixture.processes().refresh(ALL).unwrap().added;
        assert_eq!(&*added[0].comm, "x".repeat(15));
        assert_eq!(&*added[1].comm, "\u{fffd}\n\u{1b}[31m\"\\");
    }

    #[test]
    fn without_a_proc_there_is_an_error_and_nothing_is_forgotten() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        let mut processes = fixture.processes();
        processes.refresh(ALL).unwrap();
        let away = fixture.dir.path().join("away");
        fs::rename(&fixture.roots.proc, &away).unwrap();
        assert!(processes.refresh(ALL).unwrap_err().is_absent());
        fs::rename(&away, &fixture.roots.proc).unwrap();
        assert!(processes.refresh(ALL).unwrap().is_empty());
    }

    #[test]
    fn threads_are_listed_for_the_process_that_was_meant_and_no_other() {
        let fixture = Fixture::new();
        fixture.stat(7, b"sh", "S", 70);
        for thread in ["12", "7", "9"] {
            fs::create_dir_all(fixture.roots.proc.join("7/task").join(thread)).unwrap();
        }
        let processes = fixture.processes();
        assert_eq!(processes.threads(key(7, 70)).unwrap(), [7, 9, 12]);
        assert_eq!(processes.threads(key(7, 69)).unwrap_err().errno(), Some(Errno::ESRCH));
        assert!(processes.threads(key(8, 70)).unwrap_err().is_absent());
    }

    /// Against the kernel.
    #[test]
    fn this_process_is_found_with_all_that_is_known_of_it() {
        let roots = Roots::default();
        let mount = CgroupMount::find(&roots);
        let mut processes = Processes::new(&roots, mount.clone().ok());
        let added = processes.refresh(ALL).unwrap().added;
        let us = added.iter().find(|process| process.key.pid == process::id()).unwrap();
        assert_eq!(us.exe.as_deref(), std::env::current_exe().unwrap().to_str());
        assert!(us.exe.as_deref().unwrap().contains(&*us.comm) && !us.kernel_thread);
        assert!(processes.threads(us.key).unwrap().contains(&us.key.pid));
        // Also when the whole test runs in its own cgroup namespace (`unshare -C`).
        match mount {
            Ok(mount) => {
                let cgroup = mount.dir().join(us.cgroup.as_deref().unwrap().trim_start_matches('/'));
                let procs = host::read_text(&cgroup.join("cgroup.procs")).unwrap();
                assert!(procs.lines().any(|line| line == us.key.pid.to_string()), "{}", cgroup.display());
            }
            Err(absent) => println!("cgroup not compared: {absent}"),
        }
        for kernel_thread in added.iter().filter(|process| process.kernel_thread) {
            assert!(kernel_thread.exe.is_none(), "{kernel_thread:?}");
            assert!(!kernel_thread.comm.get(8..).unwrap_or_default().contains('+'), "{kernel_thread:?}");
        }
    }

    /// Against the kernel: a process that is started, renames itself by `exec`, and ends.
    #[test]
    fn a_child_is_added_changed_and_removed() {
        let roots = Roots::default();
        let mut processes = Processes::new(&roots, None);
        processes.refresh(ALL).unwrap();
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let is_child = |process: &&Arc<Process>| process.key.pid == child.id();
        // Each byte that is returned indicates that the child has completed a step.
        let mut byte = [0];
        io::Read::read_exact(&mut output, &mut byte).unwrap();
        let added = processes.refresh(ALL).unwrap().added.iter().find(is_child).cloned().unwrap();
        io::Write::write_all(&mut input, b"\n!").unwrap();
        io::Read::read_exact(&mut output, &mut byte).unwrap();
        let changes = (0..ROUNDS).map(|_| processes.refresh(ALL).unwrap().changed);
        let changed = changes.flatten().find(|process| is_child(&process)).unwrap();
        drop(input);
        child.wait().unwrap();
        let removed = processes.refresh(ALL).unwrap().removed;

        assert_eq!(&*changed.comm, "cat");
        assert_ne!(added.exe, changed.exe);
        assert_eq!(added.key, changed.key);
        assert!(removed.contains(&added.key));
    }

    /// Against the kernel.
    #[test]
    fn without_privilege_the_executables_of_others_are_unknown_and_nothing_else_is() {
        let own = || rustix::process::geteuid().is_root();
        let roots = Roots::default();
        let (added, left_out) = unprivileged(|| {
            let mut processes = Processes::new(&roots, None);
            (processes.refresh(ALL).unwrap().added, processes.left_out())
        });
        let first = added.iter().find(|process| process.key.pid == 1);
        let Some(first) = first else { return println!("skipped: procfs hides process 1 (hidepid)") };
        assert!(!first.comm.is_empty());
        assert!(first.exe.is_none() || !own(), "{first:?}");
        assert_eq!(left_out, SkippedTargets::default());
    }
}
