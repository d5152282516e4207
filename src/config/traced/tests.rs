//! Tests of `tracepoints` and `probes` entries: their results and all of their errors.

use std::time::Duration;

use proptest::prelude::*;

use super::{EventSource, Label, Measure, Pair, Quantity, Traced, TracedKind};
use crate::config::tests::{good, report};
use crate::config::{Config, Preset};
use crate::health::CpuScope;
use crate::metrics::Level;
use crate::probe::{Definition, Root, Within};
use crate::targets::{GroupBy, Targets};

/// Returns the single entry of `tracepoints`.
fn tracepoint(entry: &str) -> Traced {
    good(&format!("tracepoints: {{a: {{{entry}}}}}")).traced.remove(0)
}

/// Returns the problems of the entry `a` of `tracepoints`, one per line, without line and column.
fn wrong(entry: &str) -> String {
    problems("tracepoints", entry)
}

fn problems(section: &str, entry: &str) -> String {
    let report = report(&format!("{section}:\n  a: {{{entry}}}\n"));
    let lines =
        report.lines().map(|line| line.split_once(&format!("{section}.a")).map_or(line, |(_, text)| text));
    lines.collect::<Vec<_>>().join("\n")
}

fn pair(entry: &str) -> Pair {
    match tracepoint(entry).source {
        EventSource::Pair(pair) => pair,
        other => panic!("{other:?}"),
    }
}

const PAIR: &str = "from: 'block:block_rq_issue', to: 'block:block_rq_complete'";

fn labels(written: &str) -> Vec<(String, String)> {
    let labels = tracepoint(&format!("event: 'sys:one', labels: {written}")).labels;
    labels.iter().map(|Label { name, field }| (name.to_string(), field.to_string())).collect()
}

