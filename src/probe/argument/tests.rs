use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Argument {
    Argument::parse(text).unwrap_or_else(|error| panic!("{error:#}"))
}

fn reg(name: &'static str) -> Fetch {
    Fetch::Register(Register::known(name))
}

fn deref(offset: i64, of: Fetch) -> Fetch {
    Fetch::Deref { user: false, offset, of: Box::new(of) }
}

fn member(name: &str, arrow: bool) -> Step {
    Step::Member { name: name.into(), arrow }
}

#[test]
fn every_fetch_of_the_kernel_is_read() {
    for (text, fetch) in [
        ("%di", reg("di")),
        ("%rdi", reg("di")),
        ("%x0", reg("x0")),
        ("$arg1", Fetch::Argument(1)),
        ("$retval", Fetch::Return),
        ("$stack", Fetch::Stack(None)),
        ("$stack0", Fetch::Stack(Some(0))),
        ("$comm", Fetch::Comm),
        ("\\-5", Fetch::Immediate(-5)),
        ("\\0xff", Fetch::Immediate(255)),
        ("\\18446744073709551615", Fetch::Immediate(-1)),
        ("@0xffffffff81000000", Fetch::Address(0xffff_ffff_8100_0000)),
        ("@jiffies", Fetch::Symbol { name: "jiffies".into(), offset: 0 }),
        ("@jiffies-8", Fetch::Symbol { name: "jiffies".into(), offset: -8 }),
        ("@+0x10", Fetch::FileOffset(16)),
        ("+0x8(%di)", deref(8, reg("di"))),
        ("-8($stack3)", deref(-8, Fetch::Stack(Some(3)))),
        ("+u4(%si)", Fetch::Deref { user: true, offset: 4, of: Box::new(reg("si")) }),
        ("+0(+8(%dx))", deref(0, deref(8, reg("dx")))),
    ] {
        assert_eq!(parse(text).fetch, fetch, "{text}");
    }
}

#[test]
fn variables_are_read_with_the_way_to_their_member() {
    let Fetch::Variable(variable) = parse("sk->__sk_common.skc_dport").fetch else { panic!() };
    assert_eq!(&*variable.base, "sk");
    assert_eq!(variable.path, [member("__sk_common", true), member("skc_dport", false)]);
    let Fetch::Variable(variable) = parse("$retval->table[3].x").fetch else { panic!() };
    assert_eq!(&*variable.base, "$retval");
    assert_eq!(variable.path, [member("table", true), Step::Index(3), member("x", false)]);
    let size = parse("size");
    assert_eq!(size.fetch, Fetch::Variable(Variable { base: "size".into(), path: vec![] }));
}

#[test]
fn every_type_of_the_kernel_is_read() {
    for (text, element, count) in [
        ("u8", Element::Unsigned(Width::W8), None),
        ("s32", Element::Signed(Width::W32), None),
        ("x64", Element::Hex(Width::W64), None),
        ("char", Element::Char, None),
        ("string", Element::String, None),
        ("ustring", Element::UserString, None),
        ("symbol", Element::Symbol, None),
        ("symstr", Element::SymbolString, None),
        ("b4@8/32", Element::Bits { width: 4, offset: 8, container: Width::W32 }, None),
        ("u32[4]", Element::Unsigned(Width::W32), Some(4)),
        ("string[64]", Element::String, Some(64)),
    ] {
        assert_eq!(parse(&format!("+0(%di):{text}")).kind, Some(FetchType { element, count }), "{text}");
    }
}

#[test]
fn an_argument_without_a_name_is_called_by_its_member_or_its_place() {
    for (text, name) in [
        ("n=%di", "n"),
        ("%di", "arg3"),
        ("$retval", "arg3"),
        ("size", "size"),
        ("msg->msg_iter.count:u64", "count"),
        ("sk->ports[1]", "ports"),
        ("+0(sk)", "arg3"),
        ("task->common_pid", "arg3"),
    ] {
        assert_eq!(&*Argument::parse_nth(text, 3).unwrap().name, name, "{text}");
    }
}

