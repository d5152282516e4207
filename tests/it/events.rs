//! Event names resolved on each machine under `tests/data/hosts`.

use std::fmt::Write as _;
use std::path::Path;

use perf_exporter::event::{Catalog, Event, Missing, Modes, Modifiers, Precise, parse};
use perf_exporter::host::{Facts, KernelVersion, Roots};
use proptest::prelude::*;

fn host(name: &str) -> (Roots, Facts) {
    let roots = Roots::under(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts").join(name));
    let facts = Facts::read(&roots);
    (roots, facts)
}

fn catalog(name: &str) -> Catalog {
    let (roots, facts) = host(name);
    let catalog = Catalog::load(&roots, &facts);
    assert_eq!(catalog.problems(), []);
    catalog
}

/// Writes the fields of an event that differ from the default.
fn line(event: &Event) -> String {
    let [config, rest @ ..] = event.selector.config;
    let mut line = format!(
        "  {} = {} {:?} type={} config={config:#x}",
        event.name, event.stem, event.kind, event.selector.kind
    );
    for (i, word) in rest.iter().enumerate().filter(|(_, word)| **word != 0) {
        write!(line, " config{}={word:#x}", i + 1).unwrap();
    }
    line += &bits(&event.modifiers);
    if let Some(pmu) = &event.pmu {
        write!(line, " pmu={pmu}").unwrap();
    }
    if let Some(cpus) = &event.cpus {
        write!(line, " cpus={cpus}").unwrap();
    }
    if let Some(scale) = &event.scale {
        write!(line, " scale={:e}/{:?}", scale.factor, scale.unit).unwrap();
    }
    line
}

fn bits(m: &Modifiers) -> String {
    let mut bits = String::new();
    for (set, word) in [
        (m.exclude_user, " !u"),
        (m.exclude_kernel, " !k"),
        (m.exclude_hv, " !h"),
        (m.exclude_idle, " !idle"),
        (m.exclude_host, " !host"),
        (m.exclude_guest, " !guest"),
        (m.pinned, " pinned"),
        (m.exclusive, " exclusive"),
        (m.weak, " weak"),
        (m.leader_sampling, " leader"),
    ] {
        bits.push_str(if set { word } else { "" });
    }
    match m.precise {
        Precise::Any => {}
        Precise::Level(level) => write!(bits, " precise={level}").unwrap(),
        Precise::Max => bits.push_str(" precise=max"),
    }
    bits
}

/// Resolves each text, and writes one event or error per line.
fn resolved(catalog: &Catalog, texts: &[&str]) -> String {
    let mut page = String::new();
    for text in texts {
        writeln!(page, "{text}").unwrap();
        for event in parse(text).unwrap().iter().flat_map(|group| &group.events) {
            match catalog.resolve(event) {
                Ok(events) => events.iter().for_each(|event| writeln!(page, "{}", line(event)).unwrap()),
                Err(no) => writeln!(page, "  {:?}: {no}", no.cause).unwrap(),
            }
        }
    }
    page
}

/// Event names that are resolved on every host.
const EVERYWHERE: &[&str] = &[
    "{cycles,instructions:k}:u",
    "LLC-load-misses",
    "r1a8",
    "task-clock",
    "cgroup-switches",
    "energy-pkg",
    "tsc",
    "mem-loads:P",
    "cpu/instructions/",
    "cpu/cycles,name=work/k",
    "sched:sched_switch",
    "syscalls:sys_*_read",
    "mem:0x1000/8:w:u",
];

/// Compares the resolved texts on a host with `snapshots/events-HOST.snap`.
fn assert_golden(name: &str, texts: &[&str]) {
    let catalog = catalog(name);
    let page = resolved(&catalog, EVERYWHERE) + &resolved(&catalog, texts);
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(format!("events-{name}"), page));
}

#[test]
fn a_hybrid_machine_opens_one_event_per_kind_of_core() {
    assert_golden(
        "intel-hybrid",
        &[
            "cpu_atom/cycles/u",
            "cpu/event=0x3c,umask=0x1/",
            "arith.div_active",
            "cpu_core/MEM_LOAD_RETIRED.L3_MISS/u",
            "cpu_core/frontend=0x12/",
            "topdown-retiring",
            "slots",
            "1:2,0:0,22:2,99:1",
            "uncore_imc_free_running/data_read/",
            "imc_free_running_1/data_write/",
            "cstate_core/c6-residency/",
            "c6-residency",
            "i915/rcs0-busy/,i915/actual-frequency/",
        ],
    );
}

