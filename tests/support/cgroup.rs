//! Cgroups that a test creates.

use std::fs;
use std::path::{Path, PathBuf};

use perf_exporter::host::Roots;
use perf_exporter::targets::CgroupMount;

use super::eventually;

/// A cgroup in the hierarchy that perf events use. It is removed when it is dropped; its processes must have exited by then.
#[derive(Debug)]
pub(crate) struct TestCgroup {
    dir: PathBuf,
    path: String,
}

impl TestCgroup {
    /// Creates a cgroup below the root. Its name contains the id of this process, so that two runs do not collide.
    pub(crate) fn new(name: &str) -> Self {
        let mount = CgroupMount::find(&Roots::default()).unwrap();
        let path = format!("/perf-exporter-{name}-{}", std::process::id());
        Self::make(mount.dir().join(&path[1..]), path)
    }

    /// Creates a child cgroup.
    pub(crate) fn below(&self, name: &str) -> Self {
        Self::make(self.dir.join(name), format!("{}/{name}", self.path))
    }

    fn make(dir: PathBuf, path: String) -> Self {
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        Self { dir, path }
    }

    /// Returns the directory of its files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path as the label `cgroup` contains it.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Moves a process into the cgroup.
    pub(crate) fn take(&self, pid: u32) {
        let procs = self.dir.join("cgroup.procs");
        fs::write(&procs, pid.to_string()).unwrap_or_else(|error| panic!("{}: {error}", procs.display()));
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        // A process leaves its cgroup some time after its parent has reaped it.
        let removed = || fs::remove_dir(&self.dir).ok();
        if std::thread::panicking() {
            let _left_behind_by_a_failed_test = removed();
        } else {
            eventually("the cgroup of a test is empty when it is removed", removed);
        }
    }
}
