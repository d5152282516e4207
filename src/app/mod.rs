//! The service, wired up: configuration, collection thread, HTTP server, signals; and the order in which they stop.

mod engine;
mod governor;
mod losses;
mod manager;
mod memory;
mod status;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};

use crate::clock::Clock;
use crate::config::{self, LoadError};
use crate::container::{self, Directory};
use crate::export::http::{BindError, Limits, Server, Source, Traffic, Unavailable, Wanted};
use crate::export::otlp::resource;
use crate::export::push::logs::Switch;
use crate::export::push::{Board, Feed, Pusher, Surroundings};
use crate::export::status::Status;
use crate::host::{Environment, Facts, Roots};
use crate::metrics::{Build, SelfMetrics, Snapshot};
use crate::profile::{Ask, Asked, NoProfile, Profile};
use crate::sys::{Kernel, allocator};
use engine::{Engine, Naming, Published, Pushes, Request};
use manager::Manager;

/// How long a request waits for the collection thread before it says that there is nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a collection under way is waited for at the end. A file of `/proc` may hold up its reader for as long as
/// the process that it describes is stuck in the kernel.
const LAST_COLLECTION: Duration = Duration::from_secs(2);

/// How the service is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// The configuration file; `None` = the built-in configuration.
    pub config: Option<PathBuf>,
    /// Where to serve, whatever the configuration says.
    pub listen: Option<SocketAddr>,
    /// Where the host's file systems are.
    pub roots: Roots,
    /// The time.
    pub clock: Clock,
    /// The variables that the process was started with.
    pub environment: Environment,
    /// Where the log passes to be pushed.
    pub log: Switch,
}

/// Why the service did not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(LoadError),
    /// Nobody can connect.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The program's own metrics clash: a bug.
    #[error("the exporter's own metrics: {0}")]
    Metrics(String),
    /// A thread, a runtime or a signal handler could not be made.
    #[error("{what}: {error}")]
    System {
        /// What could not be made.
        what: &'static str,
        /// What the kernel said.
        error: io::Error,
    },
}

impl Failure {
    fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

/// Runs the service until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start. Once it runs, nothing but the two signals ends it.
pub fn serve<K>(options: Options, kernel: K) -> Result<(), Failure>
where
    K: Kernel + Send + 'static,
    K::Event: Send,
{
    // Before there are other threads.
    allocator::configure();
    let (config, warnings) = config::load_file(options.config.as_deref()).map_err(Failure::Config)?;
    config.require_memory(Facts::read(&options.roots).online.len()).map_err(Failure::Config)?;
    warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    let limits = Limits { connections: config.limits.connections, ..Limits::default() };
    let server = Server::bind(options.listen.unwrap_or(config.listen), limits)?;

    let metrics_error = |error: prometheus::Error| Failure::Metrics(error.to_string());
    let metrics = Arc::new(SelfMetrics::new(&build(), options.clock.now()).map_err(metrics_error)?);
    let traffic = Traffic::new(metrics.registry()).map_err(metrics_error)?;
    let board = Arc::new(Board::new(metrics.registry(), options.clock.clone()).map_err(metrics_error)?);

    let (settings, pushed) = watch::channel(None);
    let pushes = Pushes { settings, board: Arc::clone(&board) };
    let (settings, wanted) = watch::channel(Arc::new(config.containers.clone()));
    let naming = Naming { settings, directory: Arc::new(Directory::new(options.clock.clone())) };
    let asked = container::Surroundings {
        roots: options.roots.clone(),
        environment: options.environment.clone(),
        clock: options.clock.clone(),
        metrics: container::Metrics::new(metrics.registry()).map_err(metrics_error)?,
    };
    container::start(Arc::clone(&naming.directory), wanted, asked)
        .map_err(Failure::system("cannot start the thread that asks for the names of containers"))?;
    let engine = Engine::new(kernel, &options, config, metrics, pushes, naming)
        .map_err(|e| Failure::Metrics(e.to_string()))?;
    let (profiles, memory) = (engine.profiles(), engine.memory_of_queues());
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

    memory::start_trimming();
    let service = Service { requests: requests.clone(), published, profiles, clock: options.clock.clone() };
    let surroundings = Surroundings {
        resource: resource::detect(&options.roots, &BTreeMap::new()),
        board,
        log: options.log,
        clock: options.clock.clone(),
        began: options.clock.now(),
        memory,
    };
    let pusher = Pusher::start(service.clone(), pushed, surroundings)
        .map_err(Failure::system("cannot start the thread that pushes"))?;
    let manager = Manager::of(&options.environment, std::process::id());
    let outcome = block_on(server, service, traffic, (options.clock, manager), &requests);
    // There may be a last collection to be pushed, so collections go on for as long.
    pusher.stop();
    // The thread may have ended by a panic, which it has printed; either way there is nothing left to ask it for.
    drop(requests.send(Request::Stop));
    if ended.recv_timeout(LAST_COLLECTION) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("stopped during a collection that does not end");
    }
    outcome
}

