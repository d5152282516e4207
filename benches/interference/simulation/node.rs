//! A machine with pods, of which some disturb others.

use std::f64::consts::TAU;

use super::parameters as p;
use super::random::Random;

/// Variant of the machines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct World {
    /// Steps of each run.
    pub(crate) steps: u64,
    /// Episodes in a day; zero = no interference.
    pub(crate) episodes: f64,
    /// Whether antagonists take CPU time instead of the cache.
    pub(crate) contention: bool,
    /// Deviation of the change by a deploy, and its limit.
    pub(crate) deploy_change: (f64, f64),
    /// The only rise; `None` = all.
    pub(crate) rise: Option<f64>,
}

impl World {
    pub(crate) const fn new(days: u64, episodes: f64) -> Self {
        let steps = days * p::STEPS_OF_A_DAY;
        Self { steps, episodes, contention: false, deploy_change: p::DEPLOY_CHANGE, rise: None }
    }
}

/// What a pod does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Service,
    Idle,
    Batch,
    Antagonist(Form),
}

/// How an antagonist uses CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// It is idle otherwise.
    Starts,
    /// It uses more than before.
    Grows,
    /// It runs and rests for minutes.
    Pulses,
    /// It uses as much as before, and another part of the cache.
    Constant,
}

impl Form {
    pub(crate) const ALL: [Self; 4] = [Self::Starts, Self::Grows, Self::Pulses, Self::Constant];
}

/// An injected interference.
#[derive(Debug, Clone)]
pub(crate) struct Interference {
    /// First step, and the first one after it.
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) victim: usize,
    /// One or two.
    pub(crate) antagonists: Vec<usize>,
    pub(crate) form: Form,
    pub(crate) rise: f64,
    /// CPUs that an antagonist demands if it takes CPU time, as a share of all.
    contention: f64,
    /// Sum over its steps of the CPUs that the victim would use without it.
    pub(crate) used: f64,
}

/// Values of one pod in one step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    /// Used CPUs.
    pub(crate) usage: f64,
    /// Cycles per instruction; `None` without a value.
    pub(crate) cpi: Option<f64>,
    /// The 99th percentile of the run-queue latency in seconds.
    pub(crate) latency: Option<f64>,
    /// Truth: rise of the cycles per instruction by antagonists.
    pub(crate) rise: f64,
    /// Number of the container: it changes at a restart.
    pub(crate) container: u32,
    /// Number of the pod: it changes at a deploy, and for each run of a batch job.
    pub(crate) pod: u32,
}

/// A value with a memory: an autoregressive process.
#[derive(Debug, Clone, Copy, Default)]
struct Memory(f64);

impl Memory {
    fn next(&mut self, random: &mut Random, (steps, deviation): (f64, f64)) -> f64 {
        let kept = (-1.0 / steps).exp();
        self.0 = kept * self.0 + deviation * (1.0 - kept * kept).sqrt() * random.normal();
        self.0
    }
}

/// A workload: pods with the same program.
#[derive(Debug, Clone)]
struct Workload {
    class: Class,
    cpi: f64,
    cpus: f64,
    slope: f64,
    sensitivity: f64,
    /// Amplitude and phase of the load in a day.
    diurnal: (f64, f64),
    /// Whether requests arrive at a rate that does not depend on how long they take.
    is_open: bool,
    /// Sum of the changes by deploys.
    level: f64,
}

#[derive(Debug, Clone, Default)]
struct Pod {
    workload: usize,
    load: Memory,
    slow: Memory,
    fast: Memory,
    latency: f64,
    started: u64,
    down_until: u64,
    /// Last step and share above of a phase.
    phase: (u64, f64),
    /// Whether a batch job or the pulse of an antagonist runs, and until when.
    runs: bool,
    runs_until: u64,
    /// Difference of this run of a batch job.
    run_level: f64,
    container: u32,
    pod: u32,
}

/// A machine.
#[derive(Debug)]
pub(crate) struct Node {
    world: World,
    random: Random,
    cpus: f64,
    workloads: Vec<Workload>,
    pods: Vec<Pod>,
    /// The injected interference, by begin.
    pub(crate) episodes: Vec<Interference>,
    step: u64,
    /// The episode that is next or under way.
    next: usize,
    /// Demanded CPUs as a share of all, in the last step.
    pub(crate) demand: f64,
}

fn between(random: &mut Random, (least, most): (f64, f64)) -> f64 {
    least + (most - least) * random.uniform()
}

/// Returns a number of which each doubling is as likely.
fn scaled(random: &mut Random, (least, most): (f64, f64)) -> f64 {
    (between(random, (least.ln(), most.ln()))).exp()
}

