//! What the collection thread knows, as the page and `/api/v1/status` show it.

mod profiles;
mod threads;
mod traces;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::governor::Detail;
use crate::budget::PartState;
use crate::clock::Timestamp;
use crate::config::Config;
use crate::container::Directory;
use crate::counter::{GroupState, StreamState};
use crate::event::Catalog;
use crate::export::status::{
    Collection, Configuration, ContainerSource, Containers, Cost, CounterStatus, DescriptorKind, EventStatus,
    FailedReload, FilesStatus, Host, Loss, MemoryPart, PushStatus, Refusal, Series, Shared, Status, Stream,
    StuckFile, Unattributed, UnattributedPart, Usage,
};
use crate::files;
use crate::health::{Board, Line, SameReason, Scope, Verdict};
use crate::host::{Capabilities, Facts};
use crate::metrics::{self, Snapshot};
use crate::plan::{Source, StreamSupport, Why};
use crate::profile::SamplerState;
use crate::ring::{Losses, Records};
use crate::sys::{self, Budget, OpenDescriptors};
use crate::target::Watch;
use crate::tracepoint::{Remarkable, TraceState, TracerState};

/// Where the configuration comes from, and what came of it.
#[derive(Debug)]
pub(super) struct ConfigSource {
    /// The file; `None` = the built-in configuration.
    pub(super) file: Option<PathBuf>,
    /// When the configuration in force was loaded.
    pub(super) loaded: Timestamp,
    /// The last attempt since then that failed, and why.
    pub(super) failed: Option<(Timestamp, Vec<String>)>,
}

/// Everything that the status is made of.
pub(super) struct Facets<'a> {
    pub(super) now: Timestamp,
    pub(super) started: Timestamp,
    pub(super) config: &'a Config,
    pub(super) source: &'a ConfigSource,
    pub(super) facts: &'a Facts,
    pub(super) catalog: &'a Catalog,
    pub(super) watch: &'a Watch,
    pub(super) groups: &'a [GroupState],
    pub(super) stream: Option<&'a StreamState>,
    pub(super) traces: &'a [TraceState],
    pub(super) profiles: &'a [SamplerState],
    pub(super) sample_losses: Losses,
    /// Samples that windows of profiles lost because memory was short.
    pub(super) dropped_for_room: u64,
    /// The rings of tracepoints and probes, if there are any.
    pub(super) tracer: Option<TracerState>,
    /// What this machine has of the switch stream.
    pub(super) support: &'a StreamSupport,
    pub(super) board: &'a Board,
    pub(super) budget: &'a Budget,
    pub(super) snapshot: Option<&'a Snapshot>,
    /// How long the collection took.
    pub(super) took: Duration,
    pub(super) usage: metrics::Usage,
    /// What each part of the memory budget holds.
    pub(super) memory: &'a [PartState],
    /// Open descriptors of every kind.
    pub(super) open: OpenDescriptors,
    /// CPU time of about the last collection, as a part of the time since the one before; `None` in the first second.
    pub(super) cpu_ratio: Option<f64>,
    /// How much is told of threads.
    pub(super) detail: Detail,
    /// The threads that stand out.
    pub(super) remarkable: &'a Remarkable,
    /// The moment on the clock of the records.
    pub(super) kernel_now: u64,
    /// Who containers are.
    pub(super) directory: &'a Directory,
    /// What is pushed.
    pub(super) pushes: Vec<PushStatus>,
    /// Files of other processes.
    pub(super) files: &'a files::Report,
}

fn containers(directory: &Directory) -> Containers {
    let (known, _, unknown) = directory.size();
    let sources = directory.sources().into_iter().map(|source| ContainerSource {
        source: source.kind.to_string(),
        place: source.place,
        answered: source.answered,
        containers: source.containers as u64,
        failing: source.failure.map(|failure| failure.why),
    });
    Containers { known: known as u64, unknown: unknown as u64, sources: sources.collect() }
}

