//! The load of the machine. All processes are in one cgroup, which is killed at the end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, sleep};
use std::time::Duration;

use crate::janitor::{Janitor, empty};
use crate::support::fuse::{Mount, Stop};
use crate::support::program::{Program, Running};

/// Directory of the programs' sources.
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/trouble/programs");

/// Number of cgroups at a time.
const CGROUPS: usize = 200;

/// Returns a command that enters a cgroup and then executes a program with the same process id.
pub(crate) fn inside(cgroup: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "echo $$ >\"$0/cgroup.procs\" && exec \"$@\""]).arg(cgroup).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// The processes. They are killed when the value is dropped.
pub(crate) struct Load {
    cgroup: PathBuf,
    commands: Vec<Vec<String>>,
    children: Vec<Child>,
    churn: Option<JoinHandle<()>>,
    ends: Arc<AtomicBool>,
}

impl Load {
    /// Compiles the programs before the load starts. Programs that are not installed are skipped.
    pub(crate) fn prepare(janitor: &Janitor) -> Self {
        let cgroup = janitor.cgroup("load");
        let ends = Arc::new(AtomicBool::new(false));
        let mut load = Self { cgroup, commands: Vec::new(), children: Vec::new(), churn: None, ends };
        load.compilers(janitor.scratch());
        load.runtimes(janitor.scratch());
        // Two processes that fork as fast as possible.
        for _ in 0..2 {
            load.adds(&["sh", "-c", "while :; do /bin/true; done"]);
        }
        load
    }

    /// Starts the whole load.
    pub(crate) fn start(&mut self, janitor: &Janitor) {
        for command in std::mem::take(&mut self.commands) {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let pid = self.runs(&arguments);
            if arguments[0] == "node" {
                janitor.removes(Path::new(&format!("/tmp/perf-{pid}.map")));
            }
        }
        let (cgroup, ends) = (self.cgroup.clone(), Arc::clone(&self.ends));
        self.churn = Some(thread::spawn(move || come_and_go(&cgroup, &ends)));
    }

    fn adds(&mut self, arguments: &[&str]) {
        self.commands.push(arguments.iter().map(|argument| (*argument).to_owned()).collect());
    }

    /// Starts a program and returns its process id.
    pub(crate) fn runs(&mut self, arguments: &[&str]) -> u32 {
        let child = inside(&self.cgroup, arguments).spawn().unwrap();
        let pid = child.id();
        self.children.push(child);
        pid
    }

    /// Adds a program that is started again after each exit.
    fn repeats(&mut self, arguments: &[&str]) {
        self.adds(&[&["sh", "-c", "while :; do \"$0\" \"$@\"; done"], arguments].concat());
    }

    fn compilers(&mut self, scratch: &Path) {
        let source = |name: &str, text: String| {
            let path = scratch.join(name);
            fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (c, cpp, rust) = (
            source("load.c", c_source()),
            source("load.cpp", cpp_source()),
            source("load.rs", rust_source()),
        );
        for _ in 0..2 {
            self.repeats(&["gcc", "-O2", "-c", &c, "-o", "/dev/null"]);
        }
        for _ in 0..4 {
            self.repeats(&["g++", "-O2", "-c", &cpp, "-o", "/dev/null"]);
        }
        if installed("rustc") {
            let to = scratch.join("load.rlib");
            let to = to.to_str().unwrap();
            self.repeats(&["rustc", "-O", "--crate-type", "rlib", "--edition", "2024", &rust, "-o", to]);
        }
    }

    fn runtimes(&mut self, scratch: &Path) {
        let program = |name: &str| format!("{PROGRAMS}/{name}");
        let scratch = scratch.to_str().unwrap();
        if installed("node") {
            // V8 writes its own log in addition to the perf map, by default into the working directory.
            let log = format!("--logfile={scratch}/v8.log");
            self.adds(&["node", "--perf-basic-prof", &log, &program("busy.js")]);
        }
        if installed("javac") && installed("java") {
            let compiled = Command::new("javac").args(["-d", scratch]).arg(program("Busy.java")).status();
            assert!(compiled.unwrap().success(), "javac failed");
            self.adds(&["java", "-Xmx256m", "-cp", scratch, "Busy"]);
        }
        if installed("python3") {
            self.adds(&["python3", &program("busy.py")]);
        }
        let browsers = ["chromium", "chromium-browser", "google-chrome"];
        if let Some(browser) = browsers.into_iter().find(|browser| installed(browser)) {
            let (profile, page) =
                (format!("--user-data-dir={scratch}/browser"), format!("file://{}", program("page.html")));
            let quiet = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"];
            self.adds(&[&[browser], &quiet[..], &[&profile, &page]].concat());
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.churn.take().map(JoinHandle::join));
        empty(&self.cgroup);
        for child in &mut self.children {
            drop(child.wait());
        }
    }
}

fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("skipped, not installed: {program}");
    }
    found
}

