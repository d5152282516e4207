//! Tests of the stream on CPUs with missing samples of switches.

use super::*;
use crate::attribute::{SWITCHES, bundle_fields};
use crate::event::Catalog;
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
        let set = Set { events: catalog.resolve(&faults).unwrap(), entries: vec!["os".into()] };
        let plan =
            plan::Stream { granularity: Granularity::Process, cgroup: true, timed: false, sets: vec![set] };
        let mut service = Self {
            kernel: FakeKernel::new(),
            facts: Facts::default(),
            budget: Budget::new(1024, 0, None),
            stream: Stream::new(plan, 1000.0, 1 << 20),
            switches: 0,
        };
        let (stream, mut means) = service.parts();
        assert!(stream.open_missing(&"0-1".parse().unwrap(), &mut means).is_empty());
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
