//! The switch stream with hardware counters: what it charges is what the CPUs counted, and what a counter of the
//! cgroup's own says; and what becomes of it where the PMU is too small.

use std::sync::MutexGuard;
use std::thread;
use std::time::Duration;

use perf_exporter::host::Roots;

use crate::support::books::{Accountant, Books, Growth};
use crate::support::cgroup::TestCgroup;
use crate::support::mixed::{Amounts, Mixed};
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, core_pmus, lacks};
use crate::{agree, counters_with};

/// An emulated CPU takes a minute for it.
const LOAD: Amounts = Amounts { bursts: 10, burn: 500, processes: 40, cgroups: 20 };

const CGROUPS: &str = "cgroups: {include: [\"/**\"], exclude: [], attribution: stream}\n";
const PROCESSES: &str = "processes: {include: [{comm: \"*\"}], by: [comm], attribution: stream}\n";

/// The hardware counters for one test at a time, and the stream. `None` if this machine lacks one of them.
fn stream_with(feature: Feature) -> Option<MutexGuard<'static, ()>> {
    if lacks(Feature::Stream) { None } else { counters_with(feature) }
}

/// Counts until the end of a load, with a look before it ends.
fn count_mixed_load(name: &str, mut accountant: Accountant) -> Books {
    let top = TestCgroup::new(name);
    let mut load = Mixed::below(&top, LOAD);
    let mut growth = Growth::default();
    load.run(|| growth.take(&accountant.collect()));
    let last = accountant.collect();
    growth.take(&last);
    assert_eq!(last.lost_records(), 0, "{last:?}");
    let books = load.while_switching(|| accountant.finish());
    growth.take(&books);
    books
}

