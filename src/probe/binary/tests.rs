//! Tests with programs built by gcc, compared with the output of `nm` and `readelf`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;

use super::*;

/// A directory for the files that a test builds.
struct BuildDir(tempfile::TempDir);

impl BuildDir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Builds a program or library from C.
    fn build(&self, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
        let (path, code) = (self.0.path().join(name), self.0.path().join(format!("{name}.c")));
        fs::write(&code, source).unwrap();
        let status = Command::new("gcc").arg("-o").arg(&path).arg(&code).args(arguments).status().unwrap();
        assert!(status.success(), "gcc {name}");
        path
    }
}

fn open(path: &Path) -> Result<Binary<'static>, BinaryError> {
    Binary::read(File::open(path).unwrap(), path)
}

/// Returns the output of a tool. `None` if the tool is missing.
fn output(tool: &str, arguments: &[&str], path: &Path) -> Option<String> {
    let output = Command::new(tool).args(arguments).arg(path).env("LC_ALL", "C").output();
    let Ok(output) = output else {
        eprintln!("skipped: {tool} is not installed");
        return None;
    };
    Some(String::from_utf8(output.stdout).unwrap())
}

/// Returns the names and addresses of functions (types `t`, `T`, `w`, `W`) from `nm`.
fn by_nm(path: &Path, arguments: &[&str]) -> Option<BTreeSet<(String, u64)>> {
    let text = output("nm", arguments, path)?;
    let functions = text.lines().filter_map(|line| {
        let [address, kind, name] = line.split_whitespace().collect::<Vec<_>>()[..] else { return None };
        "tTwW".contains(kind).then(|| (name.to_owned(), u64::from_str_radix(address, 16).unwrap()))
    });
    Some(functions.collect())
}

const PROGRAM: &str = r#"
    __attribute__((noinline)) int work(int n) { return n * 2 + 1; }
    __attribute__((noinline)) static int hidden(int n) { return work(n) + 3; }
    int table[4] = {1, 2, 3, 4};
    int main(int argc, char **argv) { return hidden(argc) + table[argc & 3]; }
"#;

#[test]
fn functions_are_where_nm_and_the_segments_say() {
    let build_dir = BuildDir::new();
    for (name, arguments, base) in
        [("pie", ["-pie", "-fPIE"], 0), ("fixed", ["-no-pie", "-fno-pie"], 0x40_0000)]
    {
        let path = build_dir.build(name, PROGRAM, &arguments);
        let binary = open(&path).unwrap();
        for function in ["main", "work", "hidden"] {
            let symbol = binary.symbol(function).unwrap();
            assert_eq!(&*symbol.name, function);
            assert!(symbol.size > 0);
            assert_eq!(binary.check_offset(symbol.offset), Ok(()));
            // These programs are so small that the linker places everything at its file offset plus the base address.
            if let Some(functions) = by_nm(&path, &[]) {
                assert!(
                    functions.contains(&(function.to_owned(), symbol.offset + base)),
                    "{name} {function}"
                );
            }
        }
    }
}

#[test]
fn what_is_listed_is_what_nm_lists_and_each_is_found_by_its_name() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", PROGRAM, &[]);
    let binary = open(&path).unwrap();
    let functions = binary.functions(1000).unwrap();
    assert!(functions.is_sorted());
    for function in &functions {
        assert_eq!(binary.symbol(&function.name).as_ref(), Ok(function));
    }
    let listed: BTreeSet<_> =
        functions.iter().map(|symbol| (symbol.name.to_string(), symbol.offset)).collect();
    for function in ["main", "work", "hidden"] {
        assert!(listed.iter().any(|(name, _)| name == function));
    }
    if let Some(functions) = by_nm(&path, &[]) {
        assert_eq!(listed.difference(&functions).next(), None);
    }
    let error = binary.functions(2).unwrap_err().to_string();
    assert!(error.ends_with("program exceeds the limit of 2 functions"), "{error}");
}

