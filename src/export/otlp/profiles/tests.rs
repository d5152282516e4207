use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::profiles::v1development::{Profile as Told, ProfilesDictionary, Sample};
use proptest::prelude::*;

use super::*;
use crate::clean::clean;
use crate::container::Identity;
use crate::export::otlp::attribute::Attribute;
use crate::profile::sample_profiles::{Builder, any_profile, example, hostile, jit, kernel, native, task};
use crate::profile::{FileHash, Kind, Mapping, Mode, Task, Unit, ValueType};
use crate::targets::ProcessContext;

#[path = "../../../../tests/support/otlp_profiles.rs"]
mod checker;
mod live;
mod replay;

const CONTAINER: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

fn host() -> Resource {
    Resource::new([Attribute::text("host.name", "node-1"), Attribute::text("service.name", "perf-exporter")])
}

/// Decodes the requests and asserts that each follows the rules and the limit.
#[track_caller]
fn requests(encoded: &Encoded, options: &Options) -> Vec<ExportProfilesServiceRequest> {
    let read = |payload: &Payload| {
        let request =
            checker::check(&payload.bytes, options.limit).unwrap_or_else(|faults| panic!("{faults:#?}"));
        let samples: usize = profiles(&request).map(|(_, profile)| profile.samples.len()).sum();
        assert_eq!(payload.items, samples as u64);
        assert!(
            profiles(&request).all(|(_, profile)| (1..=options.samples).contains(&profile.samples.len()))
        );
        request
    };
    encoded.payloads.iter().map(read).collect()
}

/// Encodes all profiles as one request.
#[track_caller]
fn request(profiles: &[Profile]) -> ExportProfilesServiceRequest {
    let options = Options::default();
    let encoded = encode(profiles, &host(), &options);
    assert_eq!(encoded.left_out, 0);
    let [request] = &requests(&encoded, &options)[..] else { panic!("{} requests", encoded.payloads.len()) };
    request.clone()
}

/// Returns the profiles with their resources.
fn profiles(
    request: &ExportProfilesServiceRequest,
) -> impl Iterator<Item = (BTreeMap<String, String>, &Told)> {
    request.resource_profiles.iter().flat_map(|of_resource| {
        let pairs = of_resource.resource.iter().flat_map(|resource| &resource.attributes);
        let resource: BTreeMap<String, String> = pairs
            .map(|pair| (pair.key.clone(), text(pair.value.as_ref().and_then(|value| value.value.as_ref()))))
            .collect();
        let profiles = of_resource.scope_profiles.iter().flat_map(|of_scope| &of_scope.profiles);
        profiles.map(move |profile| (resource.clone(), profile))
    })
}

fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => panic!("{other:?}"),
    }
}

fn attributes(dictionary: &ProfilesDictionary, places: &[i32]) -> BTreeMap<String, String> {
    let pair = |&place: &i32| {
        let attribute = &dictionary.attribute_table[place as usize];
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        (dictionary.string_table[attribute.key_strindex as usize].clone(), text(value))
    };
    places.iter().map(pair).collect()
}

/// Returns the functions of a sample, innermost first, with their frame types.
fn frames(dictionary: &ProfilesDictionary, sample: &Sample) -> Vec<String> {
    let string = |place: i32| &*dictionary.string_table[place as usize];
    let stack = &dictionary.stack_table[sample.stack_index as usize];
    let mut frames = Vec::new();
    for &place in &stack.location_indices {
        let location = &dictionary.location_table[place as usize];
        for line in &location.lines {
            frames.push(
                string(dictionary.function_table[line.function_index as usize].name_strindex).to_owned(),
            );
        }
    }
    frames
}

fn types(dictionary: &ProfilesDictionary, profile: &Told) -> String {
    let of = |kind: Option<opentelemetry_proto::tonic::profiles::v1development::ValueType>| {
        kind.map_or("none".to_owned(), |kind| {
            let string = |place: i32| &*dictionary.string_table[place as usize];
            format!("{}/{}", string(kind.type_strindex), string(kind.unit_strindex))
        })
    };
    format!("{} of {} {}", of(profile.sample_type), profile.period, of(profile.period_type))
}

