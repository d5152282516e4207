//! The service: connects configuration, collection thread, HTTP server and signal handling, and defines the order of shutdown.

mod baselines;
mod cpu_usage;
mod cpus;
mod demand;
mod engine;
mod governor;
mod history;
mod incidents;
mod losses;
mod manager;
mod memory;
mod observer;
mod privileges;
mod reload;
mod series_limit;
mod stop;
mod web;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Semaphore, oneshot, watch};

use crate::annotate::{self, Annotator, Syntax};
use crate::anomaly::{Report, SharedReport};
use crate::budget::Part;
use crate::clock::Clock;
use crate::config::{self, LoadError};
use crate::container::{self, Directory};
use crate::deep::{self, Refusal, RefusalKind};
use crate::export::http::{
    BindError, Collected, Limits, Listeners, RequestCpu, Rules, Server, Source, Traffic, Unavailable, Wanted,
};
use crate::export::otlp::logs::Switch;
use crate::export::otlp::resource;
use crate::export::push::{Board, Feed, PushContext, Pusher};
use crate::files::{self, Files};
use crate::history::SharedHistory;
use crate::host::{self, Environment, Facts, Roots};
use crate::incident::{IncidentId, Store, Trigger};
use crate::lock;
use crate::metrics::{Build, SelfMetrics, Snapshot};
use crate::net::kubernetes::{KubernetesServer, in_cluster};
use crate::net::listen::{Listen, ListenAddress};
use crate::profile::{HeatMap, NoProfile, Profile, ProfileRecorder, RecordingId, Selection, TimeRange};
use crate::span::Spans;
use crate::status::Status;
use crate::sys::{InheritedSocket, Kernel, malloc_settings, scheduling};
use demand::Demand;
use engine::{Engine, Naming, Published, Pushes, Request};
use incidents::Incidents;
use manager::Manager;
use observer::Observer;
use privileges::Privileges;
use stop::Requested;

/// Maximum time that a scrape waits for the first collection, and a push for the next one.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of instructions on a page, which limits its size to some megabytes.
const MAX_INSTRUCTIONS: usize = 10_000;

/// Maximum number of concurrent calls for profiles. Each call can block on locks and files.
const MAX_PROFILE_CALLS: usize = 4;

/// Options of the service.
#[derive(Debug, Clone)]
pub struct Options {
    /// The configuration file; `None` = the built-in configuration.
    pub config: Option<PathBuf>,
    /// The web configuration file, whose keys take precedence over the section `web`; `None` = the section alone.
    pub web_config: Option<PathBuf>,
    /// Addresses to serve on, instead of those of the configuration. Empty = those of the configuration.
    pub listen: Vec<ListenAddress>,
    /// Roots of the host's file systems.
    pub roots: Roots,
    /// Whether the service gives up the capabilities that it does not need.
    pub sandbox: bool,
    /// Client that opens files of other processes.
    pub files: Files,
    /// The clock.
    pub clock: Clock,
    /// The environment variables of the process.
    pub environment: Environment,
    /// Forwards the log to OTLP log export.
    pub log: Switch,
}

/// Reason why the service did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(LoadError),
    /// The address cannot be bound.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The exporter's own metrics conflict, which is a bug.
    #[error("cannot register the exporter's own metrics, which is a bug: {0}")]
    Metrics(String),
    /// A thread, a runtime or a signal handler could not be created.
    #[error("{what}: {error}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The error of the kernel.
        error: io::Error,
    },
}

