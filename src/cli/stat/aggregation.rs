//! Parts of the target that are shown separately: CPUs, cores, dies, caches, sockets, nodes or threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use serde::ser::SerializeMap;

use crate::cli::observe::Subject;
use crate::error::printable;
use crate::host::{CpuPosition, Facts, Roots, SharedCache};
use crate::register::ThreadNames;
use crate::targets::OpenTarget;

/// Highest level of a cache.
const HIGHEST_LEVEL: u32 = 4;

/// Options that select the parts. At most one may be given.
#[derive(Debug, Clone, Args)]
#[group(multiple = false)]
pub(super) struct AggregationArgs {
    /// Show each CPU separately.
    #[arg(short = 'A', long)]
    no_aggr: bool,
    /// Show each core separately.
    #[arg(long)]
    per_core: bool,
    /// Show each die separately.
    #[arg(long)]
    per_die: bool,
    /// Show each cache of this level separately: L2. The default is the highest level.
    #[arg(long, value_name = "LEVEL", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = cache_level)]
    per_cache: Option<CacheLevel>,
    /// Show each socket separately.
    #[arg(long)]
    per_socket: bool,
    /// Show each NUMA node separately.
    #[arg(long)]
    per_node: bool,
    /// Show each thread separately: those of -p or -t, or with -a all that exist, the busiest first. A thread includes the threads and
    /// processes that it starts.
    #[arg(long)]
    per_thread: bool,
}

/// A level of caches; `None` is the highest level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CacheLevel(Option<u32>);

fn cache_level(text: &str) -> Result<CacheLevel, String> {
    let digits = text.trim_start_matches(['L', 'l']);
    match digits.parse::<u32>() {
        _ if text.is_empty() => Ok(CacheLevel(None)),
        Ok(level) if (1..=HIGHEST_LEVEL).contains(&level) => Ok(CacheLevel(Some(level))),
        _ => Err(format!("expected a level from L1 to L{HIGHEST_LEVEL}, such as L2")),
    }
}

impl AggregationArgs {
    /// Returns the selected parts.
    pub(super) fn aggregation(&self) -> Aggregation {
        let flags = [
            (self.no_aggr, Aggregation::Cpu),
            (self.per_core, Aggregation::Core),
            (self.per_die, Aggregation::Die),
            (self.per_socket, Aggregation::Socket),
            (self.per_node, Aggregation::Node),
            (self.per_thread, Aggregation::Thread),
        ];
        let cache = self.per_cache.map(|CacheLevel(level)| Aggregation::Cache(level));
        let flag = flags.into_iter().find(|(is_set, _)| *is_set).map(|(_, aggregation)| aggregation);
        cache.or(flag).unwrap_or_default()
    }
}

/// The kind of parts that are shown separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Aggregation {
    /// One sum for the whole target.
    #[default]
    Whole,
    Cpu,
    Core,
    Die,
    /// Caches of a level; of the highest level without one.
    Cache(Option<u32>),
    Socket,
    Node,
    Thread,
}

impl Aggregation {
    /// Returns the option, as the user writes it. Empty for the whole target.
    pub(super) fn option(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Cpu => "-A",
            Self::Core => "--per-core",
            Self::Die => "--per-die",
            Self::Cache(_) => "--per-cache",
            Self::Socket => "--per-socket",
            Self::Node => "--per-node",
            Self::Thread => "--per-thread",
        }
    }

    /// Returns the key of a part in the JSON of perf, and its name in headings. Empty for the whole target.
    fn key(self) -> &'static str {
        match self {
            Self::Whole => "",
            Self::Cpu => "cpu",
            Self::Core => "core",
            Self::Die => "die",
            Self::Cache(_) => "cache",
            Self::Socket => "socket",
            Self::Node => "node",
            Self::Thread => "thread",
        }
    }

    /// Returns the width of a label in the table, as in perf 6.1.
    fn width(self) -> usize {
        match self {
            Self::Whole => 0,
            Self::Cpu => 10,
            Self::Core => 15,
            Self::Die => 12,
            Self::Cache(_) => 22,
            Self::Socket | Self::Node => 6,
            Self::Thread => COMM + 1 + PID,
        }
    }

    /// Reports whether a part is several CPUs, so that their number is shown.
    fn has_cpus(self) -> bool {
        !matches!(self, Self::Whole | Self::Cpu | Self::Thread)
    }

    /// Reports whether the rows are ordered by part first. As in perf, rows of CPUs and threads are ordered by event first.
    pub(super) fn orders_by_part(self) -> bool {
        self.has_cpus()
    }

    /// Returns the column heading in the table, with the space before the next column.
    pub(super) fn heading(self) -> String {
        let width = self.width();
        match self {
            Self::Whole => String::new(),
            Self::Cpu => format!("{:<width$} ", "CPU"),
            Self::Thread => thread_column("comm", "pid"),
            _ => format!("{:<width$} cpus ", self.key()),
        }
    }

    /// Returns the names of the fields in CSV.
    pub(super) fn fields(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &[],
            Self::Cpu => &["cpu"],
            Self::Core => &["core", "cpus"],
            Self::Die => &["die", "cpus"],
            Self::Cache(_) => &["cache", "cpus"],
            Self::Socket => &["socket", "cpus"],
            Self::Node => &["node", "cpus"],
            Self::Thread => &["comm-pid"],
        }
    }
}

