//! Probes in the cgroups that match a pattern: the files of all of them, and those of later ones.

use crate::functions::{assert_nothing_lost, probing};
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::{Feature, eventually, lacks};

/// Reports whether the machine lacks a feature that every test here needs.
fn lacks_features() -> bool {
    [Feature::Compiler, Feature::Uprobe, Feature::Tracefs, Feature::Cgroup].into_iter().any(lacks)
}

/// Starts a copy of the program, which is a file of its own at the same path in a root directory of its own, in a cgroup.
fn jailed(program: &Program, root: &tempfile::TempDir, cgroup: &TestCgroup) -> Running {
    program.copy_to(&root.path().join("probed"));
    let running = Running::by(std::process::Command::new("chroot").arg(root.path()).arg("/probed"));
    cgroup.take(running.pid());
    running
}

/// Returns the sum of a metric when it has reached `least`.
fn reached(service: &Service, name: &str, least: f64) -> f64 {
    eventually(&format!("{name} is at least {least}"), || {
        Some(service.metrics().sum(name, &[])).filter(|sum| *sum >= least)
    })
}

fn sums(metrics: &Exposition, names: &[&str]) -> Vec<f64> {
    names.iter().map(|name| metrics.sum(name, &[])).collect()
}

#[test]
fn a_probe_in_a_pattern_of_cgroups_counts_in_all_of_them_and_in_those_that_replace_them() {
    if lacks_features() {
        return;
    }
    let program = Program::compile_static();
    let roots = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let parent = TestCgroup::new("followed");
    let cgroups = ["web-1", "web-2", "db-1"].map(|name| parent.below(name));
    let [mut one, mut two, mut other] =
        [0, 1, 2].map(|place| jailed(&program, &roots[place], &cgroups[place]));
    let within = format!("in: {{cgroup: \"{}/web-*\"}}", parent.path());
    let mut service = probing(
        &[
            format!(
                "taken: {{uprobe: \"/probed:takes\", {within}, arguments: [\"size=$arg1:u64\"], sum: {{of: size, unit: bytes}}}}"
            ),
            format!("hits: {{uprobe: \"/probed:hit\", {within}}}"),
            format!("nobody: {{uprobe: \"/probed:hit\", in: {{cgroup: \"{}/api-*\"}}}}", parent.path()),
        ],
        "",
    );
    one.does("takes 1 10");
    two.does("takes 1 100");
    other.does("takes 1 1000");
    one.does("hits 1 7");
    two.does("hits 1 5");
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    assert_eq!(
        sums(&metrics, &["perf_probe_taken_bytes_total", "perf_probe_hits_total"]),
        [55.0 + 5050.0, 12.0]
    );
    service.has_logged(&["no cgroup matches cgroup"]);

    // One is replaced: another cgroup, another process, another file.
    one.ends();
    let root = tempfile::tempdir().unwrap();
    let cgroup = parent.below("web-3");
    let mut replaced = jailed(&program, &root, &cgroup);
    let before = reached(&service, "perf_probe_hits_total", 12.0);
    eventually("calls in the new cgroup are counted", || {
        replaced.does("hits 1 1");
        (service.metrics().sum("perf_probe_hits_total", &[]) > before).then_some(())
    });
    service.has_logged(&["attaching the probes to the new files"]);
    let before = service.metrics().sum("perf_probe_hits_total", &[]);
    two.does("hits 1 3");
    assert_eq!(
        service.metrics().sum("perf_probe_hits_total", &[]),
        before + 3.0,
        "the other is still counted"
    );

    // A pattern that matched nothing finds its first file.
    let late = tempfile::tempdir().unwrap();
    let api = parent.below("api-1");
    let mut late = jailed(&program, &late, &api);
    eventually("calls in the first cgroup that matches are counted", || {
        late.does("hits 1 1");
        (service.metrics().sum("perf_probe_nobody_total", &[]) > 0.0).then_some(())
    });
    [two, other, replaced, late].into_iter().for_each(Running::ends);
}
