//! Recordings of perf 6.1 in `tests/data/perf_data`: `perf record` of a program that calls `inner` in `outer`, and forks.

use std::path::Path;

use super::stream::Raw;
use super::*;
use crate::host::{self, Roots};
use crate::profile::{Mode, Origin, Profile, Unit};
use crate::recording::{Recording, read_at};

/// Offset of the size of the data in the header.
const DATA_SIZE: usize = 48;

pub(super) fn file(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/perf_data").join(name);
    host::read(&path).unwrap()
}

/// A machine without any file.
pub(super) fn nowhere() -> Files {
    Files::here(&Roots::under(Path::new("/nonexistent")))
}

fn read(bytes: &[u8]) -> Result<Recording, Invalid> {
    read_at(&bytes, &Options::default(), &nowhere(), None)
}

fn samples(bytes: &[u8]) -> Result<Vec<Sampled>, Invalid> {
    let mut reader = Reader::new(&bytes, &Options::default(), &nowhere())?;
    std::iter::from_fn(|| reader.next_sample().transpose()).collect()
}

fn taken(recording: &Recording) -> u64 {
    recording.profiles.iter().map(Profile::taken).sum()
}

#[test]
fn a_recording_becomes_a_profile_with_the_sums_of_perf() {
    let recording = read(&file("clock.data")).unwrap();
    let [profile] = &recording.profiles[..] else { panic!("{:?}", recording.about.events) };
    assert_eq!((&*profile.kind.name, profile.kind.value.unit), ("cpu-clock", Unit::Nanoseconds));
    assert_eq!((profile.taken(), profile.total()), (93, 93 * 4_000_000));
    assert!(profile.samples.iter().all(|sample| sample.mode == Mode::User && sample.cpu.is_none()));
    let of = |pid: u32| {
        let own = |sample: &&crate::profile::Sample| profile.tasks[sample.task as usize].pid == pid;
        profile.samples.iter().filter(own).map(|sample| sample.count).sum::<u64>()
    };
    assert_eq!((of(24275), of(24347)), (75, 18));
    for task in &profile.tasks {
        assert_eq!(
            (&*task.comm, &*task.program, task.exe.as_deref()),
            ("burn", "burn", Some("/srv/example/burn"))
        );
    }
}

#[test]
fn locations_are_offsets_in_files_and_say_why_they_have_no_name() {
    let recording = read(&file("clock.data")).unwrap();
    let profile = &recording.profiles[0];
    let innermost = profile.locations_of(profile.samples[0].stack).next().unwrap();
    assert_eq!(profile.module(innermost), "/srv/example/burn");
    assert_eq!(innermost.origin, Origin::Native);
    assert!((0x1600..0x1700).contains(&innermost.address), "{innermost:?}");
    let notes = recording.about.notes.join("\n");
    assert!(
        notes.contains("1 files are not on this machine or cannot be read: /srv/example/burn"),
        "{notes}"
    );
}

#[test]
fn the_description_contains_the_machine_and_the_command() {
    let about = read(&file("clock.data")).unwrap().about;
    assert_eq!((about.arch.as_deref(), about.version.as_deref()), (Some("x86_64"), Some("6.1.192")));
    assert_eq!((about.cpus, &*about.command[1]), (Some((2, 2)), "record"));
    assert!(about.memory.is_some() && about.release.is_some() && about.cpu.is_some());
    let (first, last) = about.times.unwrap();
    assert!(first < last);
    let event = &about.events[0];
    assert_eq!((&*event.name, event.frequency, event.period), ("cpu-clock", true, 250));
    assert_eq!(about.lost, super::super::Lost::default());
}

#[test]
fn samples_are_in_the_order_of_time() {
    for name in ["clock.data", "tracepoints.data", "compressed.data"] {
        let samples = samples(&file(name)).unwrap();
        assert!(samples.windows(2).all(|pair| pair[0].time <= pair[1].time), "{name}");
    }
}

