//! Properties of the host that expressions name: numbers of CPUs, cores and sockets, issue slots, clock frequencies.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::super::number::c_number;
use super::expression::Constant;
use crate::host::{CpuPosition, CpuSet, Roots, cpu_model, read_text};

/// Properties of the host, read when the first one is needed: three small files per CPU.
#[derive(Debug, Clone)]
pub(in crate::event) struct HostConstants {
    roots: Roots,
    online: CpuSet,
    values: Arc<OnceLock<Values>>,
}

#[derive(Debug, Default)]
struct Values {
    cpus: usize,
    cores: usize,
    dies: usize,
    packages: usize,
    tsc: Option<f64>,
}

/// Whether the values were read makes no difference.
impl PartialEq for HostConstants {
    fn eq(&self, other: &Self) -> bool {
        self.roots == other.roots && self.online == other.online
    }
}

impl HostConstants {
    /// Returns the properties of a host with these CPUs online, unread.
    pub(in crate::event) fn new(roots: &Roots, online: &CpuSet) -> Self {
        Self { roots: roots.clone(), online: online.clone(), values: Arc::default() }
    }

    /// Returns a property. `pmu` is the PMU of the cores that it is about. `None` if the host does not report it.
    pub(super) fn value(&self, constant: Constant, pmu: &str) -> Option<f64> {
        let values = || self.values.get_or_init(|| self.read());
        let count = |number: usize| (number > 0).then_some(number as f64);
        match constant {
            Constant::Slots => self.slots(pmu),
            Constant::Cpus => count(values().cpus),
            Constant::OnlineCpus => count(self.online.len()),
            Constant::Cores => count(values().cores),
            Constant::Dies => count(values().dies),
            Constant::Packages => count(values().packages),
            Constant::SmtOn => {
                count(values().cores).map(|cores| if self.online.len() as f64 > cores { 1.0 } else { 0.0 })
            }
            Constant::TscFrequency => values().tsc,
        }
    }

    /// Reads the slots per cycle, which the driver of Arm's PMU reports since Linux 5.11; 0 if the core does not report them.
    fn slots(&self, pmu: &str) -> Option<f64> {
        let path = format!("bus/event_source/devices/{pmu}/caps/slots");
        let text = read_text(&self.roots.sys.join(path)).ok()?;
        c_number(text.trim()).flatten().filter(|&slots| slots > 0).map(|slots| slots as f64)
    }

    fn read(&self) -> Values {
        let present = read_text(&self.roots.sys.join("devices/system/cpu/present")).ok();
        let present: Option<CpuSet> = present.and_then(|text| text.trim().parse().ok());
        let positions: Vec<CpuPosition> =
            self.online.iter().map(|cpu| CpuPosition::read(&self.roots, cpu)).collect();
        fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> usize {
            values.collect::<BTreeSet<T>>().len()
        }
        Values {
            cpus: present.map_or(self.online.len(), |cpus| cpus.len()),
            cores: distinct(positions.iter().copied()),
            dies: distinct(positions.iter().map(|position| (position.socket, position.die))),
            packages: distinct(positions.iter().map(|position| position.socket)),
            tsc: cpu_model(&self.roots).as_deref().and_then(nominal_frequency),
        }
    }
}

/// Returns the frequency in the name of an Intel CPU, which is that of the time stamp counter: `… CPU @ 2.10GHz`. perf uses it, too
/// (`tools/perf/arch/x86/util/tsc.c`).
fn nominal_frequency(model: &str) -> Option<f64> {
    let (_, text) = model.rsplit_once("@ ")?;
    let (number, factor) = match (text.strip_suffix("GHz"), text.strip_suffix("MHz")) {
        (Some(number), _) => (number, 1e9),
        (None, Some(number)) => (number, 1e6),
        (None, None) => return None,
    };
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_frequency_of_the_time_stamp_counter_is_in_the_name_of_the_cpu() {
        for (model, expected) in [
            ("Intel(R) Xeon(R) Gold 6230 CPU @ 2.10GHz", Some(2.1e9)),
            ("Intel(R) Atom(TM) CPU @ 800MHz", Some(8e8)),
            ("AMD EPYC 9654 96-Core Processor", None),
            ("x @ inf GHz", None),
        ] {
            assert_eq!(nominal_frequency(model), expected, "{model}");
        }
    }

    #[test]
    fn threads_cores_and_sockets_are_counted_and_slots_read_for_each_pmu() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for cpu in 0..8 {
            let base = format!("devices/system/cpu/cpu{cpu}/topology");
            put(&format!("{base}/physical_package_id"), &format!("{}\n", cpu % 2));
            put(&format!("{base}/core_id"), &format!("{}\n", cpu / 4));
        }
        put("devices/system/cpu/present", "0-15\n");
        put("bus/event_source/devices/armv8_pmuv3_0/caps/slots", "0x00000008\n");
        put("bus/event_source/devices/armv8_pmuv3_1/caps/slots", "0x00000000\n");
        let constants = HostConstants::new(&Roots::under(dir.path()), &"0-7".parse().unwrap());
        let value = |constant| constants.value(constant, "armv8_pmuv3_0");
        assert_eq!(value(Constant::Cpus), Some(16.0));
        assert_eq!(value(Constant::OnlineCpus), Some(8.0));
        assert_eq!(value(Constant::Cores), Some(4.0));
        assert_eq!(value(Constant::Packages), Some(2.0));
        assert_eq!(value(Constant::SmtOn), Some(1.0));
        assert_eq!(value(Constant::Slots), Some(8.0));
        assert_eq!(constants.value(Constant::Slots, "armv8_pmuv3_1"), None);
        assert_eq!(constants.value(Constant::Slots, "cpu"), None);
        assert_eq!(value(Constant::TscFrequency), None);
    }
}