#[test]
fn a_server_opens_one_event_per_memory_controller_on_one_cpu_of_each_socket() {
    assert_golden(
        "intel-server",
        &[
            "uncore_imc/cas_count_read/",
            "mem_load_retired.l3_miss,cpu/MEM_LOAD_RETIRED.L3_HIT,cmask=1/",
            "offcore_response.all_data_rd.l3_miss.any_snoop",
            "unc_m_cas_count.rd",
            "mem_load_retired.l3_mis",
            "ex_ret_instr",
            "imc/clockticks/",
            "uncore_imc_[45]/cas_count_write/",
            "uncore_*/event=0x1/",
            "uncore_imc/cas_count_read/u",
            "uncore_cha/filter_opc=0xfff/",
            "uncore_cha/filter_opc=0x1fff/",
            "uncore_imc/cas_count_raed/",
            "cpu/topdown-total-slots/",
            "cpu/config=0x3c,config1=7,inv/p",
            "cpu_core/cycles/",
        ],
    );
}

#[test]
fn amds_split_fields_take_their_values_apart() {
    assert_golden(
        "amd",
        &[
            "cpu/event=0x1c2,umask=0xff/",
            "ex_ret_instr,l3_cache_accesses",
            "mem_load_retired.l3_miss",
            "cpu/event=0x10ff/",
            "amd_df/event=0x3f07/",
            "amd_l3/event=0x4,umask=0x8,threadmask=3,enallslices/",
            "ibs_op/cnt_ctl,rand_en=0/p",
            "stalled-cycles-frontend",
        ],
    );
}

#[test]
fn the_two_clusters_of_an_arm_machine_have_a_pmu_each() {
    assert_golden(
        "arm",
        &[
            "cpu_cycles",
            "l2d_cache_refill:u",
            "br_retired",
            "armv8_cortex_a53/event=0x11,long/",
            "armv8_*/l1d_cache/",
            "arm_cmn/hnf_cache_miss/",
            "arm_cmn_0/watchpoint_up,wp_val=0xff,wp_mask=0x1/",
        ],
    );
}

#[test]
fn a_virtual_machine_says_what_only_its_host_has() {
    assert_golden(
        "vm",
        &[
            "uncore_imc/cas_count_read/",
            "power/energy-pkg/",
            "cpu/event=0x3c/",
            "msr/tsc/",
            "msr/aperf/",
            "cylces",
            "L1-dcache-laods",
            "l1-dcache-loads",
            "iTLB-stores",
            "duration_time",
            "mrs/tsc/",
            "sched:sched_swich",
            "shed:sched_switch",
            "context-switches:u",
            "page-faults:u",
            "task-clock:k",
            "sched:sched_wakeup:pp",
            "mem:0x1000/3",
            "mem:0x1000:rx",
            "msr/event=tsc/",
            "msr/period=7/",
        ],
    );
}

