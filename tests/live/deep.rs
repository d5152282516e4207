//! Sets of events that are counted for a few cgroups for a limited time, by the service on request.

use std::process::Command;
use std::time::Duration;

use perf_exporter::clock::Clock;
use perf_exporter::host::list;
use serde_json::Value;

use crate::counting::about;
use crate::support::cgroup::TestCgroup;
use crate::support::service::{Service, get_path};
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

const FAULTS: &str = "perf_cgroup_minor_faults_total";
const SWITCHES: &str = "perf_cgroup_context_switches_total";

/// Sends a request, and returns the status code and the response.
fn send(service: &Service, method: &str, path: &str, body: &str) -> (u16, Value) {
    let url = format!("http://{}{path}", service.address);
    let args = ["-sS", "-X", method, "-d", body, "-w", "\n%{http_code}", &url];
    let sent = Command::new("curl").args(args).output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    let text = String::from_utf8(sent.stdout).unwrap();
    let (json, code) = text.rsplit_once('\n').unwrap();
    (code.parse().unwrap(), serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}")))
}

/// Returns the number of perf event descriptors of the service.
fn descriptors(service: &Service) -> usize {
    let dir = format!("/proc/{}/fd", service.child.id());
    let links = list(dir.as_ref()).unwrap();
    let targets = links.iter().filter_map(|name| std::fs::read_link(format!("{dir}/{name}")).ok());
    targets.filter(|target| target.to_string_lossy().contains("perf_event")).count()
}

#[test]
fn page_faults_of_a_cgroup_are_counted_for_two_seconds_and_all_descriptors_are_free_afterwards() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let (watched, other) = (TestCgroup::new("deep"), TestCgroup::new("shallow"));
    let (mut worker, mut bystander) = (Worker::start("deep"), Worker::start("shallow"));
    watched.take(worker.pid());
    other.take(bystander.pid());
    let service = Service::start(&format!(
        "collection: {{interval: 1s, freshness: 0s}}\nhistory: {{for: 0s}}\nanomalies: {{}}\npresets: []\nprofiles: {{}}\n\
         scheduler: {{per: []}}\n\
         counters: {{os: {{events: [context-switches], per: [cpu, cgroup]}}}}\n\
         cgroups: {{include: [\"{}\", \"{}\"], attribution: dedicated}}\n",
        watched.path(),
        other.path()
    ));
    let (path, before) = (watched.path(), descriptors(&service));
    let switches = || service.metrics().value(SWITCHES, &[("cgroup", path)]).unwrap();
    let switches_before = switches();
    let body =
        serde_json::json!({"events": ["minor-faults"], "cgroups": [path], "for": "2s", "reason": "a test"});
    let (clock, began) = (Clock::system(), Clock::system().monotonic());
    let (code, state) = send(&service, "POST", "/api/v1/deep", &body.to_string());
    assert_eq!((code, &state["cgroups"]), (201, &Value::from(1)), "{state}");
    assert!(descriptors(&service) > before);
    worker.does(Work::Faults(2048));
    bystander.does(Work::Faults(2048));
    let metrics = service.metrics();
    let counted = metrics.value(FAULTS, &[("cgroup", path)]);
    assert!(about(counted, 2048), "{counted:?}");
    assert_eq!(metrics.value(FAULTS, &[("cgroup", other.path())]), None);
    assert_eq!(metrics.value("perf_exporter_deep_sets", &[]), Some(1.0));
    eventually("the set ends", || {
        let list: Value = serde_json::from_str(&get_path(&service.address, "/api/v1/deep").1).unwrap();
        list["active"].as_array().unwrap().is_empty().then_some(())
    });
    let lasted = clock.monotonic().since(began);
    assert!(lasted >= Duration::from_secs(2) && lasted < Duration::from_secs(6), "{lasted:?}");
    assert_eq!(descriptors(&service), before);
    worker.does(Work::Faults(2048));
    let last = service.metrics().value(FAULTS, &[("cgroup", path)]);
    assert!(
        last >= counted && about(last, 2048),
        "the last counts stay, and later faults are not counted: {last:?}"
    );
    assert!(switches() >= switches_before, "other totals do not fall");
}

#[test]
fn a_set_ends_on_request_and_wrong_requests_open_nothing() {
    if lacks(Feature::Cgroup) {
        return;
    }
    let watched = TestCgroup::new("ended");
    let service = Service::start(&format!(
        "collection: {{interval: 1s, freshness: 0s}}\ncounters: {{os: {{events: [context-switches], per: cpu}}}}\nprofiles: {{}}\npresets: []\n\
         scheduler: {{per: []}}\nhistory: {{for: 0s}}\nanomalies: {{}}\n\
         deep: {{faults: {{events: minor-faults, cgroups: \"{}\"}}}}\n",
        watched.path()
    ));
    let list = || -> Value { serde_json::from_str(&get_path(&service.address, "/api/v1/deep").1).unwrap() };
    let id = eventually("the set of the file begins", || list()["active"][0]["id"].as_u64());
    let open = descriptors(&service);
    for (body, expected) in [
        (r#"{"events": ["minor-faults"], "cgroups": ["/no-such-cgroup"]}"#, 404),
        (r#"{"events": ["no-such-event"], "cgroups": ["/**"]}"#, 400),
        (r#"{"events": ["minor-faults", "major-faults"], "cgroups": ["/**"]}"#, 409),
        ("{", 400),
    ] {
        let (code, answer) = send(&service, "POST", "/api/v1/deep", body);
        assert_eq!(code, expected, "{body}: {answer}");
        assert!(answer["refused"][0]["remedy"].is_string(), "{answer}");
    }
    assert_eq!(descriptors(&service), open);
    let (code, answer) = send(&service, "DELETE", &format!("/api/v1/deep/{id}"), "");
    assert_eq!((code, &answer["ended"]), (200, &Value::from(id)));
    assert!(descriptors(&service) < open);
    assert_eq!(send(&service, "DELETE", &format!("/api/v1/deep/{id}"), "").0, 404);
}
