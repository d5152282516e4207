//! Snapshot tests of the formats with literal counts, and sessions on the fake kernel.

pub(in crate::cli) mod testing;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use super::aggregation::{Aggregation, Part, Parts};
use super::args::Times;
use super::machine::{csv, json};
use super::notes::add_uncounted;
use super::session::{Around, Outcome, Session};
use super::table::{Frame, Key, Reading, Row, Totals, Value};
use super::text;
use crate::cli::observe::notes::{Note, refused};
use crate::cli::observe::{Ending, Failure, Program, Signals, Subject};
use crate::clock::Clock;
use crate::error::Errno;
use crate::health::{Cause, Interval, Refusal};
use crate::host::{CpuPosition, Facts, Roots};
use crate::sys::Start;
use crate::sys::fake::{Count, FakeKernel, FakePlace};
use crate::sys::usage::CpuTime;
use testing::{cpus, lines, reading, selection};

const SECOND: u64 = 1_000_000_000;

fn all(line: usize) -> Key {
    Key { cgroup: 0, line, part: Part::Whole }
}

const GROUPED: text::Layout = text::Layout { grouped: true };

fn rows(events: &str, readings: &[Reading], cgroups: &[&str], parts: &Parts) -> (Vec<Row>, Totals) {
    let lines = lines("intel-server", events);
    let mut totals = Totals::default();
    readings.iter().for_each(|reading| totals.add(&lines, reading));
    let cgroups: Vec<Arc<str>> = cgroups.iter().map(|&name| name.into()).collect();
    let frame = Frame { cgroups: &cgroups, repeated: readings.len() > 1, ..Frame::of(&lines, parts) };
    (totals.rows(&frame), totals)
}

/// Returns the rows of a command of one second on a machine with multiplexed counters, with every possible row state.
fn example() -> (Vec<Row>, Totals) {
    let events = "task-clock,context-switches,page-faults,{cycles,instructions,stalled-cycles-frontend},\
                  {branches,branch-misses},L1-dcache-loads,L1-dcache-load-misses,cycles:u,power/energy-pkg/,dTLB-loads";
    let half = SECOND / 2;
    let counts = [
        (all(0), 987_654_321, SECOND, SECOND),
        (all(1), 12, SECOND, SECOND),
        (all(2), 123_456, SECOND, SECOND),
        (all(3), 2_963_000_000, SECOND, SECOND),
        (all(4), 4_444_000_000, SECOND, SECOND),
        (all(5), 1_481_000_000, SECOND, SECOND),
        (all(6), 800_000_000, SECOND, half),
        (all(7), 4_000_000, SECOND, half),
        (all(8), 1_100_000_000, SECOND, SECOND / 3),
        (all(9), 55_000_000, SECOND, SECOND / 3),
        (all(10), 0, SECOND, 0),
        (all(11), 1 << 32, SECOND, SECOND),
    ];
    rows(events, &[reading(1000, &counts)], &[], &Parts::default())
}

fn notes(rows: &[Row]) -> Vec<Note> {
    let refusal = |event: &str, target: &str| Refusal {
        event: event.into(),
        target: target.into(),
        cause: Cause::Absent,
        errno: None,
        reason: "this machine's PMU does not count it".into(),
        remedy: Some("perf-exporter list shows what can be counted here".into()),
        unknown: false,
    };
    let mut notes = refused(&[
        refusal("dTLB-loads", "cpu 0"),
        refusal("dTLB-loads", "cpu 1"),
        refusal("bus-cycles", "cpu 0"),
    ]);
    add_uncounted(&mut notes, rows, &Facts { nmi_watchdog: true, ..Facts::default() });
    notes
}

