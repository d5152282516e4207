//! Checks of the keys for fields of an event, which `tracepoints` and `probes` share: labels, sums, histograms, filters.

use std::sync::Arc;

use super::{Label, Measure, Quantity, Unit};
use crate::config::decode::At;
use crate::config::file::{Histogram, Labels, Sum, VALUES_MAX};
use crate::config::problem::{all_of, shown};
use crate::config::report::Report;
use crate::config::value::List;
use crate::config::yaml::NodeId;
use crate::event::{is_identifier, is_word, nearest};
use crate::targets::Targets;

/// Default number of distinct values of a label.
const VALUES: usize = 100;
/// Maximum number of labels; each multiplies the series.
const LABEL_LIMIT: usize = 16;
/// Maximum number of buckets; each is a series.
const BUCKET_LIMIT: usize = 256;
/// Maximum length of a filter, in bytes. The kernel accepts up to a page.
const FILTER_LIMIT: usize = 4096;
/// Prefixes of fields that events have besides their own: the common fields, and the address of a probe.
const EVERYWHERE: [&str; 2] = ["common_", "__probe_"];

/// Values of a record besides the fields of its event, allowed as a label or part of a key.
pub(super) const OF_THE_RECORD: [&str; 3] = ["$cpu", "$pid", "$tid"];

/// Available fields.
#[derive(Clone, Copy)]
pub(in crate::config) enum Fields<'f> {
    /// Fields of tracepoints, which may not exist on this host.
    Event,
    /// Fields of either of two tracepoints.
    Pair,
    /// Arguments of a probe; `None` = arguments of a USDT probe, which are not known.
    Probe(Option<&'f [Arc<str>]>),
}

impl Fields<'_> {
    /// Returns the field name, or reports that there is no such field.
    fn named(self, field: &At<String>, report: &mut Report<'_>) -> Option<Arc<str>> {
        let text = field.value.as_str();
        let side = text.strip_prefix("from.").or_else(|| text.strip_prefix("to."));
        let name = side.filter(|_| matches!(self, Fields::Pair)).unwrap_or(text);
        let (message, hint) = if text.starts_with('$') {
            let message = format!("{} is neither a field nor one of `$cpu`, `$pid` and `$tid`", shown(text));
            (message, Some("use `per: [process]` or `per: [cgroup]` for the process or cgroup".to_owned()))
        } else if let Some(name) = side.filter(|_| !matches!(self, Fields::Pair)) {
            (
                format!("{} is not a field name: the entry has only one event", shown(text)),
                Some(format!("write `{name}`")),
            )
        } else if !is_identifier(name) {
            let message = format!(
                "{} is not a valid field name: field names consist of letters, digits and _",
                shown(text)
            );
            (
                message,
                Some("the file `format` in the tracefs directory of the event lists its fields".to_owned()),
            )
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

    /// Reports names in a filter that are not arguments of a probe. The kernel checks the rest of the filter.
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
    let message = format!("the probe has no argument {}", shown(name));
    let names: Vec<&str> = known.iter().map(|known| &**known).collect();
    let hint = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("add it: `arguments: [{name}]`"),
        None => format!("its arguments are {}", all_of(&names)),
    };
    (message, Some(hint))
}

/// Returns the names that a filter compares: the words before an operator.
pub(super) fn compared(filter: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut word = None;
    let mut rest = filter;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '"' | '\'' => rest[1..].find(c).map_or(rest.len(), |end| end + 2),
            _ if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ => c.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        match c {
            // `name.ustring` and `name.function` refer to the same name.
            '.' => {
                let suffix = behind.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(behind.len());
                rest = &behind[suffix..];
                continue;
            }
            '=' | '<' | '>' | '~' | '!' | '&' if !behind.starts_with(['&']) => names.extend(word.take()),
            _ if c.is_whitespace() => {}
            _ => word = is_identifier(token).then_some(token),
        }
        rest = if c == '&' && behind.starts_with('&') { &behind[1..] } else { behind };
    }
    names
}

/// Returns the filter, if it is valid.
pub(in crate::config) fn filter(
    written: &Option<At<String>>,
    fields: Fields<'_>,
    report: &mut Report<'_>,
) -> Option<Arc<str>> {
    let filter = written.as_ref()?;
    if filter.trim().is_empty() {
        report.error(filter.node, "the filter is empty", "leave it out to include all events");
    } else if filter.len() > FILTER_LIMIT {
        let message =
            format!("the filter has {} bytes, the kernel accepts at most {FILTER_LIMIT}", filter.len());
        report.error(filter.node, message, None);
    } else {
        fields.judge(filter, report);
    }
    Some(filter.trim().into())
}

/// Returns the labels. The labels of the targets of `per` are reserved.
pub(super) fn labels(
    written: &Option<At<Labels>>,
    fields: Fields<'_>,
    per: &[Targets],
    report: &mut Report<'_>,
) -> Vec<Label> {
    let Some(written) = written else { return Vec::new() };
    let Labels(pairs) = &written.value;
    if pairs.is_empty() && !report.blames(written.node) {
        report.error(written.node, "the list of labels is empty", "name a field, or leave it out");
    }
    let hint = "each label multiplies the series: remove some";
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
            report.error(name.node, format!("duplicate label {}", shown(name)), "remove one of them");
        } else {
            labels.push(Label { name: name.as_str().into(), field: of });
        }
    }
    labels
}

