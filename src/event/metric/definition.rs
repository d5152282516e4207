//! The types of built-in metrics.

use crate::named_enum::named_enum;

/// A built-in metric: its name, and its formula on each family of CPUs.
#[derive(Debug, PartialEq)]
pub struct Definition {
    /// Name. As in perf (`pmu-events/arch/common/common/metrics.json`, Linux 6.19), as far as perf has it on all CPUs.
    pub name: &'static str,
    /// Another name; empty without one.
    pub alias: &'static str,
    /// Group of metrics that the name of the group selects together.
    pub group: Group,
    /// Description: one sentence without a full stop.
    pub help: &'static str,
    /// Unit and number format.
    pub unit: Unit,
    /// Whether `stat` shows the metric wherever its events are counted, as perf does. Others are shown if they are asked for.
    pub automatic: bool,
    /// The event next to which the metric is shown. Empty for the first event of the formula.
    pub at: &'static str,
    /// Formulas, the preferred one first.
    pub formulas: &'static [Formula],
}

/// A formula of a metric.
#[derive(Debug, PartialEq)]
pub struct Formula {
    /// The CPUs that have its events, for messages.
    pub cpus: &'static str,
    /// Patterns of CPU models, separated by spaces: names of the kernel's `mapfile.csv`, or identities such as `0x00000000410fd49[012]`.
    /// Empty: any CPU that has the events.
    pub models: &'static str,
    /// The expression.
    pub expression: &'static str,
    /// An event that has to lead the group of the others. Empty without one.
    pub leader: &'static str,
    /// The groups of events. Empty: all events of a PMU in one group.
    pub groups: &'static str,
}

named_enum! {
    /// Groups of metrics. A name in any case, with or without hyphens, selects all metrics of the group.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Group {
        /// Metrics of perf's default events.
        Default = "default",
        /// Ratios and rates of branches.
        Branch = "branch",
        /// Caches.
        Cache = "cache",
        /// Translation lookaside buffers.
        Tlb = "tlb",
        /// Use of the issue slots of the pipeline.
        TopdownL1 = "topdown-l1",
        /// The parts of its categories.
        TopdownL2 = "topdown-l2",
        /// Memory bandwidth.
        Memory = "memory",
        /// Power.
        Energy = "energy",
        /// Sleep states of cores and sockets.
        Cstate = "cstate",
        /// Transactional memory.
        Transaction = "transaction",
    }
}

impl Group {
    /// Reports whether a word selects the group.
    pub fn is_named(self, word: &str) -> bool {
        let letters = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
        letters(word) == letters(self.as_str())
    }
}

/// Unit and number format of a metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Unit {
    /// What the value of the expression is multiplied with before it is shown: 100 for percentages.
    pub factor: f64,
    /// Unit, as perf prints it.
    pub text: &'static str,
    /// Number format.
    pub style: Style,
}

/// Number format of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Three decimals.
    Fine,
    /// Two decimals.
    Ratio,
    /// Two decimals and a percent sign.
    Percent,
    /// One decimal and a percent sign.
    Tenths,
    /// No decimals.
    Whole,
    /// Three decimals, with the prefix that keeps the number readable, per second.
    Rate,
}

impl Definition {
    /// Returns a metric that is shown if it is asked for, next to the first event of its formula.
    pub(super) const fn asked(
        name: &'static str,
        group: Group,
        unit: Unit,
        formulas: &'static [Formula],
        help: &'static str,
    ) -> Self {
        Self { name, alias: "", group, help, unit, automatic: false, at: "", formulas }
    }

    /// Reports whether a word is its name or its alias, in any case.
    pub fn is_named(&self, word: &str) -> bool {
        let is = |name: &str| !name.is_empty() && name.eq_ignore_ascii_case(word);
        is(self.name) || is(self.alias)
    }
}

impl Unit {
    /// Returns a unit without a conversion.
    pub(super) const fn new(style: Style, text: &'static str) -> Self {
        Self { factor: 1.0, text, style }
    }

    /// Returns percentages of something.
    pub(super) const fn percent(text: &'static str) -> Self {
        Self { factor: 100.0, text, style: Style::Percent }
    }

    /// Returns percentages with one decimal.
    pub(super) const fn tenths(text: &'static str) -> Self {
        Self { factor: 100.0, text, style: Style::Tenths }
    }
}

impl Formula {
    /// Returns a formula for any CPU that has its events.
    pub(super) const fn of(cpus: &'static str, expression: &'static str) -> Self {
        Self { cpus, models: "", expression, leader: "", groups: "" }
    }

    /// Restricts the formula to CPU models.
    pub(super) const fn only(self, models: &'static str) -> Self {
        Self { models, ..self }
    }

    /// Sets the leader of its group.
    pub(super) const fn led_by(self, leader: &'static str) -> Self {
        Self { leader, ..self }
    }

    /// Sets its groups, for more events than the counters of a CPU.
    pub(super) const fn in_groups(self, groups: &'static str) -> Self {
        Self { groups, ..self }
    }
}
