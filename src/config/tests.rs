//! Tests of the whole configuration: golden reports, consistency of files, and malicious files.

mod validator;

use crate::targets::Targets;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

const MANUAL: &str = include_str!("../../config/perf-exporter.yaml");
const EXAMPLES: [(&str, &str); 15] = [
    ("default", BUILT_IN),
    ("detailed-hardware", include_str!("../../config/examples/detailed-hardware.yaml")),
    ("numa", include_str!("../../config/examples/numa.yaml")),
    ("per-cgroup", include_str!("../../config/examples/per-cgroup.yaml")),
    ("per-process", include_str!("../../config/examples/per-process.yaml")),
    ("block-io", include_str!("../../config/examples/block-io.yaml")),
    ("forks-and-execs", include_str!("../../config/examples/forks-and-execs.yaml")),
    ("kernel-work", include_str!("../../config/examples/kernel-work.yaml")),
    ("latency", include_str!("../../config/examples/latency.yaml")),
    ("memory", include_str!("../../config/examples/memory.yaml")),
    ("network", include_str!("../../config/examples/network.yaml")),
    ("profiles", include_str!("../../config/examples/profiles.yaml")),
    ("remote-write", include_str!("../../config/examples/remote-write.yaml")),
    ("user-probes", include_str!("../../config/examples/user-probes.yaml")),
    ("tracepoint-counts", include_str!("../../config/examples/tracepoint-counts.yaml")),
];

/// Returns all problems of a file, one per line, without the file name.
pub(super) fn report(text: &str) -> String {
    let problems =
        load(text.as_bytes(), "f").map_or_else(|Problems(problems)| problems, |(_, warnings)| warnings);
    let lines = problems.iter().map(|problem| problem.to_string().split_off("f:".len()));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the first syntax error of a file, without the file name.
pub(super) fn syntax_error(text: &str) -> String {
    Source::parse(text.as_bytes(), "f").unwrap_err().to_string().split_off("f:".len())
}

/// Returns the configuration of a file without problems.
pub(super) fn good(text: &str) -> Config {
    let (config, warnings) = load(text.as_bytes(), "f").unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(warnings, [], "{text}");
    // Files with the same settings are equal, whatever their text.
    Config { locations: None, ..config }
}

#[test]
fn a_file_of_many_mistakes_is_reported_at_once() {
    insta::assert_snapshot!(report(include_str!("tests/mistakes.yaml")));
    insta::assert_snapshot!("mistakes_traced", report(include_str!("tests/mistakes-traced.yaml")));
}

#[test]
fn the_built_in_configuration_has_no_problems_and_is_what_silence_means() {
    let built_in = good(BUILT_IN);
    assert_eq!(Config::default(), built_in);
    assert_eq!(good("{}"), built_in);
    assert_eq!(report(""), "1:1: warning: the file is empty; the built-in configuration is used");
    insta::assert_debug_snapshot!(built_in);
}

#[test]
fn the_built_in_configuration_gives_every_setting_that_has_a_default() {
    let built_in: Json = serde_yaml::from_str(BUILT_IN).unwrap();
    let schema = schema();
    let mut without = Vec::new();
    for (section, property) in schema["properties"].as_object().unwrap() {
        assert!(built_in.get(section).is_some(), "{section}");
        let definition = property.pointer("/anyOf/0/$ref").and_then(Json::as_str);
        let Some(definition) = definition.filter(|_| section != "counters") else { continue };
        let definition = schema.pointer(&definition[1..]).unwrap();
        // `pods` has a short form, so its keys are in one of several forms of its definition.
        let forms = definition["anyOf"].as_array().into_iter().flatten();
        let mut forms = [definition].into_iter().chain(forms);
        let keys = forms.find_map(|form| form["properties"].as_object()).unwrap();
        for key in keys.keys() {
            if built_in[section].get(key).is_none() {
                without.push(format!("{section}.{key}"));
            }
        }
    }
    // The default of these keys is nothing, the limit of the machine, or the section of the same name.
    let selections = [
        "scheduler.cgroups",
        "scheduler.pods",
        "scheduler.processes",
        "syscalls.cgroups",
        "syscalls.pods",
        "syscalls.processes",
    ];
    let all = [
        "containers.api_server",
        "containers.kubelet",
        "export.otlp",
        "export.remote_write",
        "incidents.directory",
        "limits.descriptors",
        "limits.memory",
        "limits.ring_memory",
        "pods.include",
        "syscalls.exclude",
        "syscalls.include",
        "web.auth_excluded_paths",
        "web.basic_auth_users",
        "web.http_server_config",
        "web.kubernetes",
        "web.rate_limit",
        "web.tls_server_config",
    ];
    without.retain(|key| !selections.contains(&&**key));
    assert_eq!(without, all);
}

#[test]
fn the_manual_means_the_built_in_configuration_and_names_every_setting() {
    assert_eq!(good(MANUAL), Config::default());
    let schema = schema();
    let definitions = schema["$defs"].as_object().unwrap().values().chain([&schema]);
    for key in
        definitions.filter_map(|definition| definition["properties"].as_object()).flat_map(|p| p.keys())
    {
        assert!(MANUAL.contains(&format!("{key}:")), "the manual does not name {key}");
    }
}

#[test]
fn every_example_is_free_of_problems_and_begins_with_the_question_that_it_answers() {
    for (name, text) in EXAMPLES.into_iter().chain(Preset::ALL.map(|preset| (preset.as_str(), preset.text())))
    {
        good(text);
        let question = text.lines().nth(2).unwrap();
        assert!(question.starts_with("# ") && question.ends_with('?'), "{name}: {question}");
        assert!(text.contains("# Metrics"), "{name} does not say what its metrics are called");
    }
}

/// `BLESS=1 cargo test` rewrites the file.
#[test]
fn the_committed_schema_is_that_of_the_code() {
    let text = format!("{:#}\n", schema());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/config/schema.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    } else {
        let committed = crate::host::read(std::path::Path::new(path)).unwrap();
        assert!(
            committed == text.as_bytes(),
            "config/schema.json is not of this code: run BLESS=1 cargo test"
        );
    }
}

