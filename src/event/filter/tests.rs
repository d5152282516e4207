use proptest::prelude::*;

use super::*;
use crate::host;

/// A format captured from a running kernel (Linux 6.18, x86-64).
macro_rules! captured {
    ($name:literal) => {
        Format::parse(include_str!(concat!("../../../tests/data/formats/", $name))).unwrap()
    };
}

/// Filters for `sched:sched_switch`, and whether a Linux 6.18 with two CPUs accepts them in its file `filter`. In that file, a `0` removes
/// the filter; perf rejects it.
const SCHED_SWITCH: [(&str, bool); 115] = [
    ("prev_pid == 1", true),
    ("  prev_pid\t==\n 1  ", true),
    ("prev_pid==1&&next_pid==2||next_prio<120", true),
    ("prev_pid == 1 || (next_pid == 2 && !(next_prio > 3))", true),
    ("((((((((((((((((((((((((((((((((((((((((prev_pid == 1))))))))))))))))))))))))))))))))))))))))", true),
    ("( prev_pid == 1 )", true),
    ("!(prev_pid == 1)", true),
    ("!!prev_pid == 1", true),
    ("! prev_pid == 1", true),
    ("prev_pid == 1 &&", true),
    ("prev_pid == 1 ||", true),
    ("prev_pid == 1 && !", true),
    ("(prev_pid == 1 &&)", false),
    ("prev_pid == 1 && && next_pid == 2", false),
    ("(prev_pid == 1", false),
    ("prev_pid == 1)", false),
    ("()", false),
    ("!", false),
    ("prev_pid == 1 next_pid == 2", false),
    ("prev_pid == 1 & next_pid == 2", false),
    ("prev_pid == 1 and next_pid == 2", false),
    ("prev_pid == 1 ; next_pid == 2", false),
    ("(prev_pid == 1)(next_pid == 2)", false),
    ("prev_pid == 1 && \"", false),
    ("!~prev_pid == 1", false),
    ("!= 1", false),
    ("nosuch == 1", false),
    ("\"prev_pid\" == 1", false),
    ("prev_pid", false),
    ("prev_pid ==", false),
    ("prev_pid && 3", false),
    ("prev_pid = 1", false),
    ("prev_pid === 1", false),
    ("prev_pid !== 1", false),
    ("prev_pid <> 1", false),
    ("prev_pid =! 1", false),
    ("prev_pid !~ 1", false),
    ("prev_pid == ( 1 )", false),
    ("prev_pid & 0x3", true),
    ("prev_pid & 3 == 1", false),
    ("prev_pid ~ 1", false),
    ("prev_pid ~ \"1\"", false),
    ("prev_pid == \"1\"", false),
    ("prev_pid == foo", false),
    ("prev_pid == -1", true),
    ("prev_pid == +1", false),
    ("prev_pid == -", false),
    ("prev_pid == 010", true),
    ("prev_pid == 08", false),
    ("prev_pid == 0x", false),
    ("prev_pid == 0b11", false),
    ("prev_pid == 1x", false),
    ("prev_pid == 99999999999", true),
    ("prev_pid == 99999999999999999999", false),
    ("prev_pid == 00000000000000000000001", true),
    ("prev_pid == 000000000000000000000001", false),
    ("prev_pid == 0xffffffffffffffff", false),
    ("prev_pid == -0x8000000000000000", true),
    ("prev_pid == -0x8000000000000001", false),
    ("prev_pid.ustring == 1", true),
    ("prev_pid.hex == 1", false),
    ("prev_comm == \"bash\"", true),
    ("prev_comm == 'bash'", true),
    ("prev_comm == \"ba'sh\"", true),
    ("prev_comm == 'a' && prev_comm == \"b\"", true),
    ("prev_comm == \"\"", true),
    ("prev_comm == \"é\"", true),
    ("prev_comm != \"x\"", true),
    ("prev_comm ~ \"ba*\"", true),
    ("prev_comm ~ 'ba[s-'", true),
    ("prev_comm.ustring == \"bash\"", true),
    ("prev_comm !~ \"x\"", false),
    ("prev_comm < \"x\"", false),
    ("prev_comm & \"x\"", false),
    ("prev_comm == bash", false),
    ("prev_comm == 5", false),
    ("prev_comm == \"bash", false),
    ("prev_state.function == schedule", true),
    ("prev_state.ustring.function == schedule", true),
    ("(prev_state.function == schedule )", true),
    ("(prev_state.function == schedule)", false),
    ("prev_state.function < schedule", false),
    ("prev_pid.function == schedule", false),
    ("common_pid == 5", true),
    ("common_cpu == 0", true),
    ("common_comm == \"x\"", false),
    ("CPU == 0", true),
    ("cpu < 2", true),
    ("CPU == -1", true),
    ("CPU & 1", true),
    ("CPU == CPUS{0}", true),
    ("cpu & CPUS{0-1}", true),
    ("cpu & CPUS{0-1:1/2}", true),
    ("cpu & CPUS{0-1:1/1 0}", true),
    ("cpu & CPUS{0-1:1/21}", true),
    ("cpu & CPUS{all}", true),
    ("cpu & CPUS{all:0/1}", true),
    ("cpu & CPUS{0,N}", true),
    ("cpu & CPUS{0,,1}", true),
    ("cpu & CPUS{,}", true),
    ("cpu & CPUS{}", false),
    ("cpu & CPUS{1-0}", false),
    ("cpu & CPUS{0-}", false),
    ("cpu & CPUS{x}", false),
    ("cpu & CPUS{0-1:2/1}", false),
    ("cpu & CPUS{0-1:1/0}", false),
    ("cpu & CPUS{0", false),
    ("cpu & CPUS {0}", false),
    ("cpu < CPUS{0}", false),
    ("prev_pid & CPUS{0}", true),
    ("prev_comm == CPUS{0}", false),
    ("COMM == \"bash\" || comm ~ \"ba*\"", true),
    ("COMM == 5", false),
    ("COMM.function == schedule", false),
    ("stacktrace == 5", true),
];

