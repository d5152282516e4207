//! Probes of functions and USDT probes of a program with known behavior: their results are exact.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use perf_exporter::host::{Roots, read_text};

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::{Service, TEXT, get};
use crate::support::{Feature, lacks};

/// Reports whether the machine lacks a feature that every test here needs.
fn lacks_probes() -> bool {
    [Feature::Compiler, Feature::Uprobe, Feature::Tracefs].into_iter().any(lacks)
}

/// Starts a service with these probes, one per line. Nothing else is counted, so that no limit affects the results.
pub(crate) fn probing(probes: &[String], more: &str) -> Service {
    let probes: String = probes.iter().map(|probe| format!("  {probe}\n")).collect();
    Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\nprobes:\n{probes}{more}"
    ))
}

/// Returns the arguments with which the program calls [`takes`](Program).
fn level_and_text(size: u64) -> (i64, &'static str) {
    ((size % 4) as i64 - 2, if size % 2 == 1 { "odd" } else { "even" })
}

/// Asserts that no record was lost, so that all results must be exact.
#[track_caller]
pub(crate) fn assert_nothing_lost(metrics: &Exposition) {
    // Records that arrive late are counted all the same.
    for reason in ["ring_full", "unreadable"] {
        let lost = metrics.sum("perf_lost_records_total", &[("ring", "tracepoints"), ("reason", reason)]);
        assert_eq!(lost, 0.0, "{reason}: {metrics:?}");
    }
    assert_eq!(metrics.sum("perf_dropped_hits_total", &[]), 0.0, "{metrics:?}");
}

#[test]
fn calls_are_counted_and_their_arguments_added_up_by_label_to_the_last_one() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let service = probing(
        &[
            format!("plain: {{uprobe: {}}}", program.at("takes")),
            format!(
                "taken: {{uprobe: {}, arguments: [\"size=$arg1:u64\", \"level=$arg2:s32\", \
                 \"text=+0($arg3):string\"], sum: {{of: size, unit: bytes}}, labels: {{level: level, kind: text}}}}",
                program.at("takes")
            ),
            format!(
                "kibibytes: {{uprobe: {}, arguments: [\"size=$arg1:u64\"], sum: {{of: size, unit: kibibytes}}}}",
                program.at("takes")
            ),
            format!(
                "returned: {{uretprobe: {}, arguments: [\"value=$retval:s64\"], filter: \"value > 0\", \
                 sum: {{of: value}}}}",
                program.at("takes")
            ),
        ],
        "",
    );
    let mut running = program.start();
    running.does("takes 1 1000");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let mut expected = BTreeMap::<_, (f64, f64)>::new();
    for size in 1..=1000 {
        let (calls, bytes) = expected.entry(level_and_text(size)).or_default();
        *calls += 1.0;
        *bytes += size as f64;
    }
    assert_eq!(metrics.by("perf_probe_taken_total", "level").count(), expected.len(), "{metrics:?}");
    for ((level, kind), (calls, bytes)) in expected {
        let labels = [("level", &*level.to_string()), ("kind", kind)];
        assert_eq!(metrics.value("perf_probe_taken_total", &labels), Some(calls), "{labels:?}");
        assert_eq!(metrics.value("perf_probe_taken_bytes_total", &labels), Some(bytes), "{labels:?}");
    }
    assert_eq!(metrics.value("perf_probe_plain_total", &[]), Some(1000.0));
    assert_eq!(metrics.value("perf_probe_kibibytes_bytes_total", &[]), Some(500_500.0 * 1024.0));
    // Levels from -2 to 1: a quarter is above zero, the sizes 3, 7, … 999.
    assert_eq!(metrics.value("perf_probe_returned_total", &[]), Some(250.0));
    assert_eq!(metrics.value("perf_probe_returned_value_total", &[]), Some(125_250.0));
    running.ends();
}

