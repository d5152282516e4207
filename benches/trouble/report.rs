//! The table at the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::Options;
use crate::attacks::Attacked;
use crate::support::exposition::Exposition;
use crate::watch::{Looked, Second, Seen};

const MIB: f64 = (1 << 20) as f64;

/// All data of the report.
pub(crate) struct Report<'a> {
    pub(crate) options: &'a Options,
    pub(crate) seen: &'a Seen,
    pub(crate) attacked: Option<&'a Arc<Attacked>>,
    /// Time from SIGTERM to the exit; `None` after the timeout.
    pub(crate) end: Option<Duration>,
    /// Warnings and errors in its log.
    pub(crate) log: &'a [String],
}

/// Prints a line of the table.
pub(crate) fn line(what: &str, figure: &str, goal: Option<(&str, bool)>) {
    let (goal, met) = goal.map_or(("", ""), |(goal, met)| (goal, if met { "met" } else { "missed" }));
    println!("{}", format!("{what:<58} {figure:>26}   {goal:<18} {met}").trim_end());
}

impl Report<'_> {
    pub(crate) fn print(&self) {
        let Options { program, config, minutes, attacks, incidents, .. } = self.options;
        println!("\n{}", program.display());
        let config = config.as_ref().map_or("built-in".into(), |config| config.display().to_string());
        println!("configuration {config}, {minutes} minutes, attacks: {attacks}, incidents: {incidents}\n");
        let load = self.during(&["load", "hang", "recovery"]);
        let averages: Vec<f64> = load.iter().map(|second| second.load).collect();
        let mean = averages.iter().sum::<f64>() / averages.len().max(1) as f64;
        let most = averages.iter().copied().fold(0.0, f64::max);
        line("load average: mean, highest", &format!("{mean:.1}, {most:.1}"), Some((">= 15", most >= 15.0)));
        self.scrapes(&load);
        for phase in ["load", "hang", "recovery"] {
            self.phase(phase);
        }
        self.resources(&load);
        self.profiles();
        self.counters();
        self.series();
        self.attacks();
        self.afterwards();
        let end = self.end.map_or("did not exit".into(), |took| format!("{:.2} s", took.as_secs_f64()));
        line("end after SIGTERM", &end, Some(("<= 5 s", self.end.is_some_and(|took| took.as_secs() < 5))));
        println!("\nwarnings and errors in the log: {}", self.log.len());
        for text in self.log.iter().take(10) {
            println!("  {text}");
        }
    }

    fn during(&self, phases: &[&str]) -> Vec<&Second> {
        self.seen.seconds.iter().filter(|second| phases.contains(&second.phase)).collect()
    }

    fn scrapes(&self, load: &[&Second]) {
        let failed = load.iter().filter(|second| second.scrape.is_err()).count();
        let figure = format!("{} / {failed}", load.len() - failed);
        line("scrapes answered / failed", &figure, Some(("every one", failed == 0)));
        let unhealthy = load.iter().filter(|second| !second.healthy).count();
        line("/-/healthy failed", &unhealthy.to_string(), Some(("never", unhealthy == 0)));
        let taken = sorted(load);
        let figure = ["p50", "p99", "max"].map(|which| milliseconds(&taken, which)).join(", ");
        let fast = at(&taken, 0.99).is_some_and(|took| took < Duration::from_millis(200));
        line("scrape p50, p99, max in ms, of those answered", &figure, Some(("p99 < 200 ms", fast)));
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for error in load.iter().filter_map(|second| second.scrape.as_ref().err()) {
            *reasons.entry(error).or_default() += 1;
        }
        for (reason, count) in reasons.iter().take(5) {
            let reason: String = reason.chars().take(80).collect();
            println!("  {count} × {reason}");
        }
    }

    fn phase(&self, phase: &str) {
        let seconds = self.during(&[phase]);
        let taken = sorted(&seconds);
        let failed = seconds.len() - taken.len();
        let figure = format!(
            "{} / {failed}; {}, {}",
            taken.len(),
            milliseconds(&taken, "p50"),
            milliseconds(&taken, "p99")
        );
        line(&format!("  {phase}: answered / failed; p50, p99 in ms"), &figure, None);
    }

    fn resources(&self, load: &[&Second]) {
        let minutes = |second: &Second| second.at.as_secs_f64() / 60.0;
        let mib = |second: &Second| second.resources.resident as f64 / MIB;
        let resident: Vec<(f64, f64)> = load.iter().map(|second| (minutes(second), mib(second))).collect();
        let most = resident.iter().map(|&(_, mib)| mib).fold(0.0, f64::max);
        line("resident with children: most", &format!("{most:.1} MiB"), Some(("< 96 MiB", most < 96.0)));
        let half = &resident[resident.len() / 2..];
        let steepness = slope(half);
        // A tenth of the bound per hour.
        let flat = steepness * 60.0 < 9.6;
        line("  slope over the last half", &format!("{steepness:+.2} MiB/min"), Some(("flat", flat)));
        // The history and the log of samples, with the names of functions in it, grow for an hour within their shares.
        let past = |second: &Second| {
            ["history", "stacks", "symbols"].iter().filter_map(|part| second.parts.get(*part)).sum::<f64>()
                / MIB
        };
        let known = load[load.len() / 2..].iter().filter(|second| !second.parts.is_empty());
        let rest: Vec<(f64, f64)> =
            known.map(|second| (minutes(second), mib(second) - past(second))).collect();
        line("  the same without the past hour", &format!("{:+.2} MiB/min", slope(&rest)), None);
        let last = half.last().map_or(0.0, |&(_, mib)| mib);
        line("  at the end of the load", &format!("{last:.1} MiB"), None);
        self.parts(load);
        let most = |of: fn(&Second) -> usize| load.iter().map(|second| of(second)).max().unwrap_or_default();
        line("processes: most", &most(|second| second.resources.processes).to_string(), None);
        line("open descriptors: most", &most(|second| second.resources.descriptors).to_string(), None);
        if let [first, .., last] = load {
            let cpu = last.resources.cpu - first.resources.cpu;
            let share = cpu / (last.at - first.at).as_secs_f64() * 100.0;
            line("CPU time", &format!("{cpu:.1} s, {share:.1} % of a CPU"), None);
        }
    }

    /// Prints the growth of each part of the memory: before the load, in the middle, at its end, and at the end of the run.
    fn parts(&self, load: &[&Second]) {
        let (alone, after) = (self.during(&["alone"]), self.during(&["afterwards"]));
        let moments = [&alone[..], &load[..load.len() / 2], load, &after];
        let told = |seconds: &[&Second]| {
            seconds.iter().rev().map(|second| second.parts.clone()).find(|parts| !parts.is_empty())
        };
        let moments = moments.map(|seconds| told(seconds).unwrap_or_default());
        for part in moments[2].keys() {
            let mib = |moment: &BTreeMap<String, f64>| {
                moment.get(part).map_or("–".into(), |bytes| format!("{:.1}", bytes / MIB))
            };
            let figure = moments.each_ref().map(mib).join(", ");
            line(&format!("  {part}, MiB: alone, half, end of load, after"), &figure, None);
        }
    }

    fn profiles(&self) {
        let profiles = &self.seen.profiles;
        let answered = profiles.iter().filter(|looked| matches!(looked.answer, Ok((200, _)))).count();
        let figure = format!("{answered} / {}", profiles.len() - answered);
        line("profiles answered / failed", &figure, Some(("every one", answered == profiles.len())));
        let slowest = profiles.iter().map(|looked| looked.took).max().unwrap_or_default();
        line("  slowest", &format!("{:.2} s", slowest.as_secs_f64()), None);
        let (mut named, mut unnamed) = (0, BTreeMap::<String, u64>::new());
        profiles.iter().for_each(|looked| count_frames(looked, &mut named, &mut unnamed));
        let all = named + unnamed.values().sum::<u64>();
        for (kind, count) in &unnamed {
            line(&format!("  frames shown as {kind}"), &percent(*count as f64, all as f64), None);
        }
    }

    fn counters(&self) {
        let (Ok(first), Ok(last)) = (Exposition::parse(&self.seen.first), Exposition::parse(&self.seen.last))
        else {
            println!("there is no scrape with samples, or its format is invalid");
            return;
        };
        let samples = last.sum("perf_samples_total", &[]) - first.sum("perf_samples_total", &[]);
        line("samples", &format!("{samples:.0}"), None);
        for (name, what) in [
            ("perf_truncated_stacks_total", "stacks truncated"),
            ("perf_profile_gaps_total", "profile gaps"),
            ("perf_frames_unresolved_total", "frames unresolved"),
        ] {
            for (reason, count) in grown(&first, &last, name, &["reason"]) {
                let figure = format!("{count:.0} ({})", percent(count, samples));
                line(&format!("  {what}, {reason}"), &figure, None);
            }
        }
        let wanting = |name: &str| -> f64 {
            let grown = grown(&first, &last, name, &["reason"]);
            let budget =
                |reason: &str| ["full", "large", "budget", "evicted"].iter().any(|it| reason.contains(it));
            grown
                .iter()
                .filter(|(reason, _)| budget(reason))
                .map(|(_, count)| count)
                .fold(0.0, |sum, count| sum + count)
        };
        let budget = wanting("perf_truncated_stacks_total") + wanting("perf_profile_gaps_total");
        let enough = budget < 0.05 * samples;
        line(
            "stacks unresolved because a budget was used up",
            &percent(budget, samples),
            Some(("< 5 %", enough)),
        );
        for (which, count) in grown(&first, &last, "perf_lost_records_total", &["ring", "reason"]) {
            line(&format!("  records lost, {which}"), &format!("{count:.0}"), None);
        }
        let collections = last.sum("perf_exporter_collect_duration_seconds_count", &[]);
        let mean = last.sum("perf_exporter_collect_duration_seconds_sum", &[]) / collections.max(1.0);
        let p99 = quantile(&last, "perf_exporter_collect_duration_seconds_bucket", 0.99);
        line("collection: mean, p99 (by the histogram)", &format!("{mean:.3} s, {p99}"), None);
        let stuck = last.value("perf_exporter_hung_file_operations", &[]);
        line(
            "stuck files at the end",
            &stuck.map_or("no such metric".into(), |stuck| stuck.to_string()),
            None,
        );
    }

    fn series(&self) {
        let most = self.seen.seconds.iter().map(|second| second.lines).max().unwrap_or_default();
        line("lines of /metrics: most", &most.to_string(), None);
        let Ok(largest) = Exposition::parse(&self.seen.largest) else { return };
        for label in ["cgroup", "comm"] {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for (_, labels) in largest.all() {
                if let Some(value) = labels.get(label) {
                    *counts.entry(value).or_default() += 1;
                }
            }
            let many = counts.len();
            let Some((value, count)) = counts.into_iter().max_by_key(|&(_, count)| count) else { continue };
            let value: String = value.chars().take(40).collect();
            let figure = format!("{many}, {count} ({value})");
            line(&format!("  values of {label}, most series of one"), &figure, None);
        }
    }

    fn attacks(&self) {
        let Some(attacked) = self.attacked else { return };
        let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        line("connections of the attackers", &of(&attacked.connections).to_string(), None);
        let figure = [&attacked.profiles, &attacked.refusals, &attacked.errors]
            .map(|count| of(count).to_string())
            .join(" / ");
        line("  profiles: answered / rejected / no answer", &figure, None);
    }

    fn afterwards(&self) {
        let alone = self.during(&["alone"]);
        let after = self.during(&["afterwards"]);
        let mib = |seconds: &[&Second]| seconds.last().map(|second| second.resources.resident as f64 / MIB);
        let (Some(before), Some(now)) = (mib(&alone), mib(&after)) else { return };
        let minutes = self.options.afterwards;
        let goal = (minutes > 0.0).then_some(("within 10 %", now <= before * 1.1));
        let figure = format!("{before:.1} → {now:.1} MiB");
        line(&format!("resident before the load → {minutes} min after"), &figure, goal);
    }
}

