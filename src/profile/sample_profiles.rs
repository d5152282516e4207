//! Profiles for tests.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{
    Cgroups, Function, HeatMap, Kind, Line, Location, Mapping, Mode, NoProfile, Origin, Profile,
    ProfileRecorder, RecordingId, Sample, Selection, Task, TimeRange, Unit, ValueType,
};
use crate::clock::Timestamp;
use crate::config::profiled::{Rate, SampledTargets, Unwind};
use crate::plan::{Sampler, Value};
use crate::stack::BuildId;

/// Returns an entry of `profiles` that opens no event: CPU time with frame pointers.
pub(super) fn sampler(entry: &str) -> Arc<Sampler> {
    Arc::new(Sampler {
        entry: entry.into(),
        events: Vec::new(),
        rate: Rate::Frequency(19),
        value: Value { name: "cpu".into(), nanoseconds: true },
        period: Some(1),
        waits: None,
        unwind: Unwind::FramePointers,
        lines: false,
        targets: SampledTargets::default(),
        tells_cgroup: false,
        cpus: false,
        per: None,
        functions: 0,
        window: Duration::from_secs(60),
        memory: None,
    })
}

/// A frame of a stack to add.
#[derive(Debug, Clone)]
pub(crate) struct At {
    pub(crate) module: Option<&'static str>,
    pub(crate) origin: Origin,
    /// Innermost first; empty if the location has no symbol.
    pub(crate) names: Vec<String>,
}

pub(crate) fn kernel(name: &str) -> At {
    At { module: Some("[kernel.kallsyms]"), origin: Origin::Kernel, names: vec![name.into()] }
}

pub(crate) fn native(module: &'static str, name: &str) -> At {
    At { module: Some(module), origin: Origin::Native, names: vec![name.into()] }
}

pub(crate) fn jit(name: &str) -> At {
    At { module: None, origin: Origin::Jit, names: vec![name.into()] }
}

pub(crate) fn unknown(module: &'static str) -> At {
    At { module: Some(module), origin: Origin::Native, names: Vec::new() }
}

pub(crate) fn task(pid: u32, comm: &str, cgroup: &str) -> Task {
    let (comm, program) = (comm.into(), comm.into());
    Task { pid, tid: pid, comm, program, cgroup: Some(cgroup.into()), ..Task::default() }
}

/// Builds tables with unique entries.
#[derive(Debug, Default)]
pub(crate) struct Builder(pub(crate) Profile);

fn place<T: PartialEq>(table: &mut Vec<T>, entry: T) -> u32 {
    let found = table.iter().position(|known| *known == entry);
    found.unwrap_or_else(|| {
        table.push(entry);
        table.len() - 1
    }) as u32
}

impl Builder {
    /// Adds samples of a stack, outermost first, each with the period of the kind.
    pub(crate) fn add(&mut self, task: &Task, mode: Mode, count: u64, stack: &[At]) -> &mut Self {
        let stack: Box<[u32]> = stack.iter().rev().map(|at| self.location(at)).collect();
        let (stack, task) = (place(&mut self.0.stacks, stack), place(&mut self.0.tasks, task.clone()));
        let value = count * self.0.kind.period.unwrap_or(1_000_000);
        self.0.samples.push(Sample { stack, task, mode, cpu: None, count, value });
        self
    }

    fn location(&mut self, at: &At) -> u32 {
        let profile = &mut self.0;
        let mapping = at.module.map(|path| {
            let mapping = Mapping {
                start: 0x1000,
                limit: 0x90_0000,
                offset: 0x1000,
                path: path.into(),
                build_id: (!path.starts_with('[')).then(|| BuildId(path.as_bytes()[..4].into())),
                named: !path.contains("stripped"),
                ..Mapping::default()
            };
            place(&mut profile.mappings, mapping)
        });
        let lines: Vec<Line> = (at.names.iter())
            .map(|name| {
                let function =
                    Function { name: name.as_str().into(), linkage: name.as_str().into(), file: None };
                Line { function: place(&mut profile.functions, function), line: 0 }
            })
            .collect();
        let same = |known: &&Location| {
            known.mapping == mapping && known.lines == lines && known.origin == at.origin && !lines.is_empty()
        };
        if let Some(at) = profile.locations.iter().position(|known| same(&known)) {
            return at as u32;
        }
        let address = 0x2000 + 0x40 * profile.locations.len() as u64;
        let unknown = lines.is_empty().then(|| match at.module {
            Some(module) => crate::symbol::place_in(module, address).into(),
            None => format!("[unmapped] {address:#x}").into(),
        });
        profile.locations.push(Location { mapping, address, lines, origin: at.origin, unknown });
        (profile.locations.len() - 1) as u32
    }
}

