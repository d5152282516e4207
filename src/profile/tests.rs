//! The profiler while reads of files of a process block.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::thread::{self, sleep};

use super::*;
use crate::budget::{Part, Share};
use crate::clock::Timestamp;
use crate::config::profiled;
use crate::event::Catalog;
use crate::health::Board;
use crate::host::Facts;
use crate::host::Roots;
use crate::lock;
use crate::metrics::Value;
use crate::ring::Records;
use crate::ring::testing::{bytes, record};
use crate::sys::Budget;
use crate::sys::fake::{FakeKernel, FakePlace};

/// A process whose name is in a file that blocks.
const HANGING: u32 = 77;

const HOUR: Duration = Duration::from_secs(3600);

/// A machine without samples.
struct Machine {
    dir: tempfile::TempDir,
    kernel: FakeKernel,
    clock: Clock,
    budget: Budget,
    board: Board,
    facts: Facts,
}

impl Machine {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let machine = Self {
            dir,
            kernel: FakeKernel::new(),
            clock: Clock::manual(Timestamp(1000)),
            budget: Budget::new(1024, 0, None),
            board: Board::default(),
            facts: Facts::default(),
        };
        fs::create_dir_all(machine.fifo().parent().unwrap()).unwrap();
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, machine.fifo(), rustix::fs::FileType::Fifo, mode, 0).unwrap();
        machine
    }

    fn fifo(&self) -> PathBuf {
        self.dir.path().join(format!("proc/{HANGING}/task/{HANGING}/comm"))
    }

    fn profiler(&self) -> Profiler<FakeKernel> {
        let directory = Arc::new(Directory::new(self.clock.clone()));
        Profiler::new(self.clock.clone(), &Roots::under(self.dir.path()), directory).unwrap()
    }

    fn apply(&mut self, profiler: &mut Profiler<FakeKernel>, entries: &[&str], cpus: &str) {
        let samplers: Vec<Arc<Sampler>> = entries.iter().map(|entry| sampler(entry)).collect();
        let roots = Roots::under(self.dir.path());
        let mut context = Context {
            kernel: &self.kernel,
            facts: &self.facts,
            roots: &roots,
            budget: &mut self.budget,
            board: &mut self.board,
        };
        profiler.apply(&samplers, 100, (1 << 20, 0), &cpus.parse().unwrap(), &mut context);
    }

    /// Writes a sample of a process on a CPU for each entry, a second after the previous records.
    fn sample(&self, cpu: u32, pid: u32) {
        self.clock.advance(Duration::from_secs(1));
        for open in self.kernel.opened() {
            let Some(sampling) = open.attr.sampling.filter(|sampling| sampling.fields.callchain) else {
                continue;
            };
            assert!(!sampling.fields.period && sampling.fields.user_stack == 0);
            if open.place == FakePlace::Cpu(cpu) {
                let thread = u64::from(pid) << 32 | u64::from(pid);
                let sample = record(9, 2, &bytes(&[open.id(), 0x1000, thread, self.clock.kernel() - 1, 0]));
                self.kernel.write(|holder| holder.place == open.place, &sample);
            }
        }
    }

    /// Waits until the blocking file is being read.
    fn wait_until_stuck(&self) -> File {
        loop {
            let nonblocking = OpenOptions::new().write(true).custom_flags(0o4000).open(self.fifo());
            match nonblocking {
                Ok(file) => return file,
                Err(_) => sleep(Duration::from_millis(1)),
            }
        }
    }
}

/// Returns an entry that samples page faults.
fn sampler(entry: &str) -> Arc<Sampler> {
    let dir = tempfile::tempdir().unwrap();
    let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
    let event = profiled::one_event("page-faults").unwrap();
    let events = catalog.resolve(&event).unwrap();
    Arc::new(Sampler {
        events,
        rate: Rate::Period(1),
        window: HOUR,
        ..(*sample_profiles::sampler(entry)).clone()
    })
}

/// Returns the sum of all published series of a metric.
fn published(profiler: &Profiler<FakeKernel>, name: &str) -> u64 {
    let families = profiler.publish();
    let family = families.iter().find(|family| family.metadata().name() == name).unwrap();
    let value = |value: &Value| match value {
        Value::Integer(count) => *count,
        Value::Float(quantity) => *quantity as u64,
        Value::Histogram(_) => panic!("{name} is a histogram"),
    };
    family.points().iter().map(|point| value(&point.value)).sum()
}

/// Collects until this number of samples is published.
fn collect_until(profiler: &mut Profiler<FakeKernel>, samples: u64) {
    for _ in 0..6000 {
        profiler.collect();
        if published(profiler, SAMPLES) >= samples {
            break;
        }
        sleep(Duration::from_millis(10));
    }
    assert_eq!(published(profiler, SAMPLES), samples);
}

/// Runs an action on a thread that must not wait for files.
fn never_blocking(action: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            lock::never_blocks("collector");
            action();
        });
        thread.join().unwrap();
    });
}