/// Width of the name of a thread.
const COMM: usize = 16;
/// Width of its number.
const PID: usize = 8;

fn thread_column(comm: &str, tid: &str) -> String {
    format!("{comm:>COMM$}-{tid:<PID$} ")
}

/// A part of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    Whole,
    Cpu(u32),
    Core(CpuPosition),
    /// Socket and die.
    Die(u32, u32),
    /// Socket, die, and the cache.
    Cache(u32, u32, SharedCache),
    Socket(u32),
    Node(u32),
    Thread(u32),
}

/// The label of a part in the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PartLabel {
    aggregation: Aggregation,
    /// Text in the table and in CSV.
    pub text: Arc<str>,
    /// Number of CPUs that were counted, where a part is several CPUs.
    pub cpus: Option<u32>,
}

impl PartLabel {
    /// Returns the columns of the table, with the space before the next column.
    pub(super) fn columns(&self) -> String {
        let (text, width) = (&self.text, self.aggregation.width());
        match (self.cpus, text.rsplit_once('-')) {
            (Some(cpus), _) => format!("{text:<width$} {cpus:>4} "),
            (None, Some((comm, tid))) if self.aggregation == Aggregation::Thread => thread_column(comm, tid),
            (None, _) => format!("{text:<width$} "),
        }
    }

    /// Returns the fields of CSV.
    pub(super) fn fields(&self) -> impl Iterator<Item = String> {
        std::iter::once(self.text.to_string()).chain(self.cpus.map(|cpus| cpus.to_string()))
    }

    /// Writes the entries of JSON: the part, and the number of its CPUs.
    pub(super) fn entries<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let (key, value) = self.json();
        map.serialize_entry(key, value)?;
        self.cpus.map_or(Ok(()), |cpus| map.serialize_entry("aggregate-number", &cpus))
    }

    /// Returns the key and the value in JSON.
    fn json(&self) -> (&'static str, &str) {
        let value = if self.aggregation == Aggregation::Cpu {
            self.text.trim_start_matches("CPU")
        } else {
            &self.text
        };
        (self.aggregation.key(), value)
    }
}

/// The parts of a target.
#[derive(Debug, Default)]
pub(super) struct Parts {
    pub aggregation: Aggregation,
    /// The part of each CPU or thread. Empty for the whole target.
    of: BTreeMap<u32, Part>,
    /// Names of threads.
    names: BTreeMap<u32, String>,
    /// Whether the threads are all threads of the machine.
    is_machine: bool,
}

impl Parts {
    /// Finds the parts of a target on this machine.
    ///
    /// # Errors
    /// If a target has ended, or if the kernel does not report a cache of the level.
    pub(super) fn new(
        aggregation: Aggregation,
        subject: &Subject,
        roots: &Roots,
        facts: &Facts,
    ) -> anyhow::Result<Self> {
        let mut parts = Self { aggregation, ..Self::default() };
        match aggregation {
            Aggregation::Whole => {}
            Aggregation::Thread => {
                let threads = threads(&subject.open_targets(roots, None)?).into_iter();
                let named = threads
                    .map(|tid| (tid, ThreadNames::default().find(roots, tid, tid).unwrap_or_default()));
                parts = Self::of_threads(named);
            }
            _ => {
                for cpu in subject.event_cpus(facts).iter() {
                    parts.of.insert(cpu, part_of_cpu(aggregation, cpu, roots, facts)?);
                }
            }
        }
        Ok(parts)
    }

