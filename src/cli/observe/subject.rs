//! The target of a measurement, resolved on this machine.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use super::{Failure, Target};
use crate::cli::print_note;
use crate::error::printable;
use crate::host::{self, CpuSet, Facts, Roots};
use crate::profile::Cgroups;
use crate::targets::{Attribution, CgroupMount, CgroupSelection, ProcessSelection};
use crate::targets::{OpenTarget, Targets};

/// The resolved target.
#[derive(Debug)]
pub(in crate::cli) enum Subject {
    /// Everything on these CPUs. `chosen` is set if the CPUs were selected with `-C`.
    Machine { cpus: CpuSet, chosen: bool },
    /// Cgroups on these CPUs.
    Cgroups { dirs: Vec<CgroupDir>, cpus: CpuSet },
    /// Processes.
    Processes(Vec<u32>),
    /// Threads.
    Threads(Vec<u32>),
    /// The command.
    Command,
}

/// A selected cgroup.
#[derive(Debug)]
pub(in crate::cli) struct CgroupDir {
    /// Path below the root of the hierarchy.
    path: Arc<str>,
    dir: PathBuf,
}

impl Subject {
    /// Resolves `target` on this machine.
    ///
    /// # Errors
    /// If a selected CPU or cgroup does not exist, or none of the selected processes or threads.
    pub(in crate::cli) fn find(target: &Target, roots: &Roots, facts: &Facts) -> Result<Self, Failure> {
        Ok(match target {
            Target::Machine(cpus) => {
                Self::Machine { cpus: online(cpus.as_ref(), facts)?, chosen: cpus.is_some() }
            }
            Target::Cgroups(names, cpus) => {
                Self::Cgroups { dirs: cgroups(names, roots)?, cpus: online(cpus.as_ref(), facts)? }
            }
            Target::Processes(pids) => Self::Processes(present(pids, "process", roots)?),
            Target::Threads(tids) => Self::Threads(present(tids, "thread", roots)?),
            Target::User(user) => Self::Processes(of_user(user, roots)?),
            Target::Command => Self::Command,
        })
    }

    /// Returns the targets to plan groups for. The plan depends only on their kind.
    pub(in crate::cli) fn per(&self) -> Targets {
        match self {
            Self::Machine { .. } => Targets::CPU,
            Self::Cgroups { .. } => {
                let attribution = Attribution::Dedicated;
                Targets::Cgroups(CgroupSelection { descendants: true, attribution, ..Default::default() })
            }
            Self::Processes(_) | Self::Threads(_) | Self::Command => {
                let attribution = Attribution::Dedicated;
                Targets::Processes(ProcessSelection { attribution, ..Default::default() })
            }
        }
    }

    /// Returns the targets to open the groups for, one per result that is shown separately. `child` is a command that has not been started
    /// yet. Processes and threads that have ended since [`find`](Self::find) are skipped while others remain.
    ///
    /// # Errors
    /// If a cgroup was removed, or if all processes and threads have ended.
    pub(in crate::cli) fn open_targets(
        &self,
        roots: &Roots,
        child: Option<u32>,
    ) -> anyhow::Result<Vec<OpenTarget>> {
        Ok(match self {
            Self::Machine { cpus, .. } => vec![OpenTarget::Cpus(cpus.clone())],
            Self::Cgroups { dirs, cpus } => {
                let open = |CgroupDir { path, dir }: &CgroupDir| {
                    let dir = File::open(dir).with_context(|| format!("cgroup {path}: {}", dir.display()))?;
                    Ok(OpenTarget::Cgroup { dir, path: path.to_string(), cpus: cpus.clone() })
                };
                dirs.iter().map(open).collect::<anyhow::Result<Vec<_>>>()?
            }
            Self::Processes(pids) => vec![OpenTarget::Threads(threads(pids, roots)?)],
            Self::Threads(tids) => vec![OpenTarget::Threads(running(tids, roots)?)],
            Self::Command => child.map(OpenTarget::Command).into_iter().collect(),
        })
    }

    /// Returns the targets to open events for that are summed or sampled together: as [`open_targets`](Self::open_targets), without
    /// cgroups that are descendants of other selected cgroups.
    ///
    /// # Errors
    /// See [`open_targets`](Self::open_targets).
    pub(in crate::cli) fn distinct_targets(
        &self,
        roots: &Roots,
        child: Option<u32>,
    ) -> anyhow::Result<Vec<OpenTarget>> {
        Ok(without_descendants(self.open_targets(roots, child)?))
    }

