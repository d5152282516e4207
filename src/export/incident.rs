//! The evidence of an incident: recorded figures and profiles, and a report about them, as an archive. Pages about incidents.
//!
//! ```text
//! History ────────► figures as JSON, charts ─┐
//! RecentRuns ─────► traces, tables of waits ─┤
//! Snapshot ───────► metrics as text ─────────┼► Archive
//! ProfileRecorder ► pprof, folded stacks ────┤
//!                 └► report and pages ───────┘
//! ```

mod list;
mod metrics;
mod report;
mod scheduling;

use super::folded::{self, Folded};
use super::overview::json::{container_labels, json};
use super::overview::query::seconds;
use super::overview::{HISTORY, PageQuery};
use super::page::profile::offline;
use super::pprof;
use super::query::encode;
use crate::budget::{Account, Share};
use crate::clock::Timestamp;
use crate::error::FileError;
use crate::history::{Figure, Grid, Scope, SharedHistory, Window};
use crate::incident::{Archive, Incident, Profiled, Span, Store};
use crate::metrics::Snapshot;
use crate::named_enum::named_enum;
use crate::profile::{Cgroups, Profile, ProfileRecorder, Selection, TimeRange};
use crate::sched::RecentRuns;
use crate::status::Threads;

pub use list::{list_json, list_page};
pub use report::REPORT;

/// Rows of the table of functions in a page of an archive.
const FUNCTIONS: usize = 200;

/// Time after an incident that its charts show, in milliseconds.
const AFTER: u64 = 60_000;

/// Maximum number of steps of a chart.
const STEPS: usize = 600;

/// Figures of the cgroup, of the machine and of suspects in a report.
const CHARTS: [Figure; 9] = [
    Figure::Cpu,
    Figure::RunqueueLatency,
    Figure::Ipc,
    Figure::CacheMisses,
    Figure::Preemptions,
    Figure::Forks,
    Figure::Errors,
    Figure::BlockLatency,
    Figure::LostRecords,
];
const CHARTS_OF_SUSPECT: [Figure; 1] = [Figure::Cpu];

/// Where the evidence comes from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'s> {
    /// The recorded past.
    pub history: &'s SharedHistory,
    /// The recorded samples.
    pub profiles: &'s dyn ProfileRecorder,
    /// The last runs of threads.
    pub recent_runs: &'s RecentRuns,
    /// Threads with unusual behavior; `None` if threads are not traced.
    pub threads: Option<&'s Threads>,
    /// The last metrics; `None` before the first collection.
    pub snapshot: Option<&'s Snapshot>,
    /// Where the archive of the begin is, when the incident has ended.
    pub store: &'s Store,
    /// The share of memory for evidence.
    pub memory: &'s Share,
    /// The current time.
    pub now: Timestamp,
}

/// The charts of one subject.
#[derive(Debug)]
struct Charts {
    heading: String,
    grid: Grid,
    values: Vec<(Figure, Vec<Option<f64>>)>,
}

/// A profile of the time of an incident, and of the time before.
#[derive(Debug)]
struct Pair {
    name: String,
    during: Profile,
    before: Profile,
}

/// Writes the evidence of an incident, from its begin until now, into an archive. Sets which profiles there are, and what is missing. Reads files of
/// other processes and may take seconds.
///
/// # Errors
/// If the archive cannot be written.
pub fn collect(
    incident: &mut Incident,
    sources: Sources<'_>,
    archive: &mut Archive,
) -> Result<(), FileError> {
    incident.profiles.clear();
    incident.missing.clear();
    let mut evidence = Evidence { incident, archive, account: sources.memory.account() };
    let (charts, figures) = recorded(evidence.incident, sources);
    for (name, json) in figures {
        evidence.add(&name, json)?;
    }
    evidence.keep_earlier(sources.store)?;
    evidence.add_scheduling(sources)?;
    evidence.add_metrics(sources)?;
    let entries = sources.profiles.entries();
    if entries.is_empty() {
        evidence.incident.missing.push("profiles: no entry of profiles is configured".to_owned());
    }
    let mut first = None;
    for entry in entries {
        let Some(pair) = pair(evidence.incident, &entry, sources.profiles) else { continue };
        evidence.add_files(&pair)?;
        match &first {
            // The report has the image of the first one.
            None => first = Some(pair),
            Some(_) => evidence.add_page(&pair)?,
        }
    }
    let report = report::report(evidence.incident, &charts, first.as_ref());
    evidence.add(REPORT, report.into_bytes())?;
    Ok(())
}

