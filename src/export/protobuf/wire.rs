//! The encoding of protobuf messages: <https://protobuf.dev/programming-guides/encoding/>.

use std::mem;

/// Where a message is written to. The length of a message stands before it, so most are written twice: to a [`Length`],
/// then to bytes. One piece of code for both cannot get the length wrong.
pub(in crate::export) trait Sink: Sized {
    /// An integer in groups of seven bits, the lowest first.
    fn varint(&mut self, value: u64);

    fn bytes(&mut self, bytes: &[u8]);

    /// A message in another, or one of a stream; its length and itself.
    fn delimited<M: Message>(&mut self, message: &M);

    fn unsigned(&mut self, field: u32, value: u64) {
        self.key(field, WireType::Varint);
        self.varint(value);
    }

    /// Zero is what a field is that is not written.
    fn optional(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.unsigned(field, value);
        }
    }

    /// `sint32` or `sint64`: numbers near zero are short, whatever their sign.
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

/// What can be written.
pub(in crate::export) trait Message {
    /// Whether it costs less to move the written bytes behind their length than to write twice.
    const LONG: bool = false;

    fn write(&self, to: &mut impl Sink);
}

/// A packed field of integers.
pub(in crate::export) struct Packed<I>(pub(in crate::export) I);

impl<I: Iterator<Item = u64> + Clone> Message for Packed<I> {
    fn write(&self, to: &mut impl Sink) {
        self.0.clone().for_each(|value| to.varint(value));
    }
}

/// How a value is laid out.
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

    /// Bytes so far.
    pub(in crate::export) fn get(&self) -> u64 {
        self.0
    }
}

impl Sink for Length {
    fn varint(&mut self, value: u64) {
        // Zero has one group, too.
        self.0 += u64::from((u64::BITS - (value | 1).leading_zeros()).div_ceil(7));
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

/// 0, −1, 1, −2, … as 0, 1, 2, 3, …
pub(in crate::export) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}
