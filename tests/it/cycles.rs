//! Cycles per instruction of cgroups, from the counters of a kernel in memory to an anomaly with its suspect. The emulated machine with hardware
//! counters executes a fixed number of instructions per cycle, so it cannot slow a program down.

use std::sync::Arc;
use std::time::Duration;

use perf_exporter::anomaly::{Entry, Kind, Method, Report, Watch};
use perf_exporter::history::History;
use perf_exporter::metrics::Snapshot;
use perf_exporter::sys::fake::Opened;
use perf_exporter::targets::Targets;

use crate::collect::{World, cgroups, in_cgroup};

/// Length of an interval, in nanoseconds.
const INTERVAL: u64 = 10_000_000_000;

/// Type and number of the events of a kernel: `PERF_TYPE_SOFTWARE` and `PERF_TYPE_HARDWARE` of linux/perf_event.h.
const TASK_CLOCK: (u32, u64) = (1, 1);
const CYCLES: (u32, u64) = (0, 0);
const INSTRUCTIONS: (u32, u64) = (0, 1);

#[test]
fn a_cgroup_with_more_cycles_per_instruction_is_found_and_the_one_that_runs_meanwhile_is_named() {
    let mut world = World::new(100);
    let directories = ["victim", "noisy", "steady"].map(|name| world.cgroup(name));
    world.count("task-clock,{cycles,instructions}", Targets::Cgroups(cgroups(&["/*"])));
    let mut history = History::new(3_600_000, 1000, usize::MAX);
    let mut watch = Watch::default();
    watch.set_limit(usize::MAX);
    let method = Method::Robust(Kind::Cpi.robust());
    watch.set(&[Entry { name: "cpi".into(), kind: Kind::Cpi.into(), method }].into());
    let mut interval = |slow: bool| -> Option<Report> {
        world.clock.advance(Duration::from_nanos(INTERVAL));
        let used = [0.9, if slow { 1.0 } else { 0.0 }, 0.5];
        let cycles_per_instruction = [if slow { 2.0 } else { 1.0 }, 1.0, 1.0];
        for ((directory, used), cycles_per) in directories.iter().zip(used).zip(cycles_per_instruction) {
            let time = INTERVAL as f64 * used;
            let cycles = time * 3.0;
            for (event, count) in [(TASK_CLOCK, time), (CYCLES, cycles), (INSTRUCTIONS, cycles / cycles_per)]
            {
                let here = in_cgroup(directory);
                let matching = |opened: &Opened| {
                    here(opened) && (opened.attr.selector.kind, opened.attr.selector.config[0]) == event
                };
                world.run_for(count as u64, INTERVAL, INTERVAL, matching);
            }
        }
        let families = world.collect();
        history.observe(&Arc::new(Snapshot::new(world.clock.now(), families)));
        watch.judge(&history, &())
    };
    let calm: Vec<Report> = (0..100).filter_map(|_| interval(false)).collect();
    assert!(calm.iter().all(|report| report.began.is_empty()));
    let last = calm.last().unwrap();
    assert_eq!(last.verdicts[0].normal, 2, "{:?}", last.verdicts);
    let began: Vec<_> = (0..30).filter_map(|_| interval(true)).flat_map(|report| report.began).collect();
    let [active] = &began[..] else { panic!("{began:?}") };
    assert_eq!(&*active.cgroup, "/victim");
    assert!((active.value - 2.0).abs() < 0.1 && (active.usual - 1.0).abs() < 0.05, "{active:?}");
    let suspects: Vec<&str> = active.suspicion.suspects.iter().map(|suspect| &*suspect.cgroup).collect();
    assert_eq!(suspects, ["/noisy"]);
}
