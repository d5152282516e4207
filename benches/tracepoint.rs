//! Cost of a tracepoint record in user space: from the bytes of a ring to the sums of its labels, ordered and unordered, including the
//! collection that reads the sums.
//!
//! `cargo bench --bench tracepoint` prints the nanoseconds per record, and the ratio to copying the same bytes. Arguments after `--` select
//! cases by name. The kernel is the fake one, so that only the exporter's work is measured.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config;
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::event::Catalog;
use perf_exporter::host::{Facts, Roots, read_text};
use perf_exporter::plan::{Entries, StreamSupport, plan};
use perf_exporter::sys::fake::{FakeKernel, FakePlace};
use perf_exporter::sys::{Budget, Fields};
use perf_exporter::targets::Watch;
use rustix::time::{ClockId, clock_gettime};

/// Records of each CPU in a round. Many, so that the collection, whose cost is per label set, has a small share.
const RECORDS: u64 = 16_384;
const CPUS: u32 = 2;
/// Number of rounds. Each round has one turn for each case.
const ROUNDS: usize = 31;
/// Number of label values, and of cgroups and processes that alternate.
const VALUES: u64 = 40;
/// Goal for two label fields, in nanoseconds per record.
const GOAL: f64 = 100.0;

/// `common_type` of the three tracepoints.
const KMALLOC: u16 = 658;
const SWITCH: u16 = 372;
const SOFTIRQ: [u16; 2] = [223, 222];

/// A measured case.
struct Case {
    name: &'static str,
    /// The entry of `tracepoints`.
    entry: &'static str,
    /// Returns the record of the hit with this number: the index of the event in the entry, and its fields.
    hit: fn(u64) -> (usize, Vec<u8>),
    /// Whether the case has two label fields and nothing else. Only such cases have a goal.
    has_goal: bool,
}

const CASES: [Case; 9] = [
    Case {
        name: "labels: two numbers",
        entry: "{event: 'kmem:kmalloc', labels: [gfp_flags, node]}",
        hit: kmalloc,
        has_goal: true,
    },
    Case {
        name: "labels: two texts",
        entry: "{event: 'sched:sched_switch', labels: [prev_comm, next_comm]}",
        hit: switch,
        has_goal: true,
    },
    Case {
        name: "labels: two numbers, per cgroup",
        entry: "{event: 'kmem:kmalloc', labels: [gfp_flags, node], per: [cgroup]}",
        hit: kmalloc,
        has_goal: true,
    },
    Case {
        name: "sum",
        entry: "{event: 'kmem:kmalloc', sum: {of: bytes_alloc, unit: bytes}}",
        hit: kmalloc,
        has_goal: false,
    },
    Case {
        name: "histogram",
        entry: "{event: 'kmem:kmalloc', histogram: {of: bytes_alloc, unit: bytes}}",
        hit: kmalloc,
        has_goal: false,
    },
    Case {
        name: "histogram and two numbers",
        entry: "{event: 'kmem:kmalloc', histogram: {of: bytes_alloc, unit: bytes}, labels: [gfp_flags, node]}",
        hit: kmalloc,
        has_goal: false,
    },
    Case {
        name: "in order: two numbers, per process",
        entry: "{event: 'kmem:kmalloc', labels: [gfp_flags, node], per: [process]}",
        hit: kmalloc,
        has_goal: true,
    },
    Case {
        name: "in order: two texts, per process",
        entry: "{event: 'sched:sched_switch', labels: [prev_comm, next_comm], per: [process]}",
        hit: switch,
        has_goal: true,
    },
    Case {
        name: "in order: pairs by a field and the CPU",
        entry: "{from: 'irq:softirq_entry', to: 'irq:softirq_exit', key: [vec, $cpu], labels: {vec: vec}, \
                histogram: seconds}",
        hit: softirq,
        has_goal: false,
    },
];

