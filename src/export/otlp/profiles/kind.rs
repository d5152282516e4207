//! Names of the value types and periods of profiles.
//!
//! There is no convention yet. These are the names that other profilers use for the same data. The last column is the name in Pyroscope.
//!
//! | profile | `sample_type` | `period_type` | `period` | in Pyroscope |
//! |---|---|---|---|---|
//! | time on the CPU, equal weight of all samples | `samples/count` | `cpu/nanoseconds` | weight | `process_cpu`, `cpu`, in nanoseconds |
//! | time on the CPU, otherwise | `cpu/nanoseconds` | `cpu/nanoseconds` | 1 | `cpu` |
//! | time off the CPU | `off_cpu/nanoseconds` | none | none | `off_cpu` |
//! | an event | `events/count` | the event`/count` | hits between two samples; 1 if that varies | the event |
//!
//! Values of events are hits, not samples: each sample is multiplied by its weight.

use crate::profile::{Kind, Sample, Unit};

/// Types of a profile's values.
pub(super) struct Types<'p> {
    /// Type and unit of a value.
    pub(super) sample: (&'p str, &'static str),
    /// Type and unit of the period, and the period.
    pub(super) period: Option<(&'p str, &'static str, u64)>,
    /// Returns the value of a sample.
    pub(super) value: fn(&Sample) -> u64,
}

impl<'p> Types<'p> {
    pub(super) fn of(kind: &'p Kind) -> Self {
        let (name, unit) = (&*kind.value.name, kind.value.unit.as_str());
        let (count, value) = (|sample: &Sample| sample.count, |sample: &Sample| sample.value);
        match (kind.value.unit, kind.period) {
            (Unit::Nanoseconds, _) if name == "off_cpu" => Self { sample: (name, unit), period: None, value },
            (Unit::Nanoseconds, Some(period)) => {
                Self { sample: ("samples", "count"), period: Some((name, unit, period)), value: count }
            }
            (Unit::Nanoseconds, None) => Self { sample: (name, unit), period: Some((name, unit, 1)), value },
            (Unit::Count, period) => {
                Self { sample: ("events", unit), period: Some((name, unit, period.unwrap_or(1))), value }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ValueType;

    const SAMPLE: Sample =
        Sample { stack: 0, task: 0, mode: crate::profile::Mode::User, cpu: None, count: 3, value: 3_000 };

    #[test]
    fn each_kind_of_profile_has_the_names_that_backends_know() {
        for (name, unit, period, expected) in [
            ("cpu", Unit::Nanoseconds, Some(1_000), ("samples/count", Some("cpu/nanoseconds 1000"), 3)),
            ("cpu", Unit::Nanoseconds, None, ("cpu/nanoseconds", Some("cpu/nanoseconds 1"), 3_000)),
            ("off_cpu", Unit::Nanoseconds, None, ("off_cpu/nanoseconds", None, 3_000)),
            ("page-faults", Unit::Count, Some(1), ("events/count", Some("page-faults/count 1"), 3_000)),
            ("cycles", Unit::Count, None, ("events/count", Some("cycles/count 1"), 3_000)),
        ] {
            let kind = Kind { name: "a".into(), value: ValueType { name: name.into(), unit }, period };
            let types = Types::of(&kind);
            let sample = format!("{}/{}", types.sample.0, types.sample.1);
            let period = types.period.map(|(name, unit, period)| format!("{name}/{unit} {period}"));
            assert_eq!((&*sample, period.as_deref(), (types.value)(&SAMPLE)), expected, "{kind:?}");
        }
    }
}
