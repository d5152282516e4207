//! The scheduler's timeline on the very records that perf looks at: `perf sched record` writes them, then `perf sched
//! timehist` and `perf sched latency` tell what they make of them, and so do we.
//!
//! Where the rules differ:
//! - perf takes a thread to run since the last switch on its CPU, whoever came then. Some kernels pass `sched:sched_switch`
//!   over when an idle CPU gets a thread; perf then takes the idle time for run time, and the wait to have ended with it.
//!   We say that we do not know. Such lines count as switches, and their times are not compared.
//! - Older perfs tell no delay in timehist of a thread that was preempted; newer ones, `perf sched latency` and we do.
//! - `perf sched latency` of older perfs does not know `sched:sched_waking`, which `perf sched record` records in the place of
//!   `sched:sched_wakeup`, so that hardly any delay is left, and takes a thread that is preempted within the kernel (`R+`) for one that sleeps. Here
//!   perf records both events, and delays must be those of its rules, be they the old or the new.
//! - `perf sched latency` puts a delay of nothing down for a thread that it first hears of when that comes onto a CPU; we
//!   put down none.
//! - timehist takes the thread from the sample, where one that ends may have no number any more.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perf_exporter::sched::{Came, Left, Timeline, Told, Untold, Went, Who};

use crate::perf_data::{Recorded, Rules};
use crate::support::{Feature, lacks};

/// Two that send each other bytes, two that want the same CPU, and some that sleep.
const LOAD: &str = "
perf bench sched pipe -l 4000 >/dev/null 2>&1 &
spin() { taskset -c 0 sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done'; }
spin & spin &
for each in 1 2 3 4; do (for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do sleep 0.01; done) & done
wait
";

/// One time on a CPU, as it is told when that ends. Times are in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Turn {
    time: u64,
    cpu: u32,
    tid: u32,
    /// How it came, if that was seen.
    came: Option<Came>,
}

impl Turn {
    /// Whether it waited because it had been preempted.
    fn was_preempted(&self) -> bool {
        matches!(self.came.and_then(|came| came.wait), Some((Left::Preempted, _)))
    }
}

/// What we make of the records: each turn, each arrival with its delay, and what could not be told.
fn replayed(recorded: &Recorded, rules: Rules) -> (Vec<Turn>, BTreeMap<u32, Vec<u64>>, Untold) {
    let (mut timeline, mut turns) = (Timeline::default(), Vec::new());
    let mut delays: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    recorded.events(rules, |place, of, event| {
        timeline.enter(place, of, event, &mut |who: &Who, told| match told {
            Told::Went(Went { time, cpu, came, .. }) if who.tid != 0 => {
                turns.push(Turn { time, cpu, tid: who.tid, came });
            }
            Told::Came(Came { delay: Some(delay), .. }) if who.tid != 0 => {
                delays.entry(who.tid).or_default().push(delay);
            }
            _ => {}
        });
    });
    (turns, delays, timeline.untold())
}

/// A line of timehist. The time is in microseconds, the others in nanoseconds as far as it tells them.
#[derive(Debug, Clone, Copy)]
struct Line {
    time: u64,
    cpu: u32,
    /// `None` for one that has none any more.
    tid: Option<u32>,
    wait: u64,
    delay: u64,
    run: u64,
}

