//! Untrusted input from processes: stacks, and files with function names.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::{any_made, any_stack, any_symbols};

/// Returns a small program with symbols and lines, as bytes.
fn program() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let (source, library) = (dir.path().join("lib.c"), dir.path().join("lib.so"));
        fs::write(
            &source,
            "static inline __attribute__((always_inline)) int inlined(int n) { return n / 3; }\n\
             int add(int n) { return inlined(n) + 1; }\nint twice(int n) { return add(n) + add(n); }\n",
        )
        .unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-nostdlib", "-g", "-O1", "-o"]).arg(&library).arg(&source);
        assert!(gcc.status().unwrap().success());
        perf_exporter::host::read(&library).unwrap()
    })
}

/// Returns a stack of the program, with frames of 16 bytes and return addresses at two places in it. It is unwound by the tables or as
/// `bits` select.
fn stack(bits: u8, section: &[u8]) -> Vec<u8> {
    let at = |region: u64, place: u64| (region << 56 | place).to_le_bytes();
    let registers = [at(1, 0), at(2, 0), at(0, 0), at(0, 0)].concat();
    let words = [at(0, 0), at(1, 0x20), at(0, 0), at(1, 0x40), at(0, 0), at(0, 0)].concat();
    [&[bits, section.len() as u8][..], section, &registers, &words].concat()
}

/// `DW_CFA_def_cfa_offset 16`.
const FRAME: &[u8] = &[0x0e, 16];

#[test]
fn what_is_broken_below_is_whole() {
    // Two functions and their lines.
    assert!(any_symbols::holds(program()) >= 4);
    assert_eq!(any_made::list_holds(b"\x801000 10 foo\n2000 10 bar\n"), 4);
    let dump = dump(&[(0, vec![0x7, 0x1000, 0x1000, 0x10, 1])], b"foo\0");
    assert!(any_made::dump_holds(&[&[128][..], &dump].concat()) >= 2);
    // Three frames for each kind of unwinding; frame pointers find none after the first frame.
    #[cfg(target_arch = "x86_64")]
    assert!(any_stack::holds(&stack(0, FRAME)) >= 6);
}

/// Returns a jitdump of records of these kinds, each with these words and the name.
fn dump(records: &[(u32, Vec<u64>)], name: &[u8]) -> Vec<u8> {
    let header = [0x4a69_5444_u32, 1, 40, 62, 0, 7].map(u32::to_ne_bytes).concat();
    let mut file = [header, vec![0; 16]].concat();
    for (kind, words) in records {
        let body = [words.iter().flat_map(|word| word.to_ne_bytes()).collect(), name.to_vec()].concat();
        let size = u32::try_from(16 + body.len()).unwrap();
        file.extend([&kind.to_ne_bytes()[..], &size.to_ne_bytes(), &[0; 8], &body].concat());
    }
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_program_with_changed_bytes_has_names_or_none(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut bytes = program().to_vec();
        let length = bytes.len();
        changes.into_iter().for_each(|(place, byte)| bytes[place.index(length)] = byte);
        any_symbols::holds(&bytes);
    }

    #[test]
    fn a_list_of_any_lines_is_read(
        part: u8,
        lines in vec("(0x)?[0-9a-f]{1,16} (0x)?[0-9a-f]{1,9} [^\\n]{0,40}|[^\\n]{0,60}", 0..30),
        bytes in vec(any::<u8>(), 0..200),
    ) {
        any_made::list_holds(&[&[part][..], lines.join("\n").as_bytes(), b"\n", &bytes].concat());
    }

    #[test]
    fn a_dump_of_any_records_is_read(
        part: u8,
        records in vec((0u32..6, vec(prop_oneof![0u64..0x3000, any::<u64>()], 0..8)), 0..12),
        bytes in vec(any::<u8>(), 0..200),
    ) {
        any_made::dump_holds(&[&[part][..], &dump(&records, b"foo\0"), &bytes].concat());
    }

    #[test]
    fn a_stack_of_anything_ends(bits: u8, section in vec(any::<u8>(), 0..60), bytes in vec(any::<u8>(), 0..400)) {
        any_stack::holds(&stack(bits, &section));
        any_stack::holds(&[&[bits, section.len() as u8][..], &section, &bytes].concat());
    }
}