fn written(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_table_of_a_command_is_as_recorded() {
    let (rows, totals) = example();
    let cpu = CpuTime { user: Duration::from_millis(912), system: Duration::from_micros(75_500) };
    insta::assert_snapshot!(written(|out| {
        text::heading(out, "'make -j8'", totals.elapsed.count)?;
        text::rows(out, &rows, None, GROUPED)?;
        text::footer(out, &totals, Some(cpu), false)?;
        text::notes(out, &notes(&rows))
    }));
}

#[test]
fn the_formats_for_programs_are_as_recorded() {
    let (rows, _) = example();
    insta::assert_snapshot!(written(|out| {
        csv(out, &rows, None, ",")?;
        json(out, &rows, None)
    }));
}

#[test]
fn intervals_of_each_cpu_and_cgroup_are_as_recorded() {
    let key = |cgroup, line, cpu| Key { cgroup, line, part: Part::Cpu(cpu) };
    let counts = [
        (key(0, 0, 0), 50_000_000, SECOND, SECOND),
        (key(0, 0, 11), 25_000_000, SECOND, SECOND),
        (key(0, 1, 0), 1, SECOND, SECOND),
        (key(0, 1, 11), 0, SECOND, SECOND),
        (key(1, 0, 0), 0, 0, 0),
        (key(1, 0, 11), 0, 0, 0),
    ];
    let cgroups = ["/kubepods.slice", "/a"];
    let parts = cpus(Aggregation::Cpu, &[0, 11]);
    let (rows, _) = rows("task-clock,faults", &[reading(100, &counts)], &cgroups, &parts);
    let at = Some(Duration::from_millis(12_300));
    insta::assert_snapshot!(written(|out| {
        text::interval_heading(out, Aggregation::Cpu)?;
        text::rows(out, &rows, at, GROUPED)?;
        csv(out, &rows, at, ";")?;
        json(out, &rows, at)
    }));
}

#[test]
fn several_runs_are_as_recorded() {
    let run =
        |milliseconds, faults| reading(milliseconds, &[(all(0), 5_000_000, 8, 8), (all(1), faults, 8, 8)]);
    let runs = [run(100, 70), run(101, 70), run(99, 76)];
    let (rows, totals) = rows("task-clock,page-faults,cycles", &runs, &[], &Parts::default());
    insta::assert_snapshot!(written(|out| {
        text::heading(out, "'true'", totals.elapsed.count)?;
        text::rows(out, &rows, None, GROUPED)?;
        text::footer(out, &totals, None, true)?;
        csv(out, &rows, None, ",")?;
        json(out, &rows, None)
    }));
}

/// Scripts select fields by number.
#[test]
fn every_line_of_csv_has_as_many_fields() {
    let (rows, _) = example();
    let text = written(|out| csv(out, &rows, Some(Duration::from_secs(1)), "|"));
    for line in text.lines() {
        assert_eq!(line.split('|').count(), 8, "{line}");
    }
    assert!(text.lines().count() > rows.len(), "no row had a second derived value: {text}");
}

#[test]
fn every_line_of_json_is_an_object_and_keeps_a_hostile_name_inside() {
    let (mut rows, _) = example();
    rows[0].cgroup = Some("/a\"\n}".into());
    let text = written(|out| json(out, &rows, None));
    let objects: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects[0]["cgroup"], "/a\"\n}");
    assert_eq!(objects[0]["counter-value"], "987.654321");
    assert!(
        objects.iter().all(|object| object["metric-value"].is_number() && object["metric-unit"].is_string())
    );
}

/// Measures on two CPUs of the fake kernel, or runs a real command with fake events.
fn measured(
    kernel: &FakeKernel,
    events: &str,
    command: &[&str],
    aggregation: Aggregation,
    times: Times,
) -> Result<(Vec<Reading>, Outcome), Failure> {
    let subject = match command {
        [] => Subject::Machine { cpus: "0-1".parse().unwrap(), chosen: false },
        _ => Subject::Command,
    };
    let selection = selection("vm", &subject.per(), events).unwrap();
    let command: Vec<OsString> = command.iter().map(Into::into).collect();
    let parts = cpus(aggregation, &[0, 1]);
    let session = Session {
        kernel,
        roots: &Roots::default(),
        facts: &Facts::default(),
        core_pmu: false,
        clock: &Clock::system(),
        selection: &selection,
        subject: &subject,
        parts: &parts,
        all_threads: false,
        keeps_counts: false,
        program: Program::new(&command),
        around: Around::default(),
        times,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut intervals = Vec::new();
        let mut signals = Signals::catch().unwrap();
        let each = |reading: &Reading, _| {
            intervals.push(reading.clone());
            // Sets the counts for the next interval.
            let value = 10 * intervals.len() as u64;
            kernel.update(|event| event.count = Count { value, enabled: 8 * value, running: 4 * value });
            Ok(())
        };
        let outcome = session.measure(&mut signals, each).await?;
        Ok((intervals, outcome))
    })
}

const ONCE: Times = Times { interval: None, interval_count: None, delay: None, timeout: None, repeat: 1 };

fn for_ten_milliseconds() -> Times {
    Times { timeout: Some(Duration::from_millis(10)), ..ONCE }
}

