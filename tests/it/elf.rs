//! Programs of arbitrary bytes, and real programs with some bytes corrupted.

use std::fs;
use std::process::Command;
use std::sync::OnceLock;

use perf_exporter::host as files;
use proptest::prelude::*;

use crate::any_elf::holds;

const LIBRARY: &str = r#"
    __asm__(".symver old,call@LIB_1");
    __asm__(".symver new,call@@LIB_2");
    int old(int n) { return n + 1; }
    int new(int n) { return n + 2; }
    int work(int n) {
        __asm__ volatile(
            "990: nop\n"
            ".pushsection .note.stapsdt,\"?\",\"note\"\n"
            ".balign 4\n.4byte 992f-991f, 994f-993f, 3\n"
            "991: .asciz \"stapsdt\"\n992: .balign 4\n"
            "993: .8byte 990b\n.8byte 0\n.8byte 0\n.asciz \"lib\"\n.asciz \"work\"\n.asciz \"\"\n"
            "994: .balign 4\n.popsection\n");
        return old(n);
    }
"#;

/// Returns a small library with symbols, versions and a USDT probe, as bytes.
fn library() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let at = |name| dir.path().join(name);
        fs::write(at("lib.c"), LIBRARY).unwrap();
        fs::write(at("map"), "LIB_1 { global: call; work; local: *; };\nLIB_2 { global: call; } LIB_1;\n")
            .unwrap();
        let script = format!("-Wl,--version-script={}", at("map").display());
        let mut gcc = Command::new("gcc");
        gcc.args(["-shared", "-fPIC", "-nostdlib", "-o"]).arg(at("lib.so")).arg(at("lib.c")).arg(script);
        assert!(gcc.status().unwrap().success());
        files::read(&at("lib.so")).unwrap()
    })
}

/// Selects the offset of a changed byte: anywhere, but more often in the headers at both ends.
fn place() -> impl Strategy<Value = usize> {
    let length = library().len();
    prop_oneof![0..64usize, 64..800usize, length - 2048..length, 0..length]
}

#[test]
fn the_library_that_is_broken_below_is_whole() {
    assert!(holds(library()) >= 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_program_with_changed_bytes_is_read_or_refused(
        changes in proptest::collection::vec((place(), any::<u8>()), 1..6)
    ) {
        let mut bytes = library().to_vec();
        for (place, byte) in changes {
            bytes[place] = byte;
        }
        holds(&bytes);
    }

    #[test]
    fn a_program_that_ends_anywhere_is_read_or_refused(length in 0..library().len()) {
        prop_assert_eq!(holds(&library()[..length]), 0, "the section headers are at the end");
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300), wide in any::<bool>()) {
        holds(&bytes);
        let start = if wide { b"\x7fELF\x02\x01\x01" } else { b"\x7fELF\x01\x02\x01" };
        holds(&[start, &bytes[..]].concat());
    }
}
