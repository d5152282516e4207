//! Tables of samples as perf 6.1 prints them. `tests/data/report` has the samples of a recording (`perf script -F
//! comm,tid,cpu,time,period,event,ip,sym,dso`) and the reports of the same recording, without their tips.

use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::host::read_text;
use crate::profile::numbered::Numbered;
use crate::profile::{Function, Kind, Line, Location, Mapping, Mode, Origin, Sample, Task, Unit, ValueType};

fn data(name: &str) -> String {
    read_text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/report").join(name)).unwrap()
}

/// Reads samples as `perf script` prints them.
fn scripted(text: &str) -> Profile {
    let name: Arc<str> = "cpu-clock:pppH".into();
    let kind = Kind { name: Arc::clone(&name), value: ValueType { name, unit: Unit::Count }, period: None };
    let mut profile = Profile { kind, ..Profile::default() };
    let (mut tasks, mut functions, mut mappings) =
        (Numbered::default(), Numbered::default(), Numbered::default());
    let (mut locations, mut stacks) = (Numbered::default(), Numbered::default());
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let mut lines = block.lines();
        let words: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        let [comm, tid, cpu, _, period, _] = words[..] else { panic!("{words:?}") };
        let tid = tid.parse().unwrap();
        let task = Task { tid, pid: tid, comm: comm.into(), ..Task::default() };
        let frame = |line: &str| {
            let (address, rest) = line.trim().split_once(' ').unwrap();
            let (name, module) = rest.split_once(" (").unwrap();
            let path: Arc<str> = module.trim_end_matches(')').into();
            let is_kernel = path.starts_with('[');
            let name: Arc<str> = name.into();
            let function = functions.place(Function { linkage: Arc::clone(&name), name, file: None });
            let mapping = Mapping { path, ..Mapping::default() };
            locations.place(Location {
                mapping: (!is_kernel).then(|| mappings.place(mapping)),
                address: u64::from_str_radix(address, 16).unwrap(),
                lines: vec![Line { function, line: 0 }],
                origin: if is_kernel { Origin::Kernel } else { Origin::Native },
                unknown: None,
            })
        };
        let stack: Box<[u32]> = lines.map(frame).collect();
        profile.samples.push(Sample {
            stack: stacks.place(stack),
            task: tasks.place(task),
            mode: Mode::User,
            cpu: Some(cpu.trim_matches(['[', ']']).parse().unwrap()),
            count: 1,
            value: period.parse().unwrap(),
        });
    }
    (profile.tasks, profile.functions, profile.mappings) = (tasks.values, functions.values, mappings.values);
    (profile.locations, profile.stacks) = (locations.values, stacks.values);
    profile
}

/// Returns the table without its heading.
fn table(profile: &Profile, options: &Options) -> String {
    Entries::new(profile, options).to_string()
}

