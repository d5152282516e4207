//! Flame graphs, drawn by inferno: an image of stacks in which the width of each function is its share.
//!
//! The image is an SVG with an inline script and without external resources. Frames can be searched and zoomed in any viewer. The hue
//! indicates the kind of code, as in perf's own flame graphs: kernel orange, JIT-compiled green, native red to yellow. A function has the
//! same color in every image. Frames narrower than a thousandth are omitted, and wider ones if the image would exceed a few megabytes.

use std::hash::Hasher as _;
use std::io;
use std::time::Duration;

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self as inferno_graph, Direction, TextTruncateDirection};
use rustc_hash::FxHasher;

use super::folded::{self, Folded, Name, Root};
use super::page::figures::{count, duration};
use crate::clean::clean;
use crate::profile::{Origin, Profile, Unit};

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

/// Drawing options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options<'t> {
    /// Orientation.
    pub shape: Shape,
    /// Root frame of the stacks.
    pub root: Root,
    /// Title; `None` uses the type of the values.
    pub title: Option<&'t str>,
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
    #[default]
    Flame,
    /// Top.
    Icicle,
}

/// An image for an HTML page: markup that inferno created and escaped, and its script, which runs if the page's policy allows the nonce.
#[derive(Debug)]
pub struct Embedded(String);

impl Embedded {
    /// Returns the markup.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Renders a standalone image. If there is nothing to draw, it contains the sentence `nothing`.
///
/// # Errors
/// Returns errors of inferno.
pub fn standalone(profile: &Profile, options: Options<'_>, nothing: &str) -> io::Result<String> {
    if profile.total() == 0 {
        return Ok(sentence(&options.title(profile), nothing));
    }
    let (start, span) = (profile.start, duration(profile.duration));
    let mut subtitle = format!("{start:#} + {span} \u{b7} {} samples", count(profile.taken()));
    if let Some(lost) = lost(profile) {
        subtitle.push_str(" \u{b7} lost: ");
        subtitle.push_str(&lost);
    }
    draw(profile, options, Some(subtitle))
}

/// Renders an image for a page, without the facts that the page shows itself. Returns `None` if there is nothing to draw. `nonce` consists
/// of hexadecimal digits.
///
/// # Errors
/// Returns errors of inferno, and an error if its output cannot be embedded.
pub fn embedded(profile: &Profile, options: Options<'_>, nonce: &str) -> io::Result<Option<Embedded>> {
    if profile.total() == 0 {
        return Ok(None);
    }
    let svg = draw(profile, options, None)?;
    embed(&svg, nonce).map(|markup| Some(Embedded(markup))).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "the output of inferno has an unexpected structure")
    })
}

