//! Scan of all possible targets, shared by all groups.

use std::fs::File;
use std::sync::Arc;

use super::{
    Cgroup, CgroupAbsent, CgroupId, CgroupMount, Cgroups, Changed, ContainerMetadata, Diff, Need, Process,
    ProcessKey, ProcessSelection, Processes, SkippedTargets,
};
use crate::error::FileError;
use crate::host::{CpuSet, Online, Roots};

/// Kinds of targets to scan for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Cgroups.
    pub cgroups: bool,
    /// Metadata of the containers of cgroups.
    pub containers: bool,
    /// Processes, and the properties of processes to read.
    processes: Option<Need>,
}

impl Needs {
    /// Adds the needs of a selection of processes.
    pub fn add_processes(&mut self, selection: &ProcessSelection) {
        let mut need = selection.need();
        // The number of names is limited per cgroup.
        need.cgroup |= selection.has_own_names();
        self.processes = Some(self.processes.map_or(need, |so_far| so_far.and(need)));
    }
}

/// Changes since the previous scan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// CPUs that are online now and were offline since the previous scan: their events are gone.
    pub restarted: CpuSet,
    /// Cgroups; `added` has parents first.
    pub cgroups: Diff<Arc<Cgroup>, CgroupId>,
    /// Processes.
    pub processes: Diff<Arc<Process>, ProcessKey>,
}

/// The CPUs, cgroups and processes of the host, as of the last scan.
#[derive(Debug)]
pub struct Watch {
    roots: Roots,
    needs: Needs,
    cpus: Online,
    online: CpuSet,
    mount: Result<CgroupMount, CgroupAbsent>,
    cgroups: Option<Cgroups>,
    processes: Option<Processes>,
    /// Metadata of containers; `None` = unknown.
    containers: Option<Arc<dyn ContainerMetadata>>,
    /// Errors of the last scan, besides a missing cgroup mount.
    problems: Vec<FileError>,
}

impl Watch {
    /// Returns a watch without targets. The first [`refresh`](Self::refresh) finds them.
    pub fn new(roots: Roots) -> Self {
        Self {
            needs: Needs::default(),
            cpus: Online::default(),
            online: CpuSet::default(),
            mount: CgroupMount::find(&roots),
            cgroups: None,
            processes: None,
            containers: None,
            problems: Vec::new(),
            roots,
        }
    }

    /// Uses this metadata to describe cgroups.
    #[must_use]
    pub fn with_metadata(self, containers: Arc<dyn ContainerMetadata>) -> Self {
        Self { containers: Some(containers), ..self }
    }

    /// Sets the kinds of targets to scan for. Discards targets of other kinds, and all targets if the mount of the cgroup file system has
    /// changed.
    pub fn need(&mut self, needs: Needs) {
        let mount = CgroupMount::find(&self.roots);
        if mount != self.mount {
            (self.cgroups, self.processes, self.mount) = (None, None, mount);
        }
        if !needs.cgroups {
            self.cgroups = None;
        }
        if needs.processes.is_none() {
            self.processes = None;
        }
        self.needs = needs;
    }

    /// Scans again. Targets that cannot be read are reported as [problems](Self::problems) and stay unchanged.
    pub fn refresh(&mut self) -> Changes {
        self.look(None)
    }

    /// Scans again, but reads only the processes in `changed`. No other process may have changed since the last scan.
    pub fn refresh_changed(&mut self, changed: &Changed) -> Changes {
        self.look(Some(changed))
    }

    /// Scans the CPUs only. If that fails, they stay unchanged; the next [`refresh`](Self::refresh) reports the error.
    pub fn refresh_cpus(&mut self) -> Changes {
        Changes { restarted: self.look_at_cpus().unwrap_or_default(), ..Changes::default() }
    }

    /// Scans the CPUs, and returns those that were offline since the previous scan.
    fn look_at_cpus(&mut self) -> Result<CpuSet, FileError> {
        let before = std::mem::replace(&mut self.cpus, Online::read(&self.roots)?);
        self.online = self.cpus.cpus();
        Ok(self.cpus.restarted_since(&before))
    }

    fn look(&mut self, changed: Option<&Changed>) -> Changes {
        self.problems.clear();
        let mut changes = Changes::default();
        match self.look_at_cpus() {
            Ok(restarted) => changes.restarted = restarted,
            Err(error) => self.problems.push(error),
        }
        if self.needs.cgroups
            && let Ok(mount) = &self.mount
        {
            let cgroups = self.cgroups.get_or_insert_with(|| Cgroups::new(mount.dir()));
            match cgroups.refresh() {
                Ok(diff) => changes.cgroups = diff,
                Err(error) => self.problems.push(error),
            }
            if let Some(containers) = self.containers.as_deref().filter(|_| self.needs.containers) {
                cgroups.describe(containers, &mut changes.cgroups);
            }
        }
        if let Some(need) = self.needs.processes {
            let new = || Processes::new(&self.roots, self.mount.as_ref().ok().cloned());
            let processes = self.processes.get_or_insert_with(new);
            let refreshed = match changed {
                Some(changed) => processes.refresh_changed(need, changed),
                None => processes.refresh(need),
            };
            match refreshed {
                Ok(diff) => changes.processes = diff,
                Err(error) => self.problems.push(error),
            }
        }
        changes
    }

    /// Returns the CPUs that are online.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Returns the cgroups, parents first.
    pub fn cgroups(&self) -> Vec<Arc<Cgroup>> {
        let mut all: Vec<Arc<Cgroup>> = self.cgroups.iter().flat_map(Cgroups::iter).cloned().collect();
        all.sort_by(|a, b| (a.depth, &a.path).cmp(&(b.depth, &b.path)));
        all
    }

