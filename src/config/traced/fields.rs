//! What becomes of the fields of an event, which is said in the same words under `tracepoints` and `probes`: labels,
//! sums, histograms, filters.

use std::sync::Arc;

use super::{Label, Measure, Quantity, Unit};
use crate::config::decode::At;
use crate::config::file::{self, VALUES_MAX};
use crate::config::problem::{all_of, shown};
use crate::config::report::Report;
use crate::config::selection::{not_empty, number};
use crate::config::value::{Histogram, HistogramBlock, Labels, List};
use crate::config::yaml::NodeId;
use crate::event::nearest;
use crate::target::Targets;

/// The values of a label that are kept apart unless the entry says otherwise.
const VALUES: usize = 100;
/// The most labels: each multiplies the series.
const LABEL_LIMIT: usize = 16;
/// The most buckets: each is a series.
const BUCKET_LIMIT: usize = 256;
/// The longest filter, in bytes: what the kernel takes is a page.
const FILTER_LIMIT: usize = 4096;
/// What each event has, besides its own fields: those of every event, and the address of a probe.
const EVERYWHERE: [&str; 2] = ["common_", "__probe_"];

/// What a record tells besides the fields of its event, and may be a label or part of a key.
pub(super) const OF_THE_RECORD: [&str; 3] = ["$cpu", "$pid", "$tid"];

/// Which fields there are.
#[derive(Clone, Copy)]
pub(in crate::config) enum Fields<'f> {
    /// Those of tracepoints, which this host may not even have.
    Event,
    /// Those of either of two tracepoints.
    Pair,
    /// The arguments of a probe; `None`: those of a marker, whatever it has.
    Probe(Option<&'f [Arc<str>]>),
}

impl Fields<'_> {
    /// The name of a field, unless there is none of this name.
    fn named(self, field: At<&str>, report: &mut Report<'_>) -> Option<Arc<str>> {
        let text = field.value;
        let side = text.strip_prefix("from.").or_else(|| text.strip_prefix("to."));
        let name = side.filter(|_| matches!(self, Fields::Pair)).unwrap_or(text);
        let (message, hint) = if text.starts_with('$') {
            let message = format!("{} is neither a field nor one of `$cpu`, `$pid` and `$tid`", shown(text));
            (message, Some("who did it is told by `per: [process]` and `per: [cgroup]`".to_owned()))
        } else if let Some(name) = side.filter(|_| !matches!(self, Fields::Pair)) {
            (format!("{} is no field: there is one event only", shown(text)), Some(format!("write `{name}`")))
        } else if !is_field(name) {
            let message = format!("{} is no field: those are words of letters, digits and _", shown(text));
            (message, Some("`format` in its directory of tracefs names them".to_owned()))
        } else if let Fields::Probe(Some(known)) = self
            && !is_everywhere(name)
            && !known.iter().any(|argument| **argument == *name)
        {
            missing_argument(name, known)
        } else {
            return Some(text.into());
        };
        report.error(field.node, message, hint);
        None
    }

    /// Reports names in a filter that are no argument of a probe. What else may be wrong with it, the kernel knows.
    pub(super) fn judge(self, filter: &At<String>, report: &mut Report<'_>) {
        let Fields::Probe(Some(known)) = self else { return };
        let missing = compared(filter).into_iter().find(|name| {
            let builtin = ["CPU", "cpu", "COMM", "comm"].contains(name);
            !builtin && !is_everywhere(name) && !known.iter().any(|argument| **argument == **name)
        });
        if let Some(name) = missing {
            let (message, hint) = missing_argument(name, known);
            report.error(filter.node, message, hint);
        }
    }
}

fn is_everywhere(name: &str) -> bool {
    EVERYWHERE.iter().any(|prefix| name.starts_with(prefix))
}

fn missing_argument(name: &str, known: &[Arc<str>]) -> (String, Option<String>) {
    let message = format!("the probe takes no argument {}", shown(name));
    let names: Vec<&str> = known.iter().map(|known| &**known).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("add it: `arguments: [{name}]`"),
        None => format!("it takes {}", all_of(&names)),
    };
    (message, Some(hint))
}

/// Whether a text is the name of a field as the kernel's headers can have it.
pub(super) fn is_field(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.bytes().all(word) && text.bytes().next().is_some_and(|first| !first.is_ascii_digit())
}

/// The names that a filter compares: the words that stand before an operator.
pub(super) fn compared(filter: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut word = None;
    let mut rest = filter;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' | '\'' => rest[1..].find(c).map_or(rest.len(), |end| end + 2),
            _ if c.is_ascii_alphanumeric() || c == '_' => {
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len())
            }
            _ => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        match c {
            // `name.ustring` and `name.function` are about the same name.
            '.' => {
                let suffix = behind.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(behind.len());
                rest = &behind[suffix..];
                continue;
            }
            '=' | '<' | '>' | '~' | '!' | '&' if !behind.starts_with(['&']) => names.extend(word.take()),
            _ if c.is_whitespace() => {}
            _ => word = is_field(token).then_some(token),
        }
        rest = if c == '&' && behind.starts_with('&') { &behind[1..] } else { behind };
    }
    names
}

