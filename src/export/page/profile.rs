//! The profile pages `/flamegraph` and `/top`, and the index of `/debug/pprof/`. They have the style of the status page, a form for the
//! selection, and links to the same selection in other formats. Their inline scripts carry the nonce of the response's
//! Content-Security-Policy.

use std::io;
use std::sync::Arc;

use super::figures::{count, duration};
use super::html::Html;
use crate::export::flamegraph::{self, Embedded, lost, title};
use crate::export::query::{LONGEST, Query, ROOTS, SHAPES, word};
use crate::export::top::{Row, Top, basename, value};
use crate::profile::{Cgroups, Mode, Profile};
use crate::targets::Glob;

/// Input of a page.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct View<'v> {
    /// The query.
    pub(in crate::export) query: &'v Query,
    /// The available kinds of profiles.
    pub(in crate::export) kinds: &'v [Arc<str>],
    /// The nonce of the scripts: hexadecimal digits.
    pub(in crate::export) nonce: &'v str,
}

/// Kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum Page {
    FlameGraph,
    Top,
}

impl Page {
    /// Returns the title and the path of the page.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::FlameGraph => ("Flame graph", "/flamegraph"),
            Self::Top => ("Functions", "/top"),
        }
    }
}

/// Renders the flame graph page. The argument is the image, or a sentence why there is none.
pub(in crate::export) fn flamegraph(
    view: View<'_>,
    profile: &Profile,
    picture: Result<&Embedded, &str>,
) -> String {
    page(Page::FlameGraph, view, profile, |html| match picture {
        Ok(picture) => drawn(html, picture),
        Err(sentence) => nothing(html, sentence),
    })
}

/// Renders a page about a profile.
fn page(page: Page, view: View<'_>, profile: &Profile, show: impl FnOnce(&mut Html)) -> String {
    let mut html = Html::default();
    begin(&mut html, page, view);
    about(&mut html, page, view, profile);
    show(&mut html);
    end(html)
}

/// Writes the image, its color legend and a usage hint.
fn drawn(html: &mut Html, picture: &Embedded) {
    html.raw("<div class=\"card graph\">").picture(picture).raw("</div>");
    html.raw(
        "<div class=\"key\"><span><i style=\"background:#e76f5b\"></i>native</span>\
         <span><i style=\"background:#e9d45a\"></i>C++, Rust</span>\
         <span><i style=\"background:#67d2d6\"></i>inlined</span>\
         <span><i style=\"background:#f4a044\"></i>kernel</span>\
         <span><i style=\"background:#7fd277\"></i>JIT-compiled</span>\
         <span><i style=\"background:#bababa\"></i>unknown</span></div>\
         <p class=\"quiet\">Click a frame to zoom in, press Ctrl+F to search with a regular expression. Frames narrower \
         than a thousandth are omitted: narrow the selection to see them.</p>",
    );
}

/// Renders a standalone page for a file: the image with a summary of its profile, and a table of the `functions` busiest functions.
/// It loads no external resources.
///
/// # Errors
/// Returns errors of inferno, and an error if its output cannot be embedded.
pub fn offline(profile: &Profile, headline: Option<&str>, functions: usize) -> io::Result<String> {
    let options = flamegraph::Options { title: headline, ..flamegraph::Options::default() };
    let picture = flamegraph::embedded(profile, options, NO_NONCE)?;
    let name = headline.map_or_else(|| title(profile), str::to_owned);
    let mut html = Html::default();
    // All untrusted input was escaped, so every script in the document is the exporter's own.
    html.raw(HEAD_START).raw(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\"><title>",
    );
    html.text(&name).raw(HEAD_STYLE).put("{}</h1></header><main><div class=\"about\">", [&name]);
    facts(&mut html, profile);
    html.raw("</div>");
    match &picture {
        Some(picture) => {
            drawn(&mut html, picture);
            functions_card(&mut html, NO_NONCE, profile, &Top::new(profile, functions), None);
        }
        None => nothing(&mut html, &flamegraph::nothing(profile, 0)),
    }
    Ok(end(html))
}

/// Nonce of scripts in pages that are not served with a policy.
const NO_NONCE: &str = "0";

