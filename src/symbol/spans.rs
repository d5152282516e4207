//! A cache of symbols.

use std::sync::Arc;

use super::cache::Cache;
use super::{NamedLine, Reason, Segment};
use crate::stack::ModuleId;

/// An address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Space {
    /// The kernel and its modules.
    Kernel,
    /// A file, with addresses according to its headers.
    File(ModuleId),
}

/// From the first address to the end (exclusive).
pub(super) type Span = (u64, u64);

/// The result for all addresses of a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) name: Result<Name, Reason>,
    /// The segment of the kernel or its module.
    pub(super) segment: Option<Arc<Segment>>,
}

/// The name of a function: one text if the linkage name is the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    name: Arc<str>,
    linkage: Arc<str>,
    /// The addresses of the function.
    function: Span,
}

impl Name {
    pub(super) fn new(name: &str, linkage: &str) -> Self {
        let name: Arc<str> = name.into();
        let linkage = if *name == *linkage { Arc::clone(&name) } else { linkage.into() };
        Self { name, linkage, function: (0, 0) }
    }

    /// Creates a name that is also the linkage name.
    pub(super) fn plain(name: Arc<str>) -> Self {
        Self { linkage: Arc::clone(&name), name, function: (0, 0) }
    }

    /// Sets the addresses of the function.
    pub(super) fn at(self, function: Span) -> Self {
        Self { function, ..self }
    }

    pub(super) fn function(&self) -> Span {
        self.function
    }

    pub(super) fn line(&self) -> NamedLine {
        let (name, linkage) = (Arc::clone(&self.name), Arc::clone(&self.linkage));
        NamedLine { name, linkage, file: None, line: 0 }
    }

    /// Returns the memory of its texts, in bytes.
    fn bytes(&self) -> usize {
        /// The counters of an [`Arc`].
        const SHARED: usize = 16;
        let linkage = if Arc::ptr_eq(&self.name, &self.linkage) { 0 } else { self.linkage.len() + SHARED };
        self.name.len() + SHARED + linkage
    }
}

/// The most recently used results, within a memory limit.
///
/// A result is stored for all addresses that share it: a function or a part of it in which no other function is nested. Thus one entry
/// serves every address of a function, whichever was looked up first.
pub(super) type Spans = Cache<(Space, u64), (u64, Answer)>;

impl Spans {
    pub(super) fn find(&mut self, space: Space, address: u64) -> Option<Answer> {
        let before = (space, 0)..=(space, address);
        self.last_in(before, |(end, _)| address < *end).map(|(_, answer)| answer)
    }

    /// Adds the result for the addresses from `start` to `end` (exclusive).
    pub(super) fn keep(&mut self, space: Space, (start, end): Span, answer: Answer) {
        let held = answer.name.as_ref().map_or(0, Name::bytes);
        self.insert((space, start), (end, answer), held);
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
        spans.keep(Space::File(ModuleId(1)), (10, 20), answer("f"));
        for (space, address, found) in [
            (Space::File(ModuleId(1)), 9, false),
            (Space::File(ModuleId(1)), 10, true),
            (Space::File(ModuleId(1)), 19, true),
            (Space::File(ModuleId(1)), 20, false),
            (Space::File(ModuleId(0)), 15, false),
            (Space::File(ModuleId(2)), 15, false),
            (Space::Kernel, 15, false),
        ] {
            assert_eq!(spans.find(space, address).is_some(), found, "{space:?} {address}");
        }
    }

    #[test]
    fn what_is_used_stays_and_what_is_not_goes() {
        let mut spans = Spans::new(20 * (Spans::ENTRY + 100));
        for number in 0..1000 {
            spans.keep(Space::Kernel, (number * 10, number * 10 + 10), answer(&"x".repeat(84)));
            assert!(spans.find(Space::Kernel, 5).is_some(), "after {number}");
        }
        assert_eq!(spans.find(Space::Kernel, 15), None);
        assert!(spans.find(Space::Kernel, 9995).is_some());
        spans.set_limit(0);
        assert_eq!((spans.bytes(), spans.find(Space::Kernel, 9995)), (0, None));
    }

    proptest! {
        #[test]
        fn it_keeps_to_its_limit_and_counts_what_it_holds(
            limit in 0usize..20_000, steps in proptest::collection::vec((0u64..50, 0usize..400, any::<bool>()), 0..300)
        ) {
            let mut spans = Spans::new(limit);
            for (place, length, put) in steps {
                if put {
                    spans.keep(Space::Kernel, (place * 10, place * 10 + 10), answer(&"x".repeat(length)));
                } else {
                    spans.find(Space::Kernel, place * 10 + 3);
                }
                prop_assert!(spans.bytes() <= limit, "{}", spans.bytes());
            }
            spans.retain(|_, _| false);
            prop_assert_eq!(spans.bytes(), 0);
        }
    }
}
