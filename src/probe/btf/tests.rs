//! Tests with an artificial kernel, whose layout can be verified by eye, and with the running kernel.

use proptest::prelude::*;

use super::testing::{SIGNED, Writer};
use super::*;
use crate::error::Errno;
use crate::probe::argument::{Arch, Argument};

/// Returns types of `send`, `store` and other functions.
fn kernel() -> Writer {
    let mut w = Writer::kernel();
    let int = w.int("int", 4, SIGNED);
    let long = w.int("long unsigned int", 8, 0);
    let huge = w.int("__int128", 16, SIGNED);
    let short = w.int("short unsigned int", 2, 0);
    let char = w.int("char", 1, SIGNED);
    let byte = w.int("unsigned char", 1, 0);
    let bool = w.int("_Bool", 1, 4 << 24);
    let port = w.of(Kind::Typedef, "__be16", short);
    let size = w.of(Kind::Typedef, "size_t", long);
    let u8 = w.of(Kind::Typedef, "u8", byte);
    let text = w.pointer(char);
    let constant = w.of(Kind::Const, "", byte);
    let name = w.pointer(constant);
    let bytes = w.pointer(u8);
    let tagged = w.of(Kind::TypeTag, "user", char);
    let user_text = w.pointer(tagged);
    let callback = w.record(Kind::FuncProto, "", 1, int, &[0, int]);
    let callback = w.pointer(callback);
    let state = w.record(Kind::Enum, "state", 1 << 31 | 1, 4, &[0, 1]);
    let comm = w.array(char, 16);
    let address = w.array(u8, 6);
    let words = w.array(long, 100);
    let nothing = w.pointer(0);
    let opaque = w.record(Kind::Fwd, "opaque", 0, 0, &[]);
    let opaque = w.pointer(opaque);
    let ports = w.structure("", 4, &[("dport", port, 0), ("num", short, 16)]);
    let pair = w.structure("pair", 16, &[("address", long, 0), ("", ports, 64)]);
    let per_cpu = w.of(Kind::TypeTag, "percpu", int);
    let per_cpu = w.pointer(per_cpu);
    let uid = w.structure("kuid", 4, &[("val", int, 0)]);
    let two = w.packed("two", 8, &[("low", int, 0, 0), ("high", short, 32, 0), ("flag", int, 48, 3)]);
    let common = w.structure("sock_common", 24, &[("pad", long, 0), ("", pair, 64)]);
    let bits =
        w.packed("bits", 16, &[("a", int, 0, 3), ("b", int, 3, 7), ("c", int, 30, 4), ("whole", int, 64, 0)]);
    let old_bits = w.record(Kind::Int, "int", 0, 4, &[SIGNED | 5 << 16 | 2]);
    let others = [("comm", comm), ("addr", address), ("words", words), ("state", state), ("call", callback)];
    let others: Vec<(&str, u32, u32)> =
        (0..).zip(others).map(|(place, (name, of))| (name, of, 512 + 8192 * place)).collect();
    let mut members = vec![
        ("common", common, 0),
        ("bits", bits, 192),
        ("old", old_bits, 320),
        ("name", name, 384),
        ("data", bytes, 448),
        ("percpu", per_cpu, 60_000),
    ];
    members.extend(others);
    let sock = w.structure("sock", 8000, &members);
    let constant = w.of(Kind::Const, "", sock);
    let sock = w.pointer(constant);
    let sock_typedef = w.of(Kind::Typedef, "sock_t", sock);
    w.function(
        "send",
        int,
        &[("sk", sock_typedef), ("size", size), ("ok", bool), ("path", text), ("buf", user_text)],
    );
    w.function("get", sock, &[("", int)]);
    w.function("done", 0, &[]);
    w.function("print", 0, &[("format", text), ("", 0)]);
    w.function(
        "chown",
        two,
        &[("owner", uid), ("two", two), ("pair", pair), ("mode", int), ("huge", huge), ("last", int)],
    );
    w.function("copy", 0, &[("large", common), ("last", int)]);
    let seven: Vec<(&str, u32)> =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(|name| (name, long)).to_vec();
    w.function("many", long, &seven);
    w.function("opaque", 0, &[("it", opaque), ("any", nothing), ("of", uid)]);
    w.function("twice", int, &[("a", int)]);
    w.function("twice", int, &[("b", long)]);
    w
}

