//! The checks of the table.

use std::process::Command;

use perf_exporter::host;

use super::{Setup, has, matching};
use crate::support::program::Program;

pub(super) fn stat_heading(setup: &Setup) {
    has(&setup.said(&["stat", "true"]), &["Performance counter stats for 'true':"]);
}

pub(super) fn stat_report(setup: &Setup) {
    setup.said(&["stat", "record", "-o", "counts.data", "true"]);
    has(&setup.said(&["stat", "report", "-i", "counts.data"]), &["Performance counter stats for '.*true':"]);
}

pub(super) fn weak_group(setup: &Setup) {
    let group = format!("{{{}}}:W", ["cycles"; 10].join(","));
    setup.said(&["stat", "-r2", "-e", &group, "true"]);
}

pub(super) fn list_json(setup: &Setup) {
    let text = setup.said(&["list", "-j", "--no-open"]);
    assert!(text.lines().count() > 10, "{text}");
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// Returns the rows of `lock contention` while threads wait for the lock of their mappings.
fn contended(setup: &Setup, options: &[&str]) -> Vec<String> {
    let program = Program::compile_scheduled();
    let command = [program.path().to_str().unwrap(), "contend", "8", "500"];
    let text = setup.said(&[&["lock", "contention", "-a"], options, &["--"], &command].concat());
    matching(&text, r"^ +\d+ +\d+\.\d+ [mun]?s ").into_iter().map(str::to_owned).collect()
}

fn has_one_row(setup: &Setup, options: &[&str]) {
    let rows = contended(setup, &[options, &["-E", "1"]].concat());
    assert_eq!(rows.len(), 1, "{options:?}: {rows:#?}");
}

pub(super) fn lock_one_row(setup: &Setup) {
    has_one_row(setup, &[]);
}

pub(super) fn lock_one_thread(setup: &Setup) {
    has_one_row(setup, &["--threads"]);
}

pub(super) fn lock_one_address(setup: &Setup) {
    has_one_row(setup, &["--lock-addr"]);
}

pub(super) fn lock_spinlocks(setup: &Setup) {
    let rows = contended(setup, &["-Y", "spinlock"]);
    assert!(rows.iter().all(|row| row.contains("spinlock")), "{rows:#?}");
}

pub(super) fn lock_filter(setup: &Setup) {
    // The locks of the program are in allocated memory, at addresses that are not known before.
    assert_eq!(contended(setup, &["-l", "-L", "0x1"]), [""; 0]);
    has(&setup.rejected(&["lock", "contention", "-L", "no_such_lock", "--", "true"]), &["-L no_such_lock"]);
}

pub(super) fn lock_callers(setup: &Setup) {
    let rows = contended(setup, &["-S", "mmap,munmap"]);
    assert!(!rows.is_empty());
    assert_eq!(contended(setup, &["-S", "no_such_function"]), [""; 0]);
}

pub(super) fn lock_columns(setup: &Setup) {
    let program = Program::compile_scheduled();
    let command = [program.path().to_str().unwrap(), "contend", "8", "500"];
    let text = setup.said(&[&["lock", "contention", "-a", "-x", ":::", "--"][..], &command].concat());
    let rows = matching(&text, r"^(# output: contended|\d+):::");
    assert!(rows.len() > 1 && rows[0].starts_with('#'), "{text}");
    assert!(rows.iter().all(|row| row.matches(":::").count() == 5), "{text}");
}

pub(super) fn timechart(setup: &Setup) {
    setup.said(&["sched", "timechart", "-o", "chart.svg", "--", "true"]);
    assert!(host::read_text(&setup.file("chart.svg")).unwrap().starts_with("<svg"));
}

pub(super) fn sched_latency(setup: &Setup) {
    let _spinners = [setup.spinner(), setup.spinner()];
    has(&setup.said(&["sched", "latency", "-a", "sleep", "0.5"]), &[r"^ +hot:"]);
}

/// The expression of `trace_summary.sh`.
const CALLS: &str = r"^\s*(open|read|close).*[0-9]+%$";

fn has_summary(setup: &Setup, options: &[&str]) {
    let text = setup.said(&[&["trace"], options, &["--", "true"]].concat());
    assert!(matching(&text, CALLS).len() >= 3, "{text}");
}

pub(super) fn trace_summary(setup: &Setup) {
    has_summary(setup, &["-s"]);
}

pub(super) fn trace_with_summary(setup: &Setup) {
    has_summary(setup, &["-S"]);
}

pub(super) fn trace_summary_of_machine(setup: &Setup) {
    has_summary(setup, &["-a", "-s"]);
}

pub(super) fn trace_last_call(setup: &Setup) {
    for _ in 0..10 {
        let text = setup.said(&["trace", "-e", "syscalls:sys_enter_exit_group", "true"]);
        has(&text, &[r" +[0-9]+\.[0-9]+ true/[0-9]+ syscalls:sys_enter_exit_group\("]);
    }
}

/// Returns the entries of a recording, without headings.
fn entries(setup: &Setup, file: &str) -> String {
    setup.said(&["report", "-q", "-g", "none", "-i", file])
}

pub(super) fn record_command(setup: &Setup) {
    has(&entries(setup, "perf.data"), &[r"hot +hot +\[\.\] burns"]);
}

pub(super) fn record_machine(setup: &Setup) {
    let _spinner = setup.spinner();
    setup.said(&["record", "-a", "-e", "cpu-clock", "-o", "machine.data", "sleep", "0.5"]);
    has(&entries(setup, "machine.data"), &[r"hot +hot +\[\.\] burns"]);
}

pub(super) fn record_process(setup: &Setup) {
    let spinner = setup.spinner();
    let pid = spinner.0.id().to_string();
    setup.said(&["record", "-p", &pid, "-e", "cpu-clock", "-o", "process.data", "sleep", "0.5"]);
    has(&entries(setup, "process.data"), &[r"hot +hot +\[\.\] burns"]);
}

pub(super) fn record_cgroup(setup: &Setup) {
    let text = setup.said(&["script", "-i", "perf.data", "-F", "comm,cgroup"]);
    let paths = matching(&text, r"^ +hot +/");
    assert!(!paths.is_empty() && matching(&text, "unknown").is_empty(), "{text}");
}

pub(super) fn record_waits(setup: &Setup) {
    setup.said(&["record", "--off-cpu", "-o", "waits.pb.gz", "sleep", "0.5"]);
    let text = setup.said(&["report", "-q", "-g", "none", "--percent-limit", "90", "-i", "waits.pb.gz"]);
    has(&text, &[r"% +\d+\.\d+% +sleep "]);
}

pub(super) fn record_compressed(setup: &Setup) {
    setup.records("compressed.data", &["-z"]);
    has(&entries(setup, "compressed.data"), &[r"hot +hot +\[\.\] burns"]);
    let size = |name| std::fs::metadata(setup.file(name)).unwrap().len();
    assert!(size("compressed.data") < size("perf.data"));
}

pub(super) fn truncated(setup: &Setup) {
    let bytes = host::read(&setup.file("perf.data")).unwrap();
    for length in [8, 64, 256, bytes.len() * 3 / 4] {
        std::fs::write(setup.file("truncated.data"), &bytes[..length]).unwrap();
        let said = setup.rejected(&["report", "--stdio", "-i", "truncated.data"]);
        assert!(said.contains("damaged"), "{said}");
    }
}

pub(super) fn header(setup: &Setup) {
    let text = setup.said(&["report", "--header-only", "-i", "perf.data"]);
    let fields = [
        "captured on",
        "hostname",
        "os release",
        "perf version",
        "arch",
        "nrcpus online",
        "nrcpus avail",
        "total memory",
        "cmdline",
        "event",
    ];
    has(&text, &fields.map(|field| format!("^# {field} *: .")).each_ref().map(|field| &**field));
}

pub(super) fn report_table(setup: &Setup) {
    let text = setup.said(&["report", "--stdio", "-i", "perf.data"]);
    has(
        &text,
        &[
            r"#\s*Total Lost Samples:\s+\d+",
            r"#\s*Samples:\s+\d+\w?\s+of\s+event\s+'cpu-clock'",
            r"#\s*Children\s+Self\s+Command\s+Shared Object\s+Symbol",
            r"^\s*\d+\.\d+%\s+\d+\.\d+%\s+hot\s+hot\s+\[\.\]\s+burns",
        ],
    );
}

pub(super) fn report_numbers(setup: &Setup) {
    let text = setup.said(&["report", "--stdio", "-n", "-i", "perf.data"]);
    has(
        &text,
        &[
            r"#\s*Children\s+Self\s+Samples\s+Command\s+Shared Object\s+Symbol",
            r"^\s*\d+\.\d+%\s+\d+\.\d+%\s+\d+\s+hot\s+hot\s+\[\.\]\s+burns",
        ],
    );
}

pub(super) fn report_of_copy(setup: &Setup) {
    let copied =
        Command::new("cp").arg("-p").args(["perf.data", "copy.data"].map(|name| setup.file(name))).status();
    assert!(copied.unwrap().success());
    let captured = |file| {
        let text = setup.said(&["report", "--header-only", "-i", file]);
        matching(&text, "captured on").concat()
    };
    assert_eq!(captured("copy.data"), captured("perf.data"));
}

pub(super) fn report_without_symbol(setup: &Setup) {
    let text = setup.said(&["report", "--stdio", "-i", "perf.data", "--symbols", "dummynonexistingsymbol"]);
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with('#')), "{text}");
}