#[test]
fn every_file_of_ours_is_valid_by_the_schema() {
    let schema = schema();
    let presets = Preset::ALL.map(|preset| (preset.as_str(), preset.text()));
    for (name, text) in EXAMPLES.into_iter().chain(presets).chain([("manual", MANUAL)]) {
        let document: Json = serde_yaml::from_str(text).unwrap();
        assert_eq!(validator::fault(&schema, &document), None, "{name}");
    }
}

#[test]
fn the_schema_closes_every_block_and_describes_every_setting() {
    let schema = schema();
    for definition in schema["$defs"].as_object().unwrap().values().chain([&schema]) {
        let Some(properties) = definition["properties"].as_object() else { continue };
        assert_eq!(definition["additionalProperties"], json!(false), "{definition}");
        for (key, property) in properties {
            assert!(property["description"].is_string(), "{key}");
        }
    }
    assert_eq!(schema.pointer("/$defs/Limits/properties/series/default"), Some(&json!(20_000)));
    assert_eq!(schema.pointer("/properties/listen/default"), Some(&json!("0.0.0.0:7373")));
}

/// Reports whether the reader accepts the structure of a document, without checking the values.
fn is_read(document: &Json) -> bool {
    let text = document.to_string();
    let source = Source::parse(text.as_bytes(), "f").unwrap();
    let mut report = Report::new(&source);
    decode::decode::<File>(source.root(), &mut report).is_some() && report.finish().is_empty()
}