#[test]
fn what_the_kernel_would_refuse_is_refused_at_its_place() {
    for (text, at, message) in [
        ("", 0, "the value of the argument is missing"),
        ("a=", 2, "the value of the argument is missing"),
        ("a b=%di", 1, "spaces are not allowed in an argument"),
        ("9a=%di", 0, "invalid field name"),
        ("common_pid=%di", 0, "this field name is reserved"),
        ("a=%", 3, "not a register"),
        ("$arg0", 0, "unknown variable $arg0"),
        ("$arg256", 0, "unknown variable $arg256"),
        ("$params", 0, "unknown variable $params"),
        ("+0($comm)", 3, "$comm is a string, not an address"),
        ("$comm:u8", 5, "$comm is always a string"),
        ("+8", 2, "the base of the offset is missing"),
        ("+8(%di", 6, "the parenthesis is not closed"),
        ("+010(%di)", 1, "the kernel parses a number with a leading 0 as octal"),
        ("+9223372036854775808(%di)", 1, "the offset exceeds 63 bits"),
        ("%di:u33", 4, "unknown type"),
        ("%di:b4@30/32", 4, "unknown type"),
        ("+0(%di):u8[65]", 10, "unsupported array size"),
        ("+0(%di):u8[0]", 10, "unsupported array size"),
        ("$retval:string", 0, "a string requires a memory address, but this is a value"),
        ("a=%di:u32[4]", 2, "an array requires a memory address, but this is a value"),
        ("sk->", 4, "a member name is missing"),
        ("%di,%si", 3, "unexpected text after the argument"),
        ("@", 1, "an address or a symbol is missing"),
        ("@$arg9", 1, "an address or a symbol is missing"),
        ("é", 0, "invalid argument value"),
    ] {
        let error = Argument::parse(text).unwrap_err();
        assert_eq!((error.at, &*error.message), (at, message), "{text}");
    }
}

#[test]
fn a_value_that_is_used_as_a_string_is_explained_with_what_was_meant() {
    let error = Argument::parse("name=%di:string").unwrap_err();
    assert_eq!(
        error.to_string(),
        "a string requires a memory address, but this is a value, at \"%di:string\": if the value is an address, write \
         +0(%di):string"
    );
    let error = Argument::parse("a=%di:sting").unwrap_err();
    assert_eq!(format!("{error:#}"), "unknown type\n  a=%di:sting\n        ^ did you mean string?");
}

#[test]
fn as_many_pointers_are_followed_as_the_kernel_follows() {
    let nested = |depth: usize| format!("a={}%di{}", "+0(".repeat(depth), ")".repeat(depth));
    assert!(Argument::parse(&nested(14)).is_ok());
    assert_eq!(&*Argument::parse(&nested(15)).unwrap_err().message, "nested too deeply");
}

#[test]
fn the_kernel_is_told_what_it_knows_at_each_site() {
    use Arch::{Aarch64, X86_64};
    for (text, site, machine, told) in [
        ("size=%rdi:u64", Site::User, X86_64, "size=%di:u64"),
        ("n=$arg1", Site::Kernel, X86_64, "n=$arg1"),
        ("n=$arg1", Site::User, X86_64, "n=%di"),
        ("n=$arg6", Site::User, X86_64, "n=%r9"),
        ("n=$arg7", Site::User, X86_64, "n=$stack1"),
        ("n=$arg1", Site::User, Aarch64, "n=%x0"),
        ("n=$arg8", Site::User, Aarch64, "n=%x7"),
        ("n=$arg9", Site::User, Aarch64, "n=$stack0"),
        ("s=+0x8($arg2):string", Site::User, X86_64, "s=+8(%si):string"),
        ("c=$comm", Site::User, Arch::Other, "c=$comm"),
        ("j=@jiffies+8:u32", Site::Kernel, X86_64, "j=@jiffies+8:u32"),
        ("r=%r3", Site::Kernel, Arch::Other, "r=%r3"),
    ] {
        assert_eq!(fetch_text(&parse(text), site, machine).unwrap(), told, "{text}");
    }
}

