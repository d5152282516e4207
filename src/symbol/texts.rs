//! Byte strings stored once each, with reference counts, in one block of memory.

use std::hash::{BuildHasher, RandomState};

use rustc_hash::FxHashMap;

/// The header of an entry: its slot (4 bytes) and the length of its text (2 bytes).
const HEADER: usize = 6;
/// The approximate bytes of a slot and of its entry in the hash table.
const SLOT: usize = 34;
/// The longest text, in bytes.
pub(super) const LONGEST: usize = u16::MAX as usize;

/// The number of a text, valid until the text has no references or [`Texts::compact`] is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct TextId(u32);

/// Byte strings with reference counts.
///
/// Each operation takes amortized constant time and time linear in the text, except [`compact`](Self::compact). The hash function has a
/// random key, so that untrusted input cannot cause collisions.
#[derive(Debug, Default)]
pub(super) struct Texts {
    /// Consecutive entries: slot, length, text.
    arena: Vec<u8>,
    slots: Vec<Slot>,
    /// Slots without a text.
    free: Vec<u32>,
    by_hash: FxHashMap<u64, u32>,
    hasher: RandomState,
    /// Bytes of the arena whose texts have no references.
    garbage: usize,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// The offset of the entry in the arena.
    at: u32,
    references: u32,
}

impl Texts {
    /// Returns the most memory that one more text of this length takes, in bytes.
    pub(super) fn needed(length: usize) -> usize {
        HEADER + SLOT + length
    }

    /// Adds a reference to a text, which is stored if it is new. Returns `None` if it is longer than [`LONGEST`] or the arena has 4 GiB.
    pub(super) fn intern(&mut self, text: &[u8]) -> Option<TextId> {
        let hash = self.hasher.hash_one(text);
        if let Some(&known) = self.by_hash.get(&hash)
            && self.get(TextId(known)) == text
        {
            let slot = self.slots.get_mut(known as usize)?;
            slot.references = slot.references.checked_add(1)?;
            return Some(TextId(known));
        }
        let at = u32::try_from(self.arena.len()).ok()?;
        let length = u16::try_from(text.len()).ok()?;
        let new = Slot { at, references: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                *self.slots.get_mut(number as usize)? = new;
                number
            }
            None => {
                let number = u32::try_from(self.slots.len()).ok()?;
                self.slots.push(new);
                number
            }
        };
        self.reserve(HEADER + text.len());
        self.arena.extend_from_slice(&number.to_ne_bytes());
        self.arena.extend_from_slice(&length.to_ne_bytes());
        self.arena.extend_from_slice(text);
        self.by_hash.insert(hash, number);
        Some(TextId(number))
    }

    /// Adds a reference to a stored text.
    pub(super) fn retain(&mut self, TextId(number): TextId) {
        if let Some(slot) = self.slots.get_mut(number as usize) {
            slot.references = slot.references.saturating_add(1);
        }
    }

    /// Removes a reference. The last one makes the text garbage.
    pub(super) fn release(&mut self, id: TextId) {
        let TextId(number) = id;
        let Some(slot) = self.slots.get_mut(number as usize).filter(|slot| slot.references > 0) else {
            return;
        };
        slot.references -= 1;
        if slot.references > 0 {
            return;
        }
        let text = self.get(id);
        let (hash, length) = (self.hasher.hash_one(text), text.len());
        // Another text with the same hash may have replaced it.
        if self.by_hash.get(&hash) == Some(&number) {
            self.by_hash.remove(&hash);
        }
        self.garbage += HEADER + length;
        self.free.push(number);
    }

    /// Returns the text; empty for a number that is no longer valid.
    pub(super) fn get(&self, TextId(number): TextId) -> &[u8] {
        let entry = self.slots.get(number as usize).and_then(|slot| self.arena.get(slot.at as usize..));
        let Some((length, rest)) = entry.and_then(|entry| entry.get(4..)?.split_first_chunk()) else {
            return &[];
        };
        rest.get(..u16::from_ne_bytes(*length).into()).unwrap_or_default()
    }

    /// Removes garbage: moves every text to the front and renumbers it. Returns the new number of each old one.
    ///
    /// It moves at most [`bytes`](Self::bytes) bytes.
    pub(super) fn compact(&mut self) -> Renumbered {
        let mut renumbered = vec![u32::MAX; self.slots.len()];
        let mut slots = Vec::with_capacity(self.slots.len() - self.free.len());
        let (mut from, mut to) = (0, 0);
        while let Some((number, length)) = self.entry(from) {
            let whole = HEADER + length;
            let live = self
                .slots
                .get(number as usize)
                .filter(|slot| slot.references > 0 && slot.at as usize == from)
                .copied();
            if let (Some(slot), Some(new)) = (live, renumbered.get_mut(number as usize)) {
                // There are no more slots than before, and no entry moves to the back.
                *new = slots.len() as u32;
                self.arena.copy_within(from..from + whole, to);
                self.arena[to..to + 4].copy_from_slice(&new.to_ne_bytes());
                slots.push(Slot { at: to as u32, ..slot });
                to += whole;
            }
            from += whole;
        }
        self.arena.truncate(to);
        self.slots = slots;
        (self.free, self.garbage) = (Vec::new(), 0);
        self.by_hash.retain(|_, number| {
            *number = renumbered.get(*number as usize).copied().unwrap_or(u32::MAX);
            *number != u32::MAX
        });
        Renumbered(renumbered)
    }

    /// Returns the slot and the length of the entry at an offset of the arena.
    fn entry(&self, at: usize) -> Option<(u32, usize)> {
        let (number, rest) = self.arena.get(at..)?.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        (rest.len() >= length).then_some((u32::from_ne_bytes(*number), length))
    }

    /// Grows by an eighth at a time, where a `Vec` would double: the arena is most of the memory.
    fn reserve(&mut self, more: usize) {
        if self.arena.capacity() - self.arena.len() < more {
            self.arena.reserve_exact(more.max(self.arena.len() / 8));
        }
    }

    /// Returns the approximate memory in use, garbage included, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.arena.len() + self.slots.len() * SLOT
    }

    /// Returns the approximate memory that would be in use after [`compact`](Self::compact), in bytes.
    pub(super) fn live_bytes(&self) -> usize {
        self.arena.len() - self.garbage + (self.slots.len() - self.free.len()) * SLOT
    }
}

