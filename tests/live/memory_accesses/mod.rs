//! `perf-exporter mem report` and `c2c report` beside those of perf. No machine here samples memory accesses: the recordings are made up, or
//! of page faults, of which the kernel reports the address.

mod file;

use std::fs;
use std::path::Path;
use std::process::Command;

use perf_exporter::files::Files;
use perf_exporter::host::{self, Roots};
use perf_exporter::recording::perf_data::{Accesses, Options};
use perf_exporter::report::{CacheLines, LineOptions};

use self::file::{Addresses, PID, Sample, anonymous, heap};
use crate::support::program::Program;
use crate::support::{Feature, lacks};

const OWN: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// Operations, and levels with outcomes.
const LOAD: u64 = 2;
const STORE: u64 = 4;
const HIT: u64 = 2 << 5;
const MISS: u64 = 4 << 5;
const L1: u64 = 0x8 << 5;
const FILL_BUFFER: u64 = 0x10 << 5;
const L2: u64 = 0x20 << 5;
const L3: u64 = 0x40 << 5;
const LOCAL_RAM: u64 = 0x80 << 5;
const REMOTE_RAM: u64 = 0x100 << 5;
const REMOTE_CACHE: u64 = 0x400 << 5;
const FAR_CACHE: u64 = 0x800 << 5;
const UNCACHED: u64 = 0x3000 << 5;
const NO_LEVEL: u64 = 1 << 5;
/// Snoops, locks, the address translation, blocked loads.
const SNOOP_NONE: u64 = 2 << 19;
const SNOOP_HIT: u64 = 4 << 19;
const SNOOP_MISS: u64 = 8 << 19;
const HITM: u64 = 0x10 << 19;
const PEER: u64 = 2 << 38;
const LOCKED: u64 = 2 << 24;
const TLB_HIT: u64 = (2 | 8 | 0x10) << 26;
const TLB_MISS: u64 = (4 | 0x20) << 26;
const BLOCKED_DATA: u64 = 2 << 40;
const BLOCKED_ADDRESS: u64 = 4 << 40;
/// A number of a level, and a flag for remote accesses.
const RAM: u64 = 0xd << 33;
const REMOTE: u64 = 1 << 37;

/// Returns accesses of two threads on four CPUs: to two cache lines that they share, to others, and to memory of each kind.
fn samples(addresses: &Addresses<'_>) -> Vec<Sample> {
    let (reader, writer) = (addresses.at("reader", 4), addresses.at("writer", 4));
    let (shared, other) =
        (|offset| addresses.at("shared_line", offset), |offset| addresses.at("other_line", offset));
    let mut samples = Vec::new();
    let mut load = |data: u64, cpu: u32, weight: u32, source: u64| {
        let thread = PID + cpu / 2;
        samples.push(Sample { event: 0, thread, cpu, code: reader, data, weight, source: LOAD | source });
    };
    for place in 0..5 {
        load(shared(0), place % 4, 100 + place, HIT | L3 | HITM | TLB_HIT);
    }
    for _ in 0..3 {
        load(shared(0), 2, 300, HIT | REMOTE_CACHE | HITM | TLB_MISS);
    }
    load(shared(8), 1, 33, HIT | L1 | SNOOP_NONE | LOCKED);
    load(other(0), 2, 500, HIT | FAR_CACHE | SNOOP_HIT | TLB_HIT);
    load(other(0), 3, 501, HIT | FAR_CACHE | HITM | TLB_HIT);
    let table = |offset| addresses.at("table", offset);
    load(table(56), 1, 40, HIT | FILL_BUFFER | SNOOP_NONE);
    load(table(64), 0, 50, HIT | LOCAL_RAM | SNOOP_HIT | BLOCKED_DATA);
    load(table(72), 3, 60, HIT | REMOTE_RAM | SNOOP_MISS | BLOCKED_ADDRESS);
    load(table(80), 3, 61, HIT | L2 | PEER);
    load(table(88), 1, 62, MISS | L3);
    load(table(96), 1, 70, HIT | RAM | REMOTE);
    load(addresses.at("zeroed", 0), 1, 5, HIT | L1);
    load(heap(16), 3, 7, HIT | L1);
    load(anonymous(16), 3, 8, HIT | L1);
    load(0, 3, 9, HIT | L1);
    load(0x1234, 3, 10, HIT | UNCACHED);
    let mut store = |data: u64, cpu: u32, source: u64| {
        let (thread, source) = (PID + cpu / 2, if source == 0 { 1 } else { STORE | source });
        samples.push(Sample { event: 1, thread, cpu, code: writer, data, weight: 0, source });
    };
    for place in 0..4 {
        store(shared(8), place % 2, HIT | L1);
    }
    store(shared(8), 3, MISS | L1);
    store(other(16), 3, NO_LEVEL);
    store(other(24), 3, 0);
    store(addresses.at("zeroed", 32_000), 0, HIT | L1);
    samples
}

fn run(program: &str, dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the lines of a table without headings, with one separator between cells. Perf adds cells for the kind of the CPU, `-`.
fn rows(text: &str) -> Vec<String> {
    let is_row = |line: &&str| !line.starts_with('#') && !line.trim().is_empty();
    let cells = |line: &str| {
        let cells = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty() && *cell != "-");
        cells.collect::<Vec<_>>().join(" | ")
    };
    text.lines().filter(is_row).map(cells).collect()
}

