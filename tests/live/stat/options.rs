//! Options of `stat` compared with `perf stat`, and the assertions of perf's own tests
//! (`tools/perf/tests/shell/stat+std_output.sh`, `stat+csv_output.sh`, `stat+json_output.sh`, `lib/perf_json_output_lint.py`, `stat.sh`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{command, count, run, stat};
use crate::support::worker::Worker;
use crate::support::{Feature, lacks};

/// Runs perf with these arguments.
fn perf(arguments: &[&str]) -> String {
    run(command("perf", arguments)).printed
}

/// Runs the exporter with these arguments, which must succeed.
fn ours(arguments: &[&str]) -> String {
    let ended = stat(arguments);
    assert_eq!(ended.status.code(), Some(0), "{arguments:?}: {}", ended.printed);
    ended.printed
}

/// Events that every machine counts.
const SOFTWARE: &str = "task-clock,context-switches,page-faults";

/// Options that show parts of the machine, in the spelling of both, with the number of fields of perf's tests before the count.
const PARTS: [(&str, usize); 5] =
    [("-A", 1), ("--per-core", 2), ("--per-die", 2), ("--per-socket", 2), ("--per-node", 2)];

/// Returns the fields of CSV before the count, the event and the number of fields.
fn labels(csv: &str, before: usize) -> Vec<(Vec<String>, String, usize)> {
    let line = |line: &str| {
        let fields: Vec<String> = line.split(',').map(ToOwned::to_owned).collect();
        (fields[..before].to_vec(), fields[before + 2].clone(), fields.len())
    };
    csv.lines().map(line).collect()
}

fn objects(text: &str) -> Vec<Map<String, Value>> {
    let object = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text.lines().map(object).collect()
}

#[test]
fn parts_of_the_machine_are_those_of_perf_in_its_order() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    for (option, before) in PARTS {
        let both = |format: &str| {
            let arguments = ["-a", option, format, "-e", SOFTWARE, "sleep", "0.01"];
            (ours(&arguments), perf(&arguments))
        };
        let (csv, expected) = both("-x,");
        assert_eq!(labels(&csv, before), labels(&expected, before), "{option}\n{csv}\n{expected}");
        let (json, expected) = both("-j");
        let keys = |text: &str| -> Vec<Vec<String>> {
            objects(text).iter().map(|object| object.keys().cloned().collect()).collect()
        };
        assert_eq!(keys(&json), keys(&expected), "{option}\n{json}\n{expected}");
        let key = option.trim_start_matches("--per-").replace("-A", "cpu");
        let parts = |text: &str| -> BTreeSet<String> {
            objects(text).iter().map(|object| object[&key].to_string()).collect()
        };
        assert_eq!(parts(&json), parts(&expected), "{option}");
    }
}

/// The columns before the count have the width of perf's.
#[test]
fn tables_of_parts_have_perfs_columns() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    for (option, _) in PARTS {
        let position = |text: &str| -> Vec<(String, Option<usize>)> {
            let rows = text.lines().filter(|line| line.contains("task-clock"));
            rows.map(|line| (line.split_whitespace().next().unwrap().to_owned(), line.find("msec"))).collect()
        };
        let arguments = ["-a", option, "-e", "task-clock", "sleep", "0.01"];
        let (table, expected) = (ours(&arguments), perf(&arguments));
        assert_eq!(position(&table), position(&expected), "{option}\n{table}\n{expected}");
    }
}

#[test]
fn parts_add_up_to_the_machine() {
    if lacks(Feature::Software) {
        return;
    }
    for option in
        ["-A", "--per-core", "--per-die", "--per-cache", "--per-cache=L1", "--per-socket", "--per-node"]
    {
        let ended = stat(&["-a", option, "-x,", "-e", "cpu-clock", "sleep", "0.05"]);
        if ended.printed.contains("reports no cache") {
            println!("skipped {option}: {}", ended.printed);
            continue;
        }
        let cpus = std::thread::available_parallelism().unwrap().get() as f64;
        let milliseconds = count(&ended.printed, "cpu-clock");
        assert!(milliseconds >= 50.0 * cpus * 0.9, "{option}: {milliseconds} on {cpus}: {}", ended.printed);
    }
}

