//! Names in the file that become parts of metric names.

use super::problem::shown;
use super::report::Report;
use super::value::is_name;
use super::yaml::NodeId;
use crate::event::is_word;

/// Reports a word that cannot be part of a metric name. `items`: the kind of the named items, in the plural.
pub(super) fn metric_word(node: NodeId, word: &str, items: &str, report: &mut Report<'_>) {
    if !is_name(word) {
        let better: String = word.chars().take(60).map(|c| if is_word(c) { c } else { '_' }).collect();
        let better = better.to_ascii_lowercase();
        let better = if is_name(&better) { better } else { format!("_{better}") };
        let message = format!(
            "{} is not a valid name: names of {items} consist of a-z, 0-9 and _ and do not begin with a digit",
            shown(word)
        );
        report.error(node, message, format!("write `{better}`"));
    }
}
