//! Loops of known length, counted by hardware counters.

use perf_exporter::host::{Facts, Roots};

use crate::support::Feature;
use crate::support::cgroup::TestCgroup;
use crate::support::exposition::Exposition;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::{ALWAYS_FRESH, advance, agree, counters_with};

const CYCLES: &str = "cycles_total";
const INSTRUCTIONS: &str = "instructions_total";

/// Starts a service that counts one process, selected by its name.
fn service_for(counters: &str, worker: &Worker) -> Service {
    let pid = worker.pid();
    Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{{counters}}}\nprocesses: {{include: [{{pid: {pid}}}], by: [comm]}}\n"
    ))
}

/// QEMU derives both counters from one, so any other ratio is an error of the exporter.
#[test]
fn a_cpu_a_cgroup_and_a_process_count_four_cycles_for_each_instruction() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    let cgroup = TestCgroup::new("busy");
    let mut worker = Worker::start("busy");
    cgroup.take(worker.pid());
    let service = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{core: {{events: [cycles, instructions], per: [cpu, cgroup, process]}}}}\n\
         cgroups: {{include: [\"{}\"]}}\nprocesses: {{include: [{{pid: {}}}], by: [comm]}}\n",
        cgroup.path(),
        worker.pid()
    ));
    let before = service.metrics();
    worker.does(Work::Spin(10_000_000));
    let after = service.metrics();

    let count = |scope: &str, metric: &str, label: &str, value: &str| {
        advance(&before, &after, &format!("perf_{scope}_{metric}"), &[(label, value)])
    };
    let scopes = [("process", "comm", "busy"), ("cgroup", "cgroup", cgroup.path())];
    let [process, of_cgroup] = scopes.map(|(scope, label, value)| {
        let (cycles, instructions) =
            (count(scope, CYCLES, label, value), count(scope, INSTRUCTIONS, label, value));
        let ratio = instructions / cycles;
        assert!(agree(ratio, 0.25, 0.02), "{scope}: {instructions} instructions in {cycles} cycles: {ratio}");
        instructions
    });
    assert!(process > 1e7, "fewer instructions than iterations of the loop: {process}");
    assert!(
        agree(process, of_cgroup, 0.01),
        "{process} instructions of the process, {of_cgroup} of its cgroup"
    );

    // The CPUs count the worker and all other processes, and cycles also while they are idle.
    let online = Facts::read(&Roots::default()).online;
    let on_cpus = |metric: &str| -> Vec<f64> {
        online.iter().map(|cpu| count("cpu", metric, "cpu", &cpu.to_string())).collect()
    };
    let (cycles, instructions) = (on_cpus(CYCLES), on_cpus(INSTRUCTIONS));
    let told = format!("CPUs: {instructions:?} instructions in {cycles:?} cycles; process: {process}");
    assert!(instructions.iter().sum::<f64>() >= process, "{told}");
    assert!(cycles.iter().zip(&instructions).all(|(c, i)| *i > 0.0 && c >= i), "{told}");
}

/// The instructions around the loop are the same for every length and cancel out. The remaining error is at most half a percent, which the
/// emulator counts too much around interrupts.
#[test]
fn each_round_of_a_loop_is_a_whole_number_of_instructions_whatever_its_length() {
    let Some(_counters) = counters_with(Feature::Pmu) else { return };
    const ROUNDS: u64 = 2_000_000;
    let mut worker = Worker::start("looping");
    let service = service_for("user: {events: [\"instructions:u\"], per: [process]}", &worker);
    let counted = [1, 3, 9].map(|times| {
        let before = service.metrics();
        worker.does(Work::Spin(times * ROUNDS));
        advance(&before, &service.metrics(), "perf_process_instructions_user_total", &[("comm", "looping")])
    });
    let [short, long] = [(counted[1] - counted[0]) / 2.0, (counted[2] - counted[1]) / 6.0]
        .map(|instructions| instructions / ROUNDS as f64);
    let told = format!("{counted:?} instructions are {short} and {long} per iteration");
    assert!(agree(short, long, 0.01), "{told}");
    assert!(short >= 3.0 && agree(short, short.round(), 0.01), "{told}");
}

#[test]
fn threads_new_programs_and_ended_processes_keep_their_instructions() {
    let Some(_counters) = counters_with(Feature::Pmu) else { return };
    const WORK: Work = Work::Spin(3_000_000);
    let mut worker = Worker::start("larva");
    let service = service_for("core: {events: [\"{cycles,instructions}:u\"], per: [process]}", &worker);
    let counted = |before: &Exposition, after: &Exposition, comm: &str| {
        advance(before, after, "perf_process_instructions_user_total", &[("comm", comm)])
    };
    let start = service.metrics();
    worker.does(WORK);
    let alone = service.metrics();
    let expected = counted(&start, &alone, "larva");
    assert!(expected > 3e6, "{expected}");

    worker.starts_thread();
    let started = service.metrics();
    worker.does_in_thread(WORK);
    let in_thread = counted(&started, &service.metrics(), "larva");
    assert!(
        agree(in_thread, expected, 0.02),
        "{in_thread} in a new thread, {expected} in the thread that started it"
    );

    worker.executes("imago");
    let renamed = std::iter::repeat_with(|| service.metrics()).nth(8).unwrap();
    worker.ends_after(WORK);
    let at_the_end = counted(&renamed, &service.metrics(), "imago");
    assert!(agree(at_the_end, expected, 0.05), "{at_the_end} after its exit, {expected} expected");
}
