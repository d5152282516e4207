//! Distributions by hour of the day (UTC), for figures that follow the time of day: nightly jobs and daily load are not unusual.

use super::robust::{Expected, Robust};
use super::sketch::Sketch;
use super::wire::{Reader, Writer};

/// Number of hours of a day.
const HOURS: usize = 24;

/// Length of an hour in milliseconds.
const HOUR: u64 = 3_600_000;

/// Part of the weight of earlier days that remains after another day.
const REMAINING: f64 = 0.5;

/// The quantile of the values of an hour above which a value is unusual: a job of six minutes of each day is usual in its hour.
const HIGH: f64 = 0.9;

/// The values of one figure by hour. Those of the current hour are separate: it is compared with the same hour of earlier days.
#[derive(Debug, Clone, Default)]
pub(super) struct Hours {
    /// The current hour, in hours since 1970.
    hour: u64,
    current: Sketch,
    earlier: [Sketch; HOURS],
}

/// Returns the hour of the day.
fn of_day(hour: u64) -> usize {
    usize::try_from(hour % HOURS as u64).unwrap_or(0)
}

impl Hours {
    /// Adds a value at a time in Unix milliseconds.
    pub(super) fn learn(&mut self, at: u64, value: f64) {
        let hour = at / HOUR;
        if hour != self.hour {
            let ended = std::mem::take(&mut self.current);
            let earlier = &mut self.earlier[of_day(self.hour)];
            if ended.weight() > 0.0 {
                earlier.age(REMAINING);
                earlier.merge(&ended);
            }
            self.hour = hour;
        }
        self.current.add(value);
    }

    /// Returns what a sample is compared with; `None` if there are too few samples of the same hour of earlier days.
    pub(super) fn expected(&self, robust: &Robust, at: u64) -> Option<Expected> {
        let sketch = &self.earlier[of_day(at / HOUR)];
        robust.expected(sketch, sketch.quantile(HIGH)? * (1.0 + robust.min_change))
    }

    /// Returns the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.current.bytes() + self.earlier.iter().map(Sketch::bytes).sum::<usize>()
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.number(self.hour);
        self.current.write(out);
        self.earlier.iter().for_each(|sketch| sketch.write(out));
    }

    /// Reads what [`write`](Self::write) has written; `None` for other bytes.
    pub(super) fn read(bytes: &mut Reader<'_>) -> Option<Self> {
        let (hour, current) = (bytes.number()?, Sketch::read(bytes)?);
        let mut hours = Self { hour, current, ..Self::default() };
        for sketch in &mut hours.earlier {
            *sketch = Sketch::read(bytes)?;
        }
        Some(hours)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anomaly::{Baseline, Change, Detector, Kind, Method, Quality, Sample};

    const STEP: u64 = 10_000;
    const DAY: u64 = 24 * HOUR;
    /// Midnight.
    const BEGIN: u64 = 20_000 * DAY;

    fn method(by_hour: bool) -> Method {
        Method::Robust(Robust { by_hour, ..Kind::Cpi.robust() })
    }

    /// Returns the times after the begin at which anomalies begin.
    fn alarms(method: Method, days: u64, value: impl Fn(u64) -> f64) -> Vec<u64> {
        let (mut detector, mut baseline) = (Detector::default(), Baseline::default());
        let mut judge = |at: u64| {
            // A small noise, so that there is a deviation.
            let value = value(at) * (1.0 + 0.01 * (at / STEP % 7) as f64);
            let sample =
                Sample { at: BEGIN + at, value: Some(value), usage: 1.0, quality: Quality::default() };
            let judgement = detector.judge(&method, Kind::rule(&method), &mut baseline, sample);
            matches!(judgement.change, Some(Change::Began(_))).then_some(at)
        };
        (STEP..days * DAY).step_by(STEP as usize).filter_map(&mut judge).collect()
    }

    /// A job of twenty minutes at 02:30 of each day doubles the figure.
    fn nightly(at: u64) -> f64 {
        let minute = at % DAY / 60_000;
        if (150..170).contains(&minute) { 2.0 } else { 1.0 }
    }

    #[test]
    fn a_job_at_the_same_time_of_each_day_is_an_anomaly_in_the_first_night_only() {
        let usual = alarms(method(false), 5, nightly);
        assert_eq!(usual.len(), 5, "without hours it is one each night: {usual:?}");
        let by_hour = alarms(method(true), 5, nightly);
        assert_eq!(by_hour.len(), 1, "{by_hour:?}");
        assert!(by_hour[0] < DAY);
    }

    #[test]
    fn a_slowdown_that_is_unlike_the_same_hour_is_found() {
        let begin = 4 * DAY + 14 * HOUR;
        let disturbed = |at| if at >= begin { 1.5 * nightly(at) } else { nightly(at) };
        let found = alarms(method(true), 5, disturbed);
        assert!(found.iter().any(|at| (begin..=begin + 5 * 60_000).contains(at)), "{found:?}");
    }

    #[test]
    fn an_hour_is_compared_with_earlier_days_only() {
        let mut hours = Hours::default();
        let robust = Kind::Cpi.robust();
        let samples = |day: u64| (0..360).map(move |step| BEGIN + day * DAY + step * STEP);
        samples(0).for_each(|at| hours.learn(at, 1.0));
        assert_eq!(hours.expected(&robust, BEGIN + STEP), None, "the same day");
        hours.learn(BEGIN + HOUR, 5.0);
        let expected = hours.expected(&robust, BEGIN + DAY).unwrap();
        assert!((expected.center - 1.0).abs() < 0.01, "{expected:?}");
        assert_eq!(hours.expected(&robust, BEGIN + DAY + HOUR), None, "too few samples of this hour");
    }

    #[test]
    fn yesterday_has_twice_the_weight_of_the_day_before() {
        let mut hours = Hours::default();
        for day in 0..3 {
            (0..90).for_each(|step| hours.learn(BEGIN + day * DAY + step * STEP, 1.0 + day as f64));
        }
        hours.learn(BEGIN + 3 * DAY, 1.0);
        let weight = hours.earlier[of_day(BEGIN / HOUR)].weight();
        assert!((weight - (90.0 + 45.0 + 22.5)).abs() < 0.1, "{weight}");
    }

    #[test]
    fn hours_are_written_and_read_again() {
        let mut hours = Hours::default();
        (0..2000).for_each(|step| hours.learn(BEGIN + step * 97_000, 1.0 + (step % 5) as f64));
        let mut out = Writer::default();
        hours.write(&mut out);
        let mut bytes = Reader(&out.0);
        assert_eq!(format!("{:?}", Hours::read(&mut bytes).unwrap()), format!("{hours:?}"));
        assert!(bytes.0.is_empty() && Hours::read(&mut Reader(&out.0[..out.0.len() - 1])).is_none());
    }
}
