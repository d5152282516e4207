//! The last comparison of each figure of a cgroup with its past: "not judged" is not "normal".

use super::chart::clock;
use crate::anomaly::{Compared, Report, Unjudged, Verdict};
use crate::export::page::html::Html;

/// Writes the last result of each entry of `anomalies` that is measured for a cgroup. Writes nothing if there is none.
pub(super) fn compared(html: &mut Html, report: &Report, cgroup: &str) {
    let mut results = report.of_cgroup(cgroup).peekable();
    if results.peek().is_none() {
        return;
    }
    html.raw("<h2>Compared with its past<small>the last interval of 10 s</small></h2><div class=\"card\"><table><thead><tr>")
        .raw("<th>Figure</th><th>Result</th><th class=\"number\">Value</th><th class=\"number\">Usual</th>")
        .raw("<th class=\"number\">Outliers above</th><th class=\"number\">At</th></tr></thead><tbody>");
    for (kind, result) in results {
        html.put("<tr><td>{}</td><td>", [&kind]);
        match result.verdict {
            Verdict::Normal => html.raw("normal"),
            Verdict::Outlier => html.raw("<b>outlier</b>"),
            Verdict::NotJudged(reason) => {
                html.put("<span class=\"quiet\">not judged: {}</span>", [&explained(reason)])
            }
        };
        html.raw("</td>");
        let &Compared { value, usual, limit, at, .. } = result;
        for number in [value, usual, limit] {
            match number {
                Some(number) => html.put("<td class=\"number\">{}</td>", [&short(number)]),
                None => html.raw("<td class=\"number\"><span class=\"quiet\">\u{2013}</span></td>"),
            };
        }
        html.put("<td class=\"number\">{}</td></tr>", [&clock(at.0)]);
    }
    html.raw("</tbody></table></div>");
}

/// Returns a number with three significant digits.
fn short(number: f32) -> String {
    let whole = if number.abs() < 1e-9 { 1 } else { number.abs().log10().floor() as i32 + 1 };
    let decimals = usize::try_from(3 - whole).unwrap_or(0).min(9);
    format!("{number:.decimals$}")
}

/// Returns the reason why a figure was not judged, in words.
const fn explained(reason: Unjudged) -> &'static str {
    match reason {
        Unjudged::Gap => "it was not measured",
        Unjudged::NotSampled => "the method takes one interval of each minute",
        Unjudged::Reset => "a series of it began in this interval",
        Unjudged::LowUsage => "the cgroup did too little",
        Unjudged::Starting => "the cgroup began a short time ago, and its caches are cold",
        Unjudged::Multiplexed => "its events were on the PMU for less than half of the time",
        Unjudged::OtherCpuType => "the cgroup ran on CPUs of several types",
        Unjudged::WarmingUp => "too few earlier samples",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown: Vec<String> = [0.0, 0.001_234_5, 0.5, 1.0, 12.345, 123.4, 98_765.4].map(short).into();
        assert_eq!(shown, ["0.00", "0.00123", "0.500", "1.00", "12.3", "123", "98765"]);
    }
}
