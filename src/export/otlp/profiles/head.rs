//! Fields of a profile that precede its samples.

use super::dictionary::Dictionary;
use super::kind::Types;
use super::message::Places;
use crate::export::protobuf::wire::{Message as _, Numbers, Sink as _, bounded};
use crate::profile::Profile;

/// Encodes a `Profile` without its samples.
pub(super) fn head(
    profile: &Profile,
    types: &Types<'_>,
    id: &[u8; 16],
    dictionary: &mut Dictionary<'_>,
) -> Vec<u8> {
    let mut to = Vec::<u8>::new();
    let mut value_type = |texts: [&str; 2]| Numbers(texts.map(|text| dictionary.string(text).into()));
    to.message(1, &value_type([types.sample.0, types.sample.1]));
    to.fixed(3, profile.start.0.saturating_mul(1_000_000));
    to.optional(4, u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX));
    if let Some((name, unit, period)) = types.period {
        to.message(5, &value_type([name, unit]));
        to.optional(6, bounded(period));
    }
    to.message(7, id);
    let mut attributes = vec![dictionary.text("perf_exporter.profile", &profile.kind.name)];
    for (reason, count) in profile.lost.iter().filter(|lost| lost.1 > 0) {
        let key = format!("perf_exporter.samples.lost.{reason}");
        attributes.push(dictionary.number(&key, bounded(*count).cast_signed()));
    }
    attributes.retain(|&place| place != 0);
    Places(11, &attributes).write(&mut to);
    to
}
