//! Samples of one profile, each once, as they are collected for a request.

use rustc_hash::FxHashMap;

use super::dictionary::{Dictionary, Identity};
use super::message::{SAMPLES, Sample};
use crate::export::protobuf::wire::{Length, Sink, bounded};

/// The samples.
#[derive(Debug, Default)]
pub(super) struct Piece {
    samples: Vec<(Identity, u64)>,
    places: FxHashMap<Identity, u32>,
    /// Bytes of all of them.
    bytes: usize,
}

/// How to take back what was added last.
pub(super) enum Undo {
    /// It was new; there were so many bytes before.
    New(Identity, usize),
    /// It was added to a value, which was this.
    Sum(u32, u64, usize),
}

impl Piece {
    /// How many there are.
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

    /// Writes all of them.
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

/// Bytes of a sample with its key and its length.
fn written(identity: &Identity, value: u64, dictionary: &Dictionary<'_>) -> usize {
    let length = Length::of_field(SAMPLES, &sample(identity, value, dictionary));
    usize::try_from(length).unwrap_or(usize::MAX)
}
