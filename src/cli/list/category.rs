//! The categories of events, by the words of `perf list`.

use crate::cli::wanted::Wanted;
use crate::event::{Kind, Listed};

/// A category of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Category {
    /// Generic hardware events.
    Hardware,
    /// Events of the kernel.
    Software,
    /// Generic events of hardware caches.
    Cache,
    /// Tracepoints.
    Tracepoint,
    /// Events that the PMUs name in sysfs.
    Pmu,
    /// USDT probes of the programs that are running.
    Sdt,
    /// Metrics that are computed from events.
    Metric,
}

impl Category {
    /// Parses a word of `perf list`; `None` for any other text.
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "hw" | "hardware" => Self::Hardware,
            "sw" | "software" => Self::Software,
            "cache" | "hwcache" => Self::Cache,
            "tracepoint" => Self::Tracepoint,
            "pmu" => Self::Pmu,
            "sdt" => Self::Sdt,
            "metric" | "metrics" | "metricgroup" | "metricgroups" => Self::Metric,
            _ => return None,
        })
    }

    const fn includes(self, kind: Kind) -> bool {
        match self {
            Self::Hardware => matches!(kind, Kind::Hardware),
            Self::Software => matches!(kind, Kind::Software),
            Self::Cache => matches!(kind, Kind::Cache),
            Self::Tracepoint => matches!(kind, Kind::Tracepoint),
            Self::Pmu => matches!(kind, Kind::Pmu | Kind::Raw),
            Self::Sdt | Self::Metric => false,
        }
    }
}

/// The events to list: those of a category, and those with a name that matches a pattern.
pub(super) struct Selection {
    categories: Vec<Category>,
    patterns: Vec<Wanted>,
}

impl Selection {
    /// Parses the arguments. A word of `perf list` is a category, any other text a pattern.
    pub(super) fn new(words: &[String]) -> anyhow::Result<Self> {
        let mut selection = Self { categories: Vec::new(), patterns: Vec::new() };
        for word in words {
            match Category::parse(word) {
                Some(category) => selection.categories.push(category),
                None => selection.patterns.push(Wanted::new(Some(word))?),
            }
        }
        Ok(selection)
    }

    /// Reports whether all events are listed.
    pub(super) fn is_all(&self) -> bool {
        self.categories.is_empty() && self.patterns.is_empty()
    }

    pub(super) fn has(&self, category: Category) -> bool {
        self.categories.contains(&category)
    }

    /// Reports whether events may match, as opposed to USDT probes and metrics only. With the category of metrics, patterns select metrics.
    pub(super) fn has_events(&self) -> bool {
        let of_events = |category: &Category| !matches!(category, Category::Sdt | Category::Metric);
        let by_name = !self.patterns.is_empty() && !self.has(Category::Metric);
        self.is_all() || by_name || self.categories.iter().any(of_events)
    }

    /// Returns the patterns.
    pub(super) fn patterns(&self) -> &[Wanted] {
        &self.patterns
    }

    pub(super) fn includes(&self, event: &Listed) -> bool {
        // `cpu/mem_load_retired.l3_miss/` is also found as `mem_load*`, as by perf.
        let alone = event.name.split_once('/').map(|(_, name)| name.trim_end_matches('/'));
        let named = |wanted: &Wanted| {
            let mut names = event.aliases.iter().copied().chain([&*event.name]).chain(alone);
            names.any(|name| wanted.includes(name))
        };
        self.is_all()
            || self.categories.iter().any(|category| category.includes(event.kind))
            || self.patterns.iter().any(named)
    }

    /// Returns the only pattern.
    pub(super) fn pattern(&self) -> Option<&Wanted> {
        match &self.patterns[..] {
            [pattern] if self.categories.is_empty() => Some(pattern),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn includes(words: &[&str], name: &str, kind: Kind) -> bool {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let event = Listed { name: name.into(), aliases: &["alias"], kind, source: None, help: "".into() };
        Selection::new(&words).unwrap().includes(&event)
    }

    #[test]
    fn categories_and_patterns_add_up() {
        assert!(includes(&[], "cycles", Kind::Hardware));
        assert!(includes(&["hw"], "cycles", Kind::Hardware));
        assert!(!includes(&["hw", "cache"], "cs", Kind::Software));
        assert!(includes(&["cache", "c?"], "cs", Kind::Software));
        assert!(includes(&["alia"], "cs", Kind::Software));
        assert!(includes(&["mem_load*"], "cpu/mem_load_retired.l3_miss/", Kind::Raw));
        assert!(includes(&["pmu"], "msr/tsc/", Kind::Pmu));
        assert!(!includes(&["sdt"], "cs", Kind::Software));
    }

    #[test]
    fn a_category_of_probes_or_metrics_lists_no_events() {
        let selection = |words: &[&str]| {
            Selection::new(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).unwrap()
        };
        assert!(!selection(&["sdt", "metric"]).has_events());
        assert!(!selection(&["metric", "l1*"]).has_events());
        assert!(selection(&["sdt", "sw"]).has_events());
        assert!(selection(&["cs"]).pattern().is_some() && selection(&["cs", "hw"]).pattern().is_none());
    }
}