/// The filter, if it can be one.
pub(in crate::config) fn filter(
    written: Option<&At<String>>,
    fields: Fields<'_>,
    report: &mut Report<'_>,
) -> Option<Arc<str>> {
    let filter = written?;
    if filter.trim().is_empty() {
        report.error(filter.node, "an empty filter", Some("leave it out to take every event".into()));
    } else if filter.len() > FILTER_LIMIT {
        let message = format!("the filter has {} bytes, and the kernel takes {FILTER_LIMIT}", filter.len());
        report.error(filter.node, message, None);
    } else {
        fields.judge(filter, report);
    }
    Some(filter.trim().into())
}

/// The labels. Those that tell the targets of `per` apart are taken.
pub(super) fn labels(
    written: Option<&At<Labels>>,
    fields: Fields<'_>,
    per: &[Targets],
    report: &mut Report<'_>,
) -> Vec<Label> {
    let Some(written) = written else { return Vec::new() };
    let pairs = written.pairs();
    if pairs.is_empty() && !report.blames(written.node) {
        report.error(written.node, "no labels", Some("name a field, or leave it out".into()));
    }
    if pairs.len() > LABEL_LIMIT {
        let message = format!("{} labels, and at most {LABEL_LIMIT} are taken", pairs.len());
        report.error(written.node, message, Some("each multiplies the series: leave some out".into()));
        return Vec::new();
    }
    let mut labels: Vec<Label> = Vec::new();
    for (name, field) in pairs {
        let of = match OF_THE_RECORD.contains(&field.value) {
            true => Some(field.value.into()),
            false => fields.named(field, report),
        };
        let Some(of) = of else { continue };
        if let Some((message, hint)) = unfit(name.value, field.value, per) {
            report.error(name.node, message, Some(hint));
        } else if labels.iter().any(|label| *label.name == *name.value) {
            report.error(name.node, format!("two labels {}", shown(&name)), Some("leave one out".into()));
        } else {
            labels.push(Label { name: name.value.into(), field: of });
        }
    }
    labels
}

/// Why a word cannot be a label here, and what to write instead.
fn unfit(name: &str, field: &str, per: &[Targets]) -> Option<(String, String)> {
    let apart = || {
        let field_name = field.rsplit('.').next().unwrap_or(field);
        format!("name it apart: {{field_{}: {field}}}", field_name.trim_start_matches('_'))
    };
    let owner = per.iter().find(|per| per.has_label(name));
    if let Some((side, of)) = name.split_once('.').filter(|_| name == field) {
        return Some((
            format!("{} cannot be a label", shown(name)),
            format!("name it: {{{side}_{of}: {field}}}"),
        ));
    }
    if let Some(owner) = owner {
        let scope = owner.scope();
        return Some((format!("{} is the label of `per: {scope}` already", shown(name)), apart()));
    }
    match name {
        "event" => Some(("`event` is the label that tells tracepoints apart".to_owned(), apart())),
        "le" | "quantile" => Some((format!("{} is Prometheus' own label", shown(name)), apart())),
        _ if name.starts_with("__") => {
            Some((format!("{}: labels that begin with __ are Prometheus' own", shown(name)), apart()))
        }
        _ if !is_field(name) => {
            let message = format!("{} is no label: those are words of letters, digits and _", shown(name));
            let better: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let better = better.trim_start_matches(|c: char| c.is_ascii_digit());
            let better = if better.is_empty() { "name" } else { better };
            Some((message, format!("write {{{better}: {field}}}")))
        }
        _ => None,
    }
}

/// How many values of a label are kept apart.
pub(super) fn values(
    written: Option<&At<u64>>,
    labels: Option<&At<Labels>>,
    entry: NodeId,
    report: &mut Report<'_>,
) -> usize {
    if let Some(values) = written.filter(|_| labels.is_none() && !report.blames(entry)) {
        let message = "this has no effect: the entry has no `labels`";
        report.warning(values.node, message, Some("leave it out".into()));
    }
    number(written, VALUES_MAX, report).unwrap_or(VALUES)
}

/// What time can pass in what an entry is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    /// That between two events, and nothing else is measured.
    Pair,
    /// That from the entry of a function to its return.
    Call,
    /// None; why, and what to write instead.
    None(&'static str, &'static str),
}

