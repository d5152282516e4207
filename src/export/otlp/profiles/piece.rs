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

/// Information to undo the last addition.
pub(super) enum Undo {
    /// The sample was new; with the previous size in bytes.
    New(Identity, usize),
    /// The value was added to an existing sample; with its previous value.
    Sum(u32, u64, usize),
}

impl Piece {
    /// Returns the number of samples.
    pub(super) fn len(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn add(&mut self, identity: Identity, value: u64, dictionary: &Dictionary<'_>) -> Undo {
        let before = self.bytes;
        let length = |value| written(&identity, value, dictionary);
        if let Some(&place) = self.places.get(&identity)
            && let Some((_, sum)) = self.samples.get_mut(place as usize)
        {
            let old = *sum;
            *sum = bounded(old.saturating_add(value));
            self.bytes += length(*sum) - length(old);
            return Undo::Sum(place, old, before);
        }
        self.places.insert(identity, self.samples.len() as u32);
        self.samples.push((identity, bounded(value)));
        self.bytes += length(bounded(value));
        Undo::New(identity, before)
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::New(identity, bytes) => {
                self.samples.pop();
                self.places.remove(&identity);
                self.bytes = bytes;
            }
            Undo::Sum(place, value, bytes) => {
                if let Some((_, sum)) = self.samples.get_mut(place as usize) {
                    *sum = value;
                }
                self.bytes = bytes;
            }
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