/// Formats a request as text.
fn shown(request: &ExportProfilesServiceRequest) -> String {
    let dictionary = request.dictionary.as_ref().unwrap();
    let mut shown = String::new();
    for (resource, profile) in profiles(request) {
        writeln!(shown, "resource {resource:?}").unwrap();
        let (start, duration) = (profile.time_unix_nano, profile.duration_nano);
        writeln!(shown, "profile {} from {start} for {duration}", types(dictionary, profile)).unwrap();
        writeln!(shown, "  {:?}", attributes(dictionary, &profile.attribute_indices)).unwrap();
        for sample in &profile.samples {
            let of = attributes(dictionary, &sample.attribute_indices);
            writeln!(shown, "  {:?} {of:?}", sample.values).unwrap();
            writeln!(shown, "    {}", frames(dictionary, sample).join(" < ")).unwrap();
        }
    }
    for mapping in dictionary.mapping_table.iter().skip(1) {
        let path = &dictionary.string_table[mapping.filename_strindex as usize];
        let (start, limit, offset) = (mapping.memory_start, mapping.memory_limit, mapping.file_offset);
        let ids = attributes(dictionary, &mapping.attribute_indices);
        writeln!(shown, "mapping {path} {start:#x}-{limit:#x} at {offset:#x} {ids:?}").unwrap();
    }
    for location in dictionary.location_table.iter().skip(1) {
        let of = attributes(dictionary, &location.attribute_indices);
        let name = location.lines.first().map(|line| {
            let function = &dictionary.function_table[line.function_index as usize];
            &dictionary.string_table[function.name_strindex as usize]
        });
        writeln!(shown, "location {name:?} {} {:#x} {of:?}", location.mapping_index, location.address)
            .unwrap();
    }
    shown
}

#[test]
fn a_minute_of_a_machine_is_told_in_full() {
    insta::assert_snapshot!(shown(&request(&[example()])));
}

#[test]
fn equal_profiles_become_equal_bytes() {
    let encoded = || encode(&[example(), hostile()], &host(), &Options::default());
    assert_eq!(encoded(), encoded());
    let seeded = encode(&[example()], &host(), &Options { seed: 1, ..Options::default() });
    assert_ne!(encoded().payloads[0].bytes, seeded.payloads[0].bytes, "another exporter has other numbers");
}

#[test]
fn names_that_are_meant_to_do_harm_are_bounded_and_break_no_rule() {
    let request = request(&[hostile()]);
    let strings = &request.dictionary.as_ref().unwrap().string_table;
    assert!(strings.iter().all(|text| text.len() <= (16 << 10) + 3 && !text.contains('\u{1b}')));
}

#[test]
fn nothing_is_sent_of_profiles_without_samples() {
    assert_eq!(encode(&[Profile::default()], &host(), &Options::default()), Encoded::default());
    assert_eq!(encode(&[], &host(), &Options::default()), Encoded::default());
}

#[test]
fn what_is_not_in_its_table_is_left_out() {
    let mut profile = example();
    profile.samples[0].stack = u32::MAX;
    profile.samples[1].task = u32::MAX;
    profile.stacks[2] = Box::new([0, u32::MAX]);
    profile.locations[1].mapping = Some(u32::MAX);
    profile.locations[2].lines = vec![crate::profile::Line { function: u32::MAX, line: 1 }];
    let taken: u64 = profile.taken();
    let told: i64 = profiles(&request(&[profile]))
        .flat_map(|(_, told)| &told.samples)
        .map(|sample| sample.values[0])
        .sum();
    assert_eq!(told.cast_unsigned(), taken);
}

/// Creates one sample of an empty stack for each task.
fn of_tasks(tasks: &[Task]) -> Profile {
    let mut builder = Builder::default();
    builder.0.kind.period = Some(1000);
    for task in tasks {
        builder.add(task, Mode::User, 1, &[native("/bin/a", "main")]);
    }
    builder.0
}

#[test]
fn a_container_and_a_service_in_it_have_resources_of_their_own() {
    let pod = "0a1b2c3d-0011-2233-4455-66778899aabb";
    let in_pod = format!("/kubepods/pod{pod}/{CONTAINER}");
    let context =
        |name| ProcessContext::new([("service.name", name), ("service.version", "7")]).map(Arc::new);
    let tasks = [
        task(1, "init", "/init.scope"),
        task(2, "nginx", "/system.slice/nginx.service"),
        task(3, "sh", &in_pod),
        Task { context: context("shop"), ..task(4, "shop", &in_pod) },
        Task { context: context("shop"), ..task(5, "shop", &format!("{in_pod}/below")) },
        Task { context: context("shop"), ..task(6, "shop", "/user.slice") },
        Task { cgroup: None, ..task(7, "gone", "") },
    ];
    let request = request(&[of_tasks(&tasks), of_tasks(&tasks[..1])]);
    let dictionary = request.dictionary.clone().unwrap();
    let found: Vec<(String, String)> = profiles(&request)
        .map(|(mut resource, profile)| {
            assert_eq!(resource.remove("host.name").as_deref(), Some("node-1"));
            let pids = profile.samples.iter().map(|sample| {
                attributes(&dictionary, &sample.attribute_indices).remove("process.pid").unwrap()
            });
            let pids: Vec<String> = pids.collect();
            (resource.into_values().collect::<Vec<_>>().join(" "), pids.join(" "))
        })
        .collect();
    let of = |resource: &str, pids: &str| (resource.to_owned(), pids.to_owned());
    let expected = [
        of("perf-exporter", "1 2 7"),
        of("perf-exporter", "1"),
        of("shop 7", "6"),
        of(&format!("{CONTAINER} {pod} perf-exporter"), "3"),
        of(&format!("{CONTAINER} {pod} shop 7"), "4 5"),
    ];
    assert_eq!(found, expected);
    assert_eq!(request.resource_profiles.len(), 4);
}