/// One row for each form of the grammar, as in `perf test "Parse event definition strings"`: the text, and the type, configuration words
/// and bits of each event.
#[test]
fn texts_become_the_attributes_that_perf_makes_of_them() {
    let catalog = catalog("intel-server");
    for (text, expected) in [
        ("syscalls:sys_enter_write", &["2/2c1"][..]),
        ("syscalls:sys_enter_*", &["2/2bf", "2/2c1"]),
        ("syscalls:sys_enter_write:k", &["2/2c1 !u !h"]),
        ("r1a", &["4/1a"]),
        ("r1a:kp", &["4/1a !u !h precise=1"]),
        ("1:1", &["1/1"]),
        ("0:1:hp", &["0/1 !u !k precise=1"]),
        ("instructions", &["0/1"]),
        ("instructions:h", &["0/1 !u !k"]),
        ("instructions:G", &["0/1 !host"]),
        ("instructions:H", &["0/1 !guest"]),
        ("instructions:uGH", &["0/1 !k !h"]),
        ("instructions:I", &["0/1 !idle"]),
        ("instructions:kIG", &["0/1 !u !h !idle !host"]),
        ("instructions:uep", &["0/1 !k !h exclusive precise=1"]),
        ("instructions:uDp", &["0/1 !k !h pinned precise=1"]),
        ("cycles//u", &["0/0 !k !h"]),
        ("cycles/name='COMPLEX_CYCLES_NAME:orig=cycles,desc=chip-clock-ticks'/Duk", &["0/0 !h pinned"]),
        ("faults", &["1/2"]),
        ("faults:u", &["1/2 !k !h"]),
        ("L1-dcache-load-miss", &["3/10000"]),
        ("L1-dcache-load-miss:kp", &["3/10000 !u !h precise=1"]),
        ("mem:0", &["5/3,0,4"]),
        ("mem:0:x:k", &["5/4,0,8 !u !h"]),
        ("mem:0:r:h", &["5/1,0,4 !u !k"]),
        ("mem:0:w:u", &["5/2,0,4 !k !h"]),
        ("mem:0/1:rw", &["5/3,0,1"]),
        ("mem:0/2:rw:k", &["5/3,0,2 !u !h"]),
        ("cpu/config=10,config1,config2=3/u", &["4/a,1,3 !k !h"]),
        ("cpu/config=1,name=krava/u,cpu/config=2/ukp", &["4/1 !k !h", "4/2 !h precise=1"]),
        ("cpu/event=0x3c,umask=2,cmask=1,inv,edge/", &["4/184023c"]),
        ("cpu/r2/", &["4/2"]),
        ("r1,syscalls:sys_enter_read:k,1:1:hI", &["4/1", "2/2bf !u !h", "1/1 !u !k !idle"]),
        ("{instructions:k,cycles:upp}", &["0/1 !u !h", "0/0 !k !h precise=2"]),
        ("{faults:k,cache-references}:u,cycles:k", &["1/2 !h", "0/2 !k !h", "0/0 !u !h"]),
        ("{cycles:u,instructions:kp}:p", &["0/0 !k !h precise=1", "0/1 !u !h precise=2"]),
        ("{cycles,cache-misses:G}:H", &["0/0 !guest", "0/3"]),
        ("{cycles,instructions}:SD", &["0/0 pinned leader", "0/1 leader"]),
        ("{cycles,instructions}:We", &["0/0 exclusive weak", "0/1 weak"]),
        ("group1{syscalls:sys_enter_read:H,cycles:kppp}", &["2/2bf !guest", "0/0 !u !h precise=3"]),
    ] {
        let groups = parse(text).unwrap_or_else(|error| panic!("{error:#}"));
        let events = groups.iter().flat_map(|group| &group.events);
        let resolved =
            events.flat_map(|event| catalog.resolve(event).unwrap_or_else(|error| panic!("{error}")));
        let found: Vec<String> = resolved.map(|event| attributes(&event)).collect();
        assert_eq!(found, expected, "{text}");
    }
}

/// Writes `type/config,config1,…` without trailing zeros, and the bits.
fn attributes(event: &Event) -> String {
    let words = event.selector.config.map(|word| format!("{word:x}"));
    let used = 1 + event.selector.config.iter().rposition(|word| *word != 0).unwrap_or(0);
    format!("{}/{}{}", event.selector.kind, words[..used].join(","), bits(&event.modifiers))
}

/// An event that may be counted in user space only has this in its name, and never reports zero for kernel work.
#[test]
fn without_rights_on_the_kernel_a_name_says_that_user_space_is_counted() {
    let catalog = catalog("intel-server");
    let resolve = |text: &str| catalog.resolve_in(&parse(text).unwrap()[0].events[0], Modes::PermittedUser);
    for (text, name) in [
        ("cycles", "cycles:u"),
        ("cycles:k", "cycles:k"),
        ("cycles:D", "cycles:Du"),
        ("page-faults", "page-faults:u"),
        ("task-clock", "task-clock:u"),
        ("cpu/event=0x3c/", "cpu/event=0x3c/u"),
    ] {
        let event = &resolve(text).unwrap()[0];
        assert_eq!(&*event.name, name);
        assert_eq!(event.modifiers.exclude_kernel, text != "cycles:k", "{text}");
    }
    for text in ["context-switches", "cpu-migrations", "sched:sched_switch"] {
        assert_eq!(resolve(text).unwrap_err().cause, Missing::Forbidden, "{text}");
    }
}

/// `--all-kernel` of perf stat. Clocks are not split, but the kernel accepts the letter.
#[test]
fn events_that_count_the_kernel_only_have_this_in_their_names() {
    let catalog = catalog("intel-server");
    let resolve = |text: &str| catalog.resolve_in(&parse(text).unwrap()[0].events[0], Modes::Kernel).unwrap();
    for (text, name) in [
        ("cycles", "cycles:k"),
        ("cycles:u", "cycles:u"),
        ("context-switches", "context-switches:k"),
        ("task-clock", "task-clock:k"),
        ("sched:sched_switch", "sched:sched_switch:k"),
    ] {
        assert_eq!(&*resolve(text)[0].name, name);
    }
}