/// Collects all nodes of a document, as JSON pointers.
fn places(document: &Json, here: &str, places: &mut Vec<String>) {
    places.push(here.to_owned());
    match document {
        Json::Object(map) => {
            map.iter().for_each(|(key, value)| self::places(value, &format!("{here}/{key}"), places));
        }
        Json::Array(list) => {
            list.iter()
                .enumerate()
                .for_each(|(i, value)| self::places(value, &format!("{here}/{i}"), places));
        }
        _ => {}
    }
}

const FULL: &str = r#"
listen: "[::]:1"
collection: {interval: 10s, freshness: 1s}
history: {for: 1h, step: 1s}
counters:
  a: {events: [cycles, {event: faults, name: f}], group: false, per: [cpu, process], processes: {by: pid}}
  b: {preset: detailed, per: cgroup, cgroups: {include: [/a], depth: 3, descendants: true, attribution: dedicated}}
cgroups: {include: ["/**"], exclude: [/b], depth: 6, descendants: false, attribution: stream}
processes:
  include: [{comm: x, exe: /x, cgroup: /y, pid: 7, kernel: false}]
  exclude: []
  by: [comm, unit, kind]
  attribution: auto
limits: {series: 7, descriptors: 8, connections: 9, memory: 99MiB, ring_memory: 64MiB, debug_info: 9MiB}
"#;

const FULL_TRACED: &str = r#"
tracepoints:
  t: {events: ["sys:one"], filter: x > 1, labels: {l: x}, values: 5, sum: {of: x, unit: bytes}, per: [host, process]}
  h: {event: "sys:one", labels: [x], histogram: {of: x, unit: pages, buckets: [1, 2.5]}, per: cgroup, cgroups: {depth: 3}}
  p: {from: "sys:one", to: "sys:two", key: [x, $cpu], timeout: 5s, pending: 10, labels: x, histogram: seconds}
probes:
  k: {kprobe: f, arguments: [x], labels: {l: x}, values: 5, sum: {of: x}, per: cpu, processes: {by: pid}}
  r: {kretprobe: f, filter: x > 1, arguments: ["x=$retval"]}
  u: {uprobe: /a:f, in: {cgroup: /c}, histogram: seconds}
  v: {uretprobe: /a:f, in: {pid: 1}}
  m: {usdt: "/a:p:n"}
tracefs: {mount: false}
presets: [block-io, forks]
"#;

const FULL_PROFILES: &str = r#"
profiles:
  e: {event: "sys:one", filter: x > 1, frequency: 19, unwind: auto, stack: 16KiB, kernel: true, functions: 5, window: 60s, lines: true}
  c: {event: cpu-clock, period: 1000000, idle: true, cpus: "0-3,8", unwind: fp}
  w: {threshold: 1ms, limit: 10, cgroups: {include: /a, exclude: /b}, processes: {include: {comm: a}, exclude: {pid: 1}}}
"#;

const FULL_EXPORT: &str = r#"
export:
  otlp:
    endpoint: "http://a:4317"
    protocol: grpc
    headers: {a: b}
    compression: gzip
    timeout: 5s
    tls: {ca: /a, certificate: /b, key: /c}
    resource: {x.y: z}
    queue: 2GiB
    signals: [metrics, profiles, logs]
    metrics: {interval: 5s, temporality: cumulative, histograms: explicit}
    profiles: {interval: 5s, cpus: true}
  remote_write:
    url: "http://a/w"
    headers: {a: b}
    credentials_file: /a
    timeout: 5s
    tls: {ca: /a, certificate: /b, key: /c}
    queue: 2GiB
    interval: 5s
    labels: {a: b}
"#;