/// Returns an argument resolved and formatted for the kernel.
fn resolved(btf: &Btf, function: &str, argument: &str) -> String {
    let returns = argument.contains("$retval");
    let argument = Argument::parse(argument).unwrap();
    match resolve(btf, function, returns, &argument) {
        Ok(Argument { fetch, kind: Some(kind), .. }) => format!("{fetch}:{kind}"),
        Ok(Argument { fetch, kind: None, .. }) => fetch.to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_prototype_is_as_in_the_source() {
    let btf = kernel().btf();
    for prototype in [
        "int send(sock_t sk, size_t size, _Bool ok, char *path, char __user *buf)",
        "const struct sock *get(int)",
        "void done(void)",
        "void print(char *format, ...)",
        "struct two chown(struct kuid owner, struct two two, struct pair pair, int mode, __int128 huge, int last)",
        "void opaque(struct opaque *it, void *any, struct kuid of)",
    ] {
        let name = prototype.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
        assert_eq!(btf.function(name).unwrap().to_string(), prototype);
    }
    assert_eq!(btf.functions(100).count(), 10);
    assert_eq!(btf.functions(2).map(|of| of.name).collect::<Vec<_>>(), ["send", "get"]);
}

#[test]
fn a_variable_becomes_a_fetch_of_its_type() {
    let btf = kernel().btf();
    for (function, argument, expected) in [
        ("send", "size", "$arg2:u64"),
        ("send", "ok", "$arg3:u8"),
        ("send", "sk", "$arg1:x64"),
        // A string is fetched through its pointer, from kernel or user memory.
        ("send", "path", "+0($arg4):string"),
        ("send", "buf", "+u0($arg5):string"),
        ("send", "sk->name", "+0(+48($arg1)):string"),
        ("send", "sk->comm", "+64($arg1):string"),
        // Other bytes are not text.
        ("send", "sk->data", "+56($arg1):x64"),
        ("send", "sk->addr", "+1088($arg1):u8[6]"),
        ("send", "sk->addr[5]", "+1093($arg1):u8"),
        ("send", "sk->words[99]", "+2904($arg1):u64"),
        ("send", "sk->data[2]", "+2(+56($arg1)):u8"),
        ("send", "sk->state", "+3136($arg1):s32"),
        ("send", "sk->call", "+4160($arg1):symbol"),
        // Access through anonymous structures. `.` and `->` are interchangeable.
        ("send", "sk->common.dport", "+16($arg1):u16"),
        ("send", "sk.common->num", "+18($arg1):u16"),
        ("send", "sk[2].common.address", "+16008($arg1):u64"),
        // Bit fields, in the smallest integer that contains them.
        ("send", "sk->bits.a", "+24($arg1):b3@0/8"),
        ("send", "sk->bits.b", "+24($arg1):b7@3/16"),
        ("send", "sk->bits.c", "+24($arg1):b4@30/64"),
        ("send", "sk->bits.whole", "+32($arg1):s32"),
        ("send", "sk->old", "+40($arg1):b2@5/8"),
        // Return values.
        ("send", "$retval->x", "$retval: int has no members"),
        ("get", "$retval->common.dport", "+16($retval):u16"),
        ("opaque", "any", "$arg2:x64"),
    ] {
        assert_eq!(resolved(&btf, function, argument), expected, "{function} {argument}");
    }
}

#[test]
fn a_type_that_is_given_decides() {
    let btf = kernel().btf();
    for (argument, expected) in [
        ("size:x32", "$arg2:x32"),
        ("path:x64", "$arg4:x64"),
        ("size:string", "+0($arg2):string"),
        ("sk->data:string", "+0(+56($arg1)):string"),
        ("sk->data:u8[6]", "+0(+56($arg1)):u8[6]"),
        ("path:ustring", "+0($arg4):ustring"),
        ("sk->addr:string", "+1088($arg1):string"),
        ("sk->common:x64[3]", "+0($arg1):x64[3]"),
        ("sk->common:x64", "+0($arg1):x64"),
        ("sk->state:u8", "+3136($arg1):u8"),
        // A variable inside a fetch is used as an address.
        ("x=+8(sk):u16", "+8($arg1):u16"),
        ("x=+8(sk->data):u16", "+8(+56($arg1)):u16"),
        ("x=+2(sk->addr)", "+1090($arg1)"),
        ("x=+1(+2(sk)):string", "+1(+2($arg1)):string"),
        ("x=%di:u8", "%di:u8"),
        ("sk->bits.a:u8", "sk.bits.a: is a bit field; remove the type"),
        ("ok:string", "ok: _Bool is not an address"),
    ] {
        assert_eq!(resolved(&btf, "send", argument), expected, "{argument}");
    }
}

#[test]
fn an_argument_keeps_its_name_and_its_text() {
    let btf = kernel().btf();
    let argument = Argument::parse("port=sk->common.dport").unwrap();
    let resolved = resolve(&btf, "send", false, &argument).unwrap();
    assert_eq!((resolved.name, resolved.text), (argument.name, argument.text));
    assert!(resolved.fetch.variable().is_none());
}

#[test]
fn what_cannot_be_taken_is_refused_with_what_can() {
    let btf = kernel().btf();
    for (function, argument, expected) in [
        (
            "send",
            "sk->common",
            "sk.common: is a struct sock_common; specify a member, such as pad, address, dport, num",
        ),
        (
            "send",
            "sk->words",
            "sk.words: is an array of 100 long unsigned int; specify an element, such as [0]",
        ),
        ("send", "sk->addr[6]", "sk.addr: has only 6 elements"),
        ("send", "size->x", "size: size_t has no members"),
        ("send", "size[1]", "size: size_t has no elements"),
        ("send", "sk->percpu[0]", "sk.percpu: points to per-CPU data, which a probe cannot follow"),
        (
            "send",
            "siz",
            "no parameter siz in int send(sock_t sk, size_t size, _Bool ok, char *path, char __user *buf)",
        ),
        ("send", "sk->common.dprot", "struct sock_common has no member dprot; did you mean dport?"),
        (
            "send",
            "sk->horse",
            "struct sock has no member horse; its members are common, bits, old, name, data, percpu, comm, addr",
        ),
        ("opaque", "it->x", "it: the members of struct opaque are unknown"),
        ("opaque", "any->x", "any: void has no members"),
        ("opaque", "any[1]", "any: the size of void is unknown"),
        ("done", "$retval.x", "$retval: void has no members"),
        ("chown", "$retval.horse", "struct two has no member horse; its members are low, high, flag"),
        ("twice", "a", "several functions named twice have different parameters"),
        ("sned", "a", "the kernel's type information has no function sned; did you mean send?"),
        (
            "send.isra.0",
            "sk",
            "the kernel's type information has no function send.isra.0: the compiler changed its parameters",
        ),
    ] {
        let message = resolved(&btf, function, argument);
        assert!(message.starts_with(expected), "{function} {argument}: {message}");
    }
    let at_entry = Argument::parse("$retval->low").unwrap();
    let message = resolve(&btf, "chown", false, &at_entry).unwrap_err().to_string();
    assert_eq!(message, "$retval: not available at the function's entry; probe its return");
    let at_return = Argument::parse("sk").unwrap();
    let message = resolve(&btf, "send", true, &at_return).unwrap_err().to_string();
    assert_eq!(message, "sk: not available at the function's return; use $retval");
}

/// `$argN` counts registers, and a structure may take several.
#[test]
fn structures_that_are_passed_by_value_take_the_registers_that_they_need() {
    let btf = kernel().btf();
    let register = |function: &str, name: &str, arch| {
        let found = resolve::parameter(btf.find(function).unwrap(), name, arch);
        found.map_or_else(|error| error.to_string(), |(_, fetch)| fetch.to_string())
    };
    let by_value = |what: &str| format!("{what} is passed by value, but not in one register");
    let (x86, arm) = (Arch::X86_64, Arch::Aarch64);
    for (function, name, arch, expected) in [
        ("chown", "owner", x86, "$arg1"),
        ("chown", "two", x86, "$arg2"),
        ("chown", "pair", x86, &by_value("pair: struct pair")),
        ("chown", "mode", x86, "$arg5"),
        // It needs two registers, but only one is left. The next argument that fits uses that register.
        ("chown", "huge", x86, &by_value("huge: __int128")),
        ("chown", "last", x86, "$arg6"),
        ("chown", "mode", arm, "$arg5"),
        // It takes the seventh and the eighth register, because it begins at an even one, counted from 0.
        ("chown", "last", arm, "last: is passed on the stack, because only 8 arguments have registers"),
        ("many", "f", x86, "$arg6"),
        ("many", "g", x86, "g: is passed on the stack, because only 6 arguments have registers"),
        ("many", "h", arm, "$arg8"),
        ("many", "i", arm, "i: is passed on the stack, because only 8 arguments have registers"),
        // A large structure is copied to the stack on x86-64. arm64 passes the address of the copy in a register.
        ("copy", "last", x86, "$arg1"),
        ("copy", "last", arm, "$arg2"),
    ] {
        assert_eq!(register(function, name, arch), expected, "{function} {name} {arch:?}");
    }
}

#[test]
fn members_of_a_structure_in_a_register_are_bits_of_it() {
    let btf = kernel().btf();
    for (argument, expected) in [
        ("owner.val", "$arg1:s32"),
        ("two.low", "$arg2:s32"),
        ("two.high", "$arg2:b16@32/64"),
        ("two.flag", "$arg2:b3@48/64"),
        ("two.high:u16", "two.high: is part of $arg2; remove the type"),
        ("two", "two: is a struct two; specify a member, such as low, high, flag"),
        ("$retval->high", "$retval:b16@32/64"),
    ] {
        assert_eq!(resolved(&btf, "chown", argument), expected, "{argument}");
    }
}

#[test]
fn a_module_has_its_own_functions_and_the_types_of_the_kernel() {
    let base = Arc::new(kernel().btf());
    let mut module = Writer::module(&base);
    let sock = (1..).find(|&id| base.get(id).unwrap().is_named("sock")).unwrap();
    let sock = module.pointer(sock);
    let own = module.structure("own", 16, &[("sk", sock, 64)]);
    let own = module.pointer(own);
    module.function("own_send", 0, &[("own", own)]);
    let btf = module.on(&base);
    assert_eq!(resolved(&btf, "own_send", "own->sk->common.dport"), "+16(+8($arg1)):u16");
    assert_eq!(
        btf.functions(100).map(|of| of.to_string()).collect::<Vec<_>>(),
        ["void own_send(struct own *own)"]
    );
    // The kernel's functions are available too.
    assert_eq!(resolved(&btf, "send", "sk->common.dport"), "+16($arg1):u16");
    assert!(Writer::module(&base).on(&base).function("send").is_ok());
}

#[test]
fn types_that_refer_to_each_other_in_a_circle_end() {
    let mut w = Writer::kernel();
    w.of(Kind::Typedef, "loop", 1);
    w.pointer(2);
    w.structure("self", 8, &[("", 3, 0), ("x", 1, 0)]);
    let outer = w.pointer(3);
    w.array(5, 1);
    w.function("f", 1, &[("a", 1)]);
    w.function("g", 0, &[("p", 2), ("s", outer), ("v", 5)]);
    let btf = w.btf();
    assert_eq!(btf.function("f").unwrap().to_string(), "loop f(loop a)");
    assert!(matches!(btf.function("g"), Err(BtfError::Broken { .. })));
    // A pointer to itself is still a pointer.
    assert_eq!(resolved(&btf, "g", "p[1]"), "+8($arg1):x64");
    for argument in ["p->x", "s->y", "s->x", "v", "v[1]"] {
        assert!(resolved(&btf, "g", argument).starts_with("broken BTF"), "{argument}");
    }
}

/// Nested structures, each several times in the next: the number of paths is exponential.
#[test]
fn a_structure_of_too_many_members_is_broken() {
    let mut w = Writer::kernel();
    let int = w.int("int", 4, 0);
    let mut inner = w.structure("", 4, &[("x", int, 0)]);
    for _ in 0..15 {
        inner = w.structure("", 4, &[("", inner, 0); 4]);
    }
    let outer = w.structure("outer", 4, &[("", inner, 0)]);
    let outer = w.pointer(outer);
    w.function("f", 0, &[("p", outer)]);
    let message = resolved(&w.btf(), "f", "p->y");
    assert!(message.ends_with("a structure has too many members"), "{message}");
}

#[test]
fn a_file_that_is_cut_off_or_of_something_else_is_broken() {
    let whole = kernel().bytes();
    for len in 0..whole.len() {
        assert!(
            matches!(Btf::parse(whole[..len].to_vec(), None), Err(BtfError::Broken { .. })),
            "{len} bytes"
        );
    }
    for (at, what) in [(0, "magic"), (2, "version"), (31, "unknown kind")] {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x7f;
        let message = Btf::parse(bytes, None).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    }
    let mut swapped = whole.clone();
    swapped.swap(0, 1);
    assert!(Btf::parse(swapped, None).unwrap_err().to_string().contains("byte order"));
}

#[test]
fn no_types_no_module_and_no_permission_are_three_answers() {
    let dir = tempfile::tempdir().unwrap();
    let roots = Roots::under(dir.path());
    let error = Btf::load(&roots, None).unwrap_err();
    assert!(matches!(error, BtfError::Absent(_)));
    assert!(error.to_string().contains("CONFIG_DEBUG_INFO_BTF"), "{error}");
    let files = dir.path().join("sys/kernel/btf");
    std::fs::create_dir_all(&files).unwrap();
    std::fs::write(files.join("vmlinux"), kernel().bytes()).unwrap();
    assert!(Btf::load(&roots, None).is_ok());
    for module in ["nf_tables", "../vmlinux", "", "."] {
        assert_eq!(
            Btf::load(&roots, Some(module)).unwrap_err(),
            BtfError::NoModule { module: module.into() }
        );
    }
    // Both kinds of dashes are accepted in module names.
    let base = kernel().btf();
    std::fs::write(files.join("nf_tables"), Writer::module(&base).bytes()).unwrap();
    assert!(Btf::load(&roots, Some("nf-tables")).is_ok());
    std::fs::write(files.join("vmlinux"), "BTF").unwrap();
    let message = Btf::load(&roots, None).unwrap_err().to_string();
    assert!(message.ends_with("sys/kernel/btf/vmlinux: broken BTF at byte 3: truncated header"), "{message}");
    let forbidden = FileError::io("/b", &std::io::Error::from_raw_os_error(Errno::EPERM.0));
    assert!(matches!(BtfError::from(forbidden), BtfError::Forbidden(_)));
}

#[test]
fn the_running_kernel_tells_what_its_functions_take() {
    let btf = match Btf::load(&Roots::default(), None) {
        Ok(btf) => btf,
        Err(absent @ BtfError::Absent(_)) => return println!("skipped: {absent}"),
        Err(error) => panic!("{error}"),
    };
    assert!(btf.functions(usize::MAX).count() > 1000);
    let send = btf.function("tcp_sendmsg").unwrap();
    assert_eq!(send.to_string(), "int tcp_sendmsg(struct sock *sk, struct msghdr *msg, size_t size)");
    for (argument, expected) in [
        ("size", "$arg3:u64"),
        // These members are at the start of the structure, which is optimized for socket lookups.
        ("sk->__sk_common.skc_dport", "+12($arg1):u16"),
        ("sk->__sk_common.skc_daddr", "+0($arg1):u32"),
        ("sk->__sk_common.skc_family", "+16($arg1):u16"),
    ] {
        assert_eq!(resolved(&btf, "tcp_sendmsg", argument), expected);
    }
    // A file name, through two pointers and two structures.
    let name = resolved(&btf, "vfs_read", "file->f_path.dentry->d_name.name");
    assert!(name.starts_with("+0(+") && name.ends_with("($arg1))):string"), "{name}");
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes: Vec<u8>) {
        if let Ok(btf) = Btf::parse(bytes, None) {
            prop_assert!(btf.function("send").is_err(), "by chance");
        }
    }

    /// A valid kernel with some bytes changed reaches code that random bytes do not.
    #[test]
    fn no_change_of_a_file_panics(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = kernel().bytes();
        for (at, byte) in changes {
            let at = 24 + at.index(bytes.len() - 24);
            bytes[at] = byte;
        }
        if let Ok(btf) = Btf::parse(bytes, None) {
            prop_assert!(btf.functions(5).count() <= 5);
            for function in ["send", "chown", "get"] {
                for argument in ["sk->common.dport", "two.high", "$retval->bits.c", "sk->words[3]", "path", "sk->call"] {
                    resolved(&btf, function, argument);
                }
            }
        }
    }
}
