//! More events than counters: events are multiplexed and scaled, or have a state that explains the missing count. A missing count is never
//! zero.

use std::panic::{AssertUnwindSafe, catch_unwind};

use perf_exporter::config;
use perf_exporter::counter::measured_capacity;
use perf_exporter::event::{Basis, Capacity, Catalog};
use perf_exporter::host::{Facts, Roots};
use perf_exporter::plan::{Entries, Rotation, StreamSupport, plan};
use perf_exporter::sys::live::Live;

use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, core_pmus};
use crate::{ALWAYS_FRESH, advance, agree, counters_with};

/// Returns the event of retired instructions by its code, with its own name.
fn instructions_called(name: &str) -> String {
    let pmus = core_pmus(&Roots::default());
    let pmu = pmus[0].file_name().unwrap().to_str().unwrap();
    // INST_RETIRED of Arm; Intel and AMD share one code.
    let event = if pmu.starts_with("armv") { "0x08" } else { "0xc0" };
    format!("{pmu}/event={event},name={name}/")
}

/// Returns the same event, for user space only. The kernel's instructions (mostly of the timer) depend on the elapsed time, and so on the
/// load of the host.
fn user_instructions_called(name: &str) -> String {
    format!("{}u", instructions_called(name))
}

/// Returns a group of retired instructions under several names, as an entry of `counters` for every CPU.
fn entry(name: &str, modifier: &str, events: &[&str]) -> String {
    let events: Vec<String> = events.iter().map(|name| instructions_called(name)).collect();
    format!("  {name}: {{events: [\"{{{}}}{modifier}\"], per: [cpu]}}\n", events.join(","))
}

fn state(scrape: &Exposition, event: &str, state: &str) -> f64 {
    scrape.sum("perf_event_state", &[("event", event), ("state", state)])
}

/// Returns the rotation that `check` expects for a configuration on this machine.
fn expected_rotation(configuration: &str) -> Rotation {
    let (config, _) = config::load(configuration.as_bytes(), "test.yaml").unwrap();
    let facts = Facts::read(&Roots::default());
    let catalog = Catalog::load(&Roots::default(), &facts);
    let plan = plan(&Entries::counters(&config.counters), &catalog, &StreamSupport::foreseen(&facts));
    let capacity = |pmu: Option<&str>| measured_capacity(&Live, &catalog, pmu, catalog.capacity(pmu));
    let mut rotations = plan.rotations(&catalog, capacity);
    assert_eq!(rotations.len(), 1, "{rotations:?}");
    rotations.remove(0)
}

fn expected_ratios(configuration: &str) -> Vec<f64> {
    expected_rotation(configuration).groups.iter().map(|group| group.ratio.unwrap()).collect()
}

#[test]
fn the_counters_of_the_emulated_pmu_are_measured() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    let rotation = expected_rotation(&format!("counters:\n{}", entry("a", "", &["a1", "a2"])));
    let Capacity::Limited(counters) = &rotation.capacity else { panic!("{rotation:?}") };
    let fixed: Vec<&str> = counters.fixed.iter().map(|fixed| &*fixed.event).collect();
    assert_eq!((counters.general, &*fixed, &counters.basis), (6, &["cycles"][..], &Basis::Measured));
    assert!(rotation.is_always());
}

#[test]
fn sixteen_events_take_turns_and_their_scaled_counts_are_those_of_one_alone() {
    let Some(_counters) = counters_with(Feature::Pmu) else { return };
    // The rotation is random while the program waits for a CPU, so the test may be repeated.
    let agreed = |_| catch_unwind(AssertUnwindSafe(all_are_as_one_alone)).is_ok();
    if !(0..2).any(agreed) {
        all_are_as_one_alone();
    }
}

fn all_are_as_one_alone() {
    // Long enough for some hundred rotations of 4 ms.
    const WORK: Work = Work::Spin(30_000_000);
    let mut worker = Worker::start("shared");
    let names: Vec<String> = (1..16).map(|number| format!("copy_{number}")).collect();
    let config = |events: &[String]| {
        let events: Vec<String> = events.iter().map(|event| format!("\"{event}\"")).collect();
        format!(
            "{ALWAYS_FRESH}counters: {{many: {{events: [{}], group: false, per: [process]}}}}\n\
             processes: {{include: [{{pid: {}}}], by: [comm]}}\n",
            events.join(", "),
            worker.pid()
        )
    };
    let (alone, together) = (
        config(&[user_instructions_called("alone")]),
        config(
            &[vec!["cycles".to_owned()], names.iter().map(|name| user_instructions_called(name)).collect()]
                .concat(),
        ),
    );
    let mut measure = |config: &str| {
        let service = Service::start(config);
        let before = service.metrics();
        worker.does(WORK);
        (before, service.metrics())
    };
    let shared = [("comm", "shared")];
    let (before, after) = measure(&alone);
    let expected = advance(&before, &after, "perf_process_alone_total", &shared);

    let (before, after) = measure(&together);
    let counts: Vec<f64> = names
        .iter()
        .map(|name| advance(&before, &after, &format!("perf_process_{name}_total"), &shared))
        .collect();
    let ratios = after.sum("perf_event_running_ratio", &[]);
    let expected_ratios: f64 = expected_ratios(&together).iter().sum();
    println!("the running ratios of 16 events add up to {ratios}, expected {expected_ratios}");
    assert!(
        ratios < 15.9 && agree(ratios, expected_ratios, 0.05),
        "the running ratios of 16 events add up to {ratios}, not to {expected_ratios}"
    );
    for (name, count) in names.iter().zip(&counts) {
        assert!(agree(*count, expected, 0.05), "{name}: {count}, alone {expected}; all: {counts:?}");
    }
}

