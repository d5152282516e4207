//! The pages of profiles, `/flamegraph` and `/top`, and the index of `/debug/pprof/`: the style of the status page, a
//! form for the selection, and links to the same selection in other formats. Their scripts are within them, and bear
//! the nonce that the policy of the answer allows.

use std::io;
use std::sync::Arc;

use super::figures::{count, duration};
use super::html::Html;
use crate::export::flamegraph::{self, Embedded, Shape, lost, title};
use crate::export::folded::Root;
use crate::export::query::{LONGEST, Query, root_word, shape_word};
use crate::export::top::{Row, Top, basename, value};
use crate::profile::{Cgroups, Mode, Profile};
use crate::target::Glob;

/// What a page is about.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct View<'v> {
    /// What was asked for.
    pub(in crate::export) query: &'v Query,
    /// The kinds of profiles that there are.
    pub(in crate::export) kinds: &'v [Arc<str>],
    /// What scripts must bear to be run: hexadecimal digits.
    pub(in crate::export) nonce: &'v str,
}

/// Which page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum Page {
    FlameGraph,
    Top,
}

impl Page {
    const fn path(self) -> &'static str {
        match self {
            Self::FlameGraph => "/flamegraph",
            Self::Top => "/top",
        }
    }
}

/// The page with a picture, or with a sentence where there is none.
pub(in crate::export) fn flamegraph(
    view: View<'_>,
    profile: &Profile,
    picture: Result<&Embedded, &str>,
) -> String {
    let mut html = Html::default();
    begin(&mut html, Page::FlameGraph, view);
    about(&mut html, Page::FlameGraph, view, profile);
    match picture {
        Ok(picture) => drawn(&mut html, picture),
        Err(sentence) => nothing(&mut html, sentence),
    }
    end(html)
}

/// A picture, what its colours mean, and how it is used.
fn drawn(html: &mut Html, picture: &Embedded) {
    html.raw("<div class=\"card graph\">").picture(picture).raw("</div>");
    html.raw(
        "<div class=\"key\"><span><i style=\"background:#e76f5b\"></i>native</span>\
         <span><i style=\"background:#e9d45a\"></i>C++, Rust</span>\
         <span><i style=\"background:#67d2d6\"></i>inlined</span>\
         <span><i style=\"background:#f4a044\"></i>kernel</span>\
         <span><i style=\"background:#7fd277\"></i>compiled at run time</span>\
         <span><i style=\"background:#bababa\"></i>unknown</span></div>\
         <p class=\"quiet\">Click a frame to enlarge it, Ctrl+F to search with a regular expression. What is \
         narrower than a thousandth is left out: select a part to see more of it.</p>",
    );
}