#[test]
fn each_thread_of_a_process_has_a_row_with_its_name() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let worker = Worker::start("stat");
    let pid = worker.pid().to_string();
    let arguments = ["--per-thread", "-x,", "-e", "task-clock", "-p", &pid, "sleep", "0.05"];
    let threads = |csv: &str| -> BTreeSet<String> {
        csv.lines().map(|line| line.split(',').next().unwrap().to_owned()).collect()
    };
    let (csv, expected) = (ours(&arguments), perf(&arguments));
    assert_eq!(threads(&csv), threads(&expected), "\n{csv}\n{expected}");
    let json = objects(&ours(&["--per-thread", "-j", "-e", "task-clock", "-p", &pid, "sleep", "0.01"]));
    assert!(json[0]["thread"].as_str().unwrap().ends_with(&format!("-{pid}")), "{json:?}");
}

#[test]
fn counting_starts_after_the_delay() {
    if lacks(Feature::Perf) || lacks(Feature::Tracepoint) {
        return;
    }
    // Seven processes before the delay is over, three after it.
    let script =
        "for i in 1 2 3 4 5 6 7; do (exec true); done; sleep 1; for i in 1 2 3; do (exec true); done";
    let event = "sched:sched_process_fork";
    let arguments = ["-D", "600", "-x,", "-e", event, "--", "sh", "-c", script];
    let (csv, expected) = (ours(&arguments), perf(&arguments));
    assert_eq!((count(&csv, event), count(&expected, event)), (3.0, 3.0), "\n{csv}\n{expected}");
    // The time is that of the counters.
    let text = ours(&["-D", "100", "-e", "task-clock", "sleep", "0.15"]);
    let elapsed = text.lines().find(|line| line.contains("seconds time elapsed")).unwrap();
    let seconds: f64 = elapsed.split_whitespace().next().unwrap().parse().unwrap();
    assert!((0.02..0.15).contains(&seconds), "{text}");
}

#[test]
fn kernel_and_user_counts_are_parts_of_all() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let of = |modes: &[&str]| {
        let arguments = [modes, &["-x,", "-e", "page-faults", "true"]].concat();
        let name = match modes {
            ["--all-kernel"] => "page-faults:k",
            ["--all-user"] => "page-faults:u",
            _ => "page-faults",
        };
        (count(&ours(&arguments), name), count(&perf(&arguments), "page-faults"))
    };
    let (all, kernel, user) = (of(&[]), of(&["--all-kernel"]), of(&["--all-user"]));
    for (ours, perf) in [all, kernel, user] {
        // The addresses of a process differ from run to run, and so does the number of its pages.
        assert!((ours - perf).abs() <= 5.0, "{all:?} {kernel:?} {user:?}");
    }
    assert!(kernel.0 < user.0 && user.0 <= all.0 + 5.0, "{all:?} {kernel:?} {user:?}");
}

#[test]
fn verbose_counts_have_perfs_form() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let raw = |text: &str| -> Vec<(String, usize)> {
        let fields = |line: &str| {
            let (event, numbers) = line.split_once(": ")?;
            let numbers: Vec<u64> = numbers.split(' ').map_while(|word| word.parse().ok()).collect();
            (numbers.len() == 3).then(|| (event.to_owned(), numbers.len()))
        };
        text.lines().filter_map(fields).collect()
    };
    let arguments = ["-v", "-e", SOFTWARE, "true"];
    let (text, expected) = (ours(&arguments), perf(&arguments));
    assert_eq!((raw(&text).len(), raw(&text)), (3, raw(&expected)), "\n{text}\n{expected}");
}

