//! Measurement of the number of counters of a PMU. The kernel rejects a group that is larger than the PMU (`EINVAL`), also while other
//! programs use none of it or all of it. Nothing is started.

use crate::error::Errno;
use crate::event::{Capacity, Catalog, Event, parse};
use crate::ring::DUMMY;
use crate::sys::{Attr, Kernel, Place, Start};

/// Events that no fixed counter counts, in order of preference. Arm PMUs without the first one have no fixed counter for the second.
const FILLERS: [&str; 2] = ["branch-instructions", "instructions"];
/// Events with a fixed counter on some PMUs.
const FIXED: [&str; 4] = ["instructions", "cycles", "ref-cycles", "slots"];
/// Maximum number of events in the measured group. A kernel that accepts more does not check the size of groups.
const LIMIT: usize = 32;

/// Returns the capacity of a PMU with measured numbers of counters; `None` = the PMU of the cores. Returns `documented` if nothing can be
/// measured: without the permission for events of whole CPUs, outside of the cores, or on a kernel that accepts groups of any size.
pub fn measured_capacity<K: Kernel>(
    kernel: &K,
    catalog: &Catalog,
    pmu: Option<&str>,
    documented: Capacity,
) -> Capacity {
    if !catalog.is_core(pmu) {
        return documented;
    }
    let measured = FILLERS.iter().find_map(|filler| measure(kernel, catalog, pmu, filler));
    match measured {
        Some((general, fixed)) => documented.measured(general, &fixed),
        None => documented,
    }
}

/// Returns the number of events of one kind that fit into a group, and the other events that fit in addition.
fn measure<K: Kernel>(
    kernel: &K,
    catalog: &Catalog,
    pmu: Option<&str>,
    filler: &str,
) -> Option<(u32, Vec<&'static str>)> {
    let event = event(catalog, pmu, filler)?;
    let online = &catalog.facts().online;
    let cpu = online.iter().find(|&cpu| event.is_on(cpu))?;
    // A software event leads: some kernels do not count a leader that is not started.
    let leader = kernel.open(&Attr::software(DUMMY, None, Start::Later), Place::Cpu(cpu), None).ok()?;
    let mut members = Vec::new();
    let joins =
        |event: &Event| kernel.open(&Attr::counting(event).of_member(), Place::Cpu(cpu), Some(&leader));
    loop {
        match joins(&event) {
            Ok(member) if members.len() < LIMIT => members.push(member),
            Err(Errno::EINVAL) => break,
            _ => return None,
        }
    }
    let general = u32::try_from(members.len()).ok().filter(|&general| general > 0)?;
    let mut fixed = Vec::new();
    for name in FIXED.into_iter().filter(|&name| name != filler) {
        let Some(event) = self::event(catalog, pmu, name) else { continue };
        if let Ok(member) = joins(&event) {
            members.push(member);
            fixed.push(name);
        }
    }
    Some((general, fixed))
}

/// Returns an event of a PMU by its name.
fn event(catalog: &Catalog, pmu: Option<&str>, name: &str) -> Option<Event> {
    let event = parse(name).ok()?.into_iter().next()?.events.into_iter().next()?;
    catalog.resolve(&event).ok()?.into_iter().find(|event| event.pmu.as_deref() == pmu)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::event::{Basis, CounterSet};
    use crate::host::{Facts, Roots};
    use crate::sys::SOFTWARE;
    use crate::sys::fake::FakeKernel;

    /// Returns the measured counters of a kernel with `general` counters, and fixed ones for events of these configurations.
    fn measured(general: usize, fixed: &'static [u64]) -> Option<CounterSet> {
        let dir = tempfile::tempdir().unwrap();
        let pmu = dir.path().join("sys/bus/event_source/devices/cpu");
        std::fs::create_dir_all(&pmu).unwrap();
        std::fs::write(pmu.join("type"), "4").unwrap();
        let facts = Facts { online: "0-3".parse().unwrap(), ..Facts::default() };
        let catalog = Catalog::load(&Roots::under(dir.path()), &facts);
        let kernel = FakeKernel::new();
        let open = Mutex::new((0, Vec::new()));
        kernel.refuse(Errno::EINVAL, move |attr, _, _| {
            if attr.selector.kind == SOFTWARE {
                return false;
            }
            let (used, taken) = &mut *open.lock().unwrap();
            let event = attr.selector.config[0];
            if fixed.contains(&event) && !taken.contains(&event) {
                taken.push(event);
                return false;
            }
            *used += 1;
            *used > general
        });
        match measured_capacity(&kernel, &catalog, None, catalog.capacity(None)) {
            Capacity::Limited(set) => {
                assert!(kernel.opened().iter().all(|event| !event.enabled), "nothing is started");
                Some(set)
            }
            _ => None,
        }
    }

    #[test]
    fn a_group_is_filled_until_the_kernel_rejects_it_and_then_only_fixed_counters_are_free() {
        // PERF_COUNT_HW_CPU_CYCLES is 0, PERF_COUNT_HW_INSTRUCTIONS is 1.
        for (general, fixed, expected) in
            [(6, &[0][..], &["cycles"][..]), (4, &[0, 1], &["instructions", "cycles"]), (6, &[], &[])]
        {
            let set = measured(general, fixed).unwrap();
            assert_eq!((set.general as usize, &set.basis), (general, &Basis::Measured));
            assert_eq!(set.fixed.iter().map(|fixed| &*fixed.event).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn nothing_is_concluded_from_a_kernel_that_accepts_every_group_or_no_event() {
        assert_eq!(measured(1000, &[]), None);
        assert_eq!(measured(0, &[]), None);
    }
}
