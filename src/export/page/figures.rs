//! Human-readable numbers.

use std::time::Duration;

/// Formats an integer as `20 004`, with narrow non-breaking spaces.
pub(crate) fn count(number: u64) -> String {
    grouped(&number.to_string(), '\u{202f}')
}

/// Inserts `separator` between groups of three digits.
pub(crate) fn grouped(digits: &str, separator: char) -> String {
    let mut grouped = String::with_capacity(digits.len() * 2);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats a number of bytes as `22.4 MiB`.
pub(crate) fn bytes(number: u64) -> String {
    let mut amount = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1024.0 {
            return format!("{amount:.*}\u{a0}{unit}", if unit == "B" { 0 } else { 1 });
        }
        amount /= 1024.0;
    }
    format!("{amount:.1}\u{a0}TiB")
}

/// Formats a duration with its two largest relevant units: `3.4 ms`, `12.0 s`, `2 d 4 h`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let pair = |large, size: u64, small, part: u64| {
        format!("{}\u{a0}{large} {}\u{a0}{small}", seconds / size, seconds % size / part)
    };
    match seconds {
        0 if duration.subsec_millis() == 0 => format!("{}\u{a0}\u{b5}s", duration.subsec_micros()),
        0 => format!("{:.1}\u{a0}ms", duration.as_secs_f64() * 1e3),
        1..60 => format!("{:.1}\u{a0}s", duration.as_secs_f64()),
        60..3600 => pair("min", 60, "s", 1),
        3600..86_400 => pair("h", 3600, "min", 60),
        _ => pair("d", 86_400, "h", 3600),
    }
}

/// Formats a percentage as `0.44 %`.
pub(crate) fn percent(number: f64) -> String {
    format!("{number:.*}\u{a0}%", if number < 10.0 { 2 } else { 0 })
}

/// Replaces non-breaking spaces with ordinary spaces.
pub(crate) fn plain(text: &str) -> String {
    text.replace(['\u{a0}', '\u{202f}'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(count(u64::MAX).chars().filter(char::is_ascii_digit).count(), 20);
        assert_eq!(bytes(512), "512\u{a0}B");
        assert_eq!(bytes(23_500_000), "22.4\u{a0}MiB");
        assert_eq!(bytes(u64::MAX), "16777216.0\u{a0}TiB");
        assert_eq!(percent(0.444), "0.44\u{a0}%");
        assert_eq!(percent(99.6), "100\u{a0}%");
    }

    #[test]
    fn durations_have_the_units_that_matter() {
        let table = [
            (17, "17\u{a0}\u{b5}s"),
            (3_400, "3.4\u{a0}ms"),
            (12_000_000, "12.0\u{a0}s"),
            (125_000_000, "2\u{a0}min 5\u{a0}s"),
            (7_260_000_000, "2\u{a0}h 1\u{a0}min"),
            (187_200_000_000, "2\u{a0}d 4\u{a0}h"),
        ];
        for (microseconds, text) in table {
            assert_eq!(duration(Duration::from_micros(microseconds)), text);
        }
    }
}
