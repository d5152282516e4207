//! Numbers without a sign, as they are written in texts.

/// A number of digits alone: `None` for another text, `Some(None)` for one that does not fit 64 bits.
pub(crate) fn digits(text: &str, radix: u32) -> Option<Option<u64>> {
    // `from_str_radix` would take a sign.
    let is_number = !text.is_empty() && text.chars().all(|c| c.is_digit(radix));
    is_number.then(|| u64::from_str_radix(text, radix).ok())
}

/// As C has it (`kstrtoull` with base 0): `0x` for hexadecimal, `0` for octal. As [`digits`].
pub(super) fn c_number(text: &str) -> Option<Option<u64>> {
    match hexadecimal(text) {
        Some(hex) => digits(hex, 16),
        None if text.len() > 1 && text.starts_with('0') => digits(text, 8),
        None => digits(text, 10),
    }
}

/// What stands behind `0x` or `0X`.
pub(super) fn hexadecimal(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}
