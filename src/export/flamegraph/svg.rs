//! The image as SVG.
//!
//! Each frame is an `svg` element of its own, with a position and a width in percent. It clips its text, so the image has any width without
//! a script, and the script only changes these two attributes. The script, the pages and the tests of the browser use these classes: `f` is a
//! frame, `r` a root frame without a function, `m` a highlighted frame.

use std::fmt;

use regex::bytes::{Regex, RegexBuilder};

use super::tree::{self, Frame, covered};
use super::{DEPTH, Embedded, Shape, color};
use crate::export::diff::{Change, Comparison};
use crate::export::folded::{Folded, Name, Values};
use crate::export::markup::escaped;
use crate::export::page::figures::grouped;

/// Distance of two frames, from top to top, in pixels. The script has the same number.
const PITCH: usize = 18;

/// Height of a frame in pixels.
const HEIGHT: usize = 17;

/// Height of the heading of a standalone image in pixels.
const HEADING: usize = 80;

/// Width of a standalone image in pixels, until its script adapts it to the window.
const WIDTH: usize = 1200;

/// Minimum width of a frame with a text, in percent. The script adds texts where the window has space for them.
const LABELED: f64 = 1.5;

/// Maximum size of a compiled search term in bytes.
const SEARCH: usize = 256 << 10;

/// Facts around the image.
#[derive(Debug, Clone, Copy)]
pub(super) enum Legend<'t> {
    /// A standalone image has them in itself.
    Heading { title: &'t str, subtitle: &'t str },
    /// The page has them. The nonce is that of its scripts.
    Embedded { title: &'t str, nonce: &'t str },
}

/// Stacks that grow in one direction.
pub(super) struct Panel {
    frames: Vec<Frame>,
    shape: Shape,
}

impl Panel {
    /// Draws all stacks, within a frame that contains all.
    pub(super) fn whole(folded: &Folded, shape: Shape) -> Self {
        Self { frames: tree::frames(folded.stacks(), true, DEPTH), shape }
    }

    /// Draws stacks that begin with the same function.
    pub(super) fn part(folded: &Folded, shape: Shape) -> Self {
        Self { frames: tree::frames(folded.stacks(), false, DEPTH), shape }
    }

    /// Returns the width in values.
    pub(super) fn total(&self) -> u128 {
        self.frames.iter().filter(|frame| frame.depth == 0).map(|frame| frame.this).sum()
    }
}

/// A search term: a regular expression, or a text if it is none. Upper and lower case are the same. `None` matches nothing.
pub(super) struct Search(Option<Regex>);

impl Search {
    pub(super) fn new(term: &str) -> Self {
        // As in the script, classes are those of ASCII.
        let compiled = |term: &str| {
            RegexBuilder::new(term).case_insensitive(true).unicode(false).size_limit(SEARCH).build()
        };
        Self(compiled(term).or_else(|_| compiled(&regex::escape(term))).ok())
    }

    fn matches(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|term| term.is_match(name.as_bytes()))
    }
}

/// An image to draw.
pub(super) struct Picture<'p> {
    pub(super) names: &'p [Name],
    /// One panel, or the callees and then the callers of a function.
    pub(super) panels: Vec<Panel>,
    /// Width in values.
    pub(super) total: u128,
    pub(super) totals: Values,
    /// How values are compared with the base, if there is one.
    pub(super) comparison: Option<Comparison>,
    pub(super) scale: (f64, &'static str),
    pub(super) search: Option<&'p Search>,
    pub(super) legend: Legend<'p>,
}

/// A frame at its place.
struct Placed<'p> {
    frame: &'p Frame,
    y: usize,
    /// Whether it is below the first frame.
    is_below: bool,
    matches: bool,
    points: Option<f64>,
}

