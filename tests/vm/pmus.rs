//! The PMUs of the running kernel.

use perf_exporter::host::{CpuSet, Facts, Roots, read_number, read_text};

use crate::support::{self, Feature, lacks};

/// The PMUs of different kinds of cores partition the CPUs (file `cpus`). A PMU without that file, such as `cpu` on x86, is the only one
/// and counts for all CPUs.
#[test]
fn every_online_cpu_has_a_pmu_that_the_kernel_gave_a_type() {
    if lacks(Feature::Pmu) {
        return;
    }
    let roots = Roots::default();
    let online = Facts::read(&roots).online;
    let mut covered = Vec::new();
    for pmu in support::core_pmus(&roots) {
        read_number(&pmu.join("type")).unwrap();
        let cpus = match read_text(&pmu.join("cpus")) {
            Ok(text) => text.parse::<CpuSet>().unwrap(),
            Err(error) if error.is_absent() => online.clone(),
            Err(error) => panic!("{error}"),
        };
        covered.extend(cpus.iter());
    }
    for cpu in online.iter() {
        assert!(covered.contains(&cpu), "CPU {cpu} has no PMU");
    }
}
