//! What stands in front of the samples of a profile.

use super::dictionary::Dictionary;
use super::kind::Types;
use super::message::{bounded, places};
use crate::export::protobuf::wire::{Message, Sink};
use crate::profile::Profile;

/// `Profile` without its samples.
pub(super) struct Head {
    sample: ValueType,
    time: u64,
    duration: u64,
    period: Option<(ValueType, u64)>,
    id: [u8; 16],
    attributes: Vec<u32>,
}

impl Head {
    pub(super) fn new(
        profile: &Profile,
        types: &Types<'_>,
        id: [u8; 16],
        dictionary: &mut Dictionary<'_>,
    ) -> Self {
        let mut of = |(name, unit): (&str, &str)| ValueType {
            kind: dictionary.string(name),
            unit: dictionary.string(unit),
        };
        let sample = of(types.sample);
        let period = types.period.map(|(name, unit, period)| (of((name, unit)), bounded(period)));
        let mut attributes = vec![dictionary.text("perf_exporter.profile", &profile.kind.name)];
        for (reason, count) in profile.lost.iter().filter(|lost| lost.1 > 0) {
            let key = format!("perf_exporter.samples.lost.{reason}");
            attributes.push(dictionary.number(&key, bounded(*count).cast_signed()));
        }
        attributes.retain(|&place| place != 0);
        let duration = u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX);
        Self { sample, time: profile.start.0.saturating_mul(1_000_000), duration, period, id, attributes }
    }
}

impl Message for Head {
    fn write(&self, to: &mut impl Sink) {
        to.message(1, &self.sample);
        to.fixed(3, self.time);
        to.optional(4, self.duration);
        if let Some((kind, period)) = &self.period {
            to.message(5, kind);
            to.optional(6, *period);
        }
        to.message(7, &Id(self.id));
        places(to, 11, &self.attributes);
    }
}

/// The bytes of a `profile_id`.
struct Id([u8; 16]);

impl Message for Id {
    fn write(&self, to: &mut impl Sink) {
        to.bytes(&self.0);
    }
}

/// `ValueType`.
struct ValueType {
    kind: u32,
    unit: u32,
}

impl Message for ValueType {
    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.kind.into());
        to.optional(2, self.unit.into());
    }
}