#[test]
fn every_value_is_in_its_bucket() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let entry = |name: &str, buckets: &str| {
        format!(
            "{name}: {{uprobe: {}, arguments: [\"size=$arg1:u64\"], \
             histogram: {{of: size, unit: bytes{buckets}}}}}",
            program.at("takes")
        )
    };
    let service = probing(&[entry("listed", ", buckets: [1, 10, 999]"), entry("exponential", "")], "");
    program.start().does("takes 1 1000");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    for name in ["listed", "exponential"] {
        let of = |suffix: &str| format!("perf_probe_{name}_bytes_{suffix}");
        assert_eq!(metrics.value(&of("count"), &[]), Some(1000.0));
        assert_eq!(metrics.value(&of("sum"), &[]), Some(500_500.0));
        for (bound, count) in metrics.by(&of("bucket"), "le") {
            let within = bound.parse::<f64>().unwrap().clamp(0.0, 1000.0).floor();
            assert_eq!(count, within, "{name}, up to {bound}");
        }
    }
    let bounds: Vec<&str> =
        metrics.by("perf_probe_listed_bytes_bucket", "le").map(|(bound, _)| bound).collect();
    assert_eq!(bounds.len(), 4, "{bounds:?}");
    assert!(metrics.by("perf_probe_exponential_bytes_bucket", "le").count() > 10);
}

#[test]
fn values_over_the_limit_are_others_and_no_call_is_missing() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let service = probing(
        &[
            format!("plain: {{uprobe: {}}}", program.at("takes")),
            format!(
                "limited: {{uprobe: {}, arguments: [\"size=$arg1:u64\"], labels: [size], values: 3, \
                 sum: {{of: size, unit: bytes}}}}",
                program.at("takes")
            ),
        ],
        "",
    );
    let mut running = program.start();
    let limited = |metrics: &Exposition| {
        metrics
            .by("perf_probe_limited_total", "size")
            .map(|(size, calls)| (size.to_owned(), calls))
            .collect::<Vec<_>>()
    };
    running.does("takes 7 106");
    let metrics = service.metrics();
    let three = ["7", "8", "9"].map(|size| (size.to_owned(), 1.0));
    assert_eq!(limited(&metrics), [&three[..], &[("other".to_owned(), 97.0)]].concat());
    running.does("takes 7 7");
    running.does("takes 1000 1009");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let calls = limited(&metrics);
    assert_eq!((calls.len(), calls[0].1, calls[3].1), (4, 2.0, 107.0), "{calls:?}");
    assert_eq!(metrics.value("perf_probe_plain_total", &[]), Some(111.0));
    let sizes: u64 = (7..=106).chain([7]).chain(1000..=1009).sum();
    assert_eq!(metrics.sum("perf_probe_limited_bytes_total", &[]), sizes as f64);
}

#[test]
fn a_filter_lets_pass_what_it_says_and_one_of_a_wrong_type_is_refused_for_that_entry_alone() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let entry = |name: &str, filter: &str| {
        format!(
            "{name}: {{uprobe: {}, arguments: [\"size=$arg1:u64\", \"level=$arg2:s32\", \
             \"text=+0($arg3):string\"], filter: '{filter}', sum: {{of: size, unit: bytes}}}}",
            program.at("takes")
        )
    };
    let mut service = probing(
        &[
            entry("middle", "size > 10 && size <= 20"),
            entry("below", "level < 0"),
            entry("odd", "text == \"odd\""),
            entry("even", "text ~ \"e*n\""),
            entry("bits", "size & 64"),
            entry("wrong", "text > 3"),
        ],
        "",
    );
    program.start().does("takes 1 100");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let bytes = |name: &str| metrics.value(&format!("perf_probe_{name}_bytes_total"), &[]);
    let sum = |passes: &dyn Fn(u64) -> bool| Some((1..=100).filter(|&size| passes(size)).sum::<u64>() as f64);
    assert_eq!(bytes("middle"), sum(&|size| (11..=20).contains(&size)));
    assert_eq!(bytes("below"), sum(&|size| level_and_text(size).0 < 0));
    assert_eq!(bytes("odd"), sum(&|size| size % 2 == 1));
    assert_eq!(bytes("even"), sum(&|size| size % 2 == 0));
    assert_eq!(bytes("bits"), sum(&|size| size & 64 != 0));
    assert_eq!(bytes("wrong"), None);
    service.has_logged(&["text is a string, at \"3\""]);
}

