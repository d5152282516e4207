//! The same timeline in each format.

use std::io::{self, Write};
use std::sync::Arc;

use serde_json::Value;

use super::{write_chrome, write_firefox, write_speedscope};
use crate::clock::Timestamp;
use crate::profile::{Function, Kind, Line, Location, Profile, Task, Unit, ValueType};
use crate::recording::About;
use crate::recording::perf_data::{TimedSample, Timeline};
use crate::stack::BuildId;
use crate::symbol::{Origin, Segment};

fn function(name: &str, file: Option<&str>) -> Function {
    Function { name: name.into(), linkage: name.into(), file: file.map(Into::into) }
}

fn location(mapping: u32, address: u64, functions: &[u32], origin: Origin) -> Location {
    let lines = functions.iter().map(|&function| Line { function, line: 7 }).collect();
    Location { mapping: Some(mapping), address, lines, origin, unknown: None }
}

fn task(pid: u32, tid: u32, comm: &str) -> Task {
    Task { pid, tid, comm: comm.into(), program: "web".into(), ..Task::default() }
}

fn kind(name: &str, unit: Unit) -> Kind {
    Kind { name: name.into(), value: ValueType { name: name.into(), unit }, period: Some(1_000_000) }
}

/// Two threads of a process: one in a program with an inlined function, one in the kernel. The latter has a hostile name.
fn timeline() -> Timeline {
    let build_id = Some(BuildId([0xab; 20].into()));
    let program = Segment { path: "/bin/web".into(), build_id, ..Segment::default() };
    let kernel = Segment { path: "[kernel.kallsyms]".into(), ..Segment::default() };
    let unknown = Location {
        lines: Vec::new(),
        unknown: Some("web+0x99".into()),
        ..location(0, 0x99, &[], Origin::Native)
    };
    let tables = Profile {
        functions: vec![
            function("main", Some("main.c")),
            function("inner", Some("inner.h")),
            function("work", None),
            function("vfs_read", None),
        ],
        mappings: vec![program, kernel],
        locations: vec![
            location(0, 0x1010, &[0], Origin::Native),
            location(0, 0x2020, &[1, 2], Origin::Native),
            location(1, 0xffff_ffff_8100_0000, &[3], Origin::Kernel),
            unknown,
        ],
        stacks: vec![[1, 0].into(), [2, 0].into(), [3].into(), [].into()],
        tasks: vec![task(7, 7, "web"), task(7, 8, "\"},\u{7}\n\u{202e}x")],
        ..Profile::default()
    };
    let sample =
        |time, stack, task| TimedSample { time, value: 1_000_000, event: 0, stack, task, cpu: Some(1) };
    Timeline {
        about: About {
            command: ["perf", "record", "web"].map(Arc::from).to_vec(),
            written: Some(Timestamp(1_700_000_000_000)),
            ..About::default()
        },
        kinds: vec![kind("cpu-clock", Unit::Nanoseconds), kind("dummy", Unit::Count)],
        tables,
        samples: vec![
            sample(5_000_000_000, 0, 0),
            sample(5_001_000_000, 1, 1),
            sample(5_002_000_000, 0, 0),
            sample(5_003_000_500, 2, 0),
            sample(5_004_000_000, 3, 1),
        ],
    }
}

fn written(write: fn(&Timeline, &mut dyn Write) -> io::Result<()>, timeline: &Timeline) -> Value {
    let mut bytes = Vec::new();
    write(timeline, &mut bytes).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn speedscope_gets_a_profile_for_each_thread_with_stacks_from_the_outermost_function_on() {
    let file = written(write_speedscope, &timeline());
    insta::assert_snapshot!(serde_json::to_string_pretty(&file).unwrap());
}

#[test]
fn chrome_gets_an_instant_for_each_sample_and_a_tree_of_stack_frames() {
    let file = written(write_chrome, &timeline());
    insta::assert_snapshot!(serde_json::to_string_pretty(&file).unwrap());
}

#[test]
fn firefox_gets_threads_with_functions_of_modules_and_categories() {
    let file = written(write_firefox, &timeline());
    let threads = file["threads"].as_array().unwrap();
    let names: Vec<&str> = threads.iter().map(|thread| thread["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["web", r#""},\u{7}\n\u{202e}x 8"#]);
    assert_eq!(file["meta"]["symbolicated"], true);
    let ended = 1_700_000_000_000.0 - 4.0;
    assert!((file["meta"]["startTime"].as_f64().unwrap() - ended).abs() < 1.0, "{}", file["meta"]);
    assert_eq!(stacks(&file, 0), ["main@web;work;inner", "main@web;work;inner", "web+0x99"]);
    assert_eq!(stacks(&file, 1), ["main@web;vfs_read", ""]);
    assert_eq!(file["libs"].as_array().unwrap().len(), 1);
    assert_eq!(file["libs"][0]["codeId"], "ab".repeat(20));
}

/// Returns the stacks of the samples of a thread, outermost first, with the modules of functions that have one. It reads the tables as the
/// description of the format does.
fn stacks(file: &Value, thread: usize) -> Vec<String> {
    let thread = &file["threads"][thread];
    let text = |place: &Value| thread["stringArray"][place.as_u64().unwrap() as usize].as_str().unwrap();
    let at = |table: &str, column: &str, place: u64| thread[table][column][place as usize].clone();
    let name = |stack: u64| {
        let frame = at("stackTable", "frame", stack).as_u64().unwrap();
        let function = at("frameTable", "func", frame).as_u64().unwrap();
        let name = text(&at("funcTable", "name", function));
        match at("funcTable", "resource", function).as_u64() {
            Some(resource) => format!("{name}@{}", text(&at("resourceTable", "name", resource))),
            None => name.to_owned(),
        }
    };
    let samples = thread["samples"]["stack"].as_array().unwrap().iter();
    let whole = |sample: &Value| {
        let (mut names, mut stack) = (Vec::new(), sample.as_u64());
        while let Some(place) = stack {
            names.insert(0, name(place));
            stack = at("stackTable", "prefix", place).as_u64();
        }
        names.join(";")
    };
    samples.map(whole).collect()
}