#[test]
fn a_container_has_the_names_that_its_runtime_tells() {
    let pod = crate::container::Pod { namespace: "shop".into(), name: "web-0".into(), uid: "u-1".into() };
    let identity = |pod, service: Option<&str>| {
        let service = service.map(Into::into);
        Some(Arc::new(Identity { pod, container: Some("app".into()), service, ..Identity::default() }))
    };
    let context = ProcessContext::new([("service.name", "said by itself")]).map(Arc::new);
    let in_container = |pid| task(pid, "app", &format!("/docker/{CONTAINER}"));
    let tasks = [
        Task { container: identity(Some(pod.clone()), None), ..in_container(1) },
        Task { container: identity(Some(pod.clone()), Some("chosen")), ..in_container(2) },
        Task { container: identity(Some(pod), Some("chosen")), context, ..in_container(3) },
        Task { container: identity(None, None), ..in_container(4) },
    ];
    let told: Vec<String> = profiles(&request(&[of_tasks(&tasks)]))
        .map(|(resource, _)| {
            let keys = [
                "k8s.namespace.name",
                "k8s.pod.name",
                "k8s.container.name",
                "container.name",
                "service.name",
            ];
            keys.map(|key| resource.get(key).map_or("-", String::as_str)).join(" ")
        })
        .collect();
    let expected = [
        "- - - app perf-exporter",
        "shop web-0 app - perf-exporter",
        "shop web-0 app - chosen",
        "shop web-0 app - said by itself",
    ];
    assert_eq!(BTreeSet::from_iter(told.iter().map(String::as_str)), BTreeSet::from(expected));
}

#[test]
fn a_sample_says_who_did_what_where() {
    let who = Task { exe: Some("/usr/bin/shop".into()), tid: 8, ..task(7, "worker", "/a") };
    let mut profile = of_tasks(&[who.clone(), who]);
    (profile.samples[0].cpu, profile.samples[1].mode) = (Some(3), Mode::Preempted);
    let request = request(&[profile]);
    let dictionary = request.dictionary.as_ref().unwrap();
    let (_, told) = profiles(&request).next().unwrap();
    let of = |at: usize| attributes(dictionary, &told.samples[at].attribute_indices);
    let own = |rest: &[(&str, &str)]| -> BTreeMap<String, String> {
        let all = [
            ("process.pid", "7"),
            ("perf.comm", "worker"),
            ("process.executable.name", "shop"),
            ("process.executable.path", "/usr/bin/shop"),
            ("perf.cgroup", "/a"),
            ("thread.id", "8"),
            ("thread.name", "worker"),
        ];
        all.iter().chain(rest).map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    };
    assert_eq!(of(0), own(&[("cpu.mode", "user"), ("cpu.logical_number", "3")]));
    assert_eq!(of(1), own(&[("thread.state", "preempted")]));
}