    /// Returns the paths below `/proc` of the processes or threads whose end ends the measurement.
    pub(in crate::cli) fn ends_with(&self, roots: &Roots) -> Vec<PathBuf> {
        match self {
            Self::Processes(ids) | Self::Threads(ids) => {
                ids.iter().map(|id| roots.proc.join(id.to_string())).collect()
            }
            Self::Machine { .. } | Self::Cgroups { .. } | Self::Command => Vec::new(),
        }
    }

    /// Returns the cgroups that are shown separately. Control characters in their names are escaped.
    pub(in crate::cli) fn cgroups(&self) -> Vec<Arc<str>> {
        match self {
            Self::Cgroups { dirs, .. } => dirs.iter().map(|cgroup| printable(&cgroup.path).into()).collect(),
            _ => Vec::new(),
        }
    }

    /// Reports whether the target is a set of processes. A user may measure own processes without privileges.
    pub(in crate::cli) fn is_processes(&self) -> bool {
        matches!(self, Self::Processes(_) | Self::Threads(_) | Self::Command)
    }

    /// Reports whether the kernel rejects sampling of kernel code (`perf_event_paranoid` 2, no `CAP_PERFMON`). For CPUs and cgroups it
    /// rejects all events in this case, with its own error.
    pub(in crate::cli) fn user_space_only(&self, facts: &Facts) -> bool {
        self.is_processes() && facts.paranoid.is_some_and(|level| level >= 2) && !facts.capabilities.perfmon()
    }

    /// Returns the CPUs on which events are opened.
    pub(in crate::cli) fn event_cpus(&self, facts: &Facts) -> CpuSet {
        match self {
            Self::Machine { cpus, .. } | Self::Cgroups { cpus, .. } => cpus.clone(),
            Self::Processes(_) | Self::Threads(_) | Self::Command => facts.online.clone(),
        }
    }

    /// Returns the description that perf uses: `'system wide'`.
    pub(in crate::cli) fn describe(&self, command: &str) -> String {
        let list = |ids: &[u32]| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        match self {
            Self::Machine { cpus, chosen: true } => format!("'CPU(s) {cpus}'"),
            Self::Machine { .. } | Self::Cgroups { .. } => "'system wide'".into(),
            Self::Processes(pids) => format!("process id '{}'", list(pids)),
            Self::Threads(tids) => format!("thread id '{}'", list(tids)),
            Self::Command => format!("'{}'", printable(command)),
        }
    }
}

/// Removes cgroups that are descendants of other selected cgroups, because their events are part of those.
fn without_descendants(open_targets: Vec<OpenTarget>) -> Vec<OpenTarget> {
    let path = |target: &OpenTarget| match target {
        OpenTarget::Cgroup { path, .. } => Some(path.clone()),
        _ => None,
    };
    let paths: Vec<String> = open_targets.iter().filter_map(path).collect();
    let mut kept = Vec::new();
    for (place, target) in open_targets.into_iter().enumerate() {
        if let OpenTarget::Cgroup { path, .. } = &target {
            let within = |(at, other): (usize, &String)| match *other == *path {
                true => at < place,
                false => Cgroups::below(other).matches(path),
            };
            if paths.iter().enumerate().any(within) {
                continue;
            }
        }
        kept.push(target);
    }
    kept
}

/// Returns the selected CPUs, or all online CPUs.
fn online(asked: Option<&CpuSet>, facts: &Facts) -> Result<CpuSet, Failure> {
    let Some(cpus) = asked else {
        let why = "cannot read the online CPUs from /sys/devices/system/cpu/online; select CPUs with -C";
        let online = Some(facts.online.clone()).filter(|online| !online.is_empty());
        return Ok(online.context(why)?);
    };
    let offline: CpuSet = cpus.iter().filter(|&cpu| !facts.online.contains(cpu)).collect();
    if cpus.is_empty() || !offline.is_empty() && !facts.online.is_empty() {
        let what = if cpus.is_empty() {
            "the list has no CPU".into()
        } else {
            format!("CPU {offline} is not online")
        };
        return Err(Failure::Usage(anyhow::anyhow!("-C: {what}; online CPUs: {}", facts.online)));
    }
    Ok(cpus.clone())
}