#[test]
fn an_entry_of_one_event_counts_it_on_the_host() {
    let Traced { kind, name, source, per, filter, labels, measure, values, level } =
        tracepoint("event: 'sched:sched_process_fork'");
    assert_eq!((kind, &*name, per, filter), (TracedKind::Tracepoint, "a", vec![Targets::HOST], None));
    let EventSource::Events(events) = source else { panic!("{source:?}") };
    assert_eq!(events.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sched:sched_process_fork"]);
    assert_eq!((labels, measure, values, level), (vec![], Measure::Count, 100, Level::Basic));
}

#[test]
fn several_events_and_patterns_are_one_entry() {
    for entry in ["events: ['kmem:*', 'sys:one:u']", "event: 'kmem:k?alloc'"] {
        assert!(
            matches!(tracepoint(entry).source, EventSource::Events(events) if !events.is_empty()),
            "{entry}"
        );
    }
}

#[test]
fn what_is_no_tracepoint_is_refused_with_what_to_write() {
    for (entry, expected) in [
        (
            "per: cpu",
            ": the entry has no event; write `event: sched:sched_process_fork`, or `from` and `to` for the time between two",
        ),
        (
            "event: cycles",
            ".event: `cycles` is not a tracepoint; write it as `system:event`; other events belong to `counters`",
        ),
        (
            "event: 'sys:one,sys:two'",
            ".event: `sys:one,sys:two` is more than one event; write each as an item of `events`",
        ),
        (
            "event: 'sys:one', events: ['sys:two']",
            ".events: `event` and `events` are mutually exclusive; write all of them under `events`",
        ),
        ("events: []", ".events: an empty list contains no events; add an event, or remove the entry"),
        (
            "event: 'sched:sched_switch/name=x/'",
            ".event: the metric is named after the entry; leave out `name=`",
        ),
    ] {
        assert_eq!(wrong(entry), expected, "{entry}");
    }
    assert!(wrong("event: 'sys:one:'").starts_with(".event: `sys:one:` is not an event: "));
    assert!(wrong("event: 7").ends_with("put it in quotes: \"7\""));
    assert_eq!(wrong("evnet: 'sys:one'"), ".evnet: unknown setting `evnet`; did you mean `event`?");
}

#[test]
fn a_pair_is_matched_by_thread_for_a_minute_unless_it_says_otherwise() {
    let Pair { from, to, key, timeout, pending } = pair(PAIR);
    assert_eq!((&*from.to_string(), &*to.to_string()), ("block:block_rq_issue", "block:block_rq_complete"));
    assert_eq!((key, timeout, pending), (vec!["$tid".into()], Duration::from_secs(60), 16_384));
    let Pair { key, timeout, pending, .. } =
        pair(&format!("{PAIR}, key: [dev, sector, $cpu], timeout: 5s, pending: 7"));
    assert_eq!(key, ["dev".into(), "sector".into(), "$cpu".into()]);
    assert_eq!((timeout, pending), (Duration::from_secs(5), 7));
}

#[test]
fn a_pair_is_of_two_tracepoints_and_nothing_else() {
    for (entry, expected) in [
        (
            "from: 'sys:one'",
            ".from: `from` without `to`: the time between two events needs both; add `to`, or write `event`",
        ),
        (
            "to: 'sys:one'",
            ".to: `to` without `from`: the time between two events needs both; add `from`, or write `event`",
        ),
        (
            "from: 'sys:*', to: 'sys:two'",
            ".from: `sys:*` is a pattern, but a pair consists of two tracepoints; write the name of one",
        ),
        (
            "from: 'sys:one', to: 'sys:two', event: 'sys:three'",
            ".event: an entry counts events or measures the time between two, not both; split it into two entries",
        ),
        ("event: 'sys:one', key: [dev]", ".key: `key` requires `from` and `to`; leave it out"),
        ("event: 'sys:one', timeout: 1s", ".timeout: `timeout` requires `from` and `to`; leave it out"),
        ("event: 'sys:one', pending: 1", ".pending: `pending` requires `from` and `to`; leave it out"),
    ] {
        assert_eq!(wrong(entry), expected, "{entry}");
    }
    for (more, expected) in [
        ("key: []", ".key: an empty list cannot match events; leave it out for `$tid`, the thread"),
        (
            "key: [$tdi]",
            ".key[0]: `$tdi` is neither a field that both events have nor `$cpu`, `$tid` or `$pid`; did you mean `$tid`?",
        ),
        ("key: [a, a]", "warning: "),
        ("timeout: 2h", ".timeout: 7200s is not between 1ms and 3600s; the default is 60s"),
        ("pending: 0", ".pending: 0 is not between 1 and 1048576"),
        (
            "sum: {of: bytes}",
            ".sum.of: a pair measures a duration, not a field; write an entry with `event` to measure a field",
        ),
        (
            "histogram: {of: bytes}",
            ".histogram.of: a pair measures a duration, not a field; write an entry with `event` to measure a field",
        ),
        (
            "histogram: {unit: bytes}",
            ".histogram.unit: durations are in seconds; leave out `unit`, or name a field: `of`",
        ),
    ] {
        let said = wrong(&format!("{PAIR}, {more}"));
        assert!(said == expected || expected == "warning: " && said.contains("duplicate"), "{more}: {said}");
    }
}

#[test]
fn a_pair_is_a_histogram_of_seconds_with_or_without_the_word() {
    for (more, expected) in [
        ("", None),
        (", histogram: seconds", None),
        (", histogram: {buckets: [0.001, 1]}", Some(vec![0.001, 1.0])),
        (", histogram: {unit: seconds}", None),
    ] {
        assert_eq!(tracepoint(&format!("{PAIR}{more}")).measure, Measure::Elapsed(expected), "{more}");
    }
}

#[test]
fn a_field_is_added_up_or_distributed_in_the_base_unit() {
    for (unit, base, factor) in [
        ("seconds", "seconds", 1.0),
        ("milliseconds", "seconds", 1e-3),
        ("microseconds", "seconds", 1e-6),
        ("nanoseconds", "seconds", 1e-9),
        ("bytes", "bytes", 1.0),
        ("kibibytes", "bytes", 1024.0),
        ("sectors", "bytes", 512.0),
        ("pages", "bytes", rustix::param::page_size() as f64),
    ] {
        let traced = tracepoint(&format!("event: 'sys:one', sum: {{of: x, unit: {unit}}}"));
        let Measure::Sum(quantity) = &traced.measure else { panic!("{traced:?}") };
        assert_eq!((&*quantity.field, quantity.base(), quantity.factor()), ("x", base, factor));
        assert_eq!((traced.base(), traced.stem()), ("a", format!("a_{base}")));
    }
    let measure = tracepoint("event: 'sys:one', histogram: {of: x, buckets: [1, 2.5]}").measure;
    let quantity = Quantity { field: "x".into(), unit: None };
    assert_eq!((quantity.base(), quantity.factor()), ("", 1.0));
    assert_eq!(measure, Measure::Histogram(quantity, Some(vec![1.0, 2.5])));
}

#[test]
fn a_metric_has_the_name_of_its_entry_and_its_unit_once() {
    let named = |name: &str, entry: &str| {
        let traced =
            good(&format!("tracepoints: {{{name}: {{event: 'sys:one', {entry}}}}}")).traced.remove(0);
        (traced.base().to_owned(), traced.stem())
    };
    let names = |base: &str, stem: &str| (base.to_owned(), stem.to_owned());
    assert_eq!(named("forks", "per: cpu"), names("forks", "forks"));
    assert_eq!(named("wait_seconds", "histogram: {of: d, unit: seconds}"), names("wait", "wait_seconds"));
    assert_eq!(named("seconds", "histogram: {of: d, unit: seconds}"), names("seconds", "seconds_seconds"));
    assert_eq!(named("hits", "sum: {of: Depth}"), names("hits", "hits_depth"));
}

#[test]
fn what_cannot_be_measured_is_refused() {
    for (more, expected) in [
        (
            "histogram: seconds",
            ".histogram: this is a histogram of durations, but one event has no duration; write `from` and `to` for two events, or a field: {of: delay, unit: nanoseconds}",
        ),
        (
            "histogram: {}",
            ".histogram: this is a histogram of durations, but one event has no duration; write `from` and `to` for two events, or a field: {of: delay, unit: nanoseconds}",
        ),
        (
            "histogram: delay",
            ".histogram: expected `seconds` (the duration) or a block, found the text `delay`; write a field as {of: field, unit: bytes}",
        ),
        (
            "sum: {of: x}, histogram: {of: x}",
            ".sum: an entry has a `sum` or a `histogram`, not both; leave out `sum`: every histogram has one",
        ),
        ("sum: {unit: bytes}", ".sum: `of` is missing; write `of: …`"),
        (
            "sum: {of: x-y}",
            ".sum.of: `x-y` is not a valid field name: field names consist of letters, digits and _; the file `format` in the tracefs directory of the event lists its fields",
        ),
        (
            "sum: {of: from.x}",
            ".sum.of: `from.x` is not a field name: the entry has only one event; write `x`",
        ),
        ("sum: {of: $cpu}", ".sum.of: `$cpu` is not a number that can be summed; name a field"),
        (
            "histogram: {of: x, unit: jiffies}",
            ".histogram.unit: expected `seconds`, `milliseconds`, `microseconds`, `nanoseconds`, `bytes`, `kibibytes`, `sectors` or `pages`, found `jiffies`",
        ),
        (
            "histogram: {of: x, buckets: []}",
            ".histogram.buckets: an empty list has no bounds; leave it out for exponential buckets",
        ),
        (
            "histogram: {of: x, buckets: [1, 3, 2]}",
            ".histogram.buckets[2]: bounds must be in ascending order: 2 is not above 3",
        ),
        (
            "histogram: {of: x, buckets: [1, .inf]}",
            ".histogram.buckets[1]: inf is not a valid bound; leave it out: the +Inf bucket is implicit",
        ),
        ("histogram: {of: x, buckets: [a]}", ".histogram.buckets[0]: expected a number, found the text `a`"),
    ] {
        assert_eq!(wrong(&format!("event: 'sys:one', {more}")), expected, "{more}");
    }
    let many: Vec<String> = (0..300).map(|bound| bound.to_string()).collect();
    let many = wrong(&format!("event: 'sys:one', histogram: {{of: x, buckets: [{}]}}", many.join(",")));
    assert!(many.starts_with(".histogram.buckets: 300 buckets, at most 256 are allowed;"), "{many}");
}

#[test]
fn labels_are_named_after_their_fields_or_by_the_user() {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, field)| ((*name).to_owned(), (*field).to_owned())).collect()
    };
    assert_eq!(labels("function"), owned(&[("function", "function")]));
    assert_eq!(labels("[a, b]"), owned(&[("a", "a"), ("b", "b")]));
    assert_eq!(labels("{z: a, on: $cpu}"), owned(&[("z", "a"), ("on", "$cpu")]));
    let labels = tracepoint(&format!("{PAIR}, labels: {{op: from.rwbs, error: to.error, dev: dev}}")).labels;
    let fields: Vec<&str> = labels.iter().map(|label| &*label.field).collect();
    assert_eq!(fields, ["from.rwbs", "to.error", "dev"]);
}

