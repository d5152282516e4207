//! Names of Arm's events beside the perf of the guest.

use crate::support::vendor_events::compare_all;
use crate::support::{Feature, lacks};

/// Cortex-A53, A55, A72, A76, A78, Neoverse N1, N2, V1, ThunderX2 and A64FX.
const CPUS: &[&str] = &[
    "0x00000000410fd030",
    "0x00000000410fd050",
    "0x00000000410fd080",
    "0x00000000410fd0b0",
    "0x00000000410fd410",
    "0x00000000410fd0c0",
    "0x00000000410fd490",
    "0x00000000410fd400",
    "0x00000000430f0af0",
    "0x00000000460f0010",
];

#[test]
fn names_of_arm_have_the_encodings_of_perf() {
    if cfg!(not(target_arch = "aarch64")) || lacks(Feature::Perf) {
        return;
    }
    let (equal, others) = compare_all("perf", CPUS, 60);
    // The tables of the guest's perf are older.
    let (unknown, different): (Vec<&String>, Vec<&String>) =
        others.iter().partition(|line| line.ends_with("unknown to perf"));
    println!(
        "{equal} equal, {} unknown to this perf, {} different: {different:#?}",
        unknown.len(),
        different.len()
    );
    assert!(equal > 250 && different.len() * 50 < equal, "{equal} equal: {different:#?}");
}
