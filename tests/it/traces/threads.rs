//! Threads: from records of the scheduler and of system calls to the scrape.

use std::fs;
use std::os::unix::fs::MetadataExt;

use perf_exporter::error::Errno;

use crate::traced::{ENTER, EXIT, Hit, MIGRATE, SWITCH, Scrape, WAKING, WAKING_NEW, World, hit};

const SCHEDULER: &str = "scheduler: {per: [host, cgroup, process]}\ncgroups: {include: [/a, /b]}";
/// Id and name of a thread.
type Thread = (u32, &'static str);

const IDLE: Thread = (0, "swapper/0");
const WEB: Thread = (10, "web");
const BATCH: Thread = (20, "batch");

/// `TASK_RUNNING`, `TASK_INTERRUPTIBLE`, `TASK_UNINTERRUPTIBLE`.
const READY: u64 = 0;
const SLEEPS: u64 = 1;
const WAITS: u64 = 2;

fn named(hit: Hit, at: usize, (tid, comm): Thread) -> Hit {
    hit.put(at, comm.as_bytes()).put(at + 16, &tid.to_ne_bytes())
}

/// A switch of a CPU from one thread to another, in nanoseconds from now.
fn switch(at: i64, from: Thread, state: u64, to: Thread) -> Hit {
    let hit = named(named(hit(SWITCH), 8, from), 40, to);
    hit.put(32, &state.to_ne_bytes()).by(from.0).at(at)
}

fn wakes(at: i64, thread: Thread) -> Hit {
    named(hit(WAKING), 8, thread).by(0).at(at)
}

fn hits(world: &World, hits: &[Hit]) {
    hits.iter().for_each(|hit| assert_eq!(world.hit(hit), 1, "{hit:?}"));
}

/// Creates a world with two cgroups, and returns their ids.
fn world(yaml: &str) -> (World, u64, u64) {
    let mut world = World::with_threads();
    let [a, b] = ["a", "b"].map(|path| fs::metadata(world.cgroup(path)).unwrap().ino());
    world.process(10, "web");
    world.process(20, "batch");
    world.apply(yaml);
    (world, a, b)
}

fn untold(scrape: &Scrape) -> Vec<&str> {
    let all = scrape.of("perf_untracked_events_total").into_iter();
    all.filter(|rest| !rest.ends_with(" 0")).collect()
}

#[test]
fn a_thread_that_is_woken_waits_runs_and_is_preempted_by_another_cgroup() {
    let (mut world, a, b) = world(SCHEDULER);
    hits(
        &world,
        &[
            // The cgroup of each thread is recorded when the thread is switched out.
            switch(10, WEB, SLEEPS, BATCH).in_cgroup(a),
            switch(20, BATCH, READY, IDLE).in_cgroup(b),
            wakes(1_000, WEB),
            switch(4_000, IDLE, READY, WEB),
            switch(9_000, WEB, READY, BATCH).in_cgroup(a),
            switch(9_500, BATCH, WAITS, WEB).in_cgroup(b),
            switch(10_000, WEB, SLEEPS, IDLE).in_cgroup(a),
        ],
    );
    let scrape = world.collect();
    let web = |metric: &str, more: &str| {
        let of_cgroup = scrape.value(&format!("perf_cgroup_{metric}{{cgroup=\"/a\"{more}}}"));
        let labels = more.strip_prefix(',').map(|more| format!(",{more}")).unwrap_or_default();
        let of_process = scrape.value(&format!("perf_process_{metric}{{comm=\"web\"{labels}}}"));
        assert_eq!(of_cgroup, of_process, "{metric}: {}", scrape.0);
        of_cgroup
    };
    // 3 µs after the wakeup, and 0.5 µs after a preemption.
    assert_eq!(web("sched_runqueue_latency_seconds_count", ""), Some(2.0));
    assert_eq!(web("sched_runqueue_latency_seconds_sum", ""), Some(0.000_003_5));
    assert_eq!(web("sched_runqueue_latency_max_seconds", ""), Some(0.000_003));
    assert_eq!(web("sched_run_seconds_total", ""), Some(0.000_005_5));
    assert_eq!(web("sched_wait_seconds_total", ",state=\"sleeping\""), Some(0.000_003_99));
    assert_eq!(web("sched_wait_seconds_total", ",state=\"preempted\""), Some(0.000_000_5));
    let by =
        |by: &str| scrape.value(&format!("perf_cgroup_sched_preemptions_total{{by=\"{by}\",cgroup=\"/a\"}}"));
    assert_eq!([by("other"), by("own"), by("throttled")], [Some(1.0), Some(0.0), Some(0.0)]);
    let culprit = r#"{by_cgroup="/b",cgroup="/a"} 1"#;
    assert_eq!(scrape.of("perf_cgroup_sched_preempted_by_cgroup_total"), [culprit]);
    // A runnable outgoing task with idle as the incoming task is throttled.
    let batch = r#"perf_cgroup_sched_preemptions_total{by="throttled",cgroup="/b"}"#;
    assert_eq!(scrape.value(batch), Some(1.0));
    let io = r#"perf_sched_switches_total{kind="voluntary"}"#;
    assert_eq!(scrape.value(io), Some(3.0), "the sum of all cgroups");
    assert_eq!(untold(&scrape), [""; 0]);
}

#[test]
fn what_all_have_together_is_what_each_has() {
    for per in ["[host]", "[host, cgroup]", "[process, host]", "[cgroup, process, host]"] {
        let (mut world, a, b) = world(&format!("scheduler: {{per: {per}}}"));
        hits(
            &world,
            &[
                switch(10, IDLE, READY, WEB),
                switch(1_010, WEB, SLEEPS, BATCH).in_cgroup(a),
                switch(3_010, BATCH, SLEEPS, IDLE).in_cgroup(b),
                hit(MIGRATE).put(8, b"web").put(24, &10u32.to_ne_bytes()).at(4_000),
            ],
        );
        let scrape = world.collect();
        assert_eq!(scrape.value("perf_sched_run_seconds_total"), Some(0.000_003), "{per}");
        assert_eq!(scrape.value("perf_sched_migrations_total"), Some(1.0), "{per}");
    }
}

#[test]
fn what_threads_do_is_attributed_to_the_numa_node_of_the_cpu_where_they_do_it() {
    let mut world = World::with_threads();
    world.set_nodes(&["1", "0"]);
    world.apply("scheduler: {per: [numa, host]}\nsyscalls: {per: numa}");
    hits(
        &world,
        &[
            switch(10, IDLE, READY, WEB),
            wakes(500, BATCH),
            switch(510, IDLE, READY, BATCH).on(1),
            switch(1_010, WEB, SLEEPS, IDLE),
            enters(1_100, READ.0).on(1),
            leaves(1_200, READ.0, 0).on(1),
            switch(3_510, BATCH, READY, IDLE).on(1),
        ],
    );
    let scrape = world.collect();
    let of = |metric: &str, node: u32, more: &str| {
        scrape.value(&format!("perf_numa_{metric}{{{more}numa_node=\"{node}\"}}"))
    };
    // CPU 0 belongs to node 1, and CPU 1 to node 0.
    let ran = |node| of("sched_run_seconds_total", node, "");
    assert_eq!([ran(0), ran(1)], [Some(0.000_003), Some(0.000_001)], "{}", scrape.0);
    assert_eq!(scrape.value("perf_sched_run_seconds_total"), Some(0.000_004), "the sum of all CPUs");
    let involuntary = |node| of("sched_switches_total", node, "kind=\"involuntary\",");
    assert_eq!([involuntary(0), involuntary(1)], [Some(1.0), Some(0.0)]);
    let delays = |node| of("sched_runqueue_latency_seconds_count", node, "");
    assert_eq!(delays(0), Some(1.0));
    assert_eq!(scrape.of("perf_numa_syscalls_total"), ["{numa_node=\"0\",syscall=\"read\"} 1"]);
}

#[test]
fn who_never_leaves_its_cpu_is_told_to_run_at_each_collection() {
    let (mut world, _, _) = world("scheduler: {per: [process]}");
    hits(&world, &[switch(10, IDLE, READY, WEB)]);
    world.collect();
    let ran = world.collect().value("perf_process_sched_run_seconds_total{comm=\"web\"}").unwrap();
    assert!((1.9..2.1).contains(&ran), "two seconds have passed, but the run time is {ran}");
}

#[test]
fn the_longest_delay_is_of_the_last_minute() {
    let (mut world, a, _) = world(SCHEDULER);
    hits(
        &world,
        &[switch(1, WEB, SLEEPS, IDLE).in_cgroup(a), wakes(10, WEB), switch(5_010, IDLE, READY, WEB)],
    );
    let longest =
        |scrape: &Scrape| scrape.value("perf_cgroup_sched_runqueue_latency_max_seconds{cgroup=\"/a\"}");
    assert_eq!(longest(&world.collect()), Some(0.000_005));
    world.advance(std::time::Duration::from_secs(30));
    assert_eq!(longest(&world.collect()), Some(0.000_005));
    world.advance(std::time::Duration::from_secs(30));
    assert_eq!(longest(&world.collect()), None, "the value must be missing, not zero");
}

#[test]
fn after_a_lost_record_what_was_under_way_is_forgotten_and_counted() {
    let (mut world, a, _) = world(SCHEDULER);
    hits(&world, &[switch(1, WEB, SLEEPS, IDLE).in_cgroup(a), wakes(10, WEB)]);
    world.collect();
    world.lose(0, true, 5);
    hits(&world, &[switch(9_000, IDLE, READY, WEB)]);
    let scrape = world.collect();
    assert_eq!(scrape.sum("perf_sched_runqueue_latency_seconds_count"), 0.0, "{}", scrape.0);
    assert_eq!(untold(&scrape), [r#"{reason="lost",section="scheduler"} 1"#]);
}

#[test]
fn a_child_is_in_the_cgroup_of_its_parent_until_a_record_of_its_own_names_another() {
    let (mut world, a, b) = world(SCHEDULER);
    hits(&world, &[switch(1, WEB, SLEEPS, IDLE).in_cgroup(a)]);
    let delays = |scrape: &Scrape| {
        let of = |cgroup| {
            scrape.value(&format!("perf_cgroup_sched_runqueue_latency_seconds_count{{cgroup=\"{cgroup}\"}}"))
        };
        ["/a", "/b"].map(of)
    };
    let child = (11, "web");
    world.fork(0, 10, 11);
    hits(&world, &[named(hit(WAKING_NEW), 8, child).at(1_000), switch(3_000, IDLE, READY, child)]);
    assert_eq!(delays(&world.collect()), [None; 2], "its own record has not arrived yet");
    let scrape = world.collect();
    assert_eq!(delays(&scrape), [Some(1.0), None], "its record does not arrive: {}", scrape.0);
    let other = (12, "web");
    world.fork(0, 10, 12);
    hits(
        &world,
        &[
            named(hit(WAKING_NEW), 8, other).at(1_000),
            switch(3_000, child, SLEEPS, other).in_cgroup(a),
            switch(4_000, other, SLEEPS, IDLE).in_cgroup(b),
        ],
    );
    let scrape = world.collect();
    assert_eq!(delays(&scrape), [Some(1.0), Some(1.0)], "{}", scrape.0);
}

#[test]
fn clocks_that_differ_never_make_a_time_below_zero() {
    let (mut world, a, _) = world(SCHEDULER);
    hits(&world, &[switch(1, WEB, SLEEPS, IDLE).in_cgroup(a), wakes(9_000, WEB)]);
    world.collect();
    // On another CPU, whose clock is behind.
    hits(&world, &[switch(-999_995_000, IDLE, READY, WEB).on(1)]);
    let scrape = world.collect();
    assert_eq!(scrape.sum("perf_sched_runqueue_latency_seconds_count"), 0.0);
    assert_eq!(untold(&scrape), [r#"{reason="time_reversed",section="scheduler"} 1"#]);
}

#[test]
fn cpus_that_tell_who_comes_are_believed() {
    let (mut world, a, _) = world(SCHEDULER);
    hits(&world, &[switch(1, WEB, SLEEPS, IDLE).in_cgroup(a), wakes(10, WEB)]);
    world.collect();
    // PERF_RECORD_SWITCH_CPU_WIDE: the previous process and thread. Then, as after every record: process and thread, time, identifier.
    let now = world.clock.kernel();
    let body: Vec<u8> = [0, 10 << 32 | 10, now + 7, 0].into_iter().flat_map(u64::to_ne_bytes).collect();
    world.write(0, true, &crate::traced::record(15, &body));
    let scrape = world.collect();
    assert_eq!(scrape.sum("perf_sched_runqueue_latency_seconds_count"), 1.0, "{}", scrape.0);
}

#[test]
fn when_the_kernel_does_not_tell_who_comes_cpus_are_asked_and_nothing_is_forgotten() {
    let (mut world, a, _) = world(SCHEDULER);
    let asked = |world: &World| {
        let opened = world.kernel.opened();
        opened.iter().any(|event| event.attr.sampling.is_some_and(|sampling| sampling.sideband.switches))
    };
    assert!(!asked(&world));
    // It repeatedly leaves the idle CPU without a recorded arrival.
    for round in 0..10 {
        let at = round * 100;
        hits(&world, &[switch(at, WEB, SLEEPS, IDLE).in_cgroup(a)]);
    }
    hits(&world, &[switch(2_000, IDLE, READY, WEB), switch(5_000, WEB, SLEEPS, IDLE).in_cgroup(a)]);
    world.collect();
    hits(&world, &[switch(2_000, IDLE, READY, WEB), switch(5_000, WEB, SLEEPS, IDLE).in_cgroup(a)]);
    let scrape = world.collect();
    assert!(asked(&world), "{:?}", untold(&scrape));
    assert_eq!(scrape.value("perf_cgroup_sched_run_seconds_total{cgroup=\"/a\"}"), Some(0.000_006));
    assert_eq!(
        scrape.value("perf_cgroup_sched_switches_total{cgroup=\"/a\",kind=\"voluntary\"}"),
        Some(12.0)
    );
}

fn enters(at: i64, call: u64) -> Hit {
    hit(ENTER).put(8, &call.to_ne_bytes()).at(at)
}

fn leaves(at: i64, call: u64, result: i64) -> Hit {
    hit(EXIT).put(8, &call.to_ne_bytes()).put(16, &result.to_ne_bytes()).at(at)
}

/// The numbers of `read` in 64-bit and in 32-bit programs, on the architecture of these tests.
const READ: (u64, u64) = if cfg!(target_arch = "x86_64") { (0, 3) } else { (63, 3) };

#[test]
fn system_calls_have_names_durations_and_errors() {
    let (mut world, a, _) =
        world("scheduler: {per: []}\nsyscalls: {per: [host, cgroup, process]}\ncgroups: {include: /a}");
    hits(
        &world,
        &[
            enters(10, READ.0).in_cgroup(a),
            leaves(1_010, READ.0, 5),
            enters(2_000, READ.0).in_cgroup(a),
            leaves(2_500, READ.0, -11),
            enters(3_000, READ.1).in_cgroup(a).narrow(),
            leaves(3_100, READ.1, -4),
            // The exit of a call that began before tracing started.
            leaves(4_000, READ.0, 1).by(20),
        ],
    );
    let scrape = world.collect();
    let of = |series: &str| scrape.value(&format!("perf_cgroup_{series}"));
    assert_eq!(of(r#"syscalls_total{cgroup="/a",syscall="read"}"#), Some(3.0), "{}", scrape.0);
    let sum = of(r#"syscall_duration_seconds_sum{cgroup="/a",syscall="read"}"#).unwrap();
    assert!((sum - 0.000_001_6).abs() < 1e-12, "{sum}");
    let errors = [
        r#"{cgroup="/a",errno="EAGAIN",syscall="read"} 1"#,
        r#"{cgroup="/a",errno="EINTR",syscall="read"} 1"#,
    ];
    assert_eq!(scrape.of("perf_cgroup_syscall_errors_total"), errors);
    assert_eq!(scrape.value(r#"perf_syscalls_total{syscall="read"}"#), Some(3.0));
    assert_eq!(scrape.value(r#"perf_process_syscalls_total{comm="web",syscall="read"}"#), Some(3.0));
    assert_eq!(untold(&scrape), [r#"{reason="no_begin",section="syscalls"} 1"#]);
}

#[test]
fn the_scheduler_and_system_calls_lose_records_apart() {
    for calls_are_lost in [true, false] {
        let (mut world, ..) = world("scheduler: {per: host}\nsyscalls: {per: host}");
        hits(&world, &[switch(1, WEB, SLEEPS, IDLE), wakes(10, WEB), enters(20, READ.0).by(20)]);
        world.collect();
        if calls_are_lost {
            world.lose_calls(0, 5);
        } else {
            world.lose(0, true, 5);
        }
        hits(&world, &[switch(9_000, IDLE, READY, WEB), leaves(9_100, READ.0, 0).by(20)]);
        let scrape = world.collect();
        let (whole, lossy) =
            if calls_are_lost { ("scheduler", "syscalls") } else { ("syscalls", "scheduler") };
        let lost = |ring: &str| {
            scrape.value(&format!("perf_lost_records_total{{reason=\"ring_full\",ring=\"{ring}\"}}"))
        };
        assert_eq!([lost(whole), lost(lossy), lost("tracepoints")], [Some(0.0), Some(5.0), None]);
        let begun_anew = untold(&scrape).into_iter().filter(|line| line.contains("lost"));
        let expected = format!("{{reason=\"lost\",section=\"{lossy}\"}} 1");
        assert_eq!(begun_anew.collect::<Vec<_>>(), [expected], "{}", scrape.0);
        let latencies = scrape.sum("perf_sched_runqueue_latency_seconds_count");
        let calls = scrape.sum("perf_syscall_duration_seconds_count");
        assert_eq!([latencies, calls], if calls_are_lost { [1.0, 0.0] } else { [0.0, 1.0] }, "{}", scrape.0);
    }
}

#[test]
fn what_is_stuck_is_a_gauge_that_goes_with_the_call() {
    let (mut world, _, _) = world("scheduler: {per: []}\nsyscalls: {per: [process], stuck: 2s}");
    hits(&world, &[enters(10, READ.0)]);
    assert_eq!(world.collect().of("perf_process_syscalls_stuck"), [""; 0]);
    world.collect();
    let scrape = world.collect();
    let labels = r#"{comm="web",syscall="read"}"#;
    assert_eq!(scrape.of("perf_process_syscalls_stuck"), [format!("{labels} 1")]);
    let longest = scrape.value(&format!("perf_process_syscalls_stuck_longest_seconds{labels}")).unwrap();
    assert!((2.0..4.0).contains(&longest), "{longest}");
    hits(&world, &[leaves(10, READ.0, 1)]);
    assert_eq!(world.collect().of("perf_process_syscalls_stuck"), [""; 0]);
}

#[test]
fn calls_that_nobody_wants_are_filtered_in_the_kernel_and_those_of_32_bits_here() {
    let (mut world, _, _) = world("scheduler: {per: []}\nsyscalls: {include: [read]}");
    let filters: Vec<String> = world
        .kernel
        .opened()
        .iter()
        .filter_map(|event| Some(event.attr.filter.as_ref()?.to_string()))
        .collect();
    let expected =
        if cfg!(target_arch = "x86_64") { "(id == 0 || id == 3)" } else { "(id == 3 || id == 63)" };
    assert_eq!(filters, vec![expected; 4]);
    // As a 64-bit number this is another call.
    hits(&world, &[enters(10, READ.1), leaves(20, READ.1, 0), enters(30, READ.0), leaves(40, READ.0, 0)]);
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_syscalls_total"), [r#"{syscall="read"} 1"#]);
    assert_eq!(untold(&scrape), [""; 0], "the exit of an excluded call has an entry");
}

#[test]
fn the_end_of_a_call_in_the_thread_that_it_made_lacks_no_beginning() {
    let (mut world, _, _) = world("scheduler: {per: []}\nsyscalls: {}");
    world.fork(0, 10, 11);
    hits(&world, &[leaves(10, READ.0, 0).by(11), enters(20, READ.0).by(11), leaves(30, READ.0, 0).by(11)]);
    let scrape = world.collect();
    assert_eq!(scrape.of("perf_syscalls_total"), [r#"{syscall="read"} 1"#]);
    assert_eq!(untold(&scrape), [""; 0]);
}

#[test]
fn what_a_kernel_lacks_or_refuses_is_said_and_takes_nothing_else_with_it() {
    let mut world = World::with_threads();
    let events = world.roots.tracing.join("events");
    fs::remove_dir_all(events.join("raw_syscalls")).unwrap();
    fs::remove_dir_all(events.join("sched/sched_migrate_task")).unwrap();
    world.process(10, "web");
    world.apply("scheduler: {per: [host]}\nsyscalls: {}");
    let reasons = world.reasons().join("\n");
    assert!(reasons.contains("raw_syscalls"), "{reasons}");
    assert!(reasons.contains("sched:sched_migrate_task"), "{reasons}");
    hits(&world, &[switch(10, IDLE, READY, WEB), switch(1_010, WEB, SLEEPS, IDLE)]);
    assert_eq!(world.collect().value("perf_sched_run_seconds_total"), Some(0.000_001));

    let mut world = World::with_threads();
    world.kernel.refuse(Errno::EACCES, |_, _, _| true);
    world.apply("scheduler: {per: [host]}");
    let reasons = world.reasons().join("\n");
    assert!(reasons.contains("sched:sched_switch on cpu 0: forbidden: "), "{reasons}");
    assert_eq!(world.collect().of("perf_sched_run_seconds_total"), [""; 0]);
}

#[test]
fn a_scope_that_a_reload_adds_leaves_the_totals_of_the_others() {
    let (mut world, a, _) = world("scheduler: {per: [host]}");
    let run = || [switch(10, IDLE, READY, WEB), switch(1_010, WEB, SLEEPS, IDLE).in_cgroup(a)];
    hits(&world, &run());
    assert_eq!(world.collect().value("perf_sched_run_seconds_total"), Some(0.000_001));
    world.apply("scheduler: {per: [host, cgroup]}");
    hits(&world, &run());
    let scrape = world.collect();
    assert_eq!(scrape.value("perf_sched_run_seconds_total"), Some(0.000_002));
    assert_eq!(scrape.value("perf_cgroup_sched_run_seconds_total{cgroup=\"/a\"}"), Some(0.000_001));
}
