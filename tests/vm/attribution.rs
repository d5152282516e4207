//! The switch stream with hardware counters. Attributed counts are compared with the counts of the CPUs and with an event of the cgroup;
//! further tests exceed the number of hardware counters.

use std::thread;
use std::time::Duration;

use crate::foreign::raw;
use crate::support::Feature;
use crate::support::cgroup::TestCgroup;
use crate::support::collector::{Growth, PublishedFamilies, RunningCollector};
use crate::support::mixed::{Amounts, Mixed};
use crate::support::worker::{Work, Worker};
use crate::{agree, stream_with};

/// An emulated CPU takes a minute for this load.
const LOAD: Amounts = Amounts { bursts: 10, burn: 500, processes: 40, cgroups: 20 };

const CGROUPS: &str = "cgroups: {include: [\"/**\"], exclude: [], attribution: stream}\n";
const PROCESSES: &str = "processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}\n";

/// Counts until the end of a load, with one collection before its end.
fn count_mixed_load(name: &str, mut accountant: RunningCollector) -> PublishedFamilies {
    let top = TestCgroup::new(name);
    let mut load = Mixed::below(&top, LOAD);
    let mut growth = Growth::default();
    load.run(|| growth.take(&accountant.collect()));
    let last = accountant.collect();
    growth.take(&last);
    assert_eq!(last.lost_records(), 0, "{last:?}");
    let families = load.while_switching(|| accountant.finish());
    growth.take(&families);
    families
}

#[test]
fn what_is_charged_is_what_the_hardware_counted() {
    let Some(_counters) = stream_with(Feature::Pmu) else { return };
    let accountant = RunningCollector::of(&format!(
        "counters: {{all: {{events: [cycles, instructions, task-clock, context-switches, page-faults], \
         per: [cpu, cgroup, process]}}}}\n{CGROUPS}{PROCESSES}"
    ));
    assert_eq!(accountant.refusals(), [""; 0]);
    assert_eq!(accountant.stream().groups.len(), 1);
    let families = count_mixed_load("conserved", accountant);
    for scope in ["cgroup", "process"] {
        for metric in ["cycles", "instructions", "task_clock_seconds", "context_switches", "page_faults"] {
            let balance = families.balance(scope, metric);
            balance.assert_exact();
            assert!(balance.attributed > 0, "{balance:?}");
            let failed = ["lost", "rotated", "unrecorded"].map(|reason| balance.of(reason));
            assert_eq!(failed, [0; 3], "{balance:?}");
        }
        let instructions = families.balance(scope, "instructions");
        assert!(instructions.failed() * 100 < instructions.counted, "{instructions:?}");
    }
}

#[test]
fn a_cgroup_has_the_same_instructions_in_the_stream_and_by_a_counter_of_its_own() {
    let Some(_counters) = stream_with(Feature::Pmu) else { return };
    let cgroup = TestCgroup::new("hog");
    let mut hog = Worker::start("hog");
    cgroup.take(hog.pid());
    let by = |attribution: &str| {
        let accountant = RunningCollector::of(&format!(
            "counters: {{core: {{events: [cycles, instructions], per: [cpu, cgroup]}}}}\n\
             cgroups: {{include: [\"{}\"], attribution: {attribution}}}\n",
            cgroup.path()
        ));
        assert_eq!(accountant.refusals(), [""; 0]);
        accountant
    };
    let (stream, mut dedicated) = (by("stream"), by("dedicated"));
    hog.does(Work::Spin(30_000_000));
    let (dedicated, stream) = (dedicated.collect(), stream.finish());
    for metric in ["perf_cgroup_cycles", "perf_cgroup_instructions"] {
        let [stream, dedicated] = [&stream, &dedicated].map(|families| families.sum(metric, &[]));
        assert!(
            stream > 30_000_000 && agree(stream as f64, dedicated as f64, 0.01),
            "{metric}: {stream} by the stream, {dedicated} by an event of the cgroup"
        );
    }
    for metric in ["cycles", "instructions"] {
        stream.balance("cgroup", metric).assert_exact();
    }
}

/// Returns ten events for the seven counters of the PMU, five in each entry. INST_RETIRED of Arm is 0x08, CPU_CYCLES is 0x11.
fn entries() -> [String; 2] {
    let one = [raw(0x08, "i", ""), raw(0x08, "iu", "u"), raw(0x08, "ik", "k")].join(", ");
    let two = [raw(0x11, "c", ""), raw(0x11, "cu", "u"), raw(0x11, "ck", "k")].join(", ");
    [format!("cycles, instructions, {one}"), format!("{two}, \"cycles:u\", \"instructions:u\"")]
}

