//! The profile pages `/flamegraph` and `/top`, and the index of `/debug/pprof/`. They have the style of the status page, a form for the
//! selection, and links to the same selection in other formats. They work without scripts: what is shown depends on the address only. Their
//! inline scripts carry the nonce of the response's Content-Security-Policy.

use std::sync::Arc;

use super::annotated::{annotate_address, annotated_card};
use super::figures::{count, duration};
use super::function_table::{calls_cards, functions_card};
use super::html::Html;
use super::not_recorded::NO_KINDS;
use super::selection_form::{compare, form, toolbar};
pub(in crate::export) use super::view::{Page, View};
use crate::annotate::Annotated;
use crate::export::calls::Calls;
use crate::export::flamegraph::{self, Embedded, View as StackView, lost, title};
use crate::export::query::{Format, Query};
use crate::export::top::{self, Top, value};
use crate::profile::Profile;

/// Renders the flame graph page. The arguments are the image, or a sentence why there is none, and the table of changes if the profile is
/// compared.
pub(in crate::export) fn flamegraph(
    view: View<'_>,
    profile: &Profile,
    picture: Result<&Embedded, &str>,
    changes: Option<&Top>,
) -> String {
    page(Page::FlameGraph, view, profile, |html| {
        match picture {
            Ok(picture) => {
                toolbar(html, view.query, picture.matched);
                drawn(html, picture);
            }
            Err(sentence) => nothing(html, sentence),
        }
        if let Some(changes) = changes.filter(|changes| !changes.rows.is_empty()) {
            html.raw("<h2>Changes by function<small>those that vanished have no frame above</small></h2>");
            functions_card(html, view.nonce, profile, changes, Some(view.query));
        }
    })
}

/// Renders a page about a profile.
fn page(page: Page, view: View<'_>, profile: &Profile, show: impl FnOnce(&mut Html)) -> String {
    let mut html = Html::default();
    begin(&mut html, page, view);
    // Annotated functions are not compared.
    if page != Page::Annotate {
        compare(&mut html, page, view);
    }
    about(&mut html, page, view, profile);
    show(&mut html);
    end(html)
}

/// Writes the image, its color legend and a usage hint.
fn drawn(html: &mut Html, picture: &Embedded) {
    html.raw("<p id=\"details\"> </p><div class=\"card graph\">").picture(picture).raw("</div>");
    match picture.largest_change {
        Some(largest) => {
            html.put(
                "<div class=\"key\"><span><i style=\"background:#5494f0\"></i>smaller share than in the base</span>\
                 <span><i style=\"background:#e0e2e5\"></i>equal</span>\
                 <span><i style=\"background:#e95c42\"></i>larger share</span>\
                 <span>full color: {} points</span></div>",
                [&format_args!("{:.1}", largest.max(1.0))],
            );
        }
        None => {
            html.raw(
                "<div class=\"key\"><span><i style=\"background:#e76f5b\"></i>native</span>\
                 <span><i style=\"background:#e9d45a\"></i>C++, Rust</span>\
                 <span><i style=\"background:#67d2d6\"></i>inlined</span>\
                 <span><i style=\"background:#f4a044\"></i>kernel</span>\
                 <span><i style=\"background:#7fd277\"></i>JIT-compiled</span>\
                 <span><i style=\"background:#bababa\"></i>unknown</span></div>",
            );
        }
    }
    html.raw(
        "<p class=\"quiet\">Click a frame to zoom in, press Esc to reset the zoom, press / or Ctrl+F to search with a regular \
         expression. Frames narrower than a thousandth are omitted: narrow the selection to see them.</p>",
    );
}

/// Renders a standalone page for a file: the image with a summary of its profile, and a table of the `functions` busiest functions, compared
/// with those of `base` if there is one. It loads no external resources.
pub fn offline(
    profile: &Profile,
    base: Option<&Profile>,
    headline: Option<&str>,
    functions: usize,
) -> String {
    let mut html = Html::default();
    let name = headline.map_or_else(|| title(profile), str::to_owned);
    begin_offline(&mut html, &name, "");
    offline_profile(&mut html, profile, base, headline, functions);
    end(html)
}

/// Begins a standalone page, up to the main element. `css` is added to the style.
pub(in crate::export) fn begin_offline(html: &mut Html, name: &str, css: &'static str) {
    // All untrusted input was escaped, so every script in the document is the exporter's own.
    html.raw(HEAD_START).raw(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\"><title>",
    );
    html.text(name).raw(" - perf-exporter</title><style>").raw(css);
    styles(html);
    html.put("{}</h1></header><main>", [&name]);
}