pub(super) fn diff(setup: &Setup) {
    setup.records("other.data", &[]);
    has(&setup.said(&["diff", "perf.data", "other.data"]), &["burns"]);
}

/// The expression of `annotate.sh`.
const INSTRUCTION: &str = r"[0-9]*\.[0-9]* *: *\w*: *\w*";

pub(super) fn annotate(setup: &Setup) {
    has(&setup.said(&["annotate", "-i", "perf.data"]), &["<burns>", INSTRUCTION]);
}

pub(super) fn annotate_function(setup: &Setup) {
    let text = setup.said(&["annotate", "-i", "perf.data", "burns"]);
    assert!(matching(&text, INSTRUCTION).len() >= 3, "{text}");
}

/// Adds a probe of a function of the program, and returns its name.
fn add(setup: &Setup, definition: &str) -> String {
    let text = setup.said(&["probe", "-x", setup.path(), "--add", definition, "--output", "json"]);
    let added: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    added["event"].as_str().unwrap().to_owned()
}

pub(super) fn probe_cycle(setup: &Setup) {
    let event = add(setup, &format!("shell_{}=spins", std::process::id()));
    for list in [&["probe", "-l"][..], &["list", "--no-open", &event]] {
        assert!(setup.said(list).contains(&event), "{list:?}");
    }
    let counts = setup.said(&["stat", "-x,", "-e", &event, "--", setup.path()]);
    assert!(matching(&counts, r"^1,").len() == 1, "{counts}");
    has(&setup.said(&["probe", "-d", &event]), &[&format!("Removed {event}")]);
    assert!(!setup.said(&["probe", "-l"]).contains(&event));
}

