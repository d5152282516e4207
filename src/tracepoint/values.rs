//! The values of one label, as small numbers: a hit looks up its value, and only new values are stored.

use rustc_hash::FxHashMap;

use crate::event::format::Value;

/// The number of a value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ValueId(pub(super) u32);

impl ValueId {
    /// Any value beyond the maximum number of values.
    pub(super) const OTHER: Self = Self(0);
    /// The record has no value.
    pub(super) const NONE: Self = Self(1);
    /// The first number that is assigned to a value.
    const FIRST: u32 = 2;
}

/// Maximum length of a stored text, in bytes.
const LONGEST: usize = 256;

/// A value that occurred for the first time and needs a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fresh {
    pub(super) id: ValueId,
    /// The source in which it occurred. The format of the source defines the meaning of the value.
    pub(super) source: usize,
    pub(super) value: Owned,
}

/// An owned value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Owned {
    /// An unsigned number.
    Unsigned(u64),
    /// A signed number.
    Signed(i64),
    /// A text or an array.
    Bytes(Box<[u8]>),
}

impl Owned {
    pub(super) fn borrow(&self) -> Value<'_> {
        match self {
            Self::Unsigned(number) => Value::Unsigned(*number),
            Self::Signed(number) => Value::Signed(*number),
            Self::Bytes(bytes) => Value::Bytes(bytes),
        }
    }
}

/// The values of one label.
#[derive(Debug)]
pub(super) struct Values {
    limit: usize,
    /// Number of values.
    count: usize,
    /// For each source: the first source in which equal values have the same meaning.
    meanings: Box<[usize]>,
    /// For each such source: its values.
    known: Box<[Known]>,
    /// For each value: the round in which it last occurred.
    met: Vec<u64>,
    free: Vec<ValueId>,
    fresh: Vec<Fresh>,
}

/// Values of sources in which equal values have the same meaning.
#[derive(Debug, Default)]
struct Known {
    numbers: FxHashMap<u64, ValueId>,
    /// Texts that are [`packed`]; names of tasks always are.
    short: FxHashMap<u128, ValueId>,
    /// All other texts.
    texts: FxHashMap<Box<[u8]>, ValueId>,
}

impl Known {
    #[inline]
    fn get(&self, value: Value<'_>) -> Option<ValueId> {
        let id = match value {
            Value::Unsigned(number) => self.numbers.get(&number),
            Value::Signed(number) => self.numbers.get(&(number as u64)),
            Value::Bytes(bytes) => match packed(bytes) {
                Some(short) => self.short.get(&short),
                None => self.texts.get(cut(bytes)),
            },
        };
        id.copied()
    }

    fn insert(&mut self, value: Value<'_>, id: ValueId) -> Owned {
        match value {
            Value::Unsigned(number) => {
                self.numbers.insert(number, id);
                Owned::Unsigned(number)
            }
            Value::Signed(number) => {
                self.numbers.insert(number as u64, id);
                Owned::Signed(number)
            }
            Value::Bytes(bytes) => {
                let bytes = cut(bytes);
                match packed(bytes) {
                    Some(short) => self.short.insert(short, id),
                    None => self.texts.insert(bytes.into(), id),
                };
                Owned::Bytes(bytes.into())
            }
        }
    }

    /// Removes and returns the values for which `old` holds.
    fn extract(&mut self, old: impl Fn(&ValueId) -> bool) -> Vec<ValueId> {
        let numbers = self.numbers.extract_if(|_, id| old(id)).map(|(_, id)| id);
        let short = self.short.extract_if(|_, id| old(id)).map(|(_, id)| id);
        let texts = self.texts.extract_if(|_, id| old(id)).map(|(_, id)| id);
        numbers.chain(short).chain(texts).collect()
    }
}

/// Returns a text of at most 15 bytes and its length as one number, which is faster to look up than a slice.
#[inline]
fn packed(text: &[u8]) -> Option<u128> {
    if text.len() > 15 {
        return None;
    }
    let bytes = match (text.first_chunk(), text.last_chunk()) {
        // Where the two words overlap, their bytes are the same.
        (Some(&first), Some(&last)) => {
            let last = u128::from(u64::from_le_bytes(last));
            u128::from(u64::from_le_bytes(first)) | last << (8 * (text.len() - 8))
        }
        _ => text.iter().rev().fold(0, |packed, &byte| packed << 8 | u128::from(byte)),
    };
    Some(bytes | (text.len() as u128) << 120)
}

impl Values {
    /// Returns an empty set of at most `limit` values. `meanings`: for each source, the first source in which equal values have the same
    /// meaning.
    pub(super) fn new(limit: usize, meanings: Box<[usize]>) -> Self {
        Self {
            limit,
            count: 0,
            known: meanings.iter().map(|_| Known::default()).collect(),
            meanings,
            met: vec![0; ValueId::FIRST as usize],
            free: Vec::new(),
            fresh: Vec::new(),
        }
    }