/// The numbers of texts after [`Texts::compact`].
#[derive(Debug)]
pub(super) struct Renumbered(Vec<u32>);

impl Renumbered {
    /// Returns the new number of a text that has references.
    pub(super) fn of(&self, TextId(old): TextId) -> TextId {
        TextId(self.0.get(old as usize).copied().unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_equal_text_is_stored_once_until_its_last_reference_is_gone() {
        let mut texts = Texts::default();
        let one = texts.intern(b"one").unwrap();
        let bytes = texts.bytes();
        assert_eq!(texts.intern(b"one"), Some(one));
        assert_eq!(texts.bytes(), bytes);
        texts.release(one);
        assert_eq!((texts.get(one), texts.live_bytes()), (&b"one"[..], bytes));
        texts.release(one);
        assert_eq!(texts.live_bytes(), 0);
        texts.compact();
        assert_eq!(texts.bytes(), 0);
    }

    #[test]
    fn a_text_that_is_too_long_is_not_stored() {
        let mut texts = Texts::default();
        assert_eq!(texts.intern(&vec![0; LONGEST + 1]), None);
        let longest = vec![b'x'; LONGEST];
        let id = texts.intern(&longest).unwrap();
        assert_eq!(texts.get(id), longest);
    }

    proptest! {
        /// Compares with a list of references.
        #[test]
        fn references_keep_their_texts(
            steps in proptest::collection::vec((0u8..4, "[a-c]{0,3}"), 0..100)
        ) {
            let mut texts = Texts::default();
            let mut held: Vec<(TextId, String)> = Vec::new();
            for (step, text) in steps {
                match step {
                    0 | 1 => held.push((texts.intern(text.as_bytes()).unwrap(), text)),
                    2 if !held.is_empty() => texts.release(held.remove(text.len() % held.len()).0),
                    _ => {
                        let renumbered = texts.compact();
                        held.iter_mut().for_each(|(id, _)| *id = renumbered.of(*id));
                        prop_assert_eq!(texts.bytes(), texts.live_bytes());
                    }
                }
                for (id, text) in &held {
                    prop_assert_eq!(texts.get(*id), text.as_bytes());
                }
            }
        }
    }
}
