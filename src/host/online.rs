//! CPUs that go offline and come back.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;

use super::{CpuSet, Roots, online_cpus};
use crate::error::FileError;

/// The CPUs that are online, and a number for each that changes whenever the CPU was offline in between.
///
/// The kernel removes the events of a CPU that goes offline, and does not put them back. So it matters whether a CPU was offline
/// between two looks. The number is the inode of `cpuN/topology` in sysfs, which the kernel creates when a CPU comes online and
/// removes when it goes offline. sysfs gives inode numbers in ascending order, so a number does not come back soon.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Online(BTreeMap<u32, Option<u64>>);

impl Online {
    /// Reads them.
    ///
    /// # Errors
    /// When the list of CPUs cannot be read. A CPU without a directory `topology` has no number.
    pub(crate) fn read(roots: &Roots) -> Result<Self, FileError> {
        let dir = roots.sys.join("devices/system/cpu");
        let number = |cpu: u32| dir.join(format!("cpu{cpu}/topology")).metadata().ok().map(|file| file.ino());
        // The list first: a CPU that goes and comes afterwards has the number of its new life.
        Ok(Self(online_cpus(roots)?.iter().map(|cpu| (cpu, number(cpu))).collect()))
    }

    /// The CPUs.
    pub(crate) fn cpus(&self) -> CpuSet {
        self.0.keys().copied().collect()
    }

    /// The CPUs that are online in both, and were offline in between.
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
        // The new one is made first, so that it cannot have the inode of the old one.
        fs::create_dir(cpus.join("new")).unwrap();
        fs::remove_dir(cpus.join("cpu1/topology")).unwrap();
        fs::rename(cpus.join("new"), cpus.join("cpu1/topology")).unwrap();
        fs::remove_dir(cpus.join("cpu2/topology")).unwrap();
        let now = Online::read(&roots).unwrap();
        assert_eq!(
            now.restarted_since(&before).to_string(),
            "1",
            "of a CPU without a number nothing is known"
        );
        fs::write(cpus.join("online"), "0,2-3\n").unwrap();
        let gone = Online::read(&roots).unwrap();
        assert_eq!(
            gone.restarted_since(&before),
            CpuSet::default(),
            "a CPU that is offline is not one of them"
        );
    }
}
