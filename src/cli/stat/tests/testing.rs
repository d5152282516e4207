//! Test helpers of this command: lines of a fixture host, and readings from literals.

use std::path::Path;
use std::time::Duration;

use super::super::aggregation::{Aggregation, Parts};
use super::super::select::{Line, Selection};
use super::super::table::{Key, Reading, Sum};
use crate::cli::observe::Subject;
use crate::event::{Catalog, Modes, Unresolved, parse};
use crate::health::Interval;
use crate::host::{Facts, Roots};
use crate::targets::Targets;

/// Resolves `text` on a fixture host.
pub(in crate::cli::stat) fn selection(
    host: &str,
    per: &Targets,
    text: &str,
) -> Result<Selection, Unresolved> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts").join(host);
    let roots = Roots::under(&root);
    let catalog = Catalog::load(&roots, &Facts::read(&roots));
    Selection::new(&catalog, Modes::All, per, &parse(text).unwrap())
}

/// Returns the lines of `text` on a fixture host.
pub(in crate::cli::stat) fn lines(host: &str, text: &str) -> Vec<Line> {
    selection(host, &Targets::CPU, text).unwrap().lines
}

/// Returns a reading after this many milliseconds, from (key, count, nanoseconds enabled, nanoseconds running).
pub(in crate::cli::stat) fn reading(milliseconds: u64, counts: &[(Key, u64, u64, u64)]) -> Reading {
    let mut reading = Reading { elapsed: Duration::from_millis(milliseconds), ..Reading::default() };
    for &(key, scaled, enabled, running) in counts {
        reading
            .sums
            .insert(key, Sum { raw: scaled, scaled, interval: Interval { enabled, running }, places: 1 });
    }
    reading
}

/// Returns the parts of these CPUs on a machine where each CPU is a core, a socket and a node of its own.
pub(in crate::cli::stat) fn cpus(aggregation: Aggregation, cpus: &[u32]) -> Parts {
    let dir = tempfile::tempdir().unwrap();
    for cpu in cpus {
        let topology = dir.path().join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        std::fs::create_dir_all(&topology).unwrap();
        std::fs::write(topology.join("physical_package_id"), cpu.to_string()).unwrap();
    }
    let subject = Subject::Machine { cpus: cpus.iter().copied().collect(), chosen: true };
    Parts::new(aggregation, &subject, &Roots::under(dir.path()), &Facts::default()).unwrap()
}

/// Returns a host, and its catalog, with a core PMU that has these events.
pub(in crate::cli) fn machine_with(pmu: &str, events: &[&str]) -> (tempfile::TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    let pmu = dir.path().join("sys/bus/event_source/devices").join(pmu);
    let write = |name: &str, text: &str| {
        let path = pmu.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("type", "4\n");
    write("format/event", "config:0-7\n");
    for (number, event) in events.iter().enumerate() {
        write(&format!("events/{event}"), &format!("event={:#x}\n", number + 1));
    }
    let roots = Roots::under(dir.path());
    let catalog = Catalog::load(&roots, &Facts::read(&roots));
    (dir, catalog)
}
