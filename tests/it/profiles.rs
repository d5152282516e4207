//! Entries of `profiles` on the machines under `tests/data/hosts`: opened events, the values of their samples, and rejected entries.

use std::sync::Arc;

use perf_exporter::config::load;
use perf_exporter::config::profiled::{Rate, Unwind};
use perf_exporter::event::{Catalog, Event, ProbePoint};
use perf_exporter::health::Cause;
use perf_exporter::host::{Facts, Roots};
use perf_exporter::plan::{Entries, Plan, Sampler, StreamSupport, configured_probes, plan};
use perf_exporter::probe::install::{Installer, Placed, Placements};
use perf_exporter::sys::{Attr, Sampling};

use crate::program::host;

/// Returns the plan for a section `profiles` on a host, and the facts of the host.
fn planned(on: &str, profiles: &str) -> (Plan, Facts) {
    let roots = Roots::under(&host(on));
    let yaml = format!("profiles: {{{profiles}}}");
    let (config, warnings) = load(yaml.as_bytes(), "test.yaml").unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    let facts = Facts::read(&roots);
    let looks = Installer::new(&roots, 1).look(&configured_probes(&[], &config.profiles));
    let placed = looks.into_iter().map(|look| (look.entry, look.ways.map(|_| look.events))).collect();
    let entries = Entries { profiles: &config.profiles, placed: &placed, ..Entries::counters(&[]) };
    (plan(&entries, &Catalog::load(&roots, &facts), &StreamSupport::foreseen(&facts)), facts)
}

/// Returns the plan where the probe of the entry `a` has been resolved to these events.
fn planned_with(on: &str, profiles: &str, events: &[Event]) -> Plan {
    let roots = Roots::under(&host(on));
    let (config, _) = load(format!("profiles: {{{profiles}}}").as_bytes(), "test.yaml").unwrap();
    let facts = Facts::read(&roots);
    let events = events.iter().map(|event| Placed { event: event.clone(), format: None }).collect();
    let placed = Placements::from([(("profiles", "a".into()), Ok(events))]);
    let entries = Entries { profiles: &config.profiles, placed: &placed, ..Entries::counters(&[]) };
    plan(&entries, &Catalog::load(&roots, &facts), &StreamSupport::foreseen(&facts))
}

/// Returns the sampler of one entry.
fn sampler(on: &str, entry: &str) -> Arc<Sampler> {
    let (plan, _) = planned(on, &format!("a: {{{entry}}}"));
    assert_eq!(plan.refusals, [], "{entry}");
    let [sampler] = &plan.samplers[..] else { panic!("{plan:?}") };
    Arc::clone(sampler)
}

/// Returns why one entry is rejected, and whether it is invalid on every host.
fn refused(on: &str, entry: &str) -> (Cause, String, bool) {
    let (plan, _) = planned(on, &format!("a: {{{entry}}}"));
    assert!(plan.samplers.is_empty(), "{entry}");
    let [refused] = &plan.refusals[..] else { panic!("{plan:?}") };
    assert_eq!((refused.section, &*refused.entry), ("profiles", "a"));
    (refused.refusal.cause, refused.refusal.to_string(), refused.mistake)
}

/// Returns the type and unit of a sampler's values, and the value of one sample.
fn worth(sampler: &Sampler) -> (&str, &str, Option<u64>) {
    let unit = if sampler.value.nanoseconds { "ns" } else { "" };
    (&sampler.value.name, unit, sampler.period)
}

#[test]
fn a_clock_samples_time_and_leaves_out_idle_cpus() {
    for event in ["cpu-clock", "task-clock"] {
        let clock = sampler("vm", &format!("event: {event}"));
        assert_eq!(worth(&clock), ("cpu", "ns", Some(52_631_578)));
        assert_eq!((clock.rate, clock.most_samples()), (Rate::Frequency(19), Some(19)));
        let modifiers = clock.events[0].modifiers;
        assert_eq!(
            (modifiers.exclude_idle, modifiers.exclude_kernel, modifiers.exclude_user),
            (true, false, false)
        );
    }
    let clock = sampler("vm", "event: cpu-clock, period: 3000000, idle: true, kernel: false");
    assert_eq!(worth(&clock), ("cpu", "ns", Some(3_000_000)));
    assert_eq!(clock.most_samples(), Some(334));
    let modifiers = clock.events[0].modifiers;
    assert_eq!((modifiers.exclude_idle, modifiers.exclude_kernel), (false, true));
}

#[test]
fn other_events_are_counted_and_each_sample_says_for_how_many_it_stands() {
    let faults = sampler("vm", "event: page-faults");
    assert_eq!(worth(&faults), ("page-faults", "", None));
    assert!(Sampling::of(&faults).fields.period);
    let each = sampler("vm", "event: page-faults, period: 1");
    assert_eq!((worth(&each), each.most_samples()), (("page-faults", "", Some(1)), None));
    assert!(!Sampling::of(&each).fields.period);
    // Without this, the kernel would write a sample for each hit of a software event, regardless of the period.
    let some = sampler("vm", "event: page-faults, period: 100");
    assert_eq!((some.period, Sampling::of(&some).fields.period), (Some(100), false));
    assert!(!faults.events[0].modifiers.exclude_idle);
}