pub(super) fn probe_dry_run(setup: &Setup) {
    let name = format!("shell_dry_{}", std::process::id());
    let text = setup.said(&["probe", "-n", "-x", setup.path(), "--add", &format!("{name}=spins")]);
    assert!(text.contains(&name), "{text}");
    assert!(!setup.said(&["probe", "-l"]).contains(&name));
}

pub(super) fn probe_twice(setup: &Setup) {
    let prefix = format!("shell_two_{}", std::process::id());
    let events = [1, 2].map(|number| add(setup, &format!("{prefix}_{number}=burns")));
    let counts = setup.said(&["stat", "-x,", "-e", &events.join(","), "--", setup.path()]);
    let of = |event: &str| matching(&counts, event).first().and_then(|line| line.split(',').next());
    assert!(of(&events[0]).is_some_and(|count| count != "0"), "{counts}");
    assert_eq!(of(&events[0]), of(&events[1]), "{counts}");
    let removed = setup.said(&["probe", "-d", &format!("{prefix}_*")]);
    assert!(events.iter().all(|event| removed.contains(event)), "{removed}");
}

pub(super) fn probe_unknown_variable(setup: &Setup) {
    let name = "somenonexistingrandomstuffwhichisalsoprettylongorevenlongertoexceed64";
    let said = setup.rejected(&["probe", "-x", setup.path(), &format!("spins {name}")]);
    assert!(said.contains(name), "{said}");
}

