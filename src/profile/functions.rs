//! The functions that were sampled most: a list that is as long as the configuration says.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::clock::Timestamp;
use crate::symbol::Named;

/// How many functions are counted, so that the busiest among them can be told.
const MOST: usize = 1 << 14;

/// A function and the file that it is in.
pub(super) type Function = (Arc<str>, Arc<str>);

/// How often one was seen innermost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Total {
    pub(super) count: u64,
    pub(super) start: Timestamp,
}

/// The functions of an entry.
#[derive(Debug, Default)]
pub(super) struct Functions(FxHashMap<Function, Total>);

impl Functions {
    /// Counts samples whose innermost frame has this name.
    pub(super) fn add(&mut self, named: &Named, count: u64, now: Timestamp) {
        let module = named.segment.as_ref().map_or("", |segment| &segment.path);
        let module: Arc<str> = module.rsplit('/').next().unwrap_or(module).into();
        // Addresses are too many to be labels.
        let function = named.lines.first().map_or_else(|| "[unknown]".into(), |line| Arc::clone(&line.name));
        let total = self.0.entry((function, module)).or_insert(Total { count: 0, start: now });
        total.count = total.count.saturating_add(count);
        if self.0.len() > MOST {
            self.forget();
        }
    }

    /// Makes room: those that were seen least are forgotten.
    fn forget(&mut self) {
        let mut counts: Vec<u64> = self.0.values().map(|total| total.count).collect();
        counts.sort_unstable();
        let least = counts.get(counts.len() / 2).copied().unwrap_or_default();
        self.0.retain(|_, total| total.count > least);
    }

    /// The `most` that were seen most often, the busiest first.
    pub(super) fn top(&self, most: usize) -> Vec<(&Function, Total)> {
        let mut all: Vec<(&Function, Total)> =
            self.0.iter().map(|(function, &total)| (function, total)).collect();
        all.sort_unstable_by(|(a, one), (b, other)| other.count.cmp(&one.count).then_with(|| a.cmp(b)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbol::{NamedLine, Origin};

    fn named(name: &str) -> Named {
        let line = NamedLine { name: name.into(), linkage: name.into(), file: None, line: 0 };
        Named {
            origin: Origin::Native,
            lines: [line].into(),
            unknown: None,
            reason: None,
            segment: None,
            address: 0,
        }
    }

    #[test]
    fn the_busiest_functions_are_listed_and_a_long_tail_does_not_push_them_out() {
        let mut functions = Functions::default();
        functions.add(&named("hot"), 100, Timestamp(1));
        functions.add(&named("warm"), 50, Timestamp(1));
        for number in 0..3 * MOST {
            functions.add(&named(&format!("rare{number}")), 1, Timestamp(2));
        }
        functions.add(&named("hot"), 1, Timestamp(3));
        let top = functions.top(2);
        let top: Vec<(&str, u64)> = top.iter().map(|((name, _), total)| (&**name, total.count)).collect();
        assert_eq!(top, [("hot", 101), ("warm", 50)]);
        assert!(functions.0.len() <= MOST);
    }
}
