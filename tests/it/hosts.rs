//! Plans for configurations on each machine under `tests/data/hosts`, as values and as printed by `check` and `list`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Mutex;

use perf_exporter::budget::Part;
use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::config::{Config, load, load_file};
use perf_exporter::counter::{Bounds, Collector, foreseen};
use perf_exporter::error::Errno;
use perf_exporter::event::{Catalog, Kind};
use perf_exporter::health::{Cause, Scope};
use perf_exporter::host::{self as files, Facts, Roots};
use perf_exporter::plan::{Entries, Group, MAX_MEMBERS, Plan, StreamSupport, plan};
use perf_exporter::sys::Budget;
use perf_exporter::sys::fake::{FakeKernel, FakePlace};
use perf_exporter::targets::Watch;

use crate::program::{host, repository, run};

const HOSTS: [&str; 5] = ["intel-hybrid", "intel-server", "amd", "arm", "vm"];

/// Path of the built-in configuration.
const DEFAULT: &str = "config/examples/default.yaml";

/// Returns the plan for a YAML text on a host.
fn planned(on: &str, yaml: &str) -> Plan {
    planned_with(&catalog(on), yaml)
}

fn catalog(on: &str) -> Catalog {
    let roots = Roots::under(&host(on));
    Catalog::load(&roots, &Facts::read(&roots))
}

fn planned_with(catalog: &Catalog, yaml: &str) -> Plan {
    let (config, warnings): (Config, _) = load(yaml.as_bytes(), "test.yaml").unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    plan(&Entries::counters(&config.counters), catalog, &StreamSupport::foreseen(catalog.facts()))
}

/// Returns the names of each group's members, separated by commas.
fn groups(plan: &Plan) -> Vec<String> {
    let events = |group: &Group| {
        let names: Vec<&str> = group.counters.iter().map(|counter| &*counter.event.name).collect();
        names.join(",")
    };
    plan.groups.iter().map(|group| events(group)).collect()
}

/// Returns the events that cannot be opened, as in the log.
fn refusals(plan: &Plan) -> Vec<String> {
    plan.refusals.iter().map(|refused| refused.refusal.to_string()).collect()
}

#[test]
fn software_beside_hardware_shares_its_group() {
    let plan = planned("intel-server", "counters: {a: {events: [cycles, task-clock]}}");
    assert_eq!(groups(&plan), ["cycles,task-clock"]);
    let apart = planned("intel-server", "counters: {a: {events: [cycles, task-clock], group: false}}");
    assert_eq!(groups(&apart), ["cycles", "task-clock"]);
}

#[test]
fn on_a_hybrid_machine_a_group_is_split_by_kind_of_core_and_software_is_opened_once() {
    let plan = planned("intel-hybrid", "counters: {a: {events: [cycles, instructions, page-faults]}}");
    let expected =
        ["page-faults", "cpu_atom/cycles/,cpu_atom/instructions/", "cpu_core/cycles/,cpu_core/instructions/"];
    assert_eq!(groups(&plan), expected);
    let places: Vec<_> = plan
        .groups
        .iter()
        .map(|group| (group.pmu.as_deref(), group.cpus.as_ref().map(ToString::to_string)))
        .collect();
    let on = |pmu, cpus: &str| (Some(pmu), Some(cpus.to_owned()));
    assert_eq!(places, [(None, None), on("cpu_atom", "8-15"), on("cpu_core", "0-7")]);
    let metrics: Vec<&str> = plan.groups[1..].iter().map(|group| group.counters[0].metric.name()).collect();
    assert_eq!(metrics, ["perf_cpu_cycles", "perf_cpu_cycles"], "one metric, with the label pmu");
}

#[test]
fn slots_lead_the_group_of_their_metrics_wherever_they_are_written() {
    let plan = planned("intel-hybrid", "counters: {a: {events: [page-faults, topdown-retiring, slots]}}");
    let expected =
        ["page-faults", "cpu_atom/topdown-retiring/", "cpu_core/slots/,cpu_core/topdown-retiring/"];
    assert_eq!(groups(&plan), expected);
    let absent = "slots on the cores of cpu_atom: absent: cpu_atom has no such event, so it is not counted on the cores of cpu_atom";
    assert_eq!(refusals(&plan), [absent]);
}

