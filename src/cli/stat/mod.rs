//! `perf-exporter stat`: what `perf stat` does, on the engine of the service.

mod derive;
mod print;
mod session;
mod table;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};

use super::{FAILED, USAGE, fail};
use crate::config::{Counters, Per};
use crate::counter::Whom;
use crate::event::{Catalog, parse, preset, syntax};
use crate::health::Refusal;
use crate::host::{CpuSet, Facts, Roots, list, online_cpus};
use crate::plan::{Group, Plan, plan};
use crate::target::{CgroupMount, CgroupSelection, ProcessSelection};
use print::Style;
use session::{Ended, NotExecuted, Session};
use table::{Aggregate, Asked};

/// The sets of `-d`, `-dd` and `-ddd`, and of none.
const DETAIL: [&str; 4] = ["default", "detailed", "very-detailed", "all-detailed"];

#[derive(Debug, Clone, Args)]
pub(super) struct StatArgs {
    /// Events to count, as in the configuration; without them those of perf stat.
    #[arg(short = 'e', long = "event", value_name = "EVENTS")]
    events: Vec<String>,
    /// Count more: caches (-d), TLBs (-dd), prefetches (-ddd).
    #[arg(short = 'd', long = "detailed", action = clap::ArgAction::Count)]
    detailed: u8,
    /// Count everything on all CPUs: the default without a command and without -p, -t.
    #[arg(short = 'a', long = "all-cpus")]
    all_cpus: bool,
    /// Count these processes, with what they start from now on.
    #[arg(short = 'p', long = "pid", value_name = "PID", value_delimiter = ',', conflicts_with_all = ["all_cpus", "cgroups", "cpus"])]
    pids: Vec<u32>,
    /// Count these threads, with what they start from now on.
    #[arg(short = 't', long = "tid", value_name = "TID", value_delimiter = ',', conflicts_with_all = ["all_cpus", "cgroups", "cpus"])]
    tids: Vec<u32>,
    /// Count these cgroups, each by itself: paths below the cgroup file system, or absolute ones.
    #[arg(short = 'G', long = "cgroup", value_name = "CGROUP", value_delimiter = ',')]
    cgroups: Vec<String>,
    /// Count on these CPUs only, such as 0-3,8.
    #[arg(short = 'C', long = "cpu", value_name = "CPUS")]
    cpus: Option<CpuSet>,
    /// Do not add up CPUs.
    #[arg(short = 'A', long = "no-aggr")]
    no_aggregation: bool,
    /// Print what was counted every so many milliseconds (at least 10).
    #[arg(short = 'I', long = "interval-print", value_name = "MS", value_parser = clap::value_parser!(u64).range(10..))]
    interval: Option<u64>,
    /// Stop after so many intervals.
    #[arg(long, value_name = "N", requires = "interval")]
    interval_count: Option<u64>,
    /// Stop after so many milliseconds (at least 10).
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(10..))]
    timeout: Option<u64>,
    /// Run the command so many times, and print means and deviations.
    #[arg(short = 'r', long = "repeat", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "interval")]
    repeat: u32,
    /// Write fields separated by this, as perf stat -x does.
    #[arg(short = 'x', long = "field-separator", value_name = "SEP", conflicts_with_all = ["json", "output"])]
    separator: Option<String>,
    /// Write JSON, one object a line, as perf stat -j does.
    #[arg(short = 'j', long = "json-output", conflicts_with = "output")]
    json: bool,
    /// Write to this file instead of standard error.
    #[arg(short = 'o', long = "output-file", value_name = "FILE")]
    file: Option<PathBuf>,
    /// How to write: a table, CSV (as -x,) or JSON (as -j), the last two to standard output.
    #[arg(long, value_name = "FORMAT", value_enum)]
    output: Option<Format>,
    /// The command to count, and its arguments.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// How the result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// perf's table.
    Text,
    /// perf's `-x,`.
    Csv,
    /// perf's `-j`.
    Json,
}