/// Returns the common fields of every record.
fn common(number: u16) -> Vec<u8> {
    [&number.to_ne_bytes()[..], &[0; 6]].concat()
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn kmalloc(n: u64) -> (usize, Vec<u8>) {
    let flags = if n.is_multiple_of(3) { 0xcc0 } else { 0xdc0 };
    let size = 8 << (n % 10);
    (0, [common(KMALLOC), words(&[0, 0, size, size, flags, n % VALUES])].concat())
}

fn switch(n: u64) -> (usize, Vec<u8>) {
    let comm = |n: u64| {
        let mut comm = format!("worker/{}", n % VALUES).into_bytes();
        comm.resize(16, 0);
        comm
    };
    (0, [common(SWITCH), comm(n), words(&[n, 1]), comm(n + 1), words(&[n])].concat())
}

fn softirq(n: u64) -> (usize, Vec<u8>) {
    let which = (n % 2) as usize;
    (which, [common(SOFTIRQ[which]), words(&[n / 2 % 10])].concat())
}

/// Creates a host of files with two CPUs and the tracepoints of the cases.
fn host() -> (tempfile::TempDir, Roots) {
    let dir = tempfile::tempdir().unwrap();
    let tracing = dir.path().join("sys/kernel/tracing");
    for path in ["proc/sys/kernel", "proc/self", "sys/devices/system/cpu", "cg"] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    let formats = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/formats");
    let format = |name: &str| read_text(&Path::new(formats).join(name)).unwrap();
    let exit = format("irq:softirq_entry").replace("softirq_entry", "softirq_exit");
    let exit = exit.replace(&format!("ID: {}", SOFTIRQ[0]), &format!("ID: {}", SOFTIRQ[1]));
    for (event, text) in [
        ("kmem/kmalloc", format("kmem:kmalloc")),
        ("sched/sched_switch", format("sched:sched_switch")),
        ("irq/softirq_entry", format("irq:softirq_entry")),
        ("irq/softirq_exit", exit),
    ] {
        let event = tracing.join("events").join(event);
        fs::create_dir_all(&event).unwrap();
        let id = text.lines().find_map(|line| line.strip_prefix("ID: ")).unwrap();
        fs::write(event.join("id"), id).unwrap();
        fs::write(event.join("format"), text).unwrap();
    }
    let roots = Roots::under(dir.path());
    fs::write(roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n").unwrap();
    fs::write(roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n").unwrap();
    fs::write(roots.proc.join("sys/kernel/osrelease"), "6.12.0\n").unwrap();
    fs::write(roots.sys.join("devices/system/cpu/online"), format!("0-{}\n", CPUS - 1)).unwrap();
    (dir, roots)
}

/// A collector with one entry, and the contents of its rings in a round.
struct Subject {
    kernel: FakeKernel,
    clock: Clock,
    collector: Collector<FakeKernel>,
    /// Contents of each CPU's ring.
    rings: Vec<Vec<u8>>,
    copy: Vec<u8>,
    figures: Vec<f64>,
    copying: Vec<f64>,
}

impl Subject {
    fn new(case: &Case, roots: &Roots) -> Self {
        let text = format!(
            "cgroups: {{include: ['/**', '/']}}\nprocesses: {{include: [{{comm: '**'}}], by: [comm]}}\n\
             tracepoints: {{entry: {}}}\n",
            case.entry
        );
        let (config, _) = config::load(text.as_bytes(), case.name).unwrap();
        let facts = Facts::read(roots);
        let entries = Entries { traced: &config.traced, ..Entries::counters(&[]) };
        let plan = plan(&entries, &Catalog::load(roots, &facts), &StreamSupport::foreseen(&facts));
        assert_eq!((plan.traces.len(), &plan.refusals[..]), (1, &[][..]));
        let kernel = FakeKernel::new();
        // All records are later than this time.
        let clock = Clock::manual(Timestamp(1_000_000));
        let budget = Budget { limit: usize::MAX, used: 0 };
        let mut collector =
            Collector::new(kernel.clone(), clock.clone(), roots, facts, false, budget).unwrap();
        let mut watch = Watch::new(roots.clone());
        watch.need(plan.needs());
        watch.refresh();
        collector.apply(&plan, Bounds { series: 100_000, ring_memory: 1 << 20 }, &watch);
        let rings = (0..CPUS).map(|cpu| ring(case, &kernel, cpu)).collect();
        Self { kernel, clock, collector, rings, copy: Vec::new(), figures: Vec::new(), copying: Vec::new() }
    }

    /// Runs a turn: reads the contents of the rings, and copies them.
    fn turn(&mut self) {
        for (cpu, records) in (0..CPUS).zip(&self.rings) {
            self.kernel.write(|event| event.place == FakePlace::Cpu(cpu), records);
        }
        let start = cpu_time();
        black_box(self.collector.collect());
        self.figures.push(a_record(cpu_time() - start));
        let start = cpu_time();
        for ring in &self.rings {
            self.copy.clear();
            split(ring).for_each(|record| self.copy.extend_from_slice(black_box(record)));
            black_box(&self.copy);
        }
        self.copying.push(a_record(cpu_time() - start));
        self.clock.advance(Duration::from_secs(1));
    }

    /// Returns the number of processed records.
    fn records(&self) -> u64 {
        self.collector.tracer_state().unwrap().rings.iter().map(|rings| rings.losses.records).sum()
    }
}

/// Returns the CPU time of this thread, which excludes other activity on the machine.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn a_record(all: Duration) -> f64 {
    all.as_nanos() as f64 / (RECORDS * u64::from(CPUS)) as f64
}

/// Returns the records that the kernel writes on a CPU.
fn ring(case: &Case, kernel: &FakeKernel, cpu: u32) -> Vec<u8> {
    let opened = kernel.opened();
    let mine = opened.iter().filter(|event| event.place == FakePlace::Cpu(cpu));
    // The first event holds the ring.
    let events: Vec<_> = mine.skip(1).collect();
    let mut ring = Vec::new();
    for n in 0..RECORDS {
        let (which, raw) = (case.hit)(n + u64::from(cpu));
        let fields = events[which].attr.sampling.unwrap().fields;
        ring.extend(record(events[which].id(), n, cpu, &raw, &fields));
    }
    // The rings of the fake kernel are as large as their contents. Filled to a power of two, they are not copied.
    while !ring.len().is_power_of_two() {
        let left = ring.len().next_power_of_two() - ring.len();
        ring.extend(of_kind(4711, &vec![0; left.min(32 << 10) - 8]));
    }
    ring
}

fn record(id: u64, n: u64, cpu: u32, raw: &[u8], fields: &Fields) -> Vec<u8> {
    let owner = n / 8 % VALUES;
    let mut body = words(&[id]);
    if fields.tid {
        body.extend(words(&[(1000 + owner) << 32 | (1000 + owner)]));
    }
    if fields.time {
        body.extend(words(&[n * 1000 + u64::from(cpu) * 300]));
    }
    // The kernel pads the record so that size and bytes together are a multiple of eight bytes.
    let length = (4 + raw.len()).next_multiple_of(8) - 4;
    body.extend((length as u32).to_ne_bytes());
    body.extend(raw);
    body.resize(body.len() + length - raw.len(), 0);
    if fields.cgroup {
        body.extend(words(&[5000 + owner]));
    }
    of_kind(9, &body)
}

fn of_kind(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).unwrap();
    [&kind.to_ne_bytes()[..], &0u16.to_ne_bytes(), &size.to_ne_bytes(), body].concat()
}

/// Splits the contents of a ring into records, by their sizes.
fn split(mut ring: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let size = usize::from(u16::from_ne_bytes([*ring.get(6)?, *ring.get(7)?]));
        let (record, rest) = ring.split_at_checked(size)?;
        ring = rest;
        Some(record)
    })
}

fn median(figures: &[f64]) -> f64 {
    let mut figures = figures.to_vec();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let chosen = |case: &&Case| wanted.is_empty() || wanted.iter().any(|word| case.name.contains(&**word));
    let (_dir, roots) = host();
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let mut subjects: Vec<Subject> = cases.iter().map(|case| Subject::new(case, &roots)).collect();
    for _ in 0..ROUNDS {
        subjects.iter_mut().for_each(Subject::turn);
    }
    println!("{:<44} {:>10} {:>14}", "a record", "", "/ copying it");
    for (case, subject) in cases.iter().zip(&subjects) {
        let written = ROUNDS as u64 * RECORDS * u64::from(CPUS);
        assert_eq!(subject.records(), written, "{}: not every record was processed", case.name);
        let (figure, copying) = (median(&subject.figures), median(&subject.copying));
        let goal = case.has_goal.then_some(if figure <= GOAL { "met" } else { "missed" });
        let goal = goal.map_or(String::new(), |met| format!("at most {GOAL} ns: {met}"));
        let line = format!("{:<44} {figure:>7.1} ns {:>14.1}   {goal}", case.name, figure / copying);
        println!("{}", line.trim_end());
    }
}
