//! A simulated host: a directory with a few tracepoints, an in-memory kernel that writes their records, and a collector that uses both. For
//! tests and a fuzz target.

use std::cell::Cell;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config;
use perf_exporter::counter::{Bounds, Collector};
use perf_exporter::event::Catalog;
use perf_exporter::export::prometheus::{Encoder, Format};
use perf_exporter::host::{Facts, Roots};
use perf_exporter::metrics::{Family, Snapshot};
use perf_exporter::plan::{Entries, Plan, StreamSupport, plan};
use perf_exporter::probe::install::Placements;
use perf_exporter::sys::fake::{FakeKernel, FakePlace, Opened};
use perf_exporter::sys::{Budget, Fields, Sampling};
use perf_exporter::targets::Watch;

/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;

/// `PERF_RECORD_*`.
const LOST: u32 = 2;
const COMM: u32 = 3;
const FORK: u32 = 7;
const SAMPLE: u32 = 9;

/// The common fields at the beginning of every tracepoint.
const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
    \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

/// Declaration, offset and size of a field, and whether it is signed.
type Field = (&'static str, usize, usize, bool);

/// System, name, id, fields, and print format.
type Tracepoint = (&'static str, &'static str, u16, &'static [Field], &'static str);

#[rustfmt::skip]
const TRACEPOINTS: [Tracepoint; 4] = [
    ("toy", "work", WORK, &[
        ("u32 kind", 8, 4, false),
        ("u32 flags", 12, 4, false),
        ("void * function", 16, 8, false),
        ("s64 size", 24, 8, true),
        ("char task[16]", 32, 16, false),
        ("__data_loc char[] path", 48, 4, false),
    ], r#""kind=%s flags=%s function=%ps size=%lld task=%s path=%s", __print_symbolic(REC->kind, { 1, "read" }, { 2, "write" }), __print_flags(REC->flags, "|", { 1, "SYNC" }, { 2, "META" }), REC->function, REC->size, REC->task, __get_str(path)"#),
    ("toy", "play", PLAY, &[
        ("u32 kind", 8, 4, false),
        ("s64 size", 24, 8, true),
    ], r#""kind=%s size=%lld", __print_symbolic(REC->kind, { 1, "piano" }, { 2, "flute" }), REC->size"#),
    ("pair", "begin", BEGIN, &[
        ("u64 key", 8, 8, false),
        ("u32 kind", 16, 4, false),
        ("s32 code", 20, 4, true),
    ], r#""key=%llu kind=%s code=%d", REC->key, __print_symbolic(REC->kind, { 1, "read" }, { 2, "write" }), REC->code"#),
    ("pair", "end", END, &[
        ("u32 code", 8, 4, false),
        ("u64 key", 16, 8, false),
    ], r#""code=%u key=%llu", REC->code, REC->key"#),
];

/// Tracepoints of the scheduler and of system calls, as in the kernel except for fields that the exporter does not read.
#[rustfmt::skip]
const OF_THREADS: [Tracepoint; 6] = [
    ("sched", "sched_switch", SWITCH, &[
        ("char prev_comm[16]", 8, 16, false),
        ("pid_t prev_pid", 24, 4, true),
        ("int prev_prio", 28, 4, true),
        ("long prev_state", 32, 8, true),
        ("char next_comm[16]", 40, 16, false),
        ("pid_t next_pid", 56, 4, true),
        ("int next_prio", 60, 4, true),
    ], r#""%d", REC->prev_pid"#),
    ("sched", "sched_waking", WAKING, &[("char comm[16]", 8, 16, false), ("pid_t pid", 24, 4, true)], r#""%d", REC->pid"#),
    ("sched", "sched_wakeup_new", WAKING_NEW, &[("char comm[16]", 8, 16, false), ("pid_t pid", 24, 4, true)], r#""%d", REC->pid"#),
    ("sched", "sched_migrate_task", MIGRATE, &[("char comm[16]", 8, 16, false), ("pid_t pid", 24, 4, true)], r#""%d", REC->pid"#),
    ("raw_syscalls", "sys_enter", ENTER, &[("long id", 8, 8, true), ("unsigned long args[6]", 16, 48, false)], r#""%ld", REC->id"#),
    ("raw_syscalls", "sys_exit", EXIT, &[("long id", 8, 8, true), ("long ret", 16, 8, true)], r#""%ld", REC->id"#),
];

pub(crate) const SWITCH: u16 = 201;
pub(crate) const WAKING: u16 = 202;
pub(crate) const WAKING_NEW: u16 = 203;
pub(crate) const MIGRATE: u16 = 204;
pub(crate) const ENTER: u16 = 205;
pub(crate) const EXIT: u16 = 206;

pub(crate) const WORK: u16 = 101;
pub(crate) const PLAY: u16 = 102;
pub(crate) const BEGIN: u16 = 103;
pub(crate) const END: u16 = 104;

/// Returns the file `format` of a tracepoint.
fn format(name: &str, id: u16, fields: &[Field], print: &str) -> String {
    let line = |&(declaration, offset, size, signed): &Field| {
        let signed = u8::from(signed);
        format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n")
    };
    let fields: String = fields.iter().map(line).collect();
    format!("name: {name}\nID: {id}\nformat:\n{COMMON}{fields}\nprint fmt: {print}\n")
}

/// The simulated host with its kernel and collector.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) kernel: FakeKernel,
    pub(crate) clock: Clock,
    pub(crate) roots: Roots,
    pub(crate) watch: Watch,
    pub(crate) collector: Collector<FakeKernel>,
    /// Maximum number of individually labeled series of each metric.
    pub(crate) series: usize,
    /// Error message of the kernel for filters.
    pub(crate) complaint: Option<&'static str>,
    /// Nanoseconds since the clock was advanced last. Each record gets a distinct time.
    moment: Cell<u64>,
}

impl World {
    /// Creates a host with two CPUs, a cgroup file system and the tracepoints, without processes.
    pub(crate) fn new() -> Self {
        Self::with_descriptors(100)
    }

    pub(crate) fn with_descriptors(limit: usize) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let roots = Roots::under(dir.path());
        for path in ["proc/sys/kernel", "proc/self", "sys/devices/system/cpu", "cg"] {
            fs::create_dir_all(dir.path().join(path)).expect("a directory");
        }
        let files = [
            (roots.proc.join("self/mountinfo"), "1 1 0:1 / /cg rw - cgroup2 c rw\n"),
            (roots.proc.join("cgroups"), "perf_event\t0\t1\t1\n"),
            (roots.proc.join("sys/kernel/osrelease"), "6.12.0\n"),
            (roots.sys.join("devices/system/cpu/online"), "0-1\n"),
        ];
        for (path, content) in files {
            fs::write(path, content).expect("a file");
        }
        describe(&roots, &TRACEPOINTS);
        let (kernel, clock) = (FakeKernel::new(), Clock::manual(Timestamp(1_000_000)));
        let (facts, budget) = (Facts::read(&roots), Budget { limit, used: 0 });
        let collector = Collector::new(kernel.clone(), clock.clone(), &roots, facts, true, budget);
        Self {
            watch: Watch::new(roots.clone()),
            dir,
            kernel,
            clock,
            roots,
            collector: collector.expect("valid metric names"),
            series: 100,
            complaint: None,
            moment: Cell::new(0),
        }
    }

    /// Returns the plan for a configuration. Counters and presets are off unless the configuration enables them.
    pub(crate) fn plan(&self, yaml: &str) -> Plan {
        let presets = if yaml.contains("presets:") { "" } else { "\npresets: []\n" };
        let yaml = &format!("{yaml}{presets}");
        let (config, warnings) = config::load(yaml.as_bytes(), "test.yaml").expect("a configuration");
        assert!(warnings.is_empty(), "{warnings:?}");
        let facts = Facts::read(&self.roots);
        let entries = Entries {
            counters: if yaml.contains("counters:") { &config.counters } else { &[] },
            traced: &config.traced,
            profiles: &[],
            profile_cpus: false,
            scheduler: config.scheduler.as_ref().filter(|_| yaml.contains("scheduler:")),
            syscalls: config.syscalls.as_ref(),
            placed: &Placements::new(),
            complain: &|_, _, _| self.complaint.map(str::to_owned),
            locations: None,
        };
        plan(&entries, &Catalog::load(&self.roots, &facts), &StreamSupport::foreseen(&facts))
    }

    /// Adds the tracepoints of the scheduler and of system calls.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn with_threads() -> Self {
        let world = Self::new();
        describe(&world.roots, &OF_THREADS);
        world
    }

    /// Applies a configuration as the engine does.
    pub(crate) fn apply(&mut self, yaml: &str) {
        self.advance(Duration::from_millis(1));
        self.collector.set_facts(Facts::read(&self.roots), true);
        let plan = self.plan(yaml);
        self.watch.need(plan.needs());
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        self.collector.apply(&plan, Bounds { series: self.series, ring_memory: 16 << 20 }, &self.watch);
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
        self.moment.set(0);
    }

    /// Advances the clock by a second, refreshes the targets and makes a collection.
    pub(crate) fn families(&mut self) -> Vec<Family> {
        self.advance(Duration::from_secs(1));
        let changes = self.watch.refresh();
        self.collector.follow(&changes, &self.watch);
        self.collector.collect()
    }

    /// Makes a collection and returns it as a scrape.
    pub(crate) fn collect(&mut self) -> Scrape {
        let families = self.families();
        let snapshot = Snapshot::new(self.clock.now(), families);
        assert!(snapshot.conflicts().is_empty(), "{:?}", snapshot.conflicts());
        let mut encoder = Encoder::new(Arc::new(snapshot), Format::Text);
        let mut text = Vec::new();
        while encoder.next_chunk(&mut text) {}
        Scrape(String::from_utf8(text).expect("UTF-8"))
    }

    /// The same, ten seconds after the previous collection.
    pub(crate) fn collect_slowly(&mut self) -> Scrape {
        self.advance(Duration::from_secs(9));
        self.collect()
    }

    pub(crate) fn cgroup(&self, path: &str) -> PathBuf {
        let dir = self.dir.path().join("cg").join(path);
        fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    pub(crate) fn process(&self, pid: u32, comm: &str) {
        let dir = self.roots.proc.join(pid.to_string());
        fs::create_dir_all(dir.join("task").join(pid.to_string())).expect("a directory");
        let stat = format!("{pid} ({comm}) S 1 1 1 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 5 0 0");
        fs::write(dir.join("stat"), stat).expect("a file");
    }

    pub(crate) fn end_process(&self, pid: u32) {
        fs::remove_dir_all(self.roots.proc.join(pid.to_string())).expect("it existed before");
    }

    pub(crate) fn set_nodes(&self, nodes: &[&str]) {
        for (number, cpus) in nodes.iter().enumerate() {
            let node = self.roots.sys.join(format!("devices/system/node/node{number}"));
            fs::create_dir_all(&node).expect("a directory");
            fs::write(node.join("cpulist"), cpus).expect("a file");
        }
    }

    pub(crate) fn set_online(&self, cpus: &str) {
        fs::write(self.roots.sys.join("devices/system/cpu/online"), cpus).expect("a file");
    }

    /// Returns the reasons why events are not counted, one line each.
    pub(crate) fn reasons(&self) -> Vec<String> {
        self.collector.board().lines().map(|line| line.refusal.to_string()).collect()
    }

    /// Returns the tracepoints that write records: the id, the CPU, and whether the records are read in order of time.
    pub(crate) fn sampled(&self) -> Vec<(u64, u32, bool)> {
        let opened = self.kernel.opened();
        let found = opened.iter().filter(|event| event.attr.selector.kind == TRACEPOINT);
        found
            .filter_map(|event| Some((event.attr.selector.config[0], on(event)?, sampling(event)?.ordered)))
            .collect()
    }

    /// Hits a tracepoint. Writes a record for each event that has it open, and returns their number.
    pub(crate) fn hit(&self, hit: &Hit) -> usize {
        let time = match hit.time {
            Some(time) => self.clock.kernel().saturating_add_signed(time),
            None => self.now(),
        };
        let opened = self.kernel.opened();
        let selected = |event: &&Opened| {
            let selector = &event.attr.selector;
            (selector.kind, selector.config[0]) == (TRACEPOINT, hit.id.into()) && on(event) == Some(hit.cpu)
        };
        let sampled = opened.iter().filter(selected).filter_map(|event| Some((event, sampling(event)?)));
        sampled
            .map(|(event, Sampling { fields, ordered, .. })| {
                self.write(hit.cpu, ordered, &hit.record(event.id(), time, &fields));
            })
            .count()
    }

    /// Writes the record of a process that changes its name.
    pub(crate) fn rename(&self, cpu: u32, pid: u32, comm: &[u8]) {
        let mut body = halves(&[pid, pid]);
        body.extend_from_slice(comm);
        body.resize((body.len() + 1).next_multiple_of(8), 0);
        self.tell(cpu, true, COMM, &body);
    }

    /// Writes the record of a fork into the ordered and the unordered ring.
    pub(crate) fn fork(&self, cpu: u32, parent: u32, child: u32) {
        for ordered in [false, true] {
            self.fork_in(ordered, cpu, parent, child);
        }
    }

    /// Writes the record of a fork into one of the two rings.
    pub(crate) fn fork_in(&self, ordered: bool, cpu: u32, parent: u32, child: u32) {
        let body = [halves(&[child, parent, child, parent]), self.now().to_ne_bytes().to_vec()].concat();
        self.tell(cpu, ordered, FORK, &body);
    }

    /// Writes a record of lost records.
    pub(crate) fn lose(&self, cpu: u32, ordered: bool, records: u64) {
        self.tell(cpu, ordered, LOST, &[0u64.to_ne_bytes(), records.to_ne_bytes()].concat());
    }

    /// Writes a record of lost system call records, where the scheduler is followed as well. The names of processes are in the scheduler's
    /// ring.
    pub(crate) fn lose_calls(&self, cpu: u32, records: u64) {
        let times = [0, self.now(), 0].map(u64::to_ne_bytes);
        let body = [[0u64.to_ne_bytes(), records.to_ne_bytes()].concat(), times.concat()].concat();
        let is_ring = |event: &Opened| {
            let sideband = sampling(event).map(|sampling| sampling.sideband);
            on(event) == Some(cpu) && sideband.is_some_and(|sideband| sideband.task && !sideband.comm)
        };
        self.kernel.write(is_ring, &record(LOST, &body));
    }

    /// Writes a record that is not a sample, followed by its time if the ring is ordered.
    pub(crate) fn tell(&self, cpu: u32, ordered: bool, kind: u32, body: &[u8]) {
        let mut body = body.to_vec();
        if ordered {
            // Thread, time, identifier.
            body.extend([0, self.now(), 0].into_iter().flat_map(u64::to_ne_bytes));
        }
        self.write(cpu, ordered, &record(kind, &body));
    }

    /// Writes bytes into a ring.
    pub(crate) fn write(&self, cpu: u32, ordered: bool, bytes: &[u8]) {
        let is_ring = |event: &Opened| {
            on(event) == Some(cpu) && sampling(event).is_some_and(|sampling| sampling.ordered == ordered)
        };
        self.kernel.write(is_ring, bytes);
    }

    fn now(&self) -> u64 {
        self.moment.set(self.moment.get() + 1);
        self.clock.kernel() + self.moment.get()
    }
}

/// Writes the files of tracepoints.
fn describe(roots: &Roots, tracepoints: &[Tracepoint]) {
    for &(system, name, id, fields, print) in tracepoints {
        let dir = roots.tracing.join("events").join(system).join(name);
        fs::create_dir_all(&dir).expect("a directory");
        fs::write(dir.join("id"), format!("{id}\n")).expect("a file");
        fs::write(dir.join("format"), format(name, id, fields, print)).expect("a file");
    }
}

fn on(event: &Opened) -> Option<u32> {
    match event.place {
        FakePlace::Cpu(cpu) => Some(cpu),
        _ => None,
    }
}

fn sampling(event: &Opened) -> Option<Sampling> {
    event.attr.sampling
}

fn halves(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_ne_bytes()).collect()
}

/// Returns a record of any kind.
pub(crate) fn record(kind: u32, body: &[u8]) -> Vec<u8> {
    let size = u16::try_from(8 + body.len()).expect("the record is short");
    [&kind.to_ne_bytes()[..], &[0, 0], &size.to_ne_bytes(), body].concat()
}

/// A hit of a tracepoint.
#[derive(Debug, Clone)]
pub(crate) struct Hit {
    id: u16,
    cpu: u32,
    pid: u32,
    tid: u32,
    cgroup: u64,
    /// Nanoseconds relative to now; `None` for a time after all earlier records.
    time: Option<i64>,
    /// Whether the program is a 32-bit program.
    narrow: bool,
    raw: Vec<u8>,
}

/// Returns a hit on CPU 0 by process 10.
pub(crate) fn hit(id: u16) -> Hit {
    let mut raw = vec![0; if matches!(id, WORK) { 52 } else { 64 }];
    raw[..2].copy_from_slice(&id.to_ne_bytes());
    Hit { id, cpu: 0, pid: 10, tid: 10, cgroup: 0, time: None, narrow: false, raw }
}

/// Returns a hit of `toy:work`.
pub(crate) fn work() -> Hit {
    hit(WORK)
}

/// Returns a hit of `toy:play`.
pub(crate) fn play() -> Hit {
    hit(PLAY)
}

/// Returns a hit of `pair:begin`.
pub(crate) fn begin(key: u64) -> Hit {
    hit(BEGIN).put(8, &key.to_ne_bytes())
}

/// Returns a hit of `pair:end`.
pub(crate) fn end(key: u64) -> Hit {
    hit(END).put(16, &key.to_ne_bytes())
}

impl Hit {
    pub(crate) fn on(self, cpu: u32) -> Self {
        Self { cpu, ..self }
    }

    pub(crate) fn by(self, pid: u32) -> Self {
        Self { pid, tid: pid, ..self }
    }

    pub(crate) fn by_thread(self, pid: u32, tid: u32) -> Self {
        Self { pid, tid, ..self }
    }

    pub(crate) fn in_cgroup(self, cgroup: u64) -> Self {
        Self { cgroup, ..self }
    }

    /// Sets the time, in nanoseconds relative to now.
    pub(crate) fn at(self, time: i64) -> Self {
        Self { time: Some(time), ..self }
    }

    /// Overwrites some bytes.
    pub(crate) fn put(mut self, at: usize, bytes: &[u8]) -> Self {
        self.raw[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Sets a field of `toy:work`, `toy:play` or `pair:begin`.
    pub(crate) fn kind(self, kind: u32) -> Self {
        let at = if self.id == BEGIN { 16 } else { 8 };
        self.put(at, &kind.to_ne_bytes())
    }

    /// Sets a field of `toy:work`.
    pub(crate) fn flags(self, flags: u32) -> Self {
        self.put(12, &flags.to_ne_bytes())
    }

    /// Sets a field of `toy:work`.
    pub(crate) fn function(self, address: u64) -> Self {
        self.put(16, &address.to_ne_bytes())
    }

    /// Sets a field of `toy:work` or `toy:play`.
    pub(crate) fn size(self, size: i64) -> Self {
        self.put(24, &size.to_ne_bytes())
    }

    /// Sets a field of `toy:work`.
    pub(crate) fn task(self, task: &[u8]) -> Self {
        self.put(32, task)
    }

    /// Sets a field of `toy:work`. The string follows the fields.
    pub(crate) fn path(self, path: &[u8]) -> Self {
        let length = u32::try_from(path.len()).expect("the path is short");
        let mut hit = self.put(48, &(52 | length << 16).to_ne_bytes());
        hit.raw.extend_from_slice(path);
        hit
    }

    /// Sets a field of `pair:begin` or `pair:end`.
    pub(crate) fn code(self, code: i32) -> Self {
        let at = if self.id == BEGIN { 20 } else { 8 };
        self.put(at, &code.to_ne_bytes())
    }

    /// Marks the program as a 32-bit program.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn narrow(self) -> Self {
        Self { narrow: true, ..self }
    }

    /// Truncates the record.
    pub(crate) fn cut(mut self, length: usize) -> Self {
        self.raw.truncate(length);
        self
    }

    /// Returns the record that an event writes.
    pub(crate) fn record(&self, identifier: u64, time: u64, fields: &Fields) -> Vec<u8> {
        let mut body = Vec::new();
        if fields.identifier {
            body.extend(identifier.to_ne_bytes());
        }
        if fields.tid {
            body.extend(halves(&[self.pid, self.tid]));
        }
        if fields.time {
            body.extend(time.to_ne_bytes());
        }
        if fields.period {
            body.extend(1u64.to_ne_bytes());
        }
        if fields.raw {
            // The size and the bytes together are a multiple of eight bytes.
            let length = (4 + self.raw.len()).next_multiple_of(8) - 4;
            body.extend(u32::try_from(length).expect("the record is short").to_ne_bytes());
            body.extend(&self.raw);
            body.resize(body.len() + length - self.raw.len(), 0);
        }
        if fields.width {
            // PERF_SAMPLE_REGS_ABI_32 or _64, and a register.
            body.extend([if self.narrow { 1u64 } else { 2 }, 0].into_iter().flat_map(u64::to_ne_bytes));
        }
        if fields.cgroup {
            body.extend(self.cgroup.to_ne_bytes());
        }
        record(SAMPLE, &body)
    }
}

/// A parsed scrape.
#[derive(Debug)]
pub(crate) struct Scrape(pub(crate) String);

impl Scrape {
    /// Returns the series of a metric, without its name.
    pub(crate) fn of(&self, metric: &str) -> Vec<&str> {
        let rest = self.0.lines().filter_map(|line| line.strip_prefix(metric));
        rest.filter(|rest| rest.starts_with(['{', ' '])).collect()
    }

    /// Returns the value of a series that is written as in the text format.
    pub(crate) fn value(&self, series: &str) -> Option<f64> {
        let rest = self.0.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        rest.and_then(|value| value.parse().ok())
    }

    /// Returns the sum over all series of a metric.
    pub(crate) fn sum(&self, metric: &str) -> f64 {
        let values =
            self.of(metric).into_iter().filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
        values.sum()
    }

    /// Returns the numbers of hit records: read, lost because a ring was full, and malformed.
    pub(crate) fn records(&self) -> [Option<f64>; 3] {
        [
            self.value("perf_ring_records_total{ring=\"tracepoints\"}"),
            self.value("perf_lost_records_total{reason=\"ring_full\",ring=\"tracepoints\"}"),
            self.value("perf_lost_records_total{reason=\"unreadable\",ring=\"tracepoints\"}"),
        ]
    }
}