impl Picture<'_> {
    /// Draws the frames that have at least this width in percent.
    pub(super) fn draw(&self, narrowest: f64) -> Embedded {
        let least = (self.total as f64 * narrowest / 100.0).max(1.0);
        let shown = |panel: &'_ Panel| -> Vec<Frame> {
            panel.frames.iter().filter(|frame| frame.this as f64 >= least).copied().collect()
        };
        let panels: Vec<(Vec<Frame>, Shape)> =
            self.panels.iter().map(|panel| (shown(panel), panel.shape)).collect();
        let deepest = |shape| {
            let frames = panels.iter().filter(|panel| panel.1 == shape).flat_map(|panel| &panel.0);
            frames.map(|frame| frame.depth).max().unwrap_or(0)
        };
        let top = match self.legend {
            Legend::Heading { .. } => HEADING,
            Legend::Embedded { .. } => 0,
        };
        // The line of the first frames: stacks grow up and down from it.
        let (above, below) = (deepest(Shape::Flame), deepest(Shape::Icicle));
        let mut placed = Vec::new();
        for (number, (frames, shape)) in panels.iter().enumerate() {
            // The function itself is drawn once.
            let own = frames.iter().filter(|frame| number == 0 || frame.depth > 0);
            placed.extend(own.map(|frame| {
                let line = match shape {
                    Shape::Flame => above.saturating_sub(frame.depth),
                    Shape::Icicle => above + frame.depth,
                };
                self.placed(frame, *shape == Shape::Icicle, top + line * PITCH)
            }));
        }
        let height = top + (above + below + 1) * PITCH;
        let points = placed.iter().filter_map(|placed| placed.points);
        let largest_change = points.fold(0.0, |largest: f64, points| largest.max(points.abs()));
        let found = |below: bool| {
            let found = placed.iter().filter(|placed| placed.matches && placed.is_below == below);
            covered(found.map(|placed| placed.frame))
        };
        let matched = self.search.map(|_| 100.0 * found(true).max(found(false)) as f64 / self.total as f64);
        let svg = Markup { picture: self, placed: &placed, height, largest_change }.to_string();
        Embedded { svg, matched, largest_change: self.comparison.map(|_| largest_change) }
    }

    fn name(&self, frame: &Frame) -> Option<&Name> {
        frame.name.and_then(|name| self.names.get(name as usize))
    }

    fn placed<'f>(&self, frame: &'f Frame, is_below: bool, y: usize) -> Placed<'f> {
        let name = self.name(frame);
        let matches = self.search.zip(name).is_some_and(|(search, name)| search.matches(name.shown()));
        let change = self.comparison.map(|comparison| comparison.of(values(frame)));
        Placed { frame, y, is_below, matches, points: change.map(Change::points) }
    }

    /// Returns the value and the share of a frame: `2,842 ms, 15.47%`.
    fn facts(&self, frame: &Frame) -> String {
        let (factor, unit) = self.scale;
        let value = format!("{} {unit}", grouped(&format!("{:.0}", frame.this as f64 * factor), ','));
        match self.comparison {
            Some(comparison) => format!("{value}, {}", comparison.of(values(frame))),
            None => {
                format!("{value}, {:.2}%", 100.0 * frame.this as f64 / self.totals.this.max(1) as f64)
            }
        }
    }
}

/// The markup of an image.
struct Markup<'m> {
    picture: &'m Picture<'m>,
    placed: &'m [Placed<'m>],
    height: usize,
    largest_change: f64,
}

impl fmt::Display for Markup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.begin(f)?;
        self.placed.iter().try_for_each(|placed| self.frame(placed, f))?;
        match self.picture.legend {
            Legend::Embedded { nonce, .. } => {
                write!(f, "</svg><script nonce=\"{}\">{SCRIPT}</script>", escaped(nonce))
            }
            Legend::Heading { .. } => write!(f, "<script><![CDATA[{SCRIPT}]]></script></svg>"),
        }
    }
}

impl Markup<'_> {
    /// Writes a frame: the name and the facts, the colored box, and the text if it is wide enough.
    fn frame(&self, placed: &Placed<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placed { frame, y, matches, points, .. } = placed;
        let name = self.picture.name(frame);
        let text = name.map_or_else(|| "all".to_owned(), |name| escaped(name.shown()));
        let is_root = name.is_none_or(|name| name.origin.is_none());
        let percent = |value: u128| 100.0 * value as f64 / self.picture.total as f64;
        let (x, width) = (percent(frame.start), percent(frame.this));
        let color = match (points, name) {
            (Some(points), _) => color::of_change(*points, self.largest_change),
            (None, None) => color::ALL,
            (None, Some(name)) => color::of_name(name),
        };
        let (root, found) = (if is_root { " r" } else { "" }, if *matches { " m" } else { "" });
        let facts = self.picture.facts(frame);
        write!(
            f,
            "<svg class=\"f{root}{found}\" x=\"{x:.5}%\" y=\"{y}\" width=\"{width:.5}%\" height=\"{HEIGHT}\">\
             <title>{text}\n{facts}</title><rect width=\"100%\" height=\"100%\" fill=\"{color}\"/>"
        )?;
        if width >= LABELED {
            write!(f, "<text x=\"4\" y=\"13\">{text}</text>")?;
        }
        f.write_str("</svg>")
    }

    /// Writes the start of the image and its heading.
    fn begin(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const START: &str = "<svg id=\"flamegraph\" xmlns=\"http://www.w3.org/2000/svg\" role=\"group\"";
        let height = self.height;
        match self.picture.legend {
            Legend::Embedded { title, .. } => {
                write!(f, "{START} height=\"{height}\" aria-label=\"Flame graph: {}\">", escaped(title))
            }
            Legend::Heading { title, subtitle } => write!(
                f,
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{START} width=\"{WIDTH}\" height=\"{}\"><style>{}{}</style>\
                 <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\
                 <text class=\"title\" x=\"50%\" y=\"24\">{}</text>\
                 <text class=\"subtitle\" x=\"50%\" y=\"44\">{}</text>\
                 <text id=\"details\" x=\"8\" y=\"68\"> </text>\
                 <text id=\"unzoom\" class=\"button hide\" x=\"8\" y=\"24\">Reset zoom</text>\
                 <text id=\"search\" class=\"button right\" x=\"99.5%\" y=\"24\">Search</text>\
                 <text id=\"matched\" class=\"right\" x=\"99.5%\" y=\"68\"> </text>",
                height + 8,
                super::STYLE,
                STANDALONE_STYLE,
                escaped(title),
                escaped(subtitle)
            ),
        }
    }
}

/// The script of the image, in a page and standalone.
const SCRIPT: &str = include_str!("flamegraph.js");

/// The style of the facts in a standalone image.
const STANDALONE_STYLE: &str = include_str!("standalone.css");

fn values(frame: &Frame) -> Values {
    let whole = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
    Values { this: whole(frame.this), base: whole(frame.base) }
}
