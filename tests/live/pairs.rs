//! The time between two events, and the reasons for unpaired events. The events are probes that the test defines, so that no other process
//! causes any.

use perf_exporter::host::{Facts, Roots};

use crate::functions::assert_nothing_lost;
use crate::leftovers::Neighbour;
use crate::support::exposition::Exposition;
use crate::support::program::{Program, Running};
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually, lacks};

/// An argument in the register that holds the first argument of a call.
const FIRST: &str = if cfg!(target_arch = "x86_64") { "number=%di:u64" } else { "number=%x0:u64" };

/// A program, two tracepoints of it, and a service that pairs them.
struct Bench {
    // Fields are dropped in this order.
    service: Service,
    running: Running,
    _neighbour: Neighbour,
    _program: Program,
}

impl Bench {
    /// `settings` are the settings of the entry `pair` besides its events.
    fn with(name: &str, settings: &str) -> Self {
        let program = Program::compile();
        let mut neighbour = Neighbour::new(name);
        neighbour.defines("begins", &program, "begins", FIRST);
        neighbour.defines("ends", &program, "ends", FIRST);
        let system = &neighbour.system;
        let service = Service::start_fresh(&format!(
            "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
             tracepoints:\n  pair: {{from: \"{system}:begins\", to: \"{system}:ends\", {settings}}}\n"
        ));
        Self { service, running: program.start(), _neighbour: neighbour, _program: program }
    }

    fn does(&mut self, orders: &[&str]) -> Exposition {
        for order in orders {
            self.running.does(order);
        }
        self.service.metrics()
    }
}

fn lacks_probes() -> bool {
    [Feature::Compiler, Feature::Uprobe, Feature::Tracefs, Feature::Tracepoint].into_iter().any(lacks)
}

/// Returns the number of pairs.
fn pairs(metrics: &Exposition) -> f64 {
    metrics.sum("perf_tracepoint_pair_seconds_count", &[])
}

/// Returns the number of unpaired events by reason, in alphabetical order.
fn alone(metrics: &Exposition) -> Vec<(&str, f64)> {
    metrics.by("perf_unpaired_events_total", "reason").filter(|&(_, count)| count > 0.0).collect()
}

#[test]
fn what_begins_on_one_cpu_and_ends_on_another_is_one_pair() {
    if lacks_probes() {
        return;
    }
    let cpus: Vec<u32> = Facts::read(&Roots::default()).online.iter().collect();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let mut bench = Bench::with("cpus", "key: [number], labels: {number: from.number}, timeout: 1h");
    let there = format!("moves {first} {first}");
    let back = format!("moves {last} {last}");
    // Pairs across two CPUs in both directions, so that neither ring is always read first.
    let metrics =
        bench.does(&[&there, "begins 1 50", &back, "ends 1 50", "begins 51 90", &there, "ends 51 90"]);
    assert_nothing_lost(&metrics);
    assert_eq!((pairs(&metrics), alone(&metrics)), (90.0, vec![]), "{metrics:?}");
    for number in [1, 50, 51, 90] {
        let labels = [("number", &*number.to_string())];
        assert_eq!(metrics.value("perf_tracepoint_pair_seconds_count", &labels), Some(1.0), "{metrics:?}");
    }
    assert_eq!(metrics.value("perf_pending_events", &[("entry", "pair")]), Some(0.0));
}

#[test]
fn events_that_find_no_partner_are_told_apart() {
    if lacks_probes() {
        return;
    }
    let mut bench = Bench::with("alone", "key: [number], timeout: 1h, pending: 20");
    // 1 to 10 are pairs; 5 has a second begin; 11 to 13 have no begin; 21 to 45 exceed the limit of pending events by five.
    let metrics = bench.does(&["begins 1 10", "begins 5 5", "ends 1 13", "begins 21 45"]);
    assert_nothing_lost(&metrics);
    assert_eq!(pairs(&metrics), 10.0, "{metrics:?}");
    assert_eq!(alone(&metrics), [("no_begin", 3.0), ("no_end", 1.0), ("table_full", 5.0)]);
    assert_eq!(metrics.value("perf_pending_events", &[("entry", "pair")]), Some(20.0));
    let metrics = bench.does(&["ends 21 45"]);
    assert_eq!(pairs(&metrics), 30.0, "pending events were lost: {metrics:?}");
    assert_eq!(alone(&metrics), [("no_begin", 8.0), ("no_end", 1.0), ("table_full", 5.0)]);
}

#[test]
fn what_waits_for_longer_than_the_timeout_is_given_up() {
    if lacks_probes() {
        return;
    }
    let mut bench = Bench::with("late", "key: [number], timeout: 1ms");
    bench.does(&["begins 1 25"]);
    let metrics = eventually("all of them have expired", || {
        let metrics = bench.service.metrics();
        (metrics.value("perf_pending_events", &[("entry", "pair")]) == Some(0.0)).then_some(metrics)
    });
    assert_eq!((pairs(&metrics), alone(&metrics)), (0.0, vec![("expired", 25.0)]), "{metrics:?}");
    let metrics = bench.does(&["ends 1 25"]);
    assert_eq!(alone(&metrics), [("expired", 25.0), ("no_begin", 25.0)], "{metrics:?}");
}

/// The other form of a pair: entry and return of one function, paired by thread on any CPU.
#[test]
fn a_function_that_returns_on_another_cpu_has_its_time_and_its_process() {
    if lacks_probes() {
        return;
    }
    let cpus: Vec<u32> = Facts::read(&Roots::default()).online.iter().collect();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let program = Program::compile();
    let service = crate::functions::probing(
        &[format!("moved: {{uprobe: {}, histogram: seconds, per: [process]}}", program.at("moves"))],
        "processes: {include: [{comm: \"**\"}], by: [comm]}\n",
    );
    let mut running = program.start();
    running.does_with("is_called", b"wanders");
    for _ in 0..20 {
        running.does(&format!("moves {first} {last}"));
    }
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let count = metrics.value("perf_process_moved_seconds_count", &[("comm", "wanders")]);
    assert_eq!((count, alone(&metrics)), (Some(20.0), vec![]), "{metrics:?}");
}

#[test]
fn system_calls_from_entry_to_exit_are_pairs_of_their_threads() {
    if lacks(Feature::Tracepoint) {
        return;
    }
    let mut worker = Worker::start("asking");
    let service = Service::start_fresh(
        "counters: {os: {events: [context-switches], per: [cpu]}}\n\
         tracepoints:\n  asked: {from: \"syscalls:sys_enter_getppid\", to: \"syscalls:sys_exit_getppid\", \
         per: [process]}\n\
         processes: {include: [{comm: \"**\"}], by: [pid]}\n",
    );
    // All records fit into a ring of 1 MiB, because on a loaded machine the reader may not run for two milliseconds.
    for _ in 0..5 {
        worker.does(Work::Getppid(1000));
        service.metrics();
    }
    let metrics = service.metrics();
    assert_nothing_lost(&metrics);
    let labels = [("pid", &*worker.pid().to_string())];
    assert_eq!(metrics.value("perf_process_asked_seconds_count", &labels), Some(5000.0), "{metrics:?}");
}