/// What `perf sched` says with these arguments.
fn perf_sched(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("perf").arg("sched").args(arguments).arg("-i").arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// `12.345` in thousandths.
fn thousandths(text: &str) -> Option<u64> {
    let (whole, rest) = text.split_once('.')?;
    Some(whole.parse::<u64>().ok()? * 1000 + rest.get(..3)?.parse::<u64>().ok()?)
}

impl Line {
    /// `   75411.425900 [0000]  migration/0[18]     0.000      0.054      0.022 `; names may hold anything.
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

/// Whether what perf writes in microseconds is this. It rounds down, and a difference of two times of its is one of times
/// that are exact.
fn is(perf: u64, ours: u64) -> bool {
    perf.abs_diff(ours) <= 1000
}

/// A row of `perf sched latency -p`: switches, and the average and the longest delay in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Latency {
    switches: u64,
    average: u64,
    longest: u64,
}

/// `  sched-pipe:28888  |     38.707 ms |     1427 | avg:   0.013 ms | max:   3.257 ms | …`, by thread.
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

/// A record of the load of which nothing was lost. perf comes before all others to its buffers, so that they do not run over
/// on a machine with more to do than CPUs.
fn recorded(file: &Path) -> Recorded {
    let output = Command::new("perf")
        .args(["sched", "record", "--realtime", "1", "-m", "4096", "-e", "sched:sched_wakeup", "-o"])
        .arg(file)
        .args(["--", "sh", "-c", LOAD])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let recorded = Recorded::read(file);
    assert_eq!(recorded.lost, 0, "perf loses records");
    recorded
}

/// Within 5 % and a microsecond, which is what perf rounds to.
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
    let (turns, delays, untold) = replayed(&recorded, Rules::New);
    assert_eq!((untold.backwards, untold.dropped, untold.full), (0, 0, 0), "{untold:?}");
    let lines: Vec<Line> = perf_sched(&file, &["timehist"]).lines().filter_map(Line::parse).collect();
    turns_are_those_of_timehist(&turns, &lines);
    let rows = latencies(&perf_sched(&file, &["latency", "-p"]));
    let (_, by_old_rules, _) = replayed(&recorded, Rules::Old);
    let faults = [faults_of(&delays, &rows), faults_of(&by_old_rules, &rows)];
    let least = faults.iter().min_by_key(|faults| faults.len()).expect("there are two");
    // perf puts records in order round by round of its buffers: what comes later than that it takes as it comes.
    assert!(least.len() * 50 <= rows.len(), "{least:#?}\n{untold:?}");
}

/// Each turn against its line.
fn turns_are_those_of_timehist(turns: &[Turn], lines: &[Line]) {
    assert!(turns.len() > 5000, "{}", turns.len());
    assert_eq!(turns.len(), lines.len(), "switches away from threads");
    let (mut known, mut wrong) = (0, Vec::new());
    // Older perfs tell no delay of any thread that was preempted.
    let preempted = turns.iter().zip(lines).filter(|(turn, _)| turn.was_preempted());
    let tells_preempted =
        preempted.clone().filter(|(_, line)| line.delay > 0).count() * 2 > preempted.count();
    for (turn, line) in turns.iter().zip(lines) {
        let same = line.tid.is_none_or(|tid| tid == turn.tid) && turn.cpu == line.cpu;
        assert!(same && turn.time / 1000 == line.time, "{turn:?} is not {line:?}");
        let Some(came) = turn.came else { continue };
        known += 1;
        let delay = came.delay.filter(|_| !turn.was_preempted() || tells_preempted);
        let wait = came.wait.map_or(0, |(_, wait)| wait);
        let times = [(line.run, turn.time - came.time), (line.wait, wait), (line.delay, delay.unwrap_or(0))];
        // One that ends is nobody for perf: it keeps its times with another thread.
        if line.tid.is_some() && !times.iter().all(|&(perf, ours)| is(perf, ours)) {
            wrong.push((turn, line));
        }
    }
    assert!(known * 4 > turns.len(), "only {known} of {} turns were seen to begin", turns.len());
    assert!(
        wrong.len() * 1000 <= known,
        "{} of {known}, such as {:#?}",
        wrong.len(),
        &wrong[..5.min(wrong.len())]
    );
}

/// The threads whose delays are not those of their rows.
fn faults_of(delays: &BTreeMap<u32, Vec<u64>>, rows: &BTreeMap<u32, Latency>) -> Vec<String> {
    let (mut faults, mut ours, mut theirs) = (Vec::new(), 0, 0);
    for (tid, row) in rows {
        let delays = delays.get(tid).map_or(&[][..], |delays| delays);
        // perf has one more, of nothing, for a thread that it meets on a CPU.
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
    // One for each thread, as above.
    if rows.len() < 5 || ours.abs_diff(theirs) * 1000 > theirs + 1000 * rows.len() as u64 {
        faults.push(format!("{ours} of {theirs} delays of {} threads", rows.len()));
    }
    let of_nobody: Vec<_> = delays.iter().filter(|(tid, _)| !rows.contains_key(tid)).collect();
    if !of_nobody.is_empty() {
        faults.push(format!("perf does not know of {of_nobody:?}"));
    }
    faults
}