#[test]
fn what_cannot_be_taken_at_a_site_is_refused_with_what_could() {
    use Arch::{Aarch64, X86_64};
    for (text, site, machine, complaint) in [
        ("%edi", Site::User, X86_64, "write %di with a type such as :u32"),
        ("%dii", Site::User, X86_64, "did you mean %di?"),
        ("%x0", Site::Kernel, X86_64, "no register %x0 on x86-64"),
        ("%di", Site::Kernel, Aarch64, "no register %di on arm64"),
        ("@jiffies", Site::User, X86_64, "is a kernel symbol"),
        ("@+8", Site::Kernel, X86_64, "valid only for a probe in a program"),
        ("%di:symbol", Site::User, X86_64, "use x64 instead"),
        ("sk->sk_family", Site::Kernel, X86_64, "CONFIG_DEBUG_INFO_BTF"),
        ("+8(size)", Site::User, X86_64, "for a program, write the location"),
        ("$arg1", Site::User, Arch::Other, "write the register"),
        (
            &format!("a={}%di{}:u64", "+1000(".repeat(9), ")".repeat(9)),
            Site::User,
            X86_64,
            "the kernel's limit of 63",
        ),
    ] {
        let error = fetch_text(&parse(text), site, machine).unwrap_err().to_string();
        assert!(error.contains(complaint), "{text}: {error}");
    }
}

#[test]
fn the_arguments_of_a_marker_are_read_with_their_types() {
    let told = |list: &str, machine| -> Vec<String> {
        let tell = |argument: &Argument| fetch_text(argument, Site::User, machine).unwrap();
        usdt(list, machine).iter().map(|argument| tell(argument.as_ref().unwrap())).collect()
    };
    assert_eq!(
        told("-4@%edi 8@-8(%rbp) 8@$5 -4@$-1 1@%dil 2@(%rax) 4@0x10(%r12) -8@%r8", Arch::X86_64),
        [
            "arg1=%di:s32",
            "arg2=-8(%bp):u64",
            "arg3=\\5:u64",
            "arg4=\\-1:s32",
            "arg5=%di:u8",
            "arg6=+0(%ax):u16",
            "arg7=+16(%r12):u32",
            "arg8=%r8:s64",
        ]
    );
    assert_eq!(
        told("-8@x3 4@[sp, 12] 8@[x0] -4@5 4@w2 8@[x29,-16]", Arch::Aarch64),
        [
            "arg1=%x3:s64",
            "arg2=+12(%sp):u32",
            "arg3=+0(%x0):u64",
            "arg4=\\5:s32",
            "arg5=%x2:u32",
            "arg6=-16(%x29):u64",
        ]
    );
    assert_eq!(told("%rax $3", Arch::X86_64), ["arg1=%ax:u64", "arg2=\\3:u64"]);
    assert!(usdt("", Arch::X86_64).is_empty());
}

#[test]
fn arguments_of_a_marker_that_cannot_be_taken_are_refused_one_by_one() {
    let read =
        usdt("8@%rdi -4@8(%rax,%rbx,4) 8f@%xmm0 8@foo(%rip) 8@%fs:16 1@%ah 8@$foo 4@%esi", Arch::X86_64);
    let complaints: Vec<_> =
        read.iter().map(|read| read.as_ref().err().map(|error| &*error.message)).collect();
    assert_eq!(
        complaints,
        [
            None,
            Some("the kernel does not support indexed addresses"),
            Some("floating-point arguments are not supported"),
            Some("the address of this operand is relative to the code"),
            Some("the address of this operand is unknown before the program runs"),
            Some("the kernel does not support the register ah"),
            Some("this constant is a link-time symbol"),
            None,
        ]
    );
    let read = usdt("8@[x0, x1, lsl 3] 8@[x0], 8 8@x1", Arch::Aarch64);
    let taken: Vec<_> = read.iter().map(Result::is_ok).collect();
    assert_eq!(taken, [false, false, true]);
}

