//! Tests with samples of a running program that publishes its service name.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::*;
use crate::clock::Clock;
use crate::config;
use crate::container::Directory;
use crate::event::Catalog;
use crate::health::Board;
use crate::host::{Facts, Roots};
use crate::plan::{Entries, StreamSupport, plan};
use crate::profile::{Profiler, Selection};
use crate::ring::Context;
use crate::sys::live::Live;
use crate::sys::{Budget, usage};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/context.c");

/// Duration of each of two profiles.
const WINDOW: Duration = Duration::from_millis(700);

/// The program, killed on drop.
struct Running(Child);

impl Running {
    /// Starts the program. Returns `None` without a compiler.
    fn start(path: &Path) -> Option<Self> {
        let mut compiler = Command::new("gcc");
        let made =
            compiler.args(["-O1", "-fno-omit-frame-pointer", "-o"]).arg(path).arg(SOURCE).status().ok()?;
        assert!(made.success());
        let mut program = Command::new(path);
        let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        Some(Self(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Records two consecutive CPU profiles of all processes. Returns `None` if sampling is not permitted.
fn recorded() -> Option<[Profile; 2]> {
    let roots = Roots::default();
    let facts = Facts::read(&roots);
    let text = b"profiles: {cpu: {event: cpu-clock, frequency: 499, unwind: fp}}";
    let (config, _) = config::load(text, "test.yaml").unwrap();
    let entries = Entries { profiles: &config.profiles, profile_cpus: true, ..Entries::counters(&[]) };
    let plan = plan(&entries, &Catalog::load(&roots, &facts), &StreamSupport::foreseen(&facts));
    let clock = Clock::system();
    let mut profiler = Profiler::new(clock.clone(), &roots, Arc::new(Directory::new(clock))).unwrap();
    let mut budget = Budget::new(usage::raise_descriptor_limit(), 512, None);
    let mut board = Board::default();
    let mut context =
        Context { kernel: &Live, facts: &facts, roots: &roots, budget: &mut budget, board: &mut board };
    profiler.apply(&plan.samplers, 100, (64 << 20, 0), &facts.online, &mut context);
    if profiler.states().iter().all(|state| state.open == 0) {
        return None;
    }
    let (ask, everybody) = (profiler.recorder(), Selection::default());
    let asked = ask.begin("cpu", false).unwrap();
    sleep(WINDOW);
    let (first, asked) = ask.renew(asked, &everybody).unwrap();
    sleep(WINDOW);
    let (second, asked) = ask.renew(asked, &everybody).unwrap();
    ask.abandon(asked);
    profiler.close(&mut context);
    Some([first, second])
}

/// Returns the samples of one process in one of the profiles.
fn assert_told(profile: &Profile, pid: u32, file: &Path) {
    let request = request(std::slice::from_ref(profile));
    let dictionary = request.dictionary.as_ref().unwrap();
    let (mut hot, mut all) = (0, 0);
    for (resource, told) in profiles(&request) {
        for sample in &told.samples {
            let of = attributes(dictionary, &sample.attribute_indices);
            if of.get("process.pid") != Some(&pid.to_string()) {
                continue;
            }
            assert_eq!(resource.get("service.name").map(String::as_str), Some("spinning"));
            assert_ne!(resource.get("container.id").map(String::as_str), Some("forgedforg"));
            assert_eq!(of.get("process.executable.name").map(String::as_str), Some("spins"));
            assert_eq!(of.get("thread.name").map(String::as_str), Some("spins"));
            assert!(of.contains_key("cpu.logical_number") && of.contains_key("cpu.mode"), "{of:?}");
            all += sample.values[0];
            if frames(dictionary, sample).iter().any(|name| name == "burns_for_the_profile") {
                hot += sample.values[0];
            }
        }
    }
    assert!(all > 50 && hot * 10 > all * 9, "{hot} of {all} samples are in the hot function");
    let hash = FileHash::of(&File::open(file).unwrap()).unwrap().to_string();
    let told = dictionary.mapping_table.iter().any(|mapping| {
        let of = attributes(dictionary, &mapping.attribute_indices);
        let path = &dictionary.string_table[mapping.filename_strindex as usize];
        path.ends_with("/spins") && of.get("process.executable.build_id.htlhash") == Some(&hash)
    });
    assert!(told, "{}", shown(&request));
}

#[test]
fn a_program_that_runs_is_told_with_its_service_its_file_and_its_hot_function() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("spins");
    let Some(running) = Running::start(&file) else {
        eprintln!("skipped: gcc is not installed");
        return;
    };
    let Some([first, second]) = recorded() else {
        eprintln!("skipped: no permission to sample all processes");
        return;
    };
    for profile in [&first, &second] {
        assert_told(profile, running.0.id(), &file);
        assert!(profile.duration >= WINDOW - Duration::from_millis(50), "{:?}", profile.duration);
    }
    let gap = (second.start.0 as f64) - (first.start.0 as f64) - first.duration.as_secs_f64() * 1e3;
    assert!(gap.abs() < 50.0, "the second begins {gap} ms after the first has ended");
}
