//! What a file contains besides events and records: the machine, the command line, the formats of tracepoints.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::constants;
use super::format::EventSection;
use super::sections::{self, Feature, Tracepoint};
use crate::host::{self, CpuSet, Roots, cpu_model};

/// Maximum size of a file with a layout, in bytes.
const HEADER_LIMIT: u64 = 64 << 10;

/// `CLOCK_MONOTONIC`, the clock of all records.
const MONOTONIC: u32 = libc::CLOCK_MONOTONIC as u32;

/// Facts that the features of a file describe. Unknown facts are empty, and omitted in the file.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    host_name: Option<String>,
    release: Option<String>,
    cpu_model: Option<String>,
    /// Present and online CPUs.
    cpus: Option<(CpuSet, CpuSet)>,
    /// Memory in KiB.
    memory: Option<u64>,
    topology: Option<Vec<u8>>,
    /// NUMA nodes: number, memory and free memory in KiB, CPUs.
    nodes: Vec<(u32, [u64; 2], String)>,
    /// Types and names of PMUs.
    pmus: Vec<(u32, String)>,
}

impl Machine {
    /// Reads the facts of this machine.
    pub(crate) fn read(roots: &Roots) -> Self {
        let devices = roots.sys.join("devices/system/cpu");
        let cpus = |name: &str| host::read_text(&devices.join(name)).ok()?.parse::<CpuSet>().ok();
        let present = cpus("present");
        let topology = present.as_ref().and_then(|present| topology(&devices, present));
        Self {
            host_name: roots.host_name(),
            release: host::read_text(&roots.proc.join("sys/kernel/osrelease")).ok(),
            cpu_model: cpu_model(roots),
            cpus: present.zip(cpus("online")),
            memory: memory(roots),
            topology,
            nodes: nodes(roots),
            pmus: pmus(roots),
        }
    }
}

