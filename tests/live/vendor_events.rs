//! Names of vendors' events of x86 beside the perf of this machine, and beside a newer one.

use crate::support::vendor_events::compare_all;
use crate::support::{Feature, lacks};

/// CPUs of the families. The other models of a vendor differ in names, not in the way that they are read.
const X86: &[&str] = &[
    "GenuineIntel-6-3F-2",
    "GenuineIntel-6-4F-1",
    "GenuineIntel-6-55-4",
    "GenuineIntel-6-55-7",
    "GenuineIntel-6-6A-6",
    "GenuineIntel-6-8F-8",
    "GenuineIntel-6-97-2",
    "GenuineIntel-6-9E-9",
    "GenuineIntel-6-8C-1",
    "GenuineIntel-6-86-4",
    "AuthenticAMD-23-1-2",
    "AuthenticAMD-23-31-0",
    "AuthenticAMD-25-1-1",
];
/// CPUs that perf knows since Linux 6.2 and later.
const X86_NEWER: &[&str] = &[
    "GenuineIntel-6-CF-2",
    "GenuineIntel-6-AD-1",
    "GenuineIntel-6-AF-3",
    "GenuineIntel-6-AA-4",
    "GenuineIntel-6-BD-1",
    "GenuineIntel-6-C6-2",
    "GenuineIntel-6-DD-0",
    "AuthenticAMD-25-11-1",
    "AuthenticAMD-26-2-1",
];
#[test]
fn names_of_vendors_have_the_encodings_of_perf() {
    if lacks(Feature::Perf) {
        return;
    }
    let (equal, others) = compare_all("perf", X86, 80);
    // The tables of this perf can be older: vendors add, rename and correct events.
    let unknown = others.iter().filter(|line| line.ends_with("unknown to perf")).count();
    let different: Vec<&String> = others.iter().filter(|line| !line.ends_with("unknown to perf")).collect();
    println!("{equal} equal, {unknown} unknown to this perf, {} different: {different:#?}", different.len());
    assert!(equal > 600 && different.len() * 50 < equal, "{equal} equal: {different:#?}");
    if let Ok(newest) = std::env::var("PERF_NEWEST") {
        let cpus = [X86, X86_NEWER].concat();
        let (equal, others) = compare_all(&newest, &cpus, 80);
        assert!(equal > 1000, "{equal}");
        assert_eq!(others, [""; 0], "{equal} equal");
        println!("{newest}: {equal} equal");
    }
}