/// The status as of now.
pub(super) fn status(facets: &Facets<'_>) -> Status {
    Status {
        now: facets.now,
        started: facets.started,
        version: env!("CARGO_PKG_VERSION").into(),
        configuration: configuration(facets.source),
        host: host(facets),
        counters: counters(facets.groups, facets.board),
        stream: facets.stream.map(|state| stream(state, facets.groups)),
        traces: traces::all(facets.traces, facets.board),
        threads: threads::threads(facets),
        profiles: facets.profiles.iter().map(|state| profiles::profile(state, facets.board)).collect(),
        containers: containers(facets.directory),
        pushes: facets.pushes.clone(),
        refusals: facets.board.by_reason().iter().map(refusal).collect(),
        descriptors: Usage { used: facets.budget.used as u64, limit: Some(facets.budget.limit as u64) },
        series: facets
            .groups
            .iter()
            .flat_map(series_of)
            .chain(facets.traces.iter().flat_map(traces::series))
            .chain(
                facets.snapshot.into_iter().flat_map(|snapshot| profiles::series(facets.profiles, snapshot)),
            )
            .collect(),
        losses: losses(facets),
        collection: facets.snapshot.map(|snapshot| Collection {
            at: snapshot.taken(),
            duration: facets.took,
            interval: facets.config.collection.interval,
            series: snapshot.series() as u64,
        }),
        cost: Cost {
            cpu: facets.usage.cpu,
            cpu_percent: facets.cpu_ratio.map(|ratio| ratio * 100.0),
            resident_bytes: facets.usage.resident_bytes,
        },
        memory: facets.memory.iter().map(memory_part).collect(),
        open_descriptors: facets.open.kinds().map(|(kind, open)| DescriptorKind { kind, open }).into(),
        files: files(facets.files),
    }
}

/// What this process uses: CPU time from `getrusage`, memory from `/proc/self/statm`.
pub(super) fn usage(cpu: Duration, budget: &Budget, helper: Option<u32>) -> metrics::Usage {
    let own = sys::usage::memory().unwrap_or_default().resident;
    let helper = helper.and_then(sys::usage::memory_of).unwrap_or_default().resident;
    metrics::Usage { cpu, resident_bytes: own + helper, open_descriptors: budget.used as u64 }
}

fn memory_part(state: &PartState) -> MemoryPart {
    MemoryPart { part: state.part.as_str(), used_bytes: state.used, limit_bytes: state.limit }
}

fn files(report: &files::Report) -> FilesStatus {
    let stuck = |stuck: &files::Stuck| StuckFile {
        mount: stuck.mount.clone(),
        filesystem: stuck.filesystem.clone(),
        pid: stuck.pid,
        path: stuck.path.clone(),
        since: stuck.since,
    };
    FilesStatus {
        helper: report.helper,
        restarts: report.restarts,
        late: report.late,
        stuck: report.stuck.iter().map(stuck).collect(),
    }
}

fn configuration(source: &ConfigSource) -> Configuration {
    Configuration {
        file: source.file.as_ref().map(|path| path.display().to_string()),
        loaded: source.loaded,
        failed_reload: source
            .failed
            .as_ref()
            .map(|(at, problems)| FailedReload { at: *at, problems: problems.clone() }),
    }
}

fn host(facets: &Facets<'_>) -> Host {
    let facts = facets.facts;
    let known = [
        ("CAP_PERFMON", Capabilities::PERFMON),
        ("CAP_SYS_ADMIN", Capabilities::SYS_ADMIN),
        ("CAP_SYS_PTRACE", Capabilities::SYS_PTRACE),
        ("CAP_DAC_READ_SEARCH", Capabilities::DAC_READ_SEARCH),
        ("CAP_IPC_LOCK", Capabilities::IPC_LOCK),
    ];
    let mut notes: Vec<String> = facets.watch.problems().map(|problem| problem.to_string()).collect();
    notes.extend(facets.catalog.problems().iter().map(ToString::to_string));
    if facts.nmi_watchdog && facets.catalog.has_core_pmu() {
        notes.push("the NMI watchdog holds one hardware counter on every CPU".into());
    }
    if let Some(mode) = &facts.lockdown {
        notes.push(format!("kernel lockdown is in {mode} mode"));
    }
    notes.extend(no_stream(facets.groups, facets.support));
    Host {
        kernel: format!("{} {}", facts.kernel, std::env::consts::ARCH),
        cpus: facets.watch.online().to_string(),
        paranoid: facts.paranoid,
        capabilities: known
            .into_iter()
            .filter(|&(_, number)| facts.capabilities.has(number))
            .map(|(name, _)| name.into())
            .collect(),
        pmus: facets.catalog.pmus().map(str::to_owned).collect(),
        virtual_machine: facts.virtual_machine,
        notes,
    }
}

