use proptest::prelude::*;

use super::disassembly::{Instruction, disassemble};
use super::source::Sources;
use super::*;
use crate::files::Opened;
use crate::host::Roots;
use crate::probe::argument::Arch;
use crate::profile::sample_profiles::{Builder, jit, kernel, native, task};
use crate::profile::{Mode, Profile};

/// `burns` of a C program at -O2: a loop with a jump over it and a jump back.
const LOOP: [u8; 50] = [
    0x48, 0x85, 0xff, 0x74, 0x2c, 0x31, 0xc0, 0x66, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00, 0x48,
    0x89, 0xc2, 0x48, 0x8b, 0x0d, 0xe6, 0x2d, 0x00, 0x00, 0x48, 0x0f, 0xaf, 0xd0, 0x48, 0x83, 0xc0, 0x01,
    0x48, 0x01, 0xca, 0x48, 0x89, 0x15, 0xd4, 0x2d, 0x00, 0x00, 0x48, 0x39, 0xc7, 0x75, 0xdf, 0xc3,
];

fn texts(found: &[Instruction]) -> Vec<String> {
    found.iter().map(|found| format!("{:x}: {}", found.address, found.text)).collect()
}

#[test]
fn code_of_x86_is_written_as_objdump_writes_it() {
    let found = disassemble(&LOOP, 0x12b0, Arch::X86_64, Syntax::Att, usize::MAX);
    assert_eq!(
        texts(&found),
        [
            "12b0: test   %rdi,%rdi",
            "12b3: je     12e1",
            "12b5: xor    %eax,%eax",
            "12b7: nopw   (%rax,%rax,1)",
            "12c0: mov    %rax,%rdx",
            "12c3: mov    0x2de6(%rip),%rcx        # 40b0",
            "12ca: imul   %rax,%rdx",
            "12ce: add    $0x1,%rax",
            "12d2: add    %rcx,%rdx",
            "12d5: mov    %rdx,0x2dd4(%rip)        # 40b0",
            "12dc: cmp    %rax,%rdi",
            "12df: jne    12c0",
            "12e1: ret",
        ]
    );
    let found = disassemble(&LOOP[19..30], 0x12c3, Arch::X86_64, Syntax::Intel, usize::MAX);
    assert_eq!(
        texts(&found),
        ["12c3: mov    rcx,QWORD PTR [rip+0x2de6]        # 40b0", "12ca: imul   rdx,rax"]
    );
    assert_eq!(found[0].target, None, "an operand in memory is no jump");
}

#[test]
fn code_of_aarch64_is_disassembled_by_words_and_jumps_have_addresses() {
    let words: [u32; 8] = [
        0xb400_0100, // cbz x0, +0x20
        0xd280_0001, // mov x1, #0
        0x9b01_7c22, // mul x2, x1, x1
        0x9400_0400, // bl +0x1000
        0x54ff_ff8c, // b.gt -0x10
        0x9000_0083, // adrp x3, 0x10000
        0xffff_ffff, // none
        0xd65f_03c0, // ret
    ];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).chain([1, 2]).collect();
    let found = disassemble(&code, 0x750, Arch::Aarch64, Syntax::Att, usize::MAX);
    insta::assert_snapshot!(texts(&found).join("\n"));
    let targets: Vec<_> = found.iter().map(|found| (found.target, found.is_call)).collect();
    assert_eq!(targets[0], (Some(0x770), false));
    assert_eq!(targets[3], (Some(0x175c), true));
    assert_eq!(targets[4], (Some(0x750), false));
    assert_eq!(targets[5], (None, false), "a page of data is no jump");
}

#[test]
fn bytes_that_are_no_instruction_have_rows_too() {
    let found = disassemble(&[0x06, 0x90, 0x0f], 0, Arch::X86_64, Syntax::Att, usize::MAX);
    assert_eq!(texts(&found), ["0: (bad)", "1: nop", "2: (bad)"]);
}

proptest! {
    #[test]
    fn any_bytes_become_rows_that_cover_them(
        code in proptest::collection::vec(any::<u8>(), 0..400),
        start in prop_oneof![Just(0), Just(0x1139), Just(u64::MAX - 100), any::<u64>()],
        intel in any::<bool>(), is_arm in any::<bool>(), limit in prop_oneof![Just(usize::MAX), 0usize..50]
    ) {
        let machine = if is_arm { Arch::Aarch64 } else { Arch::X86_64 };
        let syntax = if intel { Syntax::Intel } else { Syntax::Att };
        let found = disassemble(&code, start, machine, syntax, limit);
        prop_assert!(found.len() <= limit);
        let mut next = start;
        for Instruction { address, length, text, .. } in &found {
            prop_assert_eq!(*address, next);
            prop_assert!(*length > 0 && !text.is_empty() && !text.contains(char::is_control), "{}", text);
            next = next.wrapping_add(*length as u64);
        }
        if found.len() < limit {
            prop_assert_eq!(next, start.wrapping_add(code.len() as u64));
        }
    }
}

fn instruction(address: u64, text: &str, value: u64, jump: Option<usize>) -> Row {
    Row::Instruction { address, text: text.into(), value, samples: value / 10, jump }
}