    /// Returns the parts of threads with their names.
    pub(super) fn of_threads<N: AsRef<[u8]>>(threads: impl Iterator<Item = (u32, N)>) -> Self {
        let mut parts = Self { aggregation: Aggregation::Thread, ..Self::default() };
        for (tid, name) in threads {
            parts.of.insert(tid, Part::Thread(tid));
            parts.names.insert(tid, printable(&String::from_utf8_lossy(name.as_ref())));
        }
        parts
    }

    /// Returns the parts of all threads of the machine. As in perf, only those with counts are shown, the busiest first.
    pub(super) fn of_machine<N: AsRef<[u8]>>(threads: impl Iterator<Item = (u32, N)>) -> Self {
        Self { is_machine: true, ..Self::of_threads(threads) }
    }

    /// Returns the parts of CPUs of a recorded machine.
    pub(super) fn of_cpus(aggregation: Aggregation, cpus: BTreeMap<u32, Part>) -> Self {
        Self { aggregation, of: cpus, ..Self::default() }
    }

    /// Reports whether only parts with counts are shown, the busiest first.
    pub(super) fn shows_busiest(&self) -> bool {
        self.is_machine
    }

    /// Returns the CPUs or threads that are shown separately.
    pub(super) fn places(&self) -> impl Iterator<Item = u32> {
        self.of.keys().copied()
    }

    /// Returns the name of a thread. Empty if unknown.
    pub(super) fn thread_name(&self, tid: u32) -> &str {
        self.names.get(&tid).map_or("", |name| name)
    }

    /// Returns the part of a CPU or thread.
    pub(super) fn of(&self, place: u32) -> Part {
        match self.aggregation {
            Aggregation::Whole => Part::Whole,
            // A thread that started after the names were read.
            Aggregation::Thread => Part::Thread(place),
            _ => self.of.get(&place).copied().unwrap_or(Part::Cpu(place)),
        }
    }

    /// Returns all parts in order.
    pub(super) fn all(&self) -> Vec<Part> {
        let mut parts: Vec<Part> = self.of.values().copied().collect();
        parts.sort_unstable();
        parts.dedup();
        if self.aggregation == Aggregation::Whole { vec![Part::Whole] } else { parts }
    }

    /// Returns the label of a part of which `cpus` were counted; all its CPUs without a number.
    pub(super) fn label(&self, part: Part, cpus: Option<u32>) -> Option<PartLabel> {
        let text = match part {
            Part::Whole => return None,
            Part::Cpu(cpu) => format!("CPU{cpu}"),
            Part::Core(CpuPosition { socket, die, core }) => format!("S{socket}-D{die}-C{core}"),
            Part::Die(socket, die) => format!("S{socket}-D{die}"),
            Part::Cache(socket, die, SharedCache { level, first_cpu }) => {
                format!("S{socket}-D{die}-L{level}-ID{first_cpu}")
            }
            Part::Socket(socket) => format!("S{socket}"),
            Part::Node(node) => format!("N{node}"),
            Part::Thread(tid) => format!("{}-{tid}", self.thread_name(tid)),
        };
        let all = || self.of.values().filter(|&&other| other == part).count() as u32;
        let cpus = self.aggregation.has_cpus().then(|| cpus.unwrap_or_else(all));
        Some(PartLabel { aggregation: self.aggregation, text: text.into(), cpus })
    }
}

fn part_of_cpu(aggregation: Aggregation, cpu: u32, roots: &Roots, facts: &Facts) -> anyhow::Result<Part> {
    let position = CpuPosition::read(roots, cpu);
    let CpuPosition { socket, die, .. } = position;
    Ok(match aggregation {
        Aggregation::Whole | Aggregation::Thread | Aggregation::Cpu => Part::Cpu(cpu),
        Aggregation::Core => Part::Core(position),
        Aggregation::Die => Part::Die(socket, die),
        Aggregation::Cache(level) => {
            let cache = SharedCache::read(roots, cpu, level).with_context(|| {
                let level = level.map(|level| format!(" of level {level}")).unwrap_or_default();
                format!("--per-cache: the kernel reports no cache{level} for CPU {cpu}; see /sys/devices/system/cpu/cpu{cpu}/cache")
            })?;
            Part::Cache(socket, die, cache)
        }
        Aggregation::Socket => Part::Socket(socket),
        Aggregation::Node => Part::Node(facts.nodes.cpu(cpu).node),
    })
}

