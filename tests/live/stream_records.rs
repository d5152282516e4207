//! The switch stream, record by record: every count in the records of the kernel is attributed. With `CAPTURE_RINGS=1` the records are
//! stored under `tests/data/rings`, for tests that need no kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use perf_exporter::attribute::{clock_fields, fields, sideband};
use perf_exporter::host::{Facts, Roots};
use perf_exporter::sys::live::{Live, LiveEvent};
use perf_exporter::sys::{Attr, Event, Kernel, Place, Rate, Ring as _, Sampling, Sideband, Start};

use crate::rings::{Capture, Ring, split, sums};
use crate::support::cgroup::TestCgroup;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, lacks};

const CPU_CLOCK: u64 = 0;
const TASK_CLOCK: (&str, u64) = ("task-clock", 1);
const PAGE_FAULTS: (&str, u64) = ("page-faults", 2);
const CONTEXT_SWITCHES: (&str, u64) = ("context-switches", 3);
const CPU_MIGRATIONS: (&str, u64) = ("cpu-migrations", 4);
const CGROUP_SWITCHES: u64 = 11;

/// The processes of the load. Names of other processes are not stored.
const LOAD: [&str; 4] = ["ring-first", "ring-second", "ring-third", "true"];

/// Settings of a capture.
struct Plan<'a> {
    by_process: bool,
    /// The counters of each bundle.
    bundles: &'a [&'a [(&'a str, u64)]],
    /// Pages of each ring.
    pages: usize,
    /// Interval between two reads of the rings.
    pause: Duration,
}

/// One open bundle.
struct Open {
    cpu: u32,
    bundle: usize,
    leader: LiveEvent,
    ring: <LiveEvent as Event>::Ring,
    _members: Vec<LiveEvent>,
}

impl Plan<'_> {
    /// Captures the contents of the rings of all CPUs while `load` runs.
    fn capture(&self, load: impl FnOnce() + Send) -> Capture {
        let facts = Facts::read(&Roots::default());
        let mut open: Vec<Open> = Vec::new();
        for cpu in facts.online.iter() {
            open.extend((0..self.bundles.len()).map(|bundle| self.open(cpu, bundle)));
        }
        open.iter().for_each(|open| open.leader.enable().unwrap());
        let (mut batches, mut bytes) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            let load = scope.spawn(load);
            while !load.is_finished() {
                thread::sleep(self.pause);
                drain(&mut open, &mut batches, &mut bytes);
            }
        });
        let mut rings = Vec::new();
        for open in &open {
            open.leader.disable().unwrap();
            let mut words = [0; 32];
            let length = open.leader.read(&mut words).unwrap();
            rings.push(Ring { cpu: open.cpu, bundle: open.bundle, last: words[..length].to_vec() });
        }
        drain(&mut open, &mut batches, &mut bytes);
        let counters =
            self.bundles.iter().flat_map(|bundle| bundle.iter()).map(|(name, _)| (*name).to_owned());
        Capture {
            kernel: facts.kernel.to_string(),
            by_process: self.by_process,
            counters: counters.collect(),
            bundles: self.numbers(),
            rings,
            batches,
            bytes,
        }
    }

    /// Opens a group as the stream does: a leader that samples at each switch, a clock, and the counters.
    fn open(&self, cpu: u32, bundle: usize) -> Open {
        let stream = Capture::stream(self.by_process);
        let leads = if self.by_process { CONTEXT_SWITCHES.1 } else { CGROUP_SWITCHES };
        let told = if bundle == 0 { sideband(&stream) } else { Sideband::default() };
        let sampling = |period, fields, sideband| {
            Some(Sampling { rate: Rate::Period(period), fields, sideband, ordered: false })
        };
        let fields = fields(&stream);
        let open = |config, sampling, leader: Option<&LiveEvent>| {
            let start = if leader.is_some() { Start::WithLeader } else { Start::Later };
            let attr = Attr::software(config, sampling, start);
            Live.open(&attr, Place::Cpu(cpu), leader)
                .unwrap_or_else(|errno| panic!("event {config}: {errno}"))
        };
        let leader = open(leads, sampling(1, fields, Sideband::default()), None);
        let ticks = sampling(100_000_000, clock_fields(fields), told);
        let clock = open(CPU_CLOCK, ticks, Some(&leader));
        let ring = leader.map(self.pages).unwrap();
        clock.write_to(&leader).unwrap();
        let counters = self.bundles[bundle].iter().map(|&(_, config)| open(config, None, Some(&leader)));
        let members = counters.chain([clock]).collect();
        Open { cpu, bundle, leader, ring, _members: members }
    }

    /// Returns the counter index of each member of each bundle.
    fn numbers(&self) -> Vec<Vec<Vec<usize>>> {
        let mut next = 0..;
        let numbers = |bundle: &&[(&str, u64)]| {
            let counters = next.by_ref().take(bundle.len()).map(|counter| vec![counter]);
            [vec![], vec![]].into_iter().chain(counters).collect()
        };
        self.bundles.iter().map(numbers).collect()
    }
}

