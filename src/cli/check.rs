//! `perf-exporter check`: every problem of a configuration at once, then what it does on this machine.

mod text;

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::{FAILED, Output, USAGE, fail, foreseen, written};
use crate::clock::Clock;
use crate::config::{self, Config, LoadError};
use crate::counter::{Budget, Collector, GroupState};
use crate::event::Catalog;
use crate::health::{Line, Refusal, Scope};
use crate::host::{Facts, Roots};
use crate::plan::{Counter, Group, Plan, Refused, plan};
use crate::sys::live::Live;
use crate::sys::usage;
use crate::target::Watch;

#[derive(Debug, Clone, Args)]
pub(super) struct CheckArgs {
    /// The configuration file; without one the built-in configuration is checked.
    #[arg(long, short, value_name = "FILE", env = "PERF_EXPORTER_CONFIG")]
    config: Option<PathBuf>,
    /// Fail if any event is refused on this machine, or the file has a warning.
    #[arg(long)]
    strict: bool,
    /// Do not open anything: check the file, and what its events are called here. Needs no privilege.
    #[arg(long)]
    no_open: bool,
    /// Print the JSON schema of the configuration, for editors, and do nothing else.
    #[arg(long)]
    schema: bool,
    /// How to write the result.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    output: Output,
}

/// What the check found.
#[derive(Debug, Default, Serialize)]
struct Report {
    file: String,
    /// What is wrong in the file whatever the host; if it cannot be used at all, nothing else was looked at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    warnings: Vec<String>,
    groups: Vec<GroupRow>,
    refusals: Vec<RefusalRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors: Option<Descriptors>,
    /// What could not be looked at.
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Descriptors {
    /// Open for a moment just now; `None` if nothing was to be opened.
    used: Option<usize>,
    limit: usize,
    /// What all CPUs take.
    cpus: usize,
    /// What each cgroup takes that is counted by every entry for cgroups.
    per_cgroup: usize,
    /// What each thread takes that is counted by every entry for processes.
    per_thread: usize,
}

#[derive(Debug, Serialize)]
struct GroupRow {
    entry: String,
    scope: &'static str,
    /// Where the host has several PMUs for one event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pmu: Option<String>,
    events: Vec<String>,
    metrics: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    targets: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<usize>,
    /// On how many CPUs it is opened, each cgroup on all of them.
    cpus: usize,
    /// What each further CPU, cgroup or thread takes.
    descriptors_per_target: usize,
}

#[derive(Debug, Serialize)]
struct RefusalRow {
    entry: String,
    scope: &'static str,
    event: String,
    target: String,
    targets: usize,
    cause: &'static str,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

/// Checks, and prints what was found.
pub(super) fn check(args: &CheckArgs, roots: &Roots) -> ExitCode {
    if args.schema {
        return written(json(&config::schema()));
    }
    let file =
        args.config.as_ref().map_or("the built-in configuration".into(), |path| path.display().to_string());
    let (config, warnings) = match config::load_file(args.config.as_deref()) {
        Ok((config, warnings)) => (config, warnings.iter().map(ToString::to_string).collect()),
        Err(error) => return refused(args, file, error),
    };
    let report = match report(args, roots, &config) {
        Ok(report) => Report { file, warnings, ..report },
        Err(error) => return fail(FAILED, &error),
    };
    let (refused, warned, wrong) = (report.refusals.len(), report.warnings.len(), report.errors.len());
    let result = match args.output {
        Output::Json => json(&report),
        Output::Text => text::write(&mut io::stdout().lock(), &report),
    };
    let code = written(result);
    if wrong > 0 {
        return ExitCode::from(USAGE);
    }
    if args.strict && refused + warned > 0 {
        return fail(FAILED, &anyhow::anyhow!("--strict: {refused} refused, {warned} warnings"));
    }
    code
}

/// A file that cannot be used: for people on stderr, for programs in a report like any other.
fn refused(args: &CheckArgs, file: String, error: LoadError) -> ExitCode {
    if args.output == Output::Text {
        return fail(USAGE, &error.into());
    }
    let report = Report { file, errors: error.lines(), ..Report::default() };
    match json(&report) {
        Ok(()) => ExitCode::from(USAGE),
        result => written(result),
    }
}

fn json(value: &impl Serialize) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer_pretty(&mut out, value)?;
    writeln!(out)
}

/// What the configuration does here.
fn report(args: &CheckArgs, roots: &Roots, config: &Config) -> anyhow::Result<Report> {
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let mut plan = plan(&config.counters, &catalog);
    let errors = mistakes(&mut plan);
    let budget =
        Budget::new(usage::raise_descriptor_limit(), config.limits.connections, config.limits.descriptors);
    let mut watch = Watch::new(roots.clone());
    if !args.no_open {
        watch.need(plan.needs());
    }
    watch.refresh();
    let mut notes: Vec<String> = watch.problems().collect();
    notes.extend(catalog.problems().iter().map(ToString::to_string));
    let limit = budget.limit;
    if args.no_open {
        let (groups, refusals) = unopened(&plan, &catalog, &facts);
        let descriptors = Some(Descriptors::new(None, limit, &groups));
        return Ok(Report { errors, groups, refusals, descriptors, notes, ..Report::default() });
    }
    let core_pmu = catalog.has_core_pmu();
    let mut collector = Collector::new(Live, Clock::system(), roots, facts.clone(), core_pmu, budget)?;
    collector.apply(&plan, config.limits.series, &watch);
    let row = |state: &GroupState| GroupRow {
        targets: Some(state.targets),
        left_out: Some(state.left_out),
        ..GroupRow::new(&state.plan, &state.plan.counters, &facts)
    };
    let refused = |line: &Line| RefusalRow::new(&line.entry, line.scope, line.targets, &line.refusal);
    let groups: Vec<GroupRow> = collector.states().iter().map(row).collect();
    let refusals = collector.board().lines().map(refused).collect();
    let descriptors = Some(Descriptors::new(Some(collector.budget().used), limit, &groups));
    Ok(Report { errors, groups, refusals, descriptors, notes, ..Report::default() })
}

/// Takes out of the plan what no host would count: it is an error of the file, and not a refusal of this machine.
fn mistakes(plan: &mut Plan) -> Vec<String> {
    let (mistakes, refusals) =
        std::mem::take(&mut plan.refusals).into_iter().partition(|refused| refused.mistake);
    plan.refusals = refusals;
    let line = |Refused { entry, refusal, .. }: Refused| {
        let remedy = refusal.remedy.map(|remedy| format!("; {remedy}")).unwrap_or_default();
        format!("counters.{entry}: {}: {}{remedy}", refusal.event, refusal.reason)
    };
    let mut lines: Vec<String> = Vec::new();
    for line in Vec::into_iter(mistakes).map(line) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// The plan, as far as can be told without opening anything.
fn unopened(plan: &Plan, catalog: &Catalog, facts: &Facts) -> (Vec<GroupRow>, Vec<RefusalRow>) {
    let mut refusals: Vec<RefusalRow> = plan
        .refusals
        .iter()
        .map(|refused| RefusalRow::new(&refused.entry, refused.scope, 1, &refused.refusal))
        .collect();
    let mut groups = Vec::new();
    for group in &plan.groups {
        let mut opened = Vec::new();
        for counter in &group.counters {
            match foreseen(&counter.event.name, counter.event.kind, group.scope(), catalog, facts) {
                Some(refusal) => refusals.push(RefusalRow::new(&group.entry, group.scope(), 1, &refusal)),
                None => opened.push(counter.clone()),
            }
        }
        if !opened.is_empty() {
            groups.push(GroupRow::new(group, &opened, facts));
        }
    }
    (groups, refusals)
}

impl Descriptors {
    fn new(used: Option<usize>, limit: usize, groups: &[GroupRow]) -> Self {
        let mut descriptors = Self { used, limit, cpus: 0, per_cgroup: 0, per_thread: 0 };
        for group in groups.iter().filter(|group| !group.is_refused()) {
            match group.scope {
                "cgroup" => descriptors.per_cgroup += group.descriptors_per_target,
                "process" => descriptors.per_thread += group.descriptors_per_target,
                _ => descriptors.cpus += group.descriptors_per_target * group.cpus,
            }
        }
        descriptors
    }
}

impl GroupRow {
    /// A group of which `counters` are opened.
    fn new(group: &Group, counters: &[Counter], facts: &Facts) -> Self {
        let cpus = group.cpus(&facts.online).len();
        let each = if group.scope() == Scope::Cgroup { cpus } else { 1 };
        Self {
            entry: group.entry.to_string(),
            scope: group.scope().as_str(),
            pmu: group.pmu.as_deref().map(str::to_owned),
            events: counters.iter().map(|counter| counter.event.name.to_string()).collect(),
            metrics: counters.iter().map(|counter| format!("{}_total", counter.metric.name())).collect(),
            targets: None,
            left_out: None,
            cpus,
            descriptors_per_target: counters.len() * each,
        }
    }

    /// Whether it was tried, and opened for nobody.
    fn is_refused(&self) -> bool {
        self.targets == Some(0) && self.left_out.is_some_and(|left_out| left_out > 0)
    }
}

impl RefusalRow {
    fn new(entry: &str, scope: Scope, targets: usize, refusal: &Refusal) -> Self {
        Self {
            entry: entry.to_owned(),
            scope: scope.as_str(),
            event: refusal.event.to_string(),
            target: refusal.target.clone(),
            targets,
            cause: refusal.cause.as_str(),
            reason: refusal.reason.clone(),
            remedy: refusal.remedy.clone(),
        }
    }
}