#[test]
fn compressed_records_are_read() {
    let recording = read(&file("compressed.data")).unwrap();
    assert_eq!(taken(&recording), 190);
}

#[test]
fn tracepoints_have_their_formats_and_threads_their_names_at_that_time() {
    let bytes = file("tracepoints.data");
    let bytes = &bytes[..];
    let mut reader = Reader::new(&bytes, &Options::default(), &nowhere()).unwrap();
    let events = reader.about().events;
    let names: Vec<&str> = events.iter().map(|event| &*event.name).collect();
    assert_eq!(names, ["sched:sched_process_exec", "sched:sched_process_fork", "sched:sched_process_exit"]);
    let mut lines = Vec::new();
    while let Some(sample) = reader.next_sample().unwrap() {
        let (system, format) = reader.format(events[sample.event].config).unwrap();
        let text = format.printer().print(&sample.raw.unwrap(), &mut |_| None);
        lines.push(format!("{} {system}:{}: {text}", sample.comm, format.name()));
    }
    assert_eq!(lines.len(), 8);
    assert_eq!(lines[0], "sh sched:sched_process_exec: filename=/usr/bin/sh pid=24360 old_pid=24360");
    assert_eq!(lines[1], "sh sched:sched_process_fork: comm=sh pid=24360 child_comm=sh child_pid=24364");
    assert_eq!(lines[3], "true sched:sched_process_exit: comm=true pid=24364 prio=120 group_dead=true");
}

#[test]
fn a_recording_that_was_killed_has_the_records_before_it() {
    let mut bytes = file("clock.data");
    let size = u64::from_le_bytes(bytes[DATA_SIZE..DATA_SIZE + 8].try_into().unwrap()) as usize;
    let offset = u64::from_le_bytes(bytes[DATA_SIZE - 8..DATA_SIZE].try_into().unwrap()) as usize;
    bytes[DATA_SIZE..DATA_SIZE + 8].fill(0);
    bytes.truncate(offset + size);
    let whole = read(&bytes).unwrap();
    assert_eq!(taken(&whole), 93);
    assert!(whole.about.notes[1].starts_with("the recording was not finished"), "{:?}", whole.about.notes);
    bytes.truncate(offset + size - 501);
    let cut = read(&bytes).unwrap();
    assert!((80..93).contains(&taken(&cut)));
    assert!(cut.about.notes.iter().any(|note| note.contains("incomplete")), "{:?}", cut.about.notes);
}

#[test]
fn a_truncated_file_is_an_error_with_its_offset() {
    let bytes = file("tracepoints.data");
    for length in 0..bytes.len() {
        match read(&bytes[..length]) {
            Err(Invalid::Damaged { offset, .. }) => assert!(offset <= length as u64, "{length}: {offset}"),
            // Without the beginning, it is an empty text.
            Err(Invalid::Empty | Invalid::Line { .. } | Invalid::Pprof { .. }) if length < 8 => {}
            other => panic!("{length}: {other:?}"),
        }
    }
}

#[test]
fn changed_bytes_are_an_error_or_a_result() {
    for name in ["clock.data", "tracepoints.data", "compressed.data"] {
        let bytes = file(name);
        for at in 0..bytes.len() {
            // Each byte of the header, and some of the others.
            if at > 400 && at % 13 != 0 {
                continue;
            }
            for value in [0, 0xff, bytes[at] ^ 0x10] {
                let mut changed = bytes.clone();
                changed[at] = value;
                match samples(&changed) {
                    Ok(samples) => assert!(samples.len() <= 1000),
                    Err(error) => assert!(!error.to_string().contains(char::is_control), "{error}"),
                }
            }
        }
    }
}