#[test]
fn the_kernel_is_left_out_where_the_event_can_tell_it_apart() {
    let faults = sampler("vm", "event: page-faults, kernel: false");
    assert_eq!((&*faults.value.name, faults.events[0].modifiers.exclude_kernel), ("page-faults:u", true));
    let (cause, text, mistake) = refused("vm", "event: context-switches, kernel: false");
    assert_eq!((cause, mistake), (Cause::Broken, true));
    assert_eq!(
        text,
        "context-switches on this host: broken: the event occurs only in the kernel, so its count would stay zero; \
         leave out `kernel: false`"
    );
}

#[test]
fn a_machine_with_two_kinds_of_cores_samples_each_on_its_own() {
    let (plan, facts) = planned("intel-hybrid", "a: {event: cycles}, b: {event: cycles, cpus: 6-9}");
    assert_eq!(plan.refusals, []);
    let [a, b] = &plan.samplers[..] else { panic!("{plan:?}") };
    let names: Vec<&str> = a.events.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["cpu_atom/cycles/", "cpu_core/cycles/"]);
    assert_eq!(worth(a), ("cycles", "", None));
    let cpus = |sampler: &Sampler| {
        let cpus = sampler.events.iter().map(|event| sampler.cpus(event, &facts.online).to_string());
        cpus.collect::<Vec<_>>()
    };
    assert_eq!((cpus(a), cpus(b)), (vec!["8-15".into(), "0-7".into()], vec!["8-9".into(), "6-7".into()]));
    let on = |cpu| b.events_on(cpu).map(|event| &*event.name).collect::<Vec<_>>();
    assert_eq!([on(5), on(7), on(8)], [vec![], vec!["cpu_core/cycles/"], vec!["cpu_atom/cycles/"]]);
    assert_eq!((a.descriptors(&facts.online), b.descriptors(&facts.online)), (16, 4));
    assert_eq!(plan.sampled_descriptors(&facts.online), 16 + 4 + 16);
}

#[test]
fn without_a_pmu_cycles_are_refused_and_nothing_is_taken_in_their_place() {
    let (cause, text, mistake) = refused("vm", "event: cycles");
    assert_eq!((cause, mistake), (Cause::Absent, false));
    assert!(
        text.starts_with(
            "cycles on this host: absent: this virtual machine has no hardware counters; write event: cpu-clock, which \
             samples time and needs no PMU; or enable the virtual PMU"
        ),
        "{text}"
    );
    assert_eq!(sampler("intel-server", "event: cycles").events.len(), 1);
}

#[test]
fn what_cannot_be_sampled_says_why() {
    for (on, entry, cause, expected) in [
        ("vm", "event: page-fualts", Cause::Absent, "did you mean page-faults?"),
        ("vm", "event: 'sched:sched_swtich'", Cause::Absent, "did you mean sched:sched_switch?"),
        (
            "intel-server",
            "event: 'uncore_imc/cas_count_read/'",
            Cause::Absent,
            "counts for a whole socket or die and does not support sampling; count it instead",
        ),
        (
            "vm",
            "event: cpu-clock, frequency: 9000",
            Cause::Forbidden,
            "kernel.perf_event_max_sample_rate is 8000, but 9000 samples per second are requested; write frequency: 8000 or \
             less, or set the sysctl to 9000",
        ),
        ("vm", "limit: 9000", Cause::Forbidden, "write limit: 8000 or less, or set the sysctl to 9000"),
        (
            "vm",
            "event: cpu-clock, cpus: 2-5",
            Cause::Absent,
            "none of the CPUs 2-5 is online; the online CPUs are 0-1; leave out `cpus`",
        ),
        (
            "vm",
            "event: 'sched:sched_switch', filter: 'prev_stat == 2'",
            Cause::Broken,
            "did you mean prev_state?",
        ),
    ] {
        let (found, text, _) = refused(on, entry);
        assert!(found == cause && text.contains(expected), "{entry}: {text}");
    }
    // If the sysctl cannot be read, no limit is assumed.
    sampler("amd", "event: cpu-clock, frequency: 10000");
    sampler("vm", "event: cpu-clock, cpus: 1-5");
}