/// Code at addresses that differ from its file offsets.
#[test]
fn an_address_becomes_an_offset_through_the_segment_that_it_is_in() {
    let build_dir = BuildDir::new();
    let arguments = ["-no-pie", "-Wl,-Ttext-segment=0x10000000", "-Wl,-z,separate-code"];
    let path = build_dir.build("moved", PROGRAM, &arguments);
    let offset = open(&path).unwrap().symbol("work").unwrap().offset;
    if let Some(functions) = by_nm(&path, &[]) {
        assert!(functions.contains(&("work".to_owned(), offset + 0x1000_0000)));
    }
    // The bytes belong to the function: they equal those of a program that was linked to another address.
    let there = open(&build_dir.build("here", PROGRAM, &["-no-pie"])).unwrap().symbol("work").unwrap();
    let code = |name: &str, from: u64| {
        let bytes = crate::host::read(&build_dir.0.path().join(name)).unwrap();
        let (from, size) = (usize::try_from(from).unwrap(), usize::try_from(there.size).unwrap());
        bytes[from..from + size].to_vec()
    };
    assert_eq!(code("moved", offset), code("here", there.offset));
}

#[test]
fn variables_are_where_their_bytes_are() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", PROGRAM, &[]);
    let content = crate::host::read(&path).unwrap();
    let table: Vec<u8> = (1..=4u32).flat_map(u32::to_le_bytes).collect();
    let at = content.windows(table.len()).position(|bytes| bytes == table).unwrap() as u64;
    let binary = open(&path).unwrap();
    let main = binary.symbol("main").unwrap().offset;
    let object = |name: &str, offset, is_function| Some(Object { name: name.into(), offset, is_function });
    let expected = [object("table", 8, false), object("main", 1, true), object("table", 0, false), None];
    let places = [at + 8, main + 1, at, 0];
    assert_eq!(binary.objects(&binary, &places).unwrap(), expected);
    let bare = build_dir.0.path().join("bare");
    let status = Command::new("objcopy").arg("--strip-all").args([&path, &bare]).status().unwrap();
    assert!(status.success());
    let bare = open(&bare).unwrap();
    assert_eq!(bare.objects(&bare, &places).unwrap(), [None, None, None, None]);
    assert_eq!(bare.objects(&binary, &places).unwrap(), expected);
    assert_eq!(bare.with_names_of(binary).symbol("main").unwrap().offset, main);
}

#[test]
fn what_is_no_function_is_refused_by_what_it_is() {
    let build_dir = BuildDir::new();
    let source = r#"
        #include <stdlib.h>
        int table[4];
        __asm__(".text\n.globl label\nlabel: nop\nret\n");
        static void choice_one(void) {}
        static void choice_two(void) {}
        static void (*chosen(void))(void) { return rand() ? choice_one : choice_two; }
        void choice(void) __attribute__((ifunc("chosen")));
        int main(void) { choice(); return table[rand() & 3]; }
    "#;
    let path = build_dir.build("program", source, &[]);
    let binary = open(&path).unwrap();
    let told = |name: &str| binary.symbol(name).unwrap_err().to_string().replace(path.to_str().unwrap(), "X");
    assert_eq!(told("table"), "X defines table as data, not as a function");
    assert!(
        told("label")
            .starts_with("X defines label as a label without a type, not as a function: if it is code, ")
    );
    assert!(told("choice").starts_with("X selects an implementation of choice at program start (ifunc)"));
    assert!(told("rand").starts_with("X only imports rand, which is in a shared library"));
    assert_eq!(told("mian"), "X has no function mian; similar names: main");
    assert_eq!(told("nothing_like_it"), "X has no function nothing_like_it");
    assert_eq!(told("\u{1b}[2J"), "X has no function \\u{1b}[2J");
    let Err(BinaryError::NotFunction { offset: Some(offset), .. }) = binary.symbol("label") else { panic!() };
    assert_eq!(binary.check_offset(offset), Ok(()));
    assert!(binary.functions(1000).unwrap().iter().all(|function| &*function.name != "choice"));
}

/// Two files with a static function of the same name, one of them with an alias.
#[test]
fn several_functions_of_a_name_are_one_only_at_one_place() {
    let build_dir = BuildDir::new();
    let other = r#"
        __attribute__((noinline)) static int same(int n) { return n - 7; }
        int other(int n) { return same(n); }
        int original(int n) { return n; }
        int alias(int n) __attribute__((alias("original")));
    "#;
    let other = build_dir.build("other.o", other, &["-c"]);
    let source = r#"
        int other(int);
        __attribute__((noinline)) static int same(int n) { return n + 7; }
        int main(int argc, char **argv) { return same(argc) + other(argc); }
    "#;
    let path = build_dir.build("program", source, &[other.to_str().unwrap()]);
    let binary = open(&path).unwrap();
    let Err(BinaryError::Ambiguous { count: 2, offsets, .. }) = binary.symbol("same") else { panic!() };
    let listed = binary.functions(1000).unwrap();
    let same = listed.iter().filter(|function| &*function.name == "same").map(|function| function.offset);
    assert_eq!(same.collect::<Vec<_>>(), offsets);
    let error = binary.symbol("same").unwrap_err().to_string();
    assert!(error.ends_with(&format!("{:#x} or {:#x}", offsets[0], offsets[1])), "{error}");
    assert_eq!(binary.symbol("alias").unwrap().offset, binary.symbol("original").unwrap().offset);
}

