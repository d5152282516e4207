//! Names of CPU vendors' events beside perf: both encode the same names on the same description of the PMUs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use perf_exporter::event::{Catalog, Kind, parse};
use perf_exporter::host::{Facts, Roots};

/// Fields that the terms of the tables name. Each has its own bits, except those that no event combines, so that no two terms hide each other.
const FIELDS: &[(&str, &str)] = &[
    ("event", "config:0-15"),
    ("umask", "config:16-55"),
    ("edge", "config:56"),
    ("inv", "config:57"),
    ("any", "config:58"),
    ("cmask", "config1:0-7"),
    ("ch_mask", "config1:8-19"),
    ("fc_mask", "config1:20-22"),
    ("enallcores", "config1:23"),
    ("enallslices", "config1:24"),
    ("sliceid", "config1:25-27"),
    ("threadmask", "config1:28-35"),
    ("rdwrmask", "config1:36-37"),
    ("occ_sel", "config1:38-39"),
    ("filter_nc", "config1:40"),
    ("filter_opc", "config1:41-49"),
    ("filter_state", "config1:50-54"),
    ("filter_tid", "config1:55-61"),
    ("offcore_rsp", "config2:0-63"),
    ("frontend", "config2:0-23"),
    ("ldlat", "config2:0-15"),
];
/// PMUs of the cores, and those outside of the cores that the tables name most.
const PMUS: &[&str] = &[
    "uncore_cha_0",
    "uncore_cbox_0",
    "uncore_imc_0",
    "uncore_iio_0",
    "uncore_m2m_0",
    "uncore_upi_0",
    "uncore_pcu",
    "amd_l3",
    "amd_df",
];
/// Names of one run of perf.
const BATCH: usize = 64;

/// Encoding of an event: type and configuration words.
type Encoding = (u32, [u64; 3]);

