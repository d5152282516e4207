//! The positions of the CPUs of the recorded machine.
//!
//! Sources: `process_cpu_topology` and `process_numa_topology` in `tools/perf/util/header.c`.

use std::collections::BTreeMap;

use super::cursor::Cursor;
use super::features::nodes;
use super::header::Header;
use crate::host::{CpuPosition, ReadAt};
use crate::perf_data::constants::{CPU_TOPOLOGY, NRCPUS, NUMA_TOPOLOGY};
use crate::recording::Invalid;

/// Maximum number of CPUs of a machine.
const CPUS: u32 = 1 << 16;

/// Sockets, dies, cores and NUMA nodes of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    positions: Vec<CpuPosition>,
    nodes: BTreeMap<u32, u32>,
}

impl Topology {
    /// Reads the features. Unknown positions are 0.
    pub(super) fn read(header: &Header, file: &dyn ReadAt) -> Result<Self, Invalid> {
        let words = |feature| header.feature(file, feature).map(Option::unwrap_or_default);
        let available = Cursor::new(&words(NRCPUS)?, header.big).u32().unwrap_or(0).min(CPUS);
        let mut topology = Self::default();
        // The rest is unreadable after the first incomplete part.
        topology.cpus(&mut Cursor::new(&words(CPU_TOPOLOGY)?, header.big), available).unwrap_or_default();
        let nodes = nodes(&words(NUMA_TOPOLOGY)?, header.big);
        let pairs = nodes.iter().flat_map(|(node, cpus)| cpus.iter().map(move |cpu| (cpu, *node)));
        // A damaged file can have the same CPUs in many nodes.
        topology.nodes = pairs.take(CPUS as usize).collect();
        Ok(topology)
    }

    /// Reads lists of the CPUs of sockets and cores, core and socket of each CPU, lists of the CPUs of dies, and the die of each CPU.
    fn cpus(&mut self, cursor: &mut Cursor<'_>, available: u32) -> Option<()> {
        for _ in ["sockets", "cores"] {
            skip_texts(cursor)?;
        }
        // Some architectures report -1.
        let number = |number: u32| if i32::try_from(number).is_ok() { number } else { 0 };
        for _ in 0..available {
            let (core, socket) = (number(cursor.u32()?), number(cursor.u32()?));
            self.positions.push(CpuPosition { socket, die: 0, core });
        }
        // perf before 5.2 has no dies.
        skip_texts(cursor)?;
        for position in &mut self.positions {
            position.die = number(cursor.u32()?);
        }
        Some(())
    }

    /// Returns the position of a CPU.
    pub fn position(&self, cpu: u32) -> CpuPosition {
        let position = usize::try_from(cpu).ok().and_then(|cpu| self.positions.get(cpu));
        position.copied().unwrap_or_default()
    }

    /// Returns the NUMA node of a CPU.
    pub fn node(&self, cpu: u32) -> u32 {
        self.nodes.get(&cpu).copied().unwrap_or(0)
    }
}

fn skip_texts(cursor: &mut Cursor<'_>) -> Option<()> {
    for _ in 0..cursor.u32()? {
        cursor.text()?;
    }
    Some(())
}
