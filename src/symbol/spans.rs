//! Names that were found, kept for the next time they are asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{NamedLine, Reason, Segment};
use crate::stack::ModuleId;

/// What addresses belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Space {
    /// The kernel and its modules.
    Kernel,
    /// A file, by the addresses that its headers give.
    File(ModuleId),
}

/// From where to where (exclusive).
pub(super) type Span = (u64, u64);

/// What is at an address, and at all others of its span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) name: Result<Name, Reason>,
    /// That of the kernel or its module.
    pub(super) segment: Option<Arc<Segment>>,
}

/// The name of a function: one text if the linker has the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    name: Arc<str>,
    linkage: Arc<str>,
}

impl Name {
    pub(super) fn new(name: &str, linkage: &str) -> Self {
        let name: Arc<str> = name.into();
        let linkage = if *name == *linkage { Arc::clone(&name) } else { linkage.into() };
        Self { name, linkage }
    }

    /// One that the linker has as well.
    pub(super) fn plain(name: Arc<str>) -> Self {
        Self { linkage: Arc::clone(&name), name }
    }

    pub(super) fn line(&self) -> NamedLine {
        let (name, linkage) = (Arc::clone(&self.name), Arc::clone(&self.linkage));
        NamedLine { name, linkage, file: None, line: 0 }
    }

    /// How much memory its texts take, in bytes.
    fn bytes(&self) -> usize {
        /// The counters of an [`Arc`].
        const SHARED: usize = 16;
        let linkage = if Arc::ptr_eq(&self.name, &self.linkage) { 0 } else { self.linkage.len() + SHARED };
        self.name.len() + SHARED + linkage
    }
}

/// Answers that were used lately, within a limit of memory.
///
/// An answer is kept for the addresses that share it, which are one function or a part of it that no other is nested in.
/// So one entry serves every address of a function, and which one was asked for first makes no difference.
///
/// There are two generations. What is used is moved into the younger; when that has grown to half of the limit, it
/// becomes the older, and what was in the older and not used meanwhile is forgotten.
#[derive(Debug)]
pub(super) struct Spans {
    young: Generation,
    old: Generation,
    limit: usize,
}

#[derive(Debug, Default)]
struct Generation {
    /// By their first addresses, with their ends.
    spans: BTreeMap<(Space, u64), (u64, Answer)>,
    bytes: usize,
}

/// What an entry takes beside its texts: itself half as much again, for the nodes of the tree are not full.
const ENTRY: usize = size_of::<((Space, u64), (u64, Answer))>() * 3 / 2;

impl Spans {
    /// `limit` is in bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { young: Generation::default(), old: Generation::default(), limit }
    }

    /// Changes the limit. What is over it is forgotten.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        if self.bytes() > limit {
            self.old = Generation::default();
        }
        if self.bytes() > limit {
            self.young = Generation::default();
        }
    }

    pub(super) fn get(&mut self, space: Space, address: u64) -> Option<Answer> {
        if let Some((_, _, answer)) = self.young.find(space, address) {
            return Some(answer.clone());
        }
        let (start, end, answer) = self.old.find(space, address)?;
        let answer = answer.clone();
        self.old.remove(space, start);
        self.insert(space, (start, end), answer.clone());
        Some(answer)
    }

    /// Keeps the answer of the addresses from `start` to `end` (exclusive).
    pub(super) fn insert(&mut self, space: Space, (start, end): Span, answer: Answer) {
        let held = answer.bytes();
        if self.young.bytes + held > self.limit / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        if held <= self.limit / 2 {
            self.young.remove(space, start);
            self.young.bytes += held;
            self.young.spans.insert((space, start), (end, answer));
        }
    }

    /// Forgets the answers that are not wanted.
    pub(super) fn retain(&mut self, keep: impl Fn(Space, &Answer) -> bool) {
        for generation in [&mut self.young, &mut self.old] {
            let mut bytes = 0;
            generation.spans.retain(|&(space, _), (_, answer)| {
                let kept = keep(space, answer);
                bytes += if kept { answer.bytes() } else { 0 };
                kept
            });
            generation.bytes = bytes;
        }
    }

    /// How much memory it takes, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.young.bytes + self.old.bytes
    }
}

impl Answer {
    fn bytes(&self) -> usize {
        ENTRY + self.name.as_ref().map_or(0, Name::bytes)
    }
}

impl Generation {
    fn find(&self, space: Space, address: u64) -> Option<(u64, u64, &Answer)> {
        let mut before = self.spans.range((space, 0)..=(space, address));
        let (&(_, start), (end, answer)) = before.next_back()?;
        (address < *end).then_some((start, *end, answer))
    }

    fn remove(&mut self, space: Space, start: u64) {
        if let Some((_, answer)) = self.spans.remove(&(space, start)) {
            self.bytes -= answer.bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answer(text: &str) -> Answer {
        Answer { name: Ok(Name::new(text, text)), segment: None }
    }

    #[test]
    fn one_text_serves_as_both_names_where_they_are_the_same() {
        let (same, other) = (Name::new("main", "main").line(), Name::new("f", "_Z1fv").line());
        assert!(Arc::ptr_eq(&same.name, &same.linkage));
        assert_eq!((&*other.name, &*other.linkage), ("f", "_Z1fv"));
        assert_eq!(Name::new("main", "main").bytes(), 20);
    }

    #[test]
    fn all_addresses_of_a_span_have_its_answer_and_no_others() {
        let mut spans = Spans::new(1 << 20);
        spans.insert(Space::File(ModuleId(1)), (10, 20), answer("f"));
        for (space, address, found) in [
            (Space::File(ModuleId(1)), 9, false),
            (Space::File(ModuleId(1)), 10, true),
            (Space::File(ModuleId(1)), 19, true),
            (Space::File(ModuleId(1)), 20, false),
            (Space::File(ModuleId(0)), 15, false),
            (Space::File(ModuleId(2)), 15, false),
            (Space::Kernel, 15, false),
        ] {
            assert_eq!(spans.get(space, address).is_some(), found, "{space:?} {address}");
        }
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut spans = Spans::new(20 * (ENTRY + 100));
        for number in 0..1000 {
            spans.insert(Space::Kernel, (number * 10, number * 10 + 10), answer(&"x".repeat(84)));
            assert!(spans.get(Space::Kernel, 5).is_some(), "after {number}");
        }
        assert_eq!(spans.get(Space::Kernel, 15), None);
        assert!(spans.get(Space::Kernel, 9995).is_some());
        spans.set_limit(0);
        assert_eq!((spans.bytes(), spans.get(Space::Kernel, 9995)), (0, None));
    }

    proptest! {
        #[test]
        fn it_keeps_to_its_limit_and_counts_what_it_holds(
            limit in 0usize..20_000, steps in proptest::collection::vec((0u64..50, 0usize..400, any::<bool>()), 0..300)
        ) {
            let mut spans = Spans::new(limit);
            for (place, length, put) in steps {
                if put {
                    spans.insert(Space::Kernel, (place * 10, place * 10 + 10), answer(&"x".repeat(length)));
                } else {
                    spans.get(Space::Kernel, place * 10 + 3);
                }
                prop_assert!(spans.bytes() <= limit, "{}", spans.bytes());
            }
            spans.retain(|_, _| false);
            prop_assert_eq!(spans.bytes(), 0);
        }
    }
}
