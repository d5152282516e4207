//! Metrics of events that only some processors have: top-down analysis and transactional memory. Without I/O.
//!
//! The formulas and units are those of perf (`tools/perf/util/stat-shadow.c`).

use super::metric::{Metric, Style};
use super::role::{Role, Topdown, Transaction};

impl Topdown {
    const FIRST_LEVEL: [Self; 4] =
        [Self::Retiring, Self::BadSpeculation, Self::FrontendBound, Self::BackendBound];

    /// Returns the share of the category. A category of the second level also has the rest of its category of the first level.
    pub(super) fn metrics(self, value: f64, base: impl Fn(Role) -> Option<f64>) -> Vec<Metric> {
        let counts = Self::FIRST_LEVEL.map(|category| base(Role::Topdown(category)));
        // A category without a slot has no count.
        let all: f64 = counts.iter().flatten().sum();
        if all <= 0.0 {
            return Vec::new();
        }
        let share = |name, count: f64, unit| Metric::new(name, Style::Tenths, 100.0 * count / all, unit);
        let with_rest = |whole, name, unit, rest_name, rest_unit| {
            let whole = base(Role::Topdown(whole)).unwrap_or(0.0);
            let rest = share(rest_name, (whole - value).max(0.0), rest_unit);
            vec![share(name, value, unit), rest]
        };
        match self {
            Self::Retiring => vec![share("retiring", value, "Retiring")],
            Self::BadSpeculation => vec![share("bad_speculation", value, "Bad Speculation")],
            Self::FrontendBound => vec![share("frontend_bound", value, "Frontend Bound")],
            Self::BackendBound => vec![share("backend_bound", value, "Backend Bound")],
            Self::HeavyOperations => with_rest(
                Self::Retiring,
                "heavy_operations",
                "Heavy Operations",
                "light_operations",
                "Light Operations",
            ),
            Self::BranchMispredicts => with_rest(
                Self::BadSpeculation,
                "branch_mispredicts",
                "Branch Mispredict",
                "machine_clears",
                "Machine Clears",
            ),
            Self::FetchLatency => with_rest(
                Self::FrontendBound,
                "fetch_latency",
                "Fetch Latency",
                "fetch_bandwidth",
                "Fetch Bandwidth",
            ),
            Self::MemoryBound => {
                with_rest(Self::BackendBound, "memory_bound", "Memory Bound", "core_bound", "Core Bound")
            }
        }
    }
}

impl Transaction {
    /// Returns the metric of an event.
    pub(super) fn metric(self, value: f64, base: impl Fn(Role) -> Option<f64>) -> Option<Metric> {
        let cycles = base(Role::Cycles);
        let in_transactions = base(Role::Transaction(Self::Cycles));
        let share = |name, count: f64, unit| {
            cycles.map(|all| Metric::new(name, Style::Percent, 100.0 * count / all, unit))
        };
        let each = |name, unit| {
            let per = in_transactions.filter(|_| value > 0.0)? / value;
            Some(Metric::new(name, Style::Whole, per, unit))
        };
        match self {
            Self::Cycles => share("transactional_cycles", value, "transactional cycles"),
            Self::CommittedCycles => {
                // The counts are not read at the same instant.
                let aborted = (in_transactions.unwrap_or(0.0) - value).max(0.0);
                share("aborted_cycles", aborted, "aborted cycles")
            }
            Self::Start => each("cycles_per_transaction", "cycles / transaction"),
            Self::ElisionStart => each("cycles_per_elision", "cycles / elision"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(metrics: &[Metric]) -> Vec<String> {
        metrics
            .iter()
            .map(|metric| format!("{} {}", metric.style.format(metric.value), metric.unit))
            .collect()
    }

    #[test]
    fn each_category_is_a_share_of_all_slots_and_the_second_level_has_a_rest() {
        let count = |role| match role {
            Role::Topdown(Topdown::Retiring) => Some(30.0),
            Role::Topdown(Topdown::BackendBound) => Some(50.0),
            Role::Topdown(Topdown::FrontendBound) => Some(20.0),
            _ => None,
        };
        assert_eq!(told(&Topdown::Retiring.metrics(30.0, count)), ["30.0 Retiring"]);
        assert_eq!(told(&Topdown::BadSpeculation.metrics(0.0, count)), ["0.0 Bad Speculation"]);
        assert_eq!(told(&Topdown::MemoryBound.metrics(45.0, count)), ["45.0 Memory Bound", "5.0 Core Bound"]);
        assert_eq!(
            told(&Topdown::HeavyOperations.metrics(31.0, count)),
            ["31.0 Heavy Operations", "0.0 Light Operations"]
        );
        assert!(Topdown::Retiring.metrics(0.0, |_| None).is_empty());
    }

    #[test]
    fn transactions_have_shares_of_cycles_and_cycles_of_each() {
        let count = |role| match role {
            Role::Cycles => Some(1000.0),
            Role::Transaction(Transaction::Cycles) => Some(400.0),
            _ => None,
        };
        for (event, value, expected) in [
            (Transaction::Cycles, 400.0, "40.00 transactional cycles"),
            (Transaction::CommittedCycles, 300.0, "10.00 aborted cycles"),
            (Transaction::CommittedCycles, 401.0, "0.00 aborted cycles"),
            (Transaction::Start, 8.0, "50 cycles / transaction"),
            (Transaction::ElisionStart, 4.0, "100 cycles / elision"),
        ] {
            assert_eq!(told(event.metric(value, count).as_slice()), [expected]);
        }
        assert!(Transaction::Start.metric(0.0, count).is_none());
    }
}
