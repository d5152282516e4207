//! `perf-exporter kmem`: allocations of the kernel, beside `perf kmem stat` of the same program.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::support::perf_tables::allocations as rows;
use crate::support::{Feature, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn allocations_of_a_program_are_those_of_perf() {
    if [Feature::Software, Feature::Tracepoint, Feature::Perf].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data").to_str().unwrap().to_owned();
    let events = "kmem:kmalloc,kmem:kmem_cache_alloc,kmem:kfree,kmem:kmem_cache_free";
    let mut recorded = Command::new("perf");
    recorded.args(["record", "-q", "-m", "4M", "-o", &data, "-e", events, "--", PERF_EXPORTER, "kmem", "--"]);
    let printed =
        output(recorded.args(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do ls / > /dev/null; done"]));
    let theirs = rows(&output(Command::new("perf").args(["kmem", "--caller", "-i", &data, "stat"])));
    let ours = rows(&printed);
    let mut compared = 0;
    // Functions that allocate once or twice for each program that is executed. perf also records the program of this test, because it is a
    // child of perf-exporter, while perf-exporter counts from its execve on.
    for function in ["alloc_bprm", "load_elf_phdrs", "load_elf_binary", "mm_alloc"] {
        let (Some(own), Some(of_perf)) = (ours.get(function), theirs.get(function)) else { continue };
        for (own, of_perf) in own.iter().zip(of_perf) {
            assert_eq!(own * 11, of_perf * 10, "{function}: {ours:?}\nperf: {theirs:?}");
        }
        compared += 1;
    }
    assert!(compared > 0, "{printed}");
    let number = |heading: &str| {
        let line = printed.lines().find(|line| line.starts_with(heading)).unwrap_or_default();
        line.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok()).unwrap_or_default()
    };
    let all = ours.values().fold([0; 3], |[a, b, c], [x, y, z]| [a + x, b + y, c + z]);
    assert_eq!(
        [number("Total bytes allocated:"), number("Total bytes requested:")],
        [all[0], all[1]],
        "{printed}"
    );
    assert!(
        number("Total bytes freed:") <= all[0] && number("Total bytes freed:") > all[0] / 10,
        "{printed}"
    );
}

/// Number of page allocations of a program by order and type of mobility, from the records of perf.
fn recorded_pages(data: &str, comm: &str) -> BTreeMap<(u64, u64), f64> {
    let script = output(Command::new("perf").args(["script", "-F", "comm,event,trace", "-i", data]));
    let mut pages = BTreeMap::new();
    for line in script.lines() {
        let number = |name: &str| {
            let word = line.split_whitespace().find_map(|word| word.strip_prefix(name));
            word.and_then(|word| word.parse::<u64>().ok())
        };
        let is_own =
            line.trim_start().starts_with(&format!("{comm} ")) && line.contains(" kmem:mm_page_alloc: ");
        if let (true, Some(order), Some(migrate_type)) = (is_own, number("order="), number("migratetype=")) {
            *pages.entry((order, migrate_type)).or_default() += 1.0;
        }
    }
    pages
}

#[test]
fn pages_of_a_program_are_those_of_perf() {
    if [Feature::Software, Feature::Tracepoint, Feature::Perf].into_iter().any(lacks) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("perf.data").to_str().unwrap().to_owned();
    let mut recorded = Command::new("perf");
    recorded.args(["record", "-q", "-m", "4M", "-e", "kmem:mm_page_alloc,kmem:mm_page_free", "-o", &data]);
    recorded.args(["--", PERF_EXPORTER, "kmem", "--page", "--"]);
    // 32 MiB of new pages. perf also records perf-exporter, which has another name.
    let printed = output(recorded.args(["dd", "if=/dev/zero", "of=/dev/null", "bs=32M", "count=1"]));
    let theirs = recorded_pages(&data, "dd");
    let of_type = |order: u64, migrate_type: usize| {
        let table = printed.lines().skip_while(|line| !line.starts_with("Order "));
        let row = table.skip(2).find(|line| line.trim_start().starts_with(&format!("{order} ")));
        let cell = row.and_then(|row| row.split_whitespace().nth(1 + migrate_type));
        cell.and_then(|cell| cell.parse::<f64>().ok()).unwrap_or_default()
    };
    let figures = format!("{printed}\nperf: {theirs:?}");
    for order in 0..=10 {
        for migrate_type in 0..=2 {
            let of_perf = theirs.get(&(order, migrate_type)).copied().unwrap_or_default();
            let own = of_type(order, migrate_type as usize);
            // Whether pages of execve(2) belong to the new program is a question of microseconds.
            assert!(
                (own - of_perf).abs() <= 0.005 * of_perf + 8.0,
                "order {order}, type {migrate_type}: {figures}"
            );
        }
    }
    // With huge pages, 32 MiB are 16 pages of order 9.
    assert!(of_type(0, 1) >= 8192.0 || of_type(9, 1) >= 15.0, "{figures}");
    let rows = printed.lines().filter_map(|line| line.split('|').nth(1)?.trim().parse::<f64>().ok());
    let all = (0..=10).flat_map(|order| (0..5).map(move |migrate_type| (order, migrate_type)));
    let all: f64 = all.map(|(order, migrate_type)| of_type(order, migrate_type)).sum();
    assert_eq!(rows.sum::<f64>(), all, "{figures}");
    let fault = printed.lines().find(|line| line.contains("| GFP_HIGHUSER_MOVABLE|"));
    let caller = fault.and_then(|line| line.rsplit('|').next()).unwrap_or_else(|| panic!("{figures}"));
    assert!(!caller.contains("alloc_pages") && !caller.contains("0xffff"), "{figures}");
}
