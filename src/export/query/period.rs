//! Ranges of the past: `from=` and `to=`, or `at=` and `for=`.

use std::time::Duration;

use super::{Given, shown};
use crate::clock::Timestamp;
use crate::profile::TimeRange;

/// The first number of seconds that is more likely a number of milliseconds: the year 5138.
const FUTURE: u64 = 100_000_000_000;

/// Maximum length of a relative time or a duration.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// A point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum Moment {
    At(Timestamp),
    /// This long before the request.
    Ago(Duration),
}

/// A range of the past, as it was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Period {
    pub(super) from: Option<Moment>,
    pub(super) to: Option<Moment>,
    pub(super) at: Option<Moment>,
    pub(super) length: Option<Duration>,
}

impl Period {
    /// Returns the range at the time of the request; `None` if no range was requested.
    ///
    /// # Errors
    /// Returns a sentence if the range is empty or begins in the future.
    pub fn range(&self, now: Timestamp) -> Result<Option<TimeRange>, String> {
        let (name, from, to) = match *self {
            Self { from: Some(from), to, .. } => ("from", from, to.unwrap_or(Moment::Ago(Duration::ZERO))),
            Self { at: Some(at), length: Some(length), .. } => ("at", at, at.after(length)),
            _ => return Ok(None),
        };
        let range = TimeRange { from: from.time(now), to: to.time(now) };
        if range.from >= now {
            return Err(format!("{name}: {} is not in the past; seconds= samples from now on", range.from));
        }
        if range.to <= range.from {
            return Err(format!("to: the range ends at {}, but it begins at {}", range.to, range.from));
        }
        Ok(Some(range))
    }

    /// Checks which keys were given together.
    pub(super) fn check(&self, seconds: Option<u32>) -> Result<(), String> {
        let Self { from, to, at, length } = self;
        let any = from.is_some() || to.is_some() || at.is_some() || length.is_some();
        let sentence = match () {
            () if any && seconds.is_some() => {
                "seconds samples from now on; from, to, at and for select the past: use only one of the two"
            }
            () if at.is_some() && (from.is_some() || to.is_some()) => {
                "at and for select a range, as from and to do: use only one of the two"
            }
            () if at.is_some() && length.is_none() => "at needs the length of the range, for example for=10s",
            () if length.is_some() && at.is_none() => "for needs the begin of the range, for example at=-5m",
            () if to.is_some() && from.is_none() => "to needs the begin of the range, for example from=-5m",
            () => return Ok(()),
        };
        Err(sentence.to_owned())
    }

    /// Returns the given keys with their values.
    pub(in crate::export) fn pairs(&self) -> [(&'static str, Option<String>); 4] {
        let moment = |moment: Option<Moment>| moment.map(Moment::written);
        [
            ("from", moment(self.from)),
            ("to", moment(self.to)),
            ("at", moment(self.at)),
            ("for", self.length.map(|length| seconds(length) + "s")),
        ]
    }
}

impl Moment {
    pub(in crate::export) fn time(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => Timestamp(now.0.saturating_sub(milliseconds(ago))),
        }
    }

    fn after(self, length: Duration) -> Self {
        match self {
            Self::At(time) => Self::At(Timestamp(time.0.saturating_add(milliseconds(length)))),
            Self::Ago(ago) => Self::Ago(ago.saturating_sub(length)),
        }
    }

    fn written(self) -> String {
        match self {
            Self::At(time) => seconds(Duration::from_millis(time.0)),
            Self::Ago(ago) => format!("-{}s", seconds(ago)),
        }
    }
}

impl Given<'_> {
    /// Parses Unix seconds, an RFC 3339 time, or a negative duration before now: `1764180000.25`, `2026-11-26T18:00:00Z`, `-10m`.
    pub(in crate::export) fn moment(self) -> Result<Option<Moment>, String> {
        let Self(name, value) = self;
        let moment = match value.strip_prefix('-') {
            _ if value == "now" => Some(Moment::Ago(Duration::ZERO)),
            Some(ago) => duration(ago).map(Moment::Ago),
            None if value.contains(':') => Timestamp::parse(value).map(Moment::At),
            None => match decimal(value) {
                Some(time) if time.as_secs() >= FUTURE => {
                    return Err(format!("{name}: {:?} is too large: the unit is seconds", shown(value)));
                }
                time => time.map(|time| Moment::At(Timestamp(milliseconds(time)))),
            },
        };
        moment.map(Some).ok_or_else(|| {
            format!(
                "{name}: {:?} is neither a time in Unix seconds or RFC 3339 nor a time before now such as -10m",
                shown(value)
            )
        })
    }

    /// Parses the length of a range.
    pub(in crate::export) fn length(self) -> Result<Option<Duration>, String> {
        let Self(name, value) = self;
        let length = duration(value).filter(|length| length.as_millis() > 0);
        length
            .map(Some)
            .ok_or_else(|| format!("{name}: {:?} is not a duration such as 10s or 5m", shown(value)))
    }
}

/// Parses a duration: seconds, or a number with a unit.
fn duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, u32, u32); 4] = [("ms", 1, 1000), ("s", 1, 1), ("m", 60, 1), ("h", 3600, 1)];
    let unit =
        UNITS.into_iter().find_map(|(unit, times, part)| Some((text.strip_suffix(unit)?, times, part)));
    let (number, times, part) = unit.unwrap_or((text, 1, 1));
    let duration = decimal(number)?.checked_mul(times)? / part;
    (duration <= LONGEST).then_some(duration)
}

