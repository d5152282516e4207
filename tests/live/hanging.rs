//! A file system that stops answering, with the executable of a sampled program on it. Only work on files of that file system may wait for
//! it. Scrapes, health checks, profiles of other programs, reloads and the exit of the service may not.
//!
//! The file system keeps each request after it has read it, so the requesting thread waits uninterruptibly.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use perf_exporter::files::{Files, Root, RootError, Stuck};
use perf_exporter::host::Roots;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::exposition::Exposition;
use crate::support::fuse::{Mount, Stop};
use crate::support::http::{Answer, ask, now};
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

/// Maximum duration of a scrape and of a health check.
const SCRAPE: Duration = Duration::from_secs(2);
/// Maximum duration of a profile and of a reload.
const PROFILE: Duration = Duration::from_secs(10);
/// Maximum time until the service exits.
const END: Duration = Duration::from_secs(5);
/// Maximum time until the service uses the file system again after it answers.
const RECOVERY: Duration = Duration::from_secs(15);
/// The file system fails by itself after this time, so that a failed test does not hang.
const LONGEST_STOP: Duration = Duration::from_secs(120);
/// Maximum time until the service uses the file system for the first time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any test.
const FOR_EVER: &str = "spins 600000";

/// A service, and a program on its own file system. The file system is dropped first, because the other two cannot exit while it does not
/// answer.
struct Scene {
    mount: Mount,
    service: Service,
    program: Running,
    others: Vec<Running>,
}

fn lacks_any() -> bool {
    [Feature::Compiler, Feature::Software, Feature::Fuse].into_iter().any(lacks)
}

fn configuration(more: &str) -> String {
    format!(
        "collection: {{interval: 1s, freshness: 0s}}\n\
         counters: {{os: {{events: [context-switches], per: [cpu, process]}}}}\n\
         profiles: {{cpu: {{event: cpu-clock, frequency: 99}}}}\n{more}"
    )
}

impl Scene {
    /// Starts the program and then the service. The pages that the program needs to spin are resident, and the service has not sampled it
    /// yet.
    fn new(read_ahead: u32, more: impl Fn(&Mount) -> String) -> Self {
        let program = Program::compile_mapping("hanging");
        let mount = Mount::of(&[("hanging", program.path()), ("data", program.path())], read_ahead);
        let mut program = Running::by(&mut Command::new(mount.file("hanging")));
        program.does("spins 20");
        assert_ne!(program.does(&format!("maps {}", mount.file("data").display())), 0, "the file is mapped");
        // Makes the code pages resident that start a thread.
        assert_eq!(program.does("touches 10"), 1);
        program.does("spins 20");
        let service = Service::start(&configuration(&more(&mount)));
        Self { mount, service, program, others: Vec::new() }
    }

    fn ask(&self, method: &str, path: &str, patience: Duration) -> Answer {
        ask(&self.service.address, method, path, patience)
            .unwrap_or_else(|error| panic!("{method} {path}: {error} (within {patience:?})"))
    }

    /// Makes a scrape within the time limit.
    fn metrics(&self) -> Exposition {
        let answer = self.ask("GET", "/metrics", SCRAPE);
        assert_eq!(answer.code, 200, "/metrics: {}", answer.body);
        Exposition::parse(&answer.body).unwrap()
    }

    fn stuck_files(&self) -> f64 {
        self.metrics().value("perf_exporter_hung_file_operations", &[]).expect("stuck files are a metric")
    }

    /// Returns the entries of `files.stuck` on the status page.
    fn stuck(&self) -> Vec<Value> {
        let answer = self.ask("GET", "/api/v1/status", PROFILE);
        assert_eq!(answer.code, 200, "{}", answer.body);
        let status: Value = serde_json::from_str(&answer.body).unwrap();
        status["files"]["stuck"].as_array().expect("files.stuck is a list").clone()
    }