#[test]
fn a_file_that_does_not_answer_holds_up_no_collection_and_no_sample_is_missing_later() {
    let mut machine = Machine::new();
    let mut profiler = machine.profiler();
    let recorder = profiler.recorder();
    let mut answer = None;
    never_blocking(|| {
        machine.apply(&mut profiler, &["faults"], "0");
        let before = recorder.begin("faults", false).unwrap();
        machine.sample(0, 5);
        machine.sample(0, HANGING);
        machine.sample(0, 6);
        machine.clock.advance(Duration::from_secs(1));
        answer = Some(machine.wait_until_stuck());

        machine.clock.advance(Duration::from_secs(100));
        profiler.collect();
        assert!(published(&profiler, "perf_exporter_profile_age_seconds") >= 100);
        assert!(published(&profiler, SAMPLES) < 3);
        // A CPU goes online and offline, and a reload adds an entry.
        machine.apply(&mut profiler, &["faults"], "0-1");
        machine.sample(1, 6);
        machine.apply(&mut profiler, &["faults"], "0");
        machine.sample(0, 6);
        machine.apply(&mut profiler, &["faults", "other"], "0");
        assert_eq!(recorder.entries(), ["faults".into(), "other".into()]);
        machine.sample(0, 6);
        machine.clock.advance(Duration::from_secs(1));
        profiler.collect();
        assert!(profiler.shared.rings.lock().queued_bytes() > 0);
        (0..100).for_each(|_| recorder.abandon(recorder.begin("other", false).unwrap()));
        recorder.abandon(before);
        assert_eq!(profiler.losses().unreadable, 0);
    });
    answer.unwrap().write_all(b"hanging\n").unwrap();
    // Three, one on the CPU that went offline, one before the reload, and one for each entry after it.
    collect_until(&mut profiler, 7);
    assert_eq!(profiler.losses().reasons(Records::Samples).iter().map(|(_, lost)| lost).sum::<u64>(), 0);
    assert_eq!(published(&profiler, "perf_exporter_profile_age_seconds"), 0);
    let last = recorder.last("faults", Duration::MAX, &Selection::default()).unwrap();
    assert_eq!(last.samples.iter().map(|sample| sample.count).sum::<u64>(), 6);
    assert!(last.tasks.iter().any(|task| &*task.comm == "hanging"));
}

#[test]
fn a_profile_has_what_was_recorded_after_it_was_asked_for_while_the_reader_was_stuck() {
    let mut machine = Machine::new();
    let mut profiler = machine.profiler();
    let recorder = profiler.recorder();
    machine.apply(&mut profiler, &["faults"], "0");
    machine.sample(0, HANGING);
    machine.clock.advance(Duration::from_secs(1));
    let mut answer = machine.wait_until_stuck();
    machine.sample(0, 5);
    machine.clock.advance(Duration::from_secs(1));
    let asked = recorder.begin("faults", false).unwrap();
    machine.sample(0, 6);
    machine.clock.advance(Duration::from_secs(1));
    answer.write_all(b"hanging\n").unwrap();
    drop(answer);
    let profile = recorder.end(asked, &Selection::default()).unwrap();
    let pids: Vec<u32> = profile.tasks.iter().map(|task| task.pid).collect();
    assert_eq!(pids, [6]);
    assert!(profile.duration >= Duration::from_secs(1), "{:?}", profile.duration);
}

#[test]
fn the_end_does_not_wait_for_a_file_that_does_not_answer() {
    let mut machine = Machine::new();
    let mut profiler = machine.profiler();
    let recorder = profiler.recorder();
    machine.apply(&mut profiler, &["faults"], "0");
    machine.sample(0, HANGING);
    machine.clock.advance(Duration::from_secs(1));
    let answer = machine.wait_until_stuck();
    // A request waits, and times out.
    let stalled = recorder.last("faults", Duration::MAX, &Selection::default());
    assert_eq!(stalled, Err(NoProfile::Stalled));
    // Returns, although nothing was written.
    drop(profiler);
    drop(answer);
}

#[test]
fn the_memory_of_records_that_wait_is_bounded() {
    let mut machine = Machine::new();
    let mut profiler = machine.profiler();
    machine.apply(&mut profiler, &["faults"], "0");
    let shares = MemoryShares { waiting: Share::fixed(Part::Waiting, 4096), ..MemoryShares::for_command() };
    profiler = profiler.within(&shares);
    machine.sample(0, HANGING);
    machine.clock.advance(Duration::from_secs(1));
    let mut answer = machine.wait_until_stuck();
    let mut written = 1;
    for _ in 0..20 {
        (0..50).for_each(|_| machine.sample(0, 5));
        written += 50;
        profiler.collect();
    }
    assert!(shares.waiting.used() < 200_000, "{:?}", shares.waiting);
    answer.write_all(b"hanging\n").unwrap();
    drop(answer);
    // The rings of the fake are unbounded: records that stayed in them are read now.
    collect_until(&mut profiler, written);
}
