//! Wrong configurations and wrong command lines: each mistake is reported with its position, the word and what to write instead, and none
//! hides another.

use std::fmt::Write as _;
use std::fs;

use crate::program::run;

/// Wrong files, with the number of mistakes in each.
const FILES: [(&str, usize, &str); 21] = [
    ("an event that no host has", 1, "counters:\n  a: {events: [page-fualts, cs]}\n"),
    (
        "three wrong events of one group",
        3,
        "counters:\n  a:\n    events: [cs, fualts, nosuch/event=1/, sched:sched_swich]\n",
    ),
    ("a term that the PMU lacks", 1, "counters:\n  a: {events: [\"msr/evnt=1/\"], per: cpu}\n"),
    ("a tracepoint that the kernel lacks", 1, "tracepoints:\n  a:\n    event: sched:sched_process_frok\n"),
    (
        "both tracepoints of a pair",
        2,
        "tracepoints:\n  a: {from: 'sched:sched_wakng', to: 'sched:sched_swich'}\n",
    ),
    (
        "an unknown field in a filter",
        1,
        "tracepoints:\n  a:\n    event: sched:sched_switch\n    filter: \"prev_prio > 5 && nxt_prio > 5\"\n",
    ),
    (
        "two labels that the event lacks",
        2,
        "tracepoints:\n  a:\n    event: sched:sched_switch\n    labels: [prev_comn, next_comn]\n",
    ),
    (
        "a filter and a label",
        2,
        "tracepoints:\n  a:\n    event: sched:sched_switch\n    filter: prev_pid ~ 5\n    labels: {who: nxt_comm}\n",
    ),
    (
        "a sum of a field that is no number",
        1,
        "tracepoints:\n  a: {event: 'sched:sched_switch', sum: {of: prev_comm}}\n",
    ),
    (
        "an event of a set for a limited time",
        1,
        "deep:\n  a: {events: [alignment-faults, minor-fualts], cgroups: /a}\n",
    ),
    ("a probe in a file that does not exist", 1, "probes:\n  a:\n    uprobe: /usr/bin/nosuch:main\n"),
    ("two profiles", 2, "profiles:\n  a: {event: cpu-clok}\n  b: {event: 'sched:sched_swtich'}\n"),
    (
        "keys, values and names of the host",
        5,
        "listen: nonsense\ncounters:\n  a: {events: [cylces], per: [cpu, moon]}\n  b: {evnts: [cs]}\nlimits: {series: 0}\n",
    ),
    (
        "a syntax error and names of the host",
        3,
        "counters:\n  a: {events: [fualts]}\n  b:\n    events: [cs, @x]\ntracepoints:\n  c: {event: 'sched:nosuch'}\n",
    ),
    (
        "three syntax errors",
        4,
        "counters:\n  a: {events: [faults\n  b: {events: \"cs}\ncollection:\n  interval: 5s: 6s\nlimits: {series: x}\n",
    ),
    (
        "a duplicate key and an unknown one",
        3,
        "counters:\n  a: {events: cs}\n  a: {events: faults}\nlimts: {}\npresets: [frks]\n",
    ),
    ("a tab and a wrong value", 2, "collection:\n\tinterval: 5s\nlimits: {cpu: 200%}\n"),
    (
        "wrong durations and sizes",
        3,
        "collection: {interval: 5 parsecs}\nlimits: {memory: 64 apples}\nhistory: {for: yes}\n",
    ),
    (
        "a metric that two entries count",
        1,
        "counters:\n  a: {events: cs}\n  b: {events: [context-switches]}\n",
    ),
    (
        "an event of counters among the tracepoints",
        2,
        "tracepoints:\n  a: {event: cycles}\n  b: {event: 'sched:sched_switch', labels: [cpu], per: cpu}\n",
    ),
    ("a second document", 2, "counters:\n  a: {events: fualts}\n---\nlimits: {}\n"),
];