/// Renders the page with the table of functions. The argument is the table, or a sentence why there is none.
pub(in crate::export) fn top(view: View<'_>, profile: &Profile, top: Result<&Top, &str>) -> String {
    page(Page::Top, view, profile, |html| match top {
        Ok(top) => {
            let more = view.query.link("/top", &[("limit", "10000")]);
            functions_card(html, view.nonce, profile, top, Some(&more));
        }
        Err(sentence) => nothing(html, sentence),
    })
}

/// Renders a page with the reason why there is no profile.
pub(in crate::export) fn refused(page: Page, view: View<'_>, sentence: &str) -> String {
    let mut html = Html::default();
    begin(&mut html, page, view);
    html.put(WARNING, [&sentence]);
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
            link(&mut html, "", &query.link(path, &[]), words);
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

/// Message of pages without any kind of profile.
pub(in crate::export) const NO_KINDS: &str = "no profiles are recorded: `profiles` is empty in the configuration, or no entry could be \
                                              opened (see /status)";

const WARNING: &str = "<div class=\"banner warn\"><p>{}</p></div>";

/// Start of the head of a page.
pub(super) const HEAD_START: &str = concat!(
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    "<link rel=\"icon\" href=\"data:,\">"
);

/// Markup between the title and the headline of a page.
const HEAD_STYLE: &str = concat!(
    " - perf-exporter</title><style>",
    include_str!("page.css"),
    include_str!("profile.css"),
    "</style></head><body><header><h1>"
);

fn head(html: &mut Html, name: &'static str) {
    html.raw(HEAD_START).raw("<title>").raw(name).raw(HEAD_STYLE);
    html.raw(name).raw("</h1><a href=\"/\">perf-exporter</a>");
}

fn begin(html: &mut Html, page: Page, view: View<'_>) {
    let (name, own) = page.words();
    head(html, name);
    html.raw("<nav>");
    for (words, path) in [Page::FlameGraph, Page::Top].map(Page::words) {
        let current = if path == own { " aria-current=\"page\"" } else { "" };
        link(html, current, &view.query.link(path, &[]), words);
    }
    html.raw("<a href=\"/debug/pprof/\">Profiles</a></nav></header><main>");
    form(html, page, view);
}

fn link(html: &mut Html, attributes: &'static str, address: &str, words: &str) {
    html.raw("<a").raw(attributes).raw(" href=\"").address(address).put("\">{}</a>", [&words]);
}

fn end(mut html: Html) -> String {
    html.raw("</main></body></html>\n");
    html.finish()
}

fn form(html: &mut Html, page: Page, view: View<'_>) {
    let Query { kind, seconds, selection, root, shape, .. } = view.query;
    html.put("<form class=\"card\" method=\"get\" action=\"{}\">", [&page.words().1]);
    let kinds = view.kinds.iter().map(|known| (&**known, kind.as_deref() == Some(known)));
    choice(html, "Type<select name=\"type\">", kinds);
    let given = |html: &mut Html, text: Option<&str>| {
        html.raw(" value=\"").address(text.unwrap_or_default()).raw("\"></label>");
    };
    let (comm, cgroup) = (selection.comm.as_ref(), selection.cgroup.as_ref());
    html.raw("<label>Thread name<input name=\"comm\" placeholder=\"nginx*\" spellcheck=\"false\"");
    given(html, comm.map(Glob::as_str));
    html.raw("<label class=\"wide\">Cgroup<input name=\"cgroup\" placeholder=\"/system.slice/**\" spellcheck=\"false\"");
    given(html, cgroup.map(Cgroups::as_str));
    html.raw("<label class=\"narrow\">PID<input name=\"pid\" inputmode=\"numeric\" placeholder=\"any\"");
    given(html, selection.pid.map(|pid| pid.to_string()).as_deref());
    let modes = Mode::ALL.map(|mode| (mode.as_str(), selection.mode == Some(mode)));
    choice(html, "Mode<select name=\"mode\"><option value=\"\">any</option>", modes);
    if page == Page::FlameGraph {
        let roots = ROOTS.map(|(word, known)| (word, *root == known));
        choice(html, "Grouped by<select name=\"by\">", roots);
        let shapes = SHAPES.map(|(word, known)| (word, *shape == known));
        choice(html, "Shape<select name=\"shape\">", shapes);
    }
    html.put(
        "<label class=\"narrow\" title=\"Seconds to sample from now on; if empty, about the last minute, immediately\">\
         Seconds<input name=\"seconds\" type=\"number\" min=\"1\" max=\"{}\" placeholder=\"recent\"",
        [&LONGEST],
    );
    given(html, seconds.map(|seconds| seconds.to_string()).as_deref());
    html.raw("<button>Show</button></form>");
}

/// Writes a selection list of words with their selected state.
fn choice<'w>(html: &mut Html, head: &'static str, all: impl IntoIterator<Item = (&'w str, bool)>) {
    html.raw("<label>").raw(head);
    for (word, selected) in all {
        html.put("<option{}>{}</option>", [&if selected { " selected" } else { "" }, &word]);
    }
    html.raw("</select></label>");
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
    html.raw("<div class=\"about\">");
    facts(html, profile);
    html.raw("<nav>");
    let root = word(&ROOTS, &view.query.root);
    let svg = [("by", root), ("shape", word(&SHAPES, &view.query.shape)), ("format", "svg")];
    let others: [(_, _, &[_]); 2] = match page {
        Page::FlameGraph => [("SVG", "/flamegraph", &svg), ("Folded", "/folded", &svg[..1])],
        Page::Top => [("Text", "/top", &[("format", "text")]), ("JSON", "/top", &[("format", "json")])],
    };
    for (words, path, more) in others.into_iter().chain([("pprof", "/debug/pprof/profile", &[][..])]) {
        link(html, "", &view.query.link(path, more), words);
    }
    html.raw("</nav></div>");
}

fn nothing(html: &mut Html, sentence: &str) {
    html.put("<div class=\"banner idle\"><p><b>No data:</b> {}.</p></div>", [&sentence]);
}

/// Writes the table of functions. `link`, if given, leads to the omitted functions.
fn functions_card(html: &mut Html, nonce: &str, profile: &Profile, top: &Top, link: Option<&str>) {
    html.raw(
        "<div class=\"card\"><input id=\"find\" class=\"find\" type=\"search\" aria-label=\"Find\" \
         placeholder=\"Find a function or module\">\
         <table id=\"functions\" class=\"functions\"><thead><tr>\
         <th class=\"number share\" aria-sort=\"descending\"><button>Self</button></th>\
         <th class=\"number share\"><button>Total</button></th>\
         <th class=\"number amount\"><button>Self value</button></th>\
         <th class=\"function\"><button>Function</button></th>\
         <th class=\"module\"><button>Module</button></th></tr></thead><tbody>",
    );
    top.functions.iter().for_each(|shown| row(html, profile, shown));
    html.raw("</tbody></table>");
    if let Some(more) = top.distinct.checked_sub(top.functions.len()).filter(|&more| more > 0) {
        html.put("<p class=\"quiet\">and {} more", [&count(more as u64)]);
        if let Some(link) = link {
            html.raw(": <a href=\"").address(link).raw("\">show more</a>");
        }
        html.raw("</p>");
    }
    html.put("</div><script nonce=\"{}\">", [&nonce]).raw(include_str!("top.js")).raw("</script>");
}

fn row(html: &mut Html, profile: &Profile, row: &Row) {
    html.raw("<tr>");
    for percent in [row.self_percent, row.total_percent] {
        html.put(
            "<td class=\"number share\" data-v=\"{}\" style=\"--p:{}\">{}%</td>",
            [&percent, &format_args!("{percent:.1}"), &format_args!("{percent:.2}")],
        );
    }
    html.put(
        "<td class=\"number amount\" data-v=\"{}\">{}</td><td class=\"function\"><code>{}</code>",
        [&row.own, &value(row.own, profile.kind.value.unit), &row.function],
    );
    html.raw(match row.origin {
        "kernel" => " <small>kernel</small>",
        "jit" => " <small>JIT</small>",
        _ => "",
    });
    html.put("</td><td class=\"module\" title=\"{}\">{}</td></tr>", [&row.module, &basename(&row.module)]);
}
