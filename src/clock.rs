//! Time as a dependency: code that needs the current time receives a [`Clock`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};

/// A time of the wall clock, in milliseconds since the Unix epoch. Formats as `2026-11-21T08:52:06Z` (RFC 3339, also in JSON), and with
/// `{:#}` as `2026-11-21 08:52:06 UTC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Returns the seconds since the Unix epoch.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// Parses a time of RFC 3339 since the Unix epoch: `2026-11-21T08:52:06.25Z`, `2026-11-21T09:52:06+01:00`. Fractions of a millisecond are
    /// ignored. A space is accepted instead of a plus sign, because queries of URLs contain a space for it. Returns `None` for another text.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = text.split_once(['T', 't', ' '])?;
        let at = rest.find(['Z', 'z', '+', '-', ' '])?;
        let (time, zone) = rest.split_at(at);
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let days = days_since_epoch(year, month, day)?;
        // A leap second is the first second of the next minute.
        if hour > 23 || minute > 59 || second > 60 || fraction.is_empty() {
            return None;
        }
        let mut milliseconds = fraction.bytes().all(|digit| digit.is_ascii_digit()).then_some(0)?;
        for (digit, unit) in fraction.bytes().zip([100, 10, 1]) {
            milliseconds += u64::from(digit - b'0') * unit;
        }
        let local = ((days * 24 + hour) * 60 + minute) * 60 + second;
        let utc = match zone.split_at_checked(1)? {
            ("Z" | "z", "") => local,
            (sign @ ("+" | " " | "-"), offset) => {
                let [hours, minutes] = numbers(offset, ':', [2, 2])?;
                let offset = (hours <= 23 && minutes <= 59).then_some((hours * 60 + minutes) * 60)?;
                if sign == "-" { local + offset } else { local.checked_sub(offset)? }
            }
            _ => return None,
        };
        Some(Self(utc * 1000 + milliseconds))
    }
}

/// Parses numbers of fixed lengths with a separator between them.
fn numbers<const N: usize>(text: &str, separator: char, lengths: [usize; N]) -> Option<[u64; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(separator);
    for (number, length) in numbers.iter_mut().zip(lengths) {
        let part = parts.next().filter(|part| part.len() == length)?;
        *number = part.bytes().all(|digit| digit.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// Returns the days from the Unix epoch to a Gregorian date: the inverse of [`civil`]. `None` for an earlier or invalid date.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year_from_march = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month_from_march + 2) / 5 + day - 1;
    let days = (era * 146_097 + day_of_era).checked_sub(EPOCH)?;
    // The last day of a short month plus one is a date of the next month.
    (civil(days) == (year, month, day)).then_some(days)
}

/// Days from 1 March of year 0 to the Unix epoch.
const EPOCH: u64 = 719_468;

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (year, month, day) = civil(seconds / 86_400);
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let (between, zone) = if f.alternate() { (" ", " UTC") } else { ("T", "Z") };
        write!(f, "{year:04}-{month:02}-{day:02}{between}{hour:02}:{minute:02}:{second:02}{zone}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Converts a day since the Unix epoch to a Gregorian date. The calculation uses years that begin in March: the leap day is then the last
/// day of the year, and month lengths repeat every 153 days.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (400 * era + year_of_era + u64::from(month <= 2), month, day)
}

/// Serialization of a [`Duration`] as a number of seconds.
pub mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    /// Serializes a duration. For `#[serde(with = "…")]`.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(duration.as_secs_f64())
    }

    /// Deserializes a duration. For `#[serde(with = "…")]`.
    ///
    /// # Errors
    /// If the value is not a number, negative, or too large.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

/// A time of the monotonic clock, relative to a fixed point before the start of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Monotonic(pub Duration);

impl Monotonic {
    /// Returns the time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time `ago` before this one; zero at the earliest.
    pub fn before(self, ago: Duration) -> Self {
        Self(self.0.saturating_sub(ago))
    }

    /// Returns the time `later` after this one.
    pub fn after(self, later: Duration) -> Self {
        Self(self.0.saturating_add(later))
    }
}

/// Source of time. Cheap to clone. Clones of a manual clock share their time.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System { start: Instant },
    Manual(Arc<Manual>),
}

