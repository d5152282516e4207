//! Checks of `metrics`: the level, and metrics that are published in addition or not at all.

use super::decode::At;
use super::file;
use super::patterns::{glob, read_each};
use super::report::Report;
use super::value::List;
use crate::metrics::{Level, Metadata};
use crate::targets::Glob;

/// Maximum number of patterns of one list.
const PATTERNS: usize = 256;

/// Which metrics are published.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// The highest level of the published metrics.
    pub level: Level,
    /// Names of metrics that are published whole, at any level.
    pub include: Vec<Glob>,
    /// Names of metrics that are not published. Takes precedence over `include`.
    pub exclude: Vec<Glob>,
}

impl Metrics {
    /// Returns the level at which a family is published, or `None` if it is not published.
    pub fn level_of(&self, family: &Metadata) -> Option<Level> {
        let any = |globs: &[Glob]| {
            let is_name =
                |glob: &Glob| glob.matches_name(family.name()) || glob.matches_name(&family.sample_name());
            globs.iter().any(is_name)
        };
        if any(&self.exclude) {
            None
        } else if any(&self.include) {
            Some(Level::Full)
        } else {
            (family.detail().level <= self.level).then_some(self.level)
        }
    }

    /// Reports whether all metrics are published.
    pub fn is_everything(&self) -> bool {
        self.level == Level::Full && self.exclude.is_empty()
    }
}

/// Returns the settings of `metrics`, with the values of `base` for omitted ones.
pub(super) fn metrics(
    written: &Option<At<file::Metrics>>,
    base: &Metrics,
    report: &mut Report<'_>,
) -> Metrics {
    let Some(At { value: file::Metrics { level, include, exclude }, .. }) = written else {
        return base.clone();
    };
    let level = level.as_ref().map_or(base.level, |at| at.value);
    if let Some(At { node, .. }) = include.as_ref().filter(|_| level == Level::Full) {
        let message = "this has no effect: the level `full` includes all metrics";
        report.warning(*node, message, "choose a lower `level`, or remove this");
    }
    let mut patterns = |written: &Option<At<List<String>>>, base: &[Glob]| match written {
        None => base.to_vec(),
        Some(list) => read_each(list, PATTERNS, "use wider patterns: `perf_process_*`", report, glob),
    };
    let include = patterns(include, &base.include);
    let exclude = patterns(exclude, &base.exclude);
    Metrics { level, include, exclude }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tests::{good, report};
    use crate::metrics::{Detail, Kind};

    fn published(yaml: &str, name: &str, level: Level) -> Option<Level> {
        let family = Metadata::with_detail(name, "help", "", Kind::Counter, Detail::from(level)).unwrap();
        good(yaml).metrics.level_of(&family)
    }

    #[test]
    fn a_level_has_the_metrics_of_the_levels_before_it() {
        use Level::{Basic, Full, Standard};
        for (written, level) in [("basic", Basic), ("standard", Standard), ("full", Full)] {
            let yaml = format!("metrics: {{level: {written}}}");
            for of in Level::ALL {
                assert_eq!(published(&yaml, "perf_a", of), (of <= level).then_some(level), "{written} {of}");
            }
        }
        assert_eq!(Config::default().metrics.level, Standard);
    }

    #[test]
    fn names_are_included_at_any_level_and_excluded_first() {
        let yaml =
            "metrics: {level: basic, include: [\"perf_process_*\"], exclude: [perf_process_exits_total]}";
        assert_eq!(published(yaml, "perf_process_forks", Level::Full), Some(Level::Full));
        assert_eq!(published(yaml, "perf_process_exits", Level::Basic), None);
        assert_eq!(published(yaml, "perf_forks", Level::Standard), None);
    }

    #[test]
    fn a_list_without_effect_is_reported() {
        assert!(report("metrics: {level: full, include: [a]}").contains("has no effect"));
        assert!(report("metrics: {include: [\"a[\"]}").contains("is not a pattern"));
        assert!(report("metrics: {level: all}").contains("standard"));
    }
}
