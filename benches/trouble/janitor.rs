//! A process that cleans up after the benchmark, in whatever way the benchmark ends. It reads the names of objects to remove from a pipe,
//! and starts when the pipe closes. The kernel also closes the pipe of an interrupted, killed or panicking process.

use std::fs;
use std::io::{BufRead, Write, stdin};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use perf_exporter::host::{Roots, list};
use perf_exporter::targets::CgroupMount;
use rustix::mount::{UnmountFlags, unmount};

/// The cleaning process, and the parent directories of what it removes.
#[derive(Debug)]
pub(crate) struct Janitor {
    child: Child,
    orders: Mutex<Option<ChildStdin>>,
    cgroup: PathBuf,
    scratch: PathBuf,
}

impl Janitor {
    /// Starts it, and creates a cgroup and a directory for the benchmark.
    pub(crate) fn start() -> Self {
        // Outside of the terminal's foreground group, so that only the benchmark is interrupted.
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg("--janitor").process_group(0).stdin(Stdio::piped()).spawn().unwrap();
        let orders = Mutex::new(child.stdin.take());
        let name = format!("perf-exporter-trouble-{}", std::process::id());
        let cgroup = CgroupMount::find(&Roots::default()).unwrap().dir().join(&name);
        let scratch = std::env::temp_dir().join(name);
        let janitor = Self { child, orders, cgroup, scratch };
        janitor.order("cgroup", &janitor.cgroup);
        janitor.order("directory", &janitor.scratch);
        fs::create_dir(&janitor.cgroup).unwrap();
        fs::create_dir(&janitor.scratch).unwrap();
        janitor
    }

    /// Creates a cgroup. All processes in it are killed at the end.
    pub(crate) fn cgroup(&self, name: &str) -> PathBuf {
        let dir = self.cgroup.join(name);
        fs::create_dir(&dir).unwrap();
        dir
    }

    /// Returns a directory for files of the benchmark.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Registers a file for removal at the end.
    pub(crate) fn removes(&self, file: &Path) {
        self.order("file", file);
    }

    /// Registers a mount point for unmounting at the end.
    pub(crate) fn unmounts(&self, mount: &Path) {
        self.order("mount", mount);
    }

    fn order(&self, kind: &str, path: &Path) {
        let mut orders = self.orders.lock().unwrap();
        writeln!(orders.as_mut().unwrap(), "{kind} {}", path.display()).unwrap();
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.orders.lock().ok().and_then(|mut orders| orders.take()));
        drop(self.child.wait());
    }
}

/// Runs the cleaning process.
pub(crate) fn run() {
    let mut orders: Vec<(String, PathBuf)> = Vec::new();
    for line in stdin().lock().lines().map_while(Result::ok) {
        let Some((kind, path)) = line.split_once(' ') else { continue };
        orders.push((kind.to_owned(), path.into()));
    }
    let all = |kind: &str| {
        orders.iter().filter(move |order| order.0 == kind).map(|order| order.1.clone()).collect::<Vec<_>>()
    };
    // Before processes are killed, because processes that wait for a file system cannot exit.
    for mount in all("mount") {
        if unmount(&mount, UnmountFlags::DETACH).is_ok() {
            drop(fs::remove_dir(&mount));
        }
    }
    for cgroup in all("cgroup") {
        empty(&cgroup);
    }
    for file in all("file") {
        drop(fs::remove_file(&file));
    }
    for directory in all("directory") {
        drop(fs::remove_dir_all(&directory));
    }
}

/// Kills all processes in a cgroup and its descendants, and removes the cgroups. Gives up after 20 seconds.
pub(crate) fn empty(cgroup: &Path) {
    for _ in 0..200 {
        drop(fs::write(cgroup.join("cgroup.kill"), "1"));
        remove(cgroup);
        if !cgroup.exists() {
            return;
        }
        sleep(Duration::from_millis(100));
    }
}

fn remove(cgroup: &Path) {
    for name in list(cgroup).unwrap_or_default() {
        let below = cgroup.join(name);
        if below.is_dir() {
            remove(&below);
        }
    }
    drop(fs::remove_dir(cgroup));
}
