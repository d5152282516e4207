//! What becomes of the fields of an event, which is said in the same words under `tracepoints` and `probes`: labels,
//! sums, histograms, filters.

use std::sync::Arc;

use super::{Label, Measure, Quantity, Unit};
use crate::config::decode::At;
use crate::config::file::{Histogram, Labels, Sum, VALUES_MAX};
use crate::config::problem::{all_of, shown};
use crate::config::report::Report;
use crate::config::value::List;
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
    fn named(self, field: &At<String>, report: &mut Report<'_>) -> Option<Arc<str>> {
        let text = field.value.as_str();
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
        report.error(filter.node, "an empty filter", "leave it out to take every event");
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
    let Labels(pairs) = &written.value;
    if pairs.is_empty() && !report.blames(written.node) {
        report.error(written.node, "no labels", "name a field, or leave it out");
    }
    let hint = "each multiplies the series: leave some out";
    if report.too_many(written.node, (pairs.len(), "labels"), LABEL_LIMIT, hint) {
        return Vec::new();
    }
    let mut labels: Vec<Label> = Vec::new();
    for (name, field) in pairs {
        let of = match OF_THE_RECORD.contains(&field.as_str()) {
            true => Some(field.as_str().into()),
            false => fields.named(field, report),
        };
        let Some(of) = of else { continue };
        if let Some((message, hint)) = unfit(name, field, per) {
            report.error(name.node, message, hint);
        } else if labels.iter().any(|label| *label.name == **name) {
            report.error(name.node, format!("two labels {}", shown(name)), "leave one out");
        } else {
            labels.push(Label { name: name.as_str().into(), field: of });
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
        report.warning(values.node, message, "leave it out");
    }
    report.number(written, VALUES_MAX).unwrap_or(VALUES)
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
    sum: Option<&At<Sum>>,
    histogram: Option<&At<Histogram>>,
    time: Time,
    fields: Fields<'_>,
    report: &mut Report<'_>,
) -> Measure {
    let default = if time == Time::Pair { Measure::Elapsed(None) } else { Measure::Count };
    if let (Some(sum), Some(_)) = (sum, histogram) {
        let hint = "leave out `sum`: every histogram has one";
        report.error(sum.node, "an entry has a `sum` or a `histogram`, not both", hint);
        return default;
    }
    let of = sum.map(|sum| &sum.of).or_else(|| histogram?.of());
    if let Some(of) = of.filter(|_| time == Time::Pair) {
        let hint = "write an entry with `event` for what a field holds";
        report.error(of.node, "a pair measures the time that passes, and no field", hint);
        return default;
    }
    let quantity = |of: &At<String>, unit: Option<&At<Unit>>, report: &mut Report<'_>| {
        if OF_THE_RECORD.contains(&of.value.as_str()) {
            let message = format!("{} is no number that can be added up", shown(of));
            report.error(of.node, message, "name a field");
            return None;
        }
        let field = fields.named(of, report)?;
        Some(Quantity { field, unit: unit.map(|unit| unit.value) })
    };
    let measured = match (sum, histogram) {
        (Some(sum), _) => quantity(&sum.of, sum.unit.as_ref(), report).map(Measure::Sum),
        (None, Some(histogram)) => {
            let bounds = bounds(histogram.buckets.as_ref(), report);
            match histogram.of() {
                Some(of) => quantity(of, histogram.unit.as_ref(), report)
                    .map(|quantity| Measure::Histogram(quantity, bounds)),
                None => is_elapsed_time(histogram, time, report).then_some(Measure::Elapsed(bounds)),
            }
        }
        (None, None) => None,
    };
    measured.unwrap_or(default)
}

/// A histogram, if it is one.
pub(super) fn histogram<'e>(
    written: Option<&'e At<Histogram>>,
    report: &mut Report<'_>,
) -> Option<&'e At<Histogram>> {
    let histogram = written?;
    let Some(text) = histogram.unknown_text() else { return written };
    let message =
        format!("expected `seconds`, the time that passes, or a block, found the text {}", shown(text));
    report.error(histogram.node, message, "a field is written {of: field, unit: bytes}");
    None
}

/// Whether a histogram without a field is about time that passes. Reports what contradicts that.
fn is_elapsed_time(histogram: &At<Histogram>, time: Time, report: &mut Report<'_>) -> bool {
    if report.gives(histogram.node, "of") {
        return false;
    }
    if let Time::None(why, instead) = time {
        let message = format!("this is about the time that passes, and {why}");
        report.error(histogram.node, message, instead);
        return false;
    }
    if let Some(unit) = histogram.unit.as_ref().filter(|unit| unit.value != Unit::Seconds) {
        let hint = "leave out `unit`, or name a field: `of`";
        report.error(unit.node, "the time that passes is in seconds", hint);
    }
    true
}

/// The bounds of buckets: finite and growing.
fn bounds(written: Option<&At<List<f64>>>, report: &mut Report<'_>) -> Option<Vec<f64>> {
    let list = written?;
    report.not_empty(written, "has no bounds", "leave it out for exponential buckets");
    let hint = "each is a series: take fewer";
    if report.too_many(list.node, (list.len(), "buckets"), BUCKET_LIMIT, hint) {
        return None;
    }
    let mut bounds: Vec<f64> = Vec::new();
    for At { node, value } in list.iter() {
        match bounds.last() {
            _ if !value.is_finite() => {
                let hint = "leave it out: the bucket of +Inf is there by itself";
                report.error(*node, format!("{value} is no bound"), hint);
            }
            Some(last) if value <= last => {
                report.error(*node, format!("bounds grow, and {value} is not above {last}"), None);
            }
            _ => bounds.push(*value),
        }
    }
    Some(bounds)
}