fn drain(open: &mut [Open], batches: &mut Vec<(usize, usize)>, bytes: &mut Vec<u8>) {
    for (place, open) in open.iter_mut().enumerate() {
        let before = bytes.len();
        let drained = open.ring.drain(|record| bytes.extend_from_slice(record));
        assert!(!drained.torn);
        if bytes.len() > before {
            batches.push((place, bytes.len() - before));
        }
    }
}

/// Attributes the captured records, and compares the sums with the counters.
fn charged_to_the_last_count(capture: &Capture) {
    let mut attributor = capture.attributor();
    for (ring, records) in capture.batches() {
        attributor.read(ring.cpu, ring.bundle, |read| records.into_iter().for_each(read));
    }
    assert_eq!(attributor.losses().unreadable, 0);
    assert!(attributor.losses().records > 0);
    let mut accounted = vec![0; capture.counters.len() + 1];
    sums(&capture.end(attributor), &mut accounted);
    assert_eq!(accounted, capture.totals(), "of {:?}", capture.counters);
}

/// Stores a capture, if requested.
fn keep(mut capture: Capture, name: &str) {
    if std::env::var_os("CAPTURE_RINGS").is_none() {
        return;
    }
    capture.forget_strangers();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rings").join(name);
    let header = serde_json::to_string(&capture).unwrap().replace(",\"", ",\n\"") + "\n";
    fs::write(file.with_extension("json"), header).unwrap();
    fs::write(file.with_extension("bin"), &capture.bytes).unwrap();
}

impl Capture {
    /// Removes the names of all other processes of this machine.
    fn forget_strangers(&mut self) {
        let names = LOAD.into_iter().map(str::as_bytes).collect::<BTreeSet<_>>();
        let mut kept = Vec::new();
        for record in split(&self.bytes) {
            let mut record = record.to_vec();
            let kind = u32::from_ne_bytes(record[..4].try_into().unwrap());
            // PERF_RECORD_COMM and PERF_RECORD_CGROUP: the text follows the header and eight bytes.
            if kind == 3 || kind == 19 {
                let text = &mut record[16..];
                let name = text.split(|&byte| byte == 0).next().unwrap();
                if !names.contains(name) && !name.starts_with(b"/perf-exporter-") {
                    text.fill(0);
                    text[..5].copy_from_slice(if kind == 3 { b"other" } else { b"/away" });
                }
            }
            kept.extend(record);
        }
        self.bytes = kept;
    }
}

/// Two processes, each in a cgroup, that wait, fault and start other processes.
fn load(first: &TestCgroup, second: &TestCgroup) {
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut worker = Worker::start(LOAD[0]);
            first.take(worker.pid());
            worker.does(Work::Faults(512));
            worker.does(Work::Naps(150));
            worker.does(Work::Children(5));
        });
        scope.spawn(|| {
            let mut worker = Worker::start(LOAD[1]);
            second.take(worker.pid());
            worker.starts_thread();
            worker.does_in_thread(Work::Naps(150));
            worker.executes(LOAD[2]);
            worker.does(Work::Faults(256));
            // A cgroup that is created and removed while the stream runs.
            let short = second.below("short");
            short.take(worker.pid());
            worker.does(Work::Naps(20));
            second.take(worker.pid());
        });
    });
}

#[test]
fn every_count_of_a_stream_of_cgroups_is_charged() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let (first, second) = (TestCgroup::new("ring-one"), TestCgroup::new("ring-two"));
    let plan = Plan {
        by_process: false,
        bundles: &[&[TASK_CLOCK, PAGE_FAULTS]],
        pages: 64,
        pause: Duration::from_millis(10),
    };
    let capture = plan.capture(|| load(&first, &second));
    charged_to_the_last_count(&capture);
    keep(capture, "cgroup");
}

#[test]
fn every_count_of_a_stream_of_processes_is_charged_in_each_of_two_bundles() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let (first, second) = (TestCgroup::new("ring-one-b"), TestCgroup::new("ring-two-b"));
    let plan = Plan {
        by_process: true,
        bundles: &[&[TASK_CLOCK, PAGE_FAULTS], &[CONTEXT_SWITCHES, CPU_MIGRATIONS]],
        pages: 64,
        pause: Duration::from_millis(10),
    };
    let capture = plan.capture(|| load(&first, &second));
    charged_to_the_last_count(&capture);
    keep(capture, "process");
}

#[test]
fn every_count_is_charged_where_rings_run_over() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let (first, second) = (TestCgroup::new("ring-one-c"), TestCgroup::new("ring-two-c"));
    let plan = Plan {
        by_process: true,
        bundles: &[&[TASK_CLOCK, PAGE_FAULTS]],
        pages: 1,
        pause: Duration::from_millis(20),
    };
    let capture = plan.capture(|| load(&first, &second));
    // PERF_RECORD_LOST.
    let lost = |record: &&[u8]| record[..4] == 2u32.to_ne_bytes();
    assert!(split(&capture.bytes).iter().any(lost), "the rings did not overflow");
    charged_to_the_last_count(&capture);
    keep(capture, "overflow");
}