/// Wrong command lines, with the number of mistakes in each.
const ARGUMENTS: [(&str, usize); 20] = [
    ("--nonsense", 1),
    ("chekc", 1),
    ("check --strcit", 1),
    ("check --strcit --output xml", 2),
    ("check --output", 1),
    ("run --listen nonsense --confg x", 2),
    ("--config x.yaml check", 1),
    ("--log-format xml list", 1),
    ("record -F 0 --frobnicate true", 2),
    ("record -F x -c y true", 2),
    ("record -F99999999999999999999999 true", 1),
    ("record -F 99 -c 9 true", 1),
    ("record --call-graph lbr --duration soon true", 2),
    ("top -d 0 -n 0 -p x", 3),
    ("top true", 1),
    ("stat -r -I 1000 true", 1),
    ("stat -e nosuch( true", 1),
    ("sched latncy", 1),
    ("probe --in pid:1", 1),
    ("report --percent-limit 101 --sort comm,weather", 2),
];

/// Checks a file on the fixture host `vm`, and returns the lines about it, without the path of the file.
fn checked(text: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.yaml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap();
    let outcome = run(["check", "--no-open", "--host-root", "tests/data/hosts/vm", "--config", path]);
    (outcome.code, outcome.stderr.replace(path, "f.yaml"))
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

/// Reports whether a line of a report begins with a position inside the file.
fn is_in(text: &str, line: &str) -> bool {
    let mut parts = line.split(':').skip(1).map(str::parse::<usize>);
    let (Some(Ok(row)), Some(Ok(column))) = (parts.next(), parts.next()) else { return false };
    text.lines().nth(row - 1).is_some_and(|line| (1..=line.chars().count()).contains(&column))
}

#[test]
fn every_mistake_of_a_file_has_its_position_and_a_remedy() {
    let mut all = String::new();
    for (name, mistakes, text) in FILES {
        let (code, stderr) = checked(text);
        writeln!(all, "# {name}\n{text}\n{stderr}").unwrap();
        let lines: Vec<&str> = stderr.lines().filter(|line| line.starts_with("f.yaml:")).collect();
        assert_eq!((code, lines.len()), (2, mistakes), "{name}: {stderr}");
        for line in lines {
            assert!(is_in(text, line), "{name}: {line}");
            let helps = ["; ", "did you mean", "expected ", " is not between "];
            assert!(helps.iter().any(|help| line.contains(help)), "{name}: {line}");
        }
    }
    snapshot("mistakes-files", &all);
}

#[test]
fn every_mistake_of_a_command_line_has_its_word_and_a_remedy() {
    let mut all = String::new();
    for (line, mistakes) in ARGUMENTS {
        let outcome = run(line.split(' '));
        writeln!(all, "$ perf-exporter {line}\n{}", outcome.stderr).unwrap();
        let told = outcome.stderr.lines().filter(|line| line.starts_with("perf-exporter: ")).count();
        assert_eq!((outcome.code, told), (2, mistakes), "{line}: {}", outcome.stderr);
        for raw in ["error:", "invalid digit", "invalid value", "found in string", "[possible values"] {
            assert!(!outcome.stderr.contains(raw), "{line}: {}", outcome.stderr);
        }
    }
    snapshot("mistakes-arguments", &all);
}

#[test]
fn a_file_for_any_host_may_name_what_this_host_lacks_and_nothing_that_no_host_has() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.yaml");
    let path = path.to_str().unwrap();
    let check = |events: &str| {
        fs::write(path, format!("counters:\n  a: {{events: [cs, {events}]}}\n")).unwrap();
        let arguments = ["check", "--no-open", "--any-host", "--host-root", "tests/data/hosts/vm"];
        run(arguments.iter().chain(&["--config", path]))
    };
    let outcome = check("kvm:kvm_exit");
    assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{}", outcome.stdout);
    let told = format!("a per cpu: kvm:kvm_exit ({path}:2:20)");
    assert!(outcome.stdout.contains(&told), "{}", outcome.stdout);
    assert_eq!(check("page-fualts").code, 2);
}

#[test]
fn the_service_starts_with_the_rest_of_a_file_and_logs_each_name_that_the_host_lacks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.yaml");
    fs::write(&path, "counters:\n  a: {events: [page-fualts, context-switches]}\n").unwrap();
    let path = path.to_str().unwrap();
    let mut service =
        crate::program::Service::start(["--config", path, "--host-root", "tests/data/hosts/vm"]);
    let told = service.wait_for_log("page-fualts");
    assert!(told.contains("f.yaml:2:16") && told.contains("did you mean page-faults?"), "{told}");
    service.wait_for_log("this host does not have everything that the configuration names");
    service.wait_for("/metrics", |scrape| scrape.contains("perf_cpu_context_switches_total"));
}
