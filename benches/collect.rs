//! Cost of one collection: two CPUs, a hundred cgroups, six events.
//!
//! `cargo bench --bench collect` prints the time of a collection with the fake kernel, which is the exporter's own work. Where cgroup
//! events can be opened, it also prints the time with the real kernel. For comparison it reads the same counts with one descriptor for each
//! event, each read separately, as most exporters do.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::fs;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use criterion::Criterion;
use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::{Counters, PmuSharing};
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::event::{Catalog, parse};
use perf_exporter::host::{CpuSet, Facts, Roots};
use perf_exporter::metrics::{Level, Snapshot};
use perf_exporter::plan::{Entries, Plan, StreamSupport, plan};
use perf_exporter::sys::fake::FakeKernel;
use perf_exporter::sys::live::Live;
use perf_exporter::sys::{Attr, Budget, Event, Kernel, Place, Start};
use perf_exporter::targets::{Attribution, CgroupSelection, Glob, PodSelection, Targets, Watch};

const CGROUPS: usize = 100;
const EVENTS: &str = "{task-clock,context-switches,cpu-migrations,page-faults,minor-faults,major-faults}";

/// Counts `EVENTS` for every cgroup that `include` selects below `roots`.
struct Subject<K: Kernel> {
    watch: Watch,
    collector: Collector<K>,
}

impl<K: Kernel> Subject<K> {
    fn new(kernel: K, roots: &Roots, include: &str) -> Self {
        let facts = Facts::read(roots);
        let plan = the_plan(roots, include);
        let budget = Budget { limit: usize::MAX, used: 0 };
        let mut collector = Collector::new(kernel, Clock::system(), roots, facts, true, budget).unwrap();
        let mut watch = Watch::new(roots.clone());
        watch.need(plan.needs());
        watch.refresh();
        collector.apply(&plan, Bounds { series: 100_000, ring_memory: 1 << 20 }, &watch);
        Self { watch, collector }
    }

    /// Does the work of the service for a scrape, except for the encoding.
    fn collect(&mut self) -> Snapshot {
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        Snapshot::new(Timestamp(0), self.collector.collect())
    }

    fn counted(&self) -> usize {
        self.collector.states().iter().map(|state| state.targets).sum()
    }
}

fn the_plan(roots: &Roots, include: &str) -> Plan {
    let selection = CgroupSelection {
        include: vec![Glob::new(include).unwrap()],
        pods: PodSelection::default(),
        exclude: vec![],
        depth: None,
        descendants: false,
        attribution: Attribution::Dedicated,
    };
    let groups = parse(EVENTS).unwrap();
    let entry = Counters {
        name: "os".into(),
        groups,
        metrics: Vec::new(),
        per: vec![Targets::Cgroups(selection)],
        level: Level::Basic,
        sharing: PmuSharing::default(),
    };
    let facts = Facts::read(roots);
    plan(&Entries::counters(&[entry]), &Catalog::load(roots, &facts), &StreamSupport::foreseen(&facts))
}

/// Creates a host of files with two CPUs and a hundred cgroups.
fn fake_host() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    for path in ["proc/sys/kernel", "proc/self", "sys/devices/system/cpu", "cg"] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
    fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
    fs::write(roots.proc.join("sys/kernel/osrelease"), "6.12.0\n").unwrap();
    fs::write(roots.sys.join("devices/system/cpu/online"), "0-1\n").unwrap();
    for n in 0..CGROUPS {
        fs::create_dir(dir.path().join(format!("cg/pod{n}"))).unwrap();
    }
    (dir, roots)
}

/// A hundred cgroups of this machine, removed at the end.
struct RealCgroups(PathBuf);

impl RealCgroups {
    fn new(root: &Path) -> std::io::Result<Self> {
        let dir = root.join(format!("perf-exporter-bench-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let cgroups = Self(dir);
        (0..CGROUPS).try_for_each(|n| fs::create_dir(cgroups.0.join(format!("pod{n}"))))?;
        Ok(cgroups)
    }

    fn include(&self) -> String {
        format!("/{}/*", self.0.file_name().unwrap().to_str().unwrap())
    }
}

impl Drop for RealCgroups {
    fn drop(&mut self) {
        for n in 0..CGROUPS {
            drop(fs::remove_dir(self.0.join(format!("pod{n}"))));
        }
        drop(fs::remove_dir(&self.0));
    }
}

/// Opens every event of every cgroup on every CPU as a separate descriptor.
fn one_descriptor_each(
    cgroups: &RealCgroups,
    roots: &Roots,
    online: &CpuSet,
) -> Vec<<Live as Kernel>::Event> {
    let plan = the_plan(roots, &cgroups.include());
    let mut open = Vec::new();
    for n in 0..CGROUPS {
        let dir = fs::File::open(cgroups.0.join(format!("pod{n}"))).unwrap();
        for cpu in online.iter() {
            for counter in &plan.groups[0].counters {
                let attr = Attr { start: Start::WithLeader, ..Attr::counting(&counter.event) };
                open.push(Live.open(&attr, Place::Cgroup { dir: dir.as_fd(), cpu }, None).unwrap());
            }
        }
    }
    open
}

/// Returns the median of 51 runs.
fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..51)
        .map(|_| {
            #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}

fn real(criterion: &mut Criterion) -> std::io::Result<()> {
    let roots = Roots::default();
    let mut watch = Watch::new(roots.clone());
    watch.refresh();
    let mount = watch.mount().map_err(|error| std::io::Error::other(error.to_string()))?;
    let cgroups = RealCgroups::new(mount.dir())?;
    let mut subject = Subject::new(Live, &roots, &cgroups.include());
    if subject.counted() < CGROUPS {
        let reasons: Vec<String> = subject.collector.board().lines().map(|l| l.refusal.to_string()).collect();
        return Err(std::io::Error::other(reasons.join("; ")));
    }
    criterion.bench_function("collect/real kernel", |bencher| bencher.iter(|| black_box(subject.collect())));
    let ours = median(|| drop(black_box(subject.collect())));
    let single = one_descriptor_each(&cgroups, &roots, watch.online());
    let theirs = median(|| {
        let mut words = [0; 4];
        single.iter().for_each(|event| assert!(black_box(event.read(&mut words)).is_ok()));
    });
    println!(
        "{CGROUPS} cgroups x {} CPUs x 6 events: {ours:.0?} for a whole collection; {} reads of single events \
         alone: {theirs:.0?}, {:.1} times as long",
        watch.online().len(),
        single.len(),
        theirs.as_secs_f64() / ours.as_secs_f64(),
    );
    Ok(())
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().without_plots();
    let (_dir, roots) = fake_host();
    let mut subject = Subject::new(FakeKernel::new(), &roots, "/*");
    assert_eq!(subject.counted(), CGROUPS);
    criterion.bench_function("collect/fake kernel", |bencher| bencher.iter(|| black_box(subject.collect())));
    if let Err(error) = real(&mut criterion) {
        println!("not measured with the real kernel: {error}");
    }
    criterion.final_summary();
}