/// Filters for fields of other types, and whether the same kernel accepts them.
const OTHERS: [(&str, &str, bool); 24] = [
    ("tcp:tcp_retransmit_skb", "saddr == 5", true),
    ("tcp:tcp_retransmit_skb", "saddr_v6 == 1", true),
    ("tcp:tcp_retransmit_skb", "saddr == CPUS{0}", true),
    ("tcp:tcp_retransmit_skb", "saddr == \"x\"", false),
    ("tcp:tcp_retransmit_skb", "saddr.function == schedule", false),
    ("tcp:tcp_retransmit_skb", "skaddr == 5", true),
    ("tcp:tcp_retransmit_skb", "skaddr == -5", false),
    ("tcp:tcp_retransmit_skb", "skaddr == 0xffffffffffffffff", true),
    ("tcp:tcp_retransmit_skb", "sport & 80", true),
    ("dma:dma_map_sg", "lengths == 5", true),
    ("dma:dma_map_sg", "lengths == \"x\"", false),
    ("dma:dma_map_sg", "device == \"x\"", true),
    ("dma:dma_map_sg", "device == 5", false),
    ("ipi:ipi_send_cpumask", "cpumask == 5", true),
    ("ipi:ipi_send_cpumask", "cpumask & CPUS{0-1}", true),
    ("ipi:ipi_send_cpumask", "cpumask == \"x\"", false),
    ("ipi:ipi_send_cpumask", "cpumask < CPUS{0}", false),
    ("syscalls:sys_enter_openat", "filename == \"x\"", true),
    ("syscalls:sys_enter_openat", "filename.ustring ~ \"/etc/*\"", true),
    ("syscalls:sys_enter_openat", "filename == 0", false),
    ("syscalls:sys_enter_openat", "filename.function == schedule", true),
    ("syscalls:sys_enter_openat", "mode == 1", true),
    ("kmem:kmalloc", "stacktrace == CPUS{0}", false),
    ("kmem:kmalloc", "STACKTRACE == \"x\"", false),
];

