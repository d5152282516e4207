//! Numbers with units, and headings, in the report of a check.

use std::io::{self, Write};

/// Formats a number of bytes: `1.5 MiB`, `64 MiB`.
pub(super) fn bytes(number: u64) -> String {
    let (unit, size) = if number < 1 << 20 { ("KiB", 1 << 10) } else { ("MiB", 1 << 20) };
    match number % size {
        _ if number < 1 << 10 => format!("{number} bytes"),
        0 => format!("{} {unit}", number / size),
        _ => format!("{:.1} {unit}", number as f64 / size as f64),
    }
}

/// Formats a count: `no warnings`, `1 warning`, `2 warnings`.
pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        more => format!("{more} {what}s"),
    }
}

/// Writes a heading, unless there are no rows below it.
pub(super) fn heading<T>(out: &mut impl Write, rows: &[T], text: &str) -> io::Result<()> {
    if rows.is_empty() { Ok(()) } else { writeln!(out, "\n{text}:") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_the_unit_that_fits() {
        assert_eq!(bytes(4096), "4 KiB");
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(3 << 19), "1.5 MiB");
        assert_eq!(bytes(64 << 20), "64 MiB");
    }
}
