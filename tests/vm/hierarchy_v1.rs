//! A cgroup v1 hierarchy with the controller `perf_event`. While it is mounted, no v2 cgroup can be counted on the whole machine, so this
//! test runs in guests only.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use perf_exporter::host::read_text;

use crate::support::cgroup::TestCgroup;
use crate::support::service::Service;
use crate::support::worker::{Work, Worker};
use crate::support::{Feature, eventually};
use crate::{ALWAYS_FRESH, advance, agree, counters_with};

const MOUNT: [&str; 5] = ["-t", "cgroup", "-o", "perf_event", "cgroup"];

/// The mounted hierarchy.
struct HierarchyV1(tempfile::TempDir);

impl HierarchyV1 {
    fn mount() -> Self {
        let hierarchy = Self(tempfile::tempdir().unwrap());
        assert!(hierarchy.run("mount", &MOUNT), "mount fails");
        hierarchy
    }

    fn run(&self, program: &str, options: &[&str]) -> bool {
        Command::new(program).args(options).arg(self.0.path()).status().unwrap().success()
    }
}

impl Drop for HierarchyV1 {
    /// Returns the controller to v2. A hierarchy that is unmounted while the kernel still frees its last cgroups stays, with the
    /// controller. It disappears after it is mounted and unmounted once more.
    fn drop(&mut self) {
        let given_back = || {
            self.run("umount", &[]);
            // The hierarchy disappears some time after its mount.
            thread::sleep(Duration::from_millis(200));
            let free = free();
            if !free {
                self.run("mount", &MOUNT);
            }
            free.then_some(())
        };
        if thread::panicking() {
            given_back();
        } else {
            eventually("cgroup v2 has perf_event again", given_back);
        }
    }
}

/// Reports whether no v1 hierarchy has the controller, according to `/proc/cgroups`.
fn free() -> bool {
    let table = read_text(Path::new("/proc/cgroups")).unwrap_or_default();
    table.lines().all(|line| !line.starts_with("perf_event\t") || line.starts_with("perf_event\t0\t"))
}

#[test]
fn cgroups_of_version_1_are_counted_where_it_has_perf_event() {
    let Some(_counters) = counters_with(Feature::Emulated) else { return };
    let _hierarchy = HierarchyV1::mount();
    let outer = TestCgroup::new("v1");
    let inner = outer.below("inner");
    let (mut above, mut below) = (Worker::start("above"), Worker::start("below"));
    outer.take(above.pid());
    inner.take(below.pid());
    let service = Service::start(&format!(
        "{ALWAYS_FRESH}counters: {{core: {{events: [cycles, instructions], per: [cgroup]}}}}\n\
         cgroups: {{include: [\"{0}\", \"{0}/**\"]}}\n",
        outer.path()
    ));
    let before = service.metrics();
    above.does(Work::Spin(2_000_000));
    below.does(Work::Spin(6_000_000));
    let after = service.metrics();
    let [above, below] = [outer.path(), inner.path()]
        .map(|path| advance(&before, &after, "perf_cgroup_instructions_total", &[("cgroup", path)]));
    assert!(
        above > 2e6 && agree(below, above * 3.0, 0.05),
        "{above} instructions in the parent cgroup, {below} in the child cgroup"
    );
}
