//! Tests of `recording` with files of this exporter and of other programs.

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::folded::{self, Folded, Root};
use super::pprof;
use crate::clean::clean;
use crate::profile::Profile;
use crate::profile::sample_profiles::{any_profile, example};
use crate::recording::{ENTRIES, INFLATED, align, read};

fn folded(profile: &Profile) -> String {
    Folded::new(profile, folded::Options { root: Root::Comm, annotated: true }).text(true)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_pprof_file_has_the_stacks_and_tasks_that_were_written() {
    let written = example();
    let read = read(&pprof::encode(&written).unwrap()).unwrap();
    assert_eq!(folded(&read), folded(&written));
    assert_eq!((read.total(), read.taken()), (written.total(), written.taken()));
    assert_eq!((read.start, read.duration), (written.start, written.duration));
    assert_eq!((&read.kind.name, read.kind.value.unit), (&written.kind.value.name, written.kind.value.unit));
    let cgroups = |profile: &Profile| {
        Folded::new(profile, folded::Options { root: Root::Cgroup, annotated: true }).text(true)
    };
    assert_eq!(cgroups(&read), cgroups(&written));
}

#[test]
fn folded_stacks_have_the_same_lines_again() {
    let text = folded(&example());
    assert_eq!(folded(&read(text.as_bytes()).unwrap()), text);
    assert_eq!(folded(&read(&gzip(text.as_bytes())).unwrap()), text);
}

#[test]
fn lines_of_other_tools_are_read() {
    let text = "# a comment\n\njava;[unknown];Interpreter;void Foo::bar(int, char) 12.6\r\nswapper 3\nsh;a b;c_[k] 1\nsh;a b;c_[k] 1\n";
    let read = read(text.as_bytes()).unwrap();
    assert_eq!(
        folded(&read),
        "java;[unknown];Interpreter;void Foo::bar(int, char) 13\nsh;a b;c_[k] 2\nswapper 3\n"
    );
}

#[test]
fn what_is_no_profile_is_refused_with_the_place() {
    let refused = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let table: [(&[u8], &str); 9] = [
        (b"", "the file has no samples"),
        (b"# nothing\n", "the file has no samples"),
        (b"a;b 1\na;b\n", "line 2 is not a folded stack: it has no value after a space"),
        (b"a;b 1\na;b -1\n", "line 2 is not a folded stack: its value is not a number"),
        (
            b"a;b 1 2\n",
            "line 1 is not a folded stack: it has two values, as in the comparison of two profiles",
        ),
        (b"<html>\n", "line 1 is not a folded stack: it has no value after a space"),
        (b"\x0a\xff", "the file is not a pprof profile: a damaged field at byte 0"),
        (b"\x32\x05\0abc", "the file is not a pprof profile: a field that is cut off at byte 0"),
        (
            b"PERFILE2\0\0\0\0",
            "the file is a recording of perf: convert it with perf-exporter script --format folded",
        ),
    ];
    for (bytes, sentence) in table {
        assert_eq!(refused(bytes), sentence, "{bytes:?}");
    }
    let whole = pprof::encode(&example()).unwrap();
    assert!(refused(&whole[..whole.len() / 2]).starts_with("the file cannot be decompressed: "));
}

#[test]
fn a_small_file_cannot_become_large() {
    let zeros = gzip(&vec![b'a'; INFLATED + 1]);
    assert!(zeros.len() < 1 << 20);
    assert_eq!(
        read(&zeros).unwrap_err().to_string(),
        "the file has more than 16777216 bytes after decompression"
    );
    // Empty texts: two bytes each.
    let texts = [0x32, 0].repeat(ENTRIES + 1);
    assert_eq!(read(&texts).unwrap_err().to_string(), "the file has more than 262144 texts");
    let ids = (1..=ENTRIES as u32 + 1).flat_map(|id| {
        let id = [id as u8 | 0x80, (id >> 7) as u8 | 0x80, (id >> 14) as u8];
        [&[0x2a, 4, 8][..], &id].concat()
    });
    let functions: Vec<u8> = [0x0a, 0].into_iter().chain(ids).collect();
    assert_eq!(read(&functions).unwrap_err().to_string(), "the file has more than 262144 functions");
    let deep = (0..200).map(|line| format!("{line}{} 1\n", ";f".repeat(30_000))).collect::<String>();
    assert!(read(deep.as_bytes()).is_ok_and(|profile| profile.stacks.len() == 1));
    let deep = (0..200).map(|line| format!("a;{line}{} 1\n", ";f".repeat(30_000))).collect::<String>();
    assert_eq!(read(deep.as_bytes()).unwrap_err().to_string(), "the file has more than 4194304 frames");
}

#[test]
fn functions_are_those_of_the_modules_of_the_compared_profile() {
    let this = example();
    let mut recording = read(folded(&this).as_bytes()).unwrap();
    align(&mut recording, &this);
    let modules = |profile: &Profile| {
        let mut all: Vec<(String, String)> = (profile.locations.iter())
            .filter(|location| !location.lines.is_empty())
            .map(|location| (profile.names(location).join(" "), profile.module(location).to_owned()))
            .collect();
        all.sort();
        all.dedup();
        all
    };
    // Both nginx and node have this one.
    let mut expected = modules(&this);
    expected.retain(|(name, _)| name != "_start");
    let found = modules(&recording);
    assert!(expected.iter().all(|function| found.contains(function)), "{expected:?} {found:?}");
}

/// Returns the profile with its texts as the encoder writes them: control characters, also white space, are replaced.
fn cleaned(mut profile: Profile) -> Profile {
    let clean = |text: &Arc<str>| Arc::from(&*clean(text, 16 << 10));
    profile.tasks.iter_mut().for_each(|task| task.comm = clean(&task.comm));
    profile.functions.iter_mut().for_each(|function| function.name = clean(&function.name));
    let unknown = profile.locations.iter_mut().filter_map(|location| location.unknown.as_mut());
    unknown.for_each(|text| *text = clean(text));
    profile
}

proptest! {
    #[test]
    fn any_profile_survives_pprof(profile in any_profile()) {
        prop_assume!(!profile.samples.is_empty());
        let read = read(&pprof::encode(&profile).unwrap()).unwrap();
        prop_assert_eq!(read.total(), profile.total());
        let profile = cleaned(profile);
        prop_assert_eq!(
            Folded::new(&read, folded::Options { root: Root::Comm, annotated: false }).text(true),
            Folded::new(&profile, folded::Options { root: Root::Comm, annotated: false }).text(true)
        );
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in any::<Vec<u8>>()) {
        drop(read(&bytes));
    }

    #[test]
    fn no_mutation_of_a_file_is_too_strange(place in any::<prop::sample::Index>(), byte in any::<u8>(), end in any::<prop::sample::Index>()) {
        let mut inflated = Vec::new();
        GzDecoder::new(&*pprof::encode(&example()).unwrap()).read_to_end(&mut inflated).unwrap();
        let place = place.index(inflated.len());
        inflated[place] = byte;
        drop(read(&inflated));
        inflated.truncate(end.index(inflated.len()));
        drop(read(&inflated));
    }

    #[test]
    fn no_text_is_too_strange(text in "([a-c ;_#\\[\\]kij0-9.-]{0,12}\n?){0,8}") {
        drop(read(text.as_bytes()));
    }
}
