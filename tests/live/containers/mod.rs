//! Pods and containers of a real containerd, managed through CRI as the kubelet does: their series have the labels of their pods and
//! containers.

mod containerd;
mod selections;

use std::collections::BTreeMap;

use crate::support::exposition::Exposition;
use crate::support::folded::Folded;
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};
use containerd::{Containerd, IMAGE};

const CLOCK: &str = "perf_cgroup_task_clock_seconds_total";

fn configuration(containerd: &Containerd) -> String {
    format!(
        "counters: {{os: {{events: [task-clock, context-switches], per: [cgroup]}}}}\n\
         cgroups: {{include: [\"{}/**\"]}}\n\
         collection: {{interval: 1s, freshness: 0s}}\n\
         containers:\n  cri: {}\n  docker: off\n  labels: [app.kubernetes.io/name]\n  service: [example.com/team]\n",
        containerd.parent(),
        containerd.socket().display()
    )
}

/// Returns the labels, except for `cgroup`, of all series of a metric whose cgroup ends with `id`.
fn labels(metrics: &Exposition, name: &str, id: &str) -> Vec<BTreeMap<String, String>> {
    let series =
        metrics.series(name).filter(|labels| labels.get("cgroup").is_some_and(|path| path.ends_with(id)));
    let others = |labels: &BTreeMap<String, String>| {
        let mut labels = labels.clone();
        labels.remove("cgroup");
        labels
    };
    series.map(others).collect()
}

fn named(pod: &str, app: Option<&str>) -> Vec<BTreeMap<String, String>> {
    let pairs = [("container", "app"), ("namespace", "shop"), ("pod", pod), ("service", "checkout")];
    let app = app.map(|app| ("app_kubernetes_io_name", app));
    vec![pairs.into_iter().chain(app).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()]
}

#[test]
fn what_is_counted_of_a_container_has_the_names_of_its_pod() {
    if lacks(Feature::Containerd) || lacks(Feature::Cgroup) {
        return;
    }
    let mut containerd = Containerd::start();
    let first = containerd.run("web-0", &[("app.kubernetes.io/name", "web")]);
    let service = Service::start(&configuration(&containerd));
    // Its series wait for container metadata for up to three seconds. On a loaded machine the runtime may answer later.
    let is_published = |id: &str, expected: &[BTreeMap<String, String>]| {
        eventually(&format!("a series has the labels {expected:?}"), || {
            (labels(&service.metrics(), CLOCK, id) == expected).then_some(())
        });
    };
    is_published(&first.container, &named("web-0", Some("web")));
    let info = labels(&service.metrics(), "perf_container_info", &first.container);
    let images: Vec<Option<&str>> =
        info.iter().map(|labels| labels.get("image").map(String::as_str)).collect();
    assert_eq!(images, [Some(IMAGE)], "the runtime lists the container with the ID of its image");
    let second = containerd.run("db-0", &[]);
    is_published(&second.container, &named("db-0", None));
    let metrics = service.metrics();
    let sum = |labels: &[(&str, &str)]| metrics.sum("perf_cgroup_context_switches_total", labels);
    assert!(sum(&[("pod", "web-0"), ("container", "app")]) > 0.0, "{metrics:?}");
    assert!(
        sum(&[("pod", "db-0"), ("container", "POD")]) > 0.0,
        "a pod has a sandbox container that holds its namespaces"
    );

    // A removed container keeps its labels as long as its series exists.
    containerd.remove(&second);
    for _ in 0..3 {
        assert_eq!(labels(&service.metrics(), CLOCK, &second.container), named("db-0", None));
    }
}

#[test]
fn a_runtime_that_does_not_answer_holds_nobody_up_and_names_come_when_it_does() {
    if lacks(Feature::Containerd) || lacks(Feature::Cgroup) {
        return;
    }
    let mut containerd = Containerd::start();
    let pod = containerd.run("web-0", &[]);
    containerd.pause(true);
    let mut service = Service::start(&configuration(&containerd));
    let unnamed = eventually("its series is published without container labels", || {
        labels(&service.metrics(), CLOCK, &pod.container).into_iter().next()
    });
    assert_eq!(unnamed, BTreeMap::new());
    service.has_logged(&["container metadata request failed: no response within 5s"]);
    containerd.pause(false);
    eventually("its series has container labels", || {
        let found = labels(&service.metrics(), CLOCK, &pod.container);
        (found == named("web-0", None)).then_some(())
    });
    service.has_logged(&["container metadata source recovered"]);
}

#[test]
fn a_profile_of_a_pod_is_what_its_containers_do() {
    if lacks(Feature::Containerd) || lacks(Feature::Cgroup) {
        return;
    }
    let mut containerd = Containerd::start();
    let pod = containerd.run("web-0", &[]);
    let service = Service::start(&format!(
        "{}profiles: {{cpu: {{event: cpu-clock, frequency: 199, stack: 2KiB}}}}\n",
        configuration(&containerd)
    ));
    eventually("its container metadata is known", || {
        (labels(&service.metrics(), CLOCK, &pod.container) == named("web-0", None)).then_some(())
    });
    let of_pod = eventually("its samples cover a fifth of a second", || {
        let folded = Folded::of(&service, "namespace=shop&pod=web-*&container=app");
        (folded.total() > 2e8).then_some(folded)
    });
    let hot = of_pod.share(&["burn_in_container"]);
    assert!(hot > 0.5, "{hot} of {of_pod:#?}");
    assert_eq!(Folded::of(&service, "pod=db-*").total(), 0.0);
}
