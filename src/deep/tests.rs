//! Tests of the sets in force, with cgroups and a clock made by hand.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::config::{Config, Counters, DeepRequest, load, load_deep};
use crate::targets::{Cgroup, Identity, Pod, Targets};

const LIMIT: usize = 4;

fn at(seconds: u64) -> Moment {
    Moment {
        monotonic: Monotonic(Duration::from_secs(1000 + seconds)),
        wall: Timestamp(1_000_000 + seconds * 1000),
    }
}

fn config(yaml: &str) -> Config {
    load(yaml.as_bytes(), "f").unwrap_or_else(|problems| panic!("{problems}")).0
}

fn request(json: &str) -> DeepRequest {
    load_deep(json.as_bytes()).unwrap_or_else(|problems| panic!("{problems}"))
}

fn cgroups(paths: &[&str]) -> Vec<Arc<Cgroup>> {
    paths.iter().map(|path| Arc::new(Cgroup::at(path))).collect()
}

/// Returns the cgroup of a container, or of a pod as a whole, with the annotation.
fn of_pod(path: &str, pod: &str, deep: Option<&str>) -> Arc<Cgroup> {
    let uid = format!("uid-{pod}");
    let pod = Pod { namespace: "shop".into(), name: pod.into(), uid: uid.as_str().into() };
    let identity = Identity { pod: Some(pod), deep: deep.map(Into::into), ..Identity::default() };
    Arc::new(Cgroup { container: Some(Arc::new(identity)), ..Cgroup::at(path) })
}

/// Begins a requested set for `/a` and `/b`.
fn begin(registry: &mut Registry, json: &str, now: Moment) -> Result<u64, Refusal> {
    registry.request(request(json), "tester", (&[], &cgroups(&["/a", "/b", "/c"]), LIMIT), now)
}

/// Returns the entries: names, events and patterns.
fn shown(entries: &[Counters]) -> Vec<String> {
    let show = |entry: &Counters| {
        let [Targets::Cgroups(selection)] = &entry.per[..] else { panic!("{entry:?}") };
        let include = selection.include.iter().map(|glob| glob.as_str().to_owned());
        let rules = selection.pods.include.iter().map(ToString::to_string);
        let selected = include.chain(rules).collect::<Vec<_>>().join(" ");
        let groups = entry.groups.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        format!("{} {groups} on {selected}", entry.name)
    };
    entries.iter().map(show).collect()
}

const FAULTS: &str = r#"{"events": ["minor-faults"], "cgroups": ["/a"], "for": "10s"}"#;

#[test]
fn a_requested_set_is_in_force_until_its_time_is_over_and_no_longer() {
    let mut registry = Registry::default();
    let id = begin(&mut registry, FAULTS, at(0)).unwrap();
    assert_eq!(shown(&registry.entries(&[])), ["deep:minor_faults minor-faults on /a"]);
    let report = registry.report(&[], &cgroups(&["/a", "/b"]));
    let state = &report.active[0];
    assert_eq!((state.id, &*state.name, state.origin), (id, "request_1", Origin::Request));
    assert_eq!((state.cgroups, state.began, state.ends), (1, at(0).wall, Some(at(10).wall)));
    assert_eq!(state.requester, "tester");
    assert_eq!(registry.due(), Some(at(10).monotonic));
    let almost = Moment { monotonic: Monotonic(Duration::from_millis(1_009_999)), ..at(9) };
    assert!(!registry.expire(almost) && registry.number() == 1);
    assert!(registry.expire(at(10)) && registry.number() == 0);
}

#[test]
fn the_series_of_an_ended_set_are_kept_as_long_as_those_of_a_removed_cgroup() {
    let mut registry = Registry::default();
    begin(&mut registry, FAULTS, at(0)).unwrap();
    registry.expire(at(10));
    assert_eq!(shown(&registry.entries(&[])), ["deep:minor_faults minor-faults on "], "it selects nothing");
    assert_eq!(registry.due(), Some(at(310).monotonic));
    assert!(!registry.expire(at(309)));
    assert!(registry.expire(at(310)) && registry.entries(&[]).is_empty());
    assert_eq!(registry.due(), None);
}