#[test]
fn files_have_all_the_build_ids_that_are_known_and_others_one_of_their_path() {
    let mut profile = of_tasks(&[task(1, "a", "/")]);
    let hash = FileHash::of_words("something");
    let go = Some("a/b/c/d".into());
    let mappings = [
        Mapping { hash, go_build_id: go, ..profile.mappings[0].clone() },
        Mapping { path: "[kernel.kallsyms]".into(), ..profile.mappings[0].clone() },
        Mapping { path: "/gone".into(), build_id: None, start: 7, limit: 7, ..Mapping::default() },
        Mapping { path: "/gone/too".into(), ..Mapping::default() },
    ];
    profile.mappings = mappings.into();
    profile.locations = (0..4)
        .map(|mapping| crate::profile::Location { mapping: Some(mapping), ..profile.locations[0].clone() })
        .collect();
    profile.stacks[0] = (0..4).collect();
    let request = request(&[profile]);
    let dictionary = request.dictionary.as_ref().unwrap();
    let ids = |at: usize| -> Vec<(String, String)> {
        let of = attributes(dictionary, &dictionary.mapping_table[at].attribute_indices);
        of.into_iter()
            .map(|(key, id)| (key.trim_start_matches("process.executable.build_id.").to_owned(), id))
            .collect()
    };
    let pair = |key: &str, id: &str| (key.to_owned(), id.to_owned());
    let hash = hash.unwrap().to_string();
    assert_eq!(ids(1), [pair("gnu", "2f62696e"), pair("go", "a/b/c/d"), pair("htlhash", &hash)]);
    assert_eq!(ids(2), [pair("gnu", "2f62696e")]);
    let [(gone, too)] = [(ids(3), ids(4))];
    assert!(gone.len() == 1 && gone[0].0 == "htlhash" && gone[0].1.len() == 32, "{gone:?}");
    assert_ne!(gone, too);
}

#[test]
fn a_frame_has_the_most_precise_type_that_is_known() {
    let mut builder = Builder::default();
    let stack = [
        kernel("vfs_read"),
        native("/bin/a", "main"),
        native("/bin/a", "_RNvCs1_1a3foo"),
        native("/bin/go", "main.main"),
        native("/bin/go", "malloc"),
        jit("LazyCompile:*f a.js:1"),
        jit("f"),
    ];
    builder.add(&task(1, "a", "/"), Mode::User, 1, &stack);
    let go = builder.0.mappings.iter_mut().find(|mapping| &*mapping.path == "/bin/go");
    go.unwrap().go_build_id = Some("a/b".into());
    let request = request(&[builder.0]);
    let dictionary = request.dictionary.as_ref().unwrap();
    let mut kinds: Vec<Option<String>> = (dictionary.location_table.iter().skip(1))
        .map(|location| attributes(dictionary, &location.attribute_indices).remove("profile.frame.type"))
        .collect();
    kinds.reverse();
    let expected = ["kernel", "native", "rust", "go", "native", "v8js"].map(|kind| Some(kind.to_owned()));
    assert_eq!((&kinds[..6], &kinds[6]), (&expected[..], &None));
}

#[test]
fn times_off_the_cpu_and_events_have_types_and_periods_of_their_own() {
    let of = |name: &str, unit, period| {
        let mut profile = of_tasks(&[task(1, "a", "/")]);
        (profile.samples[0].count, profile.samples[0].value) = (3, 3000);
        profile.kind = Kind { name: name.into(), value: ValueType { name: name.into(), unit }, period };
        profile
    };
    let request = request(&[
        of("cpu", Unit::Nanoseconds, Some(1000)),
        of("off_cpu", Unit::Nanoseconds, None),
        of("page-faults", Unit::Count, Some(1)),
    ]);
    let dictionary = request.dictionary.as_ref().unwrap();
    let told: Vec<(String, i64)> = profiles(&request)
        .map(|(_, profile)| (types(dictionary, profile), profile.samples[0].values[0]))
        .collect();
    let expected = [
        ("samples/count of 1000 cpu/nanoseconds", 3),
        ("off_cpu/nanoseconds of 0 none", 3000),
        ("events/count of 1 page-faults/count", 3000),
    ];
    assert_eq!(told, expected.map(|(types, value)| (types.to_owned(), value)));
}

#[test]
fn a_sample_that_is_larger_than_a_request_is_dropped_and_counted() {
    let mut builder = Builder::default();
    let (small, long) = ([native("/bin/a", "main")], "x".repeat(10_000));
    builder.add(&task(1, "a", "/"), Mode::User, 1, &small);
    builder.add(&task(1, "a", "/"), Mode::User, 1, &[native("/bin/a", &long)]);
    builder.add(&task(2, "b", "/"), Mode::User, 1, &small);
    let options = Options { limit: 2000, ..Options::default() };
    let encoded = encode(&[builder.0], &host(), &options);
    let samples: u64 = encoded.payloads.iter().map(|payload| payload.items).sum();
    requests(&encoded, &options);
    assert_eq!((encoded.left_out, samples), (1, 2));
    let nothing = encode(&[example()], &host(), &Options { limit: 10, ..options });
    assert_eq!(nothing, Encoded { payloads: vec![], left_out: example().samples.len() as u64 });
}

