//! `perf-exporter lock futex`: waits of a program that prints its waits.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::support::program::Program;
use crate::support::{Feature, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// The least durations that the program enforces, in milliseconds: its thread holds the mutex for that long after it sees the wait.
const MUTEX: f64 = 10.0 * 20.0;
const TIME: f64 = 5.0 * 10.0;

fn lacks_calls() -> bool {
    [Feature::Software, Feature::Tracepoint, Feature::Compiler].into_iter().any(lacks)
}

/// A row of the table.
#[derive(Debug, Default)]
struct Row {
    contended: u64,
    /// Milliseconds.
    total: f64,
    timeouts: u64,
    failed: u64,
    again: u64,
}

/// Runs the program. Returns what it printed, and the rows by type and by the rest of the line.
fn traced(program: &Program, options: &[&str]) -> (String, BTreeMap<String, Row>) {
    let mut command = Command::new(PERF_EXPORTER);
    command.env_remove("LD_LIBRARY_PATH").args(["lock", "futex"]).args(options).arg("--").arg(program.path());
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let text = String::from_utf8(output.stdout).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [contended, total, unit, _, _, _, _, timeouts, failed, again, rest @ ..] = &words[..] else {
            continue;
        };
        let (Ok(contended), Ok(total)) = (contended.parse(), total.parse::<f64>()) else { continue };
        let total = total * if *unit == "s" { 1e3 } else { 1.0 };
        let [timeouts, failed, again] = [timeouts, failed, again].map(|count| count.parse().unwrap());
        rows.insert(rest.join(" "), Row { contended, total, timeouts, failed, again });
    }
    (text, rows)
}

/// Returns the only row with these words.
fn only<'r>(rows: &'r BTreeMap<String, Row>, words: &str) -> &'r Row {
    let found: Vec<_> = rows.iter().filter(|(row, _)| row.contains(words)).collect();
    assert_eq!(found.len(), 1, "{words}: {rows:?}");
    found[0].1
}

#[test]
fn waits_are_those_of_the_functions_that_call_the_c_library() {
    if lacks_calls() {
        return;
    }
    let (text, rows) = traced(&Program::compile_futexes(), &[]);
    let printed = |function: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(function)?.split_whitespace().nth(1));
        line.unwrap().parse::<f64>().unwrap() / 1e6
    };
    let mutex = only(&rows, "wait waits_for_mutex+0x");
    assert_eq!((mutex.contended, mutex.timeouts, mutex.failed), (10, 0, 0), "{text}");
    // The table has two decimals. The program also measures the calls of its library.
    assert!(mutex.total >= MUTEX && mutex.total <= printed("waits_for_mutex") + 0.1, "{text}");
    let time = only(&rows, "wait waits_for_time+0x");
    assert_eq!((time.contended, time.timeouts, time.failed, time.again), (5, 5, 0, 0), "{text}");
    assert!(time.total >= TIME && time.total <= printed("waits_for_time") + 0.1, "{text}");
    let value = only(&rows, "wait finds_a_value+0x");
    assert_eq!((value.contended, value.again), (0, 7), "{text}");
    assert!(rows.keys().all(|row| row.ends_with(" (futexes)")), "{text}");
}

#[test]
fn waits_are_those_of_the_locks_with_these_addresses() {
    if lacks_calls() {
        return;
    }
    let (text, rows) = traced(&Program::compile_futexes(), &["-l"]);
    let lock = |name: &str| {
        let address = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" 0x")).unwrap();
        only(&rows, &format!("{:#018x} futexes/", u64::from_str_radix(address, 16).unwrap()))
    };
    assert_eq!(lock("mutex").contended, 10, "{text}");
    let word = lock("word");
    assert_eq!((word.contended, word.timeouts, word.again), (5, 5, 7), "{text}");
}

#[test]
fn a_call_chain_begins_in_the_c_library_and_leads_to_main() {
    if lacks_calls() {
        return;
    }
    let (text, _) = traced(&Program::compile_futexes(), &["-v", "-k", "contended", "-E", "1"]);
    let mut lines = text.lines().skip_while(|line| !line.contains("waits_for_mutex+0x"));
    assert!(lines.next().is_some(), "{text}");
    let chain: Vec<&str> = lines.take_while(|line| line.starts_with('\t')).map(str::trim).collect();
    let caller = chain.iter().position(|function| function.starts_with("waits_for_mutex+0x")).unwrap();
    assert!(caller >= 1 && chain[..caller].iter().all(|function| function.contains(" (libc")), "{text}");
    assert!(chain[caller + 1].starts_with("main+0x"), "{text}");
}