#[test]
fn a_category_of_slots_brings_slots_with_it_and_is_refused_if_another_entry_counts_them() {
    let yaml = "counters: {a: {events: [cpu_core/cycles/, cpu_core/topdown-retiring/]}}";
    let plan = planned("intel-hybrid", yaml);
    assert_eq!(groups(&plan), ["cpu_core/slots/,cpu_core/topdown-retiring/,cpu_core/cycles/"]);
    let yaml = "counters: {a: {events: [cpu_core/slots/]}, b: {events: [cpu_core/topdown-retiring/]}}";
    let plan = planned("intel-hybrid", yaml);
    assert_eq!(groups(&plan), ["cpu_core/slots/"]);
    let refused = [
        "cpu_core/slots/ on entry b: broken: perf_cpu_cpu_core_slots_total is already counted by entry a; give it another name: \
         {event: …, name: …}",
        "cpu_core/topdown-retiring/ on this host: broken: the kernel counts it only in a group with the event slots; \
         add slots to its group: '{slots,…}'",
    ];
    assert_eq!(refusals(&plan), refused);
}

#[test]
fn each_memory_controller_is_a_group_on_one_cpu_of_its_socket() {
    let yaml =
        "counters: {memory: {events: [\"uncore_imc/cas_count_read/\", \"uncore_imc/cas_count_write/\"]}}";
    let plan = planned("intel-server", yaml);
    assert_eq!(plan.groups.len(), 6);
    for (number, group) in plan.groups.iter().enumerate() {
        assert_eq!(group.scope(), Scope::PMU);
        assert_eq!(group.pmu.as_deref(), Some(&*format!("uncore_imc_{number}")));
        assert_eq!(group.cpus.as_ref().unwrap().to_string(), "0,28");
        let metrics: Vec<&str> = group.counters.iter().map(|counter| counter.metric.name()).collect();
        assert_eq!(
            metrics,
            ["perf_pmu_uncore_imc_cas_count_read_bytes", "perf_pmu_uncore_imc_cas_count_write_bytes"]
        );
    }
}

#[test]
fn a_pmu_beside_the_cores_is_refused_for_cgroups_with_the_remedy() {
    let yaml = "counters: {memory: {events: [\"power/energy-pkg/\", cycles], per: [cgroup]}}";
    let plan = planned("intel-server", yaml);
    assert_eq!(groups(&plan), ["cycles"]);
    assert_eq!(
        refusals(&plan),
        [
            "power/energy-pkg/ on each cgroup: absent: power counts for a whole socket or die and cannot attribute \
          events to a cgroup; count it with per: [cpu]"
        ]
    );
}

#[test]
fn a_pmu_beside_the_cores_is_refused_for_numa_nodes_because_a_socket_may_have_several() {
    let plan = planned(
        "intel-server",
        "counters: {memory: {events: [\"power/energy-pkg/\", cycles], per: [numa, cpu]}}",
    );
    let named = |group: &Group| format!("{} per {}", group.counters[0].metric.name(), group.scope());
    let named: Vec<String> = plan.groups.iter().map(|group| named(group)).collect();
    let expected =
        ["perf_cpu_cycles per cpu", "perf_numa_cycles per numa", "perf_pmu_power_energy_pkg_joules per pmu"];
    assert_eq!(named, expected);
    let refusal = "power/energy-pkg/ on each NUMA node: absent: power counts for a whole socket or die and cannot \
                   attribute events to a NUMA node; count it with per: [cpu]";
    assert_eq!(refusals(&plan), [refusal]);
}

#[test]
fn the_same_metric_twice_is_refused_and_its_owner_is_named() {
    let plan = planned("amd", "counters: {a: {events: [cycles]}, b: {events: [cpu-cycles, instructions]}}");
    assert_eq!(groups(&plan), ["cycles", "instructions"]);
    assert_eq!(plan.refusals[0].refusal.cause, Cause::Broken);
    assert_eq!(
        refusals(&plan),
        [
            "cpu-cycles on entry b: broken: perf_cpu_cycles_total is already counted by entry a; give it another \
          name: {event: …, name: …}"
        ]
    );
    let named = "counters: {a: {events: [cycles]}, b: {events: [{event: cpu-cycles, name: again}]}}";
    assert_eq!(refusals(&planned("amd", named)), [""; 0]);
}