/// Serves on this thread until a signal says stop.
fn block_on(
    server: Server,
    service: Service,
    traffic: Traffic,
    (clock, manager): (Clock, Manager),
    requests: &Sender<Request>,
) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::system("cannot start the HTTP server"))?;
    runtime.block_on(async {
        let listen = |kind| signal(kind).map_err(Failure::system("cannot handle signals"));
        let (mut terminate, mut interrupt) =
            (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        let mut hangup = listen(SignalKind::hangup())?;
        let reload_on_hangup = async {
            while hangup.recv().await.is_some() {
                // The outcome is in the log and on the status page.
                let (answer, outcome) = oneshot::channel();
                manager.reloading(&clock);
                drop(requests.send(Request::Reload(answer)));
                outcome.await.ok();
                manager.ready();
            }
        };
        let tell_of_life = manager.follow(service.published.clone(), clock.clone());
        let stop = async {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("stopping on SIGTERM"),
                _ = interrupt.recv() => tracing::info!("stopping on SIGINT"),
                () = reload_on_hangup => {}
                () = tell_of_life => {}
            }
            manager.stopping();
        };
        if let Ok(address) = server.address() {
            tracing::info!("serving on http://{address}/");
        }
        server.run(service, traffic, clock.clone(), stop).await.map_err(Failure::system("cannot serve"))
    })
}

/// The running build.
fn build() -> Build {
    Build {
        version: env!("CARGO_PKG_VERSION").into(),
        revision: option_env!("GIT_COMMIT").unwrap_or("").into(),
    }
}

/// What the HTTP server and the thread that pushes see of the collection thread.
#[derive(Clone)]
struct Service {
    requests: Sender<Request>,
    published: watch::Receiver<Arc<Published>>,
    profiles: Arc<dyn Ask>,
    clock: Clock,
}

/// A profile that is under way: it ends for nobody if whoever asked goes away.
struct UnderWay {
    profiles: Arc<dyn Ask>,
    asked: Option<Asked>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(asked) = self.asked.take() {
            // Only a number is forgotten, but the reader may hold what it is kept in for a moment.
            let profiles = Arc::clone(&self.profiles);
            drop(tokio::task::spawn_blocking(move || profiles.abandon(asked)));
        }
    }
}

impl Service {
    /// Does something that may take long where nobody waits for the thread.
    async fn aside<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&dyn Ask) -> Result<T, NoProfile> + Send + 'static,
    ) -> Result<T, Unavailable> {
        let profiles = Arc::clone(&self.profiles);
        match tokio::task::spawn_blocking(move || ask(&*profiles)).await {
            Ok(answer) => answer.map_err(|error| Unavailable(error.to_string())),
            Err(_) => Err(Unavailable("looking up names has panicked: a bug; the log says where".into())),
        }
    }

    fn gone() -> Unavailable {
        Unavailable("the collection thread has ended; its last words are in the log".into())
    }
}

impl Feed for Service {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        Source::snapshot(self).await
    }

    fn profiles(&self) -> Arc<dyn Ask> {
        Arc::clone(&self.profiles)
    }
}

impl Source for Service {
    async fn snapshot(&self) -> Result<Arc<Snapshot>, Unavailable> {
        let mut published = self.published.clone();
        let since = {
            let last = published.borrow();
            self.clock.monotonic().before(last.freshness)
        };
        let fresh = |published: &Arc<Published>| published.snapshot.is_some() && published.at >= since;
        if !fresh(&published.borrow()) {
            self.requests.send(Request::Collect(since)).map_err(|_| Self::gone())?;
        }
        let waited = tokio::time::timeout(PATIENCE, published.wait_for(fresh)).await;
        match waited {
            Ok(Ok(published)) => published.snapshot.clone().ok_or_else(Self::gone),
            Ok(Err(_)) => Err(Self::gone()),
            Err(_) => Err(Unavailable("no collection ended in 10 s; is the machine overloaded?".into())),
        }
    }

    fn status(&self) -> Arc<Status> {
        // Made at the last collection, and read now: how long ago that was is part of what it says.
        Arc::new(Status { now: self.clock.now(), ..Status::clone(&self.published.borrow().status) })
    }

    fn ready(&self) -> Result<(), Unavailable> {
        match self.published.borrow().snapshot {
            Some(_) => Ok(()),
            None => Err(Unavailable("the first collection is under way".into())),
        }
    }

    async fn reload(&self) -> Result<String, String> {
        let (answer, outcome) = oneshot::channel();
        let gone = || Self::gone().0;
        self.requests.send(Request::Reload(answer)).map_err(|_| gone())?;
        outcome.await.map_err(|_| gone())?
    }

    fn profiles(&self) -> Vec<Arc<str>> {
        self.profiles.entries()
    }

    async fn profile(&self, wanted: Wanted) -> Result<Arc<Profile>, Unavailable> {
        let Wanted { kind, seconds, selection } = wanted;
        let Some(seconds) = seconds else {
            let last = move |profiles: &dyn Ask| profiles.last(&kind, Duration::MAX, &selection);
            return Ok(Arc::new(self.aside(last).await?));
        };
        let asked = self.aside(move |profiles| profiles.begin(&kind)).await?;
        let mut under_way = UnderWay { profiles: Arc::clone(&self.profiles), asked: Some(asked) };
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
        under_way.asked = None;
        Ok(Arc::new(self.aside(move |profiles| profiles.end(asked, &selection)).await?))
    }
}