/// Writes the image of a profile and the table of its functions into a standalone page. A page can have only one.
pub(in crate::export) fn offline_profile(
    html: &mut Html,
    profile: &Profile,
    base: Option<&Profile>,
    headline: Option<&str>,
    functions: usize,
) {
    let options = flamegraph::Options { title: headline, base, ..flamegraph::Options::default() };
    html.raw("<div class=\"about\">");
    facts(html, profile);
    html.raw("</div>");
    match &flamegraph::embedded(profile, options, NO_NONCE) {
        Some(picture) => {
            html.raw(
                "<form class=\"tools\"><input id=\"search\" type=\"search\" aria-label=\"Search\" placeholder=\"Search\">\
                 <span id=\"matched\"> </span><button type=\"button\" id=\"unzoom\" class=\"hide\">Reset zoom</button></form>",
            );
            drawn(html, picture);
            let options = top::Options { base, limit: functions, ..top::Options::default() };
            functions_card(html, NO_NONCE, profile, &Top::with(profile, options), None);
        }
        None => nothing(html, &flamegraph::nothing(profile, 0)),
    }
}

/// Nonce of scripts in pages for files.
pub(in crate::export) const NO_NONCE: &str = "0";

/// Renders the page with the table of functions. The argument is the table, or a sentence why there is none.
pub(in crate::export) fn top(view: View<'_>, profile: &Profile, top: Result<&Top, &str>) -> String {
    page(Page::Top, view, profile, |html| match top {
        Ok(top) => functions_card(html, view.nonce, profile, top, Some(view.query)),
        Err(sentence) => nothing(html, sentence),
    })
}

/// Renders the page with the callers and callees of a function. The argument is the table, or a sentence why there is none.
pub(in crate::export) fn calls(view: View<'_>, profile: &Profile, calls: Result<&Calls, &str>) -> String {
    page(Page::Top, view, profile, |html| match calls {
        Ok(calls) => calls_cards(html, profile, calls, view.query),
        Err(sentence) => nothing(html, sentence),
    })
}

/// Renders the page with the instructions of a function. The argument is the function, or a sentence why there is none.
pub(in crate::export) fn annotate(
    view: View<'_>,
    profile: &Profile,
    annotated: Result<&Annotated, &str>,
) -> String {
    page(Page::Annotate, view, profile, |html| match annotated {
        Ok(annotated) => annotated_card(html, annotated, view.query),
        Err(sentence) => nothing(html, sentence),
    })
}

/// Renders a page with the reason why there is no profile, and the lines of the configuration that help.
pub(in crate::export) fn refused(
    page: Page,
    view: View<'_>,
    sentence: &str,
    remedy: Option<&'static str>,
) -> String {
    let mut html = Html::default();
    begin(&mut html, page, view);
    html.put(WARNING, [&sentence]);
    if let Some(remedy) = remedy {
        html.raw("<div class=\"card\"><p>Add this to the configuration, and reload it with SIGHUP or <code>POST /-/reload</code>:</p><pre>");
        html.raw(remedy).raw("</pre>");
        html.raw(
            "<p class=\"quiet\">A section <code>profiles</code> replaces the built-in one. So keep the entries that are in use. \
             <code>off_cpu</code> records where threads wait, and costs about 1 µs for each context switch of the machine.</p></div>",
        );
    }
    end(html)
}

/// Renders the index of `/debug/pprof/`.
pub(in crate::export) fn index(kinds: &[Arc<str>]) -> String {
    let mut html = Html::default();
    head(&mut html, "Profiles");
    html.raw("</header><main><p class=\"quiet\">Profiles recorded on this machine.</p>");
    if kinds.is_empty() {
        html.put(WARNING, [&NO_KINDS]);
    }
    html.raw("<div class=\"card\"><table>");
    for kind in kinds {
        let query = Query { kind: Some(kind.as_ref().to_owned()), ..Query::default() };
        html.put("<tr><td><code>{}</code></td>", [kind]);
        let outputs = [
            ("pprof of the next 10 s", "/debug/pprof/profile"),
            ("flame graph", "/flamegraph"),
            ("functions", "/top"),
            ("folded stacks", "/folded"),
        ];
        for (words, path) in outputs {
            html.raw("<td>");
            html.link("", &query.link(path, &[]), words);
            html.raw("</td>");
        }
        html.raw("</tr>");
    }
    html.raw(
        "</table></div><p class=\"quiet\">All accept the parameters <code>seconds</code>, <code>comm</code>, <code>pid</code>, \
         <code>cgroup</code> and <code>mode</code>: \
         <code>go tool pprof 'http://…/debug/pprof/profile?seconds=30&amp;comm=nginx*'</code></p>",
    );
    end(html)
}

