//! Topology of the machine: the socket, die and core of each CPU, and the caches that CPUs share.

use super::{CpuSet, Roots, list, read_number, read_text};

/// Position of a CPU in the machine. A number that the kernel does not report is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct CpuPosition {
    /// Number of the socket (`physical_package_id`).
    pub socket: u32,
    /// Number of the die in its socket.
    pub die: u32,
    /// Number of the core in its die. CPUs with equal positions are threads of one core.
    pub core: u32,
}

impl CpuPosition {
    /// Reads the position of a CPU below `/sys/devices/system/cpu`.
    pub fn read(roots: &Roots, cpu: u32) -> Self {
        let dir = roots.sys.join(format!("devices/system/cpu/cpu{cpu}/topology"));
        // Some architectures report -1.
        let number = |name| read_number(&dir.join(name)).ok().and_then(|number| u32::try_from(number).ok());
        let number = |name| number(name).unwrap_or(0);
        Self { socket: number("physical_package_id"), die: number("die_id"), core: number("core_id") }
    }
}

/// A data cache that a CPU uses. Equal values mean that CPUs share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SharedCache {
    /// Level: 1 is the closest to the core.
    pub level: u32,
    /// The smallest number of the CPUs that share it.
    pub first_cpu: u32,
}

impl SharedCache {
    /// Reads the cache of `level` that a CPU uses; of the highest level without a `level`. Returns `None` if the kernel reports no such
    /// cache.
    pub fn read(roots: &Roots, cpu: u32, level: Option<u32>) -> Option<Self> {
        let dir = roots.sys.join(format!("devices/system/cpu/cpu{cpu}/cache"));
        let cache = |name: &String| {
            let dir = dir.join(name);
            let holds_data = read_text(&dir.join("type")).ok()? != "Instruction";
            let level = u32::try_from(read_number(&dir.join("level")).ok()?).ok()?;
            let cpus: CpuSet = read_text(&dir.join("shared_cpu_list")).ok()?.parse().ok()?;
            let first_cpu = cpus.iter().min()?;
            holds_data.then_some(Self { level, first_cpu })
        };
        let caches = list(&dir).unwrap_or_default();
        let caches = caches.iter().filter_map(cache);
        caches.filter(|cache| level.is_none_or(|level| cache.level == level)).max_by_key(|cache| cache.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(dir: &std::path::Path, files: &[(&str, &str)]) -> Roots {
        for (name, text) in files {
            let path = dir.join("sys/devices/system/cpu").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{text}\n")).unwrap();
        }
        Roots::under(dir)
    }

    #[test]
    fn a_cpu_has_a_socket_a_die_and_a_core_and_missing_numbers_are_0() {
        let dir = tempfile::tempdir().unwrap();
        let roots = write(
            dir.path(),
            &[
                ("cpu3/topology/physical_package_id", "1"),
                ("cpu3/topology/core_id", "7"),
                ("cpu3/topology/die_id", "-1"),
            ],
        );
        assert_eq!(CpuPosition::read(&roots, 3), CpuPosition { socket: 1, die: 0, core: 7 });
        assert_eq!(CpuPosition::read(&roots, 4), CpuPosition::default());
    }

    #[test]
    fn the_last_level_is_the_default_and_instruction_caches_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (index, level, kind, cpus) in
            [("0", "1", "Data", "2-3"), ("1", "1", "Instruction", "0-3"), ("2", "2", "Unified", "1-3")]
        {
            for (name, text) in [("level", level), ("type", kind), ("shared_cpu_list", cpus)] {
                files.push((format!("cpu2/cache/index{index}/{name}"), text));
            }
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (&**name, *text)).collect();
        let roots = write(dir.path(), &files);
        let cache = |level| SharedCache::read(&roots, 2, level);
        assert_eq!(cache(None), Some(SharedCache { level: 2, first_cpu: 1 }));
        assert_eq!(cache(Some(1)), Some(SharedCache { level: 1, first_cpu: 2 }));
        assert_eq!((cache(Some(3)), SharedCache::read(&roots, 0, None)), (None, None));
    }
}