#[test]
fn each_run_is_in_the_table_of_durations() {
    if lacks(Feature::Perf) || lacks(Feature::Software) {
        return;
    }
    let arguments = ["-r", "3", "--table", "-e", "task-clock", "sleep", "0.01"];
    let table = |text: &str| -> (usize, Vec<String>) {
        let runs = text.lines().filter(|line| line.trim_end().ends_with('#') && line.contains("(")).count();
        let titles = text.lines().map(str::trim).filter(|line| line.starts_with("# ") && line.ends_with(':'));
        (runs, titles.map(ToOwned::to_owned).collect())
    };
    let (text, expected) = (ours(&arguments), perf(&arguments));
    assert_eq!((table(&text).0, table(&text)), (3, table(&expected)), "\n{text}\n{expected}");
}

#[test]
fn thousands_are_separated_unless_this_is_not_wanted() {
    if lacks(Feature::Software) {
        return;
    }
    let program = ["dd", "if=/dev/zero", "of=/dev/null", "bs=8M", "count=1", "status=none"];
    let table = |options: &[&str]| ours(&[options, &["-e", "page-faults"], &program].concat());
    let row = |text: &str| text.lines().find(|line| line.contains("page-faults")).unwrap().to_owned();
    for (options, separated) in
        [(&[][..], true), (&["-B"], true), (&["--big-num"], true), (&["--no-big-num"], false)]
    {
        let row = row(&table(options));
        assert_eq!(row.split_whitespace().next().unwrap().contains(','), separated, "{options:?}: {row}");
    }
}

/// The options of perf's tests of output: the option, its fields before the count, and its keys in JSON beside 5 or 7.
fn outputs(pid: &str) -> Vec<(Vec<String>, usize)> {
    let words = |text: &str| text.split(' ').map(ToOwned::to_owned).collect::<Vec<_>>();
    let row = |text: &str, before| (words(text), before);
    vec![
        row("true", 0),
        row("-a true", 0),
        row("-A -a true", 1),
        row("-I 1000 true", 1),
        row("-e cpu-clock true", 0),
        row("--per-core -a true", 2),
        row("--per-die -a true", 2),
        row("--per-socket -a true", 2),
        row("--per-node -a true", 2),
        row(&format!("--per-thread -p {pid} true"), 1),
    ]
}

/// The default events of perf's test, and the unit of the metric of each.
const DEFAULT_EVENTS: [(&str, &str); 11] = [
    ("cpu-clock", "CPUs utilized"),
    ("task-clock", "CPUs utilized"),
    ("context-switches", "/sec"),
    ("cpu-migrations", "/sec"),
    ("page-faults", "/sec"),
    ("stalled-cycles-frontend", "frontend cycles idle"),
    ("stalled-cycles-backend", "backend cycles idle"),
    ("cycles", "GHz"),
    ("instructions", "insn per cycle"),
    ("branches", "/sec"),
    ("branch-misses", "of all branches"),
];

