//! Thread that requests container metadata.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use prometheus::{IntCounterVec, IntGauge, Opts, Registry};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::directory::{Directory, SourceState};
use super::identity::Chosen;
use super::source::{Failure, FailureKind, Kind, Listing, MetadataSource, find};
use crate::clock::Clock;
use crate::config::containers::Containers;
use crate::host::{Environment, Roots};
use crate::metrics::registered;

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Minimum time between two rounds of requests, however many containers start and stop.
const GAP: Duration = Duration::from_secs(1);

/// Maximum time between two rounds of requests. Labels of pods change, and sockets appear.
const REFRESH: Duration = Duration::from_secs(60);

/// Dependencies of the thread.
#[derive(Debug)]
pub struct MetadataContext {
    /// Root directories for sockets.
    pub roots: Roots,
    /// Environment variables, which contain the cluster settings of a pod.
    pub environment: Environment,
    /// Clock.
    pub clock: Clock,
    /// Metrics of requests.
    pub metrics: Metrics,
}

/// Self metrics of container metadata.
#[derive(Debug)]
pub struct Metrics {
    lookups: IntCounterVec,
    known: IntGauge,
    unknown: IntGauge,
}

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// A metric with the same name is already registered.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let lookups = Opts::new(
            "perf_exporter_container_lookups_total",
            "Requests to container metadata sources, by result: ok, failed or late.",
        );
        let known = IntGauge::new("perf_exporter_containers", "Number of containers with known metadata.");
        let unknown = IntGauge::new(
            "perf_exporter_unknown_containers",
            "Number of measured containers without metadata from any source.",
        );
        Ok(Self {
            lookups: registered(registry, IntCounterVec::new(lookups, &["source", "result"]))?,
            known: registered(registry, known)?,
            unknown: registered(registry, unknown)?,
        })
    }

    fn note(&self, kind: Kind, answer: &Result<Listing, Failure>) {
        let result = match answer {
            Ok(_) => "ok",
            Err(Failure { kind: FailureKind::Late, .. }) => "late",
            Err(_) => "failed",
        };
        self.lookups.with_label_values(&[kind.as_str(), result]).inc();
    }
}

/// Requests metadata once from each source, with `ask`. Returns the metadata with the states of the sources, and the problems. Takes up to
/// five seconds per source.
pub fn ask_once(
    wanted: &Containers,
    roots: &Roots,
    environment: &Environment,
    clock: &Clock,
    ask: bool,
) -> (Directory, Vec<String>) {
    let (found, mut problems) = find(wanted, roots, environment);
    let directory = Directory::new(clock.clone());
    directory.set_sources(found.iter().map(SourceState::of).collect(), false);
    let runtime = ask.then(|| tokio::runtime::Builder::new_current_thread().enable_all().build()).transpose();
    let runtime = runtime.unwrap_or_else(|error| {
        problems.push(format!("container metadata cannot be requested: {error}"));
        None
    });
    let chosen = Chosen::of(wanted);
    if let Some(runtime) = runtime {
        for (place, source) in found.iter().enumerate() {
            directory.enter(place, runtime.block_on(request(source, &chosen)));
        }
        // Does not wait for a pending name resolution.
        runtime.shutdown_background();
    }
    (directory, problems)
}

async fn request(source: &MetadataSource, chosen: &Chosen) -> Result<Listing, Failure> {
    let late = || Failure { kind: FailureKind::Late, why: format!("no response within {REQUEST_TIMEOUT:?}") };
    let answer = timeout(REQUEST_TIMEOUT, source.ask(chosen)).await.unwrap_or_else(|_| Err(late()));
    match answer {
        // Docker's containerd has a socket but may not support CRI, and a removed runtime may have left its socket file.
        Err(Failure { kind: FailureKind::NotListening, .. }) if source.guessed => Ok(Listing::default()),
        answer => answer,
    }
}