/// Returns the content of profiles: values by type, container, thread, mode, CPU and functions.
fn said(profiles: &[Profile]) -> BTreeMap<String, u64> {
    let mut said = BTreeMap::<_, u64>::new();
    for profile in profiles {
        let types = Types::of(&profile.kind);
        for sample in &profile.samples {
            let task = &profile.tasks[sample.task as usize];
            let container = task.cgroup.as_deref().and_then(crate::targets::ContainerPath::of);
            let container = container.map(|container| container.id).unwrap_or_default();
            let frames: Vec<String> = (profile.locations_of(sample.stack))
                .flat_map(|location| profile.names(location))
                .map(|name| if name.is_empty() { "[unknown]" } else { name })
                .map(|name| clean(name, 16 << 10).into_owned())
                .collect();
            let (tid, mode) = (task.tid, sample.mode.as_str());
            let cpu = sample.cpu.map(|cpu| cpu.to_string()).unwrap_or_default();
            let key = format!("{} {container} {tid} {mode} {cpu} {frames:?}", types.sample.0);
            *said.entry(key).or_default() += (types.value)(sample);
        }
    }
    said
}

fn told(requests: &[ExportProfilesServiceRequest]) -> BTreeMap<String, u64> {
    let mut told = BTreeMap::<_, u64>::new();
    for request in requests {
        let dictionary = request.dictionary.as_ref().unwrap();
        for (resource, profile) in profiles(request) {
            let kind = profile.sample_type.unwrap().type_strindex;
            for sample in &profile.samples {
                let mut of = attributes(dictionary, &sample.attribute_indices);
                let mut of = |key: &str| of.remove(key).unwrap_or_default();
                let container = resource.get("container.id").map_or("", |id| id);
                let mode = of("cpu.mode") + &of("thread.state");
                let (tid, cpu) = (of("thread.id"), of("cpu.logical_number"));
                let kind = &dictionary.string_table[kind as usize];
                let key = format!("{kind} {container} {tid} {mode} {cpu} {:?}", frames(dictionary, sample));
                *told.entry(key).or_default() += sample.values[0].cast_unsigned();
            }
        }
    }
    told
}

/// Profiles of some containers and services on some CPUs.
fn any_profiles() -> impl Strategy<Value = Vec<Profile>> {
    let choices = prop::collection::vec((0u16..3, 0..4), 1..8);
    prop::collection::vec((any_profile(), choices), 1..4).prop_map(|profiles| {
        let context = ProcessContext::new([("service.name", "shop")]).map(Arc::new);
        let varied = |(mut profile, choices): (Profile, Vec<(u16, i32)>)| {
            for (sample, (cpu, _)) in profile.samples.iter_mut().zip(choices.iter().cycle()) {
                sample.cpu = cpu.checked_sub(1);
            }
            for (task, (_, whose)) in profile.tasks.iter_mut().zip(choices.iter().cycle()) {
                let container = format!("/docker/{CONTAINER}");
                match whose {
                    0 => task.cgroup = None,
                    1 => task.cgroup = Some(container.into()),
                    2 => (task.cgroup, task.context) = (Some(container.into()), context.clone()),
                    _ => {}
                }
            }
            profile
        };
        profiles.into_iter().map(varied).collect()
    })
}

proptest! {
    #[test]
    fn any_profiles_keep_to_the_rules_and_lose_nothing_however_they_are_split(
        profiles in any_profiles(), limit in 1500usize..6000, samples in 1usize..9
    ) {
        let whole = Options::default();
        let encoded = encode(&profiles, &host(), &whole);
        prop_assert_eq!(told(&requests(&encoded, &whole)), said(&profiles));
        let options = Options { limit, samples, seed: 7 };
        let split = encode(&profiles, &host(), &options);
        let found = told(&requests(&split, &options));
        if split.left_out == 0 {
            prop_assert_eq!(found, said(&profiles));
        } else {
            let said = said(&profiles);
            prop_assert!(found.iter().all(|(key, value)| said.get(key).is_some_and(|said| value <= said)));
        }
    }
}

#[test]
fn sums_stay_what_an_integer_of_64_bits_can_be() {
    let mut profile = of_tasks(&[task(1, "a", "/"), task(1, "a", "/")]);
    profile.samples.iter_mut().for_each(|sample| sample.count = u64::MAX);
    let request = request(&[profile]);
    let values: Vec<&Vec<i64>> =
        profiles(&request).flat_map(|(_, told)| &told.samples).map(|sample| &sample.values).collect();
    assert_eq!(values, [&[i64::MAX]]);
}
