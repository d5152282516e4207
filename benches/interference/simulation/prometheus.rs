//! The alert PerfIpcCollapse of deploy/prometheus/alerts.rules.yaml, with its recording rules, for scrapes and evaluations once a minute.

use perf_exporter::anomaly::Expected;

use super::methods::{Begin, Judge};
use super::node::Reading;
use super::parameters as p;

/// Minutes of the rates (`[5m]`): five scrapes have four minutes between them, from which `rate` extrapolates.
const RATE: usize = 4;
/// Minutes of the baseline (`[1d] offset 1h`).
const BASELINE: usize = 1440;
const BASELINE_OFFSET: usize = 60;
/// Minutes of the usual lows (`[2d] offset 12h`), and their quantile.
const LOW: usize = 2880;
const LOW_OFFSET: usize = 720;
const LOW_QUANTILE: f64 = 0.02;
/// Minutes after which a pod has an alert (`offset 6h`), and for which the condition holds (`for: 15m`).
const AGE: usize = 360;
const FOR: usize = 15;
/// `perf:ipc_of_baseline:limit` and `perf:busy_cpu_seconds:limit`.
const LIMIT: f64 = 0.6;
const BUSY: f64 = 0.25;

/// The series of one pod.
#[derive(Debug, Clone, Default)]
struct Series {
    pod: u32,
    /// Counters: CPU time in seconds, cycles, instructions.
    counters: [f64; 3],
    /// The counters at each scrape.
    scrapes: Vec<[f64; 3]>,
    /// Rates by minute; `None` without two scrapes, or without values.
    rates: Vec<[f64; 3]>,
    /// Sums of the rates of all minutes before, for averages.
    sums: Vec<[f64; 3]>,
    /// Minutes for which the condition has held.
    pending: usize,
}

impl Series {
    /// Returns the rates of an evaluation.
    fn scrape(&mut self) -> [f64; 3] {
        self.scrapes.push(self.counters);
        let last = self.scrapes.len() - 1;
        let before = self.scrapes[last.saturating_sub(RATE)];
        let seconds = 60.0 * last.clamp(1, RATE) as f64;
        let rates = std::array::from_fn(|place| (self.counters[place] - before[place]) / seconds);
        let sums = self.sums.last().copied().unwrap_or_default();
        self.sums.push(std::array::from_fn(|place| sums[place] + rates[place]));
        self.rates.push(rates);
        rates
    }

    /// Returns instructions per cycle on average over the day that ended an hour ago.
    fn baseline(&self) -> Option<f64> {
        // The baseline is evaluated every two minutes.
        let now = (self.sums.len() - 1) & !1;
        let end = now.checked_sub(BASELINE_OFFSET)?;
        let begin = end.checked_sub(BASELINE).map(|begin| self.sums[begin]).unwrap_or_default();
        let [_, cycles, instructions] = std::array::from_fn(|place| self.sums[end][place] - begin[place]);
        (cycles > 0.0).then(|| instructions / cycles)
    }

    /// Returns instructions per cycle in a bad half hour of each day.
    fn low(&self) -> Option<f64> {
        let end = (self.rates.len() - 1).checked_sub(LOW_OFFSET)?;
        let rates = &self.rates[(end + 1).saturating_sub(LOW)..=end];
        let ratios = rates
            .iter()
            .filter(|[_, cycles, _]| *cycles > 0.0)
            .map(|[_, cycles, instructions]| instructions / cycles);
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let last = ratios.len().checked_sub(1)?;
        let place = LOW_QUANTILE * last as f64;
        let (lower, upper) = (ratios[place as usize], ratios[(place as usize + 1).min(last)]);
        Some(lower + (upper - lower) * place.fract())
    }

    /// Reports whether the expression of the alert has a value.
    fn is_true(&self, [cpus, cycles, instructions]: [f64; 3]) -> bool {
        let Some(baseline) = self.baseline().filter(|_| cycles > 0.0) else { return false };
        let is_old = self.rates.len() > AGE;
        instructions / cycles / baseline < LIMIT
            && cpus > BUSY
            && is_old
            && self.low().is_none_or(|low| low / baseline >= LIMIT)
    }
}

/// The alert for all pods of a machine.
pub(crate) struct IpcCollapse(Vec<Series>);

impl IpcCollapse {
    pub(crate) fn new(pods: usize) -> Self {
        Self(vec![Series::default(); pods])
    }
}

impl Judge for IpcCollapse {
    fn judge(&mut self, at: u64, pod: usize, reading: &Reading) -> Begin {
        let series = &mut self.0[pod];
        if series.pod != reading.pod {
            *series = Series { pod: reading.pod, ..Series::default() };
        }
        let seconds = reading.usage * p::STEP as f64 / 1000.0;
        // The clock rate cancels out.
        let instructions = reading.cpi.map_or(0.0, |cpi| seconds / cpi);
        let cycles = if reading.cpi.is_some() { seconds } else { 0.0 };
        let more = [seconds, cycles, instructions];
        series.counters = std::array::from_fn(|place| series.counters[place] + more[place]);
        if !(at / p::STEP).is_multiple_of(p::STEPS_OF_A_MINUTE) {
            return None;
        }
        let rates = series.scrape();
        series.pending = if series.is_true(rates) { series.pending + 1 } else { 0 };
        let expected = Expected { center: f64::NAN, spread: f64::NAN, threshold: f64::NAN };
        (series.pending == FOR + 1).then_some(expected)
    }
}
