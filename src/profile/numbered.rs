//! A table that assigns numbers to unique values.

use std::collections::HashMap;
use std::hash::Hash;

/// The values; the number of a value is its index.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    pub(crate) values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// Returns the number of a value.
    pub(crate) fn place(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        // The values come from tables with `u32` indexes.
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}