    /// Returns the entries for the mount of this test. Other tests have mounts too, and the service reads files of all running programs.
    fn stuck_here(&self) -> Vec<Value> {
        let here = |entry: &Value| entry["mount"].as_str() == self.mount.path().to_str();
        self.stuck().into_iter().filter(here).collect()
    }

    /// Requests the stacks of the threads named `comm`.
    fn folded(&self, comm: &str) -> Answer {
        self.ask("GET", &format!("/folded?type=cpu&comm={comm}"), PROFILE)
    }

    /// Stops the file system, lets the program run, and waits until a request of the service hangs.
    fn stop(&mut self, stop: Stop) {
        self.mount.stop(stop, LONGEST_STOP);
        self.program.told(FOR_EVER);
        // Functions are symbolized when a profile is requested. The answer itself does not matter here.
        let service = Pid::from_child(&self.service.child).as_raw_nonzero().get() as u32;
        let end = now() + TIMEOUT;
        while !self.mount.delays(service) {
            assert!(now() < end, "the service does not wait for the file system: {:?}", self.mount.waiting());
            drop(ask(&self.service.address, "GET", "/folded?type=cpu&comm=hanging", SCRAPE));
        }
    }

    /// Asserts that the service keeps working while the file system does not answer.
    fn goes_on(&mut self) {
        for _ in 0..10 {
            self.metrics();
            for path in ["/-/healthy", "/-/ready"] {
                let answer = self.ask("GET", path, SCRAPE);
                assert_eq!(answer.code, 200, "{path}: {}", answer.body);
            }
            thread::sleep(Duration::from_millis(300));
        }
        self.profile_of_another();
        let reload = self.ask("POST", "/-/reload", PROFILE);
        assert_eq!(reload.code, 200, "{}", reload.body);
        self.metrics();
        // Other files of the mount cannot be read either, so the answer comes without their symbols.
        let answer = self.folded("hanging");
        assert!([200, 503].contains(&answer.code), "{answer:?}");
    }

    /// Profiles a program that the service has not seen before.
    fn profile_of_another(&mut self) {
        let name = format!("other{}", self.others.len());
        let program = Program::compile_hot(&name, &["-fno-omit-frame-pointer"]);
        let mut other = program.start();
        other.told(FOR_EVER);
        self.others.push(other);
        eventually("the stacks of another program are symbolized", || {
            let answer = self.folded(&name);
            (answer.code == 200 && answer.body.contains(";burns ")).then_some(())
        });
    }

    /// Asserts that the service reports the stuck files and the mount.
    fn says_so(&self) {
        eventually("the metric counts stuck files", || (self.stuck_files() > 0.0).then_some(()));
        let stuck = eventually("the status names the mount", || {
            Some(self.stuck_here()).filter(|stuck| !stuck.is_empty())
        });
        for entry in &stuck {
            assert!(entry["filesystem"].as_str().is_some_and(|kind| kind.starts_with("fuse")), "{entry}");
            assert!(entry["since_seconds"].as_f64().is_some_and(|since| since >= 0.0), "{entry}");
            assert!(entry["path"].is_string(), "{entry}");
        }
        let pid = u64::from(self.program.pid());
        assert!(stuck.iter().any(|entry| entry["pid"].as_u64() == Some(pid)), "{pid} in {stuck:?}");
    }

    /// Asserts that SIGTERM ends the service although the file system does not answer, and that a new service can use the same port.
    fn ends_and_starts_again(&mut self, more: &str) {
        kill_process(Pid::from_child(&self.service.child), Signal::TERM).unwrap();
        let end = now() + END;
        let status = loop {
            if let Some(status) = self.service.child.try_wait().unwrap() {
                break status;
            }
            assert!(now() < end, "the service did not exit within {END:?}");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "the service exited with {status}");
        let port = TcpListener::bind(&self.service.address);
        assert!(port.is_ok(), "{}: {port:?}", self.service.address);
        self.service = Service::start(&configuration(more));
        assert_eq!(self.ask("GET", "/-/ready", SCRAPE).code, 200);
        self.profile_of_another();
    }

