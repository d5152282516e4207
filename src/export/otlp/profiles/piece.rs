//! Unique samples of one profile, collected for a request.

use rustc_hash::FxHashMap;

use super::dictionary::{Dictionary, Identity};
use super::message::{SAMPLES, Sample};
use crate::export::protobuf::wire::{Length, Sink, bounded};

/// The samples.
#[derive(Debug, Default)]
pub(super) struct Piece {
    samples: Vec<(Identity, u64)>,
    places: FxHashMap<Identity, u32>,
    /// Size of all samples in bytes.
    bytes: usize,
}

impl Piece {
    /// Returns the number of samples.
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the size of all samples in bytes after [`add`](Self::add).
    pub(super) fn bytes_with(&self, identity: &Identity, value: u64, dictionary: &Dictionary<'_>) -> usize {
        let length = |value| written(identity, value, dictionary);
        let same = self.places.get(identity).and_then(|&place| self.samples.get(place as usize));
        match same {
            Some(&(_, sum)) => self.bytes + length(bounded(sum.saturating_add(value))) - length(sum),
            None => self.bytes + length(bounded(value)),
        }
    }

    /// Adds a sample. `bytes` is the size of all samples with it.
    pub(super) fn add(&mut self, identity: Identity, value: u64, bytes: usize) {
        self.bytes = bytes;
        let place = *self.places.entry(identity).or_insert(self.samples.len() as u32) as usize;
        match self.samples.get_mut(place) {
            Some((_, sum)) => *sum = bounded(sum.saturating_add(value)),
            None => self.samples.push((identity, bounded(value))),
        }
    }

    /// Writes all samples.
    pub(super) fn write(&self, bytes: &mut Vec<u8>, dictionary: &Dictionary<'_>) {
        bytes.reserve(self.bytes);
        for (identity, value) in &self.samples {
            bytes.message(SAMPLES, &sample(identity, *value, dictionary));
        }
    }
}

fn sample(
    identity: &Identity,
    value: u64,
    dictionary: &Dictionary<'_>,
) -> Sample<impl Iterator<Item = u64> + Clone> {
    Sample { stack: identity.stack, attributes: dictionary.attributes(identity), value }
}

/// Returns the size of a sample with its key and length, in bytes.
fn written(identity: &Identity, value: u64, dictionary: &Dictionary<'_>) -> usize {
    let length = Length::of_field(SAMPLES, &sample(identity, value, dictionary));
    usize::try_from(length).unwrap_or(usize::MAX)
}