#[test]
fn each_hit_of_a_probe_is_a_sample_unless_the_entry_says_otherwise() {
    let calls = sampler("amd", "kprobe: tcp_sendmsg");
    assert_eq!((worth(&calls), calls.rate), (("kprobe:tcp_sendmsg", "", Some(1)), Rate::Period(1)));
    let point = calls.events[0].probe.as_ref().unwrap();
    assert_eq!((point.place.to_bytes(), point.offset), (&b"tcp_sendmsg"[..], 0));
    let some = sampler("amd", "kretprobe: tcp_sendmsg, period: 10");
    assert_eq!((worth(&some), some.most_samples()), (("kretprobe:tcp_sendmsg", "", Some(10)), None));
    assert_ne!(some.events[0].selector, calls.events[0].selector);
    let often = sampler("amd", "kprobe: tcp_sendmsg, frequency: 19");
    assert_eq!((often.period, Sampling::of(&often).fields.period), (None, true));
    let (cause, text, mistake) = refused("amd", "uprobe: '/nowhere:f'");
    assert!((cause, mistake) == (Cause::Absent, true) && text.contains("/nowhere"), "{text}");
}

#[test]
fn a_marker_in_several_places_is_sampled_in_all_of_them_and_a_traced_function_not_at_all() {
    let at = |offset: u64| {
        let calls = sampler("amd", "kprobe: tcp_sendmsg");
        let point = calls.events[0].probe.as_deref().unwrap().clone();
        Event { probe: Some(Arc::new(ProbePoint { offset, ..point })), ..calls.events[0].clone() }
    };
    let plan = planned_with("amd", "a: {usdt: '/b:p:m', cpus: '0-1'}", &[at(1), at(2)]);
    let marker = &plan.samplers[0];
    assert_eq!((marker.events_on(0).count(), marker.events_on(2).count()), (2, 0));
    assert_eq!(plan.sampled_descriptors(&"0-7".parse().unwrap()), 2 * (1 + 2));

    let traced = Event { filter: Some("ip == f".into()), ..at(0) };
    let plan = planned_with("amd", "a: {kprobe: f}", &[traced]);
    assert_eq!(plan.samplers, []);
    assert!(plan.refusals[0].refusal.to_string().contains("this kernel has no kprobes"), "{plan:?}");
}

#[test]
fn samples_of_a_probe_go_on_in_another_file_and_those_of_another_entry_do_not() {
    let calls = sampler("amd", "kprobe: tcp_sendmsg");
    let mut moved = Sampler::clone(&calls);
    moved.events[0].probe = None;
    assert!(moved != *calls && moved.continues(&calls) && calls.continues(&moved));
    for other in
        ["kprobe: tcp_sendmsg, period: 10", "kretprobe: tcp_sendmsg", "kprobe: tcp_recvmsg", "event: faults"]
    {
        assert!(!sampler("amd", other).continues(&calls), "{other}");
    }
    let clock = sampler("vm", "event: cpu-clock");
    assert!(!sampler("vm", "event: cpu-clock, kernel: false").continues(&clock));
}

#[test]
fn a_filter_goes_with_its_tracepoint() {
    let blocked = sampler("vm", "event: 'sched:sched_switch', filter: 'prev_state == 2'");
    assert_eq!(blocked.events[0].filter.as_deref(), Some("prev_state == 2"));
    let attr = Attr::sampling(&blocked.events[0], Sampling::of(&blocked));
    assert_eq!(attr.filter.as_deref(), Some("prev_state == 2"));
}

#[test]
fn waits_are_sampled_where_threads_leave_the_cpu() {
    let (plan, facts) =
        planned("vm", "off_cpu: {threshold: 5ms, limit: 70, unwind: fp}, cpu: {event: cpu-clock}");
    let waiting = &plan.samplers[0];
    assert_eq!(worth(waiting), ("off_cpu", "ns", None));
    assert_eq!((waiting.rate, waiting.unwind), (Rate::Frequency(70), Unwind::FramePointers));
    let waits = waiting.waits.as_ref().unwrap();
    assert_eq!((waits.threshold.as_millis(), waits.number), (5, 316));
    assert_eq!(&*waits.state.name, "prev_state");
    let sampled = Sampling::of(waiting);
    assert!(sampled.fields.raw && sampled.fields.callchain && !sampled.fields.period);
    // Each switch is sampled at first; the rate is adapted later.
    assert_eq!(sampled.rate, Rate::Period(1));
    // The event, the clock, and the event that holds the ring, on each of two CPUs.
    assert_eq!(plan.sampled_descriptors(&facts.online), 2 * (1 + 1 + 1));
    // The error if tracefs contains the tracepoint but not its format.
    let (_, text, mistake) = refused("amd", "threshold: 1ms");
    assert!(text.starts_with("sched:sched_switch on this host: broken: ") && !mistake, "{text}");
}

#[test]
fn samples_tell_their_cgroups_where_the_kernel_can() {
    let (plan, _) = planned("vm", "a: {event: cpu-clock}");
    assert!(plan.samplers[0].tells_cgroup && plan.needs().cgroups);
    let (plan, _) = planned("vm", "");
    assert!(!plan.needs().cgroups && plan.sampled_descriptors(&"0-1".parse().unwrap()) == 0);
}