/// Times of a manual clock, in milliseconds.
#[derive(Debug, Default)]
struct Manual {
    /// Monotonic time.
    monotonic: AtomicU64,
    /// Wall clock time.
    wall: AtomicU64,
    /// Total suspended time.
    suspended: AtomicU64,
}

impl Clock {
    /// Creates a clock that reads the system clocks.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clocks")]
    pub fn system() -> Self {
        Self(Source::System { start: Instant::now() })
    }

    /// Creates a clock that only moves with [`advance`](Self::advance). Its monotonic and wall times start at `unix`.
    pub fn manual(unix: Timestamp) -> Self {
        let (monotonic, wall) = (AtomicU64::new(unix.0), AtomicU64::new(unix.0));
        Self(Source::Manual(Arc::new(Manual { monotonic, wall, suspended: AtomicU64::new(0) })))
    }

    /// Returns the wall clock time.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the system clocks")]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System { .. } => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
            }
            Source::Manual(manual) => Timestamp(manual.wall.load(Ordering::Relaxed)),
        }
    }

    /// Returns the monotonic time.
    pub fn monotonic(&self) -> Monotonic {
        match &self.0 {
            Source::System { start } => Monotonic(start.elapsed()),
            Source::Manual(manual) => {
                Monotonic(Duration::from_millis(manual.monotonic.load(Ordering::Relaxed)))
            }
        }
    }

    /// Returns the time of the kernel's `CLOCK_MONOTONIC` in nanoseconds, which is comparable with the times of records.
    pub fn kernel(&self) -> u64 {
        match &self.0 {
            Source::System { .. } => {
                let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
                now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
            }
            Source::Manual(manual) => manual.monotonic.load(Ordering::Relaxed) * 1_000_000,
        }
    }

    /// Returns how long the machine was suspended since boot. The monotonic clock stops during a suspension.
    pub fn suspended(&self) -> Duration {
        match &self.0 {
            Source::System { .. } => {
                let read = |clock| {
                    let now = rustix::time::clock_gettime(clock);
                    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
                };
                // Read first, so that the time between the two calls does not count as suspension.
                let boot = read(rustix::time::ClockId::Boottime);
                boot.saturating_sub(read(rustix::time::ClockId::Monotonic))
            }
            Source::Manual(manual) => Duration::from_millis(manual.suspended.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock forward. Does nothing to the system clock.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(manual) = &self.0 {
            manual.monotonic.fetch_add(milliseconds(by), Ordering::Relaxed);
            manual.wall.fetch_add(milliseconds(by), Ordering::Relaxed);
        }
    }

    /// Simulates a suspension of this length. Does nothing to the system clock.
    pub fn suspend(&self, by: Duration) {
        if let Source::Manual(manual) = &self.0 {
            manual.suspended.fetch_add(milliseconds(by), Ordering::Relaxed);
            manual.wall.fetch_add(milliseconds(by), Ordering::Relaxed);
        }
    }

    /// Sets the wall clock time of a manual clock.
    pub fn set_wall(&self, to: Timestamp) {
        if let Source::Manual(manual) = &self.0 {
            manual.wall.store(to.0, Ordering::Relaxed);
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A rate limit (token bucket): a burst, and an amount per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    burst: u64,
    amount: u64,
    period: Duration,
    left: u64,
    /// Time of the last refill.
    at: Monotonic,
}

impl Allowance {
    /// Allows `burst` at once, and `amount` per `period`. Unused amounts accumulate up to `burst`.
    pub fn new(burst: u64, amount: u64, period: Duration, now: Monotonic) -> Self {
        Self { burst, amount, period, left: burst, at: now }
    }

    /// Returns the amount that may be used now.
    pub fn left(&mut self, now: Monotonic) -> u64 {
        let earned = now.since(self.at).as_nanos() * u128::from(self.amount) / self.period.as_nanos().max(1);
        // The time is only updated after a refill, so that fractions are not lost.
        if earned > 0 {
            let earned = u64::try_from(earned).unwrap_or(u64::MAX);
            (self.left, self.at) = (self.left.saturating_add(earned).min(self.burst), now);
        }
        self.left
    }

    /// Uses an amount.
    pub fn spend(&mut self, amount: u64) {
        self.left = self.left.saturating_sub(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spent_comes_back_with_time_and_never_exceeds_the_burst() {
        let moment = |milliseconds| Monotonic(Duration::from_millis(milliseconds));
        let mut allowance = Allowance::new(1000, 100, Duration::from_secs(1), moment(0));
        allowance.spend(1000);
        assert_eq!(allowance.left(moment(0)), 0);
        for milliseconds in 1..=1000 {
            allowance.left(moment(milliseconds));
        }
        assert_eq!(allowance.left(moment(1000)), 100);
        assert_eq!(allowance.left(moment(1_000_000)), 1000);
    }

    #[test]
    fn clones_of_a_manual_clock_move_together() {
        let clock = Clock::manual(Timestamp(5_000));
        let other = clock.clone();
        let before = other.monotonic();
        clock.advance(Duration::from_millis(250));
        assert_eq!(other.now(), Timestamp(5_250));
        assert_eq!(other.monotonic().since(before), Duration::from_millis(250));
        assert_eq!(before.since(other.monotonic()), Duration::ZERO);
    }

    #[test]
    fn neither_a_suspension_nor_a_step_on_the_wall_moves_the_monotonic_clock() {
        let clock = Clock::manual(Timestamp(5_000));
        let before = (clock.monotonic(), clock.kernel());
        clock.suspend(Duration::from_secs(3));
        assert_eq!((clock.now(), clock.suspended()), (Timestamp(8_000), Duration::from_secs(3)));
        clock.set_wall(Timestamp(1_000));
        assert_eq!((clock.now(), clock.suspended()), (Timestamp(1_000), Duration::from_secs(3)));
        assert_eq!((clock.monotonic(), clock.kernel()), before);
    }

    #[test]
    fn moments_are_printed_in_utc() {
        let table = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_735_689_599_000, "2024-12-31T23:59:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ];
        for (milliseconds, text) in table {
            assert_eq!(Timestamp(milliseconds).to_string(), text);
        }
        assert_eq!(format!("{:#}", Timestamp(0)), "1970-01-01 00:00:00 UTC");
        assert!(!Timestamp(u64::MAX).to_string().is_empty());
    }

    #[test]
    fn times_of_rfc_3339_are_read_in_any_zone() {
        for milliseconds in [0, 951_782_399_000, 951_868_800_000, 1_735_689_599_000, 4_107_542_400_000] {
            let time = Timestamp(milliseconds);
            assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        }
        let at = |text| Timestamp::parse(text).map(|time| time.0);
        let second = 1_735_689_599_000;
        for (text, milliseconds) in [
            ("2024-12-31T23:59:59.25Z", second + 250),
            ("2024-12-31 23:59:59.123456789z", second + 123),
            ("2025-01-01T05:29:59+05:30", second),
            ("2025-01-01T05:29:59 05:30", second),
            ("2024-12-31T18:59:59-05:00", second),
            ("2024-12-31T23:59:60Z", second + 1000),
        ] {
            assert_eq!(at(text), Some(milliseconds), "{text}");
        }
        for text in [
            "",
            "2024-12-31",
            "2024-12-31T23:59:59",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-00-01T00:00:00Z",
            "2024-12-31T24:00:00Z",
            "2024-12-31T23:60:00Z",
            "24-12-31T00:00:00Z",
            "2024-12-31T1:00:00Z",
            "1969-12-31T23:59:59Z",
            "1970-01-01T00:00:00+01:00",
            "2024-12-31T23:59:59.Z",
            "2024-12-31T23:59:59.xZ",
            "2024-12-31T23:59:59Zé",
            "2024-12-31T23:59:59Z05:30",
            "2024-12-31T23:59:59é",
            "99999-12-31T23:59:59Z",
            "2024-12-31T23:59:59+24:00",
            "+024-12-31T23:59:59Z",
        ] {
            assert_eq!(at(text), None, "{text}");
        }
    }
}
