//! The forms and switches of the profile pages. All are plain links and forms. A form has hidden fields for the parameters that it does not
//! change.

use std::sync::Arc;

use super::html::Html;
use super::not_recorded::OFF_CPU;
use super::view::{Page, View};
use crate::export::query::{LONGEST, Period, Query, ROOTS, SHAPES};
use crate::export::top::Grouping;
use crate::profile::{Cgroups, Mode, Selection};
use crate::targets::Glob;

/// Fields of the selection.
const SELECTED: [&str; 9] = ["type", "comm", "program", "cgroup", "pid", "mode", "from", "to", "seconds"];

/// Fields of the selection to compare with, after `base_`.
const COMPARED: [&str; 8] = ["comm", "program", "cgroup", "pod", "pid", "mode", "from", "to"];

/// Writes the form of the selection.
pub(super) fn form(html: &mut Html, page: Page, query: &Query, kinds: &[Arc<str>]) {
    let Query { kind, seconds, selection, focus, .. } = query;
    html.put("<form class=\"card\" method=\"get\" action=\"{}\">", [&page.words().1]);
    html.raw("<label>Type<select name=\"type\">");
    let known = kinds.iter().map(|known| (&**known, kind.as_deref() == Some(known)));
    options(html, known);
    if !kinds.is_empty() && kinds.iter().all(|kind| **kind != *OFF_CPU) {
        let selected = if kind.as_deref() == Some(OFF_CPU) { " selected" } else { "" };
        html.put("<option value=\"{}\"{}>{} (not recorded)</option>", [&OFF_CPU, &selected, &OFF_CPU]);
    }
    html.raw("</select></label>");
    conditions(html, ("", None), selection, Some(&query.period));
    let mut visible = SELECTED.to_vec();
    if page == Page::FlameGraph {
        visible.push("focus");
        field(html, "<label class=\"wide\">Function", ("", "focus"), "all", focus.as_deref());
    }
    if page == Page::Annotate {
        // Another function can be in another module.
        visible.extend(["symbol", "module"]);
        field(html, "<label class=\"wide\">Function", ("", "symbol"), "hottest", query.symbol.as_deref());
    }
    html.put(
        "<label class=\"narrow\" title=\"Seconds to sample from now on; if empty, about the last minute, immediately\">\
         Seconds<input name=\"seconds\" type=\"number\" min=\"1\" max=\"{}\" placeholder=\"recent\"",
        [&LONGEST],
    );
    given(html, seconds.map(|seconds| seconds.to_string()).as_deref());
    hidden(html, query, |key| visible.contains(&key));
    html.raw("<button>Show</button></form>");
}

/// Writes the forms of the selection or the file to compare with. They are open if there is one.
pub(super) fn compare(html: &mut Html, page: Page, View { query, nonce, .. }: View<'_>) {
    let is_compared = query.is_compared();
    html.raw(if is_compared { "<details class=\"compare\" open>" } else { "<details class=\"compare\">" });
    html.raw("<summary>Compare with another selection, or with a file</summary>");
    file(html, page, query);
    html.put("<form class=\"card\" method=\"get\" action=\"{}\">", [&page.words().1]);
    // The selection does not apply to a file, and a file has no range.
    let (absent, period) = match query.base_file {
        Some(_) => ("all", None),
        None => ("as above", Some(&query.base_period)),
    };
    conditions(html, ("base_", Some(absent)), &query.base, period);
    field(html, "<label>Pod", ("base_", "pod"), absent, query.base.pod.as_ref().map(Glob::as_str));
    html.raw("<label>Shares of<select name=\"normalize\">");
    for (word, text, selected) in
        [("true", "its own total", !query.absolute), ("false", "the total above", query.absolute)]
    {
        let selected = if selected { " selected" } else { "" };
        html.put("<option value=\"{}\"{}>{}</option>", [&word, &selected, &text]);
    }
    html.raw("</select></label>");
    let is_condition = |key: &str| key.strip_prefix("base_").is_some_and(|key| COMPARED.contains(&key));
    hidden(html, query, |key| key == "normalize" || is_condition(key));
    html.raw("<button>Compare</button>");
    if is_compared {
        let (base, base_period) = Default::default();
        let alone = Query { base, base_period, base_file: None, absolute: false, ..query.clone() };
        html.link("", &alone.address(page.words().1), "end comparison");
    }
    html.raw("</form></details>");
    html.put("<script nonce=\"{}\">", [&nonce]).raw(include_str!("baseline.js")).raw("</script>");
}

/// Writes the field for the file to compare with. Its script uploads the file, and then opens the comparison.
fn file(html: &mut Html, page: Page, query: &Query) {
    let base_period = Period::default();
    let mut to = Query { base_file: None, base_period, ..query.clone() }.address(page.words().1);
    to.push(if to.contains('?') { '&' } else { '?' });
    html.raw("<p class=\"file\"><label>Profile of another time or program, pprof or folded stacks: ");
    html.raw("<input type=\"file\" id=\"baseline\" data-to=\"").address(&to).raw("base=\"></label>");
    if let Some(name) = &query.base_file {
        html.put(" <span class=\"quiet\">compared with the uploaded profile <code>{}</code></span>", [name]);
    }
    html.raw(
        " <span id=\"upload\" role=\"status\"></span><noscript>Without scripts: <code>curl --data-binary @FILE \
         http://localhost:7373/api/v1/baselines</code></noscript></p>",
    );
}