#[test]
fn old_kernels_of_arm_take_a_generic_event_without_a_type() {
    let (roots, mut facts) = host("arm");
    facts.kernel = KernelVersion(6, 1);
    let catalog = Catalog::load(&roots, &facts);
    assert_eq!(
        resolved(&catalog, &["cycles", "armv8_cortex_a53/cycles/"]),
        "cycles\n  cycles = cycles Hardware type=0 config=0x0\narmv8_cortex_a53/cycles/\n  \
         armv8_cortex_a53/cycles/ = cycles Hardware type=0 config=0x0 pmu=armv8_cortex_a53 cpus=0-3\n"
    );
}

#[test]
fn a_kind_of_core_that_is_offline_has_no_events() {
    let (roots, mut facts) = host("intel-hybrid");
    facts.online = "0-7".parse().unwrap();
    let catalog = Catalog::load(&roots, &facts);
    assert_eq!(
        resolved(&catalog, &["cycles", "cpu_atom/event=1/", "cpu_atom/cycles/"]),
        "cycles\n  cpu_core/cycles/ = cycles Hardware type=0 config=0x400000000 pmu=cpu_core\n\
         cpu_atom/event=1/\n  AbsentOnHost: cpu_atom/event=0x1/: no CPU of cpu_atom is online; \
         bring one of its CPUs online, or remove the event\n\
         cpu_atom/cycles/\n  AbsentOnHost: cpu_atom/cycles/: no CPU of the PMU is online; \
         bring one of its CPUs online, or remove the event\n"
    );
}

/// Kernels on Intel list only the online CPUs of each kind of core.
#[test]
fn a_kind_of_core_keeps_the_cpus_that_are_offline_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let write = |pmu: &str, file: &str, text: &str| {
        let pmu = roots.sys.join("bus/event_source/devices").join(pmu);
        std::fs::create_dir_all(&pmu).unwrap();
        std::fs::write(pmu.join(file), text).unwrap();
    };
    for (pmu, number, cpus) in [("cpu_core", "4\n", "0-3\n"), ("cpu_atom", "10\n", "4-7\n")] {
        write(pmu, "type", number);
        write(pmu, "cpus", cpus);
    }
    let mut facts = host("intel-hybrid").1;
    facts.online = "0-7".parse().unwrap();
    let before = Catalog::load(&roots, &facts);
    facts.online = "0-1,3-7".parse().unwrap();
    write("cpu_core", "cpus", "0-1,3\n");
    let mut after = Catalog::load(&roots, &facts);
    after.keep_cpus(&before);
    let cycles = resolved(&before, &["cycles"]);
    assert!(cycles.contains("cpus=0-3") && cycles.contains("cpus=4-7"), "{cycles}");
    assert_eq!(resolved(&after, &["cycles"]), cycles);
}

#[test]
fn a_software_event_that_is_younger_than_the_kernel_says_so() {
    let (roots, mut facts) = host("vm");
    facts.kernel = KernelVersion(5, 10);
    let catalog = Catalog::load(&roots, &facts);
    let page = resolved(&catalog, &["cgroup-switches"]);
    assert!(
        page.contains("AbsentOnHost: cgroup-switches: it needs Linux 5.13, but this kernel is 5.10"),
        "{page}"
    );
    assert!(catalog.events().all(|listed| &*listed.name != "cgroup-switches"));
}

#[test]
fn events_of_a_pattern_cannot_share_a_name() {
    let page = resolved(&catalog("vm"), &["sched:*/name=all/", "sched:sched_sw*/name=switches/"]);
    assert!(page.contains("Refused: sched:*/name=all/: it matches 6 events"), "{page}");
    assert!(page.contains("switches = switches Tracepoint"), "{page}");
}

