//! Invariants for arbitrary files that are read as recordings of perf. Called by a fuzz target and by a test that keeps the target working.

use std::path::Path;

use perf_exporter::export::timeline;
use perf_exporter::files::Files;
use perf_exporter::host::Roots;
use perf_exporter::recording::perf_data::{Accesses, CountReader, Options, Timeline};
use perf_exporter::recording::{self, Invalid};
use perf_exporter::report::{CacheLines, LineOptions};

/// Checks the bytes as a file, on a machine without files.
pub(crate) fn holds(bytes: &[u8]) {
    let files = Files::here(&Roots::under(Path::new("/nonexistent")));
    match recording::read_at(&bytes, &Options::default(), &files, None) {
        Ok(recording) => {
            assert_eq!(recording.profiles.len(), recording.about.events.len());
            for profile in &recording.profiles {
                for sample in &profile.samples {
                    let stack = &profile.stacks[sample.stack as usize];
                    assert!(
                        stack.iter().all(|&place| (place as usize) < profile.locations.len()),
                        "{stack:?}"
                    );
                    assert!((sample.task as usize) < profile.tasks.len(), "{sample:?}");
                }
            }
            assert!(recording.about.notes.iter().all(|note| !note.contains(char::is_control)));
        }
        Err(Invalid::Damaged { offset, .. }) => assert!(offset <= bytes.len() as u64, "{offset}"),
        Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
    }
    counts(bytes);
    if let Ok(accesses) = Accesses::read_at(&bytes, &Options::default(), &files) {
        for event in &accesses.events {
            assert_eq!(event.accesses.len(), event.profile.samples.len());
            assert!(event.accesses.iter().all(|access| (access.data as usize) < accesses.names.len()));
        }
        let lines = CacheLines::new(&accesses, &LineOptions { all: true, ..LineOptions::default() });
        let is_text = |c: char| c == '\n' || !c.is_control();
        assert!(lines.to_string().chars().all(is_text), "{lines}");
    }
    if let Ok(timeline) = Timeline::read_at(&bytes, &Options::default(), &files, None) {
        for write in [timeline::write_chrome, timeline::write_firefox, timeline::write_speedscope] {
            let mut json = Vec::new();
            write(&timeline, &mut json).unwrap();
            assert_eq!((json.first(), json.trim_ascii_end().last()), (Some(&b'{'), Some(&b'}')));
        }
    }
}

/// Reads the bytes as a recording of counts.
fn counts(bytes: &[u8]) {
    let Ok(mut reader) = CountReader::new(&bytes) else { return };
    loop {
        match reader.next_reading() {
            Ok(Some(reading)) => {
                for count in reading.counts {
                    assert!(count.event < reader.about().events.len(), "{count:?}");
                    assert!(count.thread < reader.threads().len(), "{count:?}");
                    assert!(reader.unit(count.event).1 > 0.0, "{count:?}");
                }
            }
            Ok(None) => break,
            Err(Invalid::Damaged { offset, .. }) => {
                assert!(offset <= bytes.len() as u64, "{offset}");
                break;
            }
            Err(error) => {
                assert!(!error.to_string().contains(char::is_control), "{error}");
                break;
            }
        }
    }
}
