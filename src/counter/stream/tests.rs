//! Tests of the stream on CPUs with missing samples of switches, and of groups of top-down metrics.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::attribute::{SWITCHES, bundle_fields};
use crate::event::{Catalog, parse};
use crate::host::{Facts, Roots};
use crate::plan::{Granularity, Set};
use crate::ring::testing::Switch;
use crate::sys::fake::{FakeKernel, FakePlace, Opened};
use crate::sys::{Attr, Budget};

/// A stream of page faults by process, on CPUs 0 and 1.
struct Service {
    kernel: FakeKernel,
    facts: Facts,
    budget: Budget,
    stream: Stream<FakeKernel>,
    /// Count of the leader of CPU 1.
    switches: u64,
}

impl Service {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let catalog = Catalog::load(&Roots::under(dir.path()), &Facts::default());
        let faults = crate::config::profiled::one_event("page-faults").unwrap();
        Self::counting(vec![Set { events: catalog.resolve(&faults).unwrap(), entries: vec!["os".into()] }])
    }

    fn counting(sets: Vec<Set>) -> Self {
        let plan = plan::Stream { granularity: Granularity::Process, cgroup: true, timed: false, sets };
        let mut service = Self {
            kernel: FakeKernel::new(),
            facts: Facts::default(),
            budget: Budget::new(1024, 0, None),
            stream: Stream::new(plan, 1000.0, 1 << 20),
            switches: 0,
        };
        let (stream, mut means) = service.parts();
        let refused = stream.open_missing(&"0-1".parse().unwrap(), &mut means);
        assert!(refused.is_empty(), "{refused:?}");
        service
    }

    fn parts(&mut self) -> (&mut Stream<FakeKernel>, OpenContext<'_, FakeKernel>) {
        let Self { kernel, facts, budget, stream, .. } = self;
        (stream, OpenContext { kernel, facts, core_pmu_present: false, budget })
    }

    /// Makes CPU 1 switch this often, and write a sample of every other switch.
    fn hides(&mut self, switches: u64) {
        let fields = bundle_fields(fields(&self.stream.plan), true);
        for _ in 0..switches / 2 {
            self.switches += 2;
            let values = vec![self.switches, self.switches * 100, 0];
            let sample = Switch { pid: 7, tid: 7, cgroup: 1, values, ..Switch::default() };
            let on_cpu_1 = |event: &Opened| event.place == FakePlace::Cpu(1) && !event.is_member();
            self.kernel.write(on_cpu_1, &sample.record(&fields));
        }
    }

    /// Reads the rings, and enables `PERF_RECORD_SWITCH` where samples are missing.
    fn collect(&mut self) {
        self.stream.take(|_| true);
        let (stream, mut means) = self.parts();
        stream.enable_switch_records(&mut means);
    }

    /// Returns the places with an event that writes records of switches, and whether it is enabled.
    fn told(&self) -> Vec<(FakePlace, bool)> {
        let opened = self.kernel.opened();
        let dummies = opened.iter().filter(|event| tells(&event.attr));
        dummies.map(|event| (event.place, event.enabled)).collect()
    }
}

fn tells(attr: &Attr) -> bool {
    attr.sampling.is_some_and(|sampling| sampling.sideband.switches && sampling.fields == SWITCHES)
}

#[test]
fn records_of_switches_are_asked_for_on_the_cpu_that_hides_switches_and_only_there() {
    let mut service = Service::start();
    service.collect();
    assert_eq!(service.told(), []);
    let before = (service.budget.used, service.stream.state().descriptors);
    service.hides(100);
    for _ in 0..2 {
        service.collect();
        assert_eq!(service.told(), [(FakePlace::Cpu(1), true)]);
        let now = (service.budget.used, service.stream.state().descriptors);
        assert_eq!(now, (before.0 + 1, before.1 + 1));
    }
    let Service { kernel, mut budget, stream, .. } = service;
    stream.close(&mut budget);
    assert_eq!((kernel.opened().len(), budget.used), (0, 0));
}

#[test]
fn a_kernel_that_refuses_records_of_switches_is_asked_once() {
    let mut service = Service::start();
    service.kernel.refuse(Errno::EINVAL, |attr, _, _| tells(attr));
    service.hides(100);
    service.collect();
    let calls = service.kernel.open_calls();
    service.hides(100);
    service.collect();
    assert_eq!((service.kernel.open_calls(), service.told()), (calls, vec![]));
    assert_eq!(service.stream.state().losses.unrecorded, 100);
}

#[test]
fn without_a_descriptor_left_nothing_is_asked_for() {
    let mut service = Service::start();
    service.budget.limit = service.budget.used;
    service.hides(100);
    service.collect();
    assert_eq!(service.told(), []);
}

#[test]
fn a_stream_that_takes_over_has_records_of_switches_before_it_counts() {
    let mut service = Service::start();
    service.hides(100);
    service.collect();
    let plan = service.stream.plan.clone();
    let mut old = std::mem::replace(&mut service.stream, Stream::new(plan, 1000.0, 1 << 20));
    let (stream, mut means) = service.parts();
    assert!(stream.take_over(&mut old, &"0-1".parse().unwrap(), &mut means).0.is_empty());
    assert_eq!(service.told(), [(FakePlace::Cpu(1), true)]);
    let opened = service.kernel.opened();
    let switched = |is: &dyn Fn(&Opened) -> bool| {
        opened.iter().find(|event| event.place == FakePlace::Cpu(1) && is(event)).unwrap().switched
    };
    assert!(
        switched(&|event| tells(&event.attr)) < switched(&|event| !tells(&event.attr) && !event.is_member())
    );
}