/// Counts, prints, and gives the command's exit code.
pub(super) fn stat(args: &StatArgs, roots: &Roots) -> ExitCode {
    let session = match prepare(args, roots) {
        Ok(session) => session,
        Err(error) => return fail(USAGE, &error),
    };
    match session.run() {
        Ok(Ended::Command(code)) => ExitCode::from(code),
        Ok(Ended::ByItself) => ExitCode::SUCCESS,
        Ok(Ended::NothingCounted) => ExitCode::from(FAILED),
        Err(error) => {
            let code = error.downcast_ref::<NotExecuted>().map_or(FAILED, NotExecuted::exit_code);
            fail(code, &error)
        }
    }
}

/// Everything that can be wrong with the arguments is found here, before anything is opened or started.
fn prepare(args: &StatArgs, roots: &Roots) -> anyhow::Result<Session> {
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let online = online_cpus(roots)?;
    let cpus = match &args.cpus {
        Some(wanted) => {
            let here = wanted.intersection(&online);
            if here != *wanted {
                bail!("-C {wanted}: not all of these CPUs are online; {online} are");
            }
            here
        }
        None => online,
    };
    let wholes = args.all_cpus || args.cpus.is_some();
    let tasks = !args.pids.is_empty() || !args.tids.is_empty();
    let of_tasks = tasks || (!wholes && args.cgroups.is_empty() && !args.command.is_empty());
    let per = match (of_tasks, args.cgroups.is_empty()) {
        (true, _) => Per::Process(ProcessSelection { include: vec![], exclude: vec![], by: vec![] }),
        (false, false) => {
            Per::Cgroup(CgroupSelection { include: vec![], exclude: vec![], depth: None, descendants: true })
        }
        (false, true) => Per::Cpu,
    };
    let user_only =
        of_tasks && !facts.capabilities.perfmon() && facts.paranoid.is_some_and(|level| level >= 2);
    let groups = wanted(args)?;
    let (asked, plan) = resolve(&groups, &catalog, &per, user_only);
    let title = match (&args.command[..], tasks) {
        ([], true) => title_of_tasks(args),
        ([], false) => "'system wide'".to_owned(),
        (command, _) => format!("'{}'", command.join(" ")),
    };
    let refusals = plan.refusals.iter().map(|refused| refused.refusal.clone()).collect::<Vec<Refusal>>();
    Ok(Session {
        whom: whom(args, roots, &cpus, of_tasks)?,
        command: args.command.clone(),
        alone: of_tasks && !tasks,
        asked,
        groups: plan.groups,
        refusals,
        core_pmu_present: catalog.has_core_pmu(),
        facts,
        roots: roots.clone(),
        pids: args.pids.iter().chain(&args.tids).copied().collect(),
        title,
        aggregate: if args.no_aggregation { Aggregate::PerCpu } else { Aggregate::Everything },
        interval: args.interval.map(Duration::from_millis),
        interval_count: args.interval_count,
        timeout: args.timeout.map(Duration::from_millis),
        repeat: args.repeat,
        style: style(args),
        out: out(args)?,
    })
}

fn title_of_tasks(args: &StatArgs) -> String {
    let list = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    match &args.pids[..] {
        [] => format!("thread id '{}'", list(&args.tids)),
        pids => format!("process id '{}'", list(pids)),
    }
}

/// The groups of `-e`, or a set of perf's.
fn wanted(args: &StatArgs) -> anyhow::Result<Vec<syntax::Group>> {
    if !args.events.is_empty() && args.detailed > 0 {
        bail!("-e and -d cannot be combined: -e names all events that are to be counted");
    }
    if args.events.is_empty() {
        let name = DETAIL[usize::from(args.detailed).min(DETAIL.len() - 1)];
        return preset(name).with_context(|| format!("the set {name} is missing: a bug"));
    }
    let mut groups = Vec::new();
    for text in &args.events {
        groups.extend(parse(text).map_err(|error| anyhow::anyhow!("-e {error:#}"))?);
    }
    Ok(groups)
}

