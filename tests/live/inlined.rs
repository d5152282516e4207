//! Inlined functions and source lines of programs that spend their time in inlined code.

use std::io::Read;

use flate2::read::GzDecoder;
use prost::Message;

use crate::support::program::Program;
use crate::support::service::{Service, get_bytes, get_path};
use crate::support::{Feature, lacks};

/// The part of pprof's messages that contains functions and lines.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}

impl Profile {
    fn of(service: &Service, query: &str) -> Self {
        let packed = get_bytes(&service.address, &format!("/debug/pprof/profile?{query}"));
        let mut bytes = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
        Self::decode(&bytes[..]).unwrap()
    }

    /// Returns name, file and line of each function of each location, innermost first.
    fn levels(&self) -> Vec<Vec<(&str, &str, i64)>> {
        let text = |place: i64| &*self.string_table[usize::try_from(place).unwrap()];
        let level = |line: &Line| {
            let function = self.function.iter().find(|function| function.id == line.function_id).unwrap();
            (text(function.name), text(function.filename), line.line)
        };
        self.location.iter().map(|location| location.line.iter().map(level).collect()).collect()
    }
}

/// Returns the number of the source line that contains a mark.
fn marked(source: &str, mark: &str) -> i64 {
    let at = source.lines().position(|line| line.ends_with(mark)).unwrap();
    i64::try_from(at + 1).unwrap()
}

fn profiling(lines: bool) -> Service {
    Service::start_fresh(&format!(
        "counters: {{os: {{events: [context-switches], per: [cpu]}}}}\n\
         profiles: {{cpu: {{event: cpu-clock, frequency: 499, stack: 2KiB, lines: {lines}}}}}\n"
    ))
}

fn lacks_profiles() -> bool {
    lacks(Feature::Compiler) || lacks(Feature::Software)
}

/// Asserts that the program's hot loop is shown in its inlined function, below the functions that it was inlined into.
fn inlined_functions_are_shown(program: &Program, source: &str, marks: [&str; 3], path: &str, prefix: &str) {
    let service = profiling(true);
    let mut running = program.start();
    let name = |name: &str| format!("{prefix}{name}");
    let (innermost, middle, outermost) = (name("innermost"), name("middle"), name("outermost"));
    let hot = format!("{outermost};{middle}_[i];{innermost}_[i]");
    let query = format!("type=cpu&pid={}", running.pid());
    let [in_innermost, in_middle, in_outermost] = marks.map(|mark| marked(source, mark));
    let is_hot = |levels: &Vec<(&str, &str, i64)>| {
        let at = levels.iter().position(|(name, ..)| *name == innermost);
        at.is_some_and(|at| {
            let callers = [(&*middle, in_middle), (&*outermost, in_outermost)];
            levels[at].2 == in_innermost
                && levels[at..].iter().all(|(_, file, _)| file.ends_with(path))
                && levels[at + 1..].iter().map(|(name, _, line)| (*name, *line)).eq(callers)
        })
    };
    // A pprof request samples while it waits. On a loaded machine a second may have no samples.
    let mut last = Profile::default();
    let found = (0..15).any(|_| {
        running.told("spins 1500");
        last = Profile::of(&service, &format!("{query}&seconds=1"));
        running.answers();
        last.levels().iter().any(is_hot)
    });
    assert!(found, "{:#?}", last.levels());
    let (_, folded) = get_path(&service.address, &format!("/folded?{query}"));
    assert!(folded.contains(&hot), "{hot}:\n{folded}");
    let (_, top) = get_path(&service.address, &format!("/top?{query}&format=text"));
    assert!(top.contains(&innermost), "{top}");
    let metrics = service.metrics();
    let known = metrics.sum("perf_frames_without_line_total", &[("reason", "damaged")]);
    assert_eq!(known, 0.0, "{metrics:?}");
}

#[test]
fn functions_of_c_that_were_inlined_have_their_names_and_lines() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_inlining("inlining");
    let source = include_str!("../data/programs/inlining.c");
    let marks = ["/* hot */", "/* in the middle */", "/* outermost */"];
    inlined_functions_are_shown(&program, source, marks, "/inlining.c", "");
}

#[test]
fn functions_of_rust_that_were_inlined_have_their_names_and_lines() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_inlining_rust("inlining-rust");
    let source = include_str!("../data/programs/inlining.rs");
    let marks = ["// hot", "// in the middle", "// outermost"];
    inlined_functions_are_shown(&program, source, marks, "/inlining.rs", "inlining::");
}

#[test]
fn without_lines_what_was_inlined_belongs_to_its_caller() {
    if lacks_profiles() {
        return;
    }
    let program = Program::compile_inlining("not-inlining");
    let service = profiling(false);
    let mut running = program.start();
    running.does("spins 500");
    let (_, folded) = get_path(&service.address, &format!("/folded?type=cpu&pid={}", running.pid()));
    assert!(folded.contains(";outermost ") && !folded.contains("innermost"), "{folded}");
    assert_eq!(service.metrics().by("perf_frames_without_line_total", "reason").count(), 0);
}