#[test]
fn a_word_that_cannot_be_a_label_is_answered_with_one_that_can() {
    for (more, expected) in [
        (
            "labels: [event]",
            ".labels[0]: `event` is reserved: it distinguishes tracepoints; use another name: {field_event: event}",
        ),
        (
            "labels: {le: x}",
            ".labels.le: `le` is a reserved label of Prometheus; use another name: {field_x: x}",
        ),
        (
            "labels: [__a]",
            ".labels[0]: `__a`: labels that begin with __ are reserved by Prometheus; use another name: {field_a: __a}",
        ),
        (
            "labels: {a-b: x}",
            ".labels.a-b: `a-b` is not a valid label name: label names consist of letters, digits and _; write {ab: x}",
        ),
        (
            "labels: [$cpu]",
            ".labels[0]: `$cpu` is not a valid label name: label names consist of letters, digits and _; write {cpu: $cpu}",
        ),
        (
            "labels: [$comm]",
            ".labels[0]: `$comm` is neither a field nor one of `$cpu`, `$pid` and `$tid`; use `per: [process]` or `per: [cgroup]` for the process or cgroup",
        ),
        (
            "labels: [a b]",
            ".labels[0]: `a b` is not a valid field name: field names consist of letters, digits and _; the file `format` in the tracefs directory of the event lists its fields",
        ),
        ("labels: [a, a]", ".labels[1]: duplicate label `a`; remove one of them"),
        ("labels: []", ".labels: the list of labels is empty; name a field, or leave it out"),
        ("labels: 7", ".labels: expected field names or a block of `label: field`, found the number 7"),
        (
            "labels: cpu, per: cpu",
            ".labels: `cpu` is already a label of `per: cpu`; use another name: {field_cpu: cpu}",
        ),
        (
            "labels: numa_node, per: [host, numa]",
            ".labels: `numa_node` is already a label of `per: numa`; use another name: {field_numa_node: numa_node}",
        ),
        (
            "labels: cgroup, per: [host, cgroup]",
            ".labels: `cgroup` is already a label of `per: cgroup`; use another name: {field_cgroup: cgroup}",
        ),
        (
            "labels: comm, per: process",
            ".labels: `comm` is already a label of `per: process`; use another name: {field_comm: comm}",
        ),
    ] {
        assert_eq!(wrong(&format!("event: 'sys:one', {more}")), expected, "{more}");
    }
    assert_eq!(
        wrong(&format!("{PAIR}, labels: [to.error]")),
        ".labels[0]: `to.error` is not a valid label name; give it a name: {to_error: to.error}"
    );
    for fine in
        ["labels: cpu", "labels: comm, per: cgroup", "labels: comm, per: process, processes: {by: pid}"]
    {
        assert_eq!(wrong(&format!("event: 'sys:one', {fine}")), "", "{fine}");
    }
    let many: Vec<String> = (0..20).map(|label| format!("l{label}")).collect();
    let many = wrong(&format!("event: 'sys:one', labels: [{}]", many.join(",")));
    assert!(many.starts_with(".labels: 20 labels, at most 16 are allowed;"), "{many}");
}

