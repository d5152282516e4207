//! Protobuf messages that refer to table indexes.

use crate::export::otlp::attribute::Any;
use crate::export::protobuf::wire::{Message, Packed, Sink};

/// Maximum size of the key and length of a message, in bytes.
pub(super) const LENGTH: usize = 6;

/// Message `Sample`.
pub(super) struct Sample<A> {
    pub(super) stack: u32,
    pub(super) attributes: A,
    pub(super) value: u64,
}

/// Field `Profile.samples`.
pub(super) const SAMPLES: u32 = 2;

impl<A: Iterator<Item = u64> + Clone> Message for Sample<A> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.stack.into());
        to.message(2, &Packed(self.attributes.clone()));
        to.message(4, &Packed(std::iter::once(self.value)));
    }
}

/// A field of table indexes, omitted if empty.
pub(super) struct Places<'a>(pub(super) u32, pub(super) &'a [u32]);

impl Message for Places<'_> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        if !self.1.is_empty() {
            to.message(self.0, &Packed(self.1.iter().map(|&place| u64::from(place))));
        }
    }
}

/// Message `KeyValueAndUnit`, with its key as an index. Units are those of the conventions for the key.
pub(super) struct Attribute<'a>(pub(super) u32, pub(super) Any<'a>);

impl Message for Attribute<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.0.into());
        to.message(2, &self.1);
    }
}