#[test]
fn a_stripped_file_has_what_it_exports_and_says_what_would_help() {
    let build_dir = BuildDir::new();
    let arguments = ["-shared", "-fPIC", "-s", "-Wl,--build-id=0x0123abcd"];
    let path = build_dir.build("lib.so", &PROGRAM.replace("main", "exported"), &arguments);
    let binary = open(&path).unwrap();
    let exported = binary.symbol("exported").unwrap();
    assert_eq!(binary.check_offset(exported.offset), Ok(()));
    let Err(BinaryError::NoFunction { stripped, .. }) = binary.symbol("hidden") else { panic!() };
    let expected = DebugFile { build_id: Some("0123abcd".to_owned()), name: None };
    assert_eq!(stripped.as_deref(), Some(&expected));
    let error = binary.symbol("hidden").unwrap_err().to_string();
    assert!(
        error.contains("it is stripped") && error.contains("(/usr/lib/debug/.build-id/01/23abcd.debug)"),
        "{error}"
    );
    let names: Vec<_> = binary.functions(100).unwrap().into_iter().map(|symbol| symbol.name).collect();
    assert!(names.iter().any(|name| &**name == "exported") && names.iter().all(|name| &**name != "hidden"));
}

#[test]
fn of_several_versions_the_default_is_meant_and_each_can_be_named() {
    let build_dir = BuildDir::new();
    let source = r#"
        __asm__(".symver old,call@LIB_1");
        __asm__(".symver new,call@@LIB_2");
        int old(int n) { return n + 1; }
        int new(int n) { return n + 2; }
        int plain(int n) { return n; }
    "#;
    let script = build_dir.0.path().join("versions");
    fs::write(&script, "LIB_1 { global: call; plain; local: *; };\nLIB_2 { global: call; } LIB_1;\n")
        .unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    // Without `.symtab` the versions are in separate tables. With it, they are part of the names.
    for (name, strip) in [("stripped.so", "-s"), ("whole.so", "-g0")] {
        let path = build_dir.build(name, source, &["-shared", "-fPIC", strip, &script]);
        let binary = open(&path).unwrap();
        let (old, new) = (binary.symbol("call@LIB_1").unwrap(), binary.symbol("call@@LIB_2").unwrap());
        assert_ne!(old.offset, new.offset, "{name}");
        assert_eq!((&*old.name, &*new.name), ("call@LIB_1", "call"));
        assert_eq!(binary.symbol("call"), Ok(new.clone()));
        assert_eq!(binary.symbol("call@LIB_2"), Ok(new.clone()));
        assert!(matches!(binary.symbol("call@LIB_3"), Err(BinaryError::NoFunction { .. })));
        assert_eq!(&*binary.symbol("plain").unwrap().name, "plain");
        let listed = binary.functions(100).unwrap();
        assert!(listed.contains(&old) && listed.contains(&new), "{listed:?}");
        if let Some(functions) = by_nm(&path, &["-D"]) {
            assert!(functions.contains(&("call@LIB_1".to_owned(), old.offset)), "{functions:?}");
            assert!(functions.contains(&("call@@LIB_2".to_owned(), new.offset)));
        }
    }
}

#[test]
fn what_no_process_executes_is_refused_by_what_it_is() {
    let build_dir = BuildDir::new();
    let object = build_dir.build("program.o", PROGRAM, &["-c"]);
    let error = open(&object).unwrap_err().to_string();
    assert!(error.contains("is an object file or kernel module, which cannot be executed"), "{error}");
    for (bytes, expected) in [
        (&b""[..], "it is empty"),
        (b"#!/bin/sh\n", "it is a script; use its interpreter"),
        (b"/* GNU ld script */", "it is text, perhaps a linker script that names the library"),
        (b"\x7fELX", "unknown file type"),
    ] {
        let path = build_dir.0.path().join("file");
        fs::write(&path, bytes).unwrap();
        let Err(BinaryError::NotElf { found, .. }) = open(&path) else { panic!("{expected}") };
        assert_eq!(found, expected);
    }
}

