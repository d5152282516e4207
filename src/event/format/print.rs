//! `print fmt`: a format of the kernel's `printf` and its arguments. Each says how one field is written.

use super::Field;
use super::expression::{self, Operand, part_end};
use super::show::{Part, Show};

/// The most arguments that are looked at. The kernel's longest has some sixty.
const ARGUMENT_LIMIT: usize = 1024;

/// Tells fields how they are written, as far as the text is understood. Of several ways the first counts, and a way
/// with names before one without.
pub(super) fn apply(text: &str, fields: &mut [Field]) {
    let mut parts = arguments(text).map(expression::parse);
    let Some(Some(Operand::Text(format))) = parts.next() else { return };
    let arguments: Vec<_> = parts.collect();
    for (place, (conversion, argument)) in conversions(&format).zip(&arguments).enumerate() {
        let next = arguments.get(place + 1).and_then(Option::as_ref);
        let Some((name, show)) = argument.as_ref().and_then(|argument| way(conversion, argument, next))
        else {
            continue;
        };
        let field = fields.iter_mut().find(|field| &*field.name == name);
        if let Some(field) = field.filter(|field| rank(&show) > rank(&field.show) && can(field, &show)) {
            field.show = show;
        }
    }
}

/// The parts between the commas. Quotes and brackets are whole.
fn arguments(text: &str) -> impl Iterator<Item = &str> {
    let mut from = Some(0);
    let next = move || {
        let start = from?;
        let end = part_end(text, start, b",");
        from = (end < text.len()).then_some(end + 1);
        Some(text[start..end].trim())
    };
    std::iter::from_fn(next).take(ARGUMENT_LIMIT)
}

/// How a format shows the arguments that it takes: `None` is in decimal, as a text, as a width, or in a way that has no
/// meaning here.
fn conversions(format: &str) -> impl Iterator<Item = Option<Show>> {
    format
        .split('%')
        .skip(1)
        .scan(false, |escaped, directive| {
            // `%%` leaves an empty piece, and the piece behind that is text.
            let is_text = std::mem::take(escaped);
            *escaped = directive.is_empty() && !is_text;
            Some(if is_text || directive.is_empty() { Vec::new() } else { directive_of(directive) })
        })
        .flatten()
}

/// What stands behind a `%`: the conversion, after a width for each `*`.
fn directive_of(directive: &str) -> Vec<Option<Show>> {
    let end = directive.find(|c: char| c.is_ascii_alphabetic() && !"hlLqjzt".contains(c));
    let Some((flags, kind)) = end.map(|end| directive.split_at(end)) else { return Vec::new() };
    let conversion = match kind.as_bytes() {
        [b'p', b's' | b'S' | b'f' | b'F' | b'B', ..] => Some(Show::Function),
        [b'p', b'I', b'S', ..] => Some(Show::Socket),
        [b'p', b'I' | b'i' | b'M' | b'm', ..] => Some(Show::Address),
        [b'p', rest, ..] if rest.is_ascii_alphanumeric() && !b"xK".contains(rest) => None,
        [b'x' | b'X' | b'p', ..] => Some(Show::Hex),
        [b'c', ..] => Some(Show::Char),
        _ => None,
    };
    let widths = flags.matches('*').map(|_| None);
    widths.chain([conversion]).collect()
}

/// Which field an argument is about, and how it is written.
fn way<'t>(
    conversion: Option<Show>,
    argument: &Operand<'t>,
    next: Option<&Operand<'t>>,
) -> Option<(&'t str, Show)> {
    match *argument {
        Operand::Named(field, ref show) => Some((field, show.clone())),
        Operand::Field(field, Part { shift: MINOR_BITS, .. }) => {
            let minor = Part { shift: 0, mask: (1 << MINOR_BITS) - 1 };
            (next == Some(&Operand::Field(field, minor))).then_some((field, Show::Device))
        }
        Operand::Field(field, Part { shift: 0, mask }) if mask >= u64::from(u32::MAX) => {
            Some((field, conversion?))
        }
        _ => None,
    }
}

/// The bits of a `dev_t` that are the minor number (`MINORBITS`).
const MINOR_BITS: u32 = 20;

/// Which of two ways counts: the greater, of equals the first.
fn rank(show: &Show) -> u8 {
    match show {
        Show::Plain => 0,
        Show::Hex | Show::Char => 1,
        Show::Function | Show::Device | Show::Bytes | Show::Address | Show::Socket => 2,
        Show::Flags { .. } | Show::Symbols(_) => 3,
    }
}

/// Whether the values of a field can be written in a way. One for numbers says nothing about a text.
fn can(field: &Field, show: &Show) -> bool {
    match show {
        Show::Flags { .. } | Show::Symbols(_) | Show::Char | Show::Device => field.is_number(),
        Show::Bytes | Show::Address | Show::Socket => !field.is_number() && !field.is_text(),
        Show::Plain | Show::Hex | Show::Function => !field.is_text(),
    }
}