fn sorted(mut rows: Vec<String>) -> Vec<String> {
    rows.sort();
    rows
}

/// Writes the recording of a compiled program, which must exist for its symbols.
fn recorded(dir: &Path) -> Program {
    let program = Program::compile_shared();
    let addresses = Addresses::of(program.path());
    file::write(&dir.join("perf.data"), &addresses, &samples(&addresses));
    program
}

#[test]
fn memory_accesses_have_the_shares_names_and_sources_of_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _program = recorded(dir.path());
    for options in
        [&[][..], &["-s", "mem,symbol_daddr"], &["-s", "local_weight,tlb,snoop"], &["-s", "sym,dso_daddr"]]
    {
        let own = rows(&run(OWN, dir.path(), &[&["mem", "report"], options].concat()));
        let perf = rows(&run("perf", dir.path(), &[&["mem", "report", "--stdio"], options].concat()));
        // Entries of equal shares have another order.
        assert_eq!(sorted(own), sorted(perf), "{options:?}");
    }
    let own = run(OWN, dir.path(), &["mem", "report"]);
    assert!(own.contains("# Samples: 22  of event 'cpu/mem-loads,ldlat=30/P'"), "{own}");
    let row = rows(&own).into_iter().find(|row| row.contains("Remote Cache (1 hop) hit")).unwrap();
    assert!(
        row.contains("| 300 | Remote Cache (1 hop) hit | [.] reader | shared | [.] shared_line+0x0 | shared"),
        "{row}"
    );
}

#[test]
fn stores_have_no_latency() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _program = recorded(dir.path());
    let own = rows(&run(OWN, dir.path(), &["mem", "report", "-t", "store"]));
    let perf = rows(&run("perf", dir.path(), &["mem", "-t", "store", "report", "--stdio"]));
    assert_eq!(sorted(own), sorted(perf));
}

#[test]
fn cache_lines_have_the_figures_of_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _program = recorded(dir.path());
    for options in [
        &[][..],
        &["-d", "lcl"],
        &["-d", "rmt"],
        &["-c", "pid,iaddr"],
        &["-c", "tid,iaddr"],
        &["-c", "tid"],
        &["-c", "dso"],
        &["--no-source"],
        &["--show-all"],
        &["--stats"],
    ] {
        let arguments = [&["c2c", "report", "--stdio"], options].concat();
        let own = rows(&run(OWN, dir.path(), &arguments));
        let perf = rows(&run("perf", dir.path(), &arguments));
        assert!(perf.len() > 30, "{perf:?}");
        assert_eq!(own, perf, "{options:?}");
    }
}

/// The kernel reports the address of a page fault, and that nothing else is known of it. So this recording is a real one.
#[test]
fn page_faults_are_attributed_to_the_files_and_memory_of_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::compile_shared();
    let perf = ["record", "-q", "-e", "page-faults", "-c", "1", "-d", "-W", "-o", "perf.data", "--"];
    run("perf", dir.path(), &[&perf[..], &[program.path().to_str().unwrap()]].concat());
    let arguments = ["mem", "report", "--stdio", "-s", "dso_daddr"];
    let own = rows(&run(OWN, dir.path(), &arguments));
    assert_eq!(sorted(own.clone()), sorted(rows(&run("perf", dir.path(), &arguments))));
    for object in ["shared", "anon", "[stack]"] {
        assert!(own.iter().any(|row| row.ends_with(&format!("| {object}"))), "{object}: {own:?}");
    }
    let arguments = ["c2c", "report", "--stats"];
    // Perf divides by 0.
    let figures = |text: String| text.replace("-nan%", "0.0%").replace("nan%", "0.0%");
    let own = rows(&run(OWN, dir.path(), &arguments));
    assert_eq!(own, rows(&figures(run("perf", dir.path(), &arguments))));
}

#[test]
fn a_recording_without_memory_accesses_is_rejected_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/perf_data/clock.data");
    fs::copy(clock, dir.path().join("perf.data")).unwrap();
    for command in ["mem", "c2c"] {
        let output = Command::new(OWN).args([command, "report"]).current_dir(dir.path()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("has no memory accesses: record with perf-exporter mem record"), "{error}");
    }
}

#[test]
fn changed_bytes_of_a_recording_are_an_error_or_a_result() {
    if lacks(Feature::Compiler) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let _program = recorded(dir.path());
    let bytes = host::read(&dir.path().join("perf.data")).unwrap();
    let files = Files::here(&Roots::under(Path::new("/nonexistent")));
    let lines = |bytes: &[u8]| {
        let accesses =
            Accesses::read_at(&bytes, &Options::default(), &files).map_err(|error| error.to_string())?;
        Ok::<_, String>(CacheLines::new(&accesses, &LineOptions::default()).to_string())
    };
    assert!(lines(&bytes).unwrap().contains("Total records                     :         30"));
    for place in (0..bytes.len()).step_by(3) {
        for value in [0, 0xff, bytes[place] ^ 0x20] {
            let mut changed = bytes.clone();
            changed[place] = value;
            let text = lines(&changed).unwrap_or_else(|error| error);
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{place}: {text}");
        }
    }
    for length in 0..bytes.len() {
        // The features at the end are not necessary.
        if let Err(error) = lines(&bytes[..length]) {
            assert!(!error.contains(char::is_control), "{length}: {error}");
        }
    }
}
