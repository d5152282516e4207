//! Invariants for arbitrary tracepoint records: each hit is accounted exactly once, and totals only grow. Called by a fuzz target and by a
//! test that keeps the target working.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use perf_exporter::clock::Timestamp;
use perf_exporter::metrics::{Family, Kind, Labels, Point, Value};

use crate::traced::{BEGIN, END, Hit, PLAY, WORK, World, hit, record};

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;

/// Limit of label values of `all`, and of pending begin events of `op`.
const VALUES: usize = 3;
const PENDING: u64 = 3;

/// Entries with ordered and with unordered records, single and paired, host-wide.
const ENTRIES: &str = "processes: {include: [{comm: 'p*'}], by: [comm]}\n\
    cgroups: {include: ['/a', '/b']}\n\
    tracepoints:\n  \
    all: {event: 'toy:work', labels: [task], values: 3, sum: {of: size}, per: [host, cpu, cgroup, process]}\n  \
    any: {event: 'toy:*', labels: [kind], values: 2, histogram: {of: size, buckets: [10]}, per: [host, cgroup]}\n  \
    op: {from: 'pair:begin', to: 'pair:end', key: [key], timeout: 2s, pending: 3, labels: [kind], values: 2, \
    per: [host, process]}\n";

/// An entry that is added and removed. Each change reopens all events.
const GUEST: &str = "  guest: {event: 'toy:play', labels: [kind]}\n";

/// Written hits, by their expected outcome.
#[derive(Debug, Default, Clone, Copy)]
struct Fed {
    counted: u64,
    sum: u64,
    negative: u64,
    short: u64,
}

impl Fed {
    fn take(&mut self, size: i64, short: bool) {
        match u64::try_from(size) {
            _ if short => self.short += 1,
            Ok(size) => (self.counted, self.sum) = (self.counted + 1, self.sum + size),
            Err(_) => self.negative += 1,
        }
    }
}

/// Checks a sequence of operations that the bytes select, one after the other.
pub(crate) fn holds(bytes: &[u8]) {
    let mut story = Story::new();
    let mut bytes = bytes.iter().copied();
    while let Some(what) = bytes.next() {
        story.goes_on(what, || bytes.next().unwrap_or(0));
    }
    story.collect();
    story.collect();
}

struct Story {
    world: World,
    /// Hits in each cgroup: two selected, one not selected, one unknown.
    cgroups: [u64; 4],
    all: Fed,
    any: Fed,
    begun: u64,
    /// Hits without their key.
    keyless: u64,
    guest: bool,
    online: bool,
    ledger: SeriesTotals,
}

impl Story {
    fn new() -> Self {
        let mut world = World::new();
        world.series = 6;
        let mut cgroups = [0, 0, 0, 99];
        for (path, id) in ["a", "b", "c"].into_iter().zip(&mut cgroups) {
            *id = inode(&world, path);
        }
        world.process(10, "p-one");
        world.process(11, "else");
        world.apply(ENTRIES);
        Self {
            world,
            cgroups,
            all: Fed::default(),
            any: Fed::default(),
            begun: 0,
            keyless: 0,
            guest: false,
            online: true,
            ledger: SeriesTotals::new(),
        }
    }

    fn goes_on(&mut self, what: u8, mut next: impl FnMut() -> u8) {
        let (cpu, ordered) = (u32::from(what & 1), what & 2 != 0);
        match what {
            0..0x80 => self.hit(what, next(), next()),
            0x80..0x90 => self.collect(),
            0x90..0x98 => self.world.lose(cpu, ordered, next().into()),
            0x98..0xa0 => {
                // The reader discards all bytes after an invalid header. Here nothing follows it.
                self.world.write(cpu, ordered, &[0; 8]);
                self.collect();
            }
            0xa0..0xa8 => self.world.rename(cpu, pid(next()), &[b'p', next()]),
            0xa8..0xb0 => self.world.fork_in(ordered, cpu, pid(next()), pid(next())),
            0xb0..0xc0 => self.junk(cpu, ordered, next(), next()),
            0xc0..0xd0 => {
                self.online = !self.online;
                self.world.set_online(if self.online { "0-1\n" } else { "0\n" });
            }
            0xd0..0xe0 => {
                self.guest = !self.guest;
                self.world.apply(&[ENTRIES, if self.guest { GUEST } else { "" }].concat());
            }
            0xe0..0xf0 => self.world.advance(Duration::from_secs(60 * u64::from(what & 15))),
            0xf0..=0xff => self.come_or_go(what),
        }
    }