impl Failure {
    fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

/// Runs the service until SIGTERM or SIGINT. It serves on `sockets`, which the service manager has passed, or on its addresses if there are
/// none.
///
/// # Errors
/// If it cannot start. Once it runs, only the two signals end it.
pub fn serve<K>(options: Options, sockets: Vec<InheritedSocket>, kernel: K) -> Result<(), Failure>
where
    K: Kernel + Send + 'static,
    K::Event: Send,
{
    // Threads inherit the priority of the thread that starts them. The priority keeps scrapes fast on a busy machine.
    if let Err(errno) = scheduling::raise_priority() {
        tracing::debug!(%errno, "cannot raise the scheduling priority");
    }
    // Must be called before other threads start.
    malloc_settings::configure();
    let (config, warnings) = config::load_file(options.config.as_deref()).map_err(Failure::Config)?;
    let facts = Facts::read(&options.roots);
    config.require_memory(facts.online.len()).map_err(|error| Failure::Config(error.into()))?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let limits = Limits { connections: config.limits.connections, ..Limits::default() };
    let spans = Spans::default();
    let server =
        Server::new(listeners(&config.listen, options.listen.clone(), sockets)?, limits).tracing(&spans);
    // After the socket, which may need CAP_NET_BIND_SERVICE, and before other threads start.
    let privileges = if options.sandbox { Privileges::reduce(&config, &facts) } else { Privileges::All };
    let unrestricted =
        options.sandbox.then(|| privileges::restrict_service(&config, &options.files)).flatten();
    let context = (&options.roots, &options.environment, &options.clock);
    let web = web::start(config.web.clone(), options.web_config.clone(), context)?;

    let metrics_error = |error: prometheus::Error| Failure::Metrics(error.to_string());
    let metrics = Arc::new(SelfMetrics::new(&build(), options.clock.now()).map_err(metrics_error)?);
    let traffic = Traffic::new(metrics.registry()).map_err(metrics_error)?;
    let board = Arc::new(Board::new(metrics.registry(), options.clock.clone()).map_err(metrics_error)?);

    let (settings, pushed) = watch::channel(None);
    let pushes = Pushes { settings, board: Arc::clone(&board) };
    let (settings, wanted) = watch::channel(Arc::new(config.containers.clone()));
    let naming = Naming { settings, directory: Arc::new(Directory::new(options.clock.clone())) };
    let incident_metrics = incidents::Metrics::new(metrics.registry()).map_err(metrics_error)?;
    let metadata_context = container::MetadataContext {
        roots: options.roots.clone(),
        environment: options.environment.clone(),
        clock: options.clock.clone(),
        metrics: container::Metrics::new(metrics.registry()).map_err(metrics_error)?,
    };
    container::start(Arc::clone(&naming.directory), wanted, metadata_context)
        .map_err(Failure::system("cannot start the container metadata thread"))?;
    let files = options.files.clone();
    let files_metrics = files::Metrics::new(metrics.registry()).map_err(metrics_error)?;
    let engine = Engine::new(kernel, &options, config, metrics, files_metrics, pushes, naming)
        .map_err(|e| Failure::Metrics(e.to_string()))?
        .serving(traffic.cpu())
        .restricted(privileges, unrestricted)
        .tracing(&spans)
        .governing(web.reader);
    let (profiles, memory) = (engine.profiles(), engine.memory_of(Part::Queues));
    let (history_memory, anomalies) = (engine.memory_of(Part::History), engine.anomalies());
    let (evidence_memory, recent_runs) = (engine.memory_of(Part::Evidence), engine.recent_runs());
    let (incidents, triggers) = incidents::channel(incident_metrics);
    let server = server.within(memory.clone());
    let (requests, received) = channel();
    let (publisher, published) = watch::channel(Arc::new(engine.unpublished()));
    let (running, ended) = channel::<Infallible>();
    thread::Builder::new()
        .name("collector".into())
        .spawn(move || {
            engine.run(&received, &publisher);
            drop(running);
        })
        .map_err(Failure::system("cannot start the collection thread"))?;

    let observer = Observer::new(recent_runs.clone(), options.roots.clone());
    let (history, recorded) = history::start(
        published.clone(),
        history_memory,
        anomalies.clone(),
        incidents.clone(),
        observer,
        host::cpu_model(&options.roots),
    )
    .map_err(Failure::system("cannot start the history thread"))?;
    let incident_context = incidents::Context {
        published: published.clone(),
        history: history.clone(),
        profiles: Arc::clone(&profiles),
        recent_runs,
        memory: evidence_memory,
        clock: options.clock.clone(),
        node: resource::node_name(&options.roots),
        kubernetes: in_cluster(&options.environment).map(|url| KubernetesServer::new(&url, None, None)),
    };
    incidents::start(triggers, incident_context)
        .map_err(Failure::system("cannot start the thread of incidents"))?;
    memory::start_trimming();
    cpus::start(options.roots.clone(), requests.clone());
    let service = Service::new(
        requests.clone(),
        published,
        (profiles, history, anomalies, incidents),
        web.rules,
        options.files.clone(),
        traffic.cpu().clone(),
        options.clock.clone(),
    );
    let push_context = PushContext {
        resource: resource::detect(&options.roots, &BTreeMap::new()),
        board,
        log: options.log,
        spans,
        clock: options.clock.clone(),
        began: options.clock.now(),
        memory,
    };
    // All other threads are started: those from here on only exchange data with the network.
    if options.sandbox {
        privileges::restrict_network(server.listeners().addresses().iter().map(|(address, _)| address));
    }
    let pusher = Pusher::start(service.clone(), pushed, push_context)
        .map_err(Failure::system("cannot start the push thread"))?;
    let manager = Manager::of(&options.environment, std::process::id());
    let clock = options.clock;
    let outcome =
        on_runtime(serve_until_stopped(server, service, traffic, (&clock, manager), (&requests, &pusher)));
    let stop = outcome.as_ref().ok().copied().flatten();
    let left = |limit| stop.map_or(limit, |stop: Requested| stop.left_of(limit, &clock));
    // A last collection may have to be pushed. Therefore collections continue while the push thread stops.
    pusher.stop(left(stop::PUSHED));
    // The collection thread may have ended by a panic, which is already in the log.
    drop(requests.send(Request::Stop));
    if ended.recv_timeout(left(stop::COLLECTED)) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("stopped during an unfinished collection");
    }
    if recorded.recv_timeout(left(stop::RECORDED)) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("what was learned of anomalies was not written in time");
    }
    files.stop();
    outcome.map(drop)
}