#[test]
fn a_pipe_and_an_upload_are_rejected_with_a_remedy() {
    let error = read(b"PERFILE2\x10\0\0\0\0\0\0\0").unwrap_err().to_string();
    assert!(error.ends_with("record with -o FILE"), "{error}");
    let error = crate::recording::read(&file("clock.data")).unwrap_err().to_string();
    assert!(error.contains("perf-exporter script --format folded"), "{error}");
}

#[test]
fn samples_of_counts_and_branches_are_skipped_to_their_end() {
    let mut event = Attribute::default();
    let fields = [
        abi::PERF_SAMPLE_IP,
        abi::PERF_SAMPLE_READ,
        abi::PERF_SAMPLE_BRANCH_STACK,
        abi::PERF_SAMPLE_REGS_USER,
        abi::PERF_SAMPLE_STACK_USER,
        abi::PERF_SAMPLE_DATA_SRC,
        abi::PERF_SAMPLE_CGROUP,
    ];
    event.sample = fields.into_iter().map(u64::from).sum();
    (event.read, event.registers) = ((abi::PERF_FORMAT_GROUP | abi::PERF_FORMAT_ID).into(), 0b1011);
    let words: [u64; 20] = [
        0x1234, // IP
        2, 5, 1, 7, 2, // two counts with ids
        1, 8, 9, 10, // a branch
        2, 1, 2, 3, // registers
        8, 99, 8, // the stack
        0, // DATA_SRC
        77, 0, // the cgroup, and an unknown field
    ];
    for big in [false, true] {
        let bytes = |word: u64| if big { word.to_be_bytes() } else { word.to_le_bytes() };
        let body: Vec<u8> = words.into_iter().flat_map(bytes).collect();
        let parsed = sample::sample(&body, &event, big).unwrap();
        assert_eq!((parsed.ip, parsed.cgroup), (Some(0x1234), Some(77)));
        assert_eq!(parsed.registers.map(<[u8]>::len), Some(3 * 8));
        assert_eq!(parsed.stack, Some((&bytes(99)[..], true)));
        for length in 0..body.len() - 8 {
            assert_eq!(sample::sample(&body[..length], &event, big), None, "{length}");
        }
    }
}

#[test]
fn a_forked_process_has_the_mappings_of_its_parent_until_others_replace_them() {
    let record = |kind: u32, misc: u16, body: Vec<u8>| Raw { kind, misc, body: body.into(), offset: 0 };
    let words = |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mapped = [
        words(&[5, 5]),
        0x1000u64.to_le_bytes().into(),
        0x1000u64.to_le_bytes().into(),
        64u64.to_le_bytes().into(),
        b"/bin/x\0\0".to_vec(),
    ];
    let mut machine = Machine::new(features::BuildIds::new(), false);
    let mut apply = |record: Raw| machine.apply(&record, false).unwrap();
    apply(record(abi::PERF_RECORD_MMAP, 2, mapped.concat()));
    apply(record(abi::PERF_RECORD_COMM, 0, [words(&[5, 5]), b"x\0".to_vec()].concat()));
    apply(record(abi::PERF_RECORD_FORK, 0, words(&[6, 5, 6, 5])));
    let frame = machine.frame(6, CpuMode::User, 0x1010);
    assert!(matches!(frame, Frame::File { offset: 0x50, .. }), "{frame:?}");
    assert_eq!(&*machine.names(6, 6).comm, "x");
    let executed = record(abi::PERF_RECORD_COMM, 1 << 13, [words(&[6, 6]), b"y\0".to_vec()].concat());
    machine.apply(&executed, false).unwrap();
    assert_eq!((machine.names(6, 6).exe, machine.names(5, 5).exe.as_deref()), (None, Some("/bin/x")));
    assert_eq!(machine.frame(6, CpuMode::User, 0x1010), frame);
    assert!(matches!(machine.frame(5, CpuMode::User, 0x1010), Frame::File { .. }));
    assert_eq!((&*machine.names(6, 6).comm, &*machine.names(9, 9).comm), ("y", ":9"));
}
