//! Selection of system calls, passed to the kernel as a filter on their numbers.

use std::collections::BTreeSet;

use super::classes::class;
use crate::event::nearest;
use crate::syscall::{Abi, Call};
use crate::targets::Glob;

/// Calls by name, with their numbers in the 64-bit and 32-bit ABIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Selection {
    calls: BTreeSet<Call>,
    /// Whether the selection is all calls except these.
    others: bool,
    /// Calls that are recorded in addition, but not selected.
    also: BTreeSet<Call>,
    /// Numbers that the kernel filter includes or excludes. The kernel filter cannot distinguish the ABIs.
    filtered: BTreeSet<u32>,
}

impl Selection {
    /// Parses comma-separated names, patterns and classes. A leading `!` inverts the selection. The kernel records the calls `also` as
    /// well.
    ///
    /// # Errors
    /// If a name is not a system call, or a pattern is invalid or matches nothing.
    pub(super) fn parse(text: &str, abis: &[Option<Abi>], also: &[&str]) -> Result<Self, String> {
        let (others, list) = match text.strip_prefix('!') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut calls = BTreeSet::new();
        for word in list.split(',').map(str::trim) {
            let patterns = class(word).unwrap_or(std::slice::from_ref(&word));
            let globs: Result<Vec<Glob>, _> = patterns.iter().map(|pattern| Glob::new(pattern)).collect();
            let globs = globs.map_err(|error| format!("-e {word:?}: {error}"))?;
            let abis = abis.iter().flatten();
            let is_meant = |name: &str| globs.iter().any(|glob| glob.matches(name));
            let found: Vec<Call> = abis.clone().flat_map(|&abi| Call::matching(abi, is_meant)).collect();
            if found.is_empty() {
                return Err(no_call(word, abis.copied()));
            }
            calls.extend(found);
        }
        let known = |abi: Abi| Call::matching(abi, |name| also.contains(&name));
        let also: BTreeSet<Call> = abis.iter().flatten().flat_map(|&abi| known(abi)).collect();
        let left_out = |number: u32| {
            let all = abis.iter().flatten().map(|&abi| Call { abi, number });
            all.filter(|call| call.name().is_some())
                .all(|call| calls.contains(&call) && !also.contains(&call))
        };
        let filtered = match others {
            true => calls.iter().map(|call| call.number).filter(|&number| left_out(number)).collect(),
            false => calls.union(&also).map(|call| call.number).collect(),
        };
        Ok(Self { calls, others, also, filtered })
    }

    /// Reports whether the kernel records a call for this trace.
    pub(super) fn records(&self, call: Call) -> bool {
        self.takes(call) || self.also.contains(&call)
    }

    /// Reports whether a call is selected.
    pub(super) fn takes(&self, call: Call) -> bool {
        self.calls.contains(&call) != self.others
    }

    /// Returns the part of the selection that the kernel can evaluate: a filter on the field `id` of `raw_syscalls`. `None` if there is
    /// none.
    pub(super) fn filter(&self) -> Option<String> {
        let range = |(first, last): (u32, u32)| match (self.others, first == last) {
            (false, true) => format!("id == {first}"),
            (false, false) => format!("(id >= {first} && id <= {last})"),
            (true, true) => format!("id != {first}"),
            (true, false) => format!("(id < {first} || id > {last})"),
        };
        let parts: Vec<String> = ranges(&self.filtered).into_iter().map(range).collect();
        (!parts.is_empty()).then(|| parts.join(if self.others { " && " } else { " || " }))
    }
}

/// Converts numbers to ranges of consecutive numbers.
fn ranges(numbers: &BTreeSet<u32>) -> Vec<(u32, u32)> {
    let numbers: Vec<u32> = numbers.iter().copied().collect();
    let ranges = numbers.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    ranges.filter_map(|range| Some((*range.first()?, *range.last()?))).collect()
}

fn no_call(word: &str, abis: impl Iterator<Item = Abi>) -> String {
    let all: Vec<Call> = abis.flat_map(|abi| Call::matching(abi, |_| true)).collect();
    match nearest(word, all.iter().filter_map(|call| call.name())) {
        Some(name) => format!("-e {word:?} is not a system call; did you mean {name}?"),
        None => {
            format!(
                "-e {word:?} is not a system call; use the names of manual section 2, such as openat, or a class such as file"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Option<Abi>; 2] = [Some(Abi::X86_64), Some(Abi::I386)];

    fn filter(text: &str, abis: &[Option<Abi>]) -> Result<Option<String>, String> {
        Selection::parse(text, abis, &[]).map(|selection| selection.filter())
    }

    #[test]
    fn calls_are_told_to_the_kernel_by_number() {
        for (text, expected) in [
            ("futex", "id == 202"),
            ("read,write,open,futex", "(id >= 0 && id <= 2) || id == 202"),
            ("epoll_p*", "id == 281 || id == 441"),
            ("!read,write", "(id < 0 || id > 1)"),
            ("!futex,read", "id != 0 && id != 202"),
        ] {
            assert_eq!(filter(text, &BOTH[..1]).unwrap().as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn calls_that_are_needed_besides_are_recorded_and_not_selected() {
        let parse = |text| Selection::parse(text, &BOTH[..1], &["close"]).unwrap();
        let call = |number| Call { abi: Abi::X86_64, number };
        let read = parse("read");
        assert_eq!(read.filter().as_deref(), Some("id == 0 || id == 3"));
        assert!(read.records(call(3)) && !read.takes(call(3)) && !read.records(call(1)));
        assert_eq!(parse("!close").filter(), None);
        assert_eq!(parse("!close,read").filter().as_deref(), Some("id != 0"));
    }

    #[test]
    fn a_class_is_all_of_its_calls() {
        let network = Selection::parse("network", &BOTH[..1], &[]).unwrap();
        let call = |number| Call { abi: Abi::X86_64, number };
        assert!(
            [41, 42, 44].into_iter().all(|number| network.takes(call(number))) && !network.takes(call(0))
        );
    }

    #[test]
    fn what_is_one_call_for_64_bits_and_another_for_32_is_told_apart_by_the_program() {
        // read is call 0 in one ABI and call 3 in the other, where 3 is close in the first.
        let read = Selection::parse("read", &BOTH, &[]).unwrap();
        assert_eq!(read.filter().as_deref(), Some("id == 0 || id == 3"));
        let call = |abi, number| Call { abi, number };
        assert!(read.takes(call(Abi::X86_64, 0)) && read.takes(call(Abi::I386, 3)));
        assert!(!read.takes(call(Abi::X86_64, 3)));
        let others = Selection::parse("!read", &BOTH, &[]).unwrap();
        assert_eq!(others.filter(), None, "both numbers are also other calls");
        assert!(!others.takes(call(Abi::X86_64, 0)) && others.takes(call(Abi::X86_64, 3)));
    }

    #[test]
    fn a_name_that_no_call_has_is_refused_with_the_one_that_was_meant() {
        let error = filter("opennat", &BOTH).unwrap_err();
        assert_eq!(error, "-e \"opennat\" is not a system call; did you mean openat?");
        for text in ["", "!", "read,", "zzz*", "a[", "\u{1b}[31m"] {
            let error = filter(text, &BOTH).unwrap_err();
            assert!(error.starts_with("-e ") && !error.contains('\u{1b}'), "{error}");
        }
    }
}
