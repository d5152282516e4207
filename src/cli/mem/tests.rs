//! Events and attributes on machines with hardware that samples memory accesses. The files of sysfs are those that kernels describe in
//! `arch/x86/events/intel/core.c`, `arch/x86/events/amd/ibs.c` and `drivers/perf/arm_spe_pmu.c`.

use std::path::Path;

use perf_event_open_sys::bindings as abi;

use super::sampler::sampler;
use super::*;
use crate::cli::observe::Subject;
use crate::cli::record::attr;
use crate::cli::tests::typed;
use crate::event::Catalog;
use crate::host::{CpuSet, Facts};
use crate::plan::Sampler;
use crate::sys::Attr;
use crate::sys::live::attr_bytes;

/// A file below `/sys/bus/event_source/devices`, and its content.
type File = (&'static str, &'static str);

const SKYLAKE: &[File] = &[
    ("cpu/type", "4"),
    ("cpu/caps/max_precise", "3"),
    ("cpu/format/event", "config:0-7"),
    ("cpu/format/umask", "config:8-15"),
    ("cpu/format/ldlat", "config1:0-15"),
    ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
    ("cpu/events/mem-stores", "event=0xd0,umask=0x82"),
];

const SAPPHIRE_RAPIDS: &[File] = &[
    ("cpu/type", "4"),
    ("cpu/caps/max_precise", "3"),
    ("cpu/format/event", "config:0-7"),
    ("cpu/format/umask", "config:8-15"),
    ("cpu/format/ldlat", "config1:0-15"),
    ("cpu/events/mem-loads", "event=0xcd,umask=0x1,ldlat=3"),
    ("cpu/events/mem-stores", "event=0xcd,umask=0x2"),
    ("cpu/events/mem-loads-aux", "event=0x03,umask=0x82"),
];

const ZEN_4: &[File] = &[
    ("cpu/type", "4"),
    ("cpu/format/event", "config:0-7,32-35"),
    ("cpu/events/cpu-cycles", "event=0x76"),
    ("ibs_op/type", "11"),
    ("ibs_op/caps/zen4_ibs_extensions", "1"),
    ("ibs_op/format/cnt_ctl", "config:19"),
    ("ibs_op/format/l3missonly", "config:16"),
    ("ibs_fetch/type", "10"),
];

const NEOVERSE: &[File] = &[
    ("armv8_pmuv3_0/type", "8"),
    ("armv8_pmuv3_0/cpus", "0-3"),
    ("armv8_pmuv3_0/format/event", "config:0-15"),
    ("armv8_pmuv3_0/events/mem_access", "event=0x13"),
    ("arm_spe_0/type", "9"),
    ("arm_spe_0/cpumask", "0-3"),
    ("arm_spe_0/format/load_filter", "config:33"),
];

const VIRTUAL: &[File] = &[("software/type", "1"), ("msr/type", "6")];

fn catalog(dir: &Path, files: &[File], kernel: &str) -> Catalog {
    let write = |path: String, content: &str| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{content}\n")).unwrap();
    };
    for (path, content) in files {
        write(format!("sys/bus/event_source/devices/{path}"), content);
    }
    write("proc/sys/kernel/osrelease".into(), kernel);
    let roots = Roots::under(dir);
    Catalog::load(&roots, &Facts::read(&roots))
}

/// Returns the sampler that `mem record` makes on a machine, or its error.
fn on(files: &[File], kernel: &str, line: &str) -> Result<Sampler, String> {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(dir.path(), files, kernel);
    let MemRecordArgs { operations, physical, record: args } = typed(line).unwrap();
    let has = |operation| operations.contains(&operation);
    let (loads, stores) = (has(Operation::Load), has(Operation::Store));
    let wanted = Wanted { loads, stores, latency: args.ldlat };
    let events = catalog.memory_events(wanted).map_err(|error| error.to_string())?;
    let machine = Subject::Machine { cpus: CpuSet::default(), chosen: false };
    sampler(&args, events, physical, &machine, &catalog).map_err(|error| format!("{error:?}"))
}

/// The parts of `struct perf_event_attr` that distinguish these events.
#[derive(Debug, PartialEq, Eq)]
struct Opened {
    name: String,
    kind: u32,
    config: u64,
    threshold: u64,
    precise: u64,
}