    /// Returns the processes, sorted by process ID.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        let mut all: Vec<Arc<Process>> = self.processes.iter().flat_map(Processes::iter).cloned().collect();
        all.sort_by_key(|process| process.key);
        all
    }

    /// Returns the thread IDs of a process.
    ///
    /// # Errors
    /// The kernel's error; absent if the process has ended.
    pub fn threads(&self, key: ProcessKey) -> Result<Vec<u32>, FileError> {
        match &self.processes {
            Some(processes) => processes.threads(key),
            None => Ok(Vec::new()),
        }
    }

    /// Opens the directory of a cgroup; `None` if it was removed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open_cgroup(&self, cgroup: &Cgroup) -> Result<Option<File>, FileError> {
        let Some(cgroups) = &self.cgroups else { return Ok(None) };
        match cgroups.open(cgroup) {
            Ok(dir) => Ok(Some(dir)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the mount of the cgroup file system, or the reason why it cannot be used for events.
    pub fn mount(&self) -> Result<&CgroupMount, &CgroupAbsent> {
        self.mount.as_ref()
    }

    /// Returns the errors of the last scan.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let absent = self.mount.as_ref().err().filter(|_| self.needs.cgroups).map(ToString::to_string);
        absent.into_iter().chain(self.problems.iter().map(ToString::to_string))
    }

    /// Returns the numbers of cgroups and of processes that the last scan found and skipped.
    pub fn left_out(&self) -> (SkippedTargets, SkippedTargets) {
        let cgroups = self.cgroups.as_ref().map(Cgroups::left_out).unwrap_or_default();
        (cgroups, self.processes.as_ref().map(Processes::left_out).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::targets::{Attribution, GroupBy, Identity, Pod, ProcessRule};

    fn everything() -> Needs {
        let mut needs = Needs { cgroups: true, ..Needs::default() };
        needs.add_processes(&ProcessSelection {
            include: vec![ProcessRule::default()],
            exclude: vec![],
            by: vec![GroupBy::Cgroup],
            attribution: Attribution::default(),
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
        assert!(problems[0].starts_with("cgroups cannot be found: "), "{problems:?}");
        assert!(problems[1].contains("/cpu/online: ENOENT"), "{problems:?}");
    }

    /// Metadata that a test changes.
    #[derive(Debug, Default)]
    struct Pods(std::sync::Mutex<Option<&'static str>>);

    impl ContainerMetadata for Pods {
        fn identities(&self, paths: &[Arc<str>]) -> Vec<Option<Arc<Identity>>> {
            let pod = self.0.lock().unwrap().map(|name| Pod {
                namespace: "shop".into(),
                name: name.into(),
                uid: "u".into(),
            });
            let identity = pod.map(|pod| Arc::new(Identity { pod: Some(pod), ..Identity::default() }));
            vec![identity; paths.len()]
        }

        fn has_sources(&self) -> bool {
            true
        }

        fn generation(&self) -> u64 {
            0
        }
    }

    #[test]
    fn cgroups_of_containers_change_when_their_metadata_does() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let id = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";
        fs::create_dir_all(dir.path().join("cg/docker").join(id)).unwrap();
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
        fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
        let pods = Arc::new(Pods::default());
        let mut watch = Watch::new(roots).with_metadata(Arc::clone(&pods) as Arc<dyn ContainerMetadata>);
        watch.need(Needs { cgroups: true, containers: true, processes: None });
        let names = |cgroups: &[Arc<Cgroup>]| -> Vec<Option<String>> {
            let name = |cgroup: &Arc<Cgroup>| Some(cgroup.container.as_ref()?.pod.as_ref()?.name.to_string());
            cgroups.iter().map(name).collect()
        };
        let mut refresh = |pod| {
            *pods.0.lock().unwrap() = pod;
            let Diff { added, changed, removed } = watch.refresh().cgroups;
            (added.len(), names(&changed), removed.len())
        };
        assert_eq!(refresh(None), (3, vec![], 0));
        assert_eq!(refresh(Some("web-0")), (0, vec![Some("web-0".to_owned())], 0));
        assert_eq!(refresh(Some("web-0")), (0, vec![], 0));
        assert_eq!(refresh(Some("web-1")), (0, vec![Some("web-1".to_owned())], 0));
        assert_eq!(refresh(None), (0, vec![None], 0));
        fs::create_dir(dir.path().join("cg/docker").join(id.replace('4', "5"))).unwrap();
        *pods.0.lock().unwrap() = Some("web-2");
        let changes = watch.refresh().cgroups;
        assert_eq!(names(&changes.added), [Some("web-2".to_owned())], "a new cgroup has it at once");
        assert_eq!(names(&changes.changed), [Some("web-2".to_owned())]);
        watch.need(Needs { cgroups: true, ..Needs::default() });
        *pods.0.lock().unwrap() = Some("web-3");
        assert!(watch.refresh().cgroups.is_empty(), "nothing selects by metadata");
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
        fs::create_dir_all(roots.proc.join("self")).unwrap();
        fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
        fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
        fs::create_dir_all(roots.sys.join("devices/system/cpu")).unwrap();
        fs::write(roots.sys.join("devices/system/cpu/online"), "0\n").unwrap();
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
        assert_eq!((watch.cgroups().len(), watch.processes().len()), (0, 0));
    }
}