/// What is added up.
pub(super) fn measure(
    sum: Option<&At<file::Sum>>,
    histogram: Option<&At<Histogram>>,
    time: Time,
    fields: Fields<'_>,
    report: &mut Report<'_>,
) -> Measure {
    let default = if time == Time::Pair { Measure::Elapsed(None) } else { Measure::Count };
    if let (Some(sum), Some(_)) = (sum, histogram) {
        let hint = "leave out `sum`: every histogram has one";
        report.error(sum.node, "an entry has a `sum` or a `histogram`, not both", Some(hint.into()));
        return default;
    }
    let of = sum.map(|sum| &sum.of).or_else(|| match &histogram?.value {
        Histogram::Seconds => None,
        Histogram::Block(block) => block.of.as_ref(),
    });
    if let Some(of) = of.filter(|_| time == Time::Pair) {
        let hint = "write an entry with `event` for what a field holds";
        report.error(of.node, "a pair measures the time that passes, and no field", Some(hint.into()));
        return default;
    }
    let quantity = |of: &At<String>, unit: Option<&At<file::Unit>>, report: &mut Report<'_>| {
        if OF_THE_RECORD.contains(&of.value.as_str()) {
            let message = format!("{} is no number that can be added up", shown(of));
            report.error(of.node, message, Some("name a field".into()));
            return None;
        }
        let field = fields.named(At { node: of.node, value: &of.value }, report)?;
        Some(Quantity { field, unit: unit.map_or(Unit::NONE, |unit| unit.value.into()) })
    };
    let measured = match (sum, histogram.map(|at| (at, &at.value))) {
        (Some(sum), _) => quantity(&sum.of, sum.unit.as_ref(), report).map(Measure::Sum),
        (None, Some((_, Histogram::Block(HistogramBlock { of: Some(of), unit, buckets })))) => {
            let bounds = bounds(buckets.as_ref(), report);
            quantity(of, unit.as_ref(), report).map(|quantity| Measure::Histogram(quantity, bounds))
        }
        (None, Some((at, elapsed))) => elapsed_time(at, elapsed, time, report),
        (None, None) => None,
    };
    measured.unwrap_or(default)
}

/// A histogram of the time that passes.
fn elapsed_time(
    at: &At<Histogram>,
    histogram: &Histogram,
    time: Time,
    report: &mut Report<'_>,
) -> Option<Measure> {
    let (unit, buckets) = match histogram {
        Histogram::Seconds => (None, None),
        Histogram::Block(block) => (block.unit.as_ref(), block.buckets.as_ref()),
    };
    let bounds = bounds(buckets, report);
    if report.gives(at.node, "of") {
        return None;
    }
    if let Time::None(why, instead) = time {
        report.error(at.node, format!("this is about the time that passes, and {why}"), Some(instead.into()));
        return None;
    }
    if let Some(unit) = unit.filter(|unit| unit.value != file::Unit::Seconds) {
        let hint = "leave out `unit`, or name a field: `of`";
        report.error(unit.node, "the time that passes is in seconds", Some(hint.into()));
    }
    Some(Measure::Elapsed(bounds))
}

/// The bounds of buckets: finite and growing.
fn bounds(written: Option<&At<List<f64>>>, report: &mut Report<'_>) -> Option<Vec<f64>> {
    let list = written?;
    not_empty(written, "has no bounds", "leave it out for exponential buckets", report);
    if list.len() > BUCKET_LIMIT {
        let message = format!("{} buckets, and at most {BUCKET_LIMIT} are taken", list.len());
        report.error(list.node, message, Some("each is a series: take fewer".into()));
        return None;
    }
    let mut bounds: Vec<f64> = Vec::new();
    for At { node, value } in list.iter() {
        match bounds.last() {
            _ if !value.is_finite() => {
                let hint = "leave it out: the bucket of +Inf is there by itself";
                report.error(*node, format!("{value} is no bound"), Some(hint.into()));
            }
            Some(last) if value <= last => {
                report.error(*node, format!("bounds grow, and {value} is not above {last}"), None);
            }
            _ => bounds.push(*value),
        }
    }
    Some(bounds)
}

impl Unit {
    /// A plain number.
    pub const NONE: Self = Self { base: "", factor: 1.0 };
}

impl From<file::Unit> for Unit {
    fn from(written: file::Unit) -> Self {
        let (base, factor) = match written {
            file::Unit::Seconds => ("seconds", 1.0),
            file::Unit::Milliseconds => ("seconds", 1e-3),
            file::Unit::Microseconds => ("seconds", 1e-6),
            file::Unit::Nanoseconds => ("seconds", 1e-9),
            file::Unit::Bytes => ("bytes", 1.0),
            file::Unit::Kibibytes => ("bytes", 1024.0),
            file::Unit::Sectors => ("bytes", 512.0),
            // Fixed for as long as the kernel runs: 4 KiB on x86-64, up to 64 KiB on arm64.
            file::Unit::Pages => ("bytes", rustix::param::page_size() as f64),
        };
        Self { base, factor }
    }
}
