//! The scheduler's timeline on the same records that perf analyzes. `perf sched record` writes them; the results of the exporter are
//! compared with `perf sched timehist` and `perf sched latency`.
//!
//! The rules differ in these points:
//! - perf assumes that a thread runs since the last switch on its CPU, whichever thread was incoming. Some kernels omit
//!   `sched:sched_switch` when an idle CPU gets a thread. perf then takes the idle time for run time, and ends the wait with it; the
//!   exporter reports the time as unknown. Such lines count as switches, but their times are not compared.
//! - Older versions of perf report no delay of a preempted thread in timehist. Newer ones, `perf sched latency` and the exporter do.
//! - Older versions of `perf sched latency` ignore `sched:sched_waking`, which `perf sched record` records instead of `sched:sched_wakeup`,
//!   so almost no delays are left. They also take a thread that is preempted within the kernel (`R+`) for a sleeping one. Here perf records
//!   both events, and the delays must follow either the old or the new rules.
//! - `perf sched latency` counts a delay of zero for a thread whose first record is its arrival on a CPU. The exporter counts none.
//! - timehist takes the thread from the sample, in which an exiting thread may have no id any more.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perf_exporter::sched::{PrevState, SchedFact, SwitchIn, SwitchOut, Thread, Timeline, Untracked};

use crate::perf_data::{Recorded, Rules};
use crate::support::{Feature, lacks};

/// Two processes that send each other bytes, two that compete for one CPU, and some that sleep.
const LOAD: &str = "
perf bench sched pipe -l 4000 >/dev/null 2>&1 &
spin() { taskset -c 0 sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done'; }
spin & spin &
for each in 1 2 3 4; do (for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 0.01; done) & done
wait
";

/// One stay on a CPU, reported at its end. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Turn {
    time: u64,
    cpu: u32,
    tid: u32,
    /// The arrival on the CPU, if it was recorded.
    switch_in: Option<SwitchIn>,
}

impl Turn {
    /// Reports whether the thread waited because it had been preempted.
    fn was_preempted(&self) -> bool {
        matches!(self.switch_in.and_then(|switch_in| switch_in.wait), Some((PrevState::Preempted, _)))
    }
}

/// Replays the records. Returns each stay, the delays of arrivals by thread, and the unaccounted events.
fn replayed(recorded: &Recorded, rules: Rules) -> (Vec<Turn>, BTreeMap<u32, Vec<u64>>, Untracked) {
    let (mut timeline, mut turns) = (Timeline::default(), Vec::new());
    let mut delays: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    recorded.events(rules, |place, of, event| {
        timeline.enter(place, of, event, &mut |thread: &Thread, told| match told {
            SchedFact::SwitchOut(SwitchOut { time, cpu, switch_in, .. }) if thread.tid != 0 => {
                turns.push(Turn { time, cpu, tid: thread.tid, switch_in });
            }
            SchedFact::SwitchIn(SwitchIn { delay: Some(delay), .. }) if thread.tid != 0 => {
                delays.entry(thread.tid).or_default().push(delay);
            }
            _ => {}
        });
    });
    (turns, delays, timeline.untracked())
}

/// A line of timehist. The time is in microseconds; the durations are in nanoseconds at the printed precision.
#[derive(Debug, Clone, Copy)]
struct Line {
    time: u64,
    cpu: u32,
    /// `None` for a thread without an id.
    tid: Option<u32>,
    wait: u64,
    delay: u64,
    run: u64,
}

/// Returns the output of `perf sched` with these arguments.
fn perf_sched(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("perf").arg("sched").args(arguments).arg("-i").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Parses a decimal such as `12.345` into thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1000 + rest.get(..3)?.parse::<u64>().ok()?)
}

impl Line {
    /// Parses `   75411.425900 [0000]  migration/0[18]     0.000      0.054      0.022 `; names may contain any character.
    fn parse(line: &str) -> Option<Self> {
        let (time, rest) = line.trim_start().split_once(" [")?;
        let (cpu, rest) = rest.split_once(']')?;
        let (name, times) = rest.rsplit_once(']')?;
        let (_, tid) = name.rsplit_once('[')?;
        let (seconds, micros) = time.split_once('.')?;
        let mut times = times.split_whitespace().map(|text| Some(thousandths(text)? * 1000));
        Some(Self {
            time: seconds.parse::<u64>().ok()? * 1_000_000 + micros.trim().parse::<u64>().ok()?,
            cpu: cpu.parse().ok()?,
            tid: tid.split('/').next()?.parse().ok(),
            wait: times.next()??,
            delay: times.next()??,
            run: times.next()??,
        })
    }
}

/// Reports whether a duration that perf prints in microseconds equals one of the exporter. perf rounds down, and its durations are
/// differences of exact times.
fn is(perf: u64, ours: u64) -> bool {
    perf.abs_diff(ours) <= 1000
}

/// A row of `perf sched latency -p`: switches, and the average and the maximum delay in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Latency {
    switches: u64,
    average: u64,
    longest: u64,
}

/// Parses rows such as `  sched-pipe:28888  |     38.707 ms |     1427 | avg:   0.013 ms | max:   3.257 ms | …`, by thread.
fn latencies(said: &str) -> BTreeMap<u32, Latency> {
    let row = |line: &str| {
        let columns: Vec<&str> = line.rsplitn(7, '|').map(str::trim).collect();
        let [_, _, longest, average, switches, _, name] = columns[..] else { return None };
        let milliseconds = |text: &str, word: &str| {
            let text = text.strip_prefix(word)?.strip_suffix("ms")?.trim();
            Some(thousandths(text)? * 1000)
        };
        let tid = name.rsplit_once(':')?.1.parse().ok()?;
        let (average, longest) = (milliseconds(average, "avg:")?, milliseconds(longest, "max:")?);
        Some((tid, Latency { switches: switches.parse().ok()?, average, longest }))
    };
    // The last column ends with a bar in some versions.
    said.lines().filter_map(|line| row(line.trim_end().trim_end_matches('|'))).collect()
}