    /// Returns the number of a value that occurred in `round` in a record of `source`.
    #[inline]
    pub(super) fn id(&mut self, value: Value<'_>, source: usize, round: u64) -> ValueId {
        let Some(&meaning) = self.meanings.get(source) else { return ValueId::OTHER };
        match self.known.get(meaning).and_then(|known| known.get(value)) {
            Some(id) => {
                if let Some(met) = self.met.get_mut(id.0 as usize) {
                    *met = round;
                }
                id
            }
            None => self.add(value, meaning, round),
        }
    }

    #[cold]
    fn add(&mut self, value: Value<'_>, source: usize, round: u64) -> ValueId {
        let Some(known) = self.known.get_mut(source).filter(|_| self.count < self.limit) else {
            return ValueId::OTHER;
        };
        self.count += 1;
        let id = self.free.pop().unwrap_or(ValueId(self.met.len() as u32));
        match self.met.get_mut(id.0 as usize) {
            Some(met) => *met = round,
            None => self.met.push(round),
        }
        let value = known.insert(value, id);
        self.fresh.push(Fresh { id, source, value });
        id
    }

    /// Returns the values that occurred for the first time since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<Fresh> {
        std::mem::take(&mut self.fresh)
    }

    /// If there is no space for new values, removes those that did not occur since `round`. Returns them: their numbers will be reused.
    pub(super) fn expire(&mut self, round: u64) -> Vec<ValueId> {
        if self.count < self.limit {
            return Vec::new();
        }
        let met = &self.met;
        let old = |id: &ValueId| met.get(id.0 as usize).is_some_and(|&met| met < round);
        let gone: Vec<ValueId> = self.known.iter_mut().flat_map(|known| known.extract(old)).collect();
        self.count -= gone.len();
        self.free.extend(&gone);
        gone
    }
}

/// Returns the beginning of a text that is too long for a label.
fn cut(bytes: &[u8]) -> &[u8] {
    bytes.get(..LONGEST).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_one_number_and_one_too_many_has_that_of_the_others() {
        let mut values = Values::new(2, [0, 0].into());
        let a = values.id(Value::Bytes(b"a"), 0, 1);
        let five = values.id(Value::Unsigned(5), 1, 1);
        assert_eq!(values.id(Value::Bytes(b"a"), 0, 1), a);
        assert_eq!(values.id(Value::Bytes(b"b"), 0, 1), ValueId::OTHER);
        assert_ne!(a, five);
        let fresh = [
            Fresh { id: a, source: 0, value: Owned::Bytes((*b"a").into()) },
            Fresh { id: five, source: 0, value: Owned::Unsigned(5) },
        ];
        assert_eq!(values.take_fresh(), fresh);
        assert_eq!(values.take_fresh(), []);
    }

    #[test]
    fn one_number_that_means_different_things_in_two_sources_is_two_values() {
        let mut values = Values::new(3, [0, 1, 0].into());
        let [first, second, third] = [0, 1, 2].map(|source| values.id(Value::Unsigned(7), source, 1));
        assert_ne!(first, second);
        assert_eq!(first, third);
        let sources: Vec<usize> = values.take_fresh().iter().map(|fresh| fresh.source).collect();
        assert_eq!(sources, [0, 1]);
    }

    #[test]
    fn a_value_that_nobody_meets_makes_room_only_where_there_is_none() {
        let mut values = Values::new(2, [0].into());
        let a = values.id(Value::Signed(-1), 0, 1);
        assert_eq!(values.expire(2), [], "there is room");
        let b = values.id(Value::Signed(-2), 0, 2);
        assert_eq!(values.expire(2), [a]);
        let c = values.id(Value::Signed(-3), 0, 3);
        assert_eq!((c, values.id(Value::Signed(-2), 0, 3)), (a, b), "its number stands for another");
    }

    #[test]
    fn texts_of_any_length_are_each_a_value_of_its_own() {
        let text = b"\0\0abcdefghijklmnopq";
        let texts: Vec<&[u8]> = (0..text.len())
            .flat_map(|start| (start..=text.len()).map(move |end| &text[start..end]))
            .collect();
        let distinct: std::collections::BTreeSet<&[u8]> = texts.iter().copied().collect();
        let mut values = Values::new(1000, [0].into());
        let ids: Vec<ValueId> = texts.iter().map(|text| values.id(Value::Bytes(text), 0, 1)).collect();
        assert_eq!(values.take_fresh().len(), distinct.len());
        let again: Vec<ValueId> = texts.iter().map(|text| values.id(Value::Bytes(text), 0, 1)).collect();
        assert_eq!(again, ids);
        assert_eq!(values.take_fresh(), []);
    }

    #[test]
    fn texts_that_differ_only_beyond_what_is_kept_are_one_value() {
        let mut values = Values::new(9, [0].into());
        let [mut long, mut longer] = [vec![b'x'; LONGEST], vec![b'x'; LONGEST]];
        long.push(b'1');
        longer.push(b'2');
        assert_eq!(values.id(Value::Bytes(&long), 0, 1), values.id(Value::Bytes(&longer), 0, 1));
    }
}
