//! Cost of a refresh of cgroups and processes without changes, which precedes every collection. The time per element is the time per cgroup
//! or process. Where cgroups can be created, 200 real cgroups are measured as well as 200 ordinary directories with the same files.

#![allow(missing_docs, reason = "criterion's macros make public functions")]
#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process;

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use perf_exporter::host::Roots;
use perf_exporter::targets::{CgroupMount, Cgroups, Need, Processes};

const PODS: usize = 20;
const CONTAINERS: usize = 9;
/// Number of files in a cgroup of version 2 with five controllers.
const CONTROL_FILES: usize = 50;

/// Creates `PODS` directories with `CONTAINERS` directories in each, 200 in total.
fn plant(dir: &Path) -> std::io::Result<()> {
    for pod in 0..PODS {
        for container in 0..CONTAINERS {
            fs::create_dir_all(dir.join(format!("pod{pod}/container{container}")))?;
        }
    }
    Ok(())
}

fn fell(dir: &Path) {
    let dirs = (0..PODS).flat_map(|pod| {
        let containers = (0..CONTAINERS).map(move |container| format!("pod{pod}/container{container}"));
        containers.chain([format!("pod{pod}"), String::new()])
    });
    for path in dirs {
        // Fails for directories that were never created, and for the outermost one until it is empty.
        drop(fs::remove_dir(dir.join(path)));
    }
}

fn fill(dir: &Path) {
    for entry in dir.read_dir().unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            fill(&entry.path());
        }
    }
    for file in 0..CONTROL_FILES {
        fs::write(dir.join(format!("controller.file{file}")), "").unwrap();
    }
}

fn refresh(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, dir: &Path) {
    let mut cgroups = Cgroups::new(dir);
    let count = cgroups.refresh().unwrap().added.len();
    group.throughput(Throughput::Elements(count as u64));
    group.bench_function(format!("{name}/{count}"), |bench| bench.iter(|| black_box(cgroups.refresh())));
}

fn cgroups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cgroups");
    let fixture = tempfile::tempdir().unwrap();
    plant(fixture.path()).unwrap();
    fill(fixture.path());
    refresh(&mut group, "directories", fixture.path());

    match CgroupMount::find(&Roots::default()) {
        Err(absent) => println!("cgroups/real skipped: {absent}"),
        Ok(mount) => {
            let dir = mount.dir().join(format!("perf-exporter-bench-{}", process::id()));
            match plant(&dir) {
                Ok(()) => refresh(&mut group, "real", &dir),
                Err(error) => println!("cgroups/real skipped: {}: {error}", dir.display()),
            }
            fell(&dir);
        }
    }
    group.finish();
}

fn processes(criterion: &mut Criterion) {
    let roots = Roots::default();
    let mount = CgroupMount::find(&roots).ok();
    let mut group = criterion.benchmark_group("processes");
    for (name, need) in
        [("comm", Need::default()), ("comm, exe and cgroup", Need { exe: true, cgroup: true })]
    {
        let mut processes = Processes::new(&roots, mount.clone());
        let count = processes.refresh(need).unwrap().added.len();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("{name}/{count}"), |bench| {
            bench.iter(|| black_box(processes.refresh(need)));
        });
    }
    group.finish();
}

criterion_group!(benches, cgroups, processes);
criterion_main!(benches);