/// Groups of one entry and scope together, with the events that were refused beside those that count.
fn counters(groups: &[GroupState], board: &Board) -> Vec<CounterStatus> {
    let mut by_entry: BTreeMap<(usize, Scope), CounterStatus> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for group in groups {
        let entry = &*group.plan.entry;
        let place = order.iter().position(|&known| known == entry).unwrap_or_else(|| {
            order.push(entry);
            order.len() - 1
        });
        let status = by_entry.entry((place, group.plan.scope())).or_insert_with(|| CounterStatus {
            entry: entry.into(),
            scope: group.plan.scope().as_str().into(),
            how: how(group),
            events: Vec::new(),
        });
        for (counter, states) in group.plan.counters.iter().zip(&group.states) {
            let refused = board.lines().filter(|line| {
                *line.entry == *entry
                    && line.scope == group.plan.scope()
                    && line.refusal.event == counter.event.name
            });
            status.events.push(event_status(group, &counter.event.name, states, refused));
        }
    }
    by_entry.into_values().collect()
}

fn event_status<'a>(
    group: &GroupState,
    event: &str,
    states: &[(Verdict, usize)],
    refused: impl Iterator<Item = &'a Line>,
) -> EventStatus {
    let sum = |wanted: &[Verdict]| -> u64 {
        states.iter().filter(|(verdict, _)| wanted.contains(verdict)).map(|&(_, places)| places as u64).sum()
    };
    let shared = sum(&[Verdict::Shared]);
    EventStatus {
        event: event.into(),
        counting: sum(&[Verdict::Counting, Verdict::Idle]),
        shared: (shared > 0)
            .then_some(Shared { count: shared, lowest_percent: (group.lowest_ratio * 100.0) as u8 }),
        stalled: sum(&[Verdict::NeverRan, Verdict::Stalled, Verdict::Implausible, Verdict::Full]),
        refused: refused.map(|line| line.targets as u64).sum(),
    }
}

fn how(group: &GroupState) -> String {
    let what = group.plan.scope().targets();
    let way = if group.plan.source == Source::Stream { "switch stream" } else { "own descriptors" };
    match (group.targets, group.left_out) {
        (targets, 0) => format!("{targets} {what}, {way}"),
        (0, left_out) => format!("none of {left_out} {what}, {way}"),
        (targets, left_out) => format!("{targets} {what}, {way}, {left_out} more cannot be counted"),
    }
}

fn stream(state: &StreamState, groups: &[GroupState]) -> Stream {
    let entries = |entries: &Vec<_>| entries.iter().map(ToString::to_string).collect();
    Stream {
        granularity: state.granularity.to_string(),
        leader: state.granularity.leader().into(),
        cpus: state.cpus as u64,
        descriptors: state.descriptors as u64,
        groups: state.groups.iter().map(entries).collect(),
        record_bytes: state.record_bytes as u64,
        ring_bytes: Usage { used: state.ring_bytes, limit: Some(state.ring_bytes_limit) },
        records: state.losses.records,
        lost: state.losses.ring_full + state.losses.unrecorded + state.losses.unreadable,
        unattributed: [Scope::Cgroup, Scope::Process]
            .into_iter()
            .filter_map(|scope| unattributed(scope, groups))
            .collect(),
    }
}