/// A page that stands alone in a file: the picture with what it is of, and the table of the first `functions` functions.
/// It loads nothing, wherever it is opened.
///
/// # Errors
/// What inferno says, or that it drew what we cannot embed.
pub fn offline(profile: &Profile, headline: Option<&str>, functions: usize) -> io::Result<String> {
    let options = flamegraph::Options { title: headline, ..flamegraph::Options::default() };
    let picture = flamegraph::embedded(profile, options, NO_NONCE)?;
    let name = headline.map_or_else(|| title(profile), str::to_owned);
    let mut html = Html::default();
    // All that came from outside was escaped: what scripts there are, are ours.
    html.raw(HEAD_START).raw(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src data:; \
         style-src 'unsafe-inline'; script-src 'unsafe-inline'\"><title>",
    );
    html.text(&name).raw(HEAD_STYLE).text(&name).raw("</h1></header><main><div class=\"about\">");
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

/// What scripts bear where nobody asks for it.
const NO_NONCE: &str = "0";

/// The page with the table of functions, or with a sentence where there are none.
pub(in crate::export) fn top(view: View<'_>, profile: &Profile, top: Result<&Top, &str>) -> String {
    let mut html = Html::default();
    begin(&mut html, Page::Top, view);
    about(&mut html, Page::Top, view, profile);
    match top {
        Ok(top) => table(&mut html, view, profile, top),
        Err(sentence) => nothing(&mut html, sentence),
    }
    end(html)
}

/// A page that says why there is no profile.
pub(in crate::export) fn refused(page: Page, view: View<'_>, sentence: &str) -> String {
    let mut html = Html::default();
    begin(&mut html, page, view);
    html.raw("<div class=\"banner warn\"><p>").text(sentence).raw("</p></div>");
    end(html)
}

/// The index of `/debug/pprof/`.
pub(in crate::export) fn index(kinds: &[Arc<str>]) -> String {
    let mut html = Html::default();
    head(&mut html, "Profiles");
    html.raw("</header><main><p class=\"quiet\">What this machine is sampled for.</p>");
    if kinds.is_empty() {
        html.raw("<div class=\"banner warn\"><p>").text(NO_KINDS).raw("</p></div>");
    }
    html.raw("<div class=\"card\"><table>");
    for kind in kinds {
        let query = Query { kind: Some(kind.as_ref().to_owned()), ..Query::default() };
        html.raw("<tr><td><code>").text(kind).raw("</code></td>");
        let outputs = [
            ("pprof, of the next 10 s", "/debug/pprof/profile"),
            ("flame graph", "/flamegraph"),
            ("functions", "/top"),
            ("folded stacks", "/folded"),
        ];
        for (words, path) in outputs {
            html.raw("<td><a href=\"")
                .address(&query.link(path, &[]))
                .raw("\">")
                .text(words)
                .raw("</a></td>");
        }
        html.raw("</tr>");
    }
    html.raw(
        "</table></div><p class=\"quiet\">All take <code>seconds</code>, <code>comm</code>, <code>pid</code>, \
         <code>cgroup</code> and <code>mode</code>: \
         <code>go tool pprof 'http://…/debug/pprof/profile?seconds=30&amp;comm=nginx*'</code></p>",
    );
    end(html)
}

/// What is said where no profiles are taken.
pub(in crate::export) const NO_KINDS: &str = "no profiles are taken: the configuration has none under `profiles`, or none could be opened (see /status)";

/// What a page begins with.
const HEAD_START: &str = concat!(
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">",
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">",
    "<link rel=\"icon\" href=\"data:,\">"
);

/// What stands between its title and its headline.
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
    let name = match page {
        Page::FlameGraph => "Flame graph",
        Page::Top => "Functions",
    };
    head(html, name);
    html.raw("<nav>");
    for (words, path) in [("Flame graph", "/flamegraph"), ("Functions", "/top")] {
        html.raw(if path == page.path() { "<a aria-current=\"page\" href=\"" } else { "<a href=\"" });
        html.address(&view.query.link(path, &[])).raw("\">").raw(words).raw("</a>");
    }
    html.raw("<a href=\"/debug/pprof/\">Profiles</a></nav></header><main>");
    form(html, page, view);
}

fn end(mut html: Html) -> String {
    html.raw("</main></body></html>\n");
    html.finish()
}

fn form(html: &mut Html, page: Page, view: View<'_>) {
    let Query { kind, seconds, selection, root, shape, .. } = view.query;
    html.raw("<form class=\"card\" method=\"get\" action=\"").raw(page.path()).raw("\">");
    html.raw("<label>Type<select name=\"type\">");
    for known in view.kinds {
        option(html, known, kind.as_deref() == Some(known));
    }
    html.raw("</select></label>");
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
    html.raw("<label>Mode<select name=\"mode\">");
    html.raw("<option value=\"\">any</option>");
    for mode in Mode::ALL {
        option(html, mode.as_str(), selection.mode == Some(mode));
    }
    html.raw("</select></label>");
    if page == Page::FlameGraph {
        html.raw("<label>Grouped by<select name=\"by\">");
        for known in [Root::Comm, Root::CommPid, Root::Cgroup] {
            option(html, root_word(known), *root == known);
        }
        html.raw("</select></label><label>Shape<select name=\"shape\">");
        for known in [Shape::Flame, Shape::Icicle] {
            option(html, shape_word(known), *shape == known);
        }
        html.raw("</select></label>");
    }
    html.raw("<label class=\"narrow\" title=\"How long to sample from now on; left empty: the last minute or so, at once\">");
    html.raw("Seconds<input name=\"seconds\" type=\"number\" min=\"1\" max=\"");
    html.text(LONGEST).raw("\" placeholder=\"recent\"");
    given(html, seconds.map(|seconds| seconds.to_string()).as_deref());
    html.raw("<button>Show</button></form>");
}

