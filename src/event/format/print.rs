//! `print fmt`: a `printf` format of the kernel and its arguments. Each argument describes how one field is printed.

use super::Field;
use super::expression::{self, Operand, part_end};
use super::show::{Part, Show};

/// Maximum number of arguments that are parsed. The kernel's longest list has about sixty.
const ARGUMENT_LIMIT: usize = 1024;

/// Sets how the fields are printed, as far as the text is understood. If a field occurs more than once, names take precedence, then the
/// first occurrence.
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

/// Splits the text at commas outside quotes and brackets.
pub(super) fn arguments(text: &str) -> impl Iterator<Item = &str> {
    let mut from = Some(0);
    let next = move || {
        let start = from?;
        let end = part_end(text, start, b",");
        from = (end < text.len()).then_some(end + 1);
        Some(text[start..end].trim())
    };
    std::iter::from_fn(next).take(ARGUMENT_LIMIT)
}

/// Returns how a format prints each of its arguments. `None` for decimal numbers, texts, widths and unsupported conversions.
fn conversions(format: &str) -> impl Iterator<Item = Option<Show>> {
    format
        .split('%')
        .skip(1)
        .scan(false, |escaped, directive| {
            // `%%` produces an empty piece, and the piece after it is text.
            let is_text = std::mem::take(escaped);
            *escaped = directive.is_empty() && !is_text;
            Some(if is_text || directive.is_empty() { Vec::new() } else { directive_of(directive) })
        })
        .flatten()
}

/// Parses the text after a `%`: one `None` for the width of each `*`, then the conversion.
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

/// Returns the field that an argument is about, and how it is printed.
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

/// Number of bits of the minor number in a `dev_t` (`MINORBITS`).
const MINOR_BITS: u32 = 20;

/// Returns the precedence of a print format. The highest applies; of equals, the first.
fn rank(show: &Show) -> u8 {
    match show {
        Show::Plain => 0,
        Show::Hex | Show::Char => 1,
        Show::Function | Show::Device | Show::Bytes | Show::Address | Show::Socket => 2,
        Show::Flags { .. } | Show::Symbols(_) => 3,
    }
}

/// Reports whether a print format applies to the values of a field. A format for numbers does not apply to a text.
fn can(field: &Field, show: &Show) -> bool {
    match show {
        Show::Flags { .. } | Show::Symbols(_) | Show::Char | Show::Device => field.is_number(),
        Show::Bytes | Show::Address | Show::Socket => !field.is_number() && !field.is_text(),
        Show::Plain | Show::Hex | Show::Function => !field.is_text(),
    }
}
