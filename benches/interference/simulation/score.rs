//! Figures of a method, with confidence intervals of 95%.

use super::run::{Naming, Outcome};

/// What a method has done on some machines.
#[derive(Debug, Clone, Default)]
pub(crate) struct Score {
    /// Days of machines.
    pub(crate) machines: f64,
    /// Days of containers, and those in which they used a quarter of a CPU.
    pub(crate) containers: f64,
    pub(crate) busy: f64,
    /// Alarms without interference, and with it.
    pub(crate) vain: u64,
    pub(crate) justified: u64,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Score {
    pub(crate) fn alarm(&mut self, is_true: bool) {
        *(if is_true { &mut self.justified } else { &mut self.vain }) += 1;
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.machines += other.machines;
        self.containers += other.containers;
        self.busy += other.busy;
        self.vain += other.vain;
        self.justified += other.justified;
        self.outcomes.extend(other.outcomes);
    }

    /// Returns the episodes that match, and those of them that were found within this number of steps.
    pub(crate) fn found(&self, within: u64, is_counted: impl Fn(&Outcome) -> bool) -> (usize, usize) {
        let counted = || self.outcomes.iter().filter(|outcome| is_counted(outcome));
        let found =
            counted().filter(|outcome| outcome.found.is_some_and(|(delay, _)| delay <= within)).count();
        (found, counted().count())
    }

    /// Returns a quantile of the steps until an episode was found; `None` if none was.
    pub(crate) fn delay(&self, quantile: f64) -> Option<u64> {
        let mut delays: Vec<u64> =
            self.outcomes.iter().filter_map(|outcome| outcome.found).map(|(delay, _)| delay).collect();
        delays.sort_unstable();
        delays.get(((delays.len() as f64 * quantile) as usize).min(delays.len().saturating_sub(1))).copied()
    }

    /// Returns the number of found episodes with this result of the search for suspects, and of all found ones.
    pub(crate) fn named(&self, naming: Naming, is_counted: impl Fn(&Outcome) -> bool) -> (usize, usize) {
        let counted = self.outcomes.iter().filter(|outcome| is_counted(outcome));
        let namings: Vec<Naming> =
            counted.filter_map(|outcome| outcome.found).map(|(_, naming)| naming).collect();
        (namings.iter().filter(|&&other| other == naming).count(), namings.len())
    }
}

/// Returns the interval of a proportion (Wilson).
pub(crate) fn proportion((part, all): (usize, usize)) -> (f64, f64) {
    let (n, z) = (all.max(1) as f64, 1.96_f64);
    let share = part as f64 / n;
    let center = share + z * z / (2.0 * n);
    let spread = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    ((center - spread).max(0.0) / scale, (center + spread) / scale)
}

/// Returns the interval of a rate of events in a time (exact, for a Poisson distribution).
pub(crate) fn rate(events: u64, time: f64) -> (f64, f64) {
    // Probability of at most this number of events.
    let cumulated = |events: u64, mean: f64| {
        let mut term = -mean;
        let mut sum = term.exp();
        for event in 1..=events {
            term += (mean / event as f64).ln();
            sum += term.exp();
        }
        sum
    };
    let solve = |is_below: &dyn Fn(f64) -> bool| {
        let (mut low, mut high) = (0.0, 20.0 + 2.0 * events as f64);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            *(if is_below(middle) { &mut low } else { &mut high }) = middle;
        }
        low
    };
    let upper = solve(&|mean| cumulated(events, mean) > 0.025);
    let lower = match events.checked_sub(1) {
        Some(fewer) => solve(&|mean| 1.0 - cumulated(fewer, mean) < 0.025),
        None => 0.0,
    };
    (lower / time, upper / time)
}