    /// Waits until nothing on the mount is stuck and the program's functions are symbolized.
    fn recovers(&self) {
        self.mount.resume();
        let end = now() + RECOVERY;
        while !self.stuck_here().is_empty() {
            assert!(now() < end, "{:?} is still stuck", self.stuck_here());
            thread::sleep(Duration::from_millis(100));
        }
        eventually("the metric counts what the status shows", || {
            (self.stuck_files() == self.stuck().len() as f64).then_some(())
        });
        eventually("the stacks of the program are symbolized", || {
            self.folded("hanging").body.contains(";three_quarters;burns ").then_some(())
        });
    }

    /// Runs the whole sequence.
    fn plays(mut self, stop: Stop, more: impl Fn(&Mount) -> String) {
        self.metrics();
        self.stop(stop);
        self.goes_on();
        self.says_so();
        let more = more(&self.mount);
        self.ends_and_starts_again(&more);
        self.goes_on();
        self.recovers();
    }
}

fn nothing_else_waits(stop: Stop) {
    if lacks_any() {
        return;
    }
    let nothing_more = |_: &Mount| String::new();
    Scene::new(0, nothing_more).plays(stop, nothing_more);
}

#[test]
fn nothing_else_waits_for_a_file_system_that_stops_answering_open() {
    nothing_else_waits(Stop::Open);
}

#[test]
fn nothing_else_waits_for_a_file_system_that_stops_answering_read() {
    nothing_else_waits(Stop::Read);
}

#[test]
fn nothing_else_waits_for_a_file_system_that_stops_answering_stat() {
    nothing_else_waits(Stop::Stat);
}

#[test]
fn nothing_else_waits_for_a_program_that_waits_for_a_page_of_a_file_itself() {
    if lacks_any() {
        return;
    }
    let nothing_more = |_: &Mount| String::new();
    let mut scene = Scene::new(128 << 10, nothing_more);
    scene.mount.stop(Stop::Read, LONGEST_STOP);
    assert_eq!(scene.program.does("touches 90"), 1);
    let program = scene.program.pid();
    eventually("a thread waits for a page of the mapping", || scene.mount.delays(program).then_some(()));
    scene.plays(Stop::Everything, nothing_more);
}

#[test]
fn nothing_else_waits_for_a_file_system_with_a_probed_program_that_stops_answering() {
    if [Feature::Uprobe, Feature::Tracefs].into_iter().any(lacks) || lacks_any() {
        return;
    }
    let probed = |mount: &Mount| {
        format!("probes: {{probed: {{uprobe: \"{}:one_quarter\"}}}}\n", mount.file("hanging").display())
    };
    Scene::new(0, probed).plays(Stop::Everything, probed);
}

#[test]
fn a_file_system_that_was_mounted_a_moment_ago_is_known_by_its_type() {
    if [Feature::Compiler, Feature::Fuse].into_iter().any(lacks) {
        return;
    }
    let program = Program::compile_mapping("late");
    let files = Files::apart(&Roots::default(), PathBuf::from(env!("CARGO_BIN_EXE_perf-exporter")));
    let here = Root::Process(std::process::id());
    let path = |path: &Path| path.to_str().expect("the paths of tests are UTF-8").to_owned();
    files
        .open(&here, &path(program.path()), None)
        .expect("a local file can be opened and the list of mounts read");
    let mount = Mount::of(&[("late", program.path())], 0);
    mount.stop(Stop::Everything, LONGEST_STOP);
    let error = files.open(&here, &path(&mount.file("late")), None).unwrap_err();
    let RootError::Stuck(Stuck { filesystem, mount: point, .. }) = &error else { panic!("{error}") };
    assert_eq!((&**filesystem, Path::new(point)), ("fuse", mount.path()), "{error}");
    files.stop();
}