/// Hostile label values and the expected output: bytes that are not UTF-8 and control characters are replaced.
const HOSTILE: [(&[u8], &str); 7] = [
    (b"new\nline", "new\nline"),
    (b"quo\"te", "quo\"te"),
    (b"back\\slash\\n", "back\\slash\\n"),
    (b"inva\xfflid", "inva\u{fffd}lid"),
    (b"} 7\n# EOF", "} 7\n# EOF"),
    (b"caf\xc3\xa9", "caf\u{e9}"),
    (b"\x01\x7f\t", "\u{2401}\u{2421}\u{2409}"),
];

#[test]
fn strings_and_names_of_processes_with_any_bytes_are_labels_that_prometheus_reads() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let service = probing(
        &[
            format!(
                "said: {{uprobe: {}, arguments: [\"text=+0($arg1):string\", \"name=$comm\"], \
                 labels: [text, name]}}",
                program.at("says")
            ),
            format!(
                "heard: {{uprobe: {}, arguments: [\"text=+0($arg1):string\"], labels: [text], \
                 per: [process]}}",
                program.at("says")
            ),
        ],
        "processes: {include: [{comm: \"**\"}], by: [comm]}\n",
    );
    let mut running = program.start();
    for (bytes, _) in HOSTILE {
        running.does_with("is_called", bytes);
        running.does_with("says", bytes);
    }
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    for (_, text) in HOSTILE {
        let said = [("text", text), ("name", text)];
        assert_eq!(metrics.value("perf_probe_said_total", &said), Some(1.0), "{text:?}: {metrics:?}");
        let heard = [("text", text), ("comm", text)];
        assert_eq!(metrics.value("perf_process_heard_total", &heard), Some(1.0), "{text:?}: {metrics:?}");
    }
    if !lacks(Feature::Promtool) {
        assert_promtool_reads(&get(&service.address, TEXT).1);
    }
}

fn assert_promtool_reads(scrape: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = promtool.spawn().unwrap();
    child.stdin.take().unwrap().write_all(scrape.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}: {scrape}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_time_in_a_function_is_between_what_it_slept_and_what_its_caller_waited() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let service = probing(&[format!("slept: {{uprobe: {}, histogram: seconds}}", program.at("sleeps"))], "");
    let mut running = program.start();
    let waited: u64 =
        [5, 10, 15].map(|milliseconds| running.does(&format!("sleeps {milliseconds}"))).iter().sum();
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    assert_eq!(metrics.value("perf_probe_slept_seconds_count", &[]), Some(3.0), "{metrics:?}");
    let slept = metrics.value("perf_probe_slept_seconds_sum", &[]).unwrap();
    // Record timestamps use the clock that the program reads.
    assert!((0.03..=waited as f64 / 1e9).contains(&slept), "{slept} s measured, {waited} ns in total");
    assert_eq!(metrics.sum("perf_unpaired_events_total", &[("entry", "slept")]), 0.0, "{metrics:?}");
}

#[test]
fn a_marker_is_armed_by_its_semaphore_while_somebody_listens_and_has_its_arguments() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let mut running = program.start();
    assert_eq!(running.does("semaphore"), 0, "before");
    let marker = program.at("live:step");
    let counting = probing(&[format!("counted: {{usdt: {marker}}}")], "");
    assert!(running.does("semaphore") > 0, "a USDT probe that is only counted");
    running.does("marks 1 10");
    assert_eq!(counting.metrics().value("perf_probe_counted_total", &[]), Some(10.0));
    drop(counting);
    assert_eq!(running.does("semaphore"), 0, "between");

    let taking = probing(
        &[format!(
            "steps: {{usdt: {marker}, arguments: [\"size=$arg1\", \"level=$arg2\"], \
             sum: {{of: size, unit: bytes}}, labels: [level]}}"
        )],
        "",
    );
    assert!(running.does("semaphore") > 0, "a USDT probe whose arguments are read");
    running.does("marks 1 10");
    let metrics = taking.metrics();
    assert_nothing_lost(&metrics);
    for size in 1..=10 {
        let level = format!("-{size}");
        assert_eq!(
            metrics.value("perf_probe_steps_bytes_total", &[("level", &level)]),
            Some(f64::from(size))
        );
    }
    drop(taking);
    assert_eq!(running.does("semaphore"), 0, "after");
}

