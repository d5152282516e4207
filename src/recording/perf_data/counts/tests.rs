//! Recordings of `perf stat record` 6.1 in `tests/data/perf_data`: of two CPUs with intervals, and of a thread.

use super::*;
use crate::recording::perf_data::tests::{file, nowhere};
use crate::recording::perf_data::{Options, Reader};

fn readings(bytes: &[u8]) -> Result<Vec<Reading>, Invalid> {
    let mut reader = CountReader::new(&bytes)?;
    std::iter::from_fn(|| reader.next_reading().transpose()).collect()
}

#[test]
fn readings_have_the_counts_since_the_previous_one() {
    let bytes = file("counts_cpus.data");
    let bytes = &bytes[..];
    let mut reader = CountReader::new(&bytes).unwrap();
    let first = reader.next_reading().unwrap().unwrap();
    assert_eq!((reader.mode(), reader.has_intervals()), (AggregationMode::Cpu, true));
    assert_eq!((reader.unit(0), reader.unit(1), reader.unit(9)), (("msec", 1e-6), ("", 1.0), ("", 1.0)));
    let names: Vec<&str> = reader.about().events.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["task-clock", "page-faults", "cs"]);
    let [threads] = reader.threads() else { panic!("{:?}", reader.threads()) };
    assert_eq!((threads.tid, &*threads.comm), (u32::MAX, ""));
    let all: Vec<_> =
        [first].into_iter().chain(std::iter::from_fn(|| reader.next_reading().unwrap())).collect();
    let milliseconds: Vec<u128> = all.iter().map(|reading| reading.at.as_millis()).collect();
    assert_eq!(milliseconds, [100, 204, 304]);
    let faults = |reading: &Reading| -> Vec<(Option<u32>, u64)> {
        let counts = reading.counts.iter().filter(|count| count.event == 1);
        counts.map(|count| (count.cpu, count.raw)).collect()
    };
    let faults: Vec<_> = all.iter().map(faults).collect();
    assert_eq!(faults[0], [(Some(0), 5954), (Some(1), 1620)]);
    assert_eq!(faults[1], [(Some(0), 4400), (Some(1), 714)]);
    assert_eq!(faults[2], [(Some(0), 6459), (Some(1), 1600)]);
}

#[test]
fn threads_have_ids_and_names_and_are_on_no_cpu() {
    let bytes = file("counts_threads.data");
    let bytes = &bytes[..];
    let mut reader = CountReader::new(&bytes).unwrap();
    let reading = reader.next_reading().unwrap().unwrap();
    assert_eq!((reader.mode(), reader.has_intervals()), (AggregationMode::Thread, false));
    let [thread] = reader.threads() else { panic!("{:?}", reader.threads()) };
    assert_eq!((thread.tid, &*thread.comm), (26032, "sh"));
    assert!(reading.counts.iter().all(|count| count.cpu.is_none() && count.thread == 0));
    assert_eq!(reading.counts[0].interval.ratio(), Some(1.0));
    assert_eq!(reader.next_reading().unwrap(), None);
}

#[test]
fn the_topology_is_that_of_the_recorded_machine() {
    let bytes = file("counts_cpus.data");
    let bytes = &bytes[..];
    let reader = CountReader::new(&bytes).unwrap();
    let cores = [0, 1, 7].map(|cpu| reader.topology().position(cpu));
    assert_eq!(
        cores.map(|position| (position.socket, position.die, position.core)),
        [(0, 0, 0), (0, 0, 1), (0, 0, 0)]
    );
    assert_eq!(reader.topology().node(1), 0);
}

#[test]
fn a_recording_of_samples_has_no_counts_and_one_of_counts_no_samples() {
    assert_eq!(readings(&file("clock.data")).unwrap(), []);
    let bytes = file("counts_cpus.data");
    let bytes = &bytes[..];
    let mut reader = Reader::new(&bytes, &Options::default(), &nowhere()).unwrap();
    assert!(reader.about().has_counts);
    assert_eq!(reader.next_sample().unwrap(), None);
}

#[test]
fn a_truncated_recording_of_counts_is_an_error_with_its_offset() {
    let bytes = file("counts_cpus.data");
    for length in 0..bytes.len() {
        match readings(&bytes[..length]) {
            Err(Invalid::Damaged { offset, .. }) => assert!(offset <= length as u64, "{length}: {offset}"),
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn changed_bytes_of_counts_are_an_error_or_a_result() {
    for name in ["counts_cpus.data", "counts_threads.data"] {
        let bytes = file(name);
        for at in 0..bytes.len() {
            for value in [0, 0xff, bytes[at] ^ 0x10] {
                let mut changed = bytes.clone();
                changed[at] = value;
                match readings(&changed) {
                    Ok(readings) => assert!(readings.len() <= 3),
                    Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
                }
            }
        }
    }
}