/// Records the load until no record is lost. perf runs at the highest priority, so that its buffers do not overflow on a machine with too
/// few CPUs.
fn recorded(file: &Path) -> Recorded {
    let output = Command::new("perf")
        .args(["sched", "record", "--realtime", "1", "-m", "4096", "-e", "sched:sched_wakeup", "-o"])
        .arg(file)
        .args(["--", "sh", "-c", LOAD])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recorded = Recorded::read(file);
    assert_eq!(recorded.lost, 0, "perf lost records in every attempt");
    recorded
}

/// Reports whether two delays differ by at most 5 % and a microsecond, which is perf's rounding.
fn close(ours: f64, perf: f64) -> bool {
    (ours - perf).abs() <= perf * 0.05 + 1000.0
}

#[test]
fn the_same_records_are_told_as_perf_tells_them() {
    if lacks(Feature::Perf) || lacks(Feature::Tracepoint) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sched.data");
    let recorded = recorded(&file);
    let (turns, delays, untracked) = replayed(&recorded, Rules::New);
    assert_eq!((untracked.backwards, untracked.dropped, untracked.full), (0, 0, 0), "{untracked:?}");
    let lines: Vec<Line> = perf_sched(&file, &["timehist"]).lines().filter_map(Line::parse).collect();
    turns_are_those_of_timehist(&turns, &lines);
    let rows = latencies(&perf_sched(&file, &["latency", "-p"]));
    let (_, by_old_rules, _) = replayed(&recorded, Rules::Old);
    let faults = [faults_of(&delays, &rows), faults_of(&by_old_rules, &rows)];
    let least = faults.iter().min_by_key(|faults| faults.len()).expect("the list has two elements");
    // perf sorts records in rounds over its buffers, and processes later arrivals in the order in which it reads them.
    assert!(least.len() * 50 <= rows.len(), "{least:#?}\n{untracked:?}");
}

/// Compares each stay with its line.
fn turns_are_those_of_timehist(turns: &[Turn], lines: &[Line]) {
    assert!(turns.len() > 5000, "{}", turns.len());
    assert_eq!(turns.len(), lines.len(), "the numbers of switches away from threads differ");
    let (mut known, mut wrong) = (0, Vec::new());
    // Older versions of perf report no delay of preempted threads.
    let preempted = turns.iter().zip(lines).filter(|(turn, _)| turn.was_preempted());
    let tells_preempted =
        preempted.clone().filter(|(_, line)| line.delay > 0).count() * 2 > preempted.count();
    for (turn, line) in turns.iter().zip(lines) {
        let same = line.tid.is_none_or(|tid| tid == turn.tid) && turn.cpu == line.cpu;
        assert!(same && turn.time / 1000 == line.time, "{turn:?} does not match {line:?}");
        let Some(switch_in) = turn.switch_in else { continue };
        known += 1;
        let delay = switch_in.delay.filter(|_| !turn.was_preempted() || tells_preempted);
        let wait = switch_in.wait.map_or(0, |(_, wait)| wait);
        let times =
            [(line.run, turn.time - switch_in.time), (line.wait, wait), (line.delay, delay.unwrap_or(0))];
        // perf attributes the times of an exiting thread to another thread.
        if line.tid.is_some() && !times.iter().all(|&(perf, ours)| is(perf, ours)) {
            wrong.push((turn, line));
        }
    }
    assert!(known * 4 > turns.len(), "the begin of only {known} of {} stays is known", turns.len());
    assert!(
        wrong.len() * 1000 <= known,
        "{} of {known} stays differ, for example {:#?}",
        wrong.len(),
        &wrong[..5.min(wrong.len())]
    );
}

/// Returns the threads whose delays differ from their rows.
fn faults_of(delays: &BTreeMap<u32, Vec<u64>>, rows: &BTreeMap<u32, Latency>) -> Vec<String> {
    let (mut faults, mut ours, mut theirs) = (Vec::new(), 0, 0);
    for (tid, row) in rows {
        let delays = delays.get(tid).map_or(&[][..], |delays| delays);
        // perf counts one more delay, of zero, for a thread that it first sees on a CPU.
        let count = delays.len() as u64;
        let longest = delays.iter().copied().max().unwrap_or(0);
        let average = delays.iter().sum::<u64>() as f64 / row.switches.max(1) as f64;
        let same = (row.switches.saturating_sub(1)..=row.switches).contains(&count)
            && close(longest as f64, row.longest as f64)
            && close(average, row.average as f64);
        if !same {
            faults.push(format!("thread {tid}: {count}, average {average}, longest {longest}, but {row:?}"));
        }
        (ours, theirs) = (ours + count, theirs + row.switches);
    }
    // One more for each thread, as above.
    if rows.len() < 5 || ours.abs_diff(theirs) * 1000 > theirs + 1000 * rows.len() as u64 {
        faults.push(format!("{ours} delays, perf has {theirs}, of {} threads", rows.len()));
    }
    let of_nobody: Vec<_> = delays.iter().filter(|(tid, _)| !rows.contains_key(tid)).collect();
    if !of_nobody.is_empty() {
        faults.push(format!("perf has no rows for {of_nobody:?}"));
    }
    faults
}
