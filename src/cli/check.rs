//! `perf-exporter check`: reports all problems of a configuration, then what it does on this machine.

mod containers;
mod derived;
mod mistakes;
mod presets;
mod profiles;
mod publication;
mod pushes;
mod restrictions;
mod rotation;
mod rows;
mod stream;
mod text;
mod traces;
mod words;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde::Serialize;

use derived::MetricRow;
use presets::PresetRow;
use profiles::{ProfileRings, ProfileRow};
use publication::UnpublishedRow;
use pushes::PushRow;
use restrictions::RestrictionRow;
use rotation::RotationRow;
use rows::{Descriptors, GroupDescriptors, GroupRow};
use stream::StreamRow;
use traces::{ProbeRow, TraceRow};

use super::{FAILED, Output, USAGE, fail, foreseen, json, written};
use crate::budget::Part;
use crate::clock::Clock;
use crate::config::{self, Config, LoadError};
use crate::container::{Directory, SourceState, ask_once};
use crate::counter::{self, Bounds, Collector, GroupState};
use crate::deep::Registry;
use crate::event::{Catalog, Event};
use crate::health::{Line, Scope};
use crate::host::{Environment, Facts, Roots};
use crate::plan::{
    Entries, NoStream, PROFILES, Plan, Refused, Stream, StreamSupport, configured_probes, plan,
};
use crate::probe::install::{Installer, Placements, ProbeDescription};
use crate::probe::tracefs;
use crate::sys::Budget;
use crate::sys::live::Live;
use crate::sys::usage;
use crate::targets::{ContainerMetadata, Watch};

#[derive(Debug, Clone, Args)]
pub(super) struct CheckArgs {
    /// Configuration file. Without it, the built-in configuration is checked.
    #[arg(long, short, value_name = "FILE", env = "PERF_EXPORTER_CONFIG")]
    config: Option<PathBuf>,
    /// Web configuration file, as for the command run. Its certificates are checked as well, unless --no-open is given.
    #[arg(long = "web.config.file", value_name = "FILE", env = "PERF_EXPORTER_WEB_CONFIG_FILE")]
    web_config: Option<PathBuf>,
    /// Fail if an event cannot be opened on this machine or if the file has a warning.
    #[arg(long)]
    strict: bool,
    /// Accept names that this host does not have and another host may have: of tracepoints, terms of a PMU, functions and files. They are
    /// reported as events that cannot be opened.
    #[arg(long)]
    any_host: bool,
    /// Do not open anything: check the file, and report the local event names and the descriptors that they would use. Requires no
    /// privileges.
    #[arg(long)]
    no_open: bool,
    /// Print the JSON schema of the configuration, for editors, and exit.
    #[arg(long)]
    schema: bool,
    /// Output format.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    output: Output,
}

/// Result of the check.
#[derive(Debug, Default, Serialize)]
struct Report {
    file: String,
    /// Errors of the file on any host. If the file cannot be used at all, the rest of the report is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<String>,
    warnings: Vec<String>,
    groups: Vec<GroupRow>,
    /// Metrics that entries ask for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<MetricRow>,
    /// Entries whose records are decoded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    traces: Vec<TraceRow>,
    /// Definitions of the probes in the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    probes: Vec<ProbeRow>,
    /// Metrics that are measured and not published.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unpublished: Vec<UnpublishedRow>,
    /// Presets and their entries.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    presets: Vec<PresetRow>,
    /// Profiles: samples with call chains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    profiles: Vec<ProfileRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_rings: Option<ProfileRings>,
    /// Metadata sources for container names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<SourceState>,
    /// Signals that are pushed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pushes: Vec<PushRow>,
    refusals: Vec<Line>,
    /// Restrictions that the service imposes on itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    restrictions: Vec<RestrictionRow>,
    /// The switch stream, which counts for groups with attribution `stream`.
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<StreamRow>,
    /// Reasons why groups with automatic attribution are not counted by the stream.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    no_stream: Vec<NoStream>,
    /// PMUs with a limited number of counters, and the expected rotation of the groups on them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hardware_counters: Vec<RotationRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    descriptors: Option<Descriptors>,
    /// Facts of the host that could not be read.
    notes: Vec<String>,
}

