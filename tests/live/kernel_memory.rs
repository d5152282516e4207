//! `perf-exporter kmem`: allocations of the kernel, beside `perf kmem stat` of the same program.

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