/// Writes a host with a CPU of this model. Types of its PMUs begin at 1000, which no PMU of the running kernel has.
fn write_host(dir: &Path, cpu: &str) {
    let put = |path: String, text: &str| {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let cores: &[&str] = match cpu.split('-').collect::<Vec<_>>()[..] {
        [vendor, family, model, stepping] => {
            let number = |hex: &str| u32::from_str_radix(hex, 16).unwrap();
            let mut cpuinfo = format!("processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\n");
            writeln!(cpuinfo, "model\t\t: {}\nstepping\t: {}", number(model), number(stepping)).unwrap();
            put("proc/cpuinfo".into(), &cpuinfo);
            if ["97", "AA", "BD", "C6"].contains(&model) { &["cpu_core", "cpu_atom"] } else { &["cpu"] }
        }
        _ => {
            put("sys/devices/system/cpu/cpu0/regs/identification/midr_el1".into(), &format!("{cpu}\n"));
            &["armv8_pmuv3_0"]
        }
    };
    for (number, pmu) in (1000..).zip(cores.iter().chain(PMUS)) {
        let base = format!("sys/bus/event_source/devices/{pmu}");
        put(format!("{base}/type"), &format!("{number}\n"));
        match *pmu {
            "cpu" => {}
            "cpu_core" | "armv8_pmuv3_0" => put(format!("{base}/cpus"), "0\n"),
            "cpu_atom" => put(format!("{base}/cpus"), "1\n"),
            _ => put(format!("{base}/cpumask"), "0\n"),
        }
        for (field, bits) in FIELDS {
            put(format!("{base}/format/{field}"), &format!("{bits}\n"));
        }
    }
    fs::create_dir_all(dir.join("sys/devices")).unwrap();
    std::os::unix::fs::symlink("../bus/event_source/devices/cpu", dir.join("sys/devices/cpu")).unwrap();
}

/// Returns up to `most` names of the vendor's table, evenly spread, as `PMU/name/`, with our encoding of each.
fn ours(dir: &Path, most: usize) -> BTreeMap<String, Encoding> {
    let roots = Roots::under(dir);
    let catalog = Catalog::load(&roots, &Facts::read(&roots));
    let names: Vec<String> = catalog
        .events()
        .filter(|event| matches!(event.kind, Kind::Raw | Kind::Pmu))
        .map(|event| event.name.to_string())
        .collect();
    let step = names.len().div_ceil(most).max(1);
    let mut found = BTreeMap::new();
    for name in names.iter().step_by(step) {
        let group = parse(name).unwrap().remove(0);
        let event =
            catalog.resolve(&group.events[0]).unwrap_or_else(|error| panic!("{name}: {error}")).remove(0);
        let [config, config1, config2, _] = event.selector.config;
        found.insert(name.clone(), (event.selector.kind, [config, config1, config2]));
    }
    found
}

/// Returns the encodings that perf opens, in the order of the names. `None`: perf does not know one of them, or does not open it.
fn perf(program: &str, dir: &Path, cpu: &str, names: &[&String]) -> Option<Vec<Encoding>> {
    let list = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(",");
    let mut command = Command::new(program);
    command.env("SYSFS_PATH", dir.join("sys")).env("PERF_CPUID", cpu);
    let output = command.args(["stat", "-vv", "-e", &list, "true"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if text.contains("event syntax error") || text.contains("parser error") {
        return None;
    }
    // perf writes the attributes of its trials, which have the process 0, in the middle of those of an event.
    let (mut found, mut open): (Vec<Encoding>, Vec<Encoding>) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        match words[..] {
            ["perf_event_attr:"] => open.push((0, [0; 3])),
            ["type", number, ..] => open.last_mut().unwrap().0 = number.parse().unwrap(),
            ["config", word, ..] => open.last_mut().unwrap().1[0] = hex(word),
            ["{", "bp_addr,", "config1", "}", word] => open.last_mut().unwrap().1[1] = hex(word),
            ["{", "bp_len,", "config2", "}", word] => open.last_mut().unwrap().1[2] = hex(word),
            ["sys_perf_event_open:", "pid", pid, ..] => {
                let ended = open.pop();
                found.extend(ended.filter(|_| pid != "0"));
            }
            _ => {}
        }
    }
    (found.len() == names.len()).then_some(found)
}

/// Compares names, in halves where perf does not know one of them. Returns the number of equal ones, and the lines of the others.
fn compare(program: &str, dir: &Path, cpu: &str, names: &[(&String, &Encoding)]) -> (usize, Vec<String>) {
    let only: Vec<&String> = names.iter().map(|(name, _)| *name).collect();
    match perf(program, dir, cpu, &only) {
        Some(theirs) => {
            let (mut equal, mut others) = (0, Vec::new());
            for ((name, own), theirs) in names.iter().zip(theirs) {
                match **own == theirs {
                    true => equal += 1,
                    false => others.push(format!("{cpu} {name}: {own:x?}, perf {theirs:x?}")),
                }
            }
            (equal, others)
        }
        None if names.len() == 1 => (0, vec![format!("{cpu} {}: unknown to perf", names[0].0)]),
        None => {
            let (first, second) = names.split_at(names.len() / 2);
            let (mut equal, mut others) = compare(program, dir, cpu, first);
            let (more, rest) = compare(program, dir, cpu, second);
            equal += more;
            others.extend(rest);
            (equal, others)
        }
    }
}

/// Compares up to `each` names of each CPU, given as perf names it: `GenuineIntel-6-8F-8`, or MIDR_EL1. Returns the number of equal
/// encodings, and a line for each other name.
pub(crate) fn compare_all(program: &str, cpus: &[&str], each: usize) -> (usize, Vec<String>) {
    let (mut equal, mut others) = (0, Vec::new());
    for cpu in cpus {
        let dir = tempfile::tempdir().unwrap();
        write_host(dir.path(), cpu);
        let own = ours(dir.path(), each);
        assert!(own.len() > 20, "{cpu}: {own:?}");
        let own: Vec<(&String, &Encoding)> = own.iter().collect();
        // perf opens the events of the cores before the others.
        let of_one_pmu = own.chunk_by(|(_, one), (_, other)| one.0 == other.0);
        for batch in of_one_pmu.flat_map(|names| names.chunks(BATCH)) {
            let (more, rest) = compare(program, dir.path(), cpu, batch);
            equal += more;
            others.extend(rest);
        }
    }
    (equal, others)
}
