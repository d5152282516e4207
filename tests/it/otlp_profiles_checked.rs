//! The checker of OTLP profiles: requests that it must accept, and requests that it must reject with a certain rule.

use std::collections::BTreeSet;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles,
    Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

use crate::otlp_profiles::{Rule, check, faults};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn function(name: i32, file: i32) -> Function {
    Function { name_strindex: name, filename_strindex: file, ..Function::default() }
}

fn location(function: i32, line: i64) -> Location {
    let line = Line { function_index: function, line, column: 0 };
    Location { lines: vec![line], ..Location::default() }
}

fn stack(locations: &[i32]) -> Stack {
    Stack { location_indices: locations.to_vec() }
}

fn sample(stack: i32, link: i32, value: i64) -> Sample {
    Sample { stack_index: stack, link_index: link, values: vec![value], ..Sample::default() }
}

/// Returns a CPU profile of 20 Hz for a second, with the first strings of the specification's examples.
fn profile(time: u64, samples: Vec<Sample>) -> Profile {
    Profile {
        sample_type: Some(ValueType { type_strindex: 1, unit_strindex: 2 }),
        samples,
        time_unix_nano: time,
        duration_nano: 1_000_000_000,
        period_type: Some(ValueType { type_strindex: 3, unit_strindex: 4 }),
        period: 50_000_000,
        ..Profile::default()
    }
}

fn request(
    dictionary: ProfilesDictionary,
    resource: Option<Resource>,
    profile: Profile,
) -> ExportProfilesServiceRequest {
    let scope = ScopeProfiles { profiles: vec![profile], ..ScopeProfiles::default() };
    let resource_profiles =
        vec![ResourceProfiles { resource, scope_profiles: vec![scope], ..ResourceProfiles::default() }];
    ExportProfilesServiceRequest { resource_profiles, dictionary: Some(dictionary) }
}

/// Returns "Simple CPU profile" of the specification's `data-format.md`.
fn simple() -> ExportProfilesServiceRequest {
    let dictionary = ProfilesDictionary {
        string_table: strings(&[
            "",
            "samples",
            "count",
            "cpu",
            "nanoseconds",
            "main",
            "foo",
            "bar",
            "baz",
            "main.go",
            "foo.go",
            "bar.go",
            "baz.go",
        ]),
        function_table: vec![
            Function::default(),
            function(5, 9),
            function(6, 10),
            function(7, 11),
            function(8, 12),
        ],
        location_table: vec![
            Location::default(),
            location(1, 10),
            location(2, 20),
            location(3, 30),
            location(4, 40),
        ],
        stack_table: vec![Stack::default(), stack(&[3, 2, 1]), stack(&[4, 1])],
        mapping_table: vec![Mapping::default()],
        link_table: vec![Link::default()],
        attribute_table: vec![KeyValueAndUnit::default()],
    };
    request(dictionary, None, profile(1_234_567_890_000_000_000, vec![sample(1, 0, 3), sample(2, 0, 2)]))
}

/// Returns "CPU profile with resource attributes and span link" of the same file.
fn linked() -> ExportProfilesServiceRequest {
    let dictionary = ProfilesDictionary {
        string_table: strings(&[
            "",
            "samples",
            "count",
            "cpu",
            "nanoseconds",
            "handleRequest",
            "db.Query",
            "server.go",
            "db.go",
            "service.name",
            "process.executable.name",
            "my-service",
            "my-service.bin",
        ]),
        function_table: vec![Function::default(), function(5, 7), function(6, 8)],
        location_table: vec![Location::default(), location(1, 45), location(2, 112)],
        stack_table: vec![Stack::default(), stack(&[2, 1]), stack(&[1])],
        link_table: vec![
            Link::default(),
            Link {
                trace_id: 0x1122_aabb_ccdd_eeff_0000_0000_0000_0000_u128.to_be_bytes().into(),
                span_id: 0xff01_0203_0405_0607_u64.to_be_bytes().into(),
            },
        ],
        mapping_table: vec![Mapping::default()],
        attribute_table: vec![KeyValueAndUnit::default()],
    };
    let pair = |key, text| KeyValue {
        key_strindex: key,
        value: Some(AnyValue { value: Some(Value::StringValueStrindex(text)) }),
        ..KeyValue::default()
    };
    let resource = Resource { attributes: vec![pair(9, 11), pair(10, 12)], ..Resource::default() };
    request(
        dictionary,
        Some(resource),
        profile(2_000_000_000_000_000_000, vec![sample(1, 1, 5), sample(2, 0, 3)]),
    )
}