/// Returns the durations of the answered scrapes, sorted.
fn sorted(seconds: &[&Second]) -> Vec<Duration> {
    let mut taken: Vec<Duration> = seconds.iter().filter_map(|second| second.scrape.clone().ok()).collect();
    taken.sort();
    taken
}

fn at(sorted: &[Duration], part: f64) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    Some(sorted[(last as f64 * part).ceil() as usize])
}

fn milliseconds(sorted: &[Duration], which: &str) -> String {
    let part = match which {
        "p50" => 0.5,
        "p99" => 0.99,
        _ => 1.0,
    };
    at(sorted, part).map_or("–".into(), |took| format!("{:.0}", took.as_secs_f64() * 1e3))
}

pub(crate) fn percent(part: f64, whole: f64) -> String {
    if whole > 0.0 { format!("{:.2} %", part / whole * 100.0) } else { "–".into() }
}

/// Returns the slope of the least-squares line.
fn slope(points: &[(f64, f64)]) -> f64 {
    let many = points.len().max(1) as f64;
    let (x, y) =
        points.iter().fold((0.0, 0.0), |sum, point| (sum.0 + point.0 / many, sum.1 + point.1 / many));
    let (both, square) = points.iter().fold((0.0, 0.0), |sum, point| {
        (sum.0 + (point.0 - x) * (point.1 - y), sum.1 + (point.0 - x).powi(2))
    });
    if square > 0.0 { both / square } else { 0.0 }
}