#[test]
fn tables_and_call_trees_are_those_of_perf_line_for_line() {
    let profile = scripted(&data("two.script"));
    let children = Options::default();
    let own = Options { children: false, chains: Chains::Callee(0.5), ..Options::default() };
    let parent = Some(regex::Regex::new("^vfs|^outer").unwrap());
    let by = |sort: &[Key]| Options { sort: sort.to_vec(), ..Options::default() };
    let mut wrong = Vec::new();
    for (name, options) in [
        ("children", Options { chains: Chains::Caller(2.0), ..children }),
        ("no-children", own.clone()),
        ("caller", Options { chains: Chains::Caller(2.0), ..own }),
        ("cpu", Options { chains: Chains::None, counts: true, ..by(&[Key::Symbol, Key::Cpu]) }),
        ("pid", Options { chains: Chains::Callee(3.0), ..by(&[Key::Pid, Key::Dso]) }),
        (
            "limit",
            Options { percent_limit: 6.0, chains: Chains::Caller(6.0), ..by(&[Key::Symbol, Key::Comm]) },
        ),
        ("parent", Options { chains: Chains::None, parent, ..by(&[Key::Parent, Key::Dso]) }),
    ] {
        let expected = data(name);
        let (_, expected) = expected.split_once("# Event count (approx.): ").unwrap();
        let (_, expected) = expected.split_once("\n#\n").unwrap();
        let made = table(&profile, &options);
        let (made, expected) = (made.trim_end(), expected.trim_end());
        let pair = made.lines().zip(expected.lines()).find(|(line, expected)| line != expected);
        if pair.is_some() || made.len() != expected.len() {
            wrong.push(format!("{name}: {pair:?}\n{made}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_call_chain_of_any_length_has_a_table_of_limited_size() {
    let mut profile = Profile::default();
    for number in 0..10_000 {
        let name: Arc<str> = format!("f{number}").into();
        profile.functions.push(Function { linkage: Arc::clone(&name), name, file: None });
        let lines = vec![Line { function: number, line: 0 }];
        let (mapping, address, origin) = (None, u64::from(number), Origin::Native);
        profile.locations.push(Location { mapping, address, lines, origin, unknown: None });
    }
    profile.stacks.push((0..10_000).collect());
    profile.tasks.push(Task::default());
    profile.samples.push(Sample { stack: 0, task: 0, mode: Mode::User, cpu: None, count: 1, value: 1 });
    let made = table(&profile, &Options::default());
    assert!(made.contains("f511") && !made.contains("f512"));
}

#[test]
fn entries_are_limited_to_names_and_a_column_with_one_name_is_left_out() {
    let profile = scripted(&data("two.script"));
    let only = |comms: &[&str], symbols: &[&str]| Only {
        comms: comms.iter().map(|&name| name.to_owned()).collect(),
        symbols: symbols.iter().map(|&name| name.to_owned()).collect(),
        dsos: Vec::new(),
    };
    let flat = |only| Options { children: false, chains: Chains::None, only, ..Options::default() };
    let lines = |options: &Options| {
        table(&profile, options).lines().map(str::trim_end).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&flat(only(&["two"], &["inner"]))),
        ["# Overhead  Shared Object", "# ........  .............", "#", "    35.62%  two", ""]
    );
    let both = lines(&flat(only(&["two", "other"], &["inner"])));
    assert_eq!(both[3..], ["    35.62%  two      two", "    34.25%  other    two", ""]);
}

#[test]
fn a_difference_has_the_largest_change_first_and_functions_of_one_side() {
    let profile = scripted(&data("two.script"));
    let mut now = profile.clone();
    let is_inner = |profile: &Profile, sample: &Sample| {
        profile.locations_of(sample.stack).next().is_some_and(|leaf| profile.names(leaf) == ["inner"])
    };
    now.samples.retain(|sample| !is_inner(&profile, sample));
    let options =
        Options { children: false, chains: Chains::None, sort: vec![Key::Symbol], ..Options::default() };
    let (before, after) = (Entries::new(&profile, &options), Entries::new(&now, &options));
    let lines: Vec<String> =
        Differences::of(&before, &after).to_string().lines().map(str::to_owned).collect();
    let inner = lines.iter().find(|line| line.ends_with("[.] inner")).unwrap();
    assert_eq!(
        inner.split_whitespace().collect::<Vec<_>>(),
        ["69.86%", "[.]", "inner"],
        "it has disappeared"
    );
    assert!(lines[3].contains('+'), "{lines:?}");
    assert_eq!(lines.last(), Some(inner));
    let new = Differences::of(&after, &before).to_string();
    assert_eq!(
        new.lines().nth(3).unwrap().split_whitespace().collect::<Vec<_>>(),
        ["+69.86%", "[.]", "inner"]
    );
}

#[test]
fn numbers_of_samples_are_rounded_down_as_in_perf() {
    let numbers = [0, 999, 1000, 3988, 1_999_999, 2_000_000_000].map(rounded);
    assert_eq!(numbers, ["0 ", "999 ", "1K", "3K", "1M", "2G"]);
}

#[test]
fn the_lines_of_a_call_tree_have_the_functions_and_shares_of_its_text() {
    let profile = scripted(&data("two.script"));
    for (children, chains) in [(true, Chains::Caller(2.0)), (false, Chains::Callee(0.5))] {
        let entries = Entries::new(&profile, &Options { children, chains, ..Options::default() });
        let mut lines = 0;
        for entry in entries.all() {
            let calls = entries.calls(entry);
            assert!(calls.is_empty() || entries.has_calls(entry));
            for (place, call) in calls.iter().enumerate() {
                let below = &calls[place + 1..place + 1 + call.below];
                assert!(below.iter().all(|below| below.depth > call.depth), "{calls:?}");
            }
            lines += calls.len();
        }
        let text = entries.to_string();
        let in_text = text
            .lines()
            .filter(|line| line.starts_with("   ") && !line.contains("%  "))
            .filter(|line| line.contains(|c: char| c.is_alphabetic()));
        assert_eq!(lines, in_text.count(), "{text}");
    }
}