/// Returns the memory of the machine in KiB.
fn memory(roots: &Roots) -> Option<u64> {
    let text = host::read_text(&roots.proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

fn pmus(roots: &Roots) -> Vec<(u32, String)> {
    let dir = roots.sys.join("bus/event_source/devices");
    let kind = |name: &str| host::read_number(&dir.join(name).join("type")).ok()?.try_into().ok();
    let names = host::list(&dir).unwrap_or_default().into_iter();
    names.filter_map(|name| Some((kind(&name)?, name))).collect()
}

/// Returns the NUMA nodes that are online. None on kernels without NUMA.
fn nodes(roots: &Roots) -> Vec<(u32, [u64; 2], String)> {
    let dir = roots.sys.join("devices/system/node");
    let node = |name: &String| {
        let number = name.strip_prefix("node")?.parse().ok()?;
        let (memory, cpus) = (dir.join(name).join("meminfo"), dir.join(name).join("cpulist"));
        let memory = host::read_text(&memory).ok()?;
        let size = |field: &str| {
            let mut words = memory.lines().map(|line| line.split_ascii_whitespace());
            let mut words = words.find(|words| words.clone().any(|word| word == field))?;
            words.find(|word| *word == field).and(words.next())?.parse().ok()
        };
        Some((number, [size("MemTotal:")?, size("MemFree:")?], host::read_text(&cpus).ok()?))
    };
    let mut nodes: Vec<_> = host::list(&dir).unwrap_or_default().iter().filter_map(node).collect();
    nodes.sort_unstable_by_key(|(number, ..)| *number);
    nodes
}

/// Returns the content of the section for the topology of the CPUs: lists of CPUs of each package and core, core and package of each CPU,
/// lists of CPUs of each die, and the die of each CPU. Dies are omitted if the kernel does not report them. `None` if another part is
/// unknown.
fn topology(devices: &Path, present: &CpuSet) -> Option<Vec<u8>> {
    let (mut packages, mut cores, mut ids) = (Vec::new(), Vec::new(), Vec::new());
    let (mut dies, mut die_ids) = (Vec::new(), Vec::new());
    for cpu in present.iter() {
        let dir = devices.join(format!("cpu{cpu}/topology"));
        let list = |names: [&str; 2]| names.iter().find_map(|name| host::read_text(&dir.join(name)).ok());
        let lists = [
            // The second is the name before Linux 5.3.
            (&mut packages, list(["package_cpus_list", "core_siblings_list"])?),
            (&mut cores, list(["core_cpus_list", "thread_siblings_list"])?),
        ];
        for (known, list) in lists {
            if !known.contains(&list) {
                known.push(list);
            }
        }
        for name in ["core_id", "physical_package_id"] {
            ids.push(host::read_text(&dir.join(name)).ok()?.trim().parse::<i32>().ok()? as u32);
        }
        let die = host::read_text(&dir.join("die_cpus_list")).ok();
        if let Some((list, id)) = die.zip(host::read_number(&dir.join("die_id")).ok()) {
            if !dies.contains(&list) {
                dies.push(list);
            }
            die_ids.push(id as u32);
        }
    }
    let mut content = [sections::texts(&packages), sections::texts(&cores), sections::words(ids)].concat();
    if die_ids.len() == present.len() {
        content.extend(sections::texts(&dies));
        content.extend(sections::words(die_ids));
    }
    Some(content)
}

/// Reads the file of tracefs with the layout of a page or an event. The kernel returns its content to the first read only, so this read must
/// be long enough.
fn header(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    host::lines(path, HEADER_LIMIT, |line| {
        content.extend_from_slice(line);
        content.push(b'\n');
    })?;
    Ok(content)
}

/// The features of a file that do not change while it is written.
#[derive(Debug, Default)]
pub(crate) struct Features(Vec<Feature>);

impl Features {
    /// Describes a recording of `events` on `machine` by a command line. `wall` and `monotonic` are the same time on two clocks, in
    /// nanoseconds.
    pub(crate) fn new(
        machine: &Machine,
        events: &[EventSection],
        command_line: &[OsString],
        (wall, monotonic): (u64, u64),
    ) -> Self {
        let version = concat!("perf-exporter ", env!("CARGO_PKG_VERSION"));
        let words: Vec<&[u8]> = command_line.iter().map(|word| word.as_bytes()).collect();
        // The version of this section, the clock, and both times.
        let clock = [sections::words([1, MONOTONIC]), sections::longs([wall, monotonic])].concat();
        let mut all = vec![
            (constants::VERSION, sections::text(version)),
            (constants::ARCH, sections::text(std::env::consts::ARCH)),
            (constants::CMDLINE, sections::texts(&words)),
            (constants::EVENT_DESC, sections::event_desc(events)),
            // One nanosecond.
            (constants::CLOCKID, sections::longs([1])),
            (constants::CLOCK_DATA, clock),
        ];
        let texts = [
            (constants::HOSTNAME, &machine.host_name),
            (constants::OSRELEASE, &machine.release),
            (constants::CPUDESC, &machine.cpu_model),
        ];
        all.extend(texts.iter().filter_map(|(number, text)| Some((*number, sections::text(text.as_ref()?)))));
        if let Some((present, online)) = &machine.cpus {
            all.push((constants::NRCPUS, sections::words([present.len() as u32, online.len() as u32])));
            // Its readers need the number of CPUs.
            all.extend(machine.topology.clone().map(|topology| (constants::CPU_TOPOLOGY, topology)));
        }
        all.extend(machine.memory.map(|memory| (constants::TOTAL_MEM, sections::longs([memory]))));
        if !machine.nodes.is_empty() {
            all.push((constants::NUMA_TOPOLOGY, sections::nodes(&machine.nodes)));
        }
        if !machine.pmus.is_empty() {
            all.push((constants::PMU_MAPPINGS, sections::pmu_mappings(&machine.pmus)));
        }
        Self(all)
    }

    /// Marks the file as one with counts instead of samples.
    #[must_use]
    pub(crate) fn of_counts(mut self) -> Self {
        self.0.push((constants::STAT, Vec::new()));
        self
    }

    /// Adds the formats of tracepoints, `system:event`. Readers need them to read the file at all. Names of other events are ignored.
    ///
    /// # Errors
    /// If a format cannot be read.
    pub(crate) fn add_tracepoints<'n>(
        &mut self,
        roots: &Roots,
        names: impl Iterator<Item = &'n str>,
    ) -> anyhow::Result<()> {
        let dir = roots.tracing.join("events");
        let mut tracepoints = Vec::new();
        for name in names {
            // A modifier may follow.
            let mut parts = name.split(':');
            let Some((system, event)) = parts.next().zip(parts.next()) else { continue };
            let format = host::read(&dir.join(system).join(event).join("format"))?;
            tracepoints.push(Tracepoint { system: system.to_owned(), format });
        }
        if !tracepoints.is_empty() {
            tracepoints.sort_by(|one, other| one.system.cmp(&other.system));
            let page = header(&dir.join("header_page"))?;
            let event = header(&dir.join("header_event"))?;
            self.0.push((constants::TRACING_DATA, sections::tracing_data(&page, &event, &tracepoints)));
        }
        Ok(())
    }

    /// Returns all features in the order of their numbers, with the times of the first and last sample, the build ids and a further one.
    pub(super) fn with(
        &self,
        times: Option<(u64, u64)>,
        build_ids: Vec<u8>,
        further: Option<Feature>,
    ) -> Vec<Feature> {
        let mut all = self.0.clone();
        all.extend(further);
        all.extend(times.map(|(first, last)| (constants::SAMPLE_TIME, sections::longs([first, last]))));
        if !build_ids.is_empty() {
            all.push((constants::BUILD_ID, build_ids));
        }
        all.sort_by_key(|(number, _)| *number);
        all
    }
}