#[test]
fn an_offset_outside_of_code_is_refused_with_where_code_is() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", PROGRAM, &["-Wl,-z,separate-code"]);
    let binary = open(&path).unwrap();
    assert_eq!(binary.code().len(), 1);
    let (from, to) = binary.code()[0];
    assert_eq!((binary.check_offset(from), binary.check_offset(to - 1)), (Ok(()), Ok(())));
    for outside in [0, from - 1, to, u64::MAX] {
        let error = binary.check_offset(outside).unwrap_err().to_string();
        assert!(error.ends_with(&format!("code: at {from:#x} up to {to:#x}")), "{error}");
    }
}

#[test]
fn a_file_that_was_cut_says_where_it_ends() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", PROGRAM, &[]);
    let bytes = crate::host::read(&path).unwrap();
    for (length, expected) in [
        (20, "the header is truncated or has an unsupported version"),
        (100, "the section header table at"),
        (bytes.len() - 100, "the section header table at"),
    ] {
        let cut = build_dir.0.path().join("cut");
        fs::write(&cut, &bytes[..length]).unwrap();
        let error = open(&cut).unwrap_err().to_string();
        assert!(error.contains(&format!("is damaged: {expected}")), "{error}");
    }
}

/// A sparse file can claim any size at no cost.
#[test]
fn a_table_of_terabytes_is_refused_before_it_is_read() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", PROGRAM, &[]);
    let mut bytes = crate::host::read(&path).unwrap();
    let header = |bytes: &[u8], kind: u8| {
        let table = usize::try_from(u64::from_le_bytes(bytes[40..48].try_into().unwrap())).unwrap();
        (0..).map(|index| table + 64 * index).find(|&at| bytes[at + 4] == kind).unwrap()
    };
    let symtab = header(&bytes, 2);
    bytes[symtab + 32..symtab + 40].copy_from_slice(&(24u64 << 32).to_le_bytes());
    fs::write(&path, &bytes).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let binary = open(&path).unwrap();
    let error = binary.symbol("work").unwrap_err().to_string();
    assert!(error.contains("bytes for the symbol table"), "{error}");
    assert!(matches!(binary.functions(10), Err(BinaryError::TooMany { .. })));
}

/// The running program itself: a large file that was not built for this test.
#[test]
fn this_test_is_found_in_its_own_file() {
    let path = std::env::current_exe().unwrap();
    let binary = open(&path).unwrap();
    let listed = binary.functions(1 << 20).unwrap();
    assert!(listed.len() > 1000);
    let own =
        listed.iter().find(|symbol| symbol.name.contains("this_test_is_found_in_its_own_file")).unwrap();
    assert_eq!(binary.symbol(&own.name).as_ref(), Ok(own));
    assert_ne!(binary.machine(), Arch::Other);
}

/// The C library of this machine. Most are stripped and have versions and ifuncs.
#[test]
fn functions_of_the_c_library_are_where_nm_says() {
    let maps = crate::host::read_text(Path::new("/proc/self/maps")).unwrap();
    let libc = maps.split_whitespace().find(|word| word.ends_with("/libc.so.6"));
    let Some(functions) = libc.and_then(|libc| by_nm(Path::new(libc), &["-D"])) else {
        eprintln!("skipped: this program has no libc.so.6, or there is no nm");
        return;
    };
    let binary = open(Path::new(libc.unwrap())).unwrap();
    let mut compared = 0;
    for (name, address) in functions.iter().step_by(16) {
        // A symbol without a default version can only be found with its version.
        match binary.symbol(name) {
            Ok(symbol) => {
                assert_eq!(binary.code_offset(*address), Some(symbol.offset), "{name}");
                compared += 1;
            }
            Err(error) => assert!(matches!(error, BinaryError::Ifunc { .. }), "{error}"),
        }
    }
    assert!(compared > 50, "{compared}");
    let malloc = binary.symbol("malloc").unwrap();
    assert!(functions.iter().any(|(name, address)| {
        name.starts_with("malloc@@") && binary.code_offset(*address) == Some(malloc.offset)
    }));
}

