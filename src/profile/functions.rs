//! The functions with the most samples, as series.

use std::sync::Arc;

use crate::clock::{Monotonic, Timestamp};
use crate::metrics::Labels;
use crate::series::{Naming, Table};
use crate::symbol::Named;

/// The number of recent samples below which a function does not take the series of another.
const MIN_ACTIVITY: u64 = 5;

/// The functions of an entry. The innermost functions with the most recent samples have individual series. All others are aggregated into
/// `other`.
#[derive(Debug)]
pub(super) struct Functions {
    entry: Arc<str>,
    pub(super) series: Table<u64>,
}

impl Functions {
    /// Creates an empty table.
    pub(super) fn new(entry: &Arc<str>, limit: usize, now: Timestamp) -> Self {
        Self { entry: Arc::clone(entry), series: Table::new(0, limit, MIN_ACTIVITY, now) }
    }

    /// Counts samples whose innermost frame has this symbol.
    pub(super) fn add(&mut self, named: &Named, count: u64, now: Monotonic) {
        let module = named.segment.as_ref().map_or("", |segment| &segment.path);
        let module = module.rsplit('/').next().unwrap_or(module);
        // There are too many addresses to use them as labels.
        let function = named.lines.first().map_or("[unknown]", |line| &line.name);
        let render = |function: &str, module: &str| {
            Labels::new([("function", function), ("module", module), ("profile", &self.entry)])
        };
        let labels = render(function, module);
        let id = self.series.find_or_insert_with(&labels, now, || Naming {
            labels: Arc::clone(&labels),
            rest: render("other", "other"),
            own: None,
            info: (),
        });
        self.series.get_mut(id).into_iter().for_each(|series| series.count(count));
    }

    /// Ends a collection: the functions with the most recent samples have labels, `limit` at most.
    pub(super) fn end_collection(&mut self, limit: usize, now: Timestamp, monotonic: Monotonic) {
        self.series.set_limit(limit);
        self.series.end_collection(now, monotonic);
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
            function: None,
        }
    }

    fn found(functions: &Functions) -> Vec<(String, u64)> {
        let of = |labels: &Labels| labels.get("function").unwrap().to_owned();
        let mut found: Vec<_> =
            functions.series.iter().map(|series| (of(series.labels), *series.total)).collect();
        found.sort();
        found
    }

    #[test]
    fn functions_that_are_hot_now_are_listed_and_the_others_are_counted_together() {
        let mut functions = Functions::new(&"cpu".into(), 2, Timestamp(0));
        let mut second = 0;
        let mut collect = |functions: &mut Functions, samples: &[(&str, u64)]| {
            second += 1;
            let now = Monotonic(std::time::Duration::from_secs(second));
            samples.iter().for_each(|&(name, count)| functions.add(&named(name), count, now));
            for number in 0..3000 {
                functions.add(&named(&format!("rare{second}-{number}")), 1, now);
            }
            functions.end_collection(2, Timestamp(second * 1000), now);
        };
        for _ in 0..120 {
            collect(&mut functions, &[("morning", 100), ("always", 50)]);
        }
        let names =
            |functions: &Functions| found(functions).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&functions), ["always", "morning", "other"]);
        for _ in 0..90 {
            collect(&mut functions, &[("evening", 100), ("always", 50)]);
        }
        assert_eq!(
            names(&functions),
            ["always", "evening", "other"],
            "evening has fewer samples in total than morning"
        );
        assert_eq!(functions.series.accounts().sum::<u64>(), 210 * 3150, "no sample is missing");
        assert!(functions.series.unnamed() <= 1024);
    }
}
