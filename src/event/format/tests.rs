use proptest::prelude::*;

use super::*;
use crate::host;

/// A format captured from a running kernel (Linux 6.18, x86-64).
macro_rules! captured {
    ($name:literal) => {
        Format::parse(include_str!(concat!("../../../tests/data/formats/", $name))).unwrap()
    };
}

/// Returns a format with these field lines and this `print fmt`.
fn format(fields: &[&str], print: &str) -> Format {
    let lines: String = fields.iter().map(|field| format!("\tfield:{field};\n")).collect();
    Format::parse(&format!("name: e\nID: 1\nformat:\n{lines}\nprint fmt: {print}\n")).unwrap()
}

/// Formats the value of a field whose print format is this `print fmt`.
fn shown(print: &str, value: u64) -> String {
    let format = format(&["unsigned long x;\toffset:8;\tsize:8;\tsigned:0"], print);
    format.fields()[0].render(&Value::Unsigned(value))
}

/// Formats a value of a field of `format`.
fn rendered(format: &Format, name: &str, value: u64) -> String {
    format.field(name).unwrap().render(&Value::Unsigned(value))
}

#[test]
fn the_fields_of_a_captured_format_are_where_the_kernel_says() {
    let format = captured!("sched:sched_switch");
    assert_eq!((format.name(), format.id(), format.fields().len()), ("sched_switch", 372, 11));
    let listed: Vec<_> = format
        .fields()
        .iter()
        .map(|field| (&*field.name, field.kind, field.offset, field.size, field.common))
        .collect();
    let (signed, unsigned) = (FieldKind::Integer { signed: true }, FieldKind::Integer { signed: false });
    assert_eq!(
        listed[..7],
        [
            ("common_type", unsigned, 0, 2, true),
            ("common_flags", unsigned, 2, 1, true),
            ("common_preempt_count", unsigned, 3, 1, true),
            ("common_pid", signed, 4, 4, true),
            ("prev_comm", FieldKind::Text, 8, 16, false),
            ("prev_pid", signed, 24, 4, false),
            ("prev_prio", signed, 28, 4, false),
        ]
    );
    assert_eq!(&*format.field("prev_comm").unwrap().declaration, "char prev_comm[16]");
    assert_eq!(format.near("prev_pdi"), Some("prev_pid"));
    assert_eq!(format.field("nothing"), None);
}

#[test]
fn declarations_say_what_the_bytes_are() {
    use FieldKind::{Array, DynamicArray, DynamicText, Integer, Pointer, Text};
    for (declaration, size, sign, kind) in [
        ("bool x", 1, 0, Integer { signed: false }),
        ("enum zone_type x", 4, 0, Integer { signed: false }),
        ("loff_t x", 8, 1, Integer { signed: true }),
        ("const char * x", 8, 0, Pointer),
        ("const char *const * x", 8, 0, Pointer),
        ("void __seg_gs * x", 8, 0, Pointer),
        ("struct page *x", 8, 0, Pointer),
        ("char x[16]", 16, 0, Text),
        ("char x[TASK_COMM_LEN]", 16, 0, Text),
        ("char buf[]", 0, 0, Text),
        ("unsigned char addr[6]", 6, 0, Array { element: 1, signed: false }),
        ("unsigned long args[6]", 48, 0, Array { element: 8, signed: false }),
        ("long x[N]", 24, 1, Array { element: size_of::<usize>(), signed: true }),
        // The declaration of a probe's array contains no length.
        ("u16 x[]", 6, 0, Array { element: 2, signed: false }),
        ("struct in6_addr x", 16, 0, Array { element: 1, signed: false }),
        ("struct pair x", 8, 0, Array { element: 1, signed: false }),
        ("__data_loc char[] x", 4, 1, DynamicText { relative: false }),
        ("__data_loc char[][2] x", 8, 1, DynamicText { relative: false }),
        ("__rel_loc char x[]", 4, 1, DynamicText { relative: true }),
        ("__rel_loc char[] x", 4, 1, DynamicText { relative: true }),
        ("__data_loc u64[] x", 4, 0, DynamicArray { element: 8, signed: false, relative: false }),
        ("__data_loc cpumask_t x", 4, 0, DynamicArray { element: 8, signed: false, relative: false }),
        ("__data_loc struct foo[] x", 4, 0, DynamicArray { element: 1, signed: false, relative: false }),
    ] {
        let line = format!("{declaration};\toffset:8;\tsize:{size};\tsigned:{sign}");
        let format = format(&[&line], "");
        assert_eq!(format.fields()[0].kind, kind, "{declaration}");
        assert_eq!(&*format.fields()[0].declaration, declaration);
    }
}