#[test]
fn each_interval_is_scaled_by_its_own_time_and_the_last_ends_the_measurement() {
    let kernel = FakeKernel::new();
    let times = Times { interval: Some(Duration::from_millis(10)), interval_count: Some(3), ..ONCE };
    let (intervals, outcome) = measured(&kernel, "page-faults", &[], Aggregation::Whole, times).ok().unwrap();
    let sums: Vec<_> = intervals.iter().map(|reading| reading.sums[&all(0)]).collect();
    let scaled: Vec<u64> = sums.iter().map(|sum| sum.scaled).collect();
    // Two CPUs, each with 10 more than before, and on the PMU for half of the time.
    assert_eq!(scaled, [0, 40, 40]);
    assert_eq!(sums[2].interval, Interval { enabled: 160, running: 80 });
    assert_eq!((outcome.reading.is_none(), outcome.ending), (true, Ending::Done));
}

#[test]
fn cpus_are_added_up_unless_each_is_to_be_shown() {
    for (aggregation, keys) in [
        (Aggregation::Whole, vec![(Part::Whole, 2)]),
        (Aggregation::Cpu, vec![(Part::Cpu(0), 1), (Part::Cpu(1), 1)]),
    ] {
        let kernel = FakeKernel::new();
        let (_, outcome) = measured(&kernel, "cs", &[], aggregation, for_ten_milliseconds()).ok().unwrap();
        let sums = outcome.reading.unwrap().sums;
        let parts: Vec<_> = sums.iter().map(|(key, sum)| (key.part, sum.places)).collect();
        assert_eq!(parts, keys);
    }
}

#[test]
fn what_is_refused_is_told_and_the_rest_is_counted() {
    let kernel = FakeKernel::new();
    kernel.refuse(Errno::ENOENT, |attr, _, _| attr.selector.kind == 0);
    let (_, outcome) =
        measured(&kernel, "cycles,cs", &[], Aggregation::Whole, for_ten_milliseconds()).ok().unwrap();
    let (lines, parts) = (lines("vm", "cycles,cs"), Parts::default());
    let frame = Frame::of(&lines, &parts);
    let rows = Totals::of(&lines, &outcome.reading.unwrap()).rows(&frame);
    assert_eq!((rows[0].value, rows[1].value), (Value::NotSupported, Value::NotCounted));
    let notes = refused(&outcome.refusals);
    assert_eq!((notes.len(), &notes[0].events[..]), (1, &["cycles".to_owned()][..]));
}

#[test]
fn a_command_runs_without_a_count_if_its_events_do_not_exist() {
    let kernel = FakeKernel::new();
    kernel.refuse(Errno::ENOENT, |_, _, _| true);
    let (_, outcome) =
        measured(&kernel, "cycles", &["sh", "-c", "exit 7"], Aggregation::Whole, ONCE).ok().unwrap();
    let Ending::Command(status) = outcome.ending else { panic!("{:?}", outcome.ending) };
    assert_eq!(status.code(), Some(7));
    let (lines, parts) = (lines("vm", "cycles"), Parts::default());
    let frame = Frame::of(&lines, &parts);
    let rows = Totals::of(&lines, &outcome.reading.unwrap()).rows(&frame);
    assert_eq!(rows[0].value, Value::NotSupported);
    assert_eq!(outcome.refusals[0].cause, Cause::Absent);
    // Without a command, there is nothing to show.
    let failure = measured(&kernel, "cycles", &[], Aggregation::Whole, for_ten_milliseconds()).err().unwrap();
    assert!(matches!(failure, Failure::Nothing(_)), "{failure:?}");
}

#[test]
fn a_command_is_not_run_if_nothing_may_be_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("ran");
    let kernel = FakeKernel::new();
    kernel.refuse(Errno::EACCES, |_, _, _| true);
    let failure =
        measured(&kernel, "cs", &["touch", mark.to_str().unwrap()], Aggregation::Whole, ONCE).err().unwrap();
    let Failure::Nothing(refusals) = failure else { panic!("{failure:?}") };
    assert_eq!(refusals[0].cause, Cause::Forbidden);
    assert!(!mark.exists());
}

