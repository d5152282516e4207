//! The direct callers and callees of a function, as `perf report --children` and `pprof -peek` show them.
//!
//! Recursion is handled as in `views`: the caller is that of the outermost call, and a function that calls itself is its
//! own callee. So the sum of the callers is the total of the function, and so is the sum of the callees and of the function itself.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::diff::{Comparison, Points};
use super::flamegraph::title;
use super::folded::{Folded, Values};
use super::page::figures::{duration, plain};
use super::top::value;
use super::views::Sandwich;
use crate::clean::function_name;
use crate::profile::Profile;

/// A function with its callers and callees.
#[derive(Debug, Serialize)]
pub struct Calls {
    /// The function.
    pub function: String,
    /// Sum of the stacks that contain the function.
    pub total: Amount,
    /// Sum of the stacks whose outermost call of the function calls nothing.
    #[serde(rename = "self")]
    pub own: Amount,
    /// The callers, the most frequent first. A stack that begins with the function is called by the root frame.
    pub callers: Vec<Call>,
    /// The callees, the most frequent first.
    pub callees: Vec<Call>,
}

/// A caller or a callee.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// Its name.
    pub name: String,
    /// Whether it is a root frame and no function.
    #[serde(skip)]
    pub(super) is_root: bool,
    /// Sum of the stacks with this call.
    #[serde(flatten)]
    pub amount: Amount,
}

/// A sum of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Amount {
    /// The sum.
    pub value: u64,
    /// Percentage in the total of the profile.
    pub percent: f64,
    /// Change of the percentage from the base in points; `None` if the profile is not compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points: Option<f64>,
}

impl Calls {
    /// Returns the callers and callees of `function` in folded stacks; `None` if no stack contains it. `normalized` is that of a
    /// [`Comparison`].
    pub fn new(folded: &Folded, function: &str, normalized: bool) -> Option<Self> {
        let Sandwich { callers, callees } = Sandwich::new(folded, function);
        let comparison = Comparison::new(folded.totals(), normalized);
        let amount = |values: Values| {
            let change = comparison.of(values);
            Amount {
                value: values.this,
                percent: change.this,
                points: folded.is_compared().then(|| change.points()),
            }
        };
        let total = callees.stacks().fold(Values::default(), |mut sum, (_, values)| {
            sum.add(values);
            sum
        });
        let own =
            callees.stacks().find(|(stack, _)| stack.len() == 1).map_or_else(Values::default, |own| own.1);
        (total != Values::default()).then(|| Self {
            function: function_name(function).into_owned(),
            total: amount(total),
            own: amount(own),
            callers: nearest(&callers, amount),
            callees: nearest(&callees, amount),
        })
    }

    /// Formats the table for terminals. Summary lines start with `#`. `profile` is the profile of the table.
    pub fn text(&self, profile: &Profile) -> String {
        Text { calls: self, profile }.to_string()
    }
}

/// Returns the frames next to the function, the most frequent first, or with a base the largest changes.
fn nearest(part: &Folded, amount: impl Fn(Values) -> Amount) -> Vec<Call> {
    let mut sums = BTreeMap::<u32, Values>::new();
    for (stack, values) in part.stacks() {
        if let Some(&next) = stack.get(1) {
            sums.entry(next).or_default().add(values);
        }
    }
    let mut calls: Vec<Call> = (sums.into_iter())
        .filter_map(|(name, values)| {
            let name = part.names().get(name as usize)?;
            Some(Call {
                name: name.shown().to_owned(),
                is_root: name.origin.is_none(),
                amount: amount(values),
            })
        })
        .collect();
    let size = |call: &Call| call.amount.points.map_or(call.amount.percent, f64::abs);
    calls.sort_by(|a, b| size(b).total_cmp(&size(a)).then_with(|| a.name.cmp(&b.name)));
    calls
}

/// A table as text.
struct Text<'t> {
    calls: &'t Calls,
    profile: &'t Profile,
}

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls, profile } = self;
        let span = plain(&duration(profile.duration));
        writeln!(f, "# {}, {span} from {:#}", title(profile), profile.start)?;
        writeln!(f, "# Callers and callees of {}", calls.function)?;
        let compared = calls.total.points.is_some();
        let part = |f: &mut fmt::Formatter<'_>, heading, lines: &[Call]| {
            let (head, dots) = if compared { ("       +/-", "  ........") } else { ("", "") };
            writeln!(f, "#\n#  Share         Value{head}  {heading}")?;
            writeln!(f, "# ......  ............{dots}  {}", ".".repeat(40))?;
            lines.iter().try_for_each(|line| self.line(f, &line.name, line.amount))
        };
        part(f, "Caller", &calls.callers)?;
        part(f, "Function", &[])?;
        self.line(f, &format!("{} with its callees", calls.function), calls.total)?;
        self.line(f, &format!("{} itself", calls.function), calls.own)?;
        part(f, "Callee", &calls.callees)
    }
}

impl Text<'_> {
    fn line(&self, f: &mut fmt::Formatter<'_>, name: &str, amount: Amount) -> fmt::Result {
        let shown = plain(&value(amount.value, self.profile.kind.value.unit));
        write!(f, " {:6.2}%  {shown:>12}", amount.percent)?;
        if let Some(points) = amount.points {
            write!(f, "  {:>8}", Points(points))?;
        }
        writeln!(f, "  {name}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::folded::Options;
    use crate::profile::sample_profiles::{any_profile, example, hostile};

    fn calls(profile: &Profile, function: &str) -> Option<Calls> {
        Calls::new(&Folded::new(profile, Options::default()), function, true)
    }

    #[test]
    fn the_table_is_as_recorded() {
        insta::assert_snapshot!(calls(&example(), "tcp_sendmsg").unwrap().text(&example()));
        let mut base = example();
        base.samples.iter_mut().step_by(2).for_each(|sample| sample.value = 0);
        let folded = Folded::difference(&base, &example(), Options::default());
        let compared = Calls::new(&folded, "ExecProcNode", true).unwrap();
        insta::assert_snapshot!(compared.text(&example()));
        insta::assert_snapshot!(serde_json::to_string_pretty(&compared).unwrap());
    }

    #[test]
    fn a_function_that_no_stack_contains_has_no_table() {
        assert!(calls(&example(), "missing").is_none() && calls(&example(), "nginx").is_none());
    }

    #[test]
    fn hostile_names_stay_in_their_lines() {
        for function in ["two\nlines 12", "# not a comment 7", "   "] {
            let text = calls(&hostile(), function).unwrap().text(&hostile());
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'));
            assert!(text.lines().all(|line| line.starts_with(['#', ' '])), "{text}");
        }
    }

    proptest! {
        #[test]
        fn callers_and_callees_have_the_total_of_the_function(profile in any_profile()) {
            for function in ["main", "a", "malloc"] {
                let Some(calls) = calls(&profile, function) else { continue };
                let sum = |calls: &[Call]| calls.iter().map(|call| call.amount.value).sum::<u64>();
                prop_assert_eq!(sum(&calls.callers), calls.total.value);
                prop_assert_eq!(sum(&calls.callees) + calls.own.value, calls.total.value);
            }
        }
    }
}
