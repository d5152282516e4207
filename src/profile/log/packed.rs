//! Columns of numbers, in as few bits as their range needs.

/// Bits of a word.
const WORD: usize = u64::BITS as usize;

/// Numbers, each stored as its difference to the smallest one. Equal numbers take no memory.
#[derive(Debug, Default)]
pub(super) struct Packed {
    least: u64,
    /// The bits of each difference.
    width: usize,
    words: Box<[u64]>,
}

impl Packed {
    /// Packs these numbers.
    pub(super) fn new(numbers: impl Iterator<Item = u64> + Clone) -> Self {
        let (mut least, mut most, mut length) = (u64::MAX, 0, 0);
        for number in numbers.clone() {
            (least, most, length) = (least.min(number), most.max(number), length + 1);
        }
        let width = WORD - most.saturating_sub(least).leading_zeros() as usize;
        let mut words = vec![0u64; (length * width).div_ceil(WORD)];
        if width > 0 {
            for (index, number) in numbers.enumerate() {
                let (word, shift) = (index * width / WORD, index * width % WORD);
                let difference = number - least;
                words[word] |= difference << shift;
                if shift + width > WORD {
                    words[word + 1] |= difference >> (WORD - shift);
                }
            }
        }
        Self { least, width, words: words.into_boxed_slice() }
    }

    /// Returns the number at an index. For an index beyond the end, returns an arbitrary number.
    #[inline]
    pub(super) fn get(&self, index: usize) -> u64 {
        if self.width == 0 {
            return self.least;
        }
        let (word, shift) = (index * self.width / WORD, index * self.width % WORD);
        let at = |word: usize| self.words.get(word).copied().unwrap_or_default();
        let mut difference = at(word) >> shift;
        if shift + self.width > WORD {
            difference |= at(word + 1) << (WORD - shift);
        }
        self.least.wrapping_add(difference & (u64::MAX >> (WORD - self.width)))
    }

    /// Returns the bytes of the column outside of this value.
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn equal_numbers_take_no_memory_and_small_ranges_few_bits() {
        let column = |numbers: &[u64]| Packed::new(numbers.iter().copied());
        assert_eq!((column(&[]).bytes(), column(&[7; 1000]).bytes()), (0, 0));
        assert_eq!(column(&[7; 1000]).get(999), 7);
        let bits: Vec<u64> = (0..640).map(|number| u64::MAX - number % 2).collect();
        assert_eq!(column(&bits).bytes(), 80);
    }

    proptest! {
        #[test]
        fn every_number_comes_back(numbers in proptest::collection::vec(any::<u64>(), 0..200), bits in 0u32..64) {
            let numbers: Vec<u64> = numbers.iter().map(|number| number >> bits).collect();
            let column = Packed::new(numbers.iter().copied());
            for (index, &number) in numbers.iter().enumerate() {
                prop_assert_eq!(column.get(index), number);
            }
            prop_assert!(column.bytes() <= 8 * (numbers.len() * (64 - bits as usize)).div_ceil(64));
            // An index that the column does not have is no error.
            column.get(numbers.len() + 7);
        }
    }
}