#[test]
fn a_request_with_the_name_of_an_active_set_replaces_it_and_extends_its_time() {
    let mut registry = Registry::default();
    let named = |cgroup: &str| {
        format!(r#"{{"name": "x", "events": ["minor-faults"], "cgroups": ["{cgroup}"], "for": "10s"}}"#)
    };
    let first = begin(&mut registry, &named("/a"), at(0)).unwrap();
    assert_eq!(begin(&mut registry, &named("/b"), at(5)).unwrap(), first);
    assert_eq!(registry.number(), 1);
    assert_eq!(shown(&registry.entries(&[])), ["deep:minor_faults minor-faults on /b"]);
    assert!(!registry.expire(at(10)));
    assert!(registry.expire(at(15)));
}

#[test]
fn sets_of_metrics_are_entries_of_their_own() {
    let mut registry = Registry::default();
    for metrics in ["ipc", "topdown-l1", "topdown-l1\", \"ipc"] {
        let json = format!(r#"{{"metrics": ["{metrics}"], "cgroups": ["/a"]}}"#);
        begin(&mut registry, &json, at(0)).unwrap();
    }
    let entries = registry.entries(&[]);
    let names: Vec<&str> = entries.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, ["deep:ipc", "deep:topdown-l1", "deep:topdown-l1+ipc"]);
}

#[test]
fn sets_with_the_same_events_are_one_entry_that_keeps_its_name_when_one_ends() {
    let mut registry = Registry::default();
    let first = begin(&mut registry, FAULTS, at(0)).unwrap();
    begin(&mut registry, &FAULTS.replace("/a", "/b"), at(0)).unwrap();
    assert_eq!(shown(&registry.entries(&[])), ["deep:minor_faults minor-faults on /a /b"]);
    registry.end(first, at(1)).unwrap();
    assert_eq!(shown(&registry.entries(&[])), ["deep:minor_faults minor-faults on /b"]);
    assert_eq!(registry.end(first, at(1)).unwrap_err().kind, RefusalKind::Unknown);
}

#[test]
fn sets_with_some_events_in_common_exclude_each_other() {
    let mut registry = Registry::default();
    begin(&mut registry, FAULTS, at(0)).unwrap();
    let both = r#"{"events": ["minor-faults", "alignment-faults"], "cgroups": ["/b"], "for": "10s"}"#;
    let refusal = begin(&mut registry, both, at(0)).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Conflict);
    assert!(
        refusal.to_string().starts_with("set 1 in force counts minor_faults together with other events;")
    );
    registry.expire(at(10));
    begin(&mut registry, both, at(11)).unwrap();
    let entries = shown(&registry.entries(&[]));
    assert_eq!(
        entries,
        ["deep:minor_faults {minor-faults,alignment-faults} on /b"],
        "no event is counted twice"
    );
}

#[test]
fn requests_are_bounded_in_number_and_each_in_its_cgroups() {
    let mut registry = Registry::default();
    let wide = begin(&mut registry, &FAULTS.replace("/a", "/*"), at(0));
    assert!(wide.is_ok());
    let many: Vec<String> = (0..5).map(|number| format!("/{number}")).collect();
    let many = cgroups(&many.iter().map(String::as_str).collect::<Vec<_>>());
    let all = request(&FAULTS.replace("/a", "/*"));
    let refusal = registry.request(all, "tester", (&[], &many, LIMIT), at(0)).unwrap_err();
    assert!(refusal.reason.contains("selects 5 cgroups, and limits.deep_cgroups allows 4"), "{refusal}");
    let none = begin(&mut registry, &FAULTS.replace("/a", "/none"), at(0)).unwrap_err();
    assert_eq!(none.kind, RefusalKind::Unknown);
    for _ in 1..MAX_REQUESTED {
        begin(&mut registry, FAULTS, at(0)).unwrap();
    }
    assert_eq!(begin(&mut registry, FAULTS, at(0)).unwrap_err().kind, RefusalKind::Busy);
    registry.expire(at(10));
    assert!(begin(&mut registry, FAULTS, at(10)).is_ok());
}

