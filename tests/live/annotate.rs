//! `perf-exporter annotate` and the page `/annotate` beside `perf annotate`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output};

use crate::support::program::Program;
use crate::support::service::{Service, get_path};
use crate::support::{Feature, lacks};

const OWN: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// Largest difference between two shares, in percent.
const POINT: f64 = 1.0;

fn run(program: &str, dir: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    output
}

/// Records the program while it spins.
fn record(by: &str, arguments: &[&str], program: &Program, dir: &Path) {
    let orders = dir.join("orders");
    fs::write(&orders, "spins 1000\nparts 1000\n").unwrap();
    let mut command = Command::new(by);
    command.args(arguments).arg("--").arg(program.path()).current_dir(dir);
    let recorded = command.stdin(File::open(orders).unwrap()).output().unwrap();
    assert!(recorded.status.success(), "{recorded:?}");
}

/// Returns the share of each address, and the instruction without spaces and operands.
fn shares(text: &str) -> BTreeMap<u64, (f64, String)> {
    let instruction = |line: &str| {
        let (share, rest) = line.split_once(" : ")?;
        let (address, text) = rest.trim_start().split_once(':')?;
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        let mnemonic = text.split_whitespace().next()?.to_owned();
        Some((address, (share.trim().parse().ok()?, mnemonic)))
    };
    text.lines().filter_map(instruction).collect()
}

/// Compares a function in a recording.
fn assert_agrees(dir: &Path, input: &str, function: &str) {
    let perf = ["annotate", "--stdio", "--stdio-color", "never", "-i", input, "-s", function];
    let perf = String::from_utf8(run("perf", dir, &perf).stdout).unwrap();
    let own = String::from_utf8(run(OWN, dir, &["annotate", "-i", input, "-s", function]).stdout).unwrap();
    let (expected, found) = (shares(&perf), shares(&own));
    assert!(expected.len() > 5, "{perf}");
    let addresses = |shares: &BTreeMap<u64, (f64, String)>| shares.keys().copied().collect::<Vec<_>>();
    assert_eq!(addresses(&found), addresses(&expected), "{own}\n{perf}");
    for (address, (share, mnemonic)) in &expected {
        let (own_share, own_mnemonic) = &found[address];
        assert_eq!(own_mnemonic, mnemonic, "{address:#x}\n{own}\n{perf}");
        assert!((share - own_share).abs() <= POINT, "{address:#x}: {share} {own_share}\n{own}\n{perf}");
    }
    let header = |text: &str| text.lines().find(|line| line.starts_with(" Percent")).map(str::to_owned);
    assert_eq!(header(&own), header(&perf));
}

#[test]
fn shares_of_instructions_are_those_of_perf() {
    if [Feature::Perf, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::compile_hot("hot", &["-g"]);
    record(
        "perf",
        &["record", "-q", "-e", "cpu-clock", "-F", "999", "-o", "perf.data"],
        &program,
        dir.path(),
    );
    for function in ["burns", "part_25", "part_22"] {
        assert_agrees(dir.path(), "perf.data", function);
    }
    record(OWN, &["record", "-F", "999", "-o", "own.data"], &program, dir.path());
    assert_agrees(dir.path(), "own.data", "burns");
    // Without a function, all are shown; with debug information, with their source.
    let all = run(OWN, dir.path(), &["annotate", "-l", "--dsos", "hot"]);
    let text = String::from_utf8(all.stdout).unwrap();
    assert!(text.contains("sink += i * i;") && text.contains("Sorted summary for file"), "{text}");
    let place = |function: &str| text.find(&format!("<{function}>:")).unwrap();
    assert!(place("burns") < place("part_25"), "{text}");
}

#[test]
fn a_profile_in_pprof_is_annotated_too() {
    if [Feature::Software, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = Program::compile_hot("hot", &[]);
    record(OWN, &["record", "-F", "999", "-o", "hot.pb.gz"], &program, dir.path());
    let output = run(OWN, dir.path(), &["annotate", "-i", "hot.pb.gz", "burns"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let shares = shares(&text);
    let sum: f64 = shares.values().map(|(share, _)| share).sum();
    assert!((sum - 100.0).abs() < 0.5, "{sum}: {text}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no debug information"), "{output:?}");
    // Another build at the same path is not the sampled one. Perf may have kept a copy of that in the home directory.
    fs::copy("/bin/true", program.path().with_extension("new")).unwrap();
    fs::rename(program.path().with_extension("new"), program.path()).unwrap();
    let mut refused = Command::new(OWN);
    refused.args(["annotate", "-i", "hot.pb.gz", "burns"]).current_dir(dir.path()).env("HOME", dir.path());
    let refused = refused.output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is another build"), "{refused:?}");
}

#[test]
fn a_running_service_annotates_functions_of_its_profiles() {
    if [Feature::Software, Feature::Compiler].into_iter().any(lacks) {
        return;
    }
    let service = Service::start_fresh(
        "counters: {os: {events: [context-switches], per: [cpu]}}\n\
         profiles: {cpu: {event: cpu-clock, frequency: 499, lines: true}}\n",
    );
    let program = Program::compile_hot("annotated", &["-g"]);
    let mut running = program.start();
    running.does("spins 2000");
    let query = "comm=annotated&symbol=burns";
    let (_, body) = get_path(&service.address, &format!("/annotate?{query}&format=json"));
    let annotated: perf_exporter::annotate::Annotated = serde_json::from_str(&body).unwrap();
    assert_eq!((&*annotated.function, &*annotated.event), ("burns", "cpu"));
    assert_eq!(annotated.module, program.path().to_str().unwrap());
    assert!(annotated.samples > 100 && annotated.value <= annotated.total, "{annotated:?}");
    let (mut sum, mut source) = (0, false);
    for row in &annotated.rows {
        match row {
            perf_exporter::annotate::Row::Instruction { samples, .. } => sum += samples,
            perf_exporter::annotate::Row::Source { text, .. } => {
                source |= text.as_deref().is_some_and(|text| text.contains("sink += i * i"));
            }
        }
    }
    assert_eq!(sum, annotated.samples);
    assert!(source, "{annotated:?}");
    let (_, page) = get_path(&service.address, &format!("/annotate?{query}"));
    assert!(page.contains("<td class=\"source\""), "{page}");
    let (_, table) = get_path(&service.address, "/top?comm=annotated");
    assert!(table.contains("/annotate?") && table.contains("symbol=burns"), "{table}");
    let url = format!("http://{}/?comm=annotated", service.address);
    let output = run(OWN, Path::new("/"), &["annotate", "-i", &url]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("<burns>:") && !shares(&text).is_empty(), "{text}");
    drop(running);
    let (_, text) = get_path(&service.address, &format!("/annotate?{query}&format=text"));
    assert!(!shares(&text).is_empty(), "the file is on the host, after the end of its process: {text}");
}