#[test]
fn the_assertions_of_perfs_tests_of_output_hold() {
    if lacks(Feature::Software) {
        return;
    }
    let worker = Worker::start("stat");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("out");
    for (arguments, before) in outputs(&worker.pid().to_string()) {
        let output = |format: &[&str]| -> Vec<String> {
            let arguments: Vec<&str> = arguments.iter().map(|word| &**word).collect();
            ours(&[&["-o", file.to_str().unwrap()], format, &arguments].concat());
            let text = perf_exporter::host::read_text(&file).unwrap();
            text.lines().map(ToOwned::to_owned).collect()
        };
        // stat+csv_output.sh: the number of separators.
        for line in output(&["-x@"]).iter().filter(|line| !line.is_empty()) {
            assert_eq!(line.matches('@').count(), 6 + before, "{arguments:?}: {line}");
        }
        // perf_json_output_lint.py: the number of keys; a line of a second metric has fewer.
        for object in objects(&output(&["-j"]).join("\n")) {
            let is_further = !object.contains_key("event") && object.contains_key("metric-value");
            assert!(
                [5 + before, 7 + before].contains(&object.len()) || is_further,
                "{arguments:?}: {object:?}"
            );
        }
        // stat+std_output.sh: known events, each with its metric.
        let table = output(&[]);
        let rows = table.iter().take_while(|line| {
            !line.contains("seconds time elapsed") && !line.starts_with("Could not be opened")
        });
        let rows =
            rows.filter(|line| !line.is_empty() && !line.starts_with('#') && !line.contains("Performance"));
        for line in rows.filter(|line| !line.contains("stalled cycles per insn")) {
            let (row, metric) = line.split_once('#').unwrap_or((line, ""));
            let known = DEFAULT_EVENTS.iter().find(|(event, _)| row.contains(event));
            let (_, unit) = known.unwrap_or_else(|| panic!("{arguments:?}: unknown event in {line}"));
            assert!(metric.is_empty() || metric.contains(unit), "{arguments:?}: {line}");
        }
    }
}

/// The events of a metric are counted, its names are those of perf, and `--metric-only` has one column per metric in each format.
#[test]
fn metrics_are_selected_by_name_and_shown_alone_on_request() {
    if lacks(Feature::Software) {
        return;
    }
    let table = ours(&["-M", "cpus_utilized,page_faults_per_second", "true"]);
    let row = |event: &str| table.lines().find(|line| line.contains(event)).unwrap_or_default();
    assert!(row("task-clock").contains("CPUs utilized") && row("page-faults").contains("/sec"), "{table}");
    let share = ours(&["-M", "cpu_utilization", "true"]);
    assert!(share.contains("% of all CPUs") && !share.contains("CPUs utilized"), "{share}");
    let one = ours(&["-M", "page_faults_per_second", "-e", "context-switches", "true"]);
    assert_eq!(one.matches(" # ").count(), 1, "{one}");

    let only = |format: &[&str]| {
        ours(&[&["--metric-only", "-e", "task-clock,page-faults"], format, &["true"]].concat())
    };
    let table = only(&[]);
    assert!(table.contains("       CPUs utilized     page-faults /sec\n"), "{table}");
    let csv = only(&["-x,"]);
    let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(fields, [2, 2], "{csv}");
    // perf_json_output_lint.py: one or two keys beside those of the part.
    for (format, keys) in [(&["-j"][..], 2), (&["-j", "-I", "10000"], 3), (&["-j", "-a", "--per-socket"], 4)]
    {
        for object in objects(&only(format)) {
            assert_eq!(object.len(), keys, "{object:?}");
        }
    }
}

#[test]
fn metrics_and_events_that_do_not_exist_have_a_remedy() {
    if lacks(Feature::Software) {
        return;
    }
    for (arguments, code, words) in [
        (&["-M", "IPCC", "true"][..], 2, "did you mean IPC?"),
        (&["-M", "horses", "true"], 2, "list metric"),
        (&["-D", "-1", "true"], 2, "-n"),
        (&["--per-core", "true"], 2, "add -a"),
        (&["--per-thread", "true"], 2, "all with -a"),
        (&["--table", "true"], 2, "--repeat"),
    ] {
        let ended = stat(arguments);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.printed);
        assert!(ended.printed.contains(words), "{arguments:?}: {}", ended.printed);
    }
    // A machine with the events shows their shares.
    for (option, event, hardware) in
        [("--topdown", "Retiring", "Ice Lake"), ("-T", "transactional cycles", "TSX")]
    {
        let ended = stat(&[option, "true"]);
        match ended.status.code() {
            Some(1) => assert!(ended.printed.contains(hardware), "{}", ended.printed),
            _ => assert!(ended.printed.contains(event), "{}", ended.printed),
        }
    }
}
