//! Invariants for arbitrary files that are uploaded as profiles. Called by a fuzz target and by a test that keeps the target working.

use perf_exporter::export::folded::{Folded, Options};
use perf_exporter::recording::{self, ENTRIES};

/// Checks the bytes as a file.
pub(crate) fn holds(bytes: &[u8]) {
    match recording::read(bytes) {
        Ok(mut profile) => {
            assert!(!profile.samples.is_empty());
            for table in
                [profile.stacks.len(), profile.locations.len(), profile.functions.len(), profile.tasks.len()]
            {
                assert!(table <= ENTRIES, "{table} entries");
            }
            for sample in &profile.samples {
                let stack = &profile.stacks[sample.stack as usize];
                assert!(stack.iter().all(|&place| (place as usize) < profile.locations.len()), "{stack:?}");
                assert!((sample.task as usize) < profile.tasks.len(), "{sample:?}");
            }
            let other = profile.clone();
            recording::align(&mut profile, &other);
            assert_eq!(profile.total(), other.total());
            let folded = Folded::difference(&other, &profile, Options::default()).text(true);
            assert!(!folded.contains(|c: char| c.is_control() && c != '\n'), "{folded:?}");
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
    }
}