#[test]
fn a_command_is_counted_by_its_process_and_ends_the_measurement() {
    let kernel = FakeKernel::new();
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let places = Arc::clone(&seen);
    kernel.refuse(Errno::ENOENT, move |_, place, _| {
        places.lock().unwrap().push(place);
        false
    });
    let (_, outcome) =
        measured(&kernel, "cs", &["sh", "-c", "exit 7"], Aggregation::Whole, ONCE).ok().unwrap();
    let Ending::Command(status) = outcome.ending else { panic!("{:?}", outcome.ending) };
    assert_eq!(status.code(), Some(7));
    assert!(outcome.cpu.is_some() && !outcome.stopped);
    assert!(matches!(seen.lock().unwrap()[..], [FakePlace::Thread(_)]), "{seen:?}");
}

#[test]
fn the_counters_of_a_command_start_after_the_delay() {
    let kernel = FakeKernel::new();
    let starts = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&starts);
    kernel.refuse(Errno::ENOENT, move |attr, _, _| {
        seen.lock().unwrap().push(attr.start);
        false
    });
    let after = |delay| Some(Duration::from_millis(delay));
    let times = Times { delay: after(10), timeout: after(10), ..ONCE };
    let (_, outcome) = measured(&kernel, "cs", &["sleep", "60"], Aggregation::Whole, times).ok().unwrap();
    // The time does not include the delay.
    assert!((10..60_000).contains(&outcome.at.as_millis()) && outcome.reading.is_some());
    let times = Times { delay: after(60_000), ..ONCE };
    let (_, outcome) = measured(&kernel, "cs", &["true"], Aggregation::Whole, times).ok().unwrap();
    assert!(matches!(outcome.ending, Ending::Command(status) if status.success()), "{:?}", outcome.ending);
    assert_eq!(starts.lock().unwrap()[..], [Start::Later; 2]);
}

#[test]
fn raw_counts_are_summed_over_parts_and_named_by_cgroup() {
    let key = |cgroup, line, cpu| Key { cgroup, line, part: Part::Cpu(cpu) };
    let counts = [(key(0, 0, 0), 5, 9, 9), (key(0, 0, 1), 2, 9, 9), (key(1, 0, 0), 1, 9, 3)];
    let (lines, parts) = (lines("vm", "faults,cs"), cpus(Aggregation::Cpu, &[0, 1]));
    let cgroups: [Arc<str>; 2] = ["/a".into(), "/b".into()];
    let frame = Frame { cgroups: &cgroups, ..Frame::of(&lines, &parts) };
    let text = written(|out| text::raw_counts(out, &frame, &reading(10, &counts)));
    assert_eq!(text, "faults /a: 7 18 18\nfaults /b: 1 9 3\n");
}

#[test]
fn thousands_are_separated_on_request() {
    let (rows, _) = example();
    let text = written(|out| text::rows(out, &rows, None, text::Layout { grouped: false }));
    assert!(text.contains(" 2963000000 ") && !text.contains(','), "{text}");
}

#[test]
fn cores_with_their_number_of_cpus_are_as_recorded() {
    let core = |socket| Part::Core(CpuPosition { socket, die: 0, core: 0 });
    let key = |line, number| Key { cgroup: 0, line, part: core(number) };
    let counts = [(key(0, 0), 50_000_000, SECOND, SECOND), (key(0, 1), 25_000_000, SECOND, SECOND)];
    let (rows, _) =
        rows("task-clock,faults", &[reading(100, &counts)], &[], &cpus(Aggregation::Core, &[0, 1]));
    let at = Some(Duration::from_millis(100));
    insta::assert_snapshot!(written(|out| {
        text::interval_heading(out, Aggregation::Core)?;
        text::rows(out, &rows, at, GROUPED)?;
        csv(out, &rows, None, ",")?;
        json(out, &rows, at)
    }));
}

#[test]
fn a_command_whose_time_is_up_is_ended_and_that_is_no_failure() {
    let kernel = FakeKernel::new();
    let (_, outcome) =
        measured(&kernel, "cs", &["sleep", "60"], Aggregation::Whole, for_ten_milliseconds()).ok().unwrap();
    assert_eq!(outcome.ending, Ending::Done);
}

#[test]
fn a_command_that_cannot_be_run_is_named() {
    let kernel = FakeKernel::new();
    let failure = measured(&kernel, "cs", &["/nonexistent/program"], Aggregation::Whole, ONCE).err().unwrap();
    let Failure::Command { program, error } = failure else { panic!("{failure:?}") };
    assert_eq!((&*program, error.kind()), ("/nonexistent/program", std::io::ErrorKind::NotFound));
}