/// What no series of a scope has, of CPU time if any group of the scope counts it.
fn unattributed(scope: Scope, groups: &[GroupState]) -> Option<Unattributed> {
    let of_scope = groups.iter().filter(|group| group.plan.scope() == scope);
    let parts = of_scope.filter_map(|group| group.unattributed.as_ref());
    let parts = parts.min_by_key(|parts| !parts.is_time)?;
    let mut reasons: Vec<UnattributedPart> = parts
        .parts
        .iter()
        .map(|&(reason, part)| UnattributedPart { reason: reason.into(), percent: part * 100.0 })
        .collect();
    reasons.sort_by(|a, b| b.percent.total_cmp(&a.percent));
    let rest: f64 = reasons.iter().map(|part| part.percent).sum();
    Some(Unattributed {
        scope: scope.as_str().into(),
        event: parts.event.to_string(),
        attributed_percent: 100.0 - rest,
        reasons,
    })
}

/// Why what may be counted by the switch stream is not.
fn no_stream(groups: &[GroupState], support: &StreamSupport) -> Vec<String> {
    let mut notes = Vec::new();
    for group in groups {
        let Why::NoStream(unsupported) = group.plan.why(support) else { continue };
        let remedy = unsupported.remedy.iter().map(|remedy| format!("; {remedy}")).collect::<String>();
        let scope = group.plan.scope();
        let note = format!("no switch stream per {scope}: {}{remedy}", unsupported.reason);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

fn refusal(same: &SameReason<'_>) -> Refusal {
    Refusal {
        events: same.events().into_iter().map(str::to_owned).collect(),
        target: same.first_target().to_owned(),
        count: same.places() as u64,
        cause: same.cause,
        reason: same.reason.to_owned(),
        remedy: same.remedy.unwrap_or_default().to_owned(),
    }
}

fn series_of(group: &GroupState) -> impl Iterator<Item = Series> {
    let (series, in_other) = (group.series as u64, group.in_other as u64);
    group.plan.counters.iter().map(move |counter| Series {
        metric: format!("{}_total", counter.metric.name()),
        series,
        in_other,
    })
}

/// What was met and is not counted, beside refusals.
fn losses(facets: &Facets<'_>) -> Vec<Loss> {
    let loss = |what: &str, reason: &str, count: usize| Loss {
        what: what.into(),
        reason: reason.into(),
        count: count as u64,
    };
    let (cgroups, processes) = facets.watch.left_out();
    let mut losses = vec![loss("refusals", "more different ones than are kept", facets.board.beyond())];
    for (what, left_out) in [("cgroups", cgroups), ("processes", processes)] {
        losses.extend([
            loss(what, "more than are followed", left_out.too_many),
            loss(what, "too deep below the root", left_out.too_deep),
            loss(what, "may not be looked at", left_out.forbidden),
            loss(what, "cannot be read", left_out.broken),
            loss(what, "names that cannot be told apart", left_out.ambiguous),
        ]);
    }
    let ring_losses = |records: Records, losses: Losses| {
        let reasons = losses.reasons(records).into_iter();
        reasons.map(move |(reason, count)| loss(records.plural(), reason, count as usize))
    };
    if let Some(StreamState { losses: lost, .. }) = facets.stream {
        losses.extend(ring_losses(Records::Switches, *lost));
        let reason = "the kernel stopped an event for a while";
        losses.push(loss(Records::Switches.plural(), reason, lost.throttled as usize));
    }
    if let Some(tracer) = facets.tracer {
        losses.extend(ring_losses(Records::Tracepoints, tracer.losses));
    }
    losses.extend(ring_losses(Records::Samples, facets.sample_losses));
    let (what, reason) =
        ("samples of the windows that pages show", "the share of stacks in limits.memory is full");
    losses.push(Loss { what: what.into(), reason: reason.into(), count: facets.dropped_for_room });
    losses.retain(|loss| loss.count > 0);
    losses
}