#[test]
fn numbers_of_every_size_and_sign_are_read() {
    let bytes = u64::to_ne_bytes(0xf1f2_f3f4_f5f6_f7f8);
    for size in [1usize, 2, 4, 8] {
        let raw = [&[0][..], &bytes[..size]].concat();
        let of = |sign| {
            let line = format!("int x;\toffset:1;\tsize:{size};\tsigned:{sign}");
            let format = format(&[&line], "");
            let field = &format.fields()[0];
            assert_eq!(field.value(&raw[..size]), None, "a record that is too short");
            let value = field.value(&raw).unwrap();
            (field.render(&value), value)
        };
        let mut extended = [0; 8];
        extended[..size].copy_from_slice(&bytes[..size]);
        let unsigned = u64::from_ne_bytes(extended);
        let signed = (unsigned as i64) << (64 - 8 * size) >> (64 - 8 * size);
        assert!(signed < 0);
        assert_eq!(of(0), (unsigned.to_string(), Value::Unsigned(unsigned)));
        assert_eq!(of(1), (signed.to_string(), Value::Signed(signed)));
    }
}

#[test]
fn texts_end_at_their_nul_and_where_the_record_says() {
    let format = format(
        &[
            "char fixed[4];\toffset:0;\tsize:4;\tsigned:0",
            "__data_loc char[] far;\toffset:4;\tsize:4;\tsigned:1",
            "__rel_loc char near[];\toffset:8;\tsize:4;\tsigned:1",
            "char rest[];\toffset:18;\tsize:0;\tsigned:0",
        ],
        "",
    );
    let place = |offset: u32, length: u32| (length << 16 | offset).to_ne_bytes();
    let raw = [b"full".as_slice(), &place(12, 3), &place(3, 4), b"hi\0a\xff\n\0and on"].concat();
    let values: Vec<_> = format.fields().iter().map(|field| field.value(&raw)).collect();
    let expected: [&[u8]; 4] = [b"full", b"hi", b"a\xff\n", b"\0and on"];
    let expected = expected.map(|bytes| Some(Value::Bytes(bytes.split(|byte| *byte == 0).next().unwrap())));
    assert_eq!(values, expected);
    assert_eq!(format.fields()[2].render(&values[2].unwrap()), "a\u{fffd}\n");
    // An offset outside the record yields no value.
    let raw = [b"full".as_slice(), &place(12, 1), &place(1, 0), b""].concat();
    let values: Vec<_> = format.fields().iter().map(|field| field.value(&raw)).collect();
    assert_eq!(values, [Some(Value::Bytes(b"full")), None, None, None]);
}

#[test]
fn the_state_of_a_task_is_written_as_ftrace_writes_it() {
    let format = captured!("sched:sched_switch");
    for (state, text) in [(0, "R"), (1, "S"), (2, "D"), (0x80, "I"), (3, "S|D"), (0x100, "R"), (0x101, "S")] {
        assert_eq!(rendered(&format, "prev_state", state), text);
    }
}