/// A stream of these sets of events on two performance cores with top-down metrics.
fn topdown(sets: &[&str]) -> Service {
    let roots = Roots::under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts/intel-hybrid"));
    let catalog = Catalog::load(&roots, &Facts::read(&roots));
    let set = |text: &&str| {
        let groups = parse(text).unwrap();
        let events = groups.iter().flat_map(|group| &group.events);
        Set { events: events.flat_map(|event| catalog.resolve(event).unwrap()).collect(), entries: vec![] }
    };
    Service::counting(sets.iter().map(set).collect())
}

/// The events on CPU 1 as `(event code, whether it leads a group, whether it writes records)`, of each group.
fn groups(kernel: &FakeKernel) -> Vec<Vec<(u64, bool)>> {
    let opened = kernel.opened();
    let mut groups: Vec<Vec<(u64, bool)>> = Vec::new();
    for event in opened.iter().filter(|event| event.place == FakePlace::Cpu(1)) {
        if !event.is_member() {
            groups.push(Vec::new());
        }
        // The upper half selects the PMU of a hybrid machine.
        let code = event.attr.selector.config[0] & 0xffff;
        groups.last_mut().unwrap().push((code, event.attr.sampling.is_some()));
    }
    groups
}

const SLOTS: (u64, bool) = (0x400, false);
const RETIRING: (u64, bool) = (0x8000, false);
/// The software events that write records: context switches and the clock.
const RECORDING: [(u64, bool); 2] = [(3, true), (0, true)];

#[test]
fn slots_lead_the_group_of_their_metrics_and_write_no_records() {
    let mut service = topdown(&["cpu_core/instructions/", "cpu_core/topdown-retiring/,cpu_core/slots/"]);
    let expected = [RECORDING.to_vec(), [&[SLOTS], &RECORDING[..], &[RETIRING, (1, false)]].concat()];
    assert_eq!(groups(&service.kernel), expected);
    let state = service.stream.state();
    // Two groups: (switches, clock) and (slots, switches, clock, retiring, instructions).
    assert_eq!((state.descriptors_per_cpu, service.kernel.opened().len()), (7, 14));

    // Process 7 leaves CPU 1 after 1000 ns on the PMU.
    let fields = fields(&service.stream.plan);
    let record = |values: &[u64], untimed| {
        let values = values.to_vec();
        Switch {
            pid: 7,
            tid: 7,
            cgroup: 1,
            time: 1000,
            enabled: 1000,
            running: 1000,
            values,
            ..Switch::default()
        }
        .record(&bundle_fields(fields, untimed))
    };
    let (software, hardware) = (record(&[1, 1000], true), record(&[6000, 1, 1000, 1500, 900], false));
    let rings = service.kernel.opened();
    let mut rings = rings.iter().filter(|event| {
        event.place == FakePlace::Cpu(1)
            && event.attr.sampling.is_some()
            && event.attr.selector.config[0] == 3
    });
    for bytes in [software, hardware] {
        let ring = rings.next().unwrap().id();
        service.kernel.write(|event| event.id() == ring, &bytes);
    }
    let shares = service.stream.take(|_| true);
    let counts: Vec<Vec<u64>> = shares
        .iter()
        .filter(|(_, share)| !share.is_empty())
        .map(|(_, share)| share.counts.to_vec())
        .collect();
    // In the order of the configuration: instructions, retiring, slots.
    assert_eq!(counts, [[900, 1500, 6000]]);
    assert_eq!(service.stream.state().losses.unrecorded, 0);
}

#[test]
fn metrics_that_do_not_fit_with_other_events_have_a_group_of_their_own() {
    let mut service = topdown(&[]);
    let sets = ["cpu_core/instructions/", "cpu_core/slots/,cpu_core/topdown-retiring/"];
    service.stream = Stream::new(topdown(&sets).stream.plan, 1000.0, 1 << 20);
    // Instructions do not fit in the group of all events, nor beside the metrics.
    let refusals = AtomicUsize::new(0);
    service.kernel.refuse(Errno::EINVAL, move |attr, _, joins| {
        let instructions = attr.selector.kind == 0 && attr.selector.config[0] & 0xffff == 1;
        joins && instructions && refusals.fetch_add(1, Ordering::Relaxed) < 2
    });
    let (stream, mut means) = service.parts();
    assert!(stream.open_missing(&"1".parse().unwrap(), &mut means).is_empty());
    let metrics = [&[SLOTS], &RECORDING[..], &[RETIRING]].concat();
    let instructions = [&RECORDING[..], &[(1, false)]].concat();
    assert_eq!(groups(&service.kernel), [RECORDING.to_vec(), metrics, instructions]);
}

#[test]
fn without_slots_the_categories_are_refused_one_by_one_and_other_events_count() {
    let mut service = topdown(&[]);
    let sets = ["cpu_core/slots/,cpu_core/topdown-retiring/,cpu_core/instructions/"];
    service.stream = Stream::new(topdown(&sets).stream.plan, 1000.0, 1 << 20);
    service.kernel.refuse(Errno::ENOENT, |attr, _, _| attr.selector.config[0] & 0xffff == 0x400);
    let (stream, mut means) = service.parts();
    let refused = stream.open_missing(&"1".parse().unwrap(), &mut means);
    let events: Vec<&str> = refused.iter().map(|refused| &*refused.refusal.event).collect();
    assert_eq!(events, ["cpu_core/slots/", "cpu_core/topdown-retiring/"]);
    assert_eq!(groups(&service.kernel), [RECORDING.to_vec(), [&RECORDING[..], &[(1, false)]].concat()]);
}