/// Returns the threads of the targets.
fn threads(targets: &[OpenTarget]) -> Vec<u32> {
    let of = |target: &OpenTarget| match target {
        OpenTarget::Threads(threads) => threads.clone(),
        _ => Vec::new(),
    };
    targets.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(aggregation: Aggregation, of: &[(u32, Part)], names: &[(u32, &str)]) -> Parts {
        let names = names.iter().map(|(tid, name)| (*tid, (*name).to_owned())).collect();
        Parts { aggregation, of: of.iter().copied().collect(), names, is_machine: false }
    }

    #[test]
    fn labels_and_headings_are_aligned_as_in_perf() {
        let core = |core| Part::Core(CpuPosition { socket: 0, die: 0, core });
        let cores = parts(Aggregation::Core, &[(0, core(0)), (1, core(1)), (2, core(1))], &[]);
        assert_eq!(cores.all(), [core(0), core(1)]);
        let label = cores.label(core(1), None).unwrap();
        assert_eq!(label.columns(), "S0-D0-C1           2 ");
        assert_eq!(label.fields().collect::<Vec<_>>(), ["S0-D0-C1", "2"]);
        assert_eq!(label.json(), ("core", "S0-D0-C1"));
        assert_eq!(cores.label(core(1), Some(1)).unwrap().cpus, Some(1));
        let threads = parts(Aggregation::Thread, &[], &[(7, "a-b")]);
        let label = threads.label(Part::Thread(7), None).unwrap();
        assert_eq!(label.columns(), "             a-b-7        ");
        assert_eq!(label.json(), ("thread", "a-b-7"));
        let cpus = parts(Aggregation::Cpu, &[], &[]);
        assert_eq!(cpus.label(Part::Cpu(3), None).unwrap().json(), ("cpu", "3"));
        for aggregation in [Aggregation::Core, Aggregation::Cpu, Aggregation::Socket, Aggregation::Thread] {
            let one = parts(aggregation, &[(0, Part::Cpu(0))], &[]).label(Part::Cpu(0), None);
            let columns = one.map(|label| label.columns().len());
            if aggregation != Aggregation::Thread {
                assert_eq!(columns, Some(aggregation.heading().len()), "{aggregation:?}");
            }
        }
        assert!(parts(Aggregation::Whole, &[], &[]).label(Part::Whole, None).is_none());
    }

    #[test]
    fn parts_come_from_the_topology_of_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join("sys/devices/system").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("cpu/online", "0-1");
        write("node/node1/cpulist", "1");
        write("cpu/cpu1/topology/physical_package_id", "1");
        for (name, text) in [("level", "2"), ("type", "Unified"), ("shared_cpu_list", "1")] {
            write(&format!("cpu/cpu1/cache/index0/{name}"), text);
        }
        let roots = Roots::under(dir.path());
        let facts = Facts::read(&roots);
        let machine = |cpus: &str| Subject::Machine { cpus: cpus.parse().unwrap(), chosen: true };
        let labels = |aggregation, cpus: &str| -> Vec<String> {
            let parts = Parts::new(aggregation, &machine(cpus), &roots, &facts).unwrap();
            let label =
                |part| parts.label(part, None).map_or_else(String::new, |label| label.text.to_string());
            parts.all().into_iter().map(label).collect()
        };
        assert_eq!(labels(Aggregation::Node, "0-1"), ["N0", "N1"]);
        assert_eq!(labels(Aggregation::Socket, "0-1"), ["S0", "S1"]);
        assert_eq!(labels(Aggregation::Die, "1"), ["S1-D0"]);
        assert_eq!(labels(Aggregation::Core, "0-1"), ["S0-D0-C0", "S1-D0-C0"]);
        assert_eq!(labels(Aggregation::Cache(None), "1"), ["S1-D0-L2-ID1"]);
        let missing = Parts::new(Aggregation::Cache(Some(3)), &machine("1"), &roots, &facts).unwrap_err();
        assert!(missing.to_string().contains("no cache of level 3 for CPU 1"), "{missing}");
    }

    #[test]
    fn a_level_is_written_as_in_perf() {
        for (text, level) in [("", None), ("L2", Some(2)), ("3", Some(3)), ("l1", Some(1))] {
            assert_eq!(cache_level(text), Ok(CacheLevel(level)), "{text}");
        }
        assert!(cache_level("L9").unwrap_err().contains("L1 to L4"));
    }
}