#[test]
fn flags_are_named_in_the_order_of_the_table_and_the_rest_is_a_number() {
    let format = captured!("kmem:kmalloc");
    for (flags, text) in [
        (0xcc0, "GFP_KERNEL"),
        (0xdc0, "GFP_KERNEL|__GFP_ZERO"),
        (0x820, "GFP_ATOMIC"),
        (0, "none"),
        (0x1_0000_0800, "__GFP_KSWAPD_RECLAIM|0x100000000"),
    ] {
        assert_eq!(rendered(&format, "gfp_flags", flags), text);
    }
    assert_eq!(format.field("call_site").unwrap().show, Show::Function);
    assert_eq!(rendered(&format, "ptr", 0xffff_8881_0000_1000), "0xffff888100001000");
}

#[test]
fn symbols_devices_functions_and_addresses_are_known_in_captured_formats() {
    assert_eq!(rendered(&captured!("irq:softirq_entry"), "vec", 3), "NET_RX");
    assert_eq!(rendered(&captured!("irq:softirq_entry"), "vec", 33), "0x21");
    assert_eq!(rendered(&captured!("block:block_rq_issue"), "dev", 8 << 20 | 17), "8,17");
    // This kernel does not resolve the names of I/O priority classes.
    assert_eq!(rendered(&captured!("block:block_rq_issue"), "ioprio", 0x4004), "16388");
    assert_eq!(captured!("workqueue:workqueue_queue_work").field("function").unwrap().show, Show::Function);
    // The names are for `1 << REC->alarm_type`.
    assert_eq!(rendered(&captured!("alarmtimer:alarmtimer_fired"), "alarm_type", 3), "REALTIME Freezer");
    // Another field determines which of the two tables applies.
    assert_eq!(captured!("kvm:kvm_exit").field("exit_reason").unwrap().show, Show::Plain);
    // A mask of the field, and flags in part of it.
    assert_eq!(rendered(&captured!("timer:timer_start"), "flags", 0x0008_0003), "D");

    let tcp = captured!("tcp:tcp_retransmit_skb");
    assert_eq!(rendered(&tcp, "family", 10), "AF_INET6");
    let bytes = |name: &str, bytes: &[u8]| tcp.field(name).unwrap().render(&Value::Bytes(bytes));
    assert_eq!(bytes("saddr", &[127, 0, 0, 1]), "127.0.0.1");
    assert_eq!(bytes("daddr_v6", &std::net::Ipv6Addr::LOCALHOST.octets()), "::1");
    assert_eq!(rendered(&tcp, "state", 1), "TCP_ESTABLISHED");
}

#[test]
fn probes_of_ones_own_are_read() {
    let format = captured!("uprobes:probe");
    let raw = [
        &[0; 8][..],
        &0x5555_0000_1200u64.to_ne_bytes(),
        &4096u64.to_ne_bytes(),
        &[0xff],
        &0x8000_0001u32.to_ne_bytes(),
        &(4u32 << 16 | 45).to_ne_bytes(),
        &[1, 2, 3, 255],
        &5u32.to_ne_bytes(),
        &(3u32 << 16 | 49).to_ne_bytes(),
        b"abc\0sh\0",
    ]
    .concat();
    let shown = |name: &str| {
        let field = format.field(name).unwrap();
        field.render(&field.value(&raw).unwrap())
    };
    let expected = [
        ("__probe_ip", "0x555500001200"),
        ("size", "4096"),
        ("delta", "-1"),
        ("flags", "0x80000001"),
        ("name", "abc"),
        ("head", "{1,2,3,255}"),
        ("bits", "5"),
        ("comm", "sh"),
    ];
    for (name, text) in expected {
        assert_eq!(shown(name), text, "{name}");
    }
}