/// Creates and removes up to ten cgroups per second. Each exists for at least twenty seconds.
fn come_and_go(top: &Path, ends: &AtomicBool) {
    let mut there: VecDeque<(PathBuf, Child)> = VecDeque::new();
    for number in 0u64.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let dir = top.join(format!("passing-{number}"));
        fs::create_dir(&dir).unwrap();
        let child = inside(&dir, &["sh", "-c", "while sleep 5; do :; done"]).spawn().unwrap();
        there.push_back((dir, child));
        if there.len() > CGROUPS {
            there.pop_front().into_iter().for_each(go);
        }
        sleep(Duration::from_millis(100));
    }
    there.into_iter().for_each(go);
}

fn go((dir, mut child): (PathBuf, Child)) {
    drop(child.kill());
    drop(child.wait());
    empty(&dir);
}

/// Returns a source that takes gcc about a second of CPU time.
fn c_source() -> String {
    let mut text = String::from("#include <stdlib.h>\n");
    for number in 0..600 {
        writeln!(
            text,
            "double f{number}(double *a, int n) {{ double s = {number}; for (int i = 0; i < n; i++) {{ \
             if (a[i] > s) s += a[i] * {number}; else s -= a[(i * {number}) % n] / (s + 1); }} return s; }}"
        )
        .unwrap();
    }
    text
}

/// Returns a source that takes g++ about four seconds.
fn cpp_source() -> String {
    let mut text = String::from("#include <map>\n#include <regex>\n#include <string>\n#include <vector>\n");
    for number in 0..30 {
        writeln!(
            text,
            "struct T{number} {{ int x; bool operator<(const T{number} &o) const {{ return x < o.x; }} }};\n\
             std::string g{number}(const std::string &s) {{ std::map<T{number}, std::vector<std::string>> m; \
             std::regex r(\"a{number}(b|c)*\"); for (int i = 0; i < 10; i++) m[T{number}{{i}}].push_back(s); \
             return std::regex_replace(s, r, m.begin()->second[0]); }}"
        )
        .unwrap();
    }
    text
}

/// Returns a source that takes rustc about two seconds.
fn rust_source() -> String {
    let mut text = String::from("use std::collections::{BTreeMap, HashMap};\n");
    for number in 0..80 {
        writeln!(
            text,
            "pub fn f{number}(texts: &[String]) -> Vec<(String, [u64; {number}])> {{ \
             let mut found: HashMap<&str, BTreeMap<u64, usize>> = HashMap::new(); \
             for text in texts {{ *found.entry(text).or_default().entry({number}).or_default() += 1; }} \
             found.into_iter().map(|(k, v)| (format!(\"{{k}}{{v:?}}\"), [v.len() as u64; {number}])).collect() }}"
        )
        .unwrap();
    }
    text
}

/// Two programs on a FUSE file system. One runs all the time; the other starts when the file system hangs, so its file was not read before.
pub(crate) struct Hanging {
    // Dropped first, because the programs cannot exit while it does not answer.
    mount: Mount,
    programs: [RefCell<Running>; 2],
}

impl Hanging {
    pub(crate) fn prepare(janitor: &Janitor) -> Self {
        let program = Program::compile_mapping("hanging");
        let mount = Mount::of(&[("hanging", program.path()), ("later", program.path())], 0);
        janitor.unmounts(mount.path());
        let cgroup = janitor.cgroup("hanging");
        let programs = ["hanging", "later"].map(|name| {
            let file = mount.file(name);
            let mut running = Running::by(&mut inside(&cgroup, &[file.to_str().unwrap()]));
            running.does("spins 20");
            running.does("spins 20");
            RefCell::new(running)
        });
        Self { mount, programs }
    }

    /// Lets the first program run.
    pub(crate) fn spin(&self) {
        self.programs[0].borrow_mut().told("spins 86400000");
    }

    pub(crate) fn stop(&self, stop: Stop, at_most: Duration) {
        self.mount.stop(stop, at_most);
        self.programs[1].borrow_mut().told("spins 86400000");
    }

    pub(crate) fn resume(&self) {
        self.mount.resume();
    }
}
