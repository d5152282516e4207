//! Everybody who may be counted, looked at once for all groups.

use std::fs::File;
use std::sync::Arc;

use super::process::Details;
use super::processes::Processes;
use super::{
    Cgroup, CgroupId, CgroupMount, Cgroups, CgroupsAbsent, Diff, Process, ProcessKey, ProcessSelection,
};
use crate::error::FileError;
use crate::host::{CpuSet, Roots, online_cpus};

/// Who is to be looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Cgroups.
    pub cgroups: bool,
    /// Processes, with these details.
    processes: Option<Details>,
}

impl Needs {
    /// Adds what a selection of processes needs.
    pub fn add_processes(&mut self, selection: &ProcessSelection) {
        let (more, so_far) = (selection.details(), self.processes.unwrap_or_default());
        self.processes = Some(Details { exe: more.exe || so_far.exe, cgroup: more.cgroup || so_far.cgroup });
    }
}

/// What changed since the look before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Cgroups, parents first.
    pub cgroups: Diff<Arc<Cgroup>, CgroupId>,
    /// Processes.
    pub processes: Diff<Arc<Process>, ProcessKey>,
    /// Processes that are the same with another name, program or cgroup.
    pub changed: Vec<Arc<Process>>,
}

/// The CPUs, cgroups and processes of the host, as of the last look.
#[derive(Debug)]
pub struct Watch {
    roots: Roots,
    needs: Needs,
    online: CpuSet,
    mount: Result<CgroupMount, CgroupsAbsent>,
    cgroups: Option<Cgroups>,
    processes: Processes,
    /// What went wrong at the last look, beside absent cgroups.
    problems: Vec<FileError>,
}

impl Watch {
    /// Nobody is known before the first [`refresh`](Self::refresh).
    pub fn new(roots: Roots) -> Self {
        Self {
            needs: Needs::default(),
            online: CpuSet::default(),
            mount: CgroupMount::find(&roots),
            cgroups: None,
            processes: Processes::new(&roots),
            problems: Vec::new(),
            roots,
        }
    }

    /// Says who is to be looked for from now on. Those who are no longer needed are forgotten.
    pub fn need(&mut self, needs: Needs) {
        if needs.cgroups {
            self.mount = CgroupMount::find(&self.roots);
        } else {
            self.cgroups = None;
        }
        if needs.processes != self.needs.processes {
            self.processes = Processes::new(&self.roots);
        }
        self.needs = needs;
    }

    /// Looks again. What cannot be read is a [problem](Self::problems), and stays as it was.
    pub fn refresh(&mut self) -> Changes {
        self.problems.clear();
        match online_cpus(&self.roots) {
            Ok(online) => self.online = online,
            Err(error) => self.problems.push(error),
        }
        let mut changes = Changes::default();
        if self.needs.cgroups
            && let Ok(mount) = &self.mount
        {
            match self.cgroups.get_or_insert_with(|| Cgroups::new(mount)).refresh() {
                Ok(diff) => changes.cgroups = diff,
                Err(error) => self.problems.push(error),
            }
        }
        if let Some(details) = self.needs.processes {
            let hierarchy = self.mount.as_ref().ok().map(|mount| mount.hierarchy);
            match self.processes.refresh(details, hierarchy) {
                Ok(look) => (changes.processes, changes.changed) = (look.diff, look.changed),
                Err(error) => self.problems.push(error),
            }
        }
        changes
    }

    /// The CPUs that are online.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// The cgroups, parents first.
    pub fn cgroups(&self) -> impl Iterator<Item = &Arc<Cgroup>> {
        self.cgroups.iter().flat_map(Cgroups::iter)
    }

    /// The processes, by process id.
    pub fn processes(&self) -> impl Iterator<Item = &Arc<Process>> {
        self.processes.iter()
    }