#[test]
fn the_values_of_a_label_have_a_limit_that_has_limits() {
    assert_eq!(tracepoint("event: 'sys:one', labels: x, values: 10000").values, 10_000);
    assert_eq!(
        wrong("event: 'sys:one', labels: x, values: 10001"),
        ".values: 10001 is not between 1 and 10000"
    );
    assert_eq!(
        wrong("event: 'sys:one', values: 5"),
        ".values: this has no effect: the entry has no `labels`; leave it out"
    );
}

#[test]
fn a_filter_is_a_text_of_bounded_length() {
    assert_eq!(tracepoint("event: 'sys:one', filter: ' x > 1 '").filter.as_deref(), Some("x > 1"));
    assert_eq!(
        wrong("event: 'sys:one', filter: ' '"),
        ".filter: the filter is empty; leave it out to include all events"
    );
    let long = "x == 1 || ".repeat(500);
    assert_eq!(
        wrong(&format!("event: 'sys:one', filter: '{long}'")),
        ".filter: the filter has 5000 bytes, the kernel accepts at most 4096"
    );
}

#[test]
fn an_entry_counts_for_whom_the_file_says_or_it_says_itself() {
    let file = "cgroups: {include: /a}\nprocesses: {by: pid}\n";
    let entry =
        "tracepoints: {a: {event: 'sys:one', per: [host, cpu, cgroup, process], processes: {by: exe}}}";
    let Config { traced, .. } = good(&format!("{file}{entry}"));
    let [
        Targets::Cpus(CpuScope::Host),
        Targets::Cpus(CpuScope::Cpu),
        Targets::Cgroups(cgroups),
        Targets::Processes(processes),
    ] = &traced[0].per[..]
    else {
        panic!("{traced:?}")
    };
    assert_eq!((cgroups.include[0].as_str(), &processes.by[..]), ("/a", &[GroupBy::Exe][..]));
    assert_eq!(
        wrong("event: 'sys:one', per: []"),
        ".per: an empty list selects no targets; omit `per` for `host`"
    );
    assert!(
        wrong("event: 'sys:one', per: hots")
            .contains("`host`, `cpu`, `numa`, `cgroup` or `process`, found `hots`")
    );
    assert!(wrong("event: 'sys:one', cgroups: {depth: 2}").starts_with(".cgroups: this has no effect"));
}