named_enum! {
    /// When evidence was collected.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Moment {
        Begin = "begin",
        End = "end",
    }
}

impl Moment {
    fn of(incident: &Incident) -> Self {
        if incident.ended_ms.is_some() { Self::End } else { Self::Begin }
    }
}

fn metrics_file(moment: Moment) -> String {
    format!("metrics-{}.txt", moment.as_str())
}

/// The evidence that is being written.
struct Evidence<'e> {
    incident: &'e mut Incident,
    archive: &'e mut Archive,
    /// The memory of the file that is being written.
    account: Account,
}

impl Evidence<'_> {
    /// Adds a file, or notes that it is missing. Reports whether it was added.
    fn add(&mut self, name: &str, content: Vec<u8>) -> Result<bool, FileError> {
        self.account.set(content.len() as u64);
        let is_added = self.archive.add(name, &content)?;
        if !is_added {
            let bytes = content.len();
            self.incident.missing.push(format!(
                "{name}: its {bytes} bytes do not fit into the archive; set incidents.size higher"
            ));
        }
        drop(content);
        self.account.set(0);
        Ok(is_added)
    }

    /// Adds the files of the begin, which cannot be collected again.
    fn keep_earlier(&mut self, store: &Store) -> Result<(), FileError> {
        let files = self.incident.scheduling.iter().filter_map(|scheduling| scheduling.file.clone());
        let begin = self.incident.ended_ms.map(|_| metrics_file(Moment::Begin));
        for name in files.chain(begin).collect::<Vec<_>>() {
            if let Ok(Some(content)) = store.member(&self.incident.id, &name, u64::MAX >> 1) {
                self.add(&name, content)?;
            }
        }
        Ok(())
    }

    /// Adds the last runs of threads as a trace, and the tables about them to the description.
    fn add_scheduling(&mut self, Sources { recent_runs, threads, .. }: Sources<'_>) -> Result<(), FileError> {
        let Some((mut scheduling, trace)) = scheduling::scheduling(self.incident, recent_runs, threads)
        else {
            let missing = "scheduler: no runs of threads are recorded; set scheduler.per";
            self.incident.missing.push(missing.to_owned());
            return Ok(());
        };
        let name = format!("scheduler-{}.json.gz", Moment::of(self.incident).as_str());
        match trace {
            Ok(trace) => {
                if self.add(&name, trace)? {
                    scheduling.file = Some(name);
                }
            }
            Err(error) => self.incident.missing.push(format!("{name}: the trace cannot be encoded: {error}")),
        }
        self.incident.scheduling.push(scheduling);
        Ok(())
    }

    /// Adds the metrics of the last collection as text.
    fn add_metrics(&mut self, sources: Sources<'_>) -> Result<(), FileError> {
        let Some(snapshot) = sources.snapshot else { return Ok(()) };
        let text = metrics::text(self.incident, snapshot);
        self.add(&metrics_file(Moment::of(self.incident)), text)?;
        Ok(())
    }

    /// Adds both profiles of an entry as pprof and as folded stacks.
    fn add_files(&mut self, Pair { name, during, before }: &Pair) -> Result<(), FileError> {
        for (profile, part) in [(during, "during"), (before, "before")] {
            match pprof::encode(profile) {
                Ok(encoded) => {
                    self.add(&format!("{name}-{part}.pb.gz"), encoded)?;
                }
                Err(error) => {
                    let missing = format!("{name}-{part}.pb.gz: the profile cannot be encoded: {error}");
                    self.incident.missing.push(missing);
                }
            }
            let text = Folded::new(profile, folded::Options::default()).text(false);
            self.add(&format!("{name}-{part}.folded"), text.into_bytes())?;
        }
        Ok(())
    }

    /// Adds a page with the image of a profile.
    fn add_page(&mut self, Pair { name, during, before }: &Pair) -> Result<(), FileError> {
        let title = format!("{name} of {}, {}", self.incident.subject(), self.incident.id);
        let base = Some(before).filter(|before| before.taken() > 0);
        let page = offline(during, base, Some(&title), FUNCTIONS);
        self.add(&format!("{name}.html"), page.into_bytes())?;
        Ok(())
    }
}

