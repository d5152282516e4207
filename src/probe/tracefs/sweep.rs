//! Removal of probes and tracing instances of ended exporters.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::owner::{Life, Owner};
use super::{ProbeRefusal, complaint, listed, undefine};
use crate::error::FileError;
use crate::host::{self, Roots};

/// A probe of another exporter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The group, which identifies the owner.
    pub system: Arc<str>,
    /// The event name.
    pub event: Arc<str>,
    /// Result for this probe.
    pub fate: SweepResult,
}

/// Result for a probe that an exporter may have left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SweepResult {
    /// The owner has ended, and the probe was removed.
    Removed,
    /// The owner is running.
    Kept,
    /// This PID namespace does not show whether the owner is running, so the probe stays.
    Unknown,
    /// The owner has ended, but the kernel rejected the removal, possibly because the probe is open.
    Refused(ProbeRefusal),
}

/// Checks every probe in the group of an exporter other than `own`.
pub(super) fn sweep(roots: &Roots, own: Option<Owner>) -> Result<Vec<Leftover>, FileError> {
    let mut lives: FxHashMap<Owner, Life> = FxHashMap::default();
    let mut leftovers = Vec::new();
    for probe in listed::list(roots)? {
        let Some(owner) = Owner::of_group(&probe.system).filter(|owner| Some(*owner) != own) else {
            continue;
        };
        let fate = match lives.entry(owner).or_insert_with(|| owner.life(roots)) {
            Life::Alive => SweepResult::Kept,
            Life::Unknown => SweepResult::Unknown,
            Life::Gone => match undefine(roots, probe.site(), &probe.system, &probe.event) {
                Ok(()) => SweepResult::Removed,
                Err(refusal) => SweepResult::Refused(refusal),
            },
        };
        leftovers.push(Leftover { system: probe.system, event: probe.event, fate });
    }
    sweep_instances(roots);
    Ok(leftovers)
}

/// Removes the tracing instances of exporters that were killed during the check of a filter. They take memory.
fn sweep_instances(roots: &Roots) {
    let dir = roots.tracing.join("instances");
    for name in host::list(&dir).unwrap_or_default() {
        let owner = complaint::instance_owner(&name);
        if owner.is_some_and(|owner| owner.life(roots) == Life::Gone)
            && let Err(error) = std::fs::remove_dir(dir.join(&name))
        {
            tracing::warn!("tracing instance {name} of an ended exporter could not be removed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::probe::tracefs::Probes;

    /// A host whose `kprobe_events` is a regular file, to which lines are appended.
    struct Host {
        dir: tempfile::TempDir,
        roots: Roots,
    }

    impl Host {
        fn with(probes: &[&str]) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir_all(dir.path().join("sys/kernel/tracing/events")).unwrap();
            let roots = Roots::under(dir.path());
            let lines: String = probes.iter().map(|group| format!("p:{group}/e vfs_read\n")).collect();
            fs::write(roots.tracing.join("kprobe_events"), lines).unwrap();
            Self { dir, roots }
        }

        fn process(&self, name: &str, pid: u32, start: u64) {
            let dir = self.dir.path().join("proc").join(name);
            fs::create_dir_all(&dir).unwrap();
            let stat = format!("{pid} (x) S 1 2 3 4 -1 0 6 7 8 9 10 11 12 13 20 0 1 0 {start} 99 98\n");
            fs::write(dir.join("stat"), stat).unwrap();
            fs::write(dir.join("comm"), if pid == 2 { "kthreadd\n" } else { "x\n" }).unwrap();
        }

        fn fates(&self) -> Vec<(String, SweepResult)> {
            let swept = Probes::new(&self.roots, 7).sweep().unwrap();
            swept.into_iter().map(|left| (left.system.to_string(), left.fate)).collect()
        }

        fn contents(&self) -> String {
            host::read_text(&self.roots.tracing.join("kprobe_events")).unwrap()
        }
    }

    fn fate(system: &str, fate: SweepResult) -> (String, SweepResult) {
        (system.to_owned(), fate)
    }

    #[test]
    fn only_the_probes_of_exporters_that_are_gone_are_removed() {
        let host = Host::with(&[
            "perf_exporter_7_70",
            "perf_exporter_8_80",
            "perf_exporter_8_81",
            "perf_exporter_1_90",
            "perf_exporter",
            "somebody",
        ]);
        for (name, pid, start) in [("self", 7, 70), ("7", 7, 70), ("8", 8, 80), ("9", 9, 90), ("2", 2, 0)] {
            host.process(name, pid, start);
        }
        assert_eq!(
            host.fates(),
            [
                fate("perf_exporter_8_80", SweepResult::Kept),
                fate("perf_exporter_8_81", SweepResult::Removed),
                // Process 9 on this host may be process 1 in its container.
                fate("perf_exporter_1_90", SweepResult::Kept),
            ]
        );
        assert!(host.contents().ends_with("vfs_read\n-:perf_exporter_8_81/e"), "{}", host.contents());
    }

    #[test]
    fn in_a_container_that_sees_only_itself_nothing_is_removed() {
        let host = Host::with(&["perf_exporter_1_60", "perf_exporter_5_60", "perf_exporter_5"]);
        host.process("self", 1, 70);
        host.process("1", 1, 70);
        let contents = host.contents();
        let unknown = ["perf_exporter_1_60", "perf_exporter_5_60", "perf_exporter_5"];
        assert_eq!(host.fates(), unknown.map(|group| fate(group, SweepResult::Unknown)));
        assert_eq!(host.contents(), contents);
    }

    #[test]
    fn the_instances_of_exporters_that_are_gone_are_removed() {
        let host = Host::with(&[]);
        host.process("2", 2, 0);
        host.process("8", 8, 80);
        let instances = host.roots.tracing.join("instances");
        for name in ["perf_exporter_8_80_0", "perf_exporter_8_81_0", "perf_exporter_8_81", "somebody"] {
            fs::create_dir_all(instances.join(name)).unwrap();
        }
        host.fates();
        assert_eq!(
            host::list(&instances).unwrap(),
            ["perf_exporter_8_80_0", "perf_exporter_8_81", "somebody"]
        );
    }
}