/// Returns the processes or threads that exist. A list from another command can contain some that have ended since, which is reported.
fn present(ids: &[u32], what: &str, roots: &Roots) -> Result<Vec<u32>, Failure> {
    let (present, absent): (Vec<u32>, Vec<u32>) = ids.iter().partition(|&&id| exists(id, roots));
    match absent.first() {
        Some(id) if present.is_empty() => {
            Err(anyhow::anyhow!("there is no {what} {id}; run ps -eL to list all").into())
        }
        _ => {
            absent.iter().for_each(|id| print_note(&format!("there is no {what} {id}: it is left out")));
            Ok(present)
        }
    }
}

fn exists(id: u32, roots: &Roots) -> bool {
    roots.proc.join(id.to_string()).exists()
}

/// Returns the threads of the processes that have not ended.
///
/// # Errors
/// If all have ended, or if the threads of one cannot be listed.
fn threads(pids: &[u32], roots: &Roots) -> anyhow::Result<Vec<u32>> {
    let mut threads = Vec::new();
    for pid in pids {
        let names = match host::list(&roots.proc.join(pid.to_string()).join("task")) {
            Err(error) if error.is_absent() => continue,
            names => names.with_context(|| format!("cannot list the threads of process {pid}"))?,
        };
        threads.extend(names.iter().filter_map(|name| name.parse::<u32>().ok()));
    }
    if threads.is_empty() {
        anyhow::bail!("all of the selected processes have ended");
    }
    Ok(threads)
}

/// Returns the threads that have not ended.
///
/// # Errors
/// If all have ended.
fn running(tids: &[u32], roots: &Roots) -> anyhow::Result<Vec<u32>> {
    let tids: Vec<u32> = tids.iter().copied().filter(|&tid| exists(tid, roots)).collect();
    if tids.is_empty() {
        anyhow::bail!("all of the selected threads have ended");
    }
    Ok(tids)
}

/// Returns the processes of a user, by number or by the name in `/etc/passwd`, without this process.
fn of_user(user: &str, roots: &Roots) -> Result<Vec<u32>, Failure> {
    let by_name = || {
        let users = host::read_text(Path::new("/etc/passwd")).ok()?;
        let entry = users.lines().find_map(|line| line.strip_prefix(user)?.strip_prefix(':'))?;
        entry.split(':').nth(1)?.parse::<u32>().ok()
    };
    let Some(uid) = user.parse::<u32>().ok().or_else(by_name) else {
        let reason =
            format!("-u: there is no user {user:?} in /etc/passwd; use the number that id -u prints");
        return Err(Failure::Usage(anyhow::anyhow!(reason)));
    };
    let names = host::list(&roots.proc).with_context(|| format!("cannot list {}", roots.proc.display()))?;
    let pids =
        names.iter().filter_map(|name| name.parse::<u32>().ok()).filter(|pid| *pid != std::process::id());
    let is_theirs = |pid: &u32| {
        let directory = std::fs::metadata(roots.proc.join(pid.to_string()));
        directory.is_ok_and(|directory| directory.uid() == uid)
    };
    let pids: Vec<u32> = pids.filter(is_theirs).collect();
    if pids.is_empty() {
        return Err(anyhow::anyhow!("user {user} has no process; run ps -u {uid} to list them").into());
    }
    Ok(pids)
}

fn cgroups(names: &[String], roots: &Roots) -> anyhow::Result<Vec<CgroupDir>> {
    let mount = CgroupMount::find(roots)?;
    names.iter().map(|name| cgroup(name, mount.dir())).collect()
}