#[test]
fn a_print_fmt_is_read_as_c() {
    for (print, value, text) in [
        (r#""%lu", REC->x"#, 10, "10"),
        (r#""%lu""#, 10, "10"),
        (r#""100%% %lx", REC->x"#, 10, "0xa"),
        (r#""%*d %#010llx", 5, 7, REC->x"#, 10, "0xa"),
        (r#""a\"%x\" %x", 1, REC->x"#, 10, "0xa"),
        (r#""\"%s, (\" %x", "a, \"b", REC->x"#, 10, "0xa"),
        (r#""%d" " %x", 1, REC->x"#, 10, "0xa"),
        (r#""%x", (unsigned long long)(REC->x)"#, 10, "0xa"),
        (r#""%x", *(u64 *)REC->x"#, 10, "0xa"),
        (r#""%x", REC->x + 1"#, 10, "10"),
        (r#""%x", REC->x[0]"#, 10, "10"),
        (r#""%x", REC->y"#, 10, "10"),
        (r#""%c", REC->x"#, 65, "A"),
        (r#""%c", REC->x"#, 7, "7"),
        (r#""%ps", (void *)REC->x"#, 10, "0xa"),
        (r#""%s", __print_symbolic(REC->x, {1, "one"}, { 1 + 1, "two" })"#, 2, "two"),
        (r#""%s", __print_symbolic(REC->x, {1, "one"}, { 1 + 1, "two" })"#, 3, "0x3"),
        (r#""%s", __print_symbolic(REC->x, {-1, "none"}, {-9ULL, "tree"})"#, u64::MAX, "none"),
        (r#""%s", __print_symbolic(REC->x, {SOME_ENUM, "a"}, {(ENUM), "b"}, {010, "c"})"#, 8, "c"),
        (r#""%s", __print_symbolic(REC->x, {SOME_ENUM, "a"})"#, 8, "8"),
        (r#""%s", __print_symbolic(REC->x, {sizeof(struct a), "a"}, {, "b"}, {3, "c" "d"})"#, 3, "cd"),
        (r#""%s", __print_symbolic((REC->x >> 4 & 0x3), {2, "two"})"#, 0x6f, "two"),
        (r#""%s", __print_symbolic((((REC->x) >> 13) & (8 - 1)), {2, "two"})"#, 0x4004, "two"),
        (r#""%s", __print_symbolic((u8)REC->x, {2, "two"})"#, 0x102, "two"),
        (r#""%s", __print_symbolic(REC->x, {1, "}, {"}, {2, "),\""})"#, 2, "),\""),
        (r#""%s", __print_flags(REC->x, "|", {1 << 0, "A"}, {((((1UL))) << (1)), "B"})"#, 7, "A|B|0x4"),
        (r#""%s", __print_flags(REC->x, "", {1, "a"}, {2, "b"})"#, 3, "ab"),
        (r#""%s", __print_flags(REC->x, "|", {0, "none"}, {1, "A"})"#, 0, "none"),
        (r#""%s", __print_flags(REC->x, "|", {0, "none"}, {1, "A"})"#, 1, "A"),
        (r#""%s", __print_flags(REC->x, "|", {1, "A"})"#, 0, "0"),
        (r#""%s", (REC->x) != 0 ? __print_flags(REC->x, "|", {1, "A"}) : "no"#, 1, "1"),
        (r#""%s", (REC->x) != 0 ? __print_flags(REC->x, "|", {1, "A"}) : "no""#, 0, "no"),
        (r#""%s", REC->y ? "b" : __print_symbolic(REC->x, {1, "A"})"#, 1, "A"),
        (r#""%s", __print_flags(REC->x & ~0xffff, " ", {(1UL << 31), "FAILED"})"#, 0x8000_0007, "FAILED"),
        // A table takes precedence over an earlier number, and the first table over the second.
        (
            r#""%x %s %s", REC->x, __print_symbolic(REC->x, {1, "A"}), __print_symbolic(REC->x, {1, "B"})"#,
            1,
            "A",
        ),
        (
            r#""%d,%d", ((unsigned int) ((REC->x) >> 20)), ((unsigned int) ((REC->x) & ((1U << 20) - 1)))"#,
            0x80_0001,
            "8,1",
        ),
        (r#""%d", ((unsigned int) ((REC->x) >> 20))"#, 0x80_0001, "8388609"),
        // Text that is not C is ignored.
        (r#""%x %x", ((((, REC->x"#, 10, "10"),
        (r#""%x", REC->x )"#, 10, "10"),
        (r#""%x"#, 10, "10"),
        (r"%x, REC->x", 10, "10"),
    ] {
        assert_eq!(shown(print, value), text, "{print}");
    }
}

#[test]
fn arrays_are_written_element_by_element() {
    let of = |declaration: &str, size: usize, sign: u8, print: &str, bytes: &[u8]| {
        let line = format!("{declaration};\toffset:0;\tsize:{size};\tsigned:{sign}");
        let format = format(&[&line], print);
        format.fields()[0].render(&format.fields()[0].value(bytes).unwrap())
    };
    let numbers = [1u16.to_ne_bytes(), 0xffffu16.to_ne_bytes()].concat();
    assert_eq!(of("u16 x[2]", 4, 0, "", &numbers), "{1,65535}");
    assert_eq!(of("short x[2]", 4, 1, "", &numbers), "{1,-1}");
    assert_eq!(
        of("u16 x[2]", 4, 0, r#""%s", __print_array(REC->x, 2, sizeof(u16))"#, &numbers),
        "{0x1,0xffff}"
    );
    assert_eq!(of("u8 x[3]", 3, 0, r#""%s", __print_hex_str(REC->x, 3)"#, &[0, 10, 255]), "000aff");
    assert_eq!(of("u8 x[6]", 6, 0, r#""%pM", REC->x"#, &[0, 1, 2, 3, 4, 255]), "00:01:02:03:04:ff");
    let socket = [&(libc::AF_INET as u16).to_ne_bytes()[..], &443u16.to_be_bytes(), &[10, 0, 0, 1], &[0; 20]];
    assert_eq!(of("__u8 x[28]", 28, 0, r#""%pISpc", REC->x"#, &socket.concat()), "10.0.0.1:443");
    assert_eq!(of("__u8 x[2]", 2, 0, r#""%pISpc", REC->x"#, &[0, 1]), "{0x0,0x1}");
}

#[test]
fn what_is_no_format_is_told_with_its_line() {
    let of = |text: &str| Format::parse(text).unwrap_err().to_string();
    assert_eq!(of(""), "the line \"name:\" is missing");
    assert_eq!(of("name: x\n"), "the line \"ID:\" is missing");
    assert_eq!(of("name: x\nID: many\n"), "line 2: the ID \"many\" is not a number");
    let field = |line: &str| of(&format!("name: x\nID: 1\nformat:\n\tfield:{line}\n"));
    assert_eq!(field("int;\toffset:8;"), "line 4: \"int\" is not a field declaration");
    assert_eq!(field("int x;\toffset:8;"), "line 4: the field x has no size");
    assert_eq!(field("int x;\toffset:-8;\tsize:4;"), "line 4: the offset \"-8\" is not a number");
    assert_eq!(
        field("int x;\toffset:8;\tsize:70000;"),
        "line 4: the size 70000 exceeds the maximum record size"
    );
    let many = "\tfield:int x;\toffset:8;\tsize:4;\n".repeat(FIELD_LIMIT + 1);
    assert!(of(&format!("name: x\nID: 1\n{many}")).ends_with("more than 256 fields"));
    assert_eq!(of(&"x".repeat(TEXT_LIMIT + 1)), "longer than 1024 KiB");
}

#[test]
fn a_deep_or_long_print_fmt_is_left_alone() {
    for print in [
        format!(r#""%x", {}REC->x{}"#, "(".repeat(100_000), ")".repeat(100_000)),
        format!(r#""%x", {}REC->x"#, "(".repeat(200_000)),
        format!(r#""%x", {}REC->x"#, "~".repeat(200_000)),
        format!(r#""%x", {}REC->x"#, "1 ? 1 : ".repeat(100_000)),
        format!(r#""%x", {}REC->x"#, "__print_hex(".repeat(50_000)),
        format!(r#""%s", __print_symbolic(REC->x, {{1, "a"}}{}"#, ", {(".repeat(100_000)),
        format!(r#""%s", __print_symbolic(REC->x{}"#, ", {1, \"a\"}".repeat(50_000)),
        format!(r#""{}"{}"#, "%d".repeat(100_000), ", 1".repeat(100_000)),
    ] {
        let shown = shown(&print, 10);
        assert!(["10", "0xa"].contains(&&*shown), "{shown}");
    }
}

/// Parses every tracepoint format of the running machine, beyond the captured examples.
#[test]
fn every_format_of_the_running_kernel_is_read() {
    let events = host::Roots::default().tracing.join("events");
    let Ok(systems) = host::list(&events) else {
        eprintln!("skipped: {} cannot be read", events.display());
        return;
    };
    for system in systems {
        let dir = events.join(&system);
        for event in host::list(&dir).unwrap_or_default() {
            // The directory also contains plain files, and a module can be unloaded during the test.
            let Ok(text) = host::read_text(&dir.join(&event).join("format")) else { continue };
            let format = Format::parse(&text).unwrap_or_else(|error| panic!("{system}:{event}: {error}"));
            assert_eq!(format.name(), event);
            assert_eq!(format.fields().len(), text.matches("\tfield:").count(), "{system}:{event}");
            for field in format.fields() {
                assert!(text.contains(&format!("\tfield:{};", field.declaration)), "{system}:{event}");
            }
        }
    }
}

/// Generates declarations with their size.
fn any_declaration() -> impl Strategy<Value = (String, usize)> {
    let words = prop_oneof![Just("int"), Just("unsigned long"), Just("u8"), Just("void *"), Just("struct a")];
    let fixed = (words, prop_oneof![Just(1usize), Just(2), Just(4), Just(8), Just(3)]);
    prop_oneof![
        fixed.clone().prop_map(|(word, size)| (format!("{word} x"), size)),
        (fixed, 1usize..9).prop_map(|((word, size), n)| (format!("{word} x[{n}]"), n * size)),
        (1usize..40).prop_map(|n| (format!("char x[{n}]"), n)),
        prop_oneof![Just("char[]"), Just("u16[]"), Just("cpumask_t")]
            .prop_map(|word| (format!("__data_loc {word} x"), 4)),
        Just(("__rel_loc char x[]".to_owned(), 4)),
    ]
}

proptest! {
    #[test]
    fn what_was_written_as_a_format_is_read_and_no_record_is_read_beyond(
        declared in prop::collection::vec((any_declaration(), 0usize..64, any::<bool>()), 0..12),
        raw in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let lines: Vec<_> = declared
            .iter()
            .map(|((line, size), offset, sign)| {
                format!("{line};\toffset:{offset};\tsize:{size};\tsigned:{}", u8::from(*sign))
            })
            .collect();
        let format = format(&lines.iter().map(String::as_str).collect::<Vec<_>>(), "");
        prop_assert_eq!(format.fields().len(), declared.len());
        for (field, ((line, size), offset, sign)) in format.fields().iter().zip(&declared) {
            prop_assert_eq!(&*field.declaration, line);
            prop_assert_eq!((field.offset, field.size, field.signed), (*offset, *size, *sign));
            let value = field.value(&raw);
            let fits = offset + size <= raw.len();
            let dynamic = matches!(field.kind, FieldKind::DynamicText { .. } | FieldKind::DynamicArray { .. });
            prop_assert!(value.is_none() || fits);
            prop_assert!(dynamic || value.is_some() == fits);
            if let Some(value) = value {
                prop_assert_eq!(matches!(value, Value::Bytes(_)), !field.is_number());
                prop_assert!(field.render(&value).len() <= 5 * raw.len() + 20);
            }
        }
    }

    #[test]
    fn no_text_behind_print_fmt_panics(print in r#"["%a-z\\(){}<>|&?:,0-9_ \->REC]{0,80}|("%[sdx]", )?(REC->x|__print_(flags|symbolic)\(|[(){},]|"\|"|[0-9]| \? | : |\(u8\)){0,20}"#) {
        prop_assert!(!shown(&print, 3).is_empty());
    }
}
