//! Flame graphs: an image of stacks in which the width of each function is its share.
//!
//! The image is an SVG with an inline script and without external resources. Its width follows the window. Frames can be searched and
//! zoomed in browsers. The hue indicates the kind of code, as in perf's own flame graphs: kernel orange, JIT-compiled green, native red to
//! yellow. A function has the same color in every image. If two profiles are compared, the hue indicates the change: red for a larger
//! share, blue for a smaller one. Frames narrower than a thousandth are omitted, and wider ones if the image would exceed a few megabytes.

mod color;
mod svg;
mod tree;

use std::time::Duration;

use super::diff::Comparison;
use super::folded::{self, Folded, Root, Values};
use super::markup::escaped;
use super::page::figures::{count, duration};
use super::views::{Sandwich, inverted};
use crate::clean::clean;
use crate::profile::{Profile, Unit};
use svg::{Legend, Panel, Picture};

/// `Content-Type` of a standalone image.
pub const CONTENT_TYPE: &str = "image/svg+xml";

/// Minimum width of a frame in percent: less than a pixel on most screens. A narrower selection shows more.
const NARROWEST: f64 = 0.1;

/// Maximum size of an image in bytes: browsers become slow with larger ones. The minimum width is raised until the image fits, up to a
/// fiftieth.
const SIZE: usize = 6 << 20;

/// Maximum length of a title in bytes.
const TITLE: usize = 200;

/// Maximum number of frames of a stack, counted from the outermost.
const DEPTH: usize = 1_000;

/// Style of an image. A page with an embedded image has it in its own style.
pub(super) const STYLE: &str = include_str!("flamegraph/picture.css");

/// Drawing options.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options<'t> {
    /// Orientation.
    pub shape: Shape,
    /// Root frame of the stacks.
    pub root: Root,
    /// Title; `None` uses the type of the values.
    pub title: Option<&'t str>,
    /// The shown stacks.
    pub view: View<'t>,
    /// The profile to compare with.
    pub base: Option<&'t Profile>,
    /// Whether shares of the base are those of the total of the profile, instead of its own total.
    pub absolute: bool,
    /// Whether functions of different kinds of code are not distinguished. Otherwise the same function, inlined and not, is two frames. So
    /// profiles of other programs can be compared, which may not know the kinds.
    pub plain: bool,
    /// Frames to highlight: a regular expression, or a text if it is none.
    pub search: Option<&'t str>,
}

impl Options<'_> {
    /// Returns the title of the image of a profile.
    fn title(self, profile: &Profile) -> String {
        self.title.map_or_else(|| title(profile), |title| clean(title, TITLE).into_owned())
    }
}

/// Position of the outermost functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// Bottom.
    Flame,
    /// Top: a tall image begins with them.
    #[default]
    Icicle,
}

/// The shown stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum View<'t> {
    /// All, with the outermost functions first.
    #[default]
    TopDown,
    /// All, with the innermost functions first and their callers behind them.
    Inverted,
    /// The callers of a function above it and its callees below, independently of the shape. Recursive calls are callees.
    Function(&'t str),
}

/// A drawn image: escaped markup. That for an HTML page contains its script, which runs if the page's policy allows the nonce.
#[derive(Debug)]
pub struct Embedded {
    svg: String,
    /// Share of the highlighted frames in percent, if there is a search.
    pub(super) matched: Option<f64>,
    /// Largest change of a frame in percentage points, if profiles are compared.
    pub(super) largest_change: Option<f64>,
}

impl Embedded {
    /// Returns the markup.
    pub(super) fn as_str(&self) -> &str {
        &self.svg
    }
}

/// Renders a standalone image. If there is nothing to draw, it contains the sentence `nothing`.
pub fn standalone(profile: &Profile, options: Options<'_>, nothing: &str) -> String {
    let title = options.title(profile);
    let (start, span) = (profile.start, duration(profile.duration));
    let mut subtitle = format!("{start:#} + {span} \u{b7} {} samples", count(profile.taken()));
    if let Some(lost) = lost(profile) {
        subtitle.push_str(" \u{b7} lost: ");
        subtitle.push_str(&lost);
    }
    if let View::Function(function) = options.view {
        subtitle = format!("callers and callees of {} \u{b7} {subtitle}", clean(function, TITLE));
    }
    if options.base.is_some() {
        subtitle.push_str(" \u{b7} red: larger share than in the base, blue: smaller");
    }
    match draw(profile, options, Legend::Heading { title: &title, subtitle: &subtitle }) {
        Some(drawn) => drawn.svg,
        None => sentence(&title, &absent(options.view).unwrap_or_else(|| nothing.to_owned())),
    }
}