pub(super) fn probe_missing_values(setup: &Setup) {
    for option in ["-a", "-d", "-L", "-V"] {
        has(&setup.rejected(&["probe", option]), &["the value is missing"]);
    }
}

pub(super) fn probe_exclusive_options(setup: &Setup) {
    for options in [
        "-a xxx -d xxx",
        "-a xxx -L foo",
        "-a xxx -V foo",
        "-a xxx -l",
        "-a xxx -F",
        "-d xxx -L foo",
        "-d xxx -V foo",
        "-d xxx -l",
        "-d xxx -F",
        "-L foo -V bar",
        "-L foo -l",
        "-L foo -F",
        "-V foo -l",
        "-V foo -F",
        "-l -F",
    ] {
        let arguments: Vec<&str> = ["probe"].into_iter().chain(options.split(' ')).collect();
        has(&setup.rejected(&arguments), &["cannot be used with"]);
    }
}

pub(super) fn probe_lines(setup: &Setup) {
    let lines = |range: &str| setup.run(&["probe", "-x", setup.path(), "--line", range]).status.success();
    for range in ["burns", "burns:1", "burns:0-1", "burns:1+1", "hot.c:33", "hot.c:33+1", "hot.c:33-34"] {
        assert!(lines(range), "{range}");
    }
    for range in ["burns:foo", "burns:1-foo", "burns:1+foo", "burns;lazy*pattern"] {
        assert!(!lines(range), "{range}");
    }
}

/// The source of `test_uprobe_from_different_cu.sh`, in other words.
pub(super) fn probe_of_other_unit(setup: &Setup) {
    let foo =
        "struct t { int *p; int c; };\nint foo(int i, struct t *t) { return i < t->c ? t->p[i] : 0; }\n";
    let main = "struct t { int *p; int c; };\nint foo(int i, struct t *t);\n\
                int main(int c, char **v) { struct t g = {&c, c}; return foo(3, &g); }\n";
    let gcc = |arguments: &[&str]| {
        let made =
            Command::new("gcc").args(["-g", "-Og"]).args(arguments).current_dir(setup.dir.path()).status();
        assert!(made.unwrap().success(), "{arguments:?}");
    };
    for (name, source, options) in [("foo", foo, &["-flto"][..]), ("main", main, &[])] {
        let file = format!("{name}.c");
        std::fs::write(setup.file(&file), source).unwrap();
        gcc(&[options, &["-c", &file]].concat());
    }
    gcc(&["-o", "units", "foo.o", "main.o"]);
    has(&setup.said(&["probe", "-x", "units", "--funcs", "foo"]), &["^foo$"]);
    let event = format!("shell_unit_{}", std::process::id());
    let added = setup.said(&["probe", "-x", "units", &format!("{event}=foo")]);
    assert!(added.contains(&event), "{added}");
    setup.said(&["probe", "-d", &event]);
}
