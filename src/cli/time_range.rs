//! The option `--time` of commands that read recordings.

use std::ops::RangeInclusive;

/// Parses `START,STOP`, in seconds as perf prints them. Either can be omitted. Returns nanoseconds.
///
/// # Errors
/// If it is not a range of times.
pub(super) fn time_range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (start, stop) = text.split_once(',').ok_or("write START,STOP")?;
    let parse = |word: &str, otherwise| match word.trim() {
        "" => Ok(otherwise),
        word => nanoseconds(word).ok_or_else(|| format!("{word:?} is not a time in seconds")),
    };
    Ok(parse(start, 0)?..=parse(stop, u64::MAX)?)
}

/// Parses seconds with at most nine decimals.
fn nanoseconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok()?;
    let fraction: u64 = format!("{fraction:0<9}").parse().ok()?;
    whole.checked_mul(1_000_000_000)?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_exact_to_the_nanosecond() {
        assert_eq!(nanoseconds("16273.738558"), Some(16_273_738_558_000));
        assert_eq!((nanoseconds("2"), nanoseconds("0.000000001")), (Some(2_000_000_000), Some(1)));
        for text in ["", "-1", "1.0000000001", "1.x", "99999999999999"] {
            assert_eq!(nanoseconds(text), None, "{text}");
        }
    }

    #[test]
    fn a_range_may_have_no_begin_or_no_end() {
        assert_eq!(time_range("1,2.5"), Ok(1_000_000_000..=2_500_000_000));
        assert_eq!(time_range(",2"), Ok(0..=2_000_000_000));
        assert_eq!(time_range("1,"), Ok(1_000_000_000..=u64::MAX));
        assert_eq!(time_range("1"), Err("write START,STOP".into()));
        assert_eq!(time_range("1,soon"), Err("\"soon\" is not a time in seconds".into()));
    }
}
