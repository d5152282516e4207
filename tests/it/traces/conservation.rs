//! Every hit is accounted exactly once, for any sequence of operations.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::any_trace;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn every_hit_is_in_one_series_or_has_a_reason_and_totals_only_grow(
        bytes in vec(any::<u8>(), 0..400)
    ) {
        any_trace::holds(&bytes);
    }

    /// Mostly hits, so that limits are exceeded.
    #[test]
    fn and_so_it_is_when_there_are_too_many_of_them(
        bytes in vec(prop_oneof![8 => 0u8..0x80, 1 => any::<u8>()], 0..1000)
    ) {
        any_trace::holds(&bytes);
    }
}