const WARNING: &str = "<div class=\"banner warn\"><p>{}</p></div>";

/// Start of the head of a page.
pub(in crate::export) const HEAD_START: &str = concat!(
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    "<link rel=\"icon\" href=\"data:,\">"
);

/// Writes the markup between the title and the headline of a page.
fn style(html: &mut Html) {
    html.raw(" - perf-exporter</title><style>");
    styles(html);
}

/// Writes the style, and the markup up to the headline.
fn styles(html: &mut Html) {
    html.raw(include_str!("page.css")).raw(include_str!("profile.css"));
    html.raw(flamegraph::STYLE).raw("</style></head><body class=\"profiles\"><header><h1>");
}

fn head(html: &mut Html, name: &'static str) {
    html.raw(HEAD_START).raw("<title>").raw(name);
    style(html);
    html.raw(name).raw("</h1><a href=\"/\">perf-exporter</a>");
}

pub(super) fn begin(html: &mut Html, page: Page, view: View<'_>) {
    let (name, own) = page.words();
    head(html, name);
    html.raw("<nav>");
    for (words, path) in [Page::FlameGraph, Page::Top, Page::Annotate, Page::HeatMap].map(Page::words) {
        let current = if path == own { " aria-current=\"page\"" } else { "" };
        // A heat map and an annotated function are not compared.
        let address = match path {
            "/heatmap" | "/annotate" => view.query.link(path, &[]),
            _ => view.query.same_selection().address(path),
        };
        html.link(current, &address, words);
    }
    html.raw("<a href=\"/debug/pprof/\">Profiles</a></nav></header><main>");
    form(html, page, view.query, view.kinds);
}

pub(in crate::export) fn end(mut html: Html) -> String {
    html.raw("</main></body></html>\n");
    html.finish()
}

/// Writes a summary of a profile.
fn facts(html: &mut Html, profile: &Profile) {
    html.put(
        "<h2>{}</h2><span>{} in {} samples</span><span class=\"quiet\">{} from {}</span>",
        [
            &title(profile),
            &value(profile.total(), profile.kind.value.unit),
            &count(profile.taken()),
            &duration(profile.duration),
            &format_args!("{:#}", profile.start),
        ],
    );
    if let Some(lost) = lost(profile) {
        html.put("<span class=\"refused\">lost: {}</span>", [&lost]);
    }
}

/// Writes a summary of a profile and links to its other formats.
fn about(html: &mut Html, page: Page, view: View<'_>, profile: &Profile) {
    let query = view.query;
    html.raw("<div class=\"about\">");
    facts(html, profile);
    html.raw("<nav>");
    let with = |format| Query { format: Some(format), ..query.clone() };
    let is_graph = page == Page::FlameGraph;
    let others = if is_graph {
        let folded = Query { root: query.root, ..query.same_selection() };
        [("SVG", with(Format::Svg).address("/flamegraph")), ("Folded", folded.address("/folded"))]
    } else {
        let path = page.words().1;
        [("Text", with(Format::Text).address(path)), ("JSON", with(Format::Json).address(path))]
    };
    for (words, address) in others {
        html.link("", &address, words);
    }
    html.link("", &query.link("/debug/pprof/profile", &[]), "pprof");
    html.raw("</nav></div>");
    if let StackView::Function(function) = query.view() {
        let (same, root) = (query.same_selection(), query.root);
        let of_function = Query { focus: query.focus.clone(), ..same.clone() };
        html.put("<p>Callers and callees of <code>{}</code>: ", [&function]);
        let (path, words) = if is_graph { ("/top", "table") } else { ("/flamegraph", "flame graph") };
        html.link("", &of_function.address(path), words);
        html.raw(", ").link("", &annotate_address(query, function, None), "instructions");
        html.raw(", ").link("", &Query { root, ..same }.address(page.words().1), "all functions").raw("</p>");
    }
}

fn nothing(html: &mut Html, sentence: &str) {
    html.put("<div class=\"banner idle\"><p><b>No data:</b> {}.</p></div>", [&sentence]);
}

#[cfg(test)]
mod tests;
