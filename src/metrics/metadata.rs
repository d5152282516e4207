//! Names, help texts, units and kinds of metric families, validated once. A name that a scraper would reject cannot become a [`Metadata`],
//! so encoders need no checks.
//!
//! Rules: <https://prometheus.io/docs/practices/naming/> and
//! <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md#metricfamily>.

use std::sync::Arc;

use super::Detail;

/// Suffixes that the text formats add to sample names. Base names must not end with them, so that families with different names never have
/// samples of the same name.
const RESERVED_SUFFIXES: [&str; 7] = ["_total", "_created", "_info", "_bucket", "_count", "_sum", "_gsum"];

/// Kind of the values of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A value that only increases, from its start time.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// A distribution of values.
    Histogram,
    /// Always 1; the labels carry the information.
    Info,
}

impl Kind {
    /// Returns the suffix of the sample name, for families whose points have one sample each.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// The name, help text, unit and kind of a family. Created once and shared by all snapshots that contain the family.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    name: Box<str>,
    help: Box<str>,
    unit: Box<str>,
    kind: Kind,
    detail: Detail,
}

/// Reason why a family cannot have the requested name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name contains a character other than a-z, 0-9 and _, or begins with a digit or `__`.
    #[error(
        "{0:?} is not a valid metric name: it must match [a-z_][a-z0-9_]* and must not begin with two underscores"
    )]
    Characters(String),
    /// A reserved suffix.
    #[error(
        "{name:?} is not a valid metric name: the suffix {suffix:?} is reserved for the exposition formats"
    )]
    Reserved {
        /// The rejected name.
        name: String,
        /// The reserved suffix.
        suffix: &'static str,
    },
    /// A unit that is not the suffix of the name, or that the kind does not allow.
    #[error("the metric {name:?} cannot have the unit {unit:?}: the name must end with \"_{unit}\"")]
    Unit {
        /// The rejected name.
        name: String,
        /// The rejected unit.
        unit: String,
    },
    /// An empty help text.
    #[error("the metric {0:?} has no help text")]
    Help(String),
}

impl Metadata {
    /// Validates and stores the metadata. `name` excludes the suffixes `_total` and `_info`, which the text formats add. `help` is one
    /// unescaped sentence. `unit` is the base unit at the end of the name (`seconds`, `bytes`, `ratio`), or empty.
    ///
    /// # Errors
    /// Returns an error if a scraper would reject or misinterpret the family. The message contains the name and the violated rule.
    pub fn new(name: &str, help: &str, unit: &str, kind: Kind) -> Result<Arc<Self>, NameError> {
        Self::with_detail(name, help, unit, kind, Detail::default())
    }

    /// As [`new`](Self::new), for a family that is not published, or not with all of its series, at every level.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_detail(
        name: &str,
        help: &str,
        unit: &str,
        kind: Kind,
        detail: Detail,
    ) -> Result<Arc<Self>, NameError> {
        let digit_first = name.bytes().next().is_none_or(|byte| byte.is_ascii_digit());
        if digit_first || name.starts_with("__") || !name.bytes().all(is_name_byte) {
            return Err(NameError::Characters(name.to_owned()));
        }
        if let Some(suffix) = reserved_suffix(name) {
            return Err(NameError::Reserved { name: name.to_owned(), suffix });
        }
        let named = name.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_'));
        if !unit.is_empty() && (!named || kind == Kind::Info) {
            return Err(NameError::Unit { name: name.to_owned(), unit: unit.to_owned() });
        }
        if help.trim().is_empty() {
            return Err(NameError::Help(name.to_owned()));
        }
        Ok(Arc::new(Self { name: name.into(), help: help.into(), unit: unit.into(), kind, detail }))
    }

    /// Returns the name without `_total`: `perf_cpu_cycles`, `perf_cgroup_task_clock_seconds`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the samples where each point has one sample: the family's name with the suffix `_total` or `_info`.
    pub fn sample_name(&self) -> String {
        format!("{}{}", self.name, self.kind.suffix())
    }

    /// Returns the help text: one unescaped sentence.
    pub fn help(&self) -> &str {
        &self.help
    }

    /// Returns the unit at the end of the name, or an empty string.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// Returns the kind of the values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns what is published of the family at each level.
    pub fn detail(&self) -> &Detail {
        &self.detail
    }
}

/// Converts any text (name of a tracepoint, a PMU event, a field) to a name that [`Metadata::new`] accepts. The result is lower case. Other
/// characters become underscores, and `_events` is appended to a reserved suffix.
pub fn fit_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') {
        name.insert(0, '_');
    }
    if reserved_suffix(&name).is_some() {
        name.push_str("_events");
    }
    name
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

fn reserved_suffix(name: &str) -> Option<&'static str> {
    RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_that_a_scraper_would_refuse_is_refused_here() {
        for name in ["", "1st", "a-b", "a.b", "CamelCase", "a:b", "__name__", "ä", "a b", "a\n"] {
            let error = Metadata::new(name, "h", "", Kind::Gauge).unwrap_err();
            assert_eq!(error, NameError::Characters(name.to_owned()));
        }
        assert!(Metadata::new("_", "h", "", Kind::Gauge).is_ok());
    }

    #[test]
    fn the_endings_of_samples_are_not_endings_of_families() {
        let error = Metadata::new("perf_cycles_total", "h", "", Kind::Counter).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""perf_cycles_total" is not a valid metric name: the suffix "_total" is reserved for the exposition formats"#
        );
        assert!(Metadata::new("perf_cas_count", "h", "", Kind::Counter).is_err());
        assert!(Metadata::new("perf_count_reads", "h", "", Kind::Counter).is_ok());
    }

    #[test]
    fn a_unit_stands_at_the_end_of_the_name() {
        assert!(Metadata::new("a_seconds", "h", "seconds", Kind::Counter).is_ok());
        for (name, unit) in [("a_bytes", "seconds"), ("seconds", "seconds"), ("aseconds", "seconds")] {
            assert!(
                matches!(Metadata::new(name, "h", unit, Kind::Gauge), Err(NameError::Unit { .. })),
                "{name}"
            );
        }
        assert!(Metadata::new("a_seconds", "h", "seconds", Kind::Info).is_err());
    }

    #[test]
    fn a_family_without_help_is_refused() {
        assert_eq!(Metadata::new("a", " ", "", Kind::Gauge), Err(NameError::Help("a".to_owned())));
    }

    #[test]
    fn events_are_fitted_as_people_would_write_them() {
        assert_eq!(fit_name("L1-dcache-load-misses"), "l1_dcache_load_misses");
        assert_eq!(fit_name("UNC_M_CAS_COUNT"), "unc_m_cas_count_events");
        assert_eq!(fit_name("4k//aliases"), "_4k_aliases");
        assert_eq!(fit_name(""), "_");
    }

    proptest! {
        #[test]
        fn every_fitted_name_is_accepted(text in "\\PC{0,40}(_total|_Info)?") {
            let name = fit_name(&text);
            prop_assert!(Metadata::new(&name, "h", "", Kind::Counter).is_ok(), "{text:?} became {name:?}");
        }
    }
}