/// Returns a function with a loop.
pub(crate) fn annotated() -> Annotated {
    let source = |line, text: Option<&str>, value| Row::Source {
        file: "/src/hot.c".into(),
        line,
        text: text.map(str::to_owned),
        value,
    };
    Annotated {
        function: "burns".into(),
        module: "/usr/bin/hot".into(),
        event: "cpu-clock".into(),
        nanoseconds: true,
        value: 1000,
        samples: 100,
        total: 2000,
        rows: vec![
            source(33, Some("  for (i = 0; i < n; i++)"), 250),
            instruction(0x12b0, "test   %rdi,%rdi", 0, None),
            instruction(0x12b3, "je     12e1 <burns+0x31>", 50, Some(8)),
            source(34, None, 750),
            instruction(0x12c0, "imul   %rax,%rdx", 750, None),
            source(33, Some("  for (i = 0; i < n; i++)"), 250),
            instruction(0x12dc, "cmp    %rax,%rdi", 200, None),
            instruction(0x12df, "jne    12c0 <burns+0x10>", 0, Some(4)),
            instruction(0x12e1, "ret", 0, None),
        ],
        notes: Vec::new(),
    }
}

#[test]
fn the_text_is_that_of_perf_and_arrows_show_jumps() {
    insta::assert_snapshot!("plain", annotated().text(TextOptions::default()));
    let all = TextOptions { lines: true, counts: true, jumps: true };
    insta::assert_snapshot!("all", annotated().text(all));
}

#[test]
fn an_annotated_function_is_the_same_after_its_way_as_json() {
    let json = serde_json::to_string(&annotated()).unwrap();
    assert_eq!(serde_json::from_str::<Annotated>(&json).unwrap(), annotated());
}

#[test]
fn a_function_without_samples_has_no_shares() {
    assert_eq!(Annotated { value: 0, ..annotated() }.percent(7), 0.0);
}

fn profile() -> Profile {
    let mut builder = Builder::default();
    let (shell, main) = (task(1, "sh", "/"), native("/bin/a", "main"));
    builder.add(&shell, Mode::User, 1, &[main.clone(), native("/bin/a", "f")]);
    builder.add(&shell, Mode::User, 5, &[main.clone(), native("/lib/b", "f")]);
    builder.add(&shell, Mode::Kernel, 9, &[main.clone(), kernel("vfs_read")]);
    builder.add(&shell, Mode::User, 2, &[main, jit("generated")]);
    builder.0
}

fn target(symbol: &str, module: Option<&str>) -> Target {
    Target { symbol: Some(symbol.into()), module: module.map(str::to_owned) }
}

#[test]
fn of_several_functions_with_a_name_the_largest_is_chosen_unless_the_module_is_given() {
    let profile = profile();
    let choice = Choice::new(&profile);
    let path = |target: &Target| choice.choose(target).map(|chosen| chosen.file.path);
    assert_eq!(path(&target("f", None)), Ok("/lib/b"));
    assert_eq!(path(&target("f", Some("/bin/a"))), Ok("/bin/a"));
    assert_eq!(path(&target("f", Some("a"))), Ok("/bin/a"));
    assert_eq!(path(&target("main", None)), Ok("/bin/a"), "a function that only calls has no samples");
    assert_eq!(path(&Target::default()), Ok("/lib/b"));
    let names: Vec<_> = hottest(&profile).into_iter().map(|(target, _)| target.symbol.unwrap()).collect();
    assert_eq!(names, ["f", "f"]);
}

#[test]
fn what_is_in_no_file_is_refused_with_a_reason() {
    let profile = profile();
    let refused = |symbol: &str| Choice::new(&profile).choose(&target(symbol, None)).unwrap_err();
    assert_eq!(refused("vfs_read"), NotAnnotated::Kernel("vfs_read".into()));
    assert_eq!(refused("generated"), NotAnnotated::Generated("generated".into()));
    assert_eq!(refused("absent").to_string(), "no sample contains the function absent");
    let empty = Profile::default();
    assert_eq!(Choice::new(&empty).choose(&Target::default()).unwrap_err(), NotAnnotated::NoSamples);
}

#[test]
fn only_source_files_are_read_and_those_newer_than_the_program_are_noted() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| -> Arc<str> {
        std::fs::write(dir.path().join(name), text).unwrap();
        dir.path().join(name).to_str().unwrap().into()
    };
    let program = write("program", "");
    let (source, secret) = (write("hot.c", "first\n\tb \u{1b}[1m\nthird"), write("secret", "first"));
    let absent: Arc<str> = format!("{secret}.c").into();
    let opened = std::fs::File::open(&*program).unwrap();
    opened.set_modified(std::time::UNIX_EPOCH).unwrap();
    let (files, program) = (Files::here(&Roots::default()), Opened::own(opened, (&*program).into()));
    let mut sources = Sources::new(&files, &[], &program);
    let wanted = [(&source, 2), (&source, 9), (&secret, 1), (&absent, 1)];
    let wanted = wanted.map(|(path, line)| (Arc::clone(path), line));
    let texts = sources.texts(wanted.iter());
    assert_eq!(
        texts.into_iter().collect::<Vec<_>>(),
        [((Arc::clone(&source), 2), "    b \u{fffd}[1m".into())]
    );
    assert_eq!(sources.newer, [source]);
}