#[test]
fn a_function_that_is_only_counted_is_not_defined_in_tracefs() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let service = probing(
        &[
            format!("enters: {{uprobe: {}}}", program.at("takes")),
            format!("leaves: {{uretprobe: {}}}", program.at("takes")),
            format!("passes: {{uprobe: \"{}:{:#x}\"}}", program.path().display(), program.offset_of("hit")),
            format!("times: {{uprobe: {}, histogram: seconds}}", program.at("sleeps")),
        ],
        "",
    );
    assert_eq!(crate::leftovers::defined_by(service.child.id()), Vec::<String>::new());
    let mut running = program.start();
    running.does("takes 1 33");
    running.does("hits 1 44");
    let metrics = service.metrics();
    let counted =
        ["enters", "leaves", "passes"].map(|name| metrics.value(&format!("perf_probe_{name}_total"), &[]));
    assert_eq!(counted, [33.0, 33.0, 44.0].map(Some));
}

#[test]
fn calls_belong_to_the_cgroups_and_processes_that_made_them() {
    if lacks_probes() || lacks(Feature::Cgroup) {
        return;
    }
    let program = Program::compile();
    let (one, other) = (TestCgroup::new("calls"), TestCgroup::new("calls-too"));
    let inner = one.below("inner");
    let entry = |name: &str, more: &str| {
        format!("{name}: {{uprobe: {}, per: [cgroup, process, cpu]{more}}}", program.at("takes"))
    };
    let service = probing(
        &[
            entry("plain", ""),
            entry("taken", ", arguments: [\"size=$arg1:u64\"], sum: {of: size, unit: bytes}"),
        ],
        &format!(
            "cgroups: {{include: [\"{}\", \"{}\"], attribution: dedicated}}\n\
             processes: {{include: [{{comm: \"called-*\"}}], by: [comm], attribution: dedicated}}\n",
            one.path(),
            other.path()
        ),
    );
    let start = |cgroup: &TestCgroup, name: &str| {
        let mut running = program.start();
        cgroup.take(running.pid());
        running.does_with("is_called", name.as_bytes());
        running
    };
    let mut all: [Running; 3] =
        [start(&one, "called-one"), start(&inner, "called-inner"), start(&other, "called-other")];
    // Targets with their own event descriptors are discovered by a collection.
    service.metrics();
    for (running, calls) in all.iter_mut().zip([100, 20, 3]) {
        running.does(&format!("takes 1 {calls}"));
    }
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    for entry in ["plain", "taken"] {
        let calls = |scope: &str, label: &str, value: &str| {
            metrics.value(&format!("perf_{scope}_{entry}_total"), &[(label, value)])
        };
        let of = |name: &str| calls("process", "comm", name);
        assert_eq!(
            ["called-one", "called-inner", "called-other"].map(of),
            [100.0, 20.0, 3.0].map(Some),
            "{entry}"
        );
        // Calls in an unselected cgroup are attributed to its nearest selected ancestor.
        let of = |cgroup: &TestCgroup| calls("cgroup", "cgroup", cgroup.path());
        assert_eq!([of(&one), of(&other)], [Some(120.0), Some(3.0)], "{entry}: {metrics:?}");
        assert_eq!(metrics.sum(&format!("perf_cpu_{entry}_total"), &[]), 123.0, "{entry}");
    }
    let bytes =
        |cgroup: &TestCgroup| metrics.value("perf_cgroup_taken_bytes_total", &[("cgroup", cgroup.path())]);
    assert_eq!([bytes(&one), bytes(&other)], [Some(5050.0 + 210.0), Some(6.0)]);
    all.into_iter().for_each(Running::ends);
}

