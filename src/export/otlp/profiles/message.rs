//! The messages, with places of tables in them.

use crate::export::protobuf::wire::{Message, Packed, Sink};

/// The most bytes of the key and the length of a message.
pub(super) const LENGTH: usize = 6;

/// `Sample`.
pub(super) struct Sample<A> {
    pub(super) stack: u32,
    pub(super) attributes: A,
    pub(super) value: u64,
}

/// `Profile.samples`.
pub(super) const SAMPLES: u32 = 2;

impl<A: Iterator<Item = u64> + Clone> Message for Sample<A> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.stack.into());
        to.message(2, &Packed(self.attributes.clone()));
        to.message(4, &Packed(std::iter::once(self.value)));
    }
}

/// As large as an `int64` can be.
pub(super) fn bounded(value: u64) -> u64 {
    value.min(i64::MAX.cast_unsigned())
}

/// A field of places in a table; nothing if there are none.
pub(super) fn places(to: &mut impl Sink, field: u32, places: &[u32]) {
    if !places.is_empty() {
        to.message(field, &Packed(places.iter().map(|&place| u64::from(place))));
    }
}

/// `Stack`: its locations, innermost first.
pub(super) struct Stack<'a>(pub(super) &'a [u32]);

impl Message for Stack<'_> {
    const LONG: bool = true;

    fn write(&self, to: &mut impl Sink) {
        places(to, 1, self.0);
    }
}

/// `Location`.
pub(super) struct Location<'a> {
    pub(super) mapping: u32,
    pub(super) address: u64,
    pub(super) lines: &'a [Line],
    /// An attribute; 0 if there is none.
    pub(super) kind: u32,
}

impl Message for Location<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.mapping.into());
        to.optional(2, self.address);
        self.lines.iter().for_each(|line| to.message(3, line));
        if self.kind != 0 {
            places(to, 4, &[self.kind]);
        }
    }
}

/// `Line`.
pub(super) struct Line {
    pub(super) function: u32,
    pub(super) line: u32,
}

impl Message for Line {
    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.function.into());
        to.optional(2, self.line.into());
    }
}

/// `Function`.
pub(super) struct Function {
    pub(super) name: u32,
    pub(super) linkage: u32,
    pub(super) file: u32,
}

impl Message for Function {
    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.name.into());
        to.optional(2, self.linkage.into());
        to.optional(3, self.file.into());
    }
}

/// `Mapping`.
pub(super) struct Mapping<'a> {
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) offset: u64,
    pub(super) file: u32,
    pub(super) ids: &'a [u32],
}

impl Message for Mapping<'_> {
    fn write(&self, to: &mut impl Sink) {
        let numbers = [self.start, self.limit, self.offset, self.file.into()];
        (1..).zip(numbers).for_each(|(field, number)| to.optional(field, number));
        places(to, 5, self.ids);
    }
}

/// `KeyValueAndUnit`. Units are those of the conventions for its key.
pub(super) struct Attribute<'a> {
    pub(super) key: u32,
    pub(super) value: Value<'a>,
}

/// `AnyValue`.
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

impl Message for Attribute<'_> {
    fn write(&self, to: &mut impl Sink) {
        to.optional(1, self.key.into());
        to.message(2, &self.value);
    }
}

impl Message for Value<'_> {
    fn write(&self, to: &mut impl Sink) {
        match self {
            Self::Text(text) => to.string(1, text),
            Self::Number(number) => to.unsigned(3, number.cast_unsigned()),
        }
    }
}