#[test]
fn a_selection_that_only_a_tracepoint_counts_for_has_an_effect() {
    let counters = "counters: {a: {events: cycles}}\ncgroups: {depth: 2}\nscheduler: {per: host}\n";
    assert_eq!(report(counters), "", "the built-in preset does");
    let counters = format!("{counters}presets: []\n");
    assert!(report(&counters).contains("this has no effect: no entry counts per cgroup"));
    assert_eq!(report(&format!("{counters}tracepoints: {{b: {{event: 'sys:one', per: cgroup}}}}")), "");
}

#[test]
fn two_entries_are_never_one_metric() {
    let tracepoints = |entries: &str| report(&format!("tracepoints:\n{entries}"));
    assert_eq!(
        tracepoints("  a: {event: 'sys:one', sum: {of: x, unit: bytes}}\n  a_bytes: {event: 'sys:one'}\n"),
        "3:3: tracepoints.a_bytes: `a_bytes` is already the name of metrics of `tracepoints.a`; give the entry another name"
    );
    assert_eq!(
        tracepoints("  page_faults: {event: 'sys:one', per: cgroup}\n"),
        "2:3: tracepoints.page_faults: `page_faults` is already the name of metrics of `counters.os`; \
         give the entry another name"
    );
    assert!(
        tracepoints("  forks_total: {event: 'sys:one'}\n")
            .contains("the suffix \"_total\" is reserved for the exposition formats")
    );
    assert!(tracepoints("  Forks: {event: 'sys:one'}\n").ends_with("write `forks`"));
}

