//! BTF of arbitrary bytes.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::any_btf;

proptest! {
    /// A function and its prototype, and type records of all kinds, each with few parts that refer to types and strings by small numbers.
    #[test]
    fn any_bytes_are_the_types_of_a_kernel_or_none(
        records in vec((1u8..20, 0u8..3, vec(0u32..12, 8)), 0..12), bytes in vec(any::<u8>(), 0..200)
    ) {
        any_btf::holds(&bytes);
        let mut types = Vec::new();
        let function = [(12, 0, vec![1, 2]), (13, 2, vec![0, 3, 1, 3, 3, 4])];
        for (kind, parts, words) in function.into_iter().chain(records) {
            let behind = match kind {
                1 | 14 | 17 => 1,
                3 => 3,
                4 | 5 | 15 | 19 => 3 * usize::from(parts),
                6 | 13 => 2 * usize::from(parts),
                _ => 0,
            };
            let info = u32::from(kind) << 24 | u32::from(parts);
            let record = [words[0], info, words[1]].into_iter().chain(words[2..2 + behind].iter().copied());
            types.extend(record.flat_map(u32::to_ne_bytes));
        }
        let words = u16::try_from(types.len() / 4).unwrap().to_le_bytes();
        any_btf::holds(&[&words[..], &types, b"a\0b\0char\0user\0sock\0"].concat());
    }
}
