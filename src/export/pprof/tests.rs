use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;

use flate2::read::GzDecoder;
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::profile::sample_profiles::{any_profile, example, hostile, native, task};
use crate::profile::{Kind, Mode, Origin, Sample as Counted, sample_profiles::Builder};

/// Messages of `perftools.profiles`, as declared in pprof's `profile.proto`.
mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub(super) sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub(super) sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub(super) mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub(super) location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub(super) function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub(super) string_table: Vec<String>,
        #[prost(int64, tag = "7")]
        pub(super) drop_frames: i64,
        #[prost(int64, tag = "8")]
        pub(super) keep_frames: i64,
        #[prost(int64, tag = "9")]
        pub(super) time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub(super) duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub(super) period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub(super) period: i64,
        #[prost(int64, repeated, packed = "false", tag = "13")]
        pub(super) comment: Vec<i64>,
        #[prost(int64, tag = "14")]
        pub(super) default_sample_type: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(super) struct ValueType {
        #[prost(int64, tag = "1")]
        pub(super) r#type: i64,
        #[prost(int64, tag = "2")]
        pub(super) unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub(super) location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub(super) value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub(super) label: Vec<Label>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Label {
        #[prost(int64, tag = "1")]
        pub(super) key: i64,
        #[prost(int64, tag = "2")]
        pub(super) str: i64,
        #[prost(int64, tag = "3")]
        pub(super) num: i64,
        #[prost(int64, tag = "4")]
        pub(super) num_unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub(super) memory_limit: u64,
        #[prost(uint64, tag = "4")]
        pub(super) file_offset: u64,
        #[prost(int64, tag = "5")]
        pub(super) filename: i64,
        #[prost(int64, tag = "6")]
        pub(super) build_id: i64,
        #[prost(bool, tag = "7")]
        pub(super) has_functions: bool,
        #[prost(bool, tag = "8")]
        pub(super) has_filenames: bool,
        #[prost(bool, tag = "9")]
        pub(super) has_line_numbers: bool,
        #[prost(bool, tag = "10")]
        pub(super) has_inline_frames: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Location {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(uint64, tag = "2")]
        pub(super) mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub(super) address: u64,
        #[prost(message, repeated, tag = "4")]
        pub(super) line: Vec<Line>,
        #[prost(bool, tag = "5")]
        pub(super) is_folded: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Line {
        #[prost(uint64, tag = "1")]
        pub(super) function_id: u64,
        #[prost(int64, tag = "2")]
        pub(super) line: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Function {
        #[prost(uint64, tag = "1")]
        pub(super) id: u64,
        #[prost(int64, tag = "2")]
        pub(super) name: i64,
        #[prost(int64, tag = "3")]
        pub(super) system_name: i64,
        #[prost(int64, tag = "4")]
        pub(super) filename: i64,
        #[prost(int64, tag = "5")]
        pub(super) start_line: i64,
    }
}

impl proto::Profile {
    fn text(&self, place: i64) -> &str {
        &self.string_table[usize::try_from(place).unwrap()]
    }

    fn value_type(&self, of: proto::ValueType) -> String {
        format!("{}/{}", self.text(of.r#type), self.text(of.unit))
    }

    fn types(&self) -> Vec<String> {
        self.sample_type.iter().map(|&of| self.value_type(of)).collect()
    }

    /// Returns the names of a sample, outermost first.
    fn names(&self, sample: &proto::Sample) -> Vec<&str> {
        let lines = sample.location_id.iter().flat_map(|&id| &self.location[id as usize - 1].line);
        let names = lines.map(|line| self.text(self.function[line.function_id as usize - 1].name));
        let mut names: Vec<_> = names.collect();
        names.reverse();
        names
    }

    fn labels(&self, sample: &proto::Sample) -> BTreeMap<&str, String> {
        let value = |label: &proto::Label| match label.str {
            0 => label.num.to_string(),
            place => self.text(place).to_owned(),
        };
        sample.label.iter().map(|label| (self.text(label.key), value(label))).collect()
    }
}

/// Decodes a profile and checks the rules of pprof's `CheckValid` and further rules of the format.
fn decode(profile: &Profile) -> proto::Profile {
    let mut bytes = Vec::new();
    GzDecoder::new(encode(profile).unwrap().as_slice()).read_to_end(&mut bytes).unwrap();
    let decoded = proto::Profile::decode(bytes.as_slice()).unwrap();
    // The message has no unknown fields.
    assert_eq!(decoded.encoded_len(), bytes.len());
    assert_eq!(decoded.string_table[0], "");
    let mut texts = decoded.string_table.clone();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), decoded.string_table.len(), "a text stands twice in the table");
    let ids = |ids: Vec<u64>| assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
    ids(decoded.mapping.iter().map(|mapping| mapping.id).collect());
    ids(decoded.location.iter().map(|location| location.id).collect());
    ids(decoded.function.iter().map(|function| function.id).collect());
    for sample in &decoded.sample {
        assert_eq!(sample.value.len(), decoded.sample_type.len());
        assert!(sample.location_id.iter().all(|&id| (1..=decoded.location.len() as u64).contains(&id)));
        assert!(sample.label.iter().all(|label| label.str == 0 || label.num == 0));
    }
    for location in &decoded.location {
        assert!(location.mapping_id <= decoded.mapping.len() as u64);
        assert!(!location.line.is_empty());
        assert!(
            location.line.iter().all(|line| (1..=decoded.function.len() as u64).contains(&line.function_id))
        );
    }
    let period_type = decoded.period_type.unwrap();
    assert_eq!(decoded.default_sample_type, period_type.r#type);
    decoded
}

/// Lists the content of a profile, one item per line.
fn listing(decoded: &proto::Profile) -> String {
    let mut text = String::new();
    let out = &mut text;
    writeln!(out, "{} default {}", decoded.types().join(" "), decoded.text(decoded.default_sample_type))
        .unwrap();
    let period_type = decoded.value_type(decoded.period_type.unwrap());
    let (time, duration) = (decoded.time_nanos, decoded.duration_nanos);
    writeln!(out, "time {time} duration {duration} period {} {period_type}", decoded.period).unwrap();
    decoded.comment.iter().for_each(|&place| writeln!(out, "# {}", decoded.text(place)).unwrap());
    for m in &decoded.mapping {
        let (file, build_id) = (decoded.text(m.filename), decoded.text(m.build_id));
        let (start, limit, offset) = (m.memory_start, m.memory_limit, m.file_offset);
        let flags = [m.has_functions, m.has_filenames, m.has_line_numbers, m.has_inline_frames];
        writeln!(out, "M{} {start:#x}-{limit:#x} @{offset:#x} {file} {build_id} {flags:?}", m.id).unwrap();
    }
    for location in &decoded.location {
        write!(out, "L{} M{} {:#x}", location.id, location.mapping_id, location.address).unwrap();
        for line in &location.line {
            let function = &decoded.function[line.function_id as usize - 1];
            write!(out, " {}:{}", decoded.text(function.name), line.line).unwrap();
        }
        out.push('\n');
    }
    for sample in &decoded.sample {
        writeln!(out, "{:?} {:?} {:?}", sample.value, sample.location_id, decoded.labels(sample)).unwrap();
    }
    text
}

#[test]
fn the_profile_is_as_recorded() {
    insta::assert_snapshot!(listing(&decode(&example())));
}

#[test]
fn equal_profiles_are_equal_bytes() {
    assert_eq!(encode(&example()).unwrap(), encode(&example()).unwrap());
}

#[test]
fn a_sample_that_is_one_event_is_counted_once() {
    let mut builder = Builder::default();
    let value = crate::profile::ValueType { name: "page-faults".into(), unit: Unit::Count };
    builder.0.kind = Kind { name: "faults".into(), value, period: Some(1) };
    builder.add(&task(1, "a", "/"), Mode::User, 7, &[native("/bin/a", "main")]);
    let decoded = decode(&builder.0);
    assert_eq!(decoded.types(), ["page-faults/count"]);
    assert_eq!(decoded.sample[0].value, [7]);
    builder.0.kind.period = Some(1000);
    builder.0.samples[0].value = 7000;
    let decoded = decode(&builder.0);
    assert_eq!(decoded.types(), ["samples/count", "page-faults/count"]);
    assert_eq!(decoded.sample[0].value, [7, 7000]);
}

#[test]
fn the_first_mapping_is_the_program_with_most_of_the_values() {
    let decoded = decode(&example());
    assert_eq!(decoded.text(decoded.mapping[0].filename), "/usr/bin/node");
    let mut builder = Builder::default();
    builder.add(
        &task(1, "a", "/"),
        Mode::User,
        7,
        &[native("/lib/libc.so.6", "x"), native("/lib/b.so", "y")],
    );
    let decoded = decode(&builder.0);
    assert_eq!(decoded.text(decoded.mapping[0].filename), "/lib/b.so");
}

#[test]
fn a_place_without_a_function_shows_and_can_still_be_looked_up() {
    let decoded = decode(&example());
    let sample = decoded.sample.iter().find(|sample| sample.value[0] == 9).unwrap();
    let innermost = &decoded.location[sample.location_id[0] as usize - 1];
    let mapping = &decoded.mapping[innermost.mapping_id as usize - 1];
    assert_eq!(decoded.text(mapping.filename), "/usr/lib/libstripped.so.3");
    assert!(!mapping.has_functions && mapping.build_id != 0);
    assert!((mapping.memory_start..mapping.memory_limit).contains(&innermost.address));
    // Converts the address to the file's own address as pprof does.
    let address = innermost.address - mapping.memory_start + mapping.file_offset;
    let name = format!("libstripped.so.3+{address:#x}");
    assert_eq!(decoded.names(sample).last(), Some(&name.as_str()));
}

#[test]
fn no_file_is_where_another_one_is() {
    let mut taken: Vec<(u64, u64)> = (decode(&example()).mapping.iter())
        .map(|mapping| (mapping.memory_start, mapping.memory_limit))
        .collect();
    taken.sort_unstable();
    assert!(taken.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{taken:x?}");
}

#[test]
fn a_name_of_any_length_is_bounded_and_cannot_talk_to_a_terminal() {
    let decoded = decode(&hostile());
    assert!(decoded.string_table.iter().all(|text| text.len() <= TEXT + 3));
    assert!(decoded.string_table.iter().all(|text| !text.contains(char::is_control)));
}

#[test]
fn samples_of_a_container_have_its_names() {
    let pod = crate::container::Pod { namespace: "shop".into(), name: "web-0".into(), uid: "u-1".into() };
    let identity = crate::container::Identity {
        pod: Some(pod),
        container: Some("app".into()),
        labels: vec![("tier".into(), "front".into())],
        ..Default::default()
    };
    let mut profile = example();
    let task = profile.samples[0].task;
    profile.tasks[task as usize].container = Some(identity.into());
    let decoded = decode(&profile);
    for (told, sample) in decoded.sample.iter().zip(&profile.samples) {
        let labels = decoded.labels(told);
        let names = ["namespace", "pod", "container"].map(|key| labels.get(key).map(String::as_str));
        let expected = if sample.task == task { ["shop", "web-0", "app"].map(Some) } else { [None; 3] };
        assert_eq!(names, expected);
        assert!(!labels.contains_key("tier"), "what is chosen for metrics is for metrics");
    }
}

#[test]
fn a_profile_without_samples_is_one() {
    let decoded = decode(&Profile::default());
    assert_eq!((decoded.sample.len(), decoded.types().len()), (0, 2));
}

#[test]
fn what_refers_to_nothing_is_left_out() {
    let mut profile = example();
    profile.samples[0].stack = u32::MAX;
    profile.samples[1].task = u32::MAX;
    profile.stacks[2] = [0, u32::MAX].into();
    profile.locations[0].lines = vec![crate::profile::Line { function: u32::MAX, line: 1 }];
    profile.locations[1].mapping = Some(u32::MAX);
    decode(&profile);
}

proptest! {
    #[test]
    fn a_profile_says_what_it_was_made_of(mut profile in any_profile()) {
        // Samples that differ only in their CPU are one sample.
        let mut told = std::collections::BTreeSet::new();
        profile.samples.retain(|sample| told.insert((sample.stack, sample.task, sample.mode)));
        let decoded = decode(&profile);
        prop_assert_eq!(decoded.sample.len(), profile.samples.len());
        for (sample, original) in decoded.sample.iter().zip(&profile.samples) {
            prop_assert_eq!(*sample.value.last().unwrap(), original.value as i64);
            let mut names = Vec::new();
            for location in profile.locations_of(original.stack) {
                names.extend(profile.names(location).into_iter().map(|name| clean(name, TEXT)));
            }
            names.reverse();
            prop_assert_eq!(decoded.names(sample), names);
            let labels = decoded.labels(sample);
            prop_assert_eq!(&labels["pid"], &profile.tasks[original.task as usize].pid.to_string());
            prop_assert_eq!(&labels["mode"], original.mode.as_str());
        }
        prop_assert!(profile.locations.iter().all(|location| location.origin != Origin::Jit || location.mapping.is_none()));
    }
}

#[test]
fn cpus_are_not_told_apart() {
    let (mut plain, mut by_cpu) = (example(), example());
    plain.samples.iter_mut().for_each(|sample| (sample.count, sample.value) = (3, 30));
    let split = |sample: &Counted| {
        [(1, 10), (2, 20)].map(|(count, value)| {
            let cpu = Some(count as u16);
            Counted { cpu, count, value, ..*sample }
        })
    };
    by_cpu.samples = by_cpu.samples.iter().flat_map(split).collect();
    assert_eq!(message(&plain), message(&by_cpu));
}
