//! The encoding of protobuf messages: <https://protobuf.dev/programming-guides/encoding/>.

use std::mem;

/// Destination of an encoded message. The length precedes a message, so most messages are written twice: to a [`Length`], then to bytes.
/// The same code for both guarantees a correct length.
pub(in crate::export) trait Sink: Sized {
    /// Writes an integer in groups of seven bits, the lowest first.
    fn varint(&mut self, value: u64);

    fn bytes(&mut self, bytes: &[u8]);

    /// Writes a message within another message or a stream: its length, then its content.
    fn delimited<M: Message>(&mut self, message: &M);

    fn unsigned(&mut self, field: u32, value: u64) {
        self.key(field, WireType::Varint);
        self.varint(value);
    }

    /// Writes an integer field unless it is zero, the default of an absent field.
    fn optional(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.unsigned(field, value);
        }
    }

    /// Writes a `sint32` or `sint64`: numbers near zero are short, regardless of their sign.
    fn signed(&mut self, field: u32, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    fn double(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.key(field, WireType::Fixed64);
        self.bytes(&value.to_le_bytes());
    }

    fn string(&mut self, field: u32, text: &str) {
        self.key(field, WireType::Delimited);
        self.varint(text.len() as u64);
        self.bytes(text.as_bytes());
    }

    fn message(&mut self, field: u32, message: &impl Message) {
        self.key(field, WireType::Delimited);
        self.delimited(message);
    }

    fn key(&mut self, field: u32, wire_type: WireType) {
        self.varint(u64::from(field << 3 | wire_type as u32));
    }
}

/// A message that can be encoded.
pub(in crate::export) trait Message {
    /// Whether moving the encoded bytes after their length costs less than encoding twice.
    const LONG: bool = false;

    fn write(&self, to: &mut impl Sink);
}

/// A field of bytes.
impl<const N: usize> Message for [u8; N] {
    fn write(&self, to: &mut impl Sink) {
        to.bytes(self);
    }
}

/// A packed field of integers.
pub(in crate::export) struct Packed<I>(pub(in crate::export) I);

impl<I: Iterator<Item = u64> + Clone> Message for Packed<I> {
    fn write(&self, to: &mut impl Sink) {
        self.0.clone().for_each(|value| to.varint(value));
    }
}

/// Integers in the fields 1, 2 and so on.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct Numbers<const N: usize>(pub(in crate::export) [u64; N]);

impl<const N: usize> Message for Numbers<N> {
    fn write(&self, to: &mut impl Sink) {
        (1..).zip(self.0).for_each(|(field, number)| to.optional(field, number));
    }
}

/// One field for each of these messages.
pub(in crate::export) struct Each<'a, M>(pub(in crate::export) u32, pub(in crate::export) &'a [M]);

impl<M: Message> Message for Each<'_, M> {
    fn write(&self, to: &mut impl Sink) {
        self.1.iter().for_each(|message| to.message(self.0, message));
    }
}

/// The fields of both messages.
impl<A: Message, B: Message> Message for (A, B) {
    const LONG: bool = A::LONG || B::LONG;

    fn write(&self, to: &mut impl Sink) {
        self.0.write(to);
        self.1.write(to);
    }
}

/// Wire type of a value.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Delimited = 2,
}

/// Counts bytes.
#[derive(Debug, Default)]
pub(in crate::export) struct Length(pub(super) u64);

impl Length {
    pub(in crate::export) fn of(message: &impl Message) -> u64 {
        let mut length = Self(0);
        message.write(&mut length);
        length.0
    }

    /// Returns the size of a field with this message, in bytes.
    pub(in crate::export) fn of_field(field: u32, message: &impl Message) -> u64 {
        let mut length = Self(0);
        length.message(field, message);
        length.0
    }
}

impl Sink for Length {
    fn varint(&mut self, value: u64) {
        self.0 += width(value);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }

    fn delimited<M: Message>(&mut self, message: &M) {
        let before = mem::take(&mut self.0);
        message.write(self);
        self.varint(self.0);
        self.0 += before;
    }
}

impl Sink for Vec<u8> {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.push(value as u8);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn delimited<M: Message>(&mut self, message: &M) {
        if !M::LONG {
            self.varint(Length::of(message));
            return message.write(self);
        }
        let start = self.len();
        message.write(self);
        let end = self.len();
        self.varint((end - start) as u64);
        let width = self.len() - end;
        self[start..].rotate_right(width);
    }
}

/// Limits a value to the range of `int64`.
pub(in crate::export) fn bounded(value: u64) -> u64 {
    value.min(i64::MAX.cast_unsigned())
}

/// Returns the size of an encoded integer in bytes.
fn width(number: u64) -> u64 {
    // Zero also has one group of seven bits.
    u64::from((u64::BITS - (number | 1).leading_zeros()).div_ceil(7))
}

/// Returns the size in bytes of a field of this length whose number is below 16.
pub(in crate::export) fn delimited(length: u64) -> u64 {
    1 + width(length) + length
}

/// Maps 0, −1, 1, −2, … to 0, 1, 2, 3, …
pub(in crate::export) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}