#[test]
fn the_schema_and_the_reader_agree_on_any_change_of_one_value() {
    let values = [
        json!(null),
        json!(true),
        json!(7),
        json!(-7),
        json!(1.5),
        json!("cpu"),
        json!("5s"),
        json!("2GiB"),
        json!(1 << 20),
        json!("stream"),
        json!("detailed"),
        json!([]),
        json!(["cpu", "comm"]),
        json!([["cpu"]]),
        json!({}),
        json!({"event": "cycles"}),
        json!({"name": "a"}),
        json!({"comm": "a", "pid": 1}),
        json!({"interval": "1s"}),
        json!({"of": "x"}),
        json!({"x": "y"}),
        json!("seconds"),
        json!("forks"),
        json!([1, 2.5]),
        json!("0-3"),
    ];
    let schema = schema();
    let fulls = [FULL, FULL_TRACED, FULL_PROFILES, FULL_EXPORT]
        .map(|text| serde_yaml::from_str::<Json>(text).unwrap());
    let mut all = Vec::new();
    for full in &fulls {
        let mut found = Vec::new();
        places(full, "", &mut found);
        all.extend(found.into_iter().map(|place| (full, place)));
    }
    for ((full, place), value) in all.iter().flat_map(|place| values.iter().map(move |value| (place, value)))
    {
        let mut document = (*full).clone();
        *document.pointer_mut(place).unwrap() = value.clone();
        match validator::fault(&schema, &document) {
            None => assert!(is_read(&document), "{value} at {place:?} is valid, and is not read"),
            // An empty file is valid for the reader, but it is not an object for the schema.
            Some(_) if document.is_null() => {}
            Some(fault) => {
                let taken = is_read(&document) && load(document.to_string().as_bytes(), "f").is_ok();
                assert!(!taken, "{value} at {place:?} is loaded, and is not valid: {fault}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        drop(load(&text, "f"));
    }

    #[test]
    fn no_text_of_yamls_own_signs_makes_it_panic(text in "[a-c:\\-\\[\\]{},&*!|>'\"#%@` \n\t?~0-9.é]{0,80}") {
        drop(load(text.as_bytes(), "f"));
    }

    #[test]
    fn no_damage_to_a_good_file_makes_it_panic_or_stay_silent_about_an_error(
        full in prop::sample::select(&[FULL, FULL_TRACED, FULL_PROFILES, FULL_EXPORT][..]),
        at: prop::sample::Index, cut in 0usize..20, put in "[a-z:\\[\\]{}*\"\n -]{0,6}"
    ) {
        let start = at.index(full.len());
        let text = format!("{}{put}{}", &full[..start], &full[(start + cut).min(full.len())..]);
        if let Err(Problems(problems)) = load(text.as_bytes(), "f") {
            prop_assert!(problems.iter().any(|problem| problem.severity == Severity::Error));
            let lines = text.lines().count() + 1;
            prop_assert!(problems.iter().all(|problem| (1..=lines).contains(&problem.line)));
        }
    }
}

#[test]
fn hostile_files_are_refused_with_one_problem() {
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (from, to) in ('a'..'i').zip('b'..='i') {
        bomb.push_str(&format!("{to}: &{to} [{}]\n", vec![format!("*{from}"); 10].join(",")));
    }
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(500_000), vec!["*a"; 1000].join(","));
    for (text, message) in [
        (bomb.as_bytes(), "20000 values"),
        (long.as_bytes(), "20000 values"),
        (&b"[".repeat(5000)[..], "nested more than 64 levels deep"),
        (&b"{a: ".repeat(5000)[..], "nested more than 64 levels deep"),
        (&b"a: &a [*a]"[..], "nested more than 128 levels deep"),
        (&b" ".repeat((1 << 20) + 1)[..], "at most 1048576 are allowed"),
        (&b"listen: \xff"[..], "byte 0xff is not UTF-8"),
        (&b"listen: a\0b"[..], "U+0000"),
        (&b"- x\n".repeat(100_000)[..], "20000 values"),
    ] {
        let Err(Problems(problems)) = load(text, "f") else { panic!("{message}") };
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.message.contains(message), "{problem}");
    }
}

#[test]
fn a_syntax_error_hides_only_its_entry() {
    let text = "counters:\n  a: {events: [cs}\n  b: {events: 7}\nlimits: {series: 0}\n";
    let lines: Vec<String> =
        report(text).lines().map(|line| line.split(": ").next().unwrap().to_owned()).collect();
    assert_eq!(lines, ["2:15", "3:15", "4:18"]);
    assert_eq!(report("counters: &a {x: {events: [cs}}\nlimits: {series: *a}\n").lines().count(), 1);
}

#[test]
fn a_file_of_nothing_but_problems_is_cut_off() {
    let text: String = (0..2000).map(|i| format!("k{i}: 1\n")).collect();
    let Err(Problems(problems)) = load(text.as_bytes(), "f") else { panic!() };
    assert_eq!(problems.len(), 50);
    let entries: String = (0..1200).map(|i| format!("  K{i}: {{events: 'a,'}}\n")).collect();
    let Err(Problems(problems)) = load(format!("counters:\n{entries}").as_bytes(), "f") else { panic!() };
    assert_eq!(problems.len(), 51);
    assert_eq!(problems[50].message, "2350 more problems are not shown");
}

#[test]
fn the_scheduler_is_told_of_as_the_file_says_and_else_as_built_in() {
    let scopes = |text: &str| {
        let per = good(text).scheduler.map(|scheduler| scheduler.per);
        per.map(|per| per.iter().map(|targets| targets.scope().as_str()).collect::<Vec<_>>())
    };
    assert_eq!(scopes("{}"), Some(vec!["host", "cgroup"]));
    assert_eq!(scopes("scheduler: {preemption: false}"), Some(vec!["host", "cgroup"]));
    assert_eq!(scopes("scheduler: {per: process}"), Some(vec!["process"]));
    assert_eq!(scopes("scheduler: {per: [host, numa]}"), Some(vec!["host", "numa"]));
    assert_eq!(scopes("scheduler: {per: []}"), None);
    assert!(!good("scheduler: {preemption: false}").scheduler.unwrap().preemption);
    let narrow = good("scheduler: {cgroups: {include: /a}}").scheduler.unwrap();
    let Targets::Cgroups(cgroups) = &narrow.per[1] else { panic!("{:?}", narrow.per) };
    assert_eq!(cgroups.include[0].as_str(), "/a");
    assert!(report("scheduler: {per: cpu}").contains("`host`, `numa`, `cgroup` or `process`, found `cpu`"));
}

#[test]
fn system_calls_are_selected_by_names_that_exist() {
    assert_eq!(good("{}").syscalls, None);
    let calls = good("syscalls: {include: [futex, \"epoll_*\"], exclude: epoll_ctl}").syscalls.unwrap();
    let wanted = ["futex", "epoll_wait", "epoll_ctl", "read"].map(|name| calls.matches(name));
    assert_eq!((wanted, calls.takes_all()), ([true, true, false, false], false));
    assert_eq!(calls.per, [Targets::HOST]);
    assert!(good("syscalls: {}").syscalls.unwrap().takes_all());
    assert_eq!(
        report("syscalls: {include: fsnc}"),
        "1:21: syscalls.include: no system call is named `fsnc`; did you mean `fsync`?"
    );
    assert!(report("syscalls: {include: []}").contains("an empty list selects no system call"));
    assert!(
        report("syscalls: {stuck: 1ms}").contains("1ms is not between 100ms and 86400s; the default is 10s")
    );
}

#[test]
fn a_limit_of_the_cpu_is_a_percentage() {
    assert_eq!(good("limits: {cpu: 0.5%}").limits.cpu, Some(0.005));
    assert_eq!(good("limits: {cpu: off}").limits.cpu, None);
    assert_eq!(good("{}").limits.cpu, Some(0.02));
    assert!(report("limits: {cpu: 2}").contains("the number 2 has no unit; write `2%`"));
    assert!(report("limits: {cpu: 0%}").contains("a percentage above 0% and up to 100%"));
}