fn option(html: &mut Html, word: &str, selected: bool) {
    html.raw(if selected { "<option selected>" } else { "<option>" }).text(word).raw("</option>");
}

/// What a profile is of.
fn facts(html: &mut Html, profile: &Profile) {
    html.raw("<h2>").text(title(profile)).raw("</h2><span>");
    html.text(value(profile.total(), profile.kind.value.unit));
    html.raw(" in ").text(count(profile.taken())).raw(" samples</span><span class=\"quiet\">");
    html.text(duration(profile.duration)).raw(" from ").text(format_args!("{:#}", profile.start));
    html.raw("</span>");
    if let Some(lost) = lost(profile) {
        html.raw("<span class=\"refused\">lost: ").text(lost).raw("</span>");
    }
}

/// What a profile is of, and where else it is.
fn about(html: &mut Html, page: Page, view: View<'_>, profile: &Profile) {
    html.raw("<div class=\"about\">");
    facts(html, profile);
    html.raw("<nav>");
    let root = root_word(view.query.root);
    let mut link = |words: &'static str, path: &str, more: &[(&str, &str)]| {
        html.raw("<a href=\"").address(&view.query.link(path, more)).raw("\">").raw(words).raw("</a>");
    };
    match page {
        Page::FlameGraph => {
            link(
                "SVG",
                "/flamegraph",
                &[("by", root), ("shape", shape_word(view.query.shape)), ("format", "svg")],
            );
            link("Folded", "/folded", &[("by", root)]);
        }
        Page::Top => {
            link("Text", "/top", &[("format", "text")]);
            link("JSON", "/top", &[("format", "json")]);
        }
    }
    link("pprof", "/debug/pprof/profile", &[]);
    html.raw("</nav></div>");
}

fn nothing(html: &mut Html, sentence: &str) {
    html.raw("<div class=\"banner idle\"><p><b>Nothing to show:</b> ").text(sentence).raw(".</p></div>");
}

fn table(html: &mut Html, view: View<'_>, profile: &Profile, top: &Top) {
    let more = view.query.link("/top", &[("limit", "10000")]);
    functions_card(html, view.nonce, profile, top, Some(&more));
}

/// The table of functions; those that are left out are behind a link, if there is one.
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
        html.raw("<p class=\"quiet\">and ").text(count(more as u64)).raw(" more");
        if let Some(link) = link {
            html.raw(": <a href=\"").address(link).raw("\">show more</a>");
        }
        html.raw("</p>");
    }
    html.raw("</div><script nonce=\"").text(nonce).raw("\">");
    html.raw(include_str!("top.js")).raw("</script>");
}

fn row(html: &mut Html, profile: &Profile, row: &Row) {
    html.raw("<tr>");
    for percent in [row.self_percent, row.total_percent] {
        html.raw("<td class=\"number share\" data-v=\"").text(percent).raw("\" style=\"--p:");
        html.text(format_args!("{percent:.1}")).raw("\">").text(format_args!("{percent:.2}")).raw("%</td>");
    }
    html.raw("<td class=\"number amount\" data-v=\"").text(row.own).raw("\">");
    html.text(value(row.own, profile.kind.value.unit)).raw("</td><td class=\"function\"><code>");
    html.text(&row.function).raw("</code>");
    html.raw(match row.origin {
        "kernel" => " <small>kernel</small>",
        "jit" => " <small>run time</small>",
        _ => "",
    });
    html.raw("</td><td class=\"module\" title=\"").text(&row.module).raw("\">");
    html.text(basename(&row.module)).raw("</td></tr>");
}