/// Returns the sockets that the service manager has passed, or those of the addresses.
fn listeners(
    configured: &Listen,
    addresses: Vec<ListenAddress>,
    passed: Vec<InheritedSocket>,
) -> Result<Listeners, Failure> {
    if !passed.is_empty() {
        tracing::info!(
            sockets = passed.len(),
            "the service manager has passed sockets: `listen` and `admin` are not used"
        );
        return Listeners::inherited(passed)
            .map_err(Failure::system("cannot use a socket that the service manager has passed"));
    }
    let all = if addresses.is_empty() { configured.all.clone() } else { addresses };
    Ok(Listeners::bind(&Listen { all, ..configured.clone() })?)
}

/// Runs `work` on a runtime of this thread. Does not wait for tasks on blocking threads.
fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .thread_name("http-work")
        .build()
        .map_err(Failure::system("cannot start the HTTP server"))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// Serves until a stop signal, and returns the signal.
async fn serve_until_stopped(
    server: Server,
    service: Service,
    traffic: Traffic,
    (clock, manager): (&Clock, Manager),
    (requests, pusher): (&Sender<Request>, &Pusher),
) -> Result<Option<Requested>, Failure> {
    let cannot_handle = Failure::system("cannot handle signals");
    let mut stopped = stop::on_signals(clock.clone()).map_err(&cannot_handle)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(&cannot_handle)?;
    let reload_on_hangup = async {
        while hangup.recv().await.is_some() {
            // The outcome is in the log and on the status page.
            let (answer, outcome) = oneshot::channel();
            manager.reloading(clock);
            drop(requests.send(Request::Reload(answer)));
            outcome.await.ok();
            manager.ready();
        }
    };
    let mut user_defined = signal(SignalKind::user_defined2()).map_err(&cannot_handle)?;
    let incidents = service.incidents.clone();
    let record_on_signal = async {
        while user_defined.recv().await.is_some() {
            if let Err(refused) = incidents.ask(Trigger::Signal, None).await {
                tracing::warn!("SIGUSR2 began no incident: {refused}");
            }
        }
    };
    let tell_of_life = manager.follow(service.published.clone(), clock.clone());
    let mut requested = None;
    let stop = async {
        let signaled = async {
            match stopped.wait_for(Option::is_some).await {
                Ok(stop) => *stop,
                // The thread ends with the process.
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            stop = signaled => requested = stop,
            () = reload_on_hangup => {}
            () = record_on_signal => {}
            () = tell_of_life => {}
        }
        pusher.ask_to_stop();
        if let Some(Requested { signal, .. }) = requested {
            tracing::info!("stopping: received {signal}");
        }
        manager.stopping();
    };
    lock::never_blocks("HTTP server");
    for (address, is_admin) in server.listeners().addresses() {
        let audience = if is_admin { "; its clients have the rights of clients on this machine" } else { "" };
        match address {
            ListenAddress::Tcp(address) => {
                let scheme = if service.rules().is_tls() { "https" } else { "http" };
                tracing::info!("serving on {scheme}://{address}/{audience}");
            }
            ListenAddress::Unix(_) => tracing::info!("serving on {address}"),
        }
    }
    server.run(service, traffic, clock.clone(), stop).await.map_err(Failure::system("cannot serve"))?;
    Ok(requested)
}

/// The running build.
fn build() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").into(),
        revision: option_env!("GIT_COMMIT").unwrap_or("").into(),
    }
}