#[test]
fn tracefs_is_mounted_only_if_the_file_says_so() {
    assert!(!Config::default().mount_tracefs);
    assert!(good("tracefs: {mount: true}").mount_tracefs);
    assert!(report("tracefs: {mount: yes}").ends_with("are texts in YAML 1.2"));
}

/// Returns the single entry of `probes`.
fn probe(entry: &str) -> Traced {
    good(&format!("probes: {{a: {{{entry}}}}}")).traced.remove(0)
}

fn definition(entry: &str) -> Definition {
    match probe(entry).source {
        EventSource::Probe(definition) | EventSource::Timed(definition) => definition,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_probe_has_a_place_in_the_files_of_somebody() {
    for (entry, place, root) in [
        ("kprobe: tcp_sendmsg+0x10", "tcp_sendmsg+0x10", Root::Host),
        ("kretprobe: 'nf_conntrack:nf_conntrack_in'", "nf_conntrack:nf_conntrack_in", Root::Host),
        ("uprobe: '/lib/libc.so.6:malloc'", "/lib/libc.so.6:malloc", Root::Host),
        ("uretprobe: '/a:f', in: {pid: 7}", "/a:f", Root::Process(7)),
        ("usdt: '/a:p:n', in: {cgroup: /c/d}", "/a:p:n", Root::Cgroup("/c/d".into())),
    ] {
        let definition = definition(entry);
        let within = Within::Root(root);
        assert_eq!((&*definition.location.to_string(), definition.within), (place, within), "{entry}");
        assert_eq!((probe(entry).kind, probe(entry).measure), (TracedKind::Probe, Measure::Count));
    }
}

#[test]
fn a_probe_follows_the_containers_that_its_conditions_match() {
    let rule = |entry: &str| match definition(&format!("uprobe: '/a:f', in: {{{entry}}}")).within {
        Within::Containers(rule) => *rule,
        within => panic!("{within:?}"),
    };
    let shown = |entry: &str| rule(entry).to_string();
    assert_eq!(shown("cgroup: '/kubepods*/**'"), "cgroup /kubepods*/**");
    assert_eq!(
        shown("namespace: shop, pod: 'web-*', container: app, labels: {app: 'w*'}, cgroup: /a"),
        "cgroup /a, namespace shop, pod web-*, container app, label app=w*"
    );
    let entry = "probes: {a: {uprobe: '/a:f', in: {labels: {app: web}}}, b: {uprobe: '/a:f', in: {labels: {tier: x, app: db}}}}";
    assert_eq!(
        good(entry).containers.selecting,
        ["app".into(), "tier".into()],
        "sources list only these labels"
    );
}

#[test]
fn an_entry_is_of_one_probe_in_one_place() {
    for (entry, expected) in [
        (
            "per: cpu",
            ": the entry has no probe location; write one of `kprobe`, `kretprobe`, `uprobe`, `uretprobe` and `usdt`",
        ),
        ("kprobe: f, uprobe: '/a:f'", ".uprobe: an entry has only one probe; split it into two entries"),
        (
            "kprobe: f, in: {pid: 7}",
            ".in: a kernel probe has no file; leave it out; kernel probes are the same for all processes",
        ),
        (
            "uprobe: '/a:f', in: {}",
            ".in: it names no cgroup, container or process; write {cgroup: /…}, {namespace: …, pod: …, container: …} or {pid: 123}, \
             or leave it out for the exporter's own files",
        ),
        ("uprobe: '/a:f', in: {pid: 7, cgroup: /a}", ".in.pid: `cgroup` and `pid` are mutually exclusive"),
        ("uprobe: '/a:f', in: {pid: 0}", ".in.pid: 0 is not between 1 and 4194303"),
        ("uprobe: '/a:f', in: {cgroup: a/b}", ".in.cgroup: `a/b` is not the path of a cgroup; write `/a/b`"),
        (
            "uprobe: '/a:f', in: {cgroup: 'a/*'}",
            ".in.cgroup: `a/*` never matches: paths of cgroups begin with a slash; write `/a/*` or `**/a/*`",
        ),
        (
            "uprobe: '/a:f', in: {pid: 7, pod: a}",
            ".in.pid: `pid` selects one process, so other conditions have no effect",
        ),
        (
            "uprobe: '/a:f', in: {pod: ''}",
            ".in.pod: an empty pattern matches nothing; leave it out, or write `*` for any name",
        ),
        (
            "uprobe: '/a:f', in: {pod: shop/web}",
            ".in.pod: `shop/web` never matches: names contain no slash; write `namespace` and `pod` as two keys; for a path write `cgroup`",
        ),
        ("uprobe: '/a:f', in: {labels: {}}", ".in.labels: contains no labels; leave it out"),
        (
            "uprobe: '/a:f', in: {namespce: shop}",
            ".in.namespce: unknown setting `namespce`; did you mean `namespace`?",
        ),
        (
            "uprobe: '/a:f', in: {cgroup: /sys/fs/cgroup/a}",
            ".in.cgroup: `/sys/fs/cgroup/a` is not relative to the mount point; write `/a`",
        ),
        ("kprobee: f", ".kprobee: unknown setting `kprobee`; did you mean `kprobe`?"),
    ] {
        assert_eq!(problems("probes", entry), expected, "{entry}");
    }
    let place = problems("probes", "kretprobe: f+4");
    assert!(place.starts_with(".kretprobe: `f+4` is not a valid location of a kretprobe: "), "{place}");
    assert!(problems("probes", "uprobe: 'bin:f'").contains("write it as /usr/bin/bash:readline"));
}

#[test]
fn the_time_of_a_function_is_that_from_its_entry_to_its_return() {
    for (entry, bounds) in [
        ("kprobe: f, histogram: seconds", None),
        ("uprobe: '/a:f', histogram: {buckets: [1, 2]}", Some(vec![1.0, 2.0])),
    ] {
        let traced = probe(entry);
        assert!(matches!(traced.source, EventSource::Timed(_)), "{traced:?}");
        assert_eq!((traced.stem(), traced.measure), ("a_seconds".to_owned(), Measure::Elapsed(bounds)));
    }
    let both =
        definition("kprobe: f, histogram: seconds, arguments: [path, 'error=$retval:s32'], labels: error");
    assert_eq!(both.arguments.len(), 2, "some are taken at the entry, some at the return");
    let about = ".histogram: this is a histogram of durations, but";
    let instead = "write `kprobe` or `uprobe` for the time from a function's entry to its return";
    for (entry, expected) in [
        ("kretprobe: f, histogram: seconds", format!("{about} a return has no duration; {instead}")),
        ("usdt: '/a:p:n', histogram: seconds", format!("{about} a USDT probe has no duration; {instead}")),
        (
            "kprobe: f+4, histogram: seconds",
            format!("{about} the duration of a function begins at its entry; leave out the offset"),
        ),
    ] {
        assert_eq!(problems("probes", entry), expected, "{entry}");
    }
}

#[test]
fn arguments_are_the_fields_of_a_probe() {
    let traced = probe(
        "kprobe: f, arguments: ['size=%si:u64', '%dx'], filter: 'size > 0 && common_pid != 1', \
         sum: {of: size, unit: bytes}, labels: {third: arg2}",
    );
    let EventSource::Probe(Definition { arguments, .. }) = &traced.source else { panic!("{traced:?}") };
    assert_eq!(arguments.iter().map(|argument| &*argument.name).collect::<Vec<_>>(), ["size", "arg2"]);
    let takes = "the probe has no argument";
    for (more, expected) in [
        ("arguments: ['size=%si'], sum: {of: sizee}", format!(".sum.of: {takes} `sizee`; did you mean `size`?")),
        ("arguments: ['size=%si'], histogram: {of: port}", format!(".histogram.of: {takes} `port`; its arguments are `size`")),
        ("labels: port", format!(".labels: {takes} `port`; add it: `arguments: [port]`")),
        ("arguments: ['size=%si'], filter: 'sizes > 0'", format!(".filter: {takes} `sizes`; did you mean `size`?")),
        ("arguments: []", ".arguments: an empty list contains no arguments; leave it out".into()),
        ("arguments: [a, 'a=%si']", ".arguments[1]: duplicate argument `a`; rename one: a_2=…".into()),
        ("arguments: ['r=$retval']", ".arguments[0]: the return value is not available before the function returns; write `kretprobe` or `uretprobe`, or measure `histogram: seconds` until it returns".into()),
        ("arguments: ['r=+8($retval)']", ".arguments[0]: the return value is not available before the function returns; write `kretprobe` or `uretprobe`, or measure `histogram: seconds` until it returns".into()),
    ] {
        assert_eq!(problems("probes", &format!("kprobe: f, {more}")), expected, "{more}");
    }
    let none = problems("probes", "kprobe: f, arguments: ['%'], labels: x");
    assert!(
        none.starts_with(".arguments[0]: `%` is not a valid argument: ") && none.lines().count() == 1,
        "{none}"
    );
    assert_eq!(definition("kretprobe: f, arguments: ['r=$retval:s32']").arguments.len(), 1);
}

#[test]
fn a_marker_gives_the_arguments_that_are_made_use_of() {
    let used = probe(
        "usdt: '/a:p:n', labels: {query: arg2, who: $pid}, filter: 'arg10 > 1 && COMM == x', sum: {of: arg2}",
    );
    let EventSource::Probe(definition) = used.source else { panic!("{used:?}") };
    let texts: Vec<String> = definition.arguments.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["arg10=$arg10", "arg2=$arg2"]);
    let EventSource::Probe(definition) = probe("usdt: '/a:p:n'").source else { panic!("not a probe") };
    assert_eq!(definition.arguments, []);
}

#[test]
fn a_marker_has_arguments_that_the_file_need_not_know() {
    assert_eq!(probe("usdt: '/a:p:n', labels: {query: arg1}, filter: 'arg2 > 1'").labels.len(), 1);
    assert!(
        problems("probes", "usdt: '/a:p:n', arguments: [arg1], labels: arg2")
            .contains("has no argument `arg2`")
    );
}

#[test]
fn a_filter_compares_what_stands_before_an_operator() {
    for (filter, names) in [
        ("a > 1", &["a"][..]),
        ("a==1&&(b!=2||!(c & 0x4))", &["a", "b", "c"]),
        ("name.ustring ~ \"x == y\" || comm == 'a > b'", &["name", "comm"]),
        ("f.function == vfs_read", &["f"]),
        ("a <= -5", &["a"]),
        ("", &[]),
        ("\"open", &[]),
        ("é == 1", &[]),
        ("> 1 &&", &[]),
    ] {
        assert_eq!(super::fields::compared(filter), names, "{filter}");
    }
}

#[test]
fn tracepoints_stand_before_probes_and_both_before_presets_and_a_section_replaces_itself_alone() {
    let Config { traced, .. } =
        good("presets: irq\nprobes: {a: {kprobe: f}}\ntracepoints: {b: {event: 'sys:one'}}");
    let names: Vec<(TracedKind, &str)> = traced.iter().map(|entry| (entry.kind, &*entry.name)).collect();
    assert_eq!(
        names,
        [
            (TracedKind::Tracepoint, "b"),
            (TracedKind::Probe, "a"),
            (TracedKind::Preset(Preset::Irq), "irq_run")
        ]
    );
    assert!(
        report("probes: {a: {kprobe: f}}\ntracepoints: {a: {event: 'sys:one'}}")
            .contains("probes.a: `a` is already the name of metrics of `tracepoints.a`")
    );
}

proptest! {
    #[test]
    fn no_filter_makes_it_panic(filter in "[a-c0-9 .\"'=<>!&|~()é]{0,40}") {
        super::fields::compared(&filter);
    }
}
