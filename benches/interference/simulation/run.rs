//! Runs of machines with the methods that judge their pods.

use std::ops::Range;
use std::thread;

use perf_exporter::anomaly::Expected;
use perf_exporter::anomaly::suspects::{self, Activity};

use super::methods::{Contender, Judge};
use super::node::{Form, Interference, Node, Reading, World};
use super::parameters as p;
use super::score::Score;

/// Steps over which suspects are compared.
const COMPARED: usize = (suspects::WINDOW / p::STEP) as usize;

/// Steps after the end of a rise in which an alarm is not a false one.
const GRACE: u64 = 60;
/// Rise from which a pod is disturbed.
const DISTURBED: f64 = 1.1;
/// Share of all CPUs that is demanded from which pods wait.
const CROWDED: f64 = 0.95;

/// Result of the search for suspects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// An antagonist is the first suspect.
    First,
    /// An antagonist is among the suspects.
    Listed,
    /// There are suspects, and no antagonist among them.
    Wrong,
    /// There is no suspect.
    None,
}

/// What became of an episode.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) form: Form,
    pub(crate) is_pair: bool,
    pub(crate) rise: f64,
    /// Steps.
    pub(crate) length: u64,
    /// CPUs that the victim used on average.
    pub(crate) usage: f64,
    /// Steps from its begin to the alarm of its victim, and the suspects; `None` without an alarm.
    pub(crate) found: Option<(u64, Naming)>,
}

/// A method, and what it has found in the current episode.
struct Watcher {
    contender: Contender,
    judge: Box<dyn Judge>,
    /// By number of the episode.
    found: Vec<Option<(u64, Naming)>>,
    score: Score,
}

/// The last values of all pods, the last one at the end.
struct Recent {
    readings: Vec<Vec<Reading>>,
}

impl Recent {
    fn push(&mut self, readings: &[Reading]) {
        for (recent, reading) in self.readings.iter_mut().zip(readings) {
            if recent.len() >= COMPARED {
                recent.remove(0);
            }
            recent.push(*reading);
        }
    }

    /// Names suspects as `Watch` does.
    fn naming(
        &self,
        contender: Contender,
        victim: usize,
        expected: &Expected,
        episode: &Interference,
    ) -> Naming {
        let Some(method) = contender.method() else { return Naming::None };
        let known = |pod: usize, value: &dyn Fn(&Reading) -> Option<f64>| -> Vec<f64> {
            self.readings[pod].iter().map(|reading| value(reading).unwrap_or(f64::NAN)).collect()
        };
        let figure = known(victim, &|reading| contender.value(reading));
        let names: Vec<String> = (0..self.readings.len()).map(|pod| pod.to_string()).collect();
        let activity = |pod: usize| Activity {
            name: &names[pod],
            usage: known(pod, &|reading| Some(reading.usage)),
            cpi: known(pod, &|reading| reading.cpi),
        };
        let others: Vec<Activity<'_>> = (0..names.len()).filter(|&pod| pod != victim).map(activity).collect();
        let found = suspects::notable(&method, &figure, expected, &others);
        let notable: Vec<usize> = found.iter().filter_map(|suspect| suspect.name.parse().ok()).collect();
        let is_antagonist = |pod: &usize| episode.antagonists.contains(pod);
        match notable.iter().position(is_antagonist) {
            Some(0) => Naming::First,
            Some(_) => Naming::Listed,
            None if notable.is_empty() => Naming::None,
            None => Naming::Wrong,
        }
    }
}

/// Runs one machine.
fn one(seed: u64, world: World, contenders: &[Contender]) -> Vec<Score> {
    let mut node = Node::new(seed, world);
    let episodes = node.episodes.len();
    let watcher = |&contender: &Contender| Watcher {
        contender,
        judge: contender.judge(&node),
        found: vec![None; episodes],
        score: Score { machines: world.steps as f64 / p::STEPS_OF_A_DAY as f64, ..Score::default() },
    };
    let mut watchers: Vec<_> = contenders.iter().map(watcher).collect();
    let mut recent = Recent { readings: vec![Vec::new(); node.pods()] };
    let mut disturbed = vec![None; node.pods()];
    let (mut readings, mut step, mut days) = (Vec::new(), 0, [0.0; 2]);
    while node.step(&mut readings) {
        recent.push(&readings);
        let current = node.episodes.iter().rposition(|episode| episode.begin <= step);
        for (pod, reading) in readings.iter().enumerate() {
            if reading.cpi.is_some() {
                days[0] += 1.0 / p::STEPS_OF_A_DAY as f64;
                days[1] += f64::from(u8::from(reading.usage >= 0.25)) / p::STEPS_OF_A_DAY as f64;
            }
            let is_disturbed =
                if world.contention { node.demand >= CROWDED } else { reading.rise >= DISTURBED };
            if is_disturbed {
                disturbed[pod] = Some(step);
            }
            let is_true = disturbed[pod].is_some_and(|last| last + GRACE >= step);
            for watcher in &mut watchers {
                let Some(expected) = watcher.judge.judge((step + 1) * p::STEP, pod, reading) else {
                    continue;
                };
                watcher.score.alarm(is_true);
                let Some(number) = current else { continue };
                let episode = &node.episodes[number];
                let is_victim =
                    if world.contention { !node.is_antagonist(pod) } else { pod == episode.victim };
                if is_victim && step < episode.end + GRACE / 2 && watcher.found[number].is_none() {
                    let naming = recent.naming(watcher.contender, pod, &expected, episode);
                    watcher.found[number] = Some((step + 1 - episode.begin, naming));
                }
            }
        }
        step += 1;
    }
    let finish = |Watcher { mut score, found, .. }: Watcher| {
        (score.containers, score.busy) = (days[0], days[1]);
        let outcome = |(episode, found): (&Interference, _)| {
            let length = episode.end - episode.begin;
            let (form, is_pair) = (episode.form, episode.antagonists.len() > 1);
            Outcome { form, is_pair, rise: episode.rise, length, usage: episode.used / length as f64, found }
        };
        score.outcomes = node.episodes.iter().zip(found).map(outcome).collect();
        score
    };
    watchers.into_iter().map(finish).collect()
}

/// Runs a machine for each seed. Returns the score of each method.
pub(crate) fn all(seeds: Range<u64>, world: World, contenders: &[Contender]) -> Vec<Score> {
    let threads = thread::available_parallelism().map_or(1, usize::from) as u64;
    let part = |first: u64| {
        let seeds = seeds.clone();
        move || {
            let mut sums = vec![Score::default(); contenders.len()];
            for seed in (seeds.start + first..seeds.end).step_by(threads as usize) {
                sums.iter_mut().zip(one(seed, world, contenders)).for_each(|(sum, score)| sum.add(score));
            }
            sums
        }
    };
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(part(first))).collect();
        let mut sums = vec![Score::default(); contenders.len()];
        for scores in parts.into_iter().filter_map(|part| part.join().ok()) {
            sums.iter_mut().zip(scores).for_each(|(sum, score)| sum.add(score));
        }
        sums
    })
}