/// Returns why a word is not valid as a label here, and the correction.
fn unfit(name: &str, field: &str, per: &[Targets]) -> Option<(String, String)> {
    let apart = || {
        let field_name = field.rsplit('.').next().unwrap_or(field);
        format!("use another name: {{field_{}: {field}}}", field_name.trim_start_matches('_'))
    };
    let owner = per.iter().find(|per| per.has_label(name));
    if let Some((side, of)) = name.split_once('.').filter(|_| name == field) {
        return Some((
            format!("{} is not a valid label name", shown(name)),
            format!("give it a name: {{{side}_{of}: {field}}}"),
        ));
    }
    if let Some(owner) = owner {
        let scope = owner.scope();
        return Some((format!("{} is already a label of `per: {scope}`", shown(name)), apart()));
    }
    match name {
        "event" => Some(("`event` is reserved: it distinguishes tracepoints".to_owned(), apart())),
        "le" | "quantile" => Some((format!("{} is a reserved label of Prometheus", shown(name)), apart())),
        _ if name.starts_with("__") => {
            Some((format!("{}: labels that begin with __ are reserved by Prometheus", shown(name)), apart()))
        }
        _ if !is_identifier(name) => {
            let message = format!(
                "{} is not a valid label name: label names consist of letters, digits and _",
                shown(name)
            );
            let better: String = name.chars().filter(|c| is_word(*c)).collect();
            let better = better.trim_start_matches(|c: char| c.is_ascii_digit());
            let better = if better.is_empty() { "name" } else { better };
            Some((message, format!("write {{{better}: {field}}}")))
        }
        _ => None,
    }
}

/// Returns the maximum number of distinct values of a label.
pub(super) fn values(
    written: &Option<At<u64>>,
    labels: &Option<At<Labels>>,
    entry: NodeId,
    report: &mut Report<'_>,
) -> usize {
    if let Some(values) = written.as_ref().filter(|_| labels.is_none() && !report.blames(entry)) {
        let message = "this has no effect: the entry has no `labels`";
        report.warning(values.node, message, "leave it out");
    }
    report.number(written, VALUES_MAX).unwrap_or(VALUES)
}

/// Duration that an entry can measure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Time {
    /// Between two events; no other value is measured.
    Pair,
    /// From the entry of a function to its return.
    Call,
    /// The entry has no duration: the reason, and the correction.
    None(&'static str, &'static str),
}

/// Returns the measured value.
pub(super) fn measure(
    sum: &Option<At<Sum>>,
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
    let of = sum.as_ref().map(|sum| &sum.of).or_else(|| histogram?.of());
    if let Some(of) = of.filter(|_| time == Time::Pair) {
        let hint = "write an entry with `event` to measure a field";
        report.error(of.node, "a pair measures a duration, not a field", hint);
        return default;
    }
    let quantity = |of: &At<String>, unit: Option<At<Unit>>, report: &mut Report<'_>| {
        if OF_THE_RECORD.contains(&of.value.as_str()) {
            let message = format!("{} is not a number that can be summed", shown(of));
            report.error(of.node, message, "name a field");
            return None;
        }
        let field = fields.named(of, report)?;
        Some(Quantity { field, unit: unit.map(|unit| unit.value) })
    };
    let measured = match (sum, histogram) {
        (Some(sum), _) => quantity(&sum.of, sum.unit, report).map(Measure::Sum),
        (None, Some(histogram)) => {
            let bounds = bounds(&histogram.buckets, report);
            match histogram.of() {
                Some(of) => {
                    quantity(of, histogram.unit, report).map(|quantity| Measure::Histogram(quantity, bounds))
                }
                None => is_elapsed_time(histogram, time, report).then_some(Measure::Elapsed(bounds)),
            }
        }
        (None, None) => None,
    };
    measured.unwrap_or(default)
}

/// Returns the histogram, if it is valid.
pub(super) fn histogram<'e>(
    written: &'e Option<At<Histogram>>,
    report: &mut Report<'_>,
) -> Option<&'e At<Histogram>> {
    let histogram = written.as_ref()?;
    let Some(text) = histogram.unknown_text() else { return Some(histogram) };
    let message = format!("expected `seconds` (the duration) or a block, found the text {}", shown(text));
    report.error(histogram.node, message, "write a field as {of: field, unit: bytes}");
    None
}

/// Reports whether a histogram without a field is of durations, and reports contradictions.
fn is_elapsed_time(histogram: &At<Histogram>, time: Time, report: &mut Report<'_>) -> bool {
    if report.gives(histogram.node, "of") {
        return false;
    }
    if let Time::None(why, instead) = time {
        let message = format!("this is a histogram of durations, but {why}");
        report.error(histogram.node, message, instead);
        return false;
    }
    if let Some(unit) = histogram.unit.as_ref().filter(|unit| unit.value != Unit::Seconds) {
        let hint = "leave out `unit`, or name a field: `of`";
        report.error(unit.node, "durations are in seconds", hint);
    }
    true
}

/// Returns the bounds of buckets, which are finite and ascending.
fn bounds(written: &Option<At<List<f64>>>, report: &mut Report<'_>) -> Option<Vec<f64>> {
    let list = written.as_ref()?;
    report.not_empty(written.as_ref(), "has no bounds", "leave it out for exponential buckets");
    let hint = "each bucket is a series: use fewer";
    if report.too_many(list.node, (list.len(), "buckets"), BUCKET_LIMIT, hint) {
        return None;
    }
    let mut bounds: Vec<f64> = Vec::new();
    for At { node, value } in list.iter() {
        match bounds.last() {
            _ if !value.is_finite() => {
                let hint = "leave it out: the +Inf bucket is implicit";
                report.error(*node, format!("{value} is not a valid bound"), hint);
            }
            Some(last) if value <= last => {
                report.error(
                    *node,
                    format!("bounds must be in ascending order: {value} is not above {last}"),
                    None,
                );
            }
            _ => bounds.push(*value),
        }
    }
    Some(bounds)
}