/// Formats the losses: `12 (ring_full), 3 (throttled)`.
pub(super) fn lost(profile: &Profile) -> Option<String> {
    let reasons: Vec<String> = (profile.lost.iter().filter(|lost| lost.1 > 0))
        .map(|(reason, number)| format!("{} ({reason})", count(*number)))
        .collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

/// Returns the title of a profile.
pub(super) fn title(profile: &Profile) -> String {
    match &*profile.kind.value.name {
        "cpu" => "CPU time".to_owned(),
        "off_cpu" => "Time off the CPU".to_owned(),
        name => clean(name, 64).into_owned(),
    }
}

fn draw(profile: &Profile, options: Options<'_>, subtitle: Option<String>) -> io::Result<String> {
    let folded = Folded::new(profile, folded::Options { root: options.root, annotated: true });
    let scale = Scale::of(profile);
    let lines = lines(&folded, &scale);
    let mut palette = PaletteMap::default();
    // The root frame. For names that are not in the palette, inferno chooses random colors.
    palette.insert("", Color { r: 190, g: 200, b: 214 });
    for name in folded.names() {
        palette.insert(&name.text, colour(name));
    }
    let mut narrowest = NARROWEST;
    loop {
        let mut settings = inferno_graph::Options::default();
        settings.title = options.title(profile);
        settings.subtitle.clone_from(&subtitle);
        settings.count_name = scale.unit.to_owned();
        settings.factor = scale.factor;
        settings.name_type = String::new();
        settings.min_width = narrowest;
        settings.frame_height = 17;
        settings.bgcolors = Some(BackgroundColor::Flat(Color { r: 255, g: 255, b: 255 }));
        settings.palette_map = Some(&mut palette);
        settings.text_truncate_direction = TextTruncateDirection::Right;
        settings.direction = match options.shape {
            Shape::Flame => Direction::Straight,
            Shape::Icicle => Direction::Inverted,
        };
        // This option has two effects in inferno: it reads lines in reverse order, and does not require sorted input. Sorted as text,
        // `main` would occur twice next to a `main.func1`.
        settings.flame_chart = true;
        let mut svg = Vec::new();
        inferno_graph::from_lines(&mut settings, lines.iter().map(String::as_str), &mut svg)?;
        if svg.len() <= SIZE || narrowest >= 2.0 {
            let svg =
                String::from_utf8(svg).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            return Ok(mend(&svg));
        }
        narrowest *= 3.0;
    }
}

/// Returns the lines in the order for inferno: the last first.
fn lines(folded: &Folded, scale: &Scale) -> Vec<String> {
    let mut lines = Vec::new();
    for (stack, value) in folded.stacks().rev() {
        let mut text = String::new();
        folded::line(stack.take(DEPTH), value / scale.divisor, &mut text);
        lines.push(text);
    }
    lines
}

/// Scale of displayed values.
struct Scale {
    /// Divisor applied first. It keeps the sum below 2⁵³, exact in scripts.
    divisor: u64,
    /// Factor applied afterwards.
    factor: f64,
    unit: &'static str,
}

impl Scale {
    fn of(profile: &Profile) -> Self {
        let total: u128 = profile.samples.iter().map(|sample| u128::from(sample.value)).sum();
        let divisor = u64::try_from(total >> 53).unwrap_or(u64::MAX).saturating_add(1);
        let (factor, unit) = match profile.kind.value.unit {
            Unit::Nanoseconds if total >= 100_000_000 => (1e-6, "ms"),
            Unit::Nanoseconds => (1e-3, "\u{b5}s"),
            Unit::Count => (1.0, "events"),
        };
        Self { divisor, factor: factor * divisor as f64, unit }
    }
}

/// Returns the color of a name: a hue for the kind of code, and a shade derived from the name.
fn colour(name: &Name) -> Color {
    let mut hasher = FxHasher::default();
    hasher.write(name.text.as_bytes());
    // Two numbers from 0 to 1: the upper bits of a product have the better distribution.
    let hash = hasher.finish();
    let part = |shift: u32| ((hash >> shift) & 0xff) as f64 / 255.0;
    let (a, b) = (part(56), part(48));
    // For red, green and blue: the base value, and the weights of the two numbers.
    let shades: [(u8, u8, u8); 3] = match name.origin {
        // Root frames.
        None => [(150, 20, 0), (172, 20, 0), (200, 20, 0)],
        Some(Origin::Kernel) => [(238, 12, 0), (140, 30, 10), (50, 0, 30)],
        Some(Origin::Jit) => [(110, 30, 10), (196, 30, 0), (100, 20, 20)],
        Some(Origin::Native) if name.text.ends_with("_[i]") => [(90, 20, 20), (195, 25, 0), (200, 0, 25)],
        Some(Origin::Native) if name.text.contains("::") => [(224, 20, 0), (196, 30, 0), (70, 0, 40)],
        Some(Origin::Native) => [(228, 20, 0), (96, 35, 15), (84, 0, 30)],
        Some(Origin::Unknown) => [(176, 20, 0); 3],
    };
    let shade = |(base, of_a, of_b)| f64::from(base) + a * f64::from(of_a) + b * f64::from(of_b);
    let [r, g, b] = shades.map(|range| shade(range) as u8);
    Color { r, g, b }
}

/// Replacements in inferno's script, so that a link to a zoomed frame works. The frame is also found within HTML, where the colon is part
/// of the attribute name and not a namespace. A frame that no longer exists is ignored. A plus is decoded as a space, as forms encode it. A
/// search term that is not a regular expression, such as `operator(`, is searched literally.
const MENDED: [(&str, &str); 3] = [
    (
        "zoom(find_group(document.querySelector('[*|x=\"' + params.x + '\"][y=\"' + params.y + '\"]')));",
        "{ var at = '=\"' + parseInt(params.x) + '\"][y=\"' + parseInt(params.y) + '\"]'; \
         var found = document.querySelector('#frames rect[*|x' + at + ', #frames rect[fg\\\\:x' + at); \
         if (found) zoom(find_group(found)); }",
    ),
    (
        "window.location.search.substr(1).split('&')",
        "window.location.search.substr(1).replace(/[+]/g, '%20').split('&')",
    ),
    (
        "var re = new RegExp(term);",
        "var re; try { re = new RegExp(term); } \
         catch (error) { re = new RegExp(term.replace(/[^A-Za-z0-9_ ]/g, '\\\\$&')); }",
    ),
];

fn mend(svg: &str) -> String {
    MENDED.iter().fold(svg.to_owned(), |svg, (from, to)| svg.replacen(from, to, 1))
}

const SVG: &str = "<svg ";
const ONLOAD: &str = " onload=\"init(evt)\"";
const SCRIPT: &str = "<script type=\"text/ecmascript\">";

/// Converts `svg` to markup for a page that allows scripts only with `nonce`: removes the prologue, and replaces the event handler by a
/// script. All untrusted input is escaped and follows the script.
fn embed(svg: &str, nonce: &str) -> Option<String> {
    let svg = svg.get(svg.find(SVG)?..)?;
    let (head, rest) = svg.split_once(ONLOAD)?;
    let (middle, rest) = rest.split_once(SCRIPT)?;
    let script = format!("<script type=\"text/ecmascript\" nonce=\"{nonce}\">");
    let start = format!("<script nonce=\"{nonce}\">init()</script>");
    Some([head, middle, &script, rest, &start].concat())
}

/// Renders an image that consists of a sentence.
fn sentence(title: &str, text: &str) -> String {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"90\" viewBox=\"0 0 1200 90\">\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
         <g font-family=\"monospace\" text-anchor=\"middle\"><text x=\"600\" y=\"32\" font-size=\"17\">{}</text>\
         <text x=\"600\" y=\"62\" font-size=\"12\" fill=\"#555\">{}</text></g></svg>\n",
        escape(title),
        escape(text)
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::profile::sample_profiles::{Builder, any_profile, example, hostile, native, task};
    use crate::profile::{Mode, Selection};

    /// Returns start and width in values, and the text of each frame. Panics if the markup is not that of inferno.
    fn frames(svg: &str) -> Vec<(u64, u64, String)> {
        let frame = |text: &str| {
            let (title, rest) = text.split_once("</title>").unwrap();
            let rect = rest.strip_prefix("<rect ").unwrap().split_once("/>").unwrap().0;
            let value = |key: &str| rect.split_once(key)?.1.split_once('"')?.0.parse().ok();
            assert!(!title.contains(['<', '>']), "{title}");
            (value("fg:x=\"").unwrap(), value("fg:w=\"").unwrap(), title.to_owned())
        };
        svg.split("<title>").skip(1).map(frame).collect()
    }

    fn draw(profile: &Profile) -> String {
        standalone(profile, Options::default(), "nothing").unwrap()
    }

    #[test]
    fn the_picture_shows_what_the_profile_says() {
        let svg = draw(&example());
        let frames = frames(&svg);
        let all = frames.iter().find(|frame| frame.2.starts_with("all (")).unwrap();
        assert_eq!((all.0, all.1), (0, example().total()));
        assert!(
            frames.iter().any(|frame| frame.2.starts_with("do_syscall_64 (2,842 ms, 15.47%)")),
            "{frames:?}"
        );
        assert!(svg.contains("CPU time") && svg.contains("2025-11-21 08:52:06 UTC"));
        assert!(svg.contains("lost: 12 (ring_full), 3 (throttled)"));
    }

    #[test]
    fn the_same_profile_is_the_same_picture() {
        assert_eq!(draw(&example()), draw(&example()));
    }

    #[test]
    fn colours_tell_whose_code_it_is() {
        let of = |text: &str, origin| colour(&Name { text: text.to_owned(), origin });
        let (kernel, jit) = (of("a_[k]", Some(Origin::Kernel)), of("a_[j]", Some(Origin::Jit)));
        assert!(kernel.r > kernel.g && kernel.g > kernel.b, "{kernel:?}");
        assert!(jit.g > jit.r && jit.g > jit.b, "{jit:?}");
        assert_ne!(of("one", Some(Origin::Native)), of("another", Some(Origin::Native)));
    }

    #[test]
    fn a_function_beside_another_that_begins_like_it_stands_once() {
        let mut builder = Builder::default();
        let program = task(1, "a", "/");
        let at = |name| native("/bin/a", name);
        builder
            .add(&program, Mode::User, 10, &[at("main")])
            .add(&program, Mode::User, 10, &[at("main::f"), at("x")])
            .add(&program, Mode::User, 10, &[at("main"), at("y")]);
        let frames = frames(&draw(&builder.0));
        assert_eq!(frames.iter().filter(|frame| frame.2.starts_with("main (")).count(), 1, "{frames:?}");
    }

    #[test]
    fn an_empty_profile_is_a_sentence_and_no_error() {
        let empty = example().select(&Selection { pid: Some(1), ..Selection::default() });
        let text = nothing(&empty, 5);
        let svg = standalone(&empty, Options::default(), &text).unwrap();
        assert!(
            svg.contains("no sample in 1\u{a0}min 0\u{a0}s matches the selection; without it there are 5"),
            "{svg}"
        );
        assert!(embedded(&empty, Options::default(), "00").unwrap().is_none());
        assert!(nothing(&empty, 0).contains("all were lost, 12 (ring_full), 3 (throttled)"));
        assert_eq!(
            nothing(&Profile::default(), 0),
            "no samples so far: no sampled task ran, or sampling has just started"
        );
    }

    #[test]
    fn hostile_names_are_text_in_the_picture() {
        let svg = draw(&hostile());
        assert_eq!((svg.matches("<script").count(), svg.matches("</script").count()), (1, 1));
        assert!(svg.len() < 200_000, "{}", svg.len());
        assert!(!frames(&svg).is_empty());
    }

    #[test]
    fn what_is_embedded_has_no_handler_and_only_scripts_with_the_nonce() {
        let markup = embedded(&hostile(), Options::default(), "c0ffee").unwrap().unwrap();
        let markup = markup.as_str();
        assert!(markup.starts_with("<svg "));
        assert_eq!(markup.matches("<script").count(), 2);
        assert_eq!(markup.matches(" nonce=\"c0ffee\">").count(), 2);
        assert!(!markup.contains("onload="));
    }

    #[test]
    fn the_script_is_mended() {
        let svg = draw(&example());
        for (from, to) in MENDED {
            assert!(!svg.contains(from) && svg.contains(to), "inferno's script has changed: {from}");
        }
    }

    #[test]
    fn a_picture_of_many_stacks_stays_small() {
        let mut builder = Builder::default();
        let program = task(1, "a", "/");
        let names: Vec<String> = (0..60).map(|n| format!("function_{n}")).collect();
        for (n, name) in names.iter().enumerate() {
            let inner = names.iter().skip(n).map(|name| native("/bin/a", name));
            let stack: Vec<_> = [native("/bin/a", name)].into_iter().chain(inner).collect();
            builder.add(&program, Mode::User, 1 + n as u64 * 1000, &stack);
        }
        let svg = draw(&builder.0);
        assert!(svg.len() < SIZE && svg.contains("function_59") && !svg.contains("function_0 "));
    }

    #[test]
    fn a_total_beyond_what_scripts_can_count_is_drawn() {
        let mut profile = example();
        profile.samples.iter_mut().for_each(|sample| sample.value = u64::MAX);
        assert!(!frames(&draw(&profile)).is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_whole_width_is_the_total(profile in any_profile()) {
            let svg = draw(&profile);
            let all = frames(&svg).into_iter().find(|frame| frame.2.starts_with("all ("));
            prop_assert_eq!(all.map_or(0, |all| all.1), profile.total());
        }
    }
}
