//! The table of functions or groups.

use super::annotated::annotate_address;
use super::figures::count;
use super::html::Html;
use super::selection_form::groupings;
use crate::export::calls::{Amount, Call, Calls};
use crate::export::diff::Points;
use crate::export::query::{LENGTH, Query};
use crate::export::top::{Grouping, Row, Top, basename, value};
use crate::profile::{Cgroups, Origin, Profile, Selection};
use crate::targets::Glob;

/// Number of rows of the longest table.
const ALL: usize = 10_000;

/// Maximum number of callers and of callees on a page.
const CALLS: usize = 100;

/// Writes the table. With a query, names are links to their callers and callees or to their selection.
pub(super) fn functions_card(
    html: &mut Html,
    nonce: &str,
    profile: &Profile,
    top: &Top,
    query: Option<&Query>,
) {
    html.raw("<div class=\"card\"><div class=\"tools\">");
    html.raw(
        "<input id=\"find\" class=\"find\" type=\"search\" aria-label=\"Find\" placeholder=\"Find a name\">",
    );
    if let Some(query) = query.filter(|query| query.focus.is_none()) {
        groupings(html, &query.same_selection_of(top.by));
    }
    html.raw("</div>");
    head(html, top);
    top.rows.iter().for_each(|shown| row(html, profile, top, shown, query));
    html.raw("</tbody></table>");
    if let Some(more) = top.distinct.checked_sub(top.rows.len()).filter(|&more| more > 0) {
        html.put("<p class=\"quiet\">and {} more", [&count(more as u64)]);
        if let Some(query) = query {
            let all = Query { limit: Some(ALL), ..query.same_selection_of(top.by) };
            html.raw(": ").link("", &all.address("/top"), "show more");
        }
        html.raw("</p>");
    }
    html.put("</div><script nonce=\"{}\">", [&nonce]).raw(include_str!("top.js")).raw("</script>");
}

fn head(html: &mut Html, top: &Top) {
    html.raw(if top.base.is_some() {
        "<table id=\"functions\" class=\"functions compared\"><thead><tr>\
         <th class=\"number change\"><button>Self change</button></th>\
         <th class=\"number change\"><button>Total change</button></th>\
         <th class=\"number share\"><button>Self</button></th>"
    } else {
        "<table id=\"functions\" class=\"functions\"><thead><tr>\
         <th class=\"number share\" aria-sort=\"descending\"><button>Self</button></th>"
    });
    html.put(
        "<th class=\"number share\"><button>Total</button></th>\
         <th class=\"number amount\"><button>Self value</button></th>\
         <th class=\"function\"><button>{}</button></th>",
        [&top.by.heading()],
    );
    if top.by == Grouping::Function {
        html.raw("<th class=\"module\"><button>Module</button></th>");
    }
    html.raw("</tr></thead><tbody>");
}

fn row(html: &mut Html, profile: &Profile, top: &Top, row: &Row, query: Option<&Query>) {
    html.raw("<tr>");
    if let Some(change) = row.change {
        for points in [change.self_points, change.total_points] {
            change_cell(html, points);
        }
    }
    for percent in [row.self_percent, row.total_percent] {
        html.put(
            "<td class=\"number share\" data-v=\"{}\" style=\"--p:{}\">{}%</td>",
            [&percent, &format_args!("{percent:.1}"), &format_args!("{percent:.2}")],
        );
    }
    html.put(
        "<td class=\"number amount\" data-v=\"{}\">{}</td><td class=\"function\"><code>",
        [&row.own, &value(row.own, profile.kind.value.unit)],
    );
    match query.and_then(|query| link(query, top.by, &row.name)) {
        Some(address) => html.link("", &address, &row.name),
        None => html.text(&row.name),
    };
    html.raw(match row.origin {
        "kernel" => "</code> <small>kernel</small>",
        "jit" => "</code> <small>JIT</small>",
        _ => "</code>",
    });
    if let Some(address) = query.and_then(|query| annotate_link(query, row)) {
        html.raw(" ").link(" class=\"annotate\"", &address, "annotate");
    }
    html.raw("</td>");
    if top.by == Grouping::Function {
        html.put("<td class=\"module\" title=\"{}\">{}</td>", [&row.module, &basename(&row.module)]);
    }
    html.raw("</tr>");
}

