//! Events that sample memory accesses: which of the machine's PMUs have them, and how they are written.
//!
//! Source: `tools/perf/util/mem-events.c`, `tools/perf/arch/x86/util/mem-events.c`.

use super::Catalog;
use super::pmu::Pmu;

/// Precision that is requested if the kernel does not report the highest one.
const PRECISE: u8 = 2;

/// Which accesses are sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Loads.
    pub loads: bool,
    /// Stores.
    pub stores: bool,
    /// The shortest latency of sampled loads, in cycles; `None`: the default of perf, where the hardware has a threshold.
    pub latency: Option<u32>,
}

/// An event that samples memory accesses, in the syntax of perf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryEvent {
    /// The event without modifiers: `cpu/mem-loads,ldlat=30/`.
    pub text: String,
    /// The precision of addresses (`precise_ip`); 0 for PMUs that are always precise.
    pub precise: u8,
    /// Whether the event can be limited to the kernel or to programs.
    pub has_modes: bool,
    /// The event that must be counted in the same group: `cpu/mem-loads-aux/`.
    pub leader: Option<String>,
}

/// Reason why memory accesses cannot be sampled as requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoMemoryEvents {
    /// No PMU has such events.
    #[error(
        "no PMU of this machine samples memory accesses. These do: Intel since Nehalem (the events mem-loads and mem-stores of the core \
         PMU), AMD since family 10h (the PMU ibs_op), and POWER since POWER8 (the event mem-loads). Virtual machines have them only if \
         the hypervisor passes them on. The PMUs of this machine are: {}", here.join(", ")
    )]
    Absent {
        /// Names of the PMUs that the machine has.
        here: Vec<String>,
    },
    /// The machine has the Arm Statistical Profiling Extension only.
    #[error(
        "{pmu} (Arm SPE) samples memory accesses as AUX data, which perf-exporter does not decode: use perf mem record and perf mem report"
    )]
    Spe {
        /// The name of its PMU.
        pmu: String,
    },
    /// The PMU has no event for one kind of accesses.
    #[error("{pmu} has no event for {what}: remove {what} from -t")]
    Kind {
        /// The name of the PMU.
        pmu: String,
        /// `loads` or `stores`.
        what: &'static str,
    },
    /// The PMU samples loads and stores with one event.
    #[error("{pmu} samples loads and stores together: omit -t")]
    Together {
        /// The name of the PMU.
        pmu: String,
    },
    /// The PMU has no threshold.
    #[error("{pmu} has no threshold for the latency of loads: omit --ldlat")]
    NoThreshold {
        /// The name of the PMU.
        pmu: String,
    },
}

impl Catalog {
    /// Returns the events that sample memory accesses: those of each kind of core.
    ///
    /// # Errors
    /// If this machine has none, or cannot distinguish what is requested.
    pub fn memory_events(&self, wanted: Wanted) -> Result<Vec<MemoryEvent>, NoMemoryEvents> {
        /// The default of perf, in cycles.
        const LATENCY: u32 = 30;
        let mut events = Vec::new();
        for pmu in self.pmus.iter().filter(|pmu| pmu.has("mem-loads") || pmu.has("mem-stores")) {
            let name = || pmu.name.to_string();
            if wanted.loads {
                if !pmu.has("mem-loads") {
                    return Err(NoMemoryEvents::Kind { pmu: name(), what: "loads" });
                }
                let text = match (pmu.format.contains_key("ldlat"), wanted.latency) {
                    (true, latency) => {
                        format!("{}/mem-loads,ldlat={}/", pmu.name, latency.unwrap_or(LATENCY))
                    }
                    (false, None) => format!("{}/mem-loads/", pmu.name),
                    (false, Some(_)) => return Err(NoMemoryEvents::NoThreshold { pmu: name() }),
                };
                let leader = pmu.has("mem-loads-aux").then(|| format!("{}/mem-loads-aux/", pmu.name));
                events.push(MemoryEvent { leader, ..pmu.memory_event(text) });
            }
            if wanted.stores {
                if !pmu.has("mem-stores") {
                    return Err(NoMemoryEvents::Kind { pmu: name(), what: "stores" });
                }
                events.push(pmu.memory_event(format!("{}/mem-stores/", pmu.name)));
            }
        }
        if !events.is_empty() {
            return Ok(events);
        }
        if let Some(pmu) = self.pmus.iter().find(|pmu| &*pmu.name == "ibs_op") {
            let name = pmu.name.to_string();
            return match wanted {
                Wanted { loads: true, stores: true, latency: None } => {
                    let event = pmu.memory_event("ibs_op//".to_owned());
                    // IBS is always precise, and older kernels reject a restriction to a mode.
                    Ok(vec![MemoryEvent { precise: 0, has_modes: false, ..event }])
                }
                Wanted { loads: true, stores: true, latency: Some(_) } => {
                    Err(NoMemoryEvents::NoThreshold { pmu: name })
                }
                _ => Err(NoMemoryEvents::Together { pmu: name }),
            };
        }
        match self.pmus.iter().find(|pmu| pmu.name.starts_with("arm_spe_")) {
            Some(pmu) => Err(NoMemoryEvents::Spe { pmu: pmu.name.to_string() }),
            None => Err(NoMemoryEvents::Absent { here: self.pmus().map(str::to_owned).collect() }),
        }
    }
}

impl Pmu {
    fn has(&self, event: &str) -> bool {
        self.events.contains_key(event)
    }

    fn memory_event(&self, text: String) -> MemoryEvent {
        let precise = self.max_precise.unwrap_or(PRECISE);
        MemoryEvent { text, precise, has_modes: true, leader: None }
    }
}