/// Renders an image for a page, without the facts that the page shows itself. Returns `None` if there is nothing to draw. `nonce` consists
/// of hexadecimal digits.
pub fn embedded(profile: &Profile, options: Options<'_>, nonce: &str) -> Option<Embedded> {
    let title = options.title(profile);
    draw(profile, options, Legend::Embedded { title: &title, nonce })
}

/// Returns the sentence about a function that no stack contains.
pub(super) fn absent(view: View<'_>) -> Option<String> {
    match view {
        View::Function(function) => {
            Some(format!("no stack of the selection contains the function {:?}", clean(function, TITLE)))
        }
        View::TopDown | View::Inverted => None,
    }
}

/// Formats the losses: `12 (ring_full), 3 (throttled)`.
pub(crate) fn lost(profile: &Profile) -> Option<String> {
    let reasons: Vec<String> = (profile.lost.iter().filter(|lost| lost.1 > 0))
        .map(|(reason, number)| format!("{} ({reason})", count(*number)))
        .collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// Returns the title of a profile.
pub(crate) fn title(profile: &Profile) -> String {
    match &*profile.kind.value.name {
        "cpu" => "CPU time".to_owned(),
        "off_cpu" => "Time off the CPU".to_owned(),
        name => clean(name, 64).into_owned(),
    }
}

/// Draws an image; `None` if there are no stacks.
fn draw(profile: &Profile, options: Options<'_>, legend: Legend<'_>) -> Option<Embedded> {
    let folded =
        Folded::of(profile, options.base, folded::Options { root: options.root, annotated: !options.plain });
    let panels = match options.view {
        View::TopDown => vec![Panel::whole(&folded, options.shape)],
        View::Inverted => vec![Panel::whole(&inverted(&folded), options.shape)],
        View::Function(function) => {
            let Sandwich { callers, callees } = Sandwich::new(&folded, function);
            vec![Panel::part(&callees, Shape::Icicle), Panel::part(&callers, Shape::Flame)]
        }
    };
    let total = panels.iter().map(Panel::total).max().filter(|&total| total > 0)?;
    let search = options.search.map(svg::Search::new);
    let picture = Picture {
        names: folded.names(),
        panels,
        total,
        totals: folded.totals(),
        comparison: folded.is_compared().then(|| Comparison::new(folded.totals(), !options.absolute)),
        scale: scale(profile.kind.value.unit, folded.totals()),
        search: search.as_ref(),
        legend,
    };
    let mut narrowest = NARROWEST;
    loop {
        let drawn = picture.draw(narrowest);
        if drawn.svg.len() <= SIZE || narrowest >= 2.0 {
            return Some(drawn);
        }
        narrowest *= 3.0;
    }
}

/// Returns the factor from values to the unit that readers see, and the unit.
fn scale(unit: Unit, totals: Values) -> (f64, &'static str) {
    match unit {
        Unit::Nanoseconds if totals.this >= 100_000_000 => (1e-6, "ms"),
        Unit::Nanoseconds => (1e-3, "\u{b5}s"),
        Unit::Count => (1.0, "events"),
    }
}

/// Renders an image that consists of a sentence.
fn sentence(title: &str, text: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"90\" viewBox=\"0 0 1200 90\">\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <g font-family=\"monospace\" text-anchor=\"middle\"><text x=\"600\" y=\"32\" font-size=\"17\">{}</text>\
         <text x=\"600\" y=\"62\" font-size=\"12\" fill=\"#555\">{}</text></g></svg>\n",
        escaped(title),
        escaped(text)
    )
}

/// Returns the reason why there is nothing to draw. `unselected` is the number of samples without the selection.
pub fn nothing(profile: &Profile, unselected: u64) -> String {
    let time = match profile.duration {
        Duration::ZERO => "so far".to_owned(),
        span => format!("in {}", duration(span)),
    };
    if unselected > 0 {
        return format!("no sample {time} matches the selection; without it there are {}", count(unselected));
    }
    if let Some(lost) = lost(profile) {
        return format!("no samples {time}: all were lost, {lost}");
    }
    let why = match &*profile.kind.value.name {
        "cpu" => "no sampled task ran, or sampling has just started",
        "off_cpu" => "no wait exceeded the threshold, or sampling has just started",
        _ => "the event did not occur, or sampling has just started",
    };
    format!("no samples {time}: {why}")
}

#[cfg(test)]
mod tests;
