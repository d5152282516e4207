//! Parsing of unsigned numbers in texts.

/// Parses a number that consists of digits only. `None` for any other text, `Some(None)` for a number that exceeds 64 bits.
pub(crate) fn digits(text: &str, radix: u32) -> Option<Option<u64>> {
    // `from_str_radix` would accept a sign.
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u64::from_str_radix(text, radix).ok())
}

/// Parses a number in C notation (`kstrtoull` with base 0): `0x` for hexadecimal, `0` for octal. Returns the same as [`digits`].
pub(super) fn c_number(text: &str) -> Option<Option<u64>> {
    match hexadecimal(text) {
        Some(hex) => digits(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => digits(text, 8),
        None => digits(text, 10),
    }
}

/// Returns the text after `0x` or `0X`.
pub(super) fn hexadecimal(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}