/// Returns the increases of a counter by the values of labels, without zeros.
pub(crate) fn grown(
    first: &Exposition,
    last: &Exposition,
    name: &str,
    labels: &[&str],
) -> Vec<(String, f64)> {
    let mut grown: BTreeMap<String, f64> = BTreeMap::new();
    for (is, all) in last.all() {
        if is != name {
            continue;
        }
        let own: Vec<(&str, &str)> = all.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let now = last.value(name, &own).unwrap_or_default();
        let before = first.value(name, &own).unwrap_or_default();
        let key = labels.iter().filter_map(|label| all.get(*label).cloned()).collect::<Vec<_>>().join(" ");
        *grown.entry(key).or_default() += now - before;
    }
    grown.into_iter().filter(|&(_, count)| count > 0.0).collect()
}

/// Returns the bounds of the histogram bucket that contains a quantile.
fn quantile(exposition: &Exposition, name: &str, part: f64) -> String {
    let mut buckets: Vec<(f64, f64)> = exposition
        .by(name, "le")
        .filter_map(|(bound, count)| Some((bound.replace("+Inf", "inf").parse().ok()?, count)))
        .collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all = buckets.last().map_or(0.0, |&(_, count)| count);
    let found = buckets.iter().position(|&(_, count)| count >= all * part).unwrap_or_default();
    let above = found.checked_sub(1).map_or(0.0, |below| buckets[below].0);
    let up_to = buckets.get(found).map_or(0.0, |&(bound, _)| bound);
    format!("{above:.2} to {up_to:.2} s")
}

/// Counts the frames of a profile, weighted by the samples of their stacks: symbolized frames, and the others by kind.
fn count_frames(looked: &Looked, named: &mut u64, unnamed: &mut BTreeMap<String, u64>) {
    let Ok((200, body)) = &looked.answer else { return };
    for (stack, value) in body.lines().filter_map(|line| line.rsplit_once(' ')) {
        let value: u64 = value.parse().unwrap_or_default();
        for frame in stack.split(';').skip(1) {
            // `[unknown file]+0x12`, `[anon] 0x12`, `program+0x12`: the address is removed from the kind.
            let kind = match (frame.strip_prefix('['), frame.rsplit_once("+0x")) {
                (Some(kind), _) => format!("[{}]", kind.split([']', ':']).next().unwrap_or_default()),
                (None, Some(_)) => "file+offset".to_owned(),
                (None, None) => {
                    *named += value;
                    continue;
                }
            };
            *unnamed.entry(kind).or_default() += value;
        }
    }
}