fn other(name: &str) -> Format {
    match name {
        "tcp:tcp_retransmit_skb" => captured!("tcp:tcp_retransmit_skb"),
        "dma:dma_map_sg" => captured!("dma:dma_map_sg"),
        "ipi:ipi_send_cpumask" => captured!("ipi:ipi_send_cpumask"),
        "syscalls:sys_enter_openat" => captured!("syscalls:sys_enter_openat"),
        _ => captured!("kmem:kmalloc"),
    }
}

#[test]
fn what_a_kernel_takes_is_taken_and_what_it_refuses_refused() {
    let format = captured!("sched:sched_switch");
    for (filter, taken) in SCHED_SWITCH {
        assert_eq!(check(filter, &format).is_ok(), taken, "{filter}");
    }
    for (event, filter, taken) in OTHERS {
        assert_eq!(check(filter, &other(event)).is_ok(), taken, "{event} {filter}");
    }
}

#[test]
fn what_the_kernel_takes_as_long_as_it_is_not_longer() {
    let format = captured!("sched:sched_switch");
    for (length, taken) in [(OPERAND_LIMIT, true), (OPERAND_LIMIT + 1, false)] {
        assert_eq!(check(&format!("prev_comm == \"{}\"", "x".repeat(length)), &format).is_ok(), taken);
    }
    let page = rustix::param::page_size();
    for (length, taken) in [(page - 1, true), (page, false)] {
        assert_eq!(check(&format!("{:length$}", "prev_pid == 1"), &format).is_ok(), taken);
    }
    assert_eq!(check("prev_pid == 1\0", &format).unwrap_err().at, 13);
    let error = check(&"é".repeat(1 << 20), &format).unwrap_err();
    assert!(error.to_string().len() < 500 && format!("{error:#}").len() < 1000);
}

#[test]
fn functions_are_filtered_by_patterns() {
    let format = captured!("ftrace:function");
    for (filter, taken) in [
        ("ip == schedule", true),
        ("ip == tcp_* || ip ~ \"udp_*\"", true),
        ("(ip == schedule)", true),
        ("ip.function == schedule", true),
        ("ip ==", false),
        ("parent_ip == schedule", false),
        ("common_pid == 1", false),
    ] {
        assert_eq!(check(filter, &format).is_ok(), taken, "{filter}");
    }
}

#[test]
fn an_error_says_what_is_wrong_where_and_what_helps() {
    let format = captured!("sched:sched_switch");
    for (filter, at, expected) in [
        (
            "prev_pdi == 1",
            0,
            "sched_switch has no field prev_pdi, at \"prev_pdi == 1\": did you mean prev_pid?",
        ),
        (
            "next_pid == 1 && cmm == 1",
            17,
            "sched_switch has no field cmm, at \"cmm == 1\": did you mean comm?",
        ),
        (
            "horse == 1",
            0,
            "sched_switch has no field horse, at \"horse == 1\": its fields are prev_comm, prev_pid, prev_prio, prev_state, \
             next_comm, next_pid, next_prio",
        ),
        (
            "prev_comm == bash",
            13,
            "invalid value for the field prev_comm, at \"bash\": write a quoted string, prev_comm == \"…\"",
        ),
        ("prev_comm == 5", 13, "prev_comm is a string, at \"5\": put the value in quotes"),
        ("prev_pid == '5'", 12, "prev_pid is not a string, at \"'5'\": write a number without quotes"),
        ("prev_pid = 5", 9, "= is not an operator, at \"= 5\": use == for equality"),
        (
            "prev_pid == 5 next_pid == 6",
            14,
            "expected an operator after the condition, at \"next_pid == 6\": put && or || between two conditions",
        ),
        ("(prev_pid == 5", 0, "the parenthesis is not closed, at \"(prev_pid == 5\": close it with )"),
        ("prev_pid == 5 && (", 17, "the parenthesis is not closed, at \"(\": close it with )"),
        ("prev_comm == \"a'", 13, "the quote is not closed, at \"\\\"a'\": close it with \""),
        ("", 0, "the filter is empty, at the end: write FIELD OPERATOR VALUE, such as common_pid == 1"),
    ] {
        let error = check(filter, &format).unwrap_err();
        assert_eq!((error.at, error.to_string()), (at, expected.to_owned()));
    }
    let error = check("prev_pid == 1 && prev_comm < \"b\"", &format).unwrap_err();
    let picture = [
        "strings do not support ordering or bit operators",
        "  prev_pid == 1 && prev_comm < \"b\"",
        "                               ^ compare it with ==, != or ~",
    ];
    assert_eq!(format!("{error:#}"), picture.join("\n"));
}

