//! Values that become numbers, each once.

use std::collections::HashMap;
use std::hash::Hash;

/// The values, and their numbers: their places.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    pub(super) values: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// The number of a value.
    pub(super) fn place(&mut self, value: T) -> u32 {
        if let Some(&number) = self.numbers.get(&value) {
            return number;
        }
        // What is numbered here comes from tables that are counted by a `u32`.
        let number = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        self.values.push(value.clone());
        self.numbers.insert(value, number);
        number
    }
}