/// Returns a profile of one minute at 19 Hz, from a machine with a web server, a program with a just-in-time compiler, a database, and the
/// kernel.
pub(crate) fn example() -> Profile {
    const NGINX: &str = "/usr/sbin/nginx";
    const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
    const NODE: &str = "/usr/bin/node";
    const PG: &str = "/usr/lib/postgresql/15/bin/postgres";
    let mut builder = Builder::default();
    builder.0.kind = Kind { period: Some(52_631_578), ..Kind::default() };
    builder.0.start = Timestamp(1_763_715_126_000);
    builder.0.duration = Duration::from_secs(60);
    builder.0.lost = vec![("ring_full", 12), ("throttled", 3)];
    let nginx = task(812, "nginx", "/system.slice/nginx.service");
    let node = task(4711, "node", "/kubepods.slice/pod1/app");
    let pg = task(901, "postgres", "/system.slice/postgresql.service");
    let kworker = task(33, "kworker/0:1", "/");
    let start = [native(NGINX, "_start"), native(LIBC, "__libc_start_main"), native(NGINX, "main")];
    let main = |rest: &[At]| [&start[..], rest].concat();
    let cycle = native(NGINX, "ngx_worker_process_cycle");
    let mut parse = native(NGINX, "ngx_http_parse_request_line");
    parse.names.push("ngx_http_process_request_line".into());
    builder
        .add(&nginx, Mode::User, 41, &main(&[cycle.clone(), parse]))
        .add(&nginx, Mode::User, 17, &main(&[cycle.clone(), native(LIBC, "memcpy")]))
        .add(&nginx, Mode::User, 9, &main(&[cycle.clone(), unknown("/usr/lib/libstripped.so.3")]));
    let system = [
        cycle,
        native(LIBC, "writev"),
        kernel("entry_SYSCALL_64_after_hwframe"),
        kernel("do_syscall_64"),
        kernel("tcp_sendmsg"),
    ];
    builder.add(&nginx, Mode::Kernel, 23, &main(&[&system[..], &[kernel("tcp_write_xmit")]].concat())).add(
        &nginx,
        Mode::Kernel,
        31,
        &main(&[&system[..], &[kernel("copy_user_enhanced_fast_string")]].concat()),
    );
    let event_loop = [
        native(NODE, "_start"),
        native(NODE, "node::Start(int, char**)"),
        native(NODE, "uv_run"),
        jit("LazyCompile:~processTicksAndRejections node:internal/process/task_queues:67"),
    ];
    let js = |rest: &[At]| [&event_loop[..], rest].concat();
    builder
        .add(&node, Mode::User, 88, &js(&[jit("LazyCompile:*render /app/view.js:12"), jit("RegExp:<[^>]+>")]))
        .add(&node, Mode::User, 37, &js(&[jit("LazyCompile:*render /app/view.js:12")]))
        .add(
            &node,
            Mode::User,
            52,
            &js(&[
                native(NODE, "v8::internal::Heap::CollectGarbage(v8::internal::AllocationSpace)"),
                native(NODE, "v8::internal::MarkCompactCollector::MarkLiveObjects()"),
            ]),
        );
    let walk = |depth| vec![native(PG, "ExecProcNode"); depth];
    for (depth, count) in [(1, 14), (2, 22), (3, 9)] {
        let stack = [&[native(PG, "PostgresMain")][..], &walk(depth), &[native(PG, "hash_search")]].concat();
        builder.add(&pg, Mode::User, count, &stack);
    }
    builder.add(
        &kworker,
        Mode::Kernel,
        6,
        &[kernel("ret_from_fork"), kernel("kthread"), kernel("worker_thread"), kernel("blk_mq_run_work_fn")],
    );
    builder.0
}