/// Returns the simple profile with a mapping that has a build id.
fn mapped() -> ExportProfilesServiceRequest {
    let mut request = simple();
    let dictionary = request.dictionary.as_mut().unwrap();
    dictionary.string_table.extend(strings(&["process.executable.build_id.gnu", "/bin/a"]));
    dictionary.attribute_table.push(attribute(13, "abcd"));
    dictionary.mapping_table.push(Mapping {
        memory_start: 0x1000,
        memory_limit: 0x2000,
        filename_strindex: 14,
        attribute_indices: vec![1],
        ..Mapping::default()
    });
    dictionary.location_table[1].mapping_index = 1;
    request
}

fn attribute(key: i32, text: &str) -> KeyValueAndUnit {
    let value = Some(AnyValue { value: Some(Value::StringValue(text.to_owned())) });
    KeyValueAndUnit { key_strindex: key, value, unit_strindex: 0 }
}

fn broken(request: &ExportProfilesServiceRequest) -> BTreeSet<Rule> {
    faults(request).into_iter().map(|(rule, _)| rule).collect()
}

#[test]
fn the_examples_of_the_specification_are_taken_and_their_references_noticed() {
    assert_eq!(faults(&simple()), []);
    assert_eq!(broken(&linked()), BTreeSet::from([Rule::Reference]));
    assert_eq!(faults(&mapped()), []);
    let bytes = simple().encode_to_vec();
    assert!(check(&bytes, bytes.len()).is_ok());
    let too_large = check(&bytes, bytes.len() - 1).unwrap_err();
    assert!(matches!(too_large[..], [(Rule::Size, _)]), "{too_large:?}");
}

type Break = fn(&mut ProfilesDictionary, &mut Profile);

/// Changes that break exactly one rule.
const BROKEN: [(Rule, &str, Break); 35] = [
    (Rule::Index, "a stack", |_, profile| profile.samples.push(sample(3, 0, 1))),
    (Rule::Index, "a negative stack", |_, profile| profile.samples.push(sample(-1, 0, 1))),
    (Rule::Index, "a link", |_, profile| profile.samples.push(sample(1, 1, 1))),
    (Rule::Index, "a location", |tables, _| tables.stack_table[1].location_indices.push(5)),
    (Rule::Index, "a mapping", |tables, _| tables.location_table[2].mapping_index = 2),
    (Rule::Index, "a function", |tables, _| {
        tables.location_table[2].lines.push(Line { function_index: 9, ..Line::default() });
    }),
    (Rule::Index, "a text", |tables, _| tables.function_table[2].system_name_strindex = 99),
    (Rule::Index, "an attribute", |_, profile| profile.attribute_indices.push(7)),
    (Rule::Index, "the unit of a period", |_, profile| {
        profile.period_type = Some(ValueType { type_strindex: 3, unit_strindex: 99 });
    }),
    (Rule::Zero, "no links", |tables, _| {
        tables.link_table = vec![Link { trace_id: vec![0; 16], span_id: vec![0; 8] }];
    }),
    (Rule::Zero, "a text", |tables, _| tables.string_table[0] = "nothing".to_owned()),
    (Rule::Zero, "a mapping", |tables, _| tables.mapping_table[0].file_offset = 1),
    (Rule::Duplicate, "a text", |tables, _| tables.string_table[12] = "bar.go".to_owned()),
    (Rule::Duplicate, "a stack", |tables, profile| {
        tables.stack_table.push(stack(&[4, 1]));
        profile.samples.push(sample(3, 0, 1));
    }),
    (Rule::Orphan, "a text", |tables, _| tables.string_table.push("unused".to_owned())),
    (Rule::Orphan, "a stack", |tables, _| tables.stack_table.push(stack(&[1]))),
    (Rule::Orphan, "a link", |tables, _| {
        tables.link_table.push(Link { trace_id: vec![1; 16], span_id: vec![1; 8] });
    }),
    (Rule::Shape, "neither values nor times", |_, profile| profile.samples[0].values.clear()),
    (Rule::Shape, "values of which some have times", |_, profile| {
        let sample = &mut profile.samples[0];
        (sample.values, sample.timestamps_unix_nano) = (vec![1, 2], vec![profile.time_unix_nano]);
    }),
    (Rule::Shape, "samples with and without times", |_, profile| {
        profile.samples[0].timestamps_unix_nano = vec![profile.time_unix_nano];
    }),
    (Rule::OneValue, "two values", |_, profile| profile.samples[0].values.push(1)),
    (Rule::Identity, "the same sample", |_, profile| profile.samples.push(sample(1, 0, 9))),
    (Rule::Time, "the end", |_, profile| {
        let end = profile.time_unix_nano + profile.duration_nano;
        profile.samples.iter_mut().for_each(|sample| sample.timestamps_unix_nano = vec![end]);
    }),
    (Rule::Time, "before the beginning", |_, profile| {
        let before = profile.time_unix_nano - 1;
        profile.samples.iter_mut().for_each(|sample| sample.timestamps_unix_nano = vec![before]);
    }),
    (Rule::BuildId, "another attribute", |tables, _| {
        tables.string_table[13] = "process.executable.name".to_owned();
    }),
    (Rule::Key, "one key twice", |tables, profile| {
        tables.attribute_table.push(attribute(13, "other"));
        profile.samples[0].attribute_indices = vec![1, 2];
    }),
    (Rule::Key, "no key", |tables, profile| {
        tables.attribute_table.push(attribute(0, "other"));
        profile.samples[0].attribute_indices = vec![2];
    }),
    (Rule::Key, "nothing", |_, profile| profile.samples[0].attribute_indices = vec![0]),
    (Rule::Reference, "a value", |tables, _| {
        tables.attribute_table[1].value = Some(AnyValue { value: Some(Value::StringValueStrindex(1)) });
    }),
    (Rule::Range, "a mapping", |tables, _| tables.mapping_table[1].memory_limit = 0x1000),
    (Rule::Range, "a line", |tables, _| tables.location_table[1].lines[0].line = -1),
    (Rule::Link, "a short span", |tables, profile| {
        tables.link_table.push(Link { trace_id: vec![1; 16], span_id: vec![1; 7] });
        profile.samples[0].link_index = 1;
    }),
    (Rule::Function, "a line number alone", |tables, _| {
        tables.function_table.push(Function { start_line: 3, ..Function::default() });
        let line = Line { function_index: 5, ..Line::default() };
        tables.location_table[1].lines.push(line);
    }),
    (Rule::Type, "none", |_, profile| {
        profile.sample_type = None;
        profile.period_type = Some(ValueType { type_strindex: 1, unit_strindex: 2 });
        profile.original_payload_format = "pprof".to_owned();
        profile.original_payload = vec![3, 4];
    }),
    (Rule::Original, "a format alone", |_, profile| profile.original_payload_format = "pprof".to_owned()),
];