#[test]
fn a_function_in_a_container_is_found_through_a_process_or_a_cgroup() {
    if lacks_probes() || lacks(Feature::Mounts) || lacks(Feature::Cgroup) {
        return;
    }
    let program = Program::compile_static();
    let (root, mount) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    program.copy_to(&root.path().join("probed"));
    let mut jailed = Running::by(Command::new("chroot").arg(root.path()).arg("/probed"));
    // The file system of this file is not visible outside its mount namespace.
    let mount = mount.path();
    let script = "mount -t tmpfs none \"$0\" && cp \"$1\" \"$0/probed\" && exec \"$0/probed\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script]).arg(mount).arg(program.path());
    let mut contained = Running::by(&mut unshare);
    assert!(!mount.join("probed").exists());
    let cgroup = TestCgroup::new("contained");
    cgroup.take(contained.pid());
    let mut outside = program.start();

    let entry = |name: &str, path: &str, within: String| {
        format!(
            "{name}: {{uprobe: \"{path}:takes\", in: {{{within}}}, arguments: [\"size=$arg1:u64\"], \
             sum: {{of: size, unit: bytes}}}}"
        )
    };
    let there = mount.join("probed").display().to_string();
    let mut service = probing(
        &[
            entry("jailed", "/probed", format!("pid: {}", jailed.pid())),
            entry("mounted", &there, format!("pid: {}", contained.pid())),
            entry("grouped", &there, format!("cgroup: \"{}\"", cgroup.path())),
            entry("escaped", "/../../../etc/passwd", format!("pid: {}", jailed.pid())),
            format!("plain: {{uprobe: /probed:hit, in: {{pid: {}}}}}", jailed.pid()),
        ],
        "",
    );
    jailed.does("takes 1 10");
    jailed.does("hits 1 7");
    contained.does("takes 1 100");
    outside.does("takes 1 1000");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let bytes = |name: &str| metrics.value(&format!("perf_probe_{name}_bytes_total"), &[]);
    assert_eq!(["jailed", "mounted", "grouped"].map(bytes), [55.0, 5050.0, 5050.0].map(Some));
    assert_eq!(metrics.value("perf_probe_plain_total", &[]), Some(7.0));
    assert_eq!(bytes("escaped"), None);
    service.has_logged(&["/etc/passwd"]);
    [jailed, contained, outside].into_iter().for_each(Running::ends);
}

#[test]
fn what_cannot_be_probed_is_told_and_the_rest_is_counted() {
    if lacks_probes() {
        return;
    }
    let program = Program::compile();
    let text = program.path().with_file_name("text");
    std::fs::write(&text, "not a program").unwrap();
    let stripped = program.path().with_file_name("stripped");
    program.copy_to(&stripped);
    assert!(Command::new("strip").arg(&stripped).status().unwrap().success());
    let mut service = probing(
        &[
            format!("plain: {{uprobe: {}}}", program.at("takes")),
            format!("misspelt: {{uprobe: {}}}", program.at("take")),
            format!("textual: {{uprobe: \"{}:takes\"}}", text.display()),
            format!("nameless: {{uprobe: \"{}:takes\"}}", stripped.display()),
            format!("nowhere: {{uprobe: \"{}.so:takes\"}}", program.path().display()),
            format!("unmarked: {{usdt: \"{}:live:stop\"}}", program.path().display()),
        ],
        "",
    );
    program.start().does("takes 1 12");
    assert_eq!(service.metrics().value("perf_probe_plain_total", &[]), Some(12.0));
    let log = service.log();
    for name in [
        "similar names: takes",
        "not an ELF file",
        "it is stripped",
        "probed.so does not exist",
        "available: live:step",
    ] {
        assert!(log.contains(name), "{name} is not in the log:\n{log}");
    }
    let list = read_text(&Roots::default().tracing.join("uprobe_events")).unwrap();
    assert!(!list.contains(&*program.path().to_string_lossy()), "{list}");
}