fn opened(sampler: &Sampler, place: usize) -> (Opened, Attr, u64) {
    let event = &sampler.events[place];
    let attr = attr(sampler, event);
    let bytes = attr_bytes(&attr);
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    let kind = u32::from_ne_bytes(bytes[..4].try_into().unwrap());
    let name = event.name.to_string();
    let (config, threshold, precise) = (word(8), word(56), word(40) >> 15 & 3);
    (Opened { name, kind, config, threshold, precise }, attr, word(24))
}

fn event(name: &str, kind: u32, config: u64, threshold: u64, precise: u64) -> Opened {
    Opened { name: name.into(), kind, config, threshold, precise }
}

/// The fields of all samples of memory accesses.
fn fields(more: u32) -> u64 {
    let usual = abi::PERF_SAMPLE_IDENTIFIER
        | abi::PERF_SAMPLE_IP
        | abi::PERF_SAMPLE_TID
        | abi::PERF_SAMPLE_TIME
        | abi::PERF_SAMPLE_ADDR
        | abi::PERF_SAMPLE_CPU
        | abi::PERF_SAMPLE_PERIOD
        | abi::PERF_SAMPLE_DATA_SRC;
    u64::from(usual | more)
}

#[test]
fn skylake_samples_loads_above_a_threshold_and_stores() {
    let sampler = on(SKYLAKE, "5.15.0", "").unwrap();
    let (loads, attr, samples) = opened(&sampler, 0);
    assert_eq!(loads, event("cpu/mem-loads,ldlat=30/P", 4, 0x1cd, 30, 3));
    assert_eq!((attr.leader, samples), (None, fields(abi::PERF_SAMPLE_WEIGHT_STRUCT)));
    let (stores, ..) = opened(&sampler, 1);
    assert_eq!(stores, event("cpu/mem-stores/P", 4, 0x82d0, 0, 3));
    assert_eq!(sampler.events.len(), 2);
    let chosen = on(SKYLAKE, "5.4.0", "-t load --ldlat 100 -p --all-user").unwrap();
    let (loads, attr, samples) = opened(&chosen, 0);
    assert_eq!(loads, event("cpu/mem-loads,ldlat=100/Pu", 4, 0x1cd, 100, 3));
    assert!(attr.modifiers.exclude_kernel && chosen.events.len() == 1);
    assert_eq!(samples, fields(abi::PERF_SAMPLE_WEIGHT | abi::PERF_SAMPLE_PHYS_ADDR));
}

#[test]
fn sapphire_rapids_counts_an_auxiliary_event_in_the_group_of_loads() {
    let sampler = on(SAPPHIRE_RAPIDS, "6.1.0", "").unwrap();
    let (loads, attr, _) = opened(&sampler, 0);
    assert_eq!(loads, event("cpu/mem-loads,ldlat=30/P", 4, 0x1cd, 30, 3));
    let leader = attr.leader.unwrap();
    assert_eq!((leader.selector.config[0], leader.sampling), (0x8203, None));
    let (stores, attr, _) = opened(&sampler, 1);
    assert_eq!((stores, attr.leader), (event("cpu/mem-stores/P", 4, 0x2cd, 0, 3), None));
}

#[test]
fn zen_samples_loads_and_stores_with_one_event() {
    let sampler = on(ZEN_4, "6.6.0", "").unwrap();
    let (operations, attr, samples) = opened(&sampler, 0);
    assert_eq!(operations, event("ibs_op//", 11, 0, 0, 0));
    assert!(!attr.modifiers.exclude_kernel && sampler.events.len() == 1);
    assert_eq!(samples, fields(abi::PERF_SAMPLE_WEIGHT_STRUCT));
    for (line, words) in [
        ("-t load", "ibs_op samples loads and stores together: omit -t"),
        ("--ldlat 10", "ibs_op has no threshold for the latency of loads: omit --ldlat"),
        ("--all-user", "cannot distinguish programs and the kernel: omit --all-user and --all-kernel"),
    ] {
        let error = on(ZEN_4, "6.6.0", line).unwrap_err();
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn an_error_names_the_hardware_that_samples_memory_accesses() {
    let error = on(NEOVERSE, "6.6.0", "").unwrap_err();
    assert!(error.contains("arm_spe_0 (Arm SPE)") && error.contains("AUX data"), "{error}");
    let error = on(VIRTUAL, "6.6.0", "").unwrap_err();
    for words in ["Intel since Nehalem", "ibs_op", "POWER8", "hypervisor", "this machine are: msr, software"]
    {
        assert!(error.contains(words), "{words}: {error}");
    }
}