#[test]
fn whatever_breaks_a_rule_is_refused_for_that_rule() {
    for (rule, what, breaks) in BROKEN {
        let mut request = mapped();
        let profile = &mut request.resource_profiles[0].scope_profiles[0].profiles[0];
        breaks(request.dictionary.as_mut().unwrap(), profile);
        let mut found = broken(&request);
        // An entry that is no longer referenced is an orphan as well.
        if rule != Rule::Orphan {
            found.remove(&Rule::Orphan);
        }
        assert_eq!(found, BTreeSet::from([rule]), "{what}: {:?}", faults(&request));
    }
}

#[test]
fn a_table_without_entries_is_refused() {
    let mut request = simple();
    request.dictionary.as_mut().unwrap().attribute_table.clear();
    assert_eq!(broken(&request), BTreeSet::from([Rule::Zero]));
}

#[test]
fn numbers_of_profiles_are_16_bytes_and_nobody_elses() {
    for (numbers, good) in [
        ([vec![1; 16], vec![2; 16]], true),
        ([vec![], vec![]], true),
        ([vec![1; 16], vec![1; 16]], false),
        ([vec![1; 15], vec![]], false),
        ([vec![0; 16], vec![]], false),
    ] {
        let mut request = simple();
        let profiles = &mut request.resource_profiles[0].scope_profiles[0].profiles;
        profiles.push(profiles[0].clone());
        for (profile, number) in profiles.iter_mut().zip(&numbers) {
            profile.profile_id.clone_from(number);
        }
        let expected = if good { BTreeSet::new() } else { BTreeSet::from([Rule::Number]) };
        assert_eq!(broken(&request), expected, "{numbers:?}");
    }
}

#[test]
fn keys_of_a_resource_are_there_once() {
    let mut request = simple();
    let pair = |key: &str| KeyValue { key: key.to_owned(), ..KeyValue::default() };
    let resource = Resource { attributes: vec![pair("a"), pair("b")], ..Resource::default() };
    request.resource_profiles[0].resource = Some(resource);
    assert_eq!(faults(&request), []);
    request.resource_profiles[0].resource.as_mut().unwrap().attributes.push(pair("a"));
    assert_eq!(broken(&request), BTreeSet::from([Rule::Key]));
}
