//! `perf-exporter check`: every problem of a configuration at once, then what it does on this machine.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::{FAILED, Output, USAGE, fail};
use crate::clock::Clock;
use crate::config::{self, Config};
use crate::counter::{Budget, Collector, GroupState};
use crate::event::Catalog;
use crate::health::{Line, Refusal, Scope};
use crate::host::{Facts, Roots};
use crate::plan::{Group, plan};
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
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    warnings: Vec<String>,
    groups: Vec<GroupRow>,
    refusals: Vec<RefusalRow>,
    descriptors: Descriptors,
    /// What could not be looked at.
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Descriptors {
    /// Open for a moment just now; `None` if nothing was to be opened.
    used: Option<usize>,
    limit: usize,
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
        return written(
            serde_json::to_writer_pretty(io::stdout(), &config::schema()).map_err(io::Error::from),
        );
    }
    let (config, warnings) = match config::load_file(args.config.as_deref()) {
        Ok((config, warnings)) => (config, warnings.iter().map(ToString::to_string).collect()),
        Err(problems) => return fail(USAGE, &problems.into()),
    };
    let report = match report(args, roots, &config, warnings) {
        Ok(report) => report,
        Err(error) => return fail(FAILED, &error),
    };
    let failed = args.strict && (!report.refusals.is_empty() || !report.warnings.is_empty());
    let result = match args.output {
        Output::Json => serde_json::to_writer_pretty(io::stdout(), &report).map_err(io::Error::from),
        Output::Text => text(&mut io::stdout().lock(), &report),
    };
    match result {
        Ok(()) if failed => ExitCode::from(FAILED),
        result => written(result),
    }
}

fn written(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => fail(FAILED, &error.into()),
        _ => ExitCode::SUCCESS,
    }
}

fn report(args: &CheckArgs, roots: &Roots, config: &Config, warnings: Vec<String>) -> anyhow::Result<Report> {
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let plan = plan(&config.counters, &catalog);
    let budget =
        Budget::new(usage::raise_descriptor_limit(), config.limits.connections, config.limits.descriptors);
    let limit = budget.limit;
    let file =
        args.config.as_ref().map_or("the built-in configuration".into(), |path| path.display().to_string());
    let mut notes: Vec<String> = catalog.problems().iter().map(ToString::to_string).collect();
    if args.no_open {
        let groups = plan.groups.iter().map(|group| group_row(group, &facts, None)).collect();
        let refusals = plan
            .refusals
            .iter()
            .map(|refused| refusal_row(&refused.entry, refused.scope, 1, &refused.refusal));
        let refusals = refusals.collect();
        return Ok(Report {
            file,
            warnings,
            groups,
            refusals,
            descriptors: Descriptors { used: None, limit },
            notes,
        });
    }
    let mut watch = Watch::new(roots.clone());
    watch.need(plan.needs());
    watch.refresh();
    notes.extend(watch.problems());
    let core_pmu = catalog.has_core_pmu();
    let mut collector = Collector::new(Live, Clock::system(), roots, facts.clone(), core_pmu, budget)?;
    collector.apply(&plan, config.limits.series, &watch);
    let row = |state: &GroupState| group_row(&state.plan, &facts, Some(state));
    let refused = |line: &Line| refusal_row(&line.entry, line.scope, line.targets, &line.refusal);
    Ok(Report {
        file,
        warnings,
        groups: collector.states().iter().map(row).collect(),
        refusals: collector.board().lines().map(refused).collect(),
        descriptors: Descriptors { used: Some(collector.budget().used), limit },
        notes,
    })
}

fn group_row(group: &Group, facts: &Facts, state: Option<&GroupState>) -> GroupRow {
    GroupRow {
        entry: group.entry.to_string(),
        scope: group.scope().as_str(),
        pmu: group.pmu.as_deref().map(str::to_owned),
        events: group.counters.iter().map(|counter| counter.event.name.to_string()).collect(),
        metrics: group.counters.iter().map(|counter| format!("{}_total", counter.metric.name())).collect(),
        targets: state.map(|state| state.targets),
        left_out: state.map(|state| state.left_out),
        descriptors_per_target: group.descriptors_per_target(&facts.online),
    }
}

fn refusal_row(entry: &str, scope: Scope, targets: usize, refusal: &Refusal) -> RefusalRow {
    RefusalRow {
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

/// For people: the plan, then what is refused, then one line of summary.
fn text(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}: no errors, {} warnings", report.file, report.warnings.len())?;
    report.warnings.iter().try_for_each(|warning| writeln!(out, "  {warning}"))?;
    for group in &report.groups {
        let pmu = group.pmu.as_ref().map(|pmu| format!(" on {pmu}")).unwrap_or_default();
        write!(out, "\n{} per {}{pmu}: {{{}}}\n  ", group.entry, group.scope, group.events.join(","))?;
        let each = match group.scope {
            "process" => "thread",
            scope => scope,
        };
        match (group.targets, group.left_out) {
            (Some(targets), Some(0)) => write!(out, "{targets} counted, ")?,
            (Some(targets), Some(left_out)) => write!(out, "{targets} counted, {left_out} left out, ")?,
            _ => {}
        }
        writeln!(out, "{} descriptors for each {each}", group.descriptors_per_target)?;
        group.metrics.iter().try_for_each(|metric| writeln!(out, "  {metric}"))?;
    }
    if !report.refusals.is_empty() {
        writeln!(out, "\nNot counted here:")?;
    }
    for row in &report.refusals {
        let places = if row.targets > 1 { format!(" and {} more", row.targets - 1) } else { String::new() };
        writeln!(out, "  {} in {} per {} ({}{places})", row.event, row.entry, row.scope, row.target)?;
        writeln!(out, "    {}: {}", row.cause, row.reason)?;
        row.remedy.iter().try_for_each(|remedy| writeln!(out, "    {remedy}"))?;
    }
    if !report.notes.is_empty() {
        writeln!(out, "\nNotes:")?;
        report.notes.iter().try_for_each(|note| writeln!(out, "  {note}"))?;
    }
    match report.descriptors {
        Descriptors { used: Some(used), limit } => writeln!(out, "\n{used} of {limit} descriptors used"),
        Descriptors { used: None, limit } => {
            writeln!(out, "\nnothing was opened; {limit} descriptors are allowed")
        }
    }
}