#[test]
fn an_event_that_counters_counts_for_the_cgroup_is_not_counted_again() {
    let counters =
        config("counters: {os: {events: [page-faults], per: cgroup, cgroups: {include: [/a]}}}").counters;
    let mut registry = Registry::default();
    let wanted = |cgroup: &str| {
        request(&format!(r#"{{"events": ["page-faults", "minor-faults"], "cgroups": ["{cgroup}"]}}"#))
    };
    let host = cgroups(&["/a", "/b"]);
    let other = registry.request(wanted("/b"), "tester", (&counters, &host, LIMIT), at(0)).unwrap_err();
    let expected = "entry os of `counters` counts page_faults under the same name, but not for /b; give the event another name";
    assert!(other.to_string().starts_with(expected), "{other}");
    registry.request(wanted("/a"), "tester", (&counters, &host, LIMIT), at(0)).unwrap();
    assert_eq!(shown(&registry.entries(&counters)), ["deep:page_faults minor-faults on /a"]);
    let report = registry.report(&counters, &host);
    assert_eq!(report.active[0].already_counted, [("page_faults".to_owned(), "os".into())].into());
}

#[test]
fn a_set_of_the_file_begins_once_and_a_reload_restarts_only_what_has_changed() {
    let file =
        |lasts: &str| config(&format!("deep: {{x: {{events: minor-faults, cgroups: /a{lasts}}}}}")).deep;
    let host = cgroups(&["/a", "/b"]);
    let mut registry = Registry::default();
    registry.set_file(&file(", for: 10s"), at(0));
    assert_eq!(registry.number(), 0, "the cgroups are not known yet");
    assert!(registry.review(&host, LIMIT, at(1)) && registry.number() == 1);
    assert!(!registry.review(&host, LIMIT, at(2)));
    assert!(registry.expire(at(11)));
    registry.set_file(&file(", for: 10s"), at(12));
    assert!(!registry.review(&host, LIMIT, at(12)), "it has ended");
    registry.set_file(&file(""), at(13));
    assert!(registry.review(&host, LIMIT, at(13)));
    assert_eq!(registry.report(&[], &host).active[0].ends, None);
    begin(&mut registry, &FAULTS.replace("/a", "/b"), at(14)).unwrap();
    registry.set_file(&[], at(15));
    let names: Vec<_> = registry.report(&[], &host).active.into_iter().map(|state| state.origin).collect();
    assert_eq!(names, [Origin::Request], "a reload keeps requested sets");
}

#[test]
fn a_set_of_the_file_that_selects_too_much_waits_until_it_selects_less() {
    let mut registry = Registry::default();
    registry.set_file(&config("deep: {x: {events: minor-faults, cgroups: '/**'}}").deep, at(0));
    let paths = ["/a", "/b", "/c", "/d", "/e"];
    assert!(!registry.review(&cgroups(&paths), LIMIT, at(1)));
    let refused = registry.report(&[], &[]).refused;
    assert!(refused[0].refusal.reason.contains("selects 5 cgroups"), "{refused:?}");
    assert!(registry.review(&cgroups(&paths[..4]), LIMIT, at(2)));
    assert!(registry.report(&[], &[]).refused.is_empty());
    assert!(registry.review(&cgroups(&paths), LIMIT, at(3)), "it ends");
    assert_eq!((registry.number(), registry.report(&[], &[]).refused.len()), (0, 1));
}

const ANNOTATED: &str = "deep:\n  io: {events: minor-faults, annotation: allowed, for: 1m}\n  \
                         closed: {events: alignment-faults, cgroups: /x}\n";

#[test]
fn a_pod_with_the_annotation_is_counted_once_for_the_time_of_its_set() {
    let mut registry = Registry::default();
    registry.set_file(&config(ANNOTATED).deep, at(0));
    registry.review(&[], LIMIT, at(0));
    let before = registry.number();
    let host = [of_pod("/pods/web", "web-0", Some("io")), of_pod("/pods/web/app", "web-0", Some("io"))];
    assert!(registry.review(&host, LIMIT, at(1)) && !registry.review(&host, LIMIT, at(2)));
    let report = registry.report(&[], &host);
    let state = report.active.iter().find(|state| state.origin == Origin::Annotation).unwrap();
    assert_eq!((&*state.name, state.cgroups, state.ends), ("io", 2, Some(at(61).wall)));
    assert_eq!((&*state.requester, &*state.selection[0]), ("shop/web-0", "namespace shop, pod web-0"));
    assert!(registry.expire(at(61)));
    assert!(
        !registry.review(&host, LIMIT, at(62)) && registry.number() == before,
        "each pod is counted once"
    );
    let again = [of_pod("/pods/web-2", "web-2", Some("io"))];
    assert!(registry.review(&again, LIMIT, at(63)), "another pod");
    assert!(registry.review(&[], LIMIT, at(64)) && registry.number() == before, "it ends with its pod");
}

#[test]
fn annotations_select_only_what_the_administrator_allows() {
    let mut registry = Registry::default();
    registry.set_file(&config(ANNOTATED).deep, at(0));
    registry.review(&[], LIMIT, at(0));
    let hostile = "x".repeat(256);
    let host: Vec<Arc<Cgroup>> =
        [("closed", "closed"), ("cycles for=99h", "odd"), (&hostile, "long"), ("*", "glob")]
            .map(|(set, pod)| of_pod(&format!("/pods/{pod}"), pod, Some(set)))
            .into();
    assert!(!registry.review(&host, LIMIT, at(1)));
    let refused = registry.report(&[], &[]).refused;
    assert_eq!(refused.len(), 4);
    assert!(refused.iter().all(|refused| refused.refusal.kind == RefusalKind::Unknown), "{refused:?}");
    let many: Vec<Arc<Cgroup>> = (0..1000)
        .map(|number| of_pod(&format!("/pods/{number}"), &format!("p{number}"), Some("io")))
        .collect();
    assert!(registry.review(&many, LIMIT, at(2)));
    let report = registry.report(&[], &many);
    let annotated = report.active.iter().filter(|state| state.origin == Origin::Annotation).count();
    assert_eq!((annotated, report.refused.len()), (LIMIT, 32));
}

#[test]
fn all_sets_of_a_file_are_planned_for_a_check() {
    let registry = Registry::of_file(&config(ANNOTATED).deep);
    assert_eq!(
        shown(&registry.entries(&[])),
        ["deep:minor_faults minor-faults on ", "deep:alignment_faults alignment-faults on /x"]
    );
}