    /// Writes a hit. `what` selects the tracepoint and the CPU, `who` the thread, and `value` the content of the record.
    fn hit(&mut self, what: u8, who: u8, value: u8) {
        let id = [WORK, PLAY, BEGIN, END][usize::from(what & 3)];
        let of = |hit: Hit| {
            let hit = hit.on(u32::from(what >> 2 & 1)).by(pid(who));
            let hit = hit.in_cgroup(self.cgroups[usize::from(who >> 3 & 3)]);
            if what & 0x40 == 0 { hit } else { hit.at(-10_000_000 * i64::from(value)) }
        };
        let (size, key) = (i64::from(value.cast_signed()), u64::from(value & 7).to_ne_bytes());
        let hit = match id {
            WORK => hit(id).size(size).task(&[b'a' + (value & 7)]),
            PLAY => hit(id).size(size).kind(u32::from(value & 3)),
            BEGIN => hit(id).put(8, &key).kind(u32::from(value >> 3 & 3)),
            _ => hit(id).put(16, &key),
        };
        let short = what & 0x38 == 0x38;
        let hit = if short { hit.cut(12) } else { hit };
        if self.world.hit(&of(hit)) == 0 {
            return;
        }
        match id {
            WORK | PLAY => {
                self.any.take(size, short);
                if id == WORK {
                    self.all.take(size, short);
                }
            }
            _ if short => self.keyless += 1,
            BEGIN => self.begun += 1,
            _ => {}
        }
    }

    /// Writes a record of any kind that does not belong to any known event.
    fn junk(&mut self, cpu: u32, ordered: bool, kind: u8, length: u8) {
        let body = vec![kind | 0x80; usize::from(length & 63)];
        let kind = u32::from(kind % 24);
        let aligned = &body[..body.len() / 8 * 8];
        self.world.write(cpu, ordered, &record(kind, aligned));
        if kind != SAMPLE {
            self.world.tell(cpu, ordered, kind, aligned);
        }
    }

    fn come_or_go(&mut self, what: u8) {
        let number = usize::from(what & 1);
        if what & 2 == 0 {
            let (pid, comm) = [(10, "p-one"), (12, "p-two")][number];
            match self.world.roots.proc.join(pid.to_string()).exists() {
                true => self.world.end_process(pid),
                false => self.world.process(pid, comm),
            }
            return;
        }
        let path = ["a", "b"][number];
        match fs::remove_dir(self.world.dir.path().join("cg").join(path)) {
            Ok(()) => {}
            Err(_) => self.cgroups[number] = inode(&self.world, path),
        }
    }

    fn collect(&mut self) {
        let books = Books { families: self.world.families(), ledger: std::mem::take(&mut self.ledger) };
        let books = books.enter();
        for (entry, fed) in [("all", self.all), ("any", self.any)] {
            for (scope, prefix) in
                [("host", "tracepoint"), ("cpu", "cpu"), ("cgroup", "cgroup"), ("process", "process")]
            {
                let name = format!("perf_{prefix}_{entry}");
                if books.is_published(&name) {
                    let rest = books.sum(&format!("perf_unattributed_{entry}"), &[("scope", scope)]);
                    assert_eq!(books.sum(&name, &[]) + rest, fed.counted, "{name}");
                }
            }
            assert_eq!(books.dropped(entry, "negative"), fed.negative, "{entry}");
            assert_eq!(books.dropped(entry, "short"), fed.short, "{entry}");
        }
        assert_eq!(books.sum("perf_tracepoint_all_size", &[]), self.all.sum);
        assert!(books.values("perf_tracepoint_all", "task").len() <= VALUES + 2);
        self.balance_pairs(&books);
        self.ledger = books.ledger;
    }