/// Writes the tables of the callers and callees of a function. Names are links to their own callers and callees.
pub(super) fn calls_cards(html: &mut Html, profile: &Profile, calls: &Calls, query: &Query) {
    html.raw("<div class=\"cards calls\">");
    let of_function = [("with its callees", calls.total), ("itself", calls.own)];
    let rows = |calls: &[Call]| -> Vec<(String, Option<String>, Amount)> {
        let address = |call: &Call| {
            link(query, Grouping::Function, &call.name)
                .filter(|_| !call.is_root)
                .map(|address| address.replacen("/flamegraph?", "/top?", 1))
        };
        calls.iter().take(CALLS).map(|call| (call.name.clone(), address(call), call.amount)).collect()
    };
    let own = of_function.map(|(words, amount)| (words.to_owned(), None, amount));
    for (heading, rows) in
        [("Callers", rows(&calls.callers)), ("The function", own.to_vec()), ("Callees", rows(&calls.callees))]
    {
        html.put("<section class=\"card\"><h3>{}</h3><table class=\"functions\">", [&heading]);
        for (name, address, amount) in &rows {
            html.raw("<tr>");
            if let Some(points) = amount.points {
                change_cell(html, points);
            }
            html.put(
                "<td class=\"number share\" style=\"--p:{}\">{}%</td><td class=\"number amount\">{}</td>\
                 <td class=\"function\"><code>",
                [
                    &format_args!("{:.1}", amount.percent),
                    &format_args!("{:.2}", amount.percent),
                    &value(amount.value, profile.kind.value.unit),
                ],
            );
            match address {
                Some(address) => html.link("", address, name),
                None => html.text(name),
            };
            html.raw("</code></td></tr>");
        }
        html.raw("</table></section>");
    }
    html.raw("</div>");
}

/// Writes the cell of a change in percentage points.
fn change_cell(html: &mut Html, points: f64) {
    html.raw("<td class=\"number change ").raw(if points > 0.0 { "more" } else { "less" });
    html.put(
        "\" data-v=\"{}\" style=\"--p:{}\">{}</td>",
        [&points, &format_args!("{:.1}", points.abs()), &Points(points)],
    );
}

/// Returns the address of a name: the callers and callees of a function, or the functions of a cgroup or of threads. A name that no query
/// can express has none.
fn link(query: &Query, by: Grouping, name: &str) -> Option<String> {
    let same = query.same_selection();
    let of = |selection: Selection| Query { selection, ..same.clone() }.address("/top");
    let selection = same.selection.clone();
    let address = match by {
        Grouping::Function if name.is_empty() => return None,
        Grouping::Function => {
            Query { focus: Some(name.to_owned()), root: query.root, ..same }.address("/flamegraph")
        }
        Grouping::Module => return None,
        Grouping::Cgroup if name.starts_with('/') && !is_pattern(name) => {
            of(Selection { cgroup: Some(Cgroups::below(name)), ..selection })
        }
        Grouping::Comm if !name.is_empty() && !is_pattern(name) => {
            of(Selection { comm: Some(Glob::new(name).ok()?), ..selection })
        }
        Grouping::Cgroup | Grouping::Comm => return None,
    };
    let length = address.split_once('?').map_or(0, |(_, query)| query.len());
    (length <= LENGTH).then_some(address)
}

/// Returns the address of the instructions of a function, if it is in a file and a query can contain its name.
fn annotate_link(query: &Query, row: &Row) -> Option<String> {
    let address = annotate_address(query, &row.name, Some(&row.module));
    let is_in_file = row.origin == Origin::Native.as_str() && row.own > 0 && row.module.starts_with('/');
    (is_in_file && address.len() <= LENGTH).then_some(address)
}

/// Reports whether a query would interpret a name as a pattern.
fn is_pattern(name: &str) -> bool {
    name.contains(['*', '?', '[', ']', '{', '}', '\u{fffd}'])
}