/// Compares the check with the running kernel, in a separate tracing instance that is removed again. Filters that depend on the kernel's
/// functions and CPUs are skipped.
#[test]
fn the_running_kernel_agrees() {
    struct Instance(std::path::PathBuf);
    impl Drop for Instance {
        fn drop(&mut self) {
            std::fs::remove_dir(&self.0).unwrap();
        }
    }
    let tracing = host::Roots::default().tracing;
    let dir = tracing.join(format!("instances/perf_exporter_{}", std::process::id()));
    let facts = host::Facts::read(&host::Roots::default());
    if facts.kernel < (host::KernelVersion(6, 6)) || std::fs::create_dir(&dir).is_err() {
        eprintln!("skipped: needs Linux 6.6 and the right to write to {}", tracing.display());
        return;
    }
    let instance = Instance(dir);
    let event = instance.0.join("events/sched/sched_switch");
    let format = Format::parse(&host::read_text(&event.join("format")).unwrap()).unwrap();
    for (filter, _) in SCHED_SWITCH {
        let depends = filter.contains(".function") || filter.contains("CPUS{0-1") || filter.contains(",1}");
        if !depends {
            let taken = std::fs::write(event.join("filter"), filter).is_ok();
            assert_eq!(check(filter, &format).is_ok(), taken, "{filter}");
        }
    }
}

/// Generates valid filters: numbers for numeric fields, strings for text fields.
fn any_filter() -> impl Strategy<Value = String> {
    let number = (
        prop_oneof![Just("prev_pid"), Just("common_pid"), Just("cpu"), Just("prev_state")],
        prop_oneof![Just("=="), Just("!="), Just("<"), Just("<="), Just(">"), Just(">="), Just("&")],
        any::<i64>(),
    );
    let text = (
        prop_oneof![Just("prev_comm"), Just("COMM"), Just("comm")],
        prop_oneof![Just("=="), Just("!="), Just("~")],
        "[^\"\0]{0,60}",
    );
    let predicate = prop_oneof![
        number.prop_map(|(field, operator, number)| format!("{field}{operator}{number}")),
        text.prop_map(|(field, operator, text)| format!("{field} {operator} \"{text}\"")),
    ];
    predicate.prop_recursive(6, 20, 2, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("{one} && {other}")),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("{one}||{other}")),
            inner.clone().prop_map(|inner| format!("({inner})")),
            inner.prop_map(|inner| format!("!{inner}")),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_in_the_language_is_taken_and_not_when_it_is_broken(filter in any_filter()) {
        let format = captured!("sched:sched_switch");
        prop_assert_eq!(check(&filter, &format), Ok(()));
        for broken in [format!("({filter}"), format!("{filter})"), format!("{filter} 1"), format!("&& {filter}")] {
            prop_assert!(check(&broken, &format).is_err(), "{}", broken);
        }
    }

    #[test]
    fn no_text_panics_and_every_error_can_be_shown(
        filter in r#".{0,40}|(prev_pid|comm|prev_state|[!&|~<>=(){}"']|CPUS\{|\.function|-?[0-9]{1,30}|é| ){0,20}"#
    ) {
        for format in [captured!("sched:sched_switch"), captured!("ftrace:function")] {
            if let Err(error) = check(&filter, &format) {
                prop_assert!(error.at <= filter.len());
                prop_assert_eq!(format!("{error:#}").lines().count(), 3);
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}