#[test]
fn more_members_than_a_group_may_have_become_several_groups() {
    let events: Vec<String> = (0..2 * MAX_MEMBERS + 1).map(|n| format!("r{:x}", 0x100 + n)).collect();
    let plan = planned("amd", &format!("counters: {{a: {{events: [{}], group: true}}}}", events.join(", ")));
    let sizes: Vec<usize> = plan.groups.iter().map(|group| group.counters.len()).collect();
    assert_eq!(sizes, [MAX_MEMBERS, MAX_MEMBERS, 1]);
}

#[test]
fn events_that_need_not_be_together_are_in_as_few_groups_as_fit_on_the_pmu() {
    let entry = |settings: &str| {
        let events: Vec<String> = (0x11..=0x18).map(|code| format!("r{code:x}")).collect();
        format!("counters: {{a: {{events: [cycles, {}, page-faults]{settings}}}}}", events.join(", "))
    };
    let of = |on: &str, settings: &str| groups(&planned(on, &entry(settings)));
    let whole = "cycles,r11,r12,r13,r14,r15,r16,r17,r18,page-faults";
    assert_eq!(of("amd", ", group: true"), [whole], "the file requires one group");
    assert_eq!(of("amd", ""), ["cycles,r11,r12,r13,r14,r15", "r16,r17,r18,page-faults"]);
    // Four general counters, and one for cycles, which the watchdog occupies.
    assert_eq!(of("intel-server", ""), ["cycles,r11,r12,r13", "r14,r15,r16,r17", "r18,page-faults"]);
    assert_eq!(of("vm", ""), [whole], "the number of counters is not known");
}

#[test]
fn an_entry_that_is_always_on_the_pmu_is_pinned_and_has_events_of_its_own() {
    let yaml = "counters: {a: {events: [cycles, instructions], per: [cpu, cgroup], priority: always}, \
                b: {events: [page-faults], priority: always}}\ncgroups: {include: [\"/**\"]}";
    let plan = planned("amd", yaml);
    let pinned = |group: &Group| {
        let events = group.counters.iter().map(|counter| counter.event.modifiers.pinned).collect::<Vec<_>>();
        format!("{} {}: {events:?} {:?}", group.entry, group.scope(), group.source)
    };
    let pinned: Vec<String> = plan.groups.iter().map(|group| pinned(group)).collect();
    let expected =
        ["a cpu: [true, false] Dedicated", "b cpu: [false] Dedicated", "a cgroup: [true, false] Dedicated"];
    assert_eq!(pinned, expected, "software events need no place on the PMU");
}

#[test]
fn a_pattern_of_tracepoints_stands_for_all_that_match() {
    let plan = planned("vm", "counters: {calls: {events: [\"syscalls:sys_enter_*\"]}}");
    assert_eq!(groups(&plan), ["syscalls:sys_enter_read,syscalls:sys_enter_write"]);
    assert!(plan.groups[0].counters.iter().all(|counter| counter.event.kind == Kind::Tracepoint));
    let metrics: Vec<&str> = plan.groups[0].counters.iter().map(|counter| counter.metric.name()).collect();
    assert_eq!(metrics, ["perf_cpu_syscalls_sys_enter_read", "perf_cpu_syscalls_sys_enter_write"]);
}

#[test]
fn an_event_that_is_not_there_takes_nothing_else_with_it() {
    let yaml = "counters: {a: {events: [cycels, cycles, {event: \"sched:sched_swich\", name: mine}]}}";
    let plan = planned("amd", yaml);
    assert_eq!(groups(&plan), ["cycles"]);
    assert_eq!(
        refusals(&plan),
        [
            "cycels on this host: absent: there is no event with this name; did you mean cycles?",
            "sched:sched_swich on this host: absent: the system sched has no tracepoint sched_swich; did you mean \
             sched:sched_switch?",
        ]
    );
}

