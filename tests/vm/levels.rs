//! Levels of `kernel.perf_event_paranoid`. Kernels of Debian have level 3, those of Ubuntu level 4, at which all events
//! require `CAP_SYS_ADMIN`.

use std::fs;
use std::path::Path;

use perf_exporter::host::read_text;

use crate::support::service::Service;
use crate::support::{Feature, lacks};
use crate::{ALWAYS_FRESH, alone};

const LEVEL: &str = "/proc/sys/kernel/perf_event_paranoid";
/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u64 = 1 << 21;

/// Sets the level, and restores the previous one at the end.
struct Level(String);

impl Level {
    fn set(level: i32) -> Self {
        let before = read_text(Path::new(LEVEL)).unwrap();
        fs::write(LEVEL, level.to_string()).unwrap();
        Self(before)
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        drop(fs::write(LEVEL, &self.0));
    }
}

#[test]
fn a_service_of_root_counts_at_each_level_and_keeps_sys_admin_only_where_the_kernel_requires_it() {
    if lacks(Feature::Kprobe) {
        return;
    }
    let _alone = alone();
    for (level, keeps) in [(3, true), (2, false), (-1, false)] {
        let _level = Level::set(level);
        let service = Service::start(&format!(
            "{ALWAYS_FRESH}counters: {{os: {{events: [context-switches], per: [cpu]}}}}"
        ));
        let status = read_text(Path::new(&format!("/proc/{}/status", service.child.id()))).unwrap();
        let held = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).unwrap();
        let held = u64::from_str_radix(held, 16).unwrap();
        assert_eq!(held & SYS_ADMIN != 0, keeps, "level {level}: {held:x}");
        let scrape = service.metrics();
        assert!(scrape.sum("perf_cpu_context_switches_total", &[]) > 0.0, "level {level}: {scrape:?}");
    }
}
