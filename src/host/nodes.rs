//! NUMA nodes: the node of each CPU.

use std::collections::BTreeMap;

use super::{CpuSet, Roots, list, read_text};

/// CPU with its NUMA node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cpu {
    /// CPU number.
    pub number: u32,
    /// Node number.
    pub node: u32,
}

/// NUMA nodes of the CPUs that are online or have been online.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Nodes(BTreeMap<u32, u32>);

impl Nodes {
    /// Reads the nodes below `/sys/devices/system/node`, which does not exist on kernels without NUMA. The kernel lists only online CPUs.
    pub fn read(roots: &Roots) -> Self {
        let dir = roots.sys.join("devices/system/node");
        let cpus_of = |name: &String| -> Option<(u32, CpuSet)> {
            let node = name.strip_prefix("node")?.parse().ok()?;
            Some((node, read_text(&dir.join(name).join("cpulist")).ok()?.parse().ok()?))
        };
        let names = list(&dir).unwrap_or_default();
        let nodes: Vec<(u32, CpuSet)> = names.iter().filter_map(cpus_of).collect();
        Self(nodes.iter().flat_map(|(node, cpus)| cpus.iter().map(|cpu| (cpu, *node))).collect())
    }

    /// Returns a CPU with its node; node 0 if it has none.
    pub fn cpu(&self, number: u32) -> Cpu {
        Cpu { number, node: self.0.get(&number).copied().unwrap_or(0) }
    }

    /// Reports whether the node of a CPU is known.
    pub(crate) fn has(&self, cpu: u32) -> bool {
        self.0.contains_key(&cpu)
    }

    /// Adds the CPUs that had a node before and are missing now because they are offline.
    pub(super) fn keep(&mut self, before: Self) {
        for (cpu, node) in before.0 {
            self.0.entry(cpu).or_insert(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Facts;

    /// Creates a host with these CPU lists of nodes.
    fn write(dir: &std::path::Path, nodes: &[(&str, &str)]) -> Roots {
        for (name, cpus) in nodes {
            let node = dir.join("sys/devices/system/node").join(name);
            std::fs::create_dir_all(&node).unwrap();
            std::fs::write(node.join("cpulist"), format!("{cpus}\n")).unwrap();
        }
        Roots::under(dir)
    }

    #[test]
    fn a_cpu_without_a_node_is_of_node_0() {
        let dir = tempfile::tempdir().unwrap();
        let roots = write(dir.path(), &[]);
        assert_eq!(Nodes::read(&roots).cpu(3), Cpu { number: 3, node: 0 });
        let roots = write(dir.path(), &[("node1", "0-1,4"), ("node2", ""), ("power", "7"), ("node3", "x")]);
        let nodes = Nodes::read(&roots);
        assert_eq!([0, 1, 2, 4, 7].map(|cpu| nodes.cpu(cpu).node), [1, 1, 0, 1, 0]);
    }

    #[test]
    fn a_cpu_that_goes_offline_keeps_its_node() {
        let dir = tempfile::tempdir().unwrap();
        let roots = write(dir.path(), &[("node0", "0"), ("node1", "1-2")]);
        let mut facts = Facts::read(&roots);
        write(dir.path(), &[("node1", "1,3")]);
        facts.read_again(&roots);
        assert_eq!([0, 1, 2, 3].map(|cpu| facts.nodes.cpu(cpu).node), [0, 1, 1, 1]);
    }
}