/// Parses a number of seconds with an optional fraction.
fn decimal(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    // Further digits are below a nanosecond.
    let nanoseconds = format!("{:0<9}", &fraction[..fraction.len().min(9)]);
    Some(Duration::new(whole.parse().ok()?, nanoseconds.parse().ok()?))
}

/// Formats seconds with as many decimals as they need.
fn seconds(duration: Duration) -> String {
    let text = format!("{}.{:03}", duration.as_secs(), duration.subsec_millis());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(in crate::export) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{PPROF, Query};
    use super::*;

    /// 2026-11-26T18:00:00Z.
    const NOW: Timestamp = Timestamp(1_795_716_000_000);

    fn range(text: &str) -> Result<Option<(i64, i64)>, String> {
        let query = Query::parse(text, PPROF)?;
        let relative = |time: Timestamp| time.0 as i64 - NOW.0 as i64;
        let range = query.period.range(NOW)?;
        Ok(range.map(|range| (relative(range.from), relative(range.to))))
    }

    #[test]
    fn a_range_of_the_past_is_read_in_every_form() {
        let table = [
            ("from=-10m", (-600_000, 0)),
            ("from=-90&to=-1.5", (-90_000, -1_500)),
            ("from=-1h&to=-250ms", (-3_600_000, -250)),
            ("from=-10s&to=now", (-10_000, 0)),
            ("from=1795715990.25&to=1795715991", (-9_750, -9_000)),
            ("from=2026-11-26T17:59:00Z&to=2026-11-26T17:59:01.5Z", (-60_000, -58_500)),
            ("from=2026-11-26T18:59:00%2B01:00", (-60_000, 0)),
            // A plus sign in a query is a space, and many clients do not escape it.
            ("from=2026-11-26T18:59:00+01:00", (-60_000, 0)),
            ("at=-5m&for=10s", (-300_000, -290_000)),
            ("at=1795715000&for=1m", (-1_000_000, -940_000)),
            // The part in the future is left out by the log.
            ("at=-5&for=20", (-5_000, 0)),
        ];
        for (text, expected) in table {
            assert_eq!(range(text), Ok(Some(expected)), "{text}");
        }
        for text in ["", "from=&to=&at=&for=", "seconds=3"] {
            assert_eq!(range(text), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_range_that_cannot_be_meant_is_refused_with_what_helps() {
        let neither = "is neither a time in Unix seconds or RFC 3339 nor a time before now such as -10m";
        let table = [
            (
                "from=-5m&seconds=3",
                "seconds samples from now on; from, to, at and for select the past: use only one of the two"
                    .to_owned(),
            ),
            (
                "from=-5m&at=-5m&for=1s",
                "at and for select a range, as from and to do: use only one of the two".into(),
            ),
            ("at=-5m", "at needs the length of the range, for example for=10s".into()),
            ("for=10s", "for needs the begin of the range, for example at=-5m".into()),
            ("to=-5m", "to needs the begin of the range, for example from=-5m".into()),
            (
                "from=-1m&to=-2m",
                "to: the range ends at 2026-11-26T17:58:00Z, but it begins at 2026-11-26T17:59:00Z".into(),
            ),
            (
                "from=1795716001",
                "from: 2026-11-26T18:00:01Z is not in the past; seconds= samples from now on".into(),
            ),
            ("from=1795716000000", "from: \"1795716000000\" is too large: the unit is seconds".into()),
            ("from=yesterday", format!("from: \"yesterday\" {neither}")),
            ("from=-", format!("from: \"-\" {neither}")),
            ("from=--5", format!("from: \"--5\" {neither}")),
            ("from=-9999999h", format!("from: \"-9999999h\" {neither}")),
            ("from=1e9", format!("from: \"1e9\" {neither}")),
            ("from=.5", format!("from: \".5\" {neither}")),
            ("from=NaN", format!("from: \"NaN\" {neither}")),
            ("from=2026-13-26T18:00:00Z", format!("from: \"2026-13-26T18:00:00Z\" {neither}")),
            ("at=-5m&for=0", "for: \"0\" is not a duration such as 10s or 5m".into()),
            ("at=-5m&for=-3s", "for: \"-3s\" is not a duration such as 10s or 5m".into()),
        ];
        for (text, sentence) in table {
            assert_eq!(range(text), Err(sentence), "{text}");
        }
        let digits = "9".repeat(400);
        assert!(range(&format!("from={digits}")).unwrap_err().len() < 200);
        assert!(range(&format!("from=0.{digits}")).is_ok());
    }

    proptest! {
        #[test]
        fn any_range_survives_a_link(from in 0u64..FUTURE * 1000, length in 1u64..86_400_000, ago in any::<bool>(), pair in any::<bool>()) {
            let moment = |time: u64| match ago {
                true => Moment::Ago(Duration::from_millis(time % 31_536_000_000)),
                false => Moment::At(Timestamp(time)),
            };
            let period = match pair {
                true => Period { from: Some(moment(from)), to: Some(moment(from + length)), ..Period::default() },
                false => Period {
                    at: Some(moment(from)),
                    length: Some(Duration::from_millis(length)),
                    ..Period::default()
                },
            };
            let query = Query { period, ..Query::default() };
            let link = query.link("", &[]);
            prop_assert_eq!(Query::parse(&link[1..], PPROF), Ok(query));
        }

        #[test]
        fn no_moment_is_too_strange(text in any::<String>()) {
            drop(Given("from", &text).moment());
            drop(Given("for", &text).length());
        }
    }
}