/// USDT probes as `sys/sdt.h` writes them, in assembler syntax common to x86-64 and arm64. `%0` is the argument.
const MARKED: &str = r#"
    #define TEXT(x) #x
    #define MARKER(provider, name, semaphore, arguments)                                         \
        __asm__ volatile(                                                                        \
            "990: nop\n"                                                                         \
            ".pushsection .note.stapsdt,\"?\",\"note\"\n"                                        \
            ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"                                        \
            "991: .asciz \"stapsdt\"\n"                                                          \
            "992: .balign 4\n"                                                                   \
            "993: .8byte 990b\n.8byte _.stapsdt.base\n.8byte " semaphore "\n"                    \
            ".asciz \"" provider "\"\n.asciz \"" name "\"\n.asciz \"" arguments "\"\n"           \
            "994: .balign 4\n"                                                                   \
            ".popsection\n")
    __asm__(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
            ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n"
            "_.stapsdt.base: .space 1\n.size _.stapsdt.base,1\n"
            ".popsection\n");
    __attribute__((section(".probes"))) unsigned short app_query_semaphore = 0;
    __attribute__((noinline)) int start(int n) { MARKER("app", "start", "0", "-4@$5"); return n; }
    __attribute__((noinline)) int query(int n) {
        if (app_query_semaphore) MARKER("app", "query__start", "app_query_semaphore", "8@$1 -4@$2");
        return n + 1;
    }
    int main(int argc, char **argv) { return query(start(argc)); }
"#;

#[test]
fn markers_are_in_their_functions_and_their_semaphores_in_the_data() {
    let build_dir = BuildDir::new();
    for (name, arguments) in [
        ("pie", &["-O1", "-pie", "-fPIE"][..]),
        ("fixed", &["-O1", "-no-pie", "-fno-pie"]),
        // Stripping removes the function names and keeps the notes.
        ("stripped", &["-O1", "-s"]),
    ] {
        let path = build_dir.build(name, MARKED, arguments);
        let binary = open(&path).unwrap();
        let usdt_probes = binary.usdt().unwrap();
        let [start, query] = &usdt_probes[..] else { panic!("{name}: {usdt_probes:?}") };
        assert_eq!([&*start.provider, &*start.name, &*start.arguments], ["app", "start", "-4@$5"]);
        assert_eq!(
            [&*query.provider, &*query.name, &*query.arguments],
            ["app", "query__start", "8@$1 -4@$2"]
        );
        assert_eq!(start.semaphore, None);
        let semaphore = query.semaphore.unwrap();
        assert!(binary.check_offset(semaphore).is_err(), "the semaphore is data");
        let bytes = crate::host::read(&path).unwrap();
        let at = |offset: u64, size: usize| &bytes[usize::try_from(offset).unwrap()..][..size];
        assert_eq!(at(semaphore, 2), [0, 0]);
        let nop: &[u8] = if binary.machine() == Arch::X86_64 { &[0x90] } else { &[0x1f, 0x20, 0x03, 0xd5] };
        assert_eq!([at(start.offset, nop.len()), at(query.offset, nop.len())], [nop, nop]);
        if name != "stripped" {
            for (function, usdt_probe) in [("start", start), ("query", query)] {
                let symbol = binary.symbol(function).unwrap();
                assert!(
                    (symbol.offset..symbol.offset + symbol.size).contains(&usdt_probe.offset),
                    "{name} {function}"
                );
            }
        }
        if let Some(text) = output("readelf", &["-nW"], &path) {
            let address = |line: &str, key: &str| {
                let hex = line.split(key).nth(1)?.split(',').next()?.trim().strip_prefix("0x")?;
                Some(u64::from_str_radix(hex, 16).unwrap())
            };
            let located = text.lines().filter_map(|line| Some((address(line, "Location:")?, line)));
            let located = located.map(|(at, line)| {
                let semaphore = address(line, "Semaphore:").unwrap();
                (binary.code_offset(at).unwrap(), binary.offset_of(semaphore).filter(|_| semaphore != 0))
            });
            let expected: Vec<_> =
                usdt_probes.iter().map(|usdt_probe| (usdt_probe.offset, usdt_probe.semaphore)).collect();
            assert_eq!(located.collect::<Vec<_>>(), expected, "{name}: {text}");
        }
    }
}

