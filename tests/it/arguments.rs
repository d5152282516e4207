//! Malformed arguments and locations of probes. The fuzz targets under `fuzz/` test the same with more time.

use proptest::prelude::*;

use crate::any_argument;

/// Fragments of the syntax, so that many texts are almost valid.
const PIECES: [&str; 48] = [
    "%",
    "di",
    "rdi",
    "x0",
    "$",
    "arg",
    "1",
    "retval",
    "stack",
    "comm",
    "@",
    "+",
    "-",
    "u",
    "0x",
    "8",
    "(",
    ")",
    ":",
    "u32",
    "s64",
    "string",
    "symbol",
    "b4@8/32",
    "[",
    "]",
    "=",
    "a",
    "->",
    ".",
    "\\",
    "/",
    "/bin/sh",
    "malloc",
    " ",
    "-4@",
    "8@",
    "%edi",
    "%rbp",
    "$5",
    "sp",
    ",",
    "w1",
    "rip",
    "\n",
    "é",
    "18446744073709551615",
    "9223372036854775808",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn any_pieces_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)) {
        any_argument::holds(pieces.concat().as_bytes());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        any_argument::holds(&bytes);
    }
}

/// Found by the fuzz target `argument`.
#[test]
fn a_path_that_ends_with_a_colon_is_written_back() {
    // The last colon ends the path.
    any_argument::holds(b"/::\xff+\xeb\xff2+0");
}

/// Found by `any_pieces_are_read_or_refused`.
#[test]
fn a_symbol_whose_name_looks_like_a_numbered_argument_is_no_argument() {
    any_argument::holds(b"@u32$arg");
}
