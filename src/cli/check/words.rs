//! Numbers with units, headings and groups of rows, in the report of a check.

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

/// Rows that have the same key.
pub(super) struct Together<'a, T> {
    pub(super) first: &'a T,
    /// All rows, including the first.
    pub(super) all: Vec<&'a T>,
}

/// Groups rows by a key, in the order in which each key first occurs.
pub(super) fn together<'a, T, K: PartialEq>(
    rows: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> Vec<Together<'a, T>> {
    let mut groups: Vec<Together<'a, T>> = Vec::new();
    for row in rows {
        match groups.iter_mut().find(|group| key(group.first) == key(row)) {
            Some(group) => group.all.push(row),
            None => groups.push(Together { first: row, all: vec![row] }),
        }
    }
    groups
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