/// Warning about selections of pods on a host without names of pods.
const NO_METADATA: &str = "rules with `namespace`, `pod`, `container` or `labels` match nothing: no metadata source of containers was \
                           found; set `containers.cri`, `containers.docker`, `containers.kubelet` or `containers.api_server`";

/// Checks the configuration and prints the report.
pub(super) fn check(args: &CheckArgs, roots: &Roots) -> ExitCode {
    if args.schema {
        return written(json(&config::schema()));
    }
    let file =
        args.config.as_ref().map_or("the built-in configuration".into(), |path| path.display().to_string());
    let (config, mut warnings) = match config::load_file(args.config.as_deref()) {
        Ok((config, warnings)) => {
            (with_deep_sets(config), warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        Err(error) => return refused(args, roots, file, &error, None),
    };
    let web_file = args.web_config.as_deref();
    let web = match args.no_open {
        true => config::read_web(web_file, &config.web).map(|(_, warnings)| warnings),
        false => config::open_web(web_file, &config.web, |_| ()).map(|opened| opened.warnings),
    };
    match web {
        Ok(of_web) => warnings.extend(of_web.iter().map(ToString::to_string)),
        Err(error) => return refused(args, roots, file, &error, Some(&config)),
    }
    if let Err(error) = config.require_memory(Facts::read(roots).online.len()) {
        return refused(args, roots, file, &error.into(), Some(&config));
    }
    let environment = Environment::of_process();
    let (pushes, problems) = PushRow::all(&config.push, &environment, !args.no_open);
    warnings.extend(problems);
    let (directory, problems) =
        ask_once(&config.containers, roots, &environment, &Clock::system(), !args.no_open);
    warnings.extend(problems);
    let directory = Arc::new(directory);
    let containers = directory.sources();
    if containers.is_empty() && config.pod_rules().next().is_some() {
        warnings.push(NO_METADATA.to_owned());
    }
    let report = match report(args, roots, &config, &directory) {
        Ok(report) => {
            Report { file, warnings, containers, pushes, presets: PresetRow::all(&config.traced), ..report }
        }
        Err(error) => return fail(FAILED, &error),
    };
    let (refused, warned, wrong) = (report.refusals.len(), report.warnings.len(), report.errors.len());
    let result = match args.output {
        Output::Json => json(&report),
        Output::Text => text::write(&mut io::stdout().lock(), &report),
    };
    let code = written(result);
    if wrong > 0 {
        return mistaken(args, &report);
    }
    if args.strict && refused + warned > 0 {
        return fail(
            FAILED,
            &anyhow::anyhow!("--strict: events that cannot be opened: {refused}, warnings: {warned}"),
        );
    }
    code
}

/// Returns a configuration in which all sets of `deep` are entries of `counters`, as while they are in force.
fn with_deep_sets(config: Config) -> Config {
    let sets = Registry::of_file(&config.deep).entries(&config.counters);
    let counters = config.counters.iter().cloned().chain(sets).collect();
    Config { counters, ..config }
}

/// Reports a file that cannot be used: as text on standard error, or as JSON in a report.
fn refused(
    args: &CheckArgs,
    roots: &Roots,
    file: String,
    error: &LoadError,
    valid: Option<&Config>,
) -> ExitCode {
    let errors = mistakes::all(error, args, valid, roots);
    if args.output == Output::Text {
        let title = match error {
            LoadError::Wrong(_) => "the configuration cannot be used:\n",
            LoadError::Unreadable(_) => "the configuration cannot be read: ",
            _ => "",
        };
        return fail(USAGE, &anyhow::anyhow!("{title}{}", errors.join("\n")));
    }
    let report = Report { file, errors, ..Report::default() };
    match json(&report) {
        Ok(()) => ExitCode::from(USAGE),
        result => written(result),
    }
}

/// Repeats the errors of a text report on standard error. The report may be longer than the end of the log that becomes the message of a
/// failed container.
fn mistaken(args: &CheckArgs, report: &Report) -> ExitCode {
    match args.output {
        Output::Text => {
            let title = "the configuration has errors on this host:";
            fail(USAGE, &anyhow::anyhow!("{title}\n{}", report.errors.join("\n")))
        }
        Output::Json => ExitCode::from(USAGE),
    }
}

/// Returns the report of what the configuration does on this host.
fn report(
    args: &CheckArgs,
    roots: &Roots,
    config: &Config,
    directory: &Arc<Directory>,
) -> anyhow::Result<Report> {
    let metadata = || Arc::clone(directory) as Arc<dyn ContainerMetadata>;
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let support = match args.no_open {
        true => StreamSupport::foreseen(&facts),
        false => counter::support(&Live, &facts),
    };
    let mut installer = Installer::new(super::files(roots), std::process::id()).with_metadata(metadata());
    let configured_probes = configured_probes(&config.traced, &config.profiles);
    let placed = match args.no_open {
        // Unavailable probes are reported. The others are not defined in the kernel, and their fields stay unknown.
        true => foreseen_of(&installer.look(&configured_probes)),
        false => installer.place(&configured_probes),
    };
    let probes = if args.no_open { installer.look(&configured_probes) } else { installer.placed() };
    let probes: Vec<ProbeRow> = probes.iter().filter_map(ProbeRow::new).collect();
    let complain = |system: &str, event: &str, filter: &str| tracefs::complaint(roots, system, event, filter);
    let entries = Entries { complain: &complain, ..unopened_entries(config, &placed) };
    let mut plan = plan(&entries, &catalog, &support);
    let errors = mistakes::mistakes(&mut plan, args.any_host);
    let budget =
        Budget::new(usage::raise_descriptor_limit(), config.limits.connections, config.limits.descriptors);
    let mut watch = Watch::new(roots.clone()).with_metadata(metadata());
    if !args.no_open {
        watch.need(plan.needs());
    }
    watch.refresh();
    let mut notes: Vec<String> = watch.problems().collect();
    notes.extend(catalog.problems().iter().map(ToString::to_string));
    let shares = config.shares(facts.online.len(), plan.ring_kinds());
    let memory = plan.ring_memory(shares.get(Part::Rings));
    let mut descriptors = Descriptors {
        limit: budget.limit,
        traced: plan.traced_descriptors(facts.online.len()),
        sampled: plan.sampled_descriptors(&facts.online),
        ..Descriptors::default()
    };
    let capacity = |pmu: Option<&str>| match args.no_open {
        true => catalog.capacity(pmu),
        false => counter::measured_capacity(&Live, &catalog, pmu, catalog.capacity(pmu)),
    };
    let hardware_counters = RotationRow::all(&plan, &catalog, capacity);
    let (groups, refusals, traces, stream);
    if args.no_open {
        (groups, refusals) = unopened(&plan, &catalog, &support);
        traces = TraceRow::all(plan.traces.iter().map(|trace| TraceRow::new(trace, None)));
        let counted = counted(&plan, &catalog);
        stream = counted.map(|stream| counter::foreseen(&stream, &facts, roots, memory));
    } else {
        let core_pmu = catalog.has_core_pmu();
        let mut collector = Collector::new(Live, Clock::system(), roots, facts.clone(), core_pmu, budget)?;
        collector.apply(&plan, Bounds::new(&config.limits, &shares), &watch);
        let row = |state: &GroupState| GroupRow {
            targets: Some(state.targets),
            left_out: Some(state.left_out),
            ..GroupRow::new(&state.plan, &state.plan.counters, &facts, &support)
        };
        groups = collector.states().iter().map(row).collect();
        let refused = collector.board().lines().cloned();
        refusals = refused.chain(profiles::refused(&Live, &plan, &facts)).collect();
        stream = collector.stream_state().filter(|state| state.cpus > 0);
        descriptors.traced = collector.tracer_state().map_or(0, |state| state.descriptors);
        descriptors.used = Some(collector.budget().used);
        let states = collector.trace_states();
        traces = TraceRow::all(states.iter().map(|state| TraceRow::new(&state.plan, Some(&state.open))));
    }
    let profiles = ProfileRow::all(&plan, &facts, &refusals);
    let stream = stream.map(|state| StreamRow::new(&state, &groups, &facts));
    descriptors.stream = stream.as_ref().map_or(0, |stream| stream.descriptors);
    descriptors.takes = GroupDescriptors::of(&groups);
    Ok(Report {
        metrics: MetricRow::all(&config.counters, &catalog, &plan),
        unpublished: UnpublishedRow::all(&plan, &config.metrics),
        profile_rings: ProfileRings::of(&profiles, &plan, &facts, memory),
        profiles,
        errors,
        groups,
        traces,
        probes,
        refusals,
        stream,
        no_stream: NoStream::all(&plan.groups, &support),
        hardware_counters,
        descriptors: Some(descriptors),
        restrictions: if args.no_open { Vec::new() } else { RestrictionRow::all() },
        notes,
        ..Report::default()
    })
}

/// Returns the entries of a configuration, without the kernel's messages about filters.
fn unopened_entries<'a>(config: &'a Config, placed: &'a Placements) -> Entries<'a> {
    Entries {
        counters: &config.counters,
        traced: &config.traced,
        profiles: &config.profiles,
        profile_cpus: config.profile_cpus,
        scheduler: config.scheduler.as_ref(),
        syscalls: config.syscalls.as_ref(),
        placed,
        complain: &|_, _, _| None,
        locations: config.locations.as_deref(),
    }
}

/// Selects from inspected probes the unavailable ones, and those of profiles, whose fields are not used.
fn foreseen_of(looks: &[ProbeDescription]) -> Placements {
    let foreseen = |look: &ProbeDescription| match &look.ways {
        Err(refusal) => Some((look.entry.clone(), Err(refusal.clone()))),
        Ok(_) if look.entry.0 == PROFILES => Some((look.entry.clone(), Ok(look.events.clone()))),
        Ok(_) => None,
    };
    looks.iter().filter_map(foreseen).collect()
}

/// Returns the groups and refusals of the plan, as far as they are known without opening events.
fn unopened(plan: &Plan, catalog: &Catalog, support: &StreamSupport) -> (Vec<GroupRow>, Vec<Line>) {
    let line = |entry: &Arc<str>, scope, refusal| Line {
        entry: Arc::clone(entry),
        scope,
        refusal,
        targets: 1,
        position: None,
    };
    let planned = |refused: &Refused| Line {
        position: refused.position(),
        ..line(&refused.entry, refused.scope, refused.refusal.clone())
    };
    let mut refusals: Vec<Line> = plan.refusals.iter().map(planned).collect();
    let mut groups = Vec::new();
    for group in &plan.groups {
        let mut opened = Vec::new();
        for counter in &group.counters {
            match foreseen(&counter.event.name, counter.event.kind, group.scope(), catalog) {
                Some(refusal) => refusals.push(line(&group.entry, group.scope(), refusal)),
                None => opened.push(counter.clone()),
            }
        }
        if !opened.is_empty() {
            groups.push(GroupRow::new(group, &opened, catalog.facts(), support));
        }
    }
    (groups, refusals)
}

/// Returns the stream without events that are known to be unavailable on this host.
fn counted(plan: &Plan, catalog: &Catalog) -> Option<Stream> {
    let mut stream = plan.stream.clone()?;
    for set in &mut stream.sets {
        let refused = |event: &Event| foreseen(&event.name, event.kind, Scope::CPU, catalog).is_some();
        set.events.retain(|event| !refused(event));
    }
    stream.sets.retain(|set| !set.events.is_empty());
    (!stream.sets.is_empty()).then_some(stream)
}