/// Access to the collection thread for the HTTP server and the push thread.
#[derive(Clone)]
struct Service {
    requests: Sender<Request>,
    published: watch::Receiver<Arc<Published>>,
    demand: Demand,
    profiles: Arc<dyn ProfileRecorder>,
    history: SharedHistory,
    anomalies: SharedReport,
    incidents: Incidents,
    rules: watch::Receiver<Arc<Rules>>,
    files: Files,
    /// Limits concurrent calls for profiles.
    profile_calls: Arc<Semaphore>,
    cpu: RequestCpu,
    clock: Clock,
}

/// A recording of a profile. It is discarded if the client disconnects.
struct PendingRecording {
    profiles: Arc<dyn ProfileRecorder>,
    recording: Option<RecordingId>,
}

impl Drop for PendingRecording {
    fn drop(&mut self) {
        if let Some(recording) = self.recording.take() {
            // Discarding is cheap, but the profiler can hold the lock for a moment.
            let profiles = Arc::clone(&self.profiles);
            drop(tokio::task::spawn_blocking(move || profiles.abandon(recording)));
        }
    }
}

impl Service {
    fn new(
        requests: Sender<Request>,
        published: watch::Receiver<Arc<Published>>,
        (profiles, history, anomalies, incidents): (
            Arc<dyn ProfileRecorder>,
            SharedHistory,
            SharedReport,
            Incidents,
        ),
        rules: watch::Receiver<Arc<Rules>>,
        files: Files,
        cpu: RequestCpu,
        clock: Clock,
    ) -> Self {
        let (demand, profile_calls) = (Demand::default(), Arc::new(Semaphore::new(MAX_PROFILE_CALLS)));
        Self {
            requests,
            published,
            demand,
            profiles,
            history,
            anomalies,
            incidents,
            rules,
            files,
            profile_calls,
            cpu,
            clock,
        }
    }

    /// Returns the last collection if it is fresh enough, otherwise the next one. Returns `None` if that takes longer than `patience`.
    async fn fresh(&self, patience: Duration) -> Result<Option<Arc<Published>>, Unavailable> {
        let mut published = self.published.clone();
        let since = {
            let last = published.borrow();
            self.clock.monotonic().before(last.freshness)
        };
        let fresh = |published: &Arc<Published>| published.snapshot.is_some() && published.at >= since;
        if !fresh(&published.borrow()) && self.demand.ask(since) {
            self.requests.send(Request::Collect(self.demand.clone())).map_err(|_| Self::gone())?;
        }
        match tokio::time::timeout(patience, published.wait_for(fresh)).await {
            Ok(Ok(published)) => Ok(Some(Arc::clone(&published))),
            Ok(Err(_)) => Err(Self::gone()),
            Err(_) => Ok(None),
        }
    }

    /// Returns the last collection.
    fn last(&self) -> Arc<Published> {
        Arc::clone(&self.published.borrow())
    }

    /// Runs a potentially long operation on a blocking thread. The number of these threads is bounded, even if clients disconnect.
    async fn run_blocking<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn ProfileRecorder) -> Result<T, NoProfile> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let (profiles, profile_calls, cpu) =
            (Arc::clone(&self.profiles), Arc::clone(&self.profile_calls), self.cpu.clone());
        let permit = profile_calls.acquire_owned().await.map_err(|_| Self::gone())?;
        let ask = move || {
            let _permit = permit;
            cpu.count(|| ask(&*profiles))
        };
        match tokio::task::spawn_blocking(ask).await {
            Ok(answer) => answer.map_err(|error| Unavailable(error.to_string())),
            Err(_) => Err(Unavailable(
                "symbolization panicked, which is a bug in perf-exporter; see the log for the location"
                    .into(),
            )),
        }
    }

    fn gone() -> Unavailable {
        Unavailable("the collection thread has ended; see the log for the reason".into())
    }
}