#[test]
fn what_is_charged_is_what_the_hardware_counted() {
    let Some(_counters) = stream_with(Feature::Pmu) else { return };
    let accountant = Accountant::of(&format!(
        "counters: {{all: {{events: [cycles, instructions, task-clock, context-switches, page-faults], \
         per: [cpu, cgroup, process]}}}}\n{CGROUPS}{PROCESSES}"
    ));
    assert_eq!(accountant.refusals(), [""; 0]);
    assert_eq!(accountant.stream().groups.len(), 1);
    let books = count_mixed_load("conserved", accountant);
    for scope in ["cgroup", "process"] {
        for metric in ["cycles", "instructions", "task_clock_seconds", "context_switches", "page_faults"] {
            let balance = books.balance(scope, metric);
            balance.assert_exact();
            assert!(balance.attributed > 0, "{balance:?}");
            let failed = ["lost", "rotated", "unrecorded"].map(|reason| balance.of(reason));
            assert_eq!(failed, [0; 3], "{balance:?}");
        }
        let instructions = books.balance(scope, "instructions");
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
        let accountant = Accountant::of(&format!(
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
        let [stream, dedicated] = [&stream, &dedicated].map(|books| books.sum(metric, &[]));
        assert!(
            stream > 30_000_000 && agree(stream as f64, dedicated as f64, 0.01),
            "{metric}: {stream} in the stream, {dedicated} by a counter of its own"
        );
    }
    for metric in ["cycles", "instructions"] {
        stream.balance("cgroup", metric).assert_exact();
    }
}

/// An event by its number, under a name of its own. One that counts another privilege level is another event.
fn raw(code: u8, name: &str, modifiers: &str) -> String {
    let pmus = core_pmus(&Roots::default());
    let pmu = pmus[0].file_name().unwrap().to_str().unwrap();
    format!("\"{pmu}/event={code:#04x},name={name}/{modifiers}\"")
}

/// Ten events for the seven counters of the PMU, five in each entry. Arm's INST_RETIRED is 0x08, its CPU_CYCLES 0x11.
fn entries() -> [String; 2] {
    let one = [raw(0x08, "i", ""), raw(0x08, "iu", "u"), raw(0x08, "ik", "k")].join(", ");
    let two = [raw(0x11, "c", ""), raw(0x11, "cu", "u"), raw(0x11, "ck", "k")].join(", ");
    [format!("cycles, instructions, {one}"), format!("{two}, \"cycles:u\", \"instructions:u\"")]
}

const FIRST: [&str; 5] = ["cycles", "instructions", "i", "iu", "ik"];
const SECOND: [&str; 5] = ["c", "cu", "ck", "cycles_user", "instructions_user"];

/// Counted are then two groups, each for half of the time. The cgroup is charged for all of it: the software events say that nobody
/// else was on the CPU while a group was off the PMU.
#[test]
fn entries_that_do_not_fit_on_the_pmu_together_take_turns_and_all_count() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let cgroup = TestCgroup::new("turns");
    let mut hog = Worker::start("hog");
    cgroup.take(hog.pid());
    let [one, two] = entries();
    let mut accountant = Accountant::of(&format!(
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
    let books = accountant.finish();
    growth.take(&books);
    for metric in FIRST.into_iter().chain(SECOND) {
        let balance = books.balance("cgroup", metric);
        assert!(agree(balance.charged() as f64, balance.counted as f64, 0.05), "{balance:?}");
        assert_eq!(["lost", "rotated", "unknown"].map(|reason| balance.of(reason)), [0; 3], "{balance:?}");
    }
    // The two entries say the same of the same, each from its half of the time.
    for [one, two] in [["cycles", "c"], ["iu", "instructions_user"]] {
        let [one, two] = [one, two].map(|metric| books.balance("cgroup", metric).counted as f64);
        assert!(agree(one, two, 0.1), "{one} and {two}");
    }
}

/// What two cgroups count that take turns on the CPUs, one of which is in the kernel for a part of its time, while somebody else counts
/// `others` on each CPU. Beside it the part of the time in which hardware events were on the PMU, for each cgroup and each CPU.
fn beside(others: Option<&str>) -> (Books, [String; 2], [[f64; 2]; 2]) {
    let busy = ["shared-one", "shared-two"].map(TestCgroup::new);
    let mut workers: Vec<(Worker, Work)> = Vec::new();
    // More of them than CPUs.
    for _ in 0..2 {
        for (cgroup, work) in busy.iter().zip([Work::Spin(40_000_000), Work::Getppid(600_000)]) {
            let worker = Worker::start("shared");
            cgroup.take(worker.pid());
            workers.push((worker, work));
        }
    }
    let other = others.map(|events| {
        let other = Accountant::of(&format!("counters: {{other: {{events: [{events}], per: [cpu]}}}}\n"));
        assert_eq!(other.refusals(), [""; 0]);
        other
    });
    let mut accountant = Accountant::of(&format!(
        "counters: {{all: {{events: [cycles, instructions, \"cycles:u\", \"instructions:u\", task-clock, page-faults], per: [cpu, cgroup]}}}}\n\
         cgroups: {{include: [\"{}\", \"{}\"], attribution: stream}}\n",
        busy[0].path(),
        busy[1].path()
    ));
    assert_eq!(accountant.refusals(), [""; 0]);
    workers.iter_mut().for_each(|(worker, work)| worker.begin(&work.to_string()));
    workers.iter_mut().for_each(|(worker, _)| drop(worker.finish()));
    let ratios = accountant.collect();
    let paths = busy.each_ref().map(|cgroup| cgroup.path().to_owned());
    let ratio = |label: &str, value: &str| ratios.gauge("perf_event_running_ratio", &[(label, value)]);
    let ratios = [
        paths.each_ref().map(|path| ratio("cgroup", path).unwrap()),
        ["0", "1"].map(|cpu| ratio("cpu", cpu).unwrap()),
    ];
    let books = accountant.finish();
    drop(other);
    (books, paths, ratios)
}

#[test]
fn another_user_of_the_pmu_leaves_software_events_alone_and_hardware_events_near_the_truth() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let others = [raw(0x11, "c", ""), raw(0x11, "cu", "u"), raw(0x11, "ck", "k")];
    let more = [raw(0x08, "i", ""), raw(0x08, "iu", "u"), raw(0x08, "ik", "k")];
    let (alone, paths_alone, whole) = beside(None);
    assert_eq!(whole, [[1.0; 2]; 2], "alone, nothing is scaled");
    let (shared, paths, ratios) = beside(Some(&[others, more].concat().join(", ")));
    println!("running ratios {ratios:?}");
    for metric in ["task_clock_seconds", "page_faults"] {
        let balance = shared.balance("cgroup", metric);
        balance.assert_exact();
        assert_eq!(balance.of("rotated"), 0, "{balance:?}");
    }
    // How much of the time is the kernel's, its own work to rotate the groups included, differs from alone: what is counted in a
    // second on a CPU does not.
    for metric in ["cycles", "instructions"] {
        for (before, after) in paths_alone.iter().zip(&paths) {
            let [expected, rate] = [(&alone, before), (&shared, after)].map(|(books, path)| {
                let sum =
                    |metric: &str| books.sum(&format!("perf_cgroup_{metric}"), &[("cgroup", path)]) as f64;
                sum(metric) / sum("task_clock_seconds")
            });
            let difference = 100.0 * (rate / expected - 1.0);
            println!(
                "{metric} a nanosecond of {after}: {expected} alone, {rate} beside another user: {difference:+.2} %"
            );
            assert!(
                expected > 0.0 && agree(expected, rate, 0.05),
                "{metric} of {after}: {expected} alone, {rate}"
            );
        }
    }
    for metric in ["cycles", "instructions", "cycles_user", "instructions_user"] {
        let balance = shared.balance("cgroup", metric);
        println!("{balance:?}");
        assert!(agree(balance.charged() as f64, balance.counted as f64, 0.05), "{balance:?}");
        assert_eq!(["lost", "rotated", "unknown"].map(|reason| balance.of(reason)), [0; 3], "{balance:?}");
    }
    // What the kernel tells of the CPUs: how the two groups share the time is its choice.
    let [of_cgroups, of_cpus] = ratios.map(|ratios| ratios.iter().sum::<f64>() / 2.0);
    assert!((of_cgroups - of_cpus).abs() < 0.02, "of cgroups and CPUs: {ratios:?}");
}

#[test]
fn a_member_that_does_not_fit_is_refused_and_the_others_are_charged() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let accountant = Accountant::of(&format!(
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
    assert_eq!(refusals, [""; 0], "nothing else is refused");
    let books = accountant.finish();
    for metric in FIRST.into_iter().chain(["c", "cu"]) {
        let balance = books.balance("cgroup", metric);
        balance.assert_exact();
        assert!(balance.counted > 0, "{balance:?}");
    }
    for metric in ["ck", "cycles_user", "instructions_user"] {
        for scope in ["cpu", "cgroup", "unattributed"] {
            let name = format!("perf_{scope}_{metric}");
            assert!(!books.has(&name), "{name} was not counted, and is no zero: {books:?}");
        }
    }
}

#[test]
fn an_idle_machine_is_not_charged_to_the_root_cgroup() {
    let Some(_counters) = stream_with(Feature::Emulated) else { return };
    let mut accountant = Accountant::of(
        "counters: {os: {events: [task-clock], per: [cpu, cgroup]}}\n\
         cgroups: {include: [\"/\"], exclude: [], attribution: stream}\n",
    );
    let before = accountant.collect().balance("cgroup", "task_clock_seconds");
    thread::sleep(Duration::from_secs(5));
    let after = accountant.collect().balance("cgroup", "task_clock_seconds");
    let (idle, root) = (after.of("idle") - before.of("idle"), after.attributed - before.attributed);
    let counted = after.counted - before.counted;
    let told = format!("of {counted} ns {idle} are idle and {root} are the root cgroup's");
    assert!(idle > counted / 2 && root < counted / 4, "{told}");
}