#[test]
fn at_a_marker_an_argument_is_the_markers() {
    let usdt = usdt("8@-8(%rbp) -4@%esi 8f@%xmm0", Arch::X86_64);
    let told = |text: &str| match parse(text).at_usdt_probe(&usdt) {
        Ok(argument) => fetch_text(&argument, Site::User, Arch::X86_64).unwrap(),
        Err(error) => error.to_string(),
    };
    assert_eq!(told("query=+0($arg1):string"), "query=+0(-8(%bp)):string");
    assert_eq!(told("n=$arg2"), "n=%si:s32");
    assert_eq!(told("n=$arg2:u8"), "n=%si:u8");
    assert_eq!(told("ip=%ip"), "ip=%ip");
    assert!(told("x=+0($arg2)").contains("less than 64 bits"));
    assert!(told("x=$arg3").contains("$arg3 is \"8f@%xmm0\""));
    assert!(told("x=$arg4").contains("the probe has $arg1 to $arg3"));
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        ("[a-z_][a-z0-9_]{0,9}", any::<bool>())
            .prop_map(|(name, arrow)| Step::Member { name: name.into(), arrow }),
        any::<u32>().prop_map(Step::Index),
    ]
}

fn any_fetch() -> impl Strategy<Value = Fetch> {
    let name = || "[a-z_][a-z0-9_]{0,9}";
    let leaf = prop_oneof![
        prop::sample::select(Arch::X86_64.registers()).prop_map(reg),
        (1..=u8::MAX).prop_map(Fetch::Argument),
        Just(Fetch::Return),
        any::<Option<u16>>().prop_map(Fetch::Stack),
        any::<i64>().prop_map(Fetch::Immediate),
        any::<u64>().prop_map(Fetch::Address),
        any::<u64>().prop_map(Fetch::FileOffset),
        (name(), any::<i64>()).prop_map(|(name, offset)| Fetch::Symbol { name: name.into(), offset }),
        (name(), prop::collection::vec(any_step(), 0..5))
            .prop_map(|(base, path)| Fetch::Variable(Variable { base: base.into(), path })),
    ];
    leaf.prop_recursive(8, 8, 1, |inner| {
        (any::<bool>(), any::<i64>(), inner).prop_map(|(user, offset, of)| Fetch::Deref {
            user,
            offset,
            of: Box::new(of),
        })
    })
}

fn any_kind() -> impl Strategy<Value = FetchType> {
    let width = || prop::sample::select(vec![Width::W8, Width::W16, Width::W32, Width::W64]);
    let bits = (width(), 1..=64_u8, 0..64_u8).prop_map(|(container, width, offset)| {
        let width = width.min(container.bits());
        Element::Bits { width, offset: offset.min(container.bits() - width), container }
    });
    let element = prop_oneof![
        width().prop_map(Element::Unsigned),
        width().prop_map(Element::Signed),
        width().prop_map(Element::Hex),
        Just(Element::Char),
        Just(Element::Symbol),
        bits,
    ];
    element.prop_map(FetchType::from)
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        name in "[a-z][a-z0-9_]{0,31}",
        fetch in any_fetch(),
        kind in prop::option::of(any_kind()),
    ) {
        let written = Argument { name: name.into(), fetch, kind, text: "".into() };
        let text = written.to_string();
        let read = Argument::parse(&text).unwrap();
        prop_assert_eq!(read, Argument { text: text.into(), ..written });
    }

    #[test]
    fn any_text_is_an_argument_or_an_error_within_it(text in "\\PC{0,40}|[%$@+\\-u(): =a-z0-9\\[\\].>/\\\\]{0,60}") {
        match Argument::parse(&text) {
            Ok(argument) => {
                let text = argument.to_string();
                let again = Argument::parse(&text).unwrap();
                prop_assert_eq!((again.fetch, again.kind), (argument.fetch, argument.kind));
            }
            Err(error) => prop_assert!(error.at <= text.len()),
        }
        for machine in [Arch::X86_64, Arch::Aarch64, Arch::Other] {
            prop_assert!(usdt(&text, machine).len() <= 64);
        }
    }
}