/// Starts the thread `containers`, which requests metadata from the sources of the current settings. It exits when the sender of the
/// settings is dropped.
///
/// # Errors
/// The thread or the async runtime cannot be started.
pub fn start(
    directory: Arc<Directory>,
    settings: watch::Receiver<Arc<Containers>>,
    metadata_context: MetadataContext,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let requester = Requester { directory, metadata_context, found: Vec::new(), reported: Vec::new() };
    thread::Builder::new()
        .name("containers".into())
        .spawn(move || runtime.block_on(requester.run(settings)))?;
    Ok(())
}

struct Requester {
    directory: Arc<Directory>,
    metadata_context: MetadataContext,
    found: Vec<MetadataSource>,
    /// Configuration problems that have already been logged.
    reported: Vec<String>,
}

impl Requester {
    async fn run(mut self, mut settings: watch::Receiver<Arc<Containers>>) {
        let mut wanted = Arc::clone(&settings.borrow_and_update());
        self.find(&wanted, false);
        loop {
            let began = Instant::now();
            self.ask(&Arc::new(Chosen::of(&wanted))).await;
            let due = began + self.directory.due().unwrap_or(REFRESH).clamp(GAP, REFRESH);
            tokio::select! {
                () = sleep_until(due) => {}
                () = async { sleep_until(began + GAP).await; self.directory.wanted().await } => {}
                changed = settings.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let new = Arc::clone(&settings.borrow_and_update());
                    let forget = new != wanted;
                    wanted = new;
                    self.find(&wanted, forget);
                    continue;
                }
            }
            self.find(&wanted, false);
        }
    }

    /// Determines the available sources.
    fn find(&mut self, wanted: &Containers, forget: bool) {
        let MetadataContext { roots, environment, .. } = &self.metadata_context;
        let (found, problems) = find(wanted, roots, environment);
        for problem in &problems {
            if !self.reported.contains(problem) {
                tracing::warn!("{problem}");
            }
        }
        self.reported = problems;
        if found == self.found && !forget {
            return;
        }
        for source in found.iter().filter(|source| !self.found.contains(source)) {
            tracing::info!(source = %source.kind(), place = %source.place(), "container metadata source found");
        }
        let states = found.iter().map(SourceState::of);
        self.directory.set_sources(states.collect(), forget);
        self.found = found;
    }

    /// Requests metadata from all sources concurrently, and stores each response when it arrives.
    async fn ask(&mut self, chosen: &Arc<Chosen>) {
        let asked = self.metadata_context.clock.monotonic();
        let before = self.directory.sources();
        let mut questions = JoinSet::new();
        for (place, source) in self.found.iter().cloned().enumerate() {
            let chosen = Arc::clone(chosen);
            questions.spawn(async move { (place, request(&source, &chosen).await) });
        }
        while let Some(answered) = questions.join_next().await {
            // A panicking task has logged its message.
            let Ok((place, answer)) = answered else { continue };
            let (Some(source), Some(before)) = (self.found.get(place), before.get(place)) else { continue };
            self.metadata_context.metrics.note(source.kind(), &answer);
            log_state(source, &answer, before.failure.as_ref());
            self.directory.enter(place, answer);
        }
        self.directory.end_round(asked);
        let (known, _, unknown) = self.directory.size();
        self.metadata_context.metrics.known.set(known as i64);
        self.metadata_context.metrics.unknown.set(unknown as i64);
    }
}

/// Logs a changed state of a source.
fn log_state(source: &MetadataSource, answer: &Result<Listing, Failure>, before: Option<&Failure>) {
    match (answer, before) {
        (Err(failure), before) if before != Some(failure) => tracing::warn!(
            source = %source.kind(),
            place = %source.place(),
            "container metadata request failed: {}",
            failure.why
        ),
        (Ok(listing), Some(_)) => {
            let containers = listing.containers.len();
            tracing::info!(source = %source.kind(), containers, "container metadata source recovered");
        }
        _ => {}
    }
}
