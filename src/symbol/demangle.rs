//! Demangling of linkage names.

use std::fmt::{self, Write};

use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

use crate::error::printable;

/// The longest name that is demangled, in bytes: a short one can expand to a long one.
const MANGLED_LIMIT: usize = 4096;
/// The longest result, in bytes. A name with a longer result stays mangled.
const NAME_LIMIT: usize = 4096;
/// The deepest nesting of names, so that no name exhausts the stack.
const DEPTH: u32 = 128;

/// Returns the demangled name of a function of a file. Rust names lose their hash, and C++ names their parameters, as in `perf report`. The
/// version of a symbol (`@@GLIBC_2.2.5`) is removed. All other names are unchanged. Control characters are escaped to protect terminals.
pub(super) fn demangle(linkage: &str) -> String {
    let base = match linkage.split_once('@') {
        Some((base, _)) if !base.is_empty() => base,
        _ => linkage,
    };
    let name = if base.len() <= MANGLED_LIMIT { rust(base).or_else(|| cpp(base)) } else { None };
    // `_ZNE` is a path without components, which has no name.
    let name = name.filter(|name| !name.is_empty());
    printable(name.as_deref().unwrap_or(base))
}

fn rust(name: &str) -> Option<String> {
    let demangled = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded(String::new());
    write!(text, "{demangled:#}").ok()?;
    Some(text.0)
}

fn cpp(name: &str) -> Option<String> {
    if !name.starts_with("_Z") {
        return None;
    }
    // Suffixes that compilers append: `.isra.0`, `.cold`.
    let (mangled, mark) = name.split_at(name.find('.').unwrap_or(name.len()));
    let parsing = ParseOptions::default().recursion_limit(DEPTH);
    let (symbol, rest) = BorrowedSymbol::with_tail_and_options(mangled.as_bytes(), &parsing).ok()?;
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(DEPTH);
    let mut text = Bounded(String::new());
    symbol.structured_demangle(&mut text, &options).ok().filter(|()| rest.is_empty())?;
    text.write_str(mark).ok()?;
    Some(text.0)
}

/// A text with a limited length.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > NAME_LIMIT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_become_what_their_programmers_wrote() {
        let cases = [
            ("main", "main"),
            ("malloc@@GLIBC_2.2.5", "malloc"),
            ("work.part.0", "work.part.0"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_ZN5space3fooEii", "space::foo"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_Z", "_Z"),
            ("_ZN", "_ZN"),
            ("_ZNE", "_ZNE"),
            ("_ZNE@", "_ZNE"),
            ("@plt", "@plt"),
            ("evil\u{1b}[2J\n", "evil\\u{1b}[2J\\n"),
        ];
        for (linkage, name) in cases {
            assert_eq!(demangle(linkage), name, "{linkage}");
        }
    }

    #[test]
    fn a_part_that_the_compiler_split_off_keeps_its_mark() {
        assert_eq!(demangle("_ZN5space3fooEii.part.0.cold"), "space::foo.part.0.cold");
    }

    /// Each level contains the previous one twice: names that are exponentially longer than their mangled form.
    #[test]
    fn a_short_name_that_stands_for_a_long_one_stays_short() {
        let mut doubling = "_Z1fI1AE".to_owned();
        let mut pairs = String::from("_Z1fN1A1BIS_S_E");
        for _ in 0..200 {
            doubling.push_str("S_S_");
            pairs.push_str("1CIS0_S0_E");
        }
        pairs.push_str("Ev");
        let rust = format!("_RMC0{}p{}", "T".repeat(64), "B_".repeat(64));
        let deep = format!("_Z{}", "N1a".repeat(1300));
        let long = format!("_ZN{}E", "1a".repeat(100_000));
        for name in [doubling, pairs, rust, deep, long] {
            let made = demangle(&name);
            assert!(made == name || made.len() <= NAME_LIMIT, "{} bytes of {}", made.len(), name.len());
        }
    }

    proptest! {
        #[test]
        fn no_name_panics_and_none_is_empty(name in "(_Z|_R|_ZN)?[0-9A-Za-z_.$@]{1,200}") {
            prop_assert!(!demangle(&name).is_empty());
        }
    }
}