/// The effect of `prelink`: everything moves, and the notes keep their addresses.
#[test]
fn notes_that_were_left_behind_are_moved_by_the_base() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", MARKED, &["-O1"]);
    let before = open(&path).unwrap();
    let part = before.headers.usdt_probes.unwrap();
    let mut bytes = crate::host::read(&path).unwrap();
    let from = usize::try_from(part.offset).unwrap();
    let mut place = from;
    while place < from + usize::try_from(part.size).unwrap() {
        let descriptor = place + 20;
        for at in [descriptor, descriptor + 8, descriptor + 16] {
            let word = u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
            let moved = if word == 0 { 0 } else { word + 0x7000 };
            bytes[at..at + 8].copy_from_slice(&moved.to_ne_bytes());
        }
        let size = u32::from_ne_bytes(bytes[place + 4..place + 8].try_into().unwrap());
        place = descriptor + usize::try_from(size).unwrap().next_multiple_of(4);
    }
    let moved = build_dir.0.path().join("moved");
    fs::write(&moved, bytes).unwrap();
    assert_eq!(open(&moved).unwrap().usdt(), before.usdt());
}

#[test]
fn a_file_without_markers_says_how_programs_get_them() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("program", PROGRAM, &[]);
    let error = open(&path).unwrap().usdt().unwrap_err().to_string();
    assert!(error.contains("has no USDT probes: it was built without them"), "{error}");
}

/// Functions with nested functions, aliases, labels and no sizes, and a gap without functions.
const NESTED: &str = r#"
    __asm__(".text\n.altmacro\n"
            ".macro one number\n"
            ".globl fn\\number\n.type fn\\number,@function\nfn\\number:\n.type alias\\number,@function\nalias\\number: nop\n"
            "inner\\number: nop\n.type inner\\number,@function\n.size inner\\number,1\nnop\n"
            "label\\number: nop\n\"$x\\number\": nop\n"
            ".size fn\\number,5\n.size alias\\number,5\n"
            ".type unsized\\number,@function\nunsized\\number: nop\nnop\n"
            ".endm\n"
            ".set at,0\n.rept 150\none %at\n.set at,at+1\n.endr\n"
            ".space 5000\n.type far,@function\nfar: nop\nnop\n.size far,-1\n");
    int main(void) { return 0; }
"#;

/// Returns the name at each address, and the span of the result.
fn by_address(path: &Path, each: usize, asked: &[u64]) -> Vec<(Option<String>, (u64, u64))> {
    let (binary, file) = (open(path).unwrap(), File::open(path).unwrap());
    let addresses = binary.addresses(&binary, each).unwrap().unwrap();
    let regions: Vec<Region> =
        (0..=addresses.region_of(u64::MAX)).map(|region| addresses.read(&file, region).unwrap()).collect();
    assert!(each > 1000 || regions.len() > 10, "{} regions", regions.len());
    let told = asked.iter().map(|&address| {
        let place = addresses.find(&file, &regions[addresses.region_of(address)], address).unwrap();
        let name = place.function.and_then(|function| addresses.name(&file, &function).unwrap());
        (name.map(|name| String::from_utf8(name).unwrap()), place.span)
    });
    told.collect()
}

#[test]
fn names_by_address_are_the_same_however_a_file_is_divided() {
    let build_dir = BuildDir::new();
    let path = build_dir.build("nested", NESTED, &["-O1"]);
    let (from, to) = open(&path).unwrap().code()[0];
    let segments = open(&path).unwrap().segments();
    let asked: Vec<u64> = (from..to).map(|offset| segments[0].address_of(offset).unwrap()).collect();
    let whole = by_address(&path, 1 << 20, &asked);
    let name = |wanted: &str| whole.iter().filter(|(name, _)| name.as_deref() == Some(wanted)).count();
    // One of the function's five bytes belongs to a nested function.
    assert_eq!([name("fn7"), name("inner7"), name("unsized7"), name("label7")], [4, 1, 2, 0]);
    for each in [16, 50] {
        let divided = by_address(&path, each, &asked);
        for ((&address, (name, _)), (expected, _)) in asked.iter().zip(&divided).zip(&whole) {
            assert_eq!(name, expected, "{address:#x}, regions of {each}");
        }
    }
    // All addresses of a span have the same result.
    for each in [1 << 20, 16] {
        let answers = by_address(&path, each, &asked);
        for (&address, (name, (start, end))) in asked.iter().zip(&answers) {
            assert!((*start..*end).contains(&address), "{address:#x} {start:#x} {end:#x}");
            let within = asked.iter().zip(&answers).filter(|(other, _)| (*start..*end).contains(other));
            for (other, (same, _)) in within {
                assert_eq!(same, name, "{address:#x} and {other:#x}");
            }
        }
    }
}