    /// Checks that each begin event has found its end event, is pending, or is accounted with a reason.
    fn balance_pairs(&self, books: &Books) {
        let paired = books.sum("perf_tracepoint_op_seconds", &[]);
        let waiting = books.sum("perf_pending_events", &[]);
        let given_up =
            ["no_end", "expired", "table_full", "lost", "time_reversed"].map(|reason| books.unpaired(reason));
        assert_eq!(paired + waiting + given_up.iter().sum::<u64>(), self.begun, "{given_up:?}");
        assert!(waiting <= PENDING);
        assert_eq!(books.dropped("op", "short"), self.keyless);
        let rest = books.sum("perf_unattributed_op", &[("scope", "process")]);
        assert_eq!(books.sum("perf_process_op_seconds", &[]) + rest, paired);
    }
}

fn inode(world: &World, path: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(world.cgroup(path)).expect("a directory").ino()
}

/// Returns the idle task, one of some processes, or a process without a pid (one that exited).
fn pid(byte: u8) -> u32 {
    [0, 10, 10, 11, 12, 13, 14, u32::MAX][usize::from(byte & 7)]
}

/// A published series: its last value, and its count as Prometheus computes it. The count is the sum of all increases and of the first
/// value after each reset of the creation time.
#[derive(Debug)]
struct Entry {
    last: u64,
    start: Timestamp,
    counted: u64,
}

/// All series since the start, by metric and labels.
type SeriesTotals = BTreeMap<String, BTreeMap<Arc<Labels>, Entry>>;

struct Books {
    families: Vec<Family>,
    ledger: SeriesTotals,
}

impl Books {
    /// Enters the samples into the ledger. Panics if a value falls without a new creation time.
    fn enter(mut self) -> Self {
        for family in self.families.iter().filter(|family| family.metadata().kind() != Kind::Gauge) {
            let name = family.metadata().name();
            let series = self.ledger.entry(name.to_owned()).or_default();
            for point in family.points().iter().filter(|point| !matches!(point.value, Value::Float(_))) {
                let (now, start) = (count(point), point.start);
                let new = || Entry { last: 0, start, counted: 0 };
                let entry = series.entry(Arc::clone(&point.labels)).or_insert_with(new);
                if start > entry.start {
                    (entry.last, entry.start) = (0, start);
                }
                let of_guest = name.contains("guest") || point.labels.get("entry") == Some("guest");
                assert!(
                    now >= entry.last || of_guest,
                    "{name}{:?} fell from {} to {now} without a new creation time",
                    point.labels,
                    entry.last
                );
                entry.counted += now.saturating_sub(entry.last);
                entry.last = now;
            }
        }
        self
    }

    fn points<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Point> {
        self.families.iter().filter(move |family| family.metadata().name() == name).flat_map(Family::points)
    }

    fn is_published(&self, name: &str) -> bool {
        self.families.iter().any(|family| family.metadata().name() == name)
    }

    /// Returns the total count of the series of a metric with these labels: for gauges the sum of the values, for histograms the number of
    /// observations.
    fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let has = |all: &Labels| labels.iter().all(|(name, value)| all.get(name) == Some(*value));
        match self.ledger.get(name) {
            Some(series) => {
                series.iter().filter(|(labels, _)| has(labels)).map(|(_, entry)| entry.counted).sum()
            }
            None => self.points(name).filter(|point| has(&point.labels)).map(count).sum(),
        }
    }

    fn dropped(&self, entry: &str, reason: &str) -> u64 {
        self.sum("perf_dropped_hits", &[("entry", entry), ("reason", reason)])
    }

    fn unpaired(&self, reason: &str) -> u64 {
        self.sum("perf_unpaired_events", &[("reason", reason)])
    }

    /// Returns the values of a label.
    fn values<'a>(&'a self, name: &'a str, label: &'a str) -> BTreeSet<&'a str> {
        self.points(name).filter_map(|point| point.labels.get(label)).collect()
    }
}

fn count(point: &Point) -> u64 {
    match &point.value {
        Value::Integer(count) => *count,
        Value::Histogram(histogram) => histogram.count(),
        Value::Float(number) => panic!("{number} is not a count"),
    }
}
