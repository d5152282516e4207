//! Detection of CPUs that went offline and online again.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use super::{CpuSet, Roots, online_cpus};
use crate::error::FileError;

/// Online CPUs, each with a number that changes whenever the CPU goes offline and online.
///
/// The kernel removes the events of a CPU that goes offline, and does not restore them. So the events must be opened again after a CPU was
/// offline, even between two reads. The number is the inode of `cpuN/topology` in sysfs, which the kernel creates when a CPU comes online
/// and removes when it goes offline. sysfs assigns ascending inode numbers, so a number is not reused soon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Online(BTreeMap<u32, Option<u64>>);

impl Online {
    /// Reads the online CPUs and their numbers.
    ///
    /// # Errors
    /// The list of CPUs cannot be read. A CPU without a directory `topology` has no number.
    pub(crate) fn read(roots: &Roots) -> Result<Self, FileError> {
        let dir = roots.sys.join("devices/system/cpu");
        let number = |cpu: u32| dir.join(format!("cpu{cpu}/topology")).metadata().ok().map(|file| file.ino());
        // The list is read first: a CPU that restarts afterwards then has its new number.
        Ok(Self(online_cpus(roots)?.iter().map(|cpu| (cpu, number(cpu))).collect()))
    }

    /// Returns the CPUs.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    /// Returns the CPUs that are online in both, and were offline in between.
    pub(crate) fn restarted_since(&self, before: &Self) -> CpuSet {
        let restarted = |&(cpu, number): &(&u32, &Option<u64>)| match (number, before.0.get(cpu)) {
            (Some(now), Some(Some(then))) => now != then,
            _ => false,
        };
        self.0.iter().filter(restarted).map(|(&cpu, _)| cpu).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_cpu_that_was_offline_between_two_looks_is_seen_by_its_new_directory() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::under(dir.path());
        let cpus = roots.sys.join("devices/system/cpu");
        for cpu in 0..3 {
            fs::create_dir_all(cpus.join(format!("cpu{cpu}/topology"))).unwrap();
        }
        fs::write(cpus.join("online"), "0-3\n").unwrap();
        let before = Online::read(&roots).unwrap();
        assert_eq!(before.cpus().to_string(), "0-3");
        assert_eq!(Online::read(&roots).unwrap().restarted_since(&before), CpuSet::default());
        // The new directory is created first, so that it cannot reuse the inode of the old one.
        fs::create_dir(cpus.join("new")).unwrap();
        fs::remove_dir(cpus.join("cpu1/topology")).unwrap();
        fs::rename(cpus.join("new"), cpus.join("cpu1/topology")).unwrap();
        fs::remove_dir(cpus.join("cpu2/topology")).unwrap();
        let now = Online::read(&roots).unwrap();
        assert_eq!(
            now.restarted_since(&before).to_string(),
            "1",
            "a CPU without a number is never reported as restarted"
        );
        fs::write(cpus.join("online"), "0,2-3\n").unwrap();
        let gone = Online::read(&roots).unwrap();
        assert_eq!(
            gone.restarted_since(&before),
            CpuSet::default(),
            "an offline CPU is not reported as restarted"
        );
    }
}
