//! Hardware counters, which a virtual machine cannot record. They follow from the CPU time: 3 GHz, one instruction per cycle.

use std::sync::Arc;

use perf_exporter::metrics::{Kind, Metadata, NameError};

use crate::recording::{Family, Recording, Series, Values};

/// Names of the events and their counts in a nanosecond of CPU time.
const EVENTS: [(&str, f64); 4] =
    [("cycles", 3.0), ("instructions", 3.0), ("cache_references", 0.06), ("cache_misses", 0.006)];

/// Entries of the configuration with hardware counters, and the leaders of their groups.
const GROUPS: [(&str, &str); 2] = [("core", "cycles"), ("cache", "cache-references")];

/// Adds the hardware counters of the built-in configuration: for each CPU and container four events and two running ratios.
///
/// # Errors
/// A name is invalid, which is a bug.
pub(crate) fn add(recording: &mut Recording) -> Result<(), NameError> {
    let mut added = Vec::new();
    let mut ratios = Vec::new();
    for scope in ["cpu", "cgroup"] {
        let clock = format!("perf_{scope}_task_clock_seconds");
        let clocks: Vec<Series> = recording
            .families
            .iter()
            .filter(|family| family.metadata.name() == clock)
            .flat_map(|family| family.series.iter().cloned())
            .collect();
        for (event, factor) in EVENTS {
            let help = format!("Hardware event, per {scope}.");
            let metadata = Metadata::new(&format!("perf_{scope}_{event}"), &help, "", Kind::Counter)?;
            added.push(Family {
                metadata,
                series: clocks.iter().map(|clock| event_of(clock, factor)).collect(),
            });
        }
        ratios.extend(clocks.iter().flat_map(|clock| ratios_of(clock, scope)));
    }
    let help = "Fraction of the enabled time that a group of counters was on the PMU.";
    let metadata = Metadata::new("perf_event_running_ratio", help, "ratio", Kind::Gauge)?;
    added.push(Family { metadata: Arc::clone(&metadata), series: ratios });
    recording.families.extend(added);
    Ok(())
}

fn event_of(clock: &Series, factor: f64) -> Series {
    let rate = if let Values::Counter { rate, .. } = clock.values { rate } else { 0.0 };
    Series { values: Values::Counter { rate: rate * 1e9 * factor, is_integer: true }, ..clock.clone() }
}

fn ratios_of(clock: &Series, scope: &str) -> [Series; 2] {
    GROUPS.map(|(counters, leader)| {
        let own = [("counters", counters), ("leader", leader), ("scope", scope)];
        let mut labels = clock.labels.clone();
        labels.extend(own.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Series {
            labels,
            values: Values::Gauge { first: 1.0, second: 1.0, is_integer: true },
            ..clock.clone()
        }
    })
}