const FIRST: [&str; 5] = ["cycles", "instructions", "i", "iu", "ik"];
const SECOND: [&str; 5] = ["c", "cu", "ck", "cycles_user", "instructions_user"];

/// Two groups then count, each for half of the time. The full count is attributed to the cgroup, because the software events show no other
/// cgroup on the CPU while a group was off the PMU.
#[test]
fn entries_that_do_not_fit_on_the_pmu_together_take_turns_and_all_count() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let cgroup = TestCgroup::new("turns");
    let mut hog = Worker::start("hog");
    cgroup.take(hog.pid());
    let [one, two] = entries();
    let mut accountant = RunningCollector::of(&format!(
        "counters:\n  one: {{events: [{one}], per: [cpu, cgroup]}}\n  \
         two: {{events: [{two}], per: [cpu, cgroup]}}\n{CGROUPS}"
    ));
    assert_eq!(accountant.refusals(), [""; 0]);
    assert_eq!(accountant.stream().groups.len(), 2);
    let mut growth = Growth::default();
    for _ in 0..5 {
        hog.does(Work::Spin(10_000_000));
        growth.take(&accountant.collect());
    }
    let families = accountant.finish();
    growth.take(&families);
    for metric in FIRST.into_iter().chain(SECOND) {
        let balance = families.balance("cgroup", metric);
        assert!(agree(balance.accounted() as f64, balance.counted as f64, 0.05), "{balance:?}");
        assert_eq!(["lost", "rotated", "unknown"].map(|reason| balance.of(reason)), [0; 3], "{balance:?}");
    }
    // Both entries count the same event, each in its half of the time.
    for [one, two] in [["cycles", "c"], ["iu", "instructions_user"]] {
        let [one, two] = [one, two].map(|metric| families.balance("cgroup", metric).counted as f64);
        assert!(agree(one, two, 0.1), "{one} and {two}");
    }
}

#[test]
fn a_member_that_does_not_fit_is_refused_and_the_others_are_charged() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let accountant = RunningCollector::of(&format!(
        "counters: {{wide: {{events: [{}], per: [cpu, cgroup]}}}}\n{CGROUPS}",
        entries().join(", ")
    ));
    assert_eq!(accountant.stream().groups.len(), 1);
    let mut refusals = accountant.refusals();
    for event in ["ck", "cycles:u", "instructions:u"] {
        let of_event = refusals.extract_if(.., |refusal| refusal.starts_with(&format!("{event} on cpu ")));
        let told: Vec<String> = of_event.collect();
        let full = |refusal: &String| refusal.contains("does not fit on the PMU together with the rest");
        assert!(!told.is_empty() && told.iter().all(full), "{event}: {told:?}");
    }
    assert_eq!(refusals, [""; 0], "all other events can be opened");
    let families = accountant.finish();
    for metric in FIRST.into_iter().chain(["c", "cu"]) {
        let balance = families.balance("cgroup", metric);
        balance.assert_exact();
        assert!(balance.counted > 0, "{balance:?}");
    }
    for metric in ["ck", "cycles_user", "instructions_user"] {
        for scope in ["cpu", "cgroup", "unattributed"] {
            let name = format!("perf_{scope}_{metric}");
            assert!(!families.has(&name), "{name} was not counted, so it must have no series: {families:?}");
        }
    }
}

#[test]
fn an_idle_machine_is_not_charged_to_the_root_cgroup() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let mut accountant = RunningCollector::of(
        "counters: {os: {events: [task-clock], per: [cpu, cgroup]}}\n\
         cgroups: {include: [\"/\"], exclude: [], attribution: stream}\n",
    );
    let before = accountant.collect().balance("cgroup", "task_clock_seconds");
    thread::sleep(Duration::from_secs(5));
    let after = accountant.collect().balance("cgroup", "task_clock_seconds");
    let (idle, root) = (after.of("idle") - before.of("idle"), after.attributed - before.attributed);
    let counted = after.counted - before.counted;
    let told = format!("of {counted} ns, {idle} are idle and {root} are attributed to the root cgroup");
    assert!(idle > counted / 2 && root < counted / 4, "{told}");
}