impl Feed for Service {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        let published = self.fresh(COLLECTION_TIMEOUT).await?;
        published.and_then(|published| published.selected()).ok_or_else(|| {
            Unavailable("no collection completed within 10 s; the machine may be overloaded".into())
        })
    }

    fn profiles(&self) -> Arc<dyn ProfileRecorder> {
        Arc::clone(&self.profiles)
    }
}

impl Source for Service {
    async fn snapshot(&self, patience: Duration) -> Result<Collected, Unavailable> {
        let patience = if self.last().snapshot.is_some() { patience } else { COLLECTION_TIMEOUT };
        let published = self.fresh(patience).await?.unwrap_or_else(|| self.last());
        let age = self.clock.monotonic().since(published.at);
        let snapshot = published
            .selected()
            .ok_or_else(|| Unavailable("the first collection has not completed within 10 s".into()))?;
        Ok(Collected { snapshot, metrics: Arc::clone(&published.metrics), age })
    }

    fn status(&self) -> Arc<Status> {
        // The status was created at the last collection. Its current time must be the time of the request, because it shows the age of the
        // collection.
        Arc::new(Status { now: self.clock.now(), ..Status::clone(&self.last().status) })
    }

    fn ready(&self) -> Result<(), Unavailable> {
        match self.last().snapshot {
            Some(_) => Ok(()),
            None => Err(Unavailable("the first collection has not completed yet".into())),
        }
    }

    fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.borrow())
    }

    fn follow_rules(&self) -> watch::Receiver<Arc<Rules>> {
        self.rules.clone()
    }

    fn history(&self) -> SharedHistory {
        self.history.clone()
    }

    fn anomalies(&self) -> Arc<Report> {
        self.anomalies.get()
    }

    fn incidents(&self) -> Option<Store> {
        self.last().incidents.directory.as_ref().map(Store::at)
    }

    async fn trigger(&self, trigger: Trigger, cgroup: Option<String>) -> Result<IncidentId, String> {
        self.incidents.ask(trigger, cgroup).await.map_err(|refused| refused.to_string())
    }

    async fn deep(&self, wanted: deep::Wanted) -> deep::Outcome {
        let (answer, outcome) = oneshot::channel();
        let gone = || Refusal::new(RefusalKind::Stopping, Self::gone().0, "start the exporter again");
        self.requests.send(Request::Deep(wanted, answer)).map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }

    fn latest(&self) -> Option<Arc<Snapshot>> {
        self.last().snapshot.clone()
    }

    async fn reload(&self) -> Result<String, String> {
        let (answer, outcome) = oneshot::channel();
        let gone = || Self::gone().0;
        self.requests.send(Request::Reload(answer)).map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }

    fn profiles(&self) -> Vec<Arc<str>> {
        self.last().profiles.clone()
    }

    async fn profile(&self, wanted: Wanted) -> Result<Arc<Profile>, Unavailable> {
        let Wanted { kind, seconds, range, selection } = wanted;
        if let Some(range) = range {
            let past = move |profiles: &dyn ProfileRecorder| profiles.range(&kind, range, &selection);
            return Ok(Arc::new(self.run_blocking(past).await?));
        }
        let Some(seconds) = seconds else {
            let last = move |profiles: &dyn ProfileRecorder| profiles.last(&kind, Duration::MAX, &selection);
            return Ok(Arc::new(self.run_blocking(last).await?));
        };
        let by_cpu = selection.by_cpu;
        let recording = self.run_blocking(move |profiles| profiles.begin(&kind, by_cpu)).await?;
        let mut under_way =
            PendingRecording { profiles: Arc::clone(&self.profiles), recording: Some(recording) };
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        under_way.recording = None;
        Ok(Arc::new(self.run_blocking(move |profiles| profiles.end(recording, &selection)).await?))
    }

    fn annotator(&self, syntax: Syntax) -> Annotator {
        let options = annotate::Options {
            syntax,
            debug_info: self.last().debug_info,
            in_processes: true,
            instructions: MAX_INSTRUCTIONS,
            ..annotate::Options::default()
        };
        Annotator::new(&self.files, options)
    }

    async fn heat(
        &self,
        kind: Arc<str>,
        range: TimeRange,
        rows: u32,
        selection: Selection,
    ) -> Result<HeatMap, Unavailable> {
        self.run_blocking(move |profiles| profiles.heat(&kind, range, rows, &selection)).await
    }
}

#[cfg(test)]
mod tests;