#[test]
fn a_member_that_does_not_fit_on_the_pmu_is_refused_and_the_others_count() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    let names = ["m1", "m2", "m3", "m4", "m5", "m6", "m7"];
    let members = names.map(instructions_called).join(",");
    let mut service = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{wide: {{events: [\"{{cycles,{members}}}:D\"], per: [cpu]}}}}\n"
    ));
    let scrape = service.metrics();
    let cpus = Facts::read(&Roots::default()).online.len() as f64;
    for name in &names[..6] {
        let count = scrape.sum(&format!("perf_cpu_{name}_total"), &[]);
        assert!(count > 0.0 && state(&scrape, name, "counting") == cpus, "{name}: {count} {scrape:?}");
    }
    assert_eq!(
        scrape.value("perf_cpu_m7_total", &[("cpu", "0")]),
        None,
        "an event that did not count must have no series: {scrape:?}"
    );
    assert_eq!(state(&scrape, "m7", "exhausted"), cpus, "{scrape:?}");
    service.has_logged(&["does not fit on the PMU together with the rest of its group"]);
}

#[test]
fn groups_that_never_get_on_the_pmu_are_states_and_not_zeros() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    // Four of six counters are always in use. Neither a second pinned group of four events nor a multiplexed group of three fits on the
    // rest.
    let configuration = format!(
        "{ALWAYS_FRESH}counters:\n{}{}{}",
        entry("first", ":D", &["a1", "a2", "a3", "a4"]),
        entry("second", ":D", &["b1", "b2", "b3", "b4"]),
        entry("third", "", &["c1", "c2", "c3"]),
    );
    assert_eq!(expected_ratios(&configuration), [1.0, 0.0, 0.0]);
    let service = Service::start(&configuration);
    service.metrics();
    let scrape = service.metrics();
    let cpus = Facts::read(&Roots::default()).online.len() as f64;
    for (event, expected, counts) in
        [("a1", "counting", true), ("b4", "full", false), ("c1", "never_ran", false)]
    {
        assert_eq!(state(&scrape, event, expected), cpus, "{event} is {expected}: {scrape:?}");
        let value = scrape.value(&format!("perf_cpu_{event}_total"), &[("cpu", "0")]);
        assert_eq!(value.is_some_and(|value| value > 0.0), counts, "{event}: {value:?}");
        assert_eq!(
            value.is_some(),
            counts,
            "{event}: {value:?}, but only events that counted may have a value"
        );
    }
}

#[test]
fn a_pinned_group_counts_after_another_program_has_left_the_pmu() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    let theirs = Service::start(&format!(
        "{ALWAYS_FRESH}counters:\n{}",
        entry("theirs", ":D", &["a1", "a2", "a3", "a4", "a5", "a6"]),
    ));
    let ours = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{ours: {{events: [\"{}\"], per: [cpu], priority: always}}}}\n",
        instructions_called("x1"),
    ));
    let cpus = Facts::read(&Roots::default()).online.len() as f64;
    let full = ours.metrics();
    assert_eq!(state(&full, "x1", "full"), cpus, "{full:?}");
    drop(theirs);
    let counts = |scrape: &Exposition| state(scrape, "x1", "counting") == cpus;
    let scrapes: Vec<Exposition> = (0..12).map(|_| ours.metrics()).collect();
    let last = scrapes.last().unwrap();
    assert!(counts(last), "{last:?}");
    let value = last.value("perf_cpu_x1_total", &[("cpu", "0")]);
    assert!(value.is_some_and(|value| value > 0.0), "{value:?}");
}

#[test]
fn a_group_that_waits_for_the_pmu_is_not_idle_while_its_cgroup_sleeps() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    let cgroup = TestCgroup::new("waits");
    let mut worker = Worker::start("waits");
    cgroup.take(worker.pid());
    // All counters that can count instructions are in use.
    let _theirs = Service::start(&format!(
        "{ALWAYS_FRESH}counters:\n{}",
        entry("theirs", ":D", &["a1", "a2", "a3", "a4", "a5", "a6"]),
    ));
    let ours = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{ours: {{events: [\"{}\"], per: [cgroup]}}}}\n\
         cgroups: {{include: [\"{}\"], attribution: dedicated}}\n",
        instructions_called("x1"),
        cgroup.path()
    ));
    worker.does(Work::Spin(2_000_000));
    let states = |scrape: &Exposition| ["idle", "never_ran"].map(|word| state(scrape, "x1", word));
    let busy = ours.metrics();
    assert!(states(&busy)[1] >= 1.0, "{busy:?}");
    for _ in 0..2 {
        let asleep = ours.metrics();
        assert_eq!(states(&asleep), states(&busy), "{asleep:?}");
        let total = asleep.value("perf_cgroup_x1_total", &[("cgroup", cgroup.path())]);
        assert_eq!(total, None, "an event that did not count must have no series");
    }
}