fn exponential(random: &mut Random, mean: f64) -> f64 {
    -mean * (1.0 - random.uniform()).ln()
}

fn pick(random: &mut Random, number: usize) -> usize {
    ((random.uniform() * number as f64) as usize).min(number.saturating_sub(1))
}

impl Node {
    pub(crate) fn new(seed: u64, world: World) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let cpus = p::CPUS[pick(&mut random, p::CPUS.len())];
        let number = between(&mut random, (p::PODS.0, p::PODS.1 + 1.0)) as usize;
        let share = |share: f64| ((number as f64 * share).round() as usize).max(2);
        let (idle, batch, antagonists) = (share(p::IDLE), share(p::BATCH), share(p::ANTAGONISTS));
        let mut node = Self {
            world,
            random,
            cpus,
            workloads: Vec::new(),
            pods: Vec::new(),
            episodes: Vec::new(),
            step: 0,
            next: 0,
            demand: 0.0,
        };
        while node.pods.len() < number - idle - batch - antagonists {
            let replicas = 1 + pick(&mut node.random, 3);
            node.add(Class::Service, replicas);
        }
        let services = node.pods.len();
        (0..idle).for_each(|_| node.add(Class::Idle, 1));
        (0..batch).for_each(|_| node.add(Class::Batch, 1));
        for _ in 0..antagonists {
            // Half of them start, the others are of the other forms.
            let form = pick(&mut node.random, 8);
            let form = match form {
                0..4 => Form::Starts,
                4..6 => Form::Grows,
                6 => Form::Pulses,
                _ => Form::Constant,
            };
            node.add(Class::Antagonist(form), 1);
        }
        let used: f64 = node.pods[..services].iter().map(|pod| node.workloads[pod.workload].cpus).sum();
        let wanted = cpus * between(&mut node.random, p::LOAD);
        let of_services = |workload: &&mut Workload| workload.class == Class::Service;
        node.workloads.iter_mut().filter(of_services).for_each(|workload| workload.cpus *= wanted / used);
        node.workloads[0].sensitivity = node.workloads[0].sensitivity.max(p::SENSITIVE);
        node.inject();
        node
    }

    fn add(&mut self, class: Class, replicas: usize) {
        let random = &mut self.random;
        let cpus = match class {
            Class::Service => (0.8 * random.normal()).exp(),
            Class::Idle => scaled(random, (0.02, 0.2)),
            Class::Batch => between(random, p::BATCH_CPUS),
            Class::Antagonist(_) => scaled(random, p::ANTAGONIST_CPUS),
        };
        let is_service = matches!(class, Class::Service | Class::Idle);
        self.workloads.push(Workload {
            class,
            cpi: (p::CPI.0 + p::CPI.1 * random.normal()).exp(),
            cpus,
            slope: between(random, p::LOAD_SLOPE),
            sensitivity: random.uniform().powi(2),
            diurnal: (between(random, p::DIURNAL), 0.08 * random.normal()),
            is_open: is_service && random.uniform() < 0.7,
            level: 0.0,
        });
        for _ in 0..replicas {
            let latency = (p::LATENCY.0 + p::LATENCY.1 * random.normal()).exp();
            let workload = self.workloads.len() - 1;
            self.pods.push(Pod { workload, latency, ..Pod::default() });
        }
    }

    /// Chooses times, victims and antagonists.
    fn inject(&mut self) {
        if self.world.episodes <= 0.0 {
            return;
        }
        let pods = |of: &dyn Fn(&Workload) -> bool| -> Vec<usize> {
            (0..self.pods.len()).filter(|&pod| of(&self.workloads[self.pods[pod].workload])).collect()
        };
        let victims = pods(&|workload| {
            matches!(workload.class, Class::Service | Class::Idle) && workload.sensitivity >= p::SENSITIVE
        });
        let antagonists = pods(&|workload| matches!(workload.class, Class::Antagonist(_)));
        let random = &mut self.random;
        let mean = p::STEPS_OF_A_DAY as f64 / self.world.episodes - p::PAUSE as f64;
        let mut at = p::STEPS_OF_A_DAY;
        loop {
            at += exponential(random, mean.max(1.0)) as u64;
            let end = at + scaled(random, p::EPISODE) as u64;
            let one = antagonists[pick(random, antagonists.len())];
            let other = antagonists[pick(random, antagonists.len())];
            let is_pair = random.uniform() < p::PAIR && other != one;
            let Class::Antagonist(form) = self.workloads[self.pods[one].workload].class else { return };
            let rise = p::RISES[pick(random, p::RISES.len())];
            let victim = victims[pick(random, victims.len())];
            if end >= self.world.steps {
                return;
            }
            let antagonists = [one].into_iter().chain(is_pair.then_some(other)).collect();
            let (rise, contention) = (self.world.rise.unwrap_or(rise), between(random, p::CONTENTION));
            self.episodes.push(Interference {
                begin: at,
                end,
                victim,
                antagonists,
                form,
                rise,
                contention,
                used: 0.0,
            });
            at = end + p::PAUSE;
        }
    }

    pub(crate) fn pods(&self) -> usize {
        self.pods.len()
    }

    /// Returns the number of the workload of a pod.
    pub(crate) fn workload(&self, pod: usize) -> usize {
        self.pods[pod].workload
    }

    pub(crate) fn is_antagonist(&self, pod: usize) -> bool {
        matches!(self.workloads[self.pods[pod].workload].class, Class::Antagonist(_))
    }

    /// Returns the current episode.
    fn current(&self) -> Option<&Interference> {
        self.episodes.get(self.next).filter(|episode| episode.begin <= self.step)
    }

    /// Lets ten seconds pass. Returns `false` at the end.
    pub(crate) fn step(&mut self, readings: &mut Vec<Reading>) -> bool {
        if self.step >= self.world.steps {
            return false;
        }
        self.change();
        let share: Vec<f64> = (0..self.pods.len()).map(|pod| self.load(pod)).collect();
        let pressure = self.pressure(&share);
        let rises: Vec<f64> = (0..self.pods.len()).map(|pod| self.rise(pod, pressure)).collect();
        let demands: Vec<f64> =
            (0..self.pods.len()).map(|pod| self.demanded(pod, share[pod], rises[pod])).collect();
        self.demand = demands.iter().sum::<f64>() / self.cpus;
        let is_gap = self.random.uniform() < p::GAP;
        readings.clear();
        for pod in 0..self.pods.len() {
            let usage = demands[pod] / self.demand.max(1.0);
            let reading = self.reading(pod, usage, share[pod], rises[pod]);
            readings.push(if is_gap { Reading { cpi: None, latency: None, ..reading } } else { reading });
        }
        if let Some(episode) = self.episodes.get_mut(self.next) {
            if episode.begin <= self.step {
                let victim = episode.victim;
                let is_open = self.workloads[self.pods[victim].workload].is_open;
                episode.used += readings[victim].usage / if is_open { rises[victim] } else { 1.0 };
            }
            if episode.end <= self.step + 1 {
                self.next += 1;
            }
        }
        self.step += 1;
        true
    }

    /// Deploys, restarts, begins and ends of batch jobs, phases of programs.
    fn change(&mut self) {
        let step = self.step;
        let a_day = p::STEPS_OF_A_DAY as f64;
        for number in 0..self.workloads.len() {
            let is_service = matches!(self.workloads[number].class, Class::Service | Class::Idle);
            if !is_service || self.random.uniform() >= p::DEPLOYS / a_day {
                continue;
            }
            let (deviation, most) = self.world.deploy_change;
            self.workloads[number].level += (deviation * self.random.normal()).clamp(-most, most);
            // Replicas are replaced one after the other.
            let mut at = step;
            for pod in self.pods.iter_mut().filter(|pod| pod.workload == number) {
                at += between(&mut self.random, (2.0, 6.0)) as u64;
                (pod.started, pod.down_until) = (at, at);
                (pod.container, pod.pod) = (pod.container + 1, pod.pod + 1);
            }
        }
        for pod in &mut self.pods {
            let random = &mut self.random;
            let class = self.workloads[pod.workload].class;
            if random.uniform() < p::RESTARTS / a_day {
                let at = step + between(random, (2.0, 6.0)) as u64;
                (pod.started, pod.down_until, pod.container) = (at, at, pod.container + 1);
            }
            if random.uniform() < p::PHASES / a_day {
                pod.phase = (
                    step + between(random, p::PHASE_LENGTH).round() as u64,
                    exponential(random, p::PHASE_RISE),
                );
            }
            let lengths = match class {
                Class::Batch if pod.runs => p::BATCH_RESTS,
                Class::Batch => p::BATCH_RUNS,
                Class::Antagonist(Form::Pulses) => p::PULSE,
                _ => continue,
            };
            if step >= pod.runs_until {
                pod.runs = !pod.runs;
                pod.runs_until = step + scaled(random, lengths) as u64;
                if pod.runs && class == Class::Batch {
                    pod.run_level = p::BATCH_CHANGE * random.normal();
                    (pod.container, pod.pod, pod.started) = (pod.container + 1, pod.pod + 1, step);
                }
            }
        }
    }

    /// Returns the load of a pod, as a share of its usual one.
    fn load(&mut self, pod: usize) -> f64 {
        let (step, now) =
            (self.step, self.current().is_some_and(|episode| episode.antagonists.contains(&pod)));
        let pod = &mut self.pods[pod];
        let workload = &self.workloads[pod.workload];
        let noise = pod.load.next(&mut self.random, p::LOAD_NOISE).exp();
        let time = step as f64 / p::STEPS_OF_A_DAY as f64;
        match workload.class {
            Class::Service | Class::Idle => {
                let (amplitude, phase) = workload.diurnal;
                noise * (1.0 + amplitude * (TAU * (time + phase)).sin())
            }
            Class::Batch => {
                if pod.runs {
                    1.0
                } else {
                    0.0
                }
            }
            Class::Antagonist(form) => {
                let idle = 0.01 * noise;
                match form {
                    Form::Starts if now => noise,
                    Form::Starts => idle,
                    Form::Grows if now => noise,
                    Form::Grows => p::BEFORE_GROWTH * noise,
                    Form::Pulses if now && pod.runs => noise,
                    Form::Pulses => idle,
                    Form::Constant => noise,
                }
            }
        }
    }

    /// Returns the pressure on the cache: 1 has the effect of the episode on its victim.
    fn pressure(&self, share: &[f64]) -> f64 {
        let Some(episode) = self.current().filter(|_| !self.world.contention) else { return 0.0 };
        let part = 1.0 / episode.antagonists.len() as f64;
        let of = |&pod: &usize| if share[pod] < 0.05 { 0.0 } else { part * share[pod] };
        episode.antagonists.iter().map(of).sum()
    }

    fn rise(&self, pod: usize, pressure: f64) -> f64 {
        let Some(episode) = self.current() else { return 1.0 };
        let sensitivity = |pod: usize| self.workloads[self.pods[pod].workload].sensitivity;
        if episode.antagonists.contains(&pod) {
            return 1.0;
        }
        1.0 + (episode.rise - 1.0) * pressure * sensitivity(pod) / sensitivity(episode.victim)
    }

    /// Returns the CPUs that a pod wants.
    fn demanded(&mut self, pod: usize, share: f64, rise: f64) -> f64 {
        if self.pods[pod].down_until > self.step {
            return 0.0;
        }
        let workload = &self.workloads[self.pods[pod].workload];
        let jitter = (p::LOAD_JITTER * self.random.normal()).exp();
        let slower = if workload.is_open { rise } else { 1.0 };
        let cpus = workload.cpus * share * jitter * slower;
        let episode = self.current().filter(|episode| episode.antagonists.contains(&pod));
        match episode.filter(|_| self.world.contention && share >= 0.05) {
            Some(episode) => share * self.cpus * episode.contention / episode.antagonists.len() as f64,
            None => cpus,
        }
    }

    fn reading(&mut self, pod: usize, usage: f64, share: f64, rise: f64) -> Reading {
        let (random, step, demand) = (&mut self.random, self.step, self.demand);
        let pod = &mut self.pods[pod];
        let workload = &self.workloads[pod.workload];
        let slow = pod.slow.next(random, p::SLOW_NOISE) + pod.fast.next(random, p::FAST_NOISE);
        let jitter = p::JITTER * (0.5 / usage.max(1e-3)).sqrt().clamp(0.7, 4.0) * random.normal();
        let tail = if random.uniform() < p::TAIL.0 { exponential(random, p::TAIL.1) } else { 0.0 };
        let waits = (p::LATENCY.2 * random.normal()).exp();
        let absent = Reading { rise, container: pod.container, pod: pod.pod, ..Reading::default() };
        if pod.down_until > step || usage < 1e-3 {
            return absent;
        }
        let phase = if pod.phase.0 > step { pod.phase.1 } else { 0.0 };
        let cold = p::COLD.0 * (-(step.saturating_sub(pod.started) as f64) / p::COLD.1).exp();
        let crowded = p::CROWDED * ((demand.min(1.0) - 0.6) / 0.4).max(0.0);
        let cpi = workload.cpi
            * (workload.level + pod.run_level + slow + jitter).exp()
            * (1.0 + workload.slope * (share - 1.0))
            * rise
            * (1.0 + tail)
            * (1.0 + phase)
            * (1.0 + cold)
            * (1.0 + crowded);
        let overload = p::LATENCY_OF_OVERLOAD * (demand - 0.95).max(0.0);
        let latency = waits * (pod.latency * (1.0 + (demand.min(1.0) / 0.8).powi(6)) + overload);
        Reading { usage, cpi: Some(cpi), latency: Some(latency), ..absent }
    }
}
