//! The inputs of the fuzz targets, in fuzz/corpus: those that once reached new code, and those that once failed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use perf_exporter::host::{list, read};
use proptest::prelude::*;

use crate::{
    any_argument, any_btf, any_certificate, any_elf, any_format, any_made, any_metadata, any_perf_data,
    any_record, any_recording, any_request, any_stack, any_stream, any_symbols, any_trace, any_web,
};

/// Checks an input.
type Holds = fn(&[u8]);

/// The fuzz targets, with their checks.
const TARGETS: [(&str, Holds); 17] = [
    ("argument", any_argument::holds),
    ("attribute", any_stream::holds),
    ("btf", any_btf::holds),
    ("certificate", any_certificate::holds),
    ("elf", |bytes| {
        any_elf::holds(bytes);
    }),
    ("format", any_format::holds),
    ("jitdump", |bytes| {
        any_made::dump_holds(bytes);
    }),
    ("metadata", any_metadata::holds),
    ("perf_data", any_perf_data::holds),
    ("perfmap", |bytes| {
        any_made::list_holds(bytes);
    }),
    ("record", any_record::holds),
    ("recording", any_recording::holds),
    ("request", any_request::holds),
    ("stack", |bytes| {
        any_stack::holds(bytes);
    }),
    ("symbols", |bytes| {
        any_symbols::holds(bytes);
    }),
    ("trace", any_trace::holds),
    ("web", any_web::holds),
];

fn dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(name)
}

#[test]
fn every_input_of_the_corpus_holds() {
    for (target, holds) in TARGETS {
        let inputs = list(&dir("corpus").join(target)).unwrap();
        assert!(!inputs.is_empty(), "{target} has no inputs");
        for input in inputs {
            let path = dir("corpus").join(target).join(&input);
            println!("{target}: {}", path.display());
            holds(&read(&path).unwrap());
        }
    }
}

#[test]
fn every_target_is_here() {
    let files = list(&dir("fuzz_targets")).unwrap();
    let names: BTreeSet<String> =
        files.iter().filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    assert_eq!(names, TARGETS.map(|(name, _)| name.to_owned()).into());
}

/// Values of bytes at which lengths change their form, and tags.
const EDGES: [u8; 14] = [0, 1, 0x1f, 0x30, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0xa3, 0xfe, 0xff];

/// Each length and each tag is a byte.
#[test]
fn each_byte_of_a_certificate_may_be_another() {
    for input in list(&dir("corpus").join("certificate")).unwrap() {
        let certificate = read(&dir("corpus").join("certificate").join(&input)).unwrap();
        for at in 0..certificate.len() {
            let mut changed = certificate.clone();
            let near = [certificate[at].wrapping_sub(1), certificate[at].wrapping_add(1)];
            for value in EDGES.into_iter().chain(near) {
                changed[at] = value;
                any_certificate::holds(&changed);
            }
        }
    }
}

proptest! {
    #[test]
    fn any_headers_and_any_query_are_read_or_refused(
        accept in "(application|text|\\*)/[a-z*;=.0-9, -]{0,60}",
        query in "((type|comm|cgroup|seconds|mode|by|limit|format)=[a-z0-9/*%{}?\\[\\]-]{0,12}&?){0,4}",
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        any_request::holds(&[accept.as_bytes(), b"gzip;q=0.5, *", query.as_bytes()].join(&0xff));
        any_request::holds(&bytes);
    }

    #[test]
    fn any_text_is_a_configuration_or_is_refused_with_words_for_a_terminal(
        text in "((listen|web|basic_auth_users|tls_server_config|limits|counters): ?[ -~\n\u{1b}]{0,20}\n){0,4}",
        bytes in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        any_web::holds(text.as_bytes());
        any_web::holds(&bytes);
    }
}