/// Returns the profiles of an entry, if there are samples, and notes their numbers.
fn pair(incident: &mut Incident, entry: &str, recorder: &dyn ProfileRecorder) -> Option<Pair> {
    let cgroup = incident.cgroup.as_deref().map(Cgroups::below);
    let selection = Selection { cgroup, ..Selection::default() };
    let taken = |Span { from_ms, to_ms }| {
        let range = TimeRange { from: Timestamp(from_ms), to: Timestamp(to_ms) };
        // A recorder returns the others as well, without their stacks.
        recorder.range(entry, range, &selection).map(|profile| profile.select(&selection))
    };
    let both = taken(incident.during).and_then(|during| Ok((during, taken(incident.before)?)));
    let (during, before) = match both {
        Ok(both) => both,
        Err(error) => {
            incident.missing.push(format!("profile {entry}: {error}"));
            return None;
        }
    };
    incident.profiles.push(Profiled {
        name: entry.to_owned(),
        during: during.taken(),
        before: before.taken(),
        lost: during.lost.iter().map(|(_, count)| count).sum(),
    });
    (during.taken() + before.taken() > 0).then(|| Pair { name: entry.to_owned(), during, before })
}

/// Returns the charts and the figures as JSON: of the cgroup, the machine and the suspects.
fn recorded(incident: &mut Incident, sources: Sources<'_>) -> (Vec<Charts>, Vec<(String, Vec<u8>)>) {
    let (from, to) = (incident.before.from_ms, (incident.during.to_ms + AFTER).min(sources.now.0));
    let mut subjects = Vec::new();
    if let Some(cgroup) = &incident.cgroup {
        subjects.push(("cgroup".to_owned(), Scope::Cgroup, cgroup.clone(), &CHARTS[..]));
    }
    subjects.push(("machine".to_owned(), Scope::Machine, String::new(), &CHARTS[..]));
    for (place, suspect) in incident.suspects.iter().enumerate() {
        let file = format!("suspect-{}", place + 1);
        subjects.push((file, Scope::Cgroup, suspect.cgroup.clone(), &CHARTS_OF_SUSPECT[..]));
    }
    let read = sources.history.read(|history| {
        let (mut charts, mut figures, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        let cgroup = incident.cgroup.as_deref().and_then(|cgroup| history.subject(Scope::Cgroup, cgroup));
        if let Some(cgroup) = cgroup {
            let named = container_labels(cgroup.labels());
            incident.labels = named.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        }
        let grid = history.grid(Window { from: Timestamp(from), to: Timestamp(to), step: None }, STEPS);
        for (file, scope, name, shown) in subjects {
            let mut text = format!(
                "scope={scope}&from={}&to={}&name=",
                seconds(Timestamp(from)),
                seconds(Timestamp(to))
            );
            encode(&name, &mut text);
            let encoded = PageQuery::parse(&text, HISTORY, sources.now)
                .and_then(|query| json(history, &query, sources.now));
            match encoded {
                Ok(json) => figures.push((format!("{file}.json"), json)),
                Err(sentence) => missing.push(format!("{file}.json: {sentence}")),
            }
            let Some(subject) = history.subject(scope, &name) else { continue };
            let values =
                shown.iter().filter_map(|&figure| Some((figure, subject.values(figure, 0.99, &grid)?)));
            let heading = if scope == Scope::Machine { "The machine".to_owned() } else { name };
            charts.push(Charts { heading, grid, values: values.collect() });
        }
        (charts, figures, missing)
    });
    let Some((charts, figures, missing)) = read else {
        incident.missing.push("figures: no history is kept; set history.for".to_owned());
        return (Vec::new(), Vec::new());
    };
    incident.missing.extend(missing);
    (charts, figures)
}

#[cfg(test)]
mod tests;