/// Returns the way of attribution of each group, and its reason.
fn ways(on: &str, yaml: &str) -> Vec<String> {
    let support = StreamSupport::foreseen(&Facts::read(&Roots::under(&host(on))));
    let way = |group: &Group| format!("{}: {:?}, {}", group.scope(), group.source, group.why(&support));
    planned(on, yaml).groups.iter().map(|group| way(group)).collect()
}

#[test]
fn the_plan_says_of_each_group_why_it_is_counted_as_it_is() {
    let table = [
        ("cgroup", "", "", "cgroup: Stream, auto: all or many targets"),
        ("cgroup", "cgroups: {attribution: dedicated}", "", "cgroup: Dedicated, attribution: dedicated"),
        (
            "cgroup",
            "cgroups: {include: [/a], attribution: stream}",
            "",
            "cgroup: Stream, attribution: stream",
        ),
        ("cgroup", "cgroups: {include: [/a]}", "", "cgroup: Dedicated, auto: few named targets"),
        ("cgroup", "", ":D", "cgroup: Dedicated, auto: event modifiers"),
        ("process", "", "", "process: Stream, auto: all or many targets"),
        ("cpu", "", "", "cpu: Dedicated, no attribution needed"),
    ];
    for (scope, selection, modifiers, expected) in table {
        let yaml = format!("counters: {{a: {{events: [\"cycles{modifiers}\"], per: {scope}}}}}\n{selection}");
        assert_eq!(ways("amd", &yaml), [expected], "{yaml}");
    }
    let both = "counters: {a: {events: [cycles, instructions], per: [cpu, cgroup]}, \
                b: {events: [{event: cycles, name: mine}], per: cgroup, cgroups: {include: [/a]}}}";
    let expected = [
        "cpu: Stream, already counted by the switch stream",
        "cgroup: Stream, auto: all or many targets",
        "cgroup: Stream, already counted by the switch stream",
    ];
    assert_eq!(ways("amd", both), expected);
}

#[test]
fn the_plan_says_why_there_is_no_stream_on_a_host() {
    let yaml = "counters: {a: {events: [page-faults], per: [cgroup, process]}}";
    let old = [
        "cgroup: Dedicated, auto: not supported by this kernel",
        "process: Stream, auto: all or many targets",
    ];
    assert_eq!(ways("intel-server", yaml), old);
    let unprivileged = ["cgroup: Dedicated, auto: not permitted", "process: Dedicated, auto: not permitted"];
    assert_eq!(ways("arm", yaml), unprivileged);
}

/// Opens everything that a configuration counts on a host with a fake kernel. Returns the collector and the plan.
fn opened(on: &str, config: &Config, kernel: &FakeKernel) -> (Collector<FakeKernel>, Plan) {
    let roots = Roots::under(&host(on));
    let facts = Facts::read(&roots);
    let plan = plan(
        &Entries::counters(&config.counters),
        &Catalog::load(&roots, &facts),
        &StreamSupport::foreseen(&facts),
    );
    let budget = Budget { limit: 100_000, used: 0 };
    let clock = Clock::manual(Timestamp(0));
    let mut collector = Collector::new(kernel.clone(), clock, &roots, facts, true, budget).unwrap();
    let mut watch = Watch::new(roots);
    watch.refresh();
    let shares = config.shares(watch.online().len(), plan.ring_kinds());
    collector.apply(&plan, Bounds::new(&config.limits, &shares), &watch);
    (collector, plan)
}

/// `check --no-open` must predict the same events that `check` opens.
#[test]
fn what_is_foreseen_of_the_stream_is_what_is_opened() {
    for on in ["intel-hybrid", "intel-server", "amd", "vm"] {
        for example in examples() {
            let (config, _) = load_file(Some(&repository(&example))).unwrap();
            let (collector, plan) = opened(on, &config, &FakeKernel::new());
            let roots = Roots::under(&host(on));
            let facts = Facts::read(&roots);
            let shares = config.shares(facts.online.len(), plan.ring_kinds());
            let memory = plan.ring_memory(shares.get(Part::Rings));
            let foreseen = |stream| foreseen(stream, &facts, &roots, memory);
            assert_eq!(collector.stream_state(), plan.stream.as_ref().map(foreseen), "{on}: {example}");
        }
    }
}

