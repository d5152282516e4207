//! The instructions of a function, with the shares of each and its source lines.

use super::figures::count;
use super::html::Html;
use crate::annotate::{Annotated, Row, Syntax};
use crate::export::query::Query;
use crate::export::top::value;
use crate::profile::Unit;

/// Returns the address of the instructions of a function.
pub(super) fn annotate_address(query: &Query, function: &str, module: Option<&str>) -> String {
    let module = module.map(|module| ("module", module));
    let more: Vec<(&str, &str)> = [("symbol", function)].into_iter().chain(module).collect();
    query.link("/annotate", &more)
}

/// Writes the table. Jumps are links to their targets.
pub(super) fn annotated_card(html: &mut Html, annotated: &Annotated, query: &Query) {
    html.raw("<div class=\"card\"><h2><code>");
    html.text(&annotated.function);
    html.put("</code><small>{}</small></h2><p>", [&annotated.module]);
    let unit = if annotated.nanoseconds { Unit::Nanoseconds } else { Unit::Count };
    let share = annotated.value as f64 * 100.0 / annotated.total.max(1) as f64;
    html.put(
        "{} in {} samples of its own, {}% of the profile. ",
        [&value(annotated.value, unit), &count(annotated.samples), &format_args!("{share:.2}")],
    );
    hottest(html, annotated);
    syntaxes(html, query);
    html.raw("</p>");
    for note in &annotated.notes {
        html.put("<p class=\"quiet\">{}</p>", [note]);
    }
    html.raw(
        "<table class=\"functions instructions\"><thead><tr><th class=\"number share\">Share</th><th class=\"number address\">Address\
         </th><th class=\"function\">Instruction</th><th class=\"source\">Source</th></tr></thead><tbody>",
    );
    let mut source = None;
    for (place, row) in annotated.rows.iter().enumerate() {
        match row {
            Row::Source { .. } => source = Some(row),
            Row::Instruction { .. } => instruction(html, annotated, place, source.take()),
        }
    }
    html.raw("</tbody></table></div>");
}

/// Writes a link to the instruction with the largest share.
fn hottest(html: &mut Html, annotated: &Annotated) {
    let instructions = annotated.rows.iter().filter_map(|row| match row {
        Row::Instruction { address, value, .. } => Some((*value, *address)),
        Row::Source { .. } => None,
    });
    if let Some((value, address)) =
        instructions.max_by_key(|&(value, _)| value).filter(|&(value, _)| value > 0)
    {
        html.raw("Hottest instruction: ").link("", &format!("#a{address:x}"), &format!("{address:x}"));
        html.put(", {}%. ", [&format_args!("{:.2}", annotated.percent(value))]);
    }
}

/// Writes the links to the notations.
fn syntaxes(html: &mut Html, query: &Query) {
    html.raw("<span class=\"switch\" role=\"group\" aria-label=\"Syntax\">Syntax");
    for syntax in Syntax::ALL {
        let current = if syntax == query.syntax { " aria-current=\"true\"" } else { "" };
        html.link(current, &Query { syntax, ..query.clone() }.address("/annotate"), syntax.as_str());
    }
    html.raw("</span>");
}

/// Writes the row of an instruction. `source` is its line, if that differs from the line before.
fn instruction(html: &mut Html, annotated: &Annotated, place: usize, source: Option<&Row>) {
    let Some(Row::Instruction { address, text, value, jump, .. }) = annotated.rows.get(place) else { return };
    html.raw(if source.is_some() { "<tr class=\"line\">" } else { "<tr>" });
    let percent = annotated.percent(*value);
    match *value {
        0 => html.raw("<td class=\"number share\"></td>"),
        _ => html.put(
            "<td class=\"number share\" style=\"--p:{}\">{}%</td>",
            [&format_args!("{percent:.1}"), &format_args!("{percent:.2}")],
        ),
    };
    html.put(
        "<td class=\"number address\" id=\"a{}\"><code>{}</code></td><td class=\"function\"><code>",
        [&format_args!("{address:x}"), &format_args!("{address:x}")],
    );
    let target = jump.and_then(|jump| Some((jump, annotated.rows.get(jump)?)));
    match target {
        Some((to, Row::Instruction { address, .. })) => {
            html.link("", &format!("#a{address:x}"), text).raw(if to > place {
                " \u{2193}"
            } else {
                " \u{2191}"
            });
        }
        _ => {
            html.text(text);
        }
    }
    html.raw("</code></td>");
    match source {
        Some(Row::Source { file, line, text, value }) => {
            let name = file.rsplit('/').next().unwrap_or(file);
            let percent = format!("{:.2}", annotated.percent(*value));
            html.put(
                "<td class=\"source\" title=\"{}\">{}:{} <small>{}%</small> <code>{}</code></td></tr>",
                [file, &name, line, &percent, &text.as_deref().unwrap_or_default()],
            );
        }
        _ => {
            html.raw("<td></td></tr>");
        }
    }
}