proptest! {
    /// Every event of an arbitrary configuration is resolved to events or to an error that can be printed.
    #[test]
    fn every_text_gets_an_answer(text in "(cpu|uncore_imc|uncore_*|sched|mem|cycles|r|[0-9]|msr)?[:/][a-z0-9_*?=,.{}\\[\\]-]{0,20}[:/]?[a-zA-Z]{0,3}") {
        let catalog = catalog("intel-server");
        for event in parse(&text).iter().flatten().flat_map(|group| &group.events) {
            match catalog.resolve(event) {
                Ok(events) => prop_assert!(!events.is_empty() && events.iter().all(|event| is_stem(&event.stem))),
                Err(no) => prop_assert!(!no.reason.is_empty() && !no.remedy.is_empty() && !no.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn everything_that_is_listed_can_be_resolved() {
    for name in ["intel-hybrid", "intel-server", "amd", "arm", "vm"] {
        let catalog = catalog(name);
        let mut count = 0;
        for listed in catalog.events() {
            for text in listed.aliases.iter().copied().chain([&*listed.name]) {
                let groups = parse(text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                let events =
                    catalog.resolve(&groups[0].events[0]).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert!(events.iter().all(|event| event.kind == listed.kind), "{name}: {text} {events:?}");
                assert!(events.iter().all(|event| is_stem(&event.stem)), "{name}: {text} {events:?}");
            }
            count += 1;
        }
        assert!(count > 50, "{name} lists {count}");
    }
}

/// Reports whether a text can be part of a metric name by Prometheus conventions.
fn is_stem(text: &str) -> bool {
    let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    plain && !text.is_empty() && !text.contains("__") && !text.starts_with('_') && !text.ends_with('_')
}

#[test]
fn a_tracepoint_tells_what_is_missing_the_mount_the_kernel_or_the_event() {
    let cause = |roots: &Roots| {
        let catalog = Catalog::load(roots, &Facts::read(roots));
        catalog
            .resolve(&parse("sched:sched_switch").unwrap()[0].events[0])
            .map_err(|no| (no.cause, no.remedy))
    };
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let (why, remedy) = cause(&roots).unwrap_err();
    assert_eq!((why, remedy.contains("CONFIG_TRACING")), (Missing::AbsentOnHost, true), "{remedy}");

    std::fs::create_dir_all(&roots.tracing).unwrap();
    let (why, remedy) = cause(&roots).unwrap_err();
    assert_eq!((why, remedy.starts_with("mount -t tracefs")), (Missing::AbsentOnHost, true), "{remedy}");

    std::fs::create_dir_all(roots.tracing.join("events/block")).unwrap();
    assert_eq!(cause(&roots).unwrap_err().0, Missing::UnknownTracepoint);

    let event = roots.tracing.join("events/sched/sched_switch");
    std::fs::create_dir_all(&event).unwrap();
    assert_eq!(cause(&roots).unwrap_err().0, Missing::UnknownTracepoint);

    std::fs::write(event.join("id"), "many\n").unwrap();
    assert_eq!(cause(&roots).unwrap_err().0, Missing::Broken);

    std::fs::write(event.join("id"), "316\n").unwrap();
    assert_eq!(cause(&roots).unwrap()[0].selector.config[0], 316);
}

#[test]
fn a_broken_file_costs_its_event_and_not_its_pmu() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let devices = roots.sys.join("bus/event_source/devices");
    let write = |path: &str, text: &[u8]| {
        let path = devices.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    for (path, text) in [
        ("odd/type", &b"42"[..]),
        ("odd/format/good", b"config:0-7"),
        ("odd/format/backwards", b"config:7-0"),
        ("odd/format/wide", b"config:0-64"),
        ("odd/format/nowhere", b"config9:0"),
        ("odd/format/binary", b"\xff\xfe\0"),
        ("odd/events/good", b"good=0x1"),
        ("odd/events/good.scale", b"-inf"),
        ("odd/events/bad", b"good==,"),
        ("odd/events/huge", &[b'x'; 100_000]),
        ("odd/cpumask", b"zero"),
        ("other/type", b"many"),
    ] {
        write(path, text);
    }
    let catalog = Catalog::load(&roots, &Facts::default());
    let found: Vec<_> =
        catalog.problems().iter().map(|problem| problem.path.strip_prefix(&devices).unwrap()).collect();
    let expected = [
        "odd/cpumask",
        "odd/format/backwards",
        "odd/format/binary",
        "odd/format/nowhere",
        "odd/format/wide",
        "odd/events/bad",
        "odd/events/good.scale",
        "odd/events/huge",
        "other/type",
    ];
    assert_eq!(found, expected.map(Path::new));
    let events = catalog.resolve(&parse("odd/good/").unwrap()[0].events[0]).unwrap();
    assert_eq!((events[0].selector.kind, events[0].selector.config[0]), (42, 1));
}