#[test]
fn entries_that_find_no_place_on_the_pmu_together_are_told_by_group() {
    let kernel = FakeKernel::new();
    // On each CPU the first attempt to add r99 fails, but an attempt in another group succeeds.
    let tried = Mutex::new(BTreeSet::new());
    kernel.refuse(Errno::EINVAL, move |attr, place, _| match place {
        FakePlace::Cpu(cpu) => attr.selector.config[0] == 0x99 && tried.lock().unwrap().insert(cpu),
        _ => false,
    });
    let yaml = "counters: {a: {events: [r1], per: cgroup}, b: {events: [r2, r99], per: cgroup}, \
                c: {events: [page-faults], per: cgroup}}";
    let (config, _) = load(yaml.as_bytes(), "test.yaml").unwrap();
    let (collector, _) = opened("amd", &config, &kernel);
    let groups = collector.stream_state().unwrap().groups;
    let groups: Vec<String> = groups.iter().map(|entries| entries.join(",")).collect();
    // Events that need no PMU are in a separate group, so that they are not multiplexed with PMU events.
    assert_eq!(groups, ["a", "b"]);
    let opened = kernel.opened().into_iter().filter(|event| event.place == FakePlace::Cpu(1));
    assert_eq!(opened.filter(|event| event.attr.sampling.is_some() && !event.is_member()).count(), 3);
}

#[test]
fn an_entry_of_the_stream_that_is_refused_everywhere_counts_for_nobody() {
    let kernel = FakeKernel::new();
    kernel.refuse(Errno::ENOENT, |attr, _, _| attr.selector.kind == 0);
    let (collector, _) = opened("amd", &Config::default(), &kernel);
    let of = |entry: &str| {
        let states = collector.states();
        let state = states
            .iter()
            .find(|state| &*state.plan.entry == entry && state.plan.scope() == Scope::CPU)
            .unwrap();
        (state.targets, state.left_out)
    };
    assert_eq!((of("core"), of("os")), ((0, 64), (64, 0)));
}

/// Removes the descriptor limit, which depends on the environment of the test.
fn without_limit(text: &str) -> String {
    let mut page = String::new();
    for line in text.lines() {
        let allowed = line.split_once("; ").filter(|(_, rest)| rest.contains(". Nothing was opened"));
        match allowed {
            Some((takes, _)) => writeln!(page, "{takes}; the limit is …. Nothing was opened").unwrap(),
            None if line.trim_start().starts_with("\"limit\": ") => page.push_str("    \"limit\": …,\n"),
            None => writeln!(page, "{line}").unwrap(),
        }
    }
    page
}

/// Returns the output of a successful command for a host.
fn printed(on: &str, arguments: &[&str]) -> String {
    printed_with(0, "", on, arguments)
}

fn printed_with(code: i32, stderr: &str, on: &str, arguments: &[&str]) -> String {
    let root = host(on);
    let outcome = run(arguments.iter().copied().chain(["--no-open", "--host-root", root.to_str().unwrap()]));
    assert_eq!((outcome.code, &*outcome.stderr), (code, stderr), "{}", outcome.stdout);
    // Removes the path of the repository, which depends on the machine.
    without_limit(&outcome.stdout.replace(root.to_str().unwrap(), ""))
}

pub(crate) fn assert_golden(name: String, page: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, page));
}

/// Returns the paths of all files under `config/examples`, as a user writes them.
pub(crate) fn examples() -> Vec<String> {
    let names = files::list(&repository("config/examples")).unwrap();
    names.iter().map(|name| format!("config/examples/{name}")).collect()
}

#[test]
fn check_says_for_each_host_and_example_what_is_counted_and_what_is_not() {
    for on in HOSTS {
        let mut page = printed(on, &["check"]);
        for example in examples().iter().filter(|example| *example != DEFAULT) {
            write!(page, "\n----\n\n{}", printed(on, &["check", "--any-host", "--config", example])).unwrap();
        }
        assert_golden(format!("check-{on}"), &page);
    }
}