/// What the groups are on this host, and the rows that they are to give, in the order in which they were asked for.
fn resolve(groups: &[syntax::Group], catalog: &Catalog, per: &Per, user_only: bool) -> (Vec<Asked>, Plan) {
    let mut asked: Vec<Asked> = Vec::new();
    let mut groups = groups.to_vec();
    for event in groups.iter_mut().flat_map(|group| &mut group.events) {
        if user_only && event.modifiers.is_empty() {
            // What perf does for users without privileges: it counts less, and the name says so.
            let in_user_space = syntax::Event { modifiers: "u".into(), ..event.clone() };
            if catalog.resolve(&in_user_space).is_ok() {
                *event = in_user_space;
            }
        }
        let found = match catalog.resolve(event) {
            Ok(instances) => {
                instances.into_iter().map(|e| Asked { name: Arc::clone(&e.name), event: Some(e) }).collect()
            }
            Err(unresolved) => vec![Asked { name: unresolved.event, event: None }],
        };
        for row in found {
            if !asked.iter().any(|known| known.name == row.name) {
                asked.push(row);
            }
        }
    }
    let entry = Counters { name: "stat".into(), groups, per: vec![per.clone()] };
    let mut plan = plan(&[entry], catalog);
    if user_only {
        plan.groups.iter_mut().for_each(clocks_in_user_space);
    }
    (asked, plan)
}

/// A clock counts the same with and without the kernel's side excluded, and unprivileged users must exclude it.
fn clocks_in_user_space(group: &mut Arc<Group>) {
    let group = Arc::make_mut(group);
    for counter in &mut group.counters {
        let is_clock = counter.event.scale.as_ref().is_some_and(|scale| &*scale.unit == "seconds");
        counter.event.modifiers.exclude_kernel |= is_clock;
    }
}

/// Whom to count, each with the name that its rows get.
fn whom(
    args: &StatArgs,
    roots: &Roots,
    cpus: &CpuSet,
    of_tasks: bool,
) -> anyhow::Result<Vec<(Option<String>, Whom)>> {
    if !args.cgroups.is_empty() {
        let mount = CgroupMount::find(roots)?;
        return args.cgroups.iter().map(|path| cgroup(path, mount.dir(), cpus)).collect();
    }
    if !of_tasks {
        return Ok(vec![(None, Whom::Cpus(cpus.clone()))]);
    }
    let mut threads = args.tids.clone();
    for pid in &args.pids {
        let tasks = list(&roots.proc.join(pid.to_string()).join("task"));
        let tasks =
            tasks.with_context(|| format!("-p {pid}: there is no such process, or it may not be seen"))?;
        threads.extend(tasks.iter().filter_map(|tid| tid.parse::<u32>().ok()));
    }
    for tid in &args.tids {
        if !roots.proc.join(tid.to_string()).exists() {
            bail!("-t {tid}: there is no such thread");
        }
    }
    Ok(if threads.is_empty() { Vec::new() } else { vec![(None, Whom::Threads(threads))] })
}

fn cgroup(path: &str, mount: &Path, cpus: &CpuSet) -> anyhow::Result<(Option<String>, Whom)> {
    let below =
        Path::new(path).strip_prefix(mount).unwrap_or_else(|_| Path::new(path.trim_start_matches('/')));
    let path = format!("/{}", below.display());
    let dir = mount.join(below);
    let dir = File::open(&dir).with_context(|| format!("-G {path}: cannot open {}", dir.display()))?;
    Ok((Some(path.clone()), Whom::Cgroup { dir, path, cpus: cpus.clone() }))
}

fn style(args: &StatArgs) -> Style {
    match (&args.separator, args.json, args.output) {
        (Some(separator), ..) => Style::Csv(separator.clone()),
        (None, true, _) | (None, false, Some(Format::Json)) => Style::Json,
        (None, false, Some(Format::Csv)) => Style::Csv(",".into()),
        (None, false, Some(Format::Text) | None) => Style::Text,
    }
}

/// perf writes to standard error, so that the command's own output stays clean; `--output` asks for the other.
fn out(args: &StatArgs) -> anyhow::Result<Box<dyn Write>> {
    Ok(match (&args.file, args.output) {
        (Some(path), _) => {
            let file = File::create(path).with_context(|| format!("-o {}", path.display()))?;
            Box::new(BufWriter::new(file))
        }
        (None, Some(Format::Csv | Format::Json)) => Box::new(BufWriter::new(io::stdout())),
        (None, _) => Box::new(BufWriter::new(io::stderr())),
    })
}