    /// The threads of a process, by their ids.
    ///
    /// # Errors
    /// The kernel's refusal; absent if the process has ended.
    pub fn threads(&self, key: ProcessKey) -> Result<Vec<u32>, FileError> {
        self.processes.threads(key)
    }

    /// Opens the directory of a cgroup.
    ///
    /// # Errors
    /// The kernel's refusal; absent if the cgroup was removed.
    pub fn open_cgroup(&self, cgroup: &Cgroup) -> Result<File, FileError> {
        cgroup.open()
    }

    /// The cgroup file system, or why there is none for events.
    pub fn mount(&self) -> Result<&CgroupMount, &CgroupsAbsent> {
        self.mount.as_ref()
    }

    /// What stood in the way of the last look.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let absent = self.mount.as_ref().err().filter(|_| self.needs.cgroups).map(ToString::to_string);
        absent.into_iter().chain(self.problems.iter().map(ToString::to_string))
    }

    /// How many cgroups were found and not followed, because they lie too deep or are too many.
    pub fn cgroups_left_out(&self) -> u64 {
        self.cgroups.as_ref().map_or(0, Cgroups::left_out)
    }

    /// How many processes were found and not followed, because they are too many.
    pub fn processes_left_out(&self) -> u64 {
        self.processes.left_out()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::target::{GroupBy, ProcessRule};

    fn everything() -> Needs {
        let mut needs = Needs { cgroups: true, ..Needs::default() };
        needs.add_processes(&ProcessSelection {
            include: vec![ProcessRule::default()],
            exclude: vec![],
            by: vec![GroupBy::Cgroup],
        });
        needs
    }

    #[test]
    fn a_host_without_anything_has_problems_and_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(Roots::under(dir.path()));
        watch.need(everything());
        assert_eq!(watch.refresh(), Changes::default());
        let problems: Vec<String> = watch.problems().collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(problems[0].starts_with("no cgroup file system is mounted"), "{problems:?}");
        assert!(problems[1].contains("/cpu/online: ENOENT"), "{problems:?}");
    }

    #[test]
    fn a_list_of_cpus_that_breaks_leaves_those_known_before_and_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let online = roots.sys.join("devices/system/cpu/online");
        fs::create_dir_all(online.parent().unwrap()).unwrap();
        fs::write(&online, "0-3\n").unwrap();
        let mut watch = Watch::new(roots);
        watch.refresh();
        fs::write(&online, "0-99999999\n").unwrap();
        watch.refresh();
        assert_eq!(watch.online().to_string(), "0-3");
        let problems: Vec<String> = watch.problems().collect();
        assert!(problems[0].ends_with("\"0-99999999\" is not a list of CPUs such as 0-3,8"), "{problems:?}");
    }

    #[test]
    fn only_who_is_needed_is_looked_for() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        fs::create_dir_all(dir.path().join("cg/a")).unwrap();
        fs::create_dir_all(roots.proc.join("1/task/1")).unwrap();
        fs::create_dir_all(roots.sys.join("devices/system/cpu")).unwrap();
        fs::write(roots.sys.join("devices/system/cpu/online"), "0\n").unwrap();
        fs::write(roots.proc.join("mounts"), "cgroup2 /cg cgroup2 rw 0 0\n").unwrap();
        fs::write(roots.proc.join("1/stat"), "1 (init) S 0 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5 0 0")
            .unwrap();
        fs::write(roots.proc.join("1/cgroup"), "0::/a\n").unwrap();
        let mut watch = Watch::new(roots);
        assert_eq!(watch.refresh(), Changes::default());
        watch.need(everything());
        let changes = watch.refresh();
        assert_eq!(changes.cgroups.added.len(), 2);
        assert_eq!(changes.processes.added[0].cgroup.as_deref(), Some("/a"));
        assert_eq!(watch.problems().count(), 0);
        watch.need(Needs::default());
        assert_eq!((watch.cgroups().count(), watch.processes().count()), (0, 0));
    }
}