#[test]
fn the_example_of_the_built_in_configuration_is_the_built_in_configuration() {
    let page = printed("amd", &["check", "--config", DEFAULT]);
    // The built-in configuration has no positions.
    let parts: Vec<&str> = page.split(&format!(" ({DEFAULT}:")).collect();
    let without = |part: &&str| part.split_once(')').map_or("", |(_, rest)| rest).to_owned();
    let page: String = std::iter::once(parts[0].to_owned()).chain(parts[1..].iter().map(without)).collect();
    assert_eq!(page.replace(DEFAULT, "the built-in configuration"), printed("amd", &["check"]));
}

#[test]
fn check_says_the_same_to_programs() {
    for on in ["intel-hybrid", "arm", "vm"] {
        let page = printed(on, &["check", "--output", "json"]);
        serde_json::from_str::<serde_json::Value>(&page.replace('…', "0")).unwrap();
        assert_golden(format!("check-json-{on}"), &page);
    }
}

/// Cases that the examples do not contain: uncore PMUs, wrong names, conflicting metrics.
#[test]
fn check_tells_pmus_of_one_kind_together_and_each_reason_once() {
    let file = "tests/data/config/uncore.yaml";
    let repeated = format!(
        "perf-exporter: the configuration has errors on this host:\n\
         {file}:11:14: counters.again.events[0]: cpu-cycles: perf_cpu_cycles_total is already counted by entry core; give it \
         another name: {{event: …, name: …}}\n\
         {file}:11:26: counters.again.events[1]: cycels: there is no event with this name; did you mean cycles?\n"
    );
    let arguments = ["check", "--any-host", "--config", file];
    let outcome = printed_with(2, &repeated, "intel-server", &arguments);
    assert_golden("check-uncore".into(), &outcome);
}

/// Groups that are larger than a PMU, that rotate, and that never count.
#[test]
fn check_describes_the_rotation_of_groups_on_each_host() {
    let mut page = String::new();
    for on in HOSTS {
        let text = printed(on, &["check", "--any-host", "--config", "tests/data/config/rotation.yaml"]);
        let rotation = text.split("\nHardware counters:\n").nth(1).unwrap_or_default();
        let rotation = rotation.split("\n\n").next().unwrap_or_default();
        write!(page, "---- {on}\n{rotation}\n").unwrap();
    }
    assert_golden("check-rotation".into(), &page);
}

#[test]
fn list_names_all_that_a_host_has() {
    for on in HOSTS {
        assert_golden(format!("list-{on}"), &printed(on, &["list"]));
    }
}

#[test]
fn whatever_list_prints_for_the_configuration_can_be_resolved() {
    for on in HOSTS {
        let catalog = catalog(on);
        let rows: Vec<String> = printed(on, &["list", "--output", "json"])
            .lines()
            .map(|line| {
                let row: serde_json::Value = serde_json::from_str(line).unwrap();
                row["yaml"].as_str().unwrap().to_owned()
            })
            .collect();
        let whole = |plan: &Plan, rows: usize| {
            let counted: BTreeSet<&str> = plan.groups.iter().map(|group| &*group.entry).collect();
            plan.refusals.is_empty() && counted.len() == rows
        };
        // Loading a file takes ten times as long as resolving an event.
        for rows in rows.chunks(100) {
            let entries = rows.iter().enumerate().map(|(number, yaml)| format!("mine{number}: {{{yaml}}}"));
            let entries: Vec<String> = entries.collect();
            let loaded = load(format!("counters: {{{}}}", entries.join(", ")).as_bytes(), "test.yaml");
            let together = |(config, _): &(Config, _)| {
                plan(
                    &Entries::counters(&config.counters),
                    &catalog,
                    &StreamSupport::foreseen(catalog.facts()),
                )
            };
            if loaded.as_ref().is_ok_and(|loaded| whole(&together(loaded), rows.len())) {
                continue;
            }
            // Events that share a metric are only valid in separate files.
            for yaml in rows {
                let plan = planned_with(&catalog, &format!("counters: {{mine: {{{yaml}}}}}"));
                assert!(whole(&plan, 1), "{on}: {yaml}: {:?}", refusals(&plan));
            }
        }
    }
}
