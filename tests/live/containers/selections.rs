//! Probes, counters and profiles that select containers by the names and labels of their pods, and follow them to other pods.

use super::containerd::Containerd;
use super::{CLOCK, labels};
use crate::support::folded::Folded;
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

fn configuration(containerd: &Containerd, more: &str) -> String {
    format!(
        "collection: {{interval: 1s, freshness: 0s}}\n\
         containers: {{cri: {}, docker: off}}\n\
         counters: {{os: {{events: [task-clock], per: [cgroup]}}}}\n{more}",
        containerd.socket().display()
    )
}

#[test]
fn counters_of_selected_pods_follow_their_names_and_labels() {
    if lacks(Feature::Containerd) || lacks(Feature::Cgroup) {
        return;
    }
    let mut containerd = Containerd::start();
    let web = containerd.run("web-0", &[("app", "web")]);
    let pods = "pods:\n  include: [{namespace: shop, pod: 'web-*', container: app}, {labels: {app: 'a*'}, container: app}]\n  \
                exclude: [{pod: web-test}]\n";
    let service = Service::start(&configuration(&containerd, pods));
    let has = |id: &str| !labels(&service.metrics(), CLOCK, id).is_empty();
    eventually("the container of the pod is counted when its name is known", || {
        has(&web.container).then_some(())
    });
    let api = containerd.run("other-0", &[("app", "api")]);
    eventually("a pod is counted for its label", || has(&api.container).then_some(()));
    let again = containerd.run("web-1", &[]);
    eventually("another pod is counted when its name is known", || has(&again.container).then_some(()));
    let db = containerd.run("db-0", &[("app", "db")]);
    let test = containerd.run("web-test", &[("app", "api")]);
    let last = containerd.run("web-2", &[]);
    eventually("a pod that started after them is counted", || has(&last.container).then_some(()));
    assert!(!has(&db.container) && !has(&test.container), "other pods are not");
    let metrics = service.metrics();
    let counted =
        metrics.series(CLOCK).filter(|labels| labels.get("cgroup").is_some_and(|path| path != "other"));
    assert_eq!(counted.count(), 4, "only the selected containers: {metrics:?}");
    assert!(metrics.sum(CLOCK, &[("pod", "web-0"), ("container", "app")]) > 0.0);
}

#[test]
fn a_probe_in_a_pod_counts_again_when_the_pod_is_replaced() {
    if lacks(Feature::Containerd) || lacks(Feature::Cgroup) || lacks(Feature::Uprobe) {
        return;
    }
    let mut containerd = Containerd::start();
    let first = containerd.run("web-0", &[("app", "web")]);
    let probes = "pods: {namespace: shop}\nprobes:\n  \
                  burns: {uprobe: '/busy:burn_in_container', in: {namespace: shop, pod: 'web-*', container: app}, per: [cgroup]}\n  \
                  labelled: {uprobe: '/busy:burn_in_container', in: {labels: {app: web}}}\n  \
                  timed: {uprobe: '/busy:burn_in_container', in: {pod: 'web-*'}, histogram: seconds}\n";
    let mut service = Service::start(&configuration(&containerd, probes));
    let hits = |pod: &str| service.metrics().sum("perf_cgroup_burns_total", &[("pod", pod)]);
    eventually("calls in the container of the pod are counted", || (hits("web-0") > 0.0).then_some(()));
    // The pod is replaced: another uid, another cgroup, another file.
    containerd.remove(&first);
    let _second = containerd.run("web-1", &[("app", "web")]);
    eventually("calls in the new pod are counted", || (hits("web-1") > 0.0).then_some(()));
    let total = |name: &str| service.metrics().sum(name, &[]);
    let before = ["perf_probe_labelled_total", "perf_probe_timed_seconds_count"].map(total);
    assert!(before.iter().all(|&hits| hits > 0.0), "{before:?}");
    // Two pods at once, each with a file of its own.
    let _third = containerd.run("web-2", &[("app", "web")]);
    eventually("calls in both pods are counted", || (hits("web-2") > 0.0).then_some(()));
    let (one, two) = (hits("web-1"), hits("web-2"));
    eventually("calls in both pods go on being counted", || {
        (hits("web-1") > one && hits("web-2") > two).then_some(())
    });
    let after = ["perf_probe_labelled_total", "perf_probe_timed_seconds_count"].map(total);
    assert!(after[0] > before[0] && after[1] > before[1], "totals continue: {before:?} {after:?}");
    service.has_logged(&["attaching the probes to the new files"]);
}

#[test]
fn a_profile_of_one_pod_has_a_frequency_of_its_own_beside_the_built_in_one() {
    if lacks(Feature::Containerd) || lacks(Feature::Cgroup) {
        return;
    }
    let mut containerd = Containerd::start();
    let _web = containerd.run("web-0", &[]);
    let _db = containerd.run("db-0", &[]);
    let profiles = "profiles:\n  cpu: {}\n  web: {event: cpu-clock, frequency: 199, stack: 2KiB, pods: {namespace: shop, pod: 'web-*'}}\n";
    let service = Service::start(&configuration(&containerd, profiles));
    let of_web = eventually("samples of the pod cover a fifth of a second", || {
        let folded = Folded::of(&service, "type=web&namespace=shop&pod=web-*");
        (folded.total() > 2e8).then_some(folded)
    });
    assert!(of_web.share(&["burn_in_container"]) > 0.5, "{of_web:#?}");
    assert_eq!(Folded::of(&service, "type=web&pod=db-*").total(), 0.0, "no other pod");
    eventually("the built-in profile has both pods", || {
        let of = |pod| Folded::of(&service, &format!("type=cpu&pod={pod}")).total();
        (of("web-*") > 0.0 && of("db-*") > 0.0).then_some(())
    });
}