/// Returns a profile with malicious names.
pub(crate) fn hostile() -> Profile {
    let mut builder = Builder::default();
    let names = [
        "a;b".to_owned(),
        "two\nlines 12".to_owned(),
        "operator 5".to_owned(),
        "# not a comment 7".to_owned(),
        "</script><script>alert(1)</script>".to_owned(),
        "]]><!-- \" ' & -->".to_owned(),
        "\u{0}\u{1b}[31m\u{fffe}\u{ffff}\u{202e}\u{85}\u{2028}".to_owned(),
        "x".repeat(100_000),
        String::new(),
        "   ".to_owned(),
        "--".to_owned(),
        "y_[k]".to_owned(),
    ];
    for (pid, name) in (1..).zip(&names) {
        let stack = [native("/bin/</title><script>x</script>", name), kernel(name), jit(name)];
        builder.add(&task(pid, name, &format!("/{name}")), Mode::User, 1, &stack);
    }
    builder.0
}

/// Generates any profile: few tasks and functions, so that many entries are shared.
pub(crate) fn any_profile() -> impl Strategy<Value = Profile> {
    let name = prop_oneof![
        4 => prop::sample::select(vec!["main", "a", "b", "a::b", "a b", "c(int)", "malloc"]).prop_map(str::to_owned),
        1 => any::<String>(),
    ];
    let at = (
        prop::sample::select(vec!["[kernel.kallsyms]", "/bin/a", "/lib/b.so.1"]),
        0..4,
        prop::collection::vec(name.clone(), 0..3),
    )
        .prop_map(|(module, origin, names)| {
            let origin = [Origin::Kernel, Origin::Native, Origin::Jit, Origin::Unknown][origin as usize];
            At { module: (origin != Origin::Jit).then_some(module), origin, names }
        });
    let sample = (1u32..5, name, 0..Mode::ALL.len(), 1u64..1000, prop::collection::vec(at, 0..6));
    let period = prop::option::of(1u64..100_000_000);
    (prop::collection::vec(sample, 0..12), period, any::<bool>()).prop_map(|(samples, period, count)| {
        let mut builder = Builder::default();
        let unit = if count { Unit::Count } else { Unit::Nanoseconds };
        builder.0.kind = Kind {
            name: "some".into(),
            value: ValueType { name: "some".into(), unit },
            period: if count { Some(1) } else { period },
        };
        builder.0.duration = Duration::from_secs(1);
        for (pid, comm, mode, count, stack) in &samples {
            builder.add(&task(*pid, comm, "/"), Mode::ALL[*mode], *count, stack);
        }
        builder.0
    })
}

/// Profiles of any time: [`hostile`] for each entry, in the cgroup that must be selected, and none for `stalled`.
#[derive(Debug, Default)]
pub(crate) struct Recorded {
    pub(crate) entries: Vec<&'static str>,
    /// The cgroup that must be selected.
    pub(crate) cgroup: Option<&'static str>,
}

impl Recorded {
    /// As a recorder does, returns a sample of another cgroup as well, without its stack.
    fn profile(&self) -> Profile {
        let mut builder = Builder(hostile());
        if let Some(cgroup) = self.cgroup {
            builder.0.tasks.iter_mut().for_each(|task| task.cgroup = Some(cgroup.into()));
            builder.add(&task(99, "another", "/another"), Mode::User, 1, &[]);
        }
        builder.0
    }
}

impl ProfileRecorder for Recorded {
    fn entries(&self) -> Vec<Arc<str>> {
        self.entries.iter().map(|&name| name.into()).collect()
    }

    fn begin(&self, _: &str, _: bool) -> Result<RecordingId, NoProfile> {
        Err(NoProfile::Busy)
    }

    fn end(&self, _: RecordingId, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::Gone)
    }

    fn renew(&self, _: RecordingId, _: &Selection) -> Result<(Profile, RecordingId), NoProfile> {
        Err(NoProfile::Gone)
    }

    fn abandon(&self, _: RecordingId) {}

    fn last(&self, _: &str, _: Duration, _: &Selection) -> Result<Profile, NoProfile> {
        Err(NoProfile::Gone)
    }

    fn range(&self, entry: &str, range: TimeRange, selection: &Selection) -> Result<Profile, NoProfile> {
        assert_eq!(selection.cgroup.as_ref().map(Cgroups::as_str), self.cgroup);
        match entry {
            "stalled" => Err(NoProfile::Stalled),
            _ => Ok(Profile { start: range.from, ..self.profile() }),
        }
    }

    fn heat(&self, _: &str, _: TimeRange, _: u32, _: &Selection) -> Result<HeatMap, NoProfile> {
        Err(NoProfile::Gone)
    }
}