/// Resolves a cgroup by its path below the root of the hierarchy, or by its path in the file system.
fn cgroup(name: &str, mount: &Path) -> anyhow::Result<CgroupDir> {
    let path = Path::new(name);
    let below = path.strip_prefix(mount).unwrap_or(path);
    let parts: PathBuf = below.components().filter(|part| *part != Component::RootDir).collect();
    let dir = mount.join(&parts);
    let inside = parts.components().all(|part| matches!(part, Component::Normal(_)));
    if name.is_empty() || !inside || !dir.is_dir() {
        anyhow::bail!("there is no cgroup {name:?} in {}; run systemd-cgls to list all", mount.display());
    }
    Ok(CgroupDir { path: format!("/{}", parts.display()).into(), dir })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_found_by_its_path_in_the_hierarchy_and_in_the_file_system() {
        let mount = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(mount.path().join("a.slice/b")).unwrap();
        let absolute = mount.path().join("a.slice/b");
        for name in ["a.slice/b", "/a.slice/b", "/a.slice//b/", absolute.to_str().unwrap()] {
            let found = cgroup(name, mount.path()).unwrap();
            assert_eq!((&*found.path, &found.dir), ("/a.slice/b", &absolute), "{name}");
        }
        let root = cgroup("/", mount.path()).unwrap();
        assert_eq!((&*root.path, &*root.dir), ("/", mount.path()));
    }

    #[test]
    fn a_cgroup_that_is_not_there_or_lies_outside_is_an_error() {
        let mount = tempfile::tempdir().unwrap();
        for name in ["nowhere", "", "..", "/../x", mount.path().parent().unwrap().to_str().unwrap()] {
            let error = cgroup(name, mount.path()).unwrap_err().to_string();
            assert!(error.contains(&format!("{name:?}")), "{error}");
        }
    }

    fn facts(online: &str) -> Facts {
        Facts { online: online.parse().unwrap(), ..Facts::default() }
    }

    #[test]
    fn cpus_that_are_offline_are_named_and_so_are_those_online() {
        let asked = |list: &str| list.parse::<CpuSet>().unwrap();
        assert_eq!(online(None, &facts("0-3")).unwrap(), asked("0-3"));
        assert_eq!(online(Some(&asked("1,3")), &facts("0-3")).unwrap(), asked("1,3"));
        let Err(Failure::Usage(error)) = online(Some(&asked("2-5")), &facts("0-3")) else {
            panic!("no usage")
        };
        assert_eq!(error.to_string(), "-C: CPU 4-5 is not online; online CPUs: 0-3");
        assert!(matches!(online(None, &facts("")), Err(Failure::Failed(_))));
    }

    #[test]
    fn the_processes_of_a_user_are_found_by_number_and_an_unknown_name_is_an_error() {
        let proc = tempfile::tempdir().unwrap();
        for dir in ["proc/7", "proc/8"] {
            std::fs::create_dir_all(proc.path().join(dir)).unwrap();
        }
        let roots = Roots::under(proc.path());
        let own = std::fs::metadata(proc.path()).unwrap().uid();
        let mut found = of_user(&own.to_string(), &roots).unwrap();
        found.sort_unstable();
        assert_eq!(found, [7, 8]);
        let Err(Failure::Failed(error)) = of_user("4000000000", &roots) else { panic!("there is one") };
        assert!(error.to_string().contains("has no process"), "{error}");
        let Err(Failure::Usage(error)) = of_user("no-such-user", &roots) else { panic!("there is one") };
        assert!(error.to_string().contains("there is no user \"no-such-user\""), "{error}");
    }

    #[test]
    fn a_process_that_does_not_exist_is_left_out_while_another_exists() {
        let proc = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(proc.path().join("proc/7")).unwrap();
        let roots = Roots::under(proc.path());
        assert_eq!(present(&[7], "process", &roots).unwrap(), [7]);
        assert_eq!(present(&[8, 7], "process", &roots).unwrap(), [7]);
        let Err(Failure::Failed(error)) = present(&[8, 9], "process", &roots) else { panic!("it exists") };
        assert!(error.to_string().starts_with("there is no process 8"), "{error}");
    }

    #[test]
    fn processes_that_end_before_they_are_opened_are_skipped_while_another_remains() {
        let proc = tempfile::tempdir().unwrap();
        for dir in ["proc/7/task/7", "proc/7/task/9", "proc/8/task/8", "proc/9"] {
            std::fs::create_dir_all(proc.path().join(dir)).unwrap();
        }
        let roots = Roots::under(proc.path());
        let opened = |subject: &Subject| match &subject.open_targets(&roots, None)?[..] {
            [OpenTarget::Threads(tids)] => {
                let mut tids = tids.clone();
                tids.sort_unstable();
                Ok(tids)
            }
            others => anyhow::bail!("{others:?}"),
        };
        let (processes, threads) = (Subject::Processes(vec![8, 7]), Subject::Threads(vec![9, 7]));
        assert_eq!(opened(&processes).unwrap(), [7, 8, 9]);
        std::fs::remove_dir_all(proc.path().join("proc/8")).unwrap();
        std::fs::remove_dir_all(proc.path().join("proc/9")).unwrap();
        assert_eq!(opened(&processes).unwrap(), [7, 9]);
        assert_eq!(opened(&threads).unwrap(), [7]);
        std::fs::remove_dir_all(proc.path().join("proc/7")).unwrap();
        for (subject, what) in [(processes, "processes"), (threads, "threads")] {
            let error = opened(&subject).unwrap_err().to_string();
            assert_eq!(error, format!("all of the selected {what} have ended"));
        }
    }
}
