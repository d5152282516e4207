//! Tracepoint formats with arbitrary records and filters. The fuzz targets under `fuzz/` test the same with more time.

use std::path::Path;

use perf_exporter::host;
use proptest::prelude::*;

use crate::any_format;

/// Returns the captured formats.
fn captured() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/formats");
    host::list(&dir).unwrap().iter().map(|name| host::read(&dir.join(name)).unwrap()).collect()
}

proptest! {
    #[test]
    fn any_bytes_are_a_format_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        any_format::holds(&bytes);
        any_format::holds(&[b"name: x\nID: 1\nformat:\n\tfield:", &bytes[..]].concat());
    }

    #[test]
    fn a_format_with_a_few_bytes_changed_is_one_or_none(
        choice: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        filter in "[a-z_]{0,10} ?(==|~|&) ?[0-9\"]{0,4}",
        raw in prop::collection::vec(any::<u8>(), 0..120),
    ) {
        let mut text = choice.get(&captured()).clone();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        any_format::holds(&[&text[..], filter.as_bytes(), &raw].join(&0xff));
    }
}