/// Writes the search field of a flame graph and its switches.
pub(super) fn toolbar(html: &mut Html, query: &Query, matched: Option<f64>) {
    html.raw("<form class=\"tools\" method=\"get\" action=\"/flamegraph\">");
    html.raw("<input id=\"search\" name=\"s\" type=\"search\" aria-label=\"Search\" placeholder=\"Search\" spellcheck=\"false\"");
    html.raw(" value=\"").address(query.search.as_deref().unwrap_or_default()).raw("\">");
    hidden(html, query, |key| key == "s");
    html.raw("<span id=\"matched\">");
    match matched {
        Some(percent) => html.put("Matched: {}%", [&format_args!("{percent:.1}")]),
        None => html.raw(" "),
    };
    html.raw("</span><button type=\"button\" id=\"unzoom\" class=\"hide\">Reset zoom</button>");
    let mut to = Query { focus: None, inverted: false, ..query.clone() }.address("/flamegraph");
    to.push(if to.contains('?') { '&' } else { '?' });
    html.raw("<a id=\"focus\" class=\"hide\" href=\"#\" data-to=\"")
        .address(&to)
        .raw("focus=\">callers and callees</a>");
    let link = |query: Query| query.address("/flamegraph");
    if query.focus.is_none() {
        let shapes =
            SHAPES.map(|(word, shape)| (word, shape == query.shape, link(Query { shape, ..query.clone() })));
        switch(html, "Shape", shapes);
        let orders = [("top down", false), ("inverted", true)].map(|(word, inverted)| {
            (word, inverted == query.inverted, link(Query { inverted, ..query.clone() }))
        });
        switch(html, "Order", orders);
    }
    let roots = ROOTS.map(|(word, root)| (word, root == query.root, link(Query { root, ..query.clone() })));
    switch(html, "Grouped by", roots);
    html.raw("</form>");
}

/// Writes the switch of the rows of a table.
pub(super) fn groupings(html: &mut Html, query: &Query) {
    let all = Grouping::ALL.map(|grouping| {
        let address = Query { grouping, limit: None, ..query.clone() }.address("/top");
        (grouping.as_str(), grouping == query.grouping, address)
    });
    switch(html, "Rows", all);
}

/// Writes links of which one is current.
fn switch<const N: usize>(html: &mut Html, name: &'static str, all: [(&'static str, bool, String); N]) {
    html.raw("<span class=\"switch\" role=\"group\" aria-label=\"").raw(name).raw("\">").raw(name);
    for (word, is_current, address) in all {
        html.link(if is_current { " aria-current=\"true\"" } else { "" }, &address, word);
    }
    html.raw("</span>");
}

/// Writes the fields of a selection, and of a range if there is one. Their names begin with `prefix`, and `absent` says what an empty field
/// means; `None` shows examples.
fn conditions(
    html: &mut Html,
    (prefix, absent): (&'static str, Option<&'static str>),
    selection: &Selection,
    period: Option<&Period>,
) {
    let Selection { comm, program, pid, cgroup, mode, .. } = selection;
    let hint = |own: &'static str| absent.unwrap_or(own);
    field(html, "<label>Thread name", (prefix, "comm"), hint("nginx*"), comm.as_ref().map(Glob::as_str));
    // Pages of programs lead here. Otherwise the field takes no space.
    if let Some(program) = program {
        field(html, "<label>Program", (prefix, "program"), hint("any"), Some(program.as_str()));
    }
    let cgroup = cgroup.as_ref().map(Cgroups::as_str);
    field(html, "<label class=\"wide\">Cgroup", (prefix, "cgroup"), hint("/system.slice/**"), cgroup);
    html.put(
        "<label class=\"narrow\">PID<input name=\"{}pid\" inputmode=\"numeric\" placeholder=\"{}\"",
        [&prefix, &hint("any")],
    );
    given(html, pid.map(|pid| pid.to_string()).as_deref());
    html.put("<label>Mode<select name=\"{}mode\"><option value=\"\">{}</option>", [&prefix, &hint("any")]);
    options(html, Mode::ALL.map(|known| (known.as_str(), *mode == Some(known))));
    html.raw("</select></label>");
    let range = period.map(Period::pairs).into_iter().flatten();
    for ((key, value), (label, usual)) in range.zip([("From", "-10m"), ("To", "now")]) {
        html.put(
            "<label class=\"narrow\" title=\"Unix seconds, RFC 3339, or a time before now such as -10m\">{}",
            [&label],
        );
        field(html, "", (prefix, key), hint(usual), value.as_deref());
    }
}

/// Writes a text field, with the start tag and text of its label.
fn field(html: &mut Html, label: &'static str, name: (&str, &str), hint: &str, text: Option<&str>) {
    let (prefix, key) = name;
    html.raw(label)
        .put("<input name=\"{}{}\" placeholder=\"{}\" spellcheck=\"false\"", [&prefix, &key, &hint]);
    given(html, text);
}

/// Writes the value and the end of a field.
fn given(html: &mut Html, text: Option<&str>) {
    html.raw(" value=\"").address(text.unwrap_or_default()).raw("\"></label>");
}

/// Writes options with their selected state.
fn options<'w>(html: &mut Html, all: impl IntoIterator<Item = (&'w str, bool)>) {
    for (word, selected) in all {
        html.put("<option{}>{}</option>", [&if selected { " selected" } else { "" }, &word]);
    }
}

/// Writes hidden fields for the parameters that are not visible.
fn hidden(html: &mut Html, query: &Query, is_visible: impl Fn(&str) -> bool) {
    for (key, value) in query.parameters() {
        if !is_visible(&key) {
            html.raw("<input type=\"hidden\" name=\"")
                .address(&key)
                .raw("\" value=\"")
                .address(&value)
                .raw("\">");
        }
    }
}
