//! A process that cleans up after the benchmark, however that ends. It reads from a pipe what there is to remove, and
//! begins when the pipe closes: the kernel closes it for an interrupted, killed or panicking process too.

use std::fs;
use std::io::{BufRead, Write, stdin};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

use perf_exporter::host::{Roots, list};
use perf_exporter::target::CgroupMount;
use rustix::mount::{UnmountFlags, unmount};

/// The cleaning process, and the places that it removes.
#[derive(Debug)]
pub(crate) struct Janitor {
    child: Child,
    orders: Mutex<Option<ChildStdin>>,
    cgroup: PathBuf,
    scratch: PathBuf,
}

impl Janitor {
    /// Makes a cgroup and a directory for the benchmark.
    pub(crate) fn start() -> Self {
        // Not in the foreground group of the terminal: an interrupt is for the benchmark alone.
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

    /// Makes a cgroup. Everything in it is killed at the end.
    pub(crate) fn cgroup(&self, name: &str) -> PathBuf {
        let dir = self.cgroup.join(name);
        fs::create_dir(&dir).unwrap();
        dir
    }

    /// A directory for files of the benchmark.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Has a file removed at the end.
    pub(crate) fn removes(&self, file: &Path) {
        self.order("file", file);
    }

    /// Has a mount point unmounted at the end.
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

/// The side of the process.
pub(crate) fn run() {
    let mut orders: Vec<(String, PathBuf)> = Vec::new();
    for line in stdin().lock().lines().map_while(Result::ok) {
        let Some((kind, path)) = line.split_once(' ') else { continue };
        orders.push((kind.to_owned(), path.into()));
    }
    let all = |kind: &str| {
        orders.iter().filter(move |order| order.0 == kind).map(|order| order.1.clone()).collect::<Vec<_>>()
    };
    // Before processes are killed: those that wait for a file system cannot end.
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

/// Kills everything in a cgroup and below, and removes them; gives up after 20 seconds.
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
