//! `perf-exporter trace`: page faults and call chains, beside those of perf.

use std::process::{Command, Stdio};

use crate::support::program::Program;
use crate::support::{Feature, lacks};

const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

fn lacks_tracing() -> bool {
    [Feature::Software, Feature::Tracepoint, Feature::Compiler].into_iter().any(lacks)
}

fn lines_of(command: &mut Command) -> Vec<String> {
    let output = command.env_remove("LD_LIBRARY_PATH").stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

/// Returns the texts of the page faults of `true`.
fn faults(lines: &[String]) -> Vec<&str> {
    lines
        .iter()
        .filter_map(|line| line.split_once(" true/")?.1.split_once(' '))
        .map(|(_, text)| text)
        .collect()
}

#[test]
fn page_faults_are_those_of_perf() {
    if lacks_tracing() || lacks(Feature::Perf) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf").to_str().unwrap().to_owned();
    let options = ["trace", "-F", "all", "--no-syscalls"];
    // Both trace the same process.
    let mut command = Command::new("perf");
    command
        .args(options)
        .args(["-m", "4M", "-o", &path, "--", PERF_EXPORTER])
        .args(options)
        .args(["--", "true"]);
    let own = lines_of(&mut command);
    let perf = lines_of(Command::new("cat").arg(&path));
    let (own, perf) = (faults(&own), faults(&perf));
    assert!(own.len() > 20, "{own:?}");
    assert_eq!(own.len(), perf.len(), "{own:#?} {perf:#?}");
    for (own, perf) in own.iter().zip(&perf) {
        let (instruction, address) = own.split_once(" => ").unwrap();
        let (expected, expected_address) = perf.split_once(" => ").unwrap();
        // A function can have several names.
        let offset = |text: &str| text.rsplit_once("+0x").map(|(_, offset)| offset.to_owned());
        assert_eq!(offset(instruction), offset(expected), "{own} instead of {perf}");
        assert!(instruction.starts_with("minfault [") || instruction.starts_with("majfault ["), "{own}");
        // Perf has a copy of the vDSO, and no mapping for accesses of the kernel.
        if !expected_address.contains("perf-vdso") && !expected_address.ends_with("(?k)") {
            assert_eq!(address, expected_address, "{own} instead of {perf}");
        }
        assert_eq!(address.ends_with("k)"), expected_address.ends_with("k)"), "{own} instead of {perf}");
    }
}

#[test]
fn major_and_minor_faults_are_selected_and_counted() {
    if lacks_tracing() {
        return;
    }
    let trace = |options: &[&str]| {
        lines_of(Command::new(PERF_EXPORTER).arg("trace").args(options).args(["--", "true"]))
    };
    let minor = trace(&["-F", "min", "--no-syscalls"]);
    assert!(
        minor.len() > 20 && minor.iter().all(|line| line.contains(": true/") && line.contains(" minfault ["))
    );
    let beside = trace(&["-F", "all"]);
    assert!(beside.iter().any(|line| line.contains(" minfault [")));
    assert!(beside.iter().any(|line| line.contains(" openat(")));
    let summary = trace(&["-F", "min", "-s"]).join("\n");
    assert!(summary.contains("%, ") && summary.contains(" minfaults\n"), "{summary}");
}

/// Returns the call chains of the calls that time out, without inlined functions: function and file of each.
fn chains(lines: &[String]) -> Vec<Vec<(&str, &str)>> {
    let mut chains: Vec<Vec<_>> = Vec::new();
    let mut is_wanted = false;
    for line in lines {
        let Some(function) = line.strip_prefix("                                       ") else {
            is_wanted = line.contains(" futex(") && line.contains("ETIMEDOUT");
            chains.extend(is_wanted.then(Vec::new));
            continue;
        };
        let Some((name, file)) = function.rsplit_once(" (") else { continue };
        if is_wanted && file != "inlined)" {
            chains.last_mut().unwrap().push((name, file));
        }
    }
    chains
}

#[test]
fn call_chains_are_those_of_perf() {
    if lacks_tracing() || lacks(Feature::Perf) {
        return;
    }
    let program = Program::compile_futexes();
    for how in ["dwarf", "fp"] {
        let options = ["trace", "-e", "futex", "--call-graph", how];
        let run = |name: &str| lines_of(Command::new(name).args(options).arg("--").arg(program.path()));
        let (own, perf) = (run(PERF_EXPORTER), run("perf"));
        let (own, perf) = (chains(&own), chains(&perf));
        assert_eq!((own.len(), perf.len()), (5, 5), "{how}: {own:?} {perf:?}");
        let (own, perf) = (&own[0], &perf[0]);
        let of_program = |chain: &[(&str, &str)]| -> Vec<String> {
            let functions = chain.iter().filter(|(_, file)| file.ends_with("/futexes)"));
            functions.map(|(name, _)| (*name).to_owned()).collect()
        };
        assert_eq!(of_program(own), of_program(perf), "{how}: {own:?} {perf:?}");
        assert!(of_program(own).contains(&"main".to_owned()), "{how}: {own:?}");
        // A function of the C library can have several names, and perf takes some of them for inlined functions.
        let files = |chain: &[(&str, &str)]| {
            let to_main = chain.iter().take_while(|(name, _)| *name != "main");
            to_main.map(|(_, file)| (*file).to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(files(own), files(perf), "{how}: {own:?} {perf:?}");
    }
}

#[test]
fn functions_of_the_kernel_and_the_depth_are_options() {
    if lacks_tracing() {
        return;
    }
    let program = Program::compile_futexes();
    let run = |options: &[&str]| {
        let mut command = Command::new(PERF_EXPORTER);
        lines_of(command.args(["trace", "-e", "futex"]).args(options).arg("--").arg(program.path()))
    };
    let shallow = run(&["--max-stack", "2"]);
    assert!(
        chains(&shallow).iter().all(|chain| chain.len() == 2 && chain[1].0 == "waits_for_time"),
        "{shallow:?}"
    );
    let kernel = run(&["--call-graph", "dwarf", "--kernel-syscall-graph"]);
    let kernel = chains(&kernel);
    assert!(kernel.iter().all(|chain| chain[0].1 == "[kernel.kallsyms])"), "{kernel:?}");
    assert!(kernel.iter().all(|chain| chain.iter().any(|(name, _)| *name == "main")), "{kernel:?}");
}
