//! The thread that pushes, and its life.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::timeout;

use super::client::Client;
use super::logs::Switch;
use super::pump::{self, Outlet};
use super::queue::Queue;
use super::retry::Backoff;
use super::sender::Sender;
use super::settings::Settings;
use super::state::Board;
use crate::budget::Share;
use crate::clock::{Clock, Timestamp};
use crate::config::push::Signal;
use crate::export::http::Unavailable;
use crate::export::otlp::attribute::{Attribute, Resource};
use crate::export::otlp::metrics::{Encoder, Options};
use crate::export::otlp::profiles;
use crate::metrics::Snapshot;
use crate::profile::Ask;

/// How long what waits may take when the exporter stops, or its configuration changes.
const FLUSH: Duration = Duration::from_secs(5);

/// The largest request, in bytes before compression: less than the 4 MiB that gRPC's receivers take unless they are told
/// otherwise.
const REQUEST: usize = 4_000_000;
/// The same where there is little memory for queues.
const SMALLEST: usize = 256 << 10;

/// What the resource of profiles does not have: the stacks are of other services, which say themselves what they are called, or
/// are given a name by a Collector, unless there is one.
const OF_THE_EXPORTER: [&str; 7] = [
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
];

/// What is pushed.
pub trait Feed: Send + Sync + 'static {
    /// The newest collection that is fresh enough, else a new one.
    fn snapshot(&self) -> impl Future<Output = Result<Arc<Snapshot>, Unavailable>> + Send;

    /// Whom to ask for profiles.
    fn profiles(&self) -> Arc<dyn Ask>;
}

/// The thread. It pushes nothing until there are settings that say so.
#[derive(Debug)]
pub struct Pusher {
    stop: watch::Sender<bool>,
    ended: Receiver<()>,
}

/// What the thread needs of the rest of the program.
#[derive(Debug)]
pub struct Surroundings {
    /// Who sends.
    pub resource: Resource,
    /// Where it is told what became of pushes.
    pub board: Arc<Board>,
    /// Where the log comes from.
    pub log: Switch,
    /// The time.
    pub clock: Clock,
    /// When the process began.
    pub began: Timestamp,
    /// The memory for all queues.
    pub memory: Share,
}

impl Pusher {
    /// Starts the thread. Whenever the settings are others it pushes by those.
    ///
    /// # Errors
    /// The kernel's refusal of a thread or of what a runtime needs.
    pub fn start<F: Feed>(
        feed: F,
        settings: watch::Receiver<Option<Arc<Settings>>>,
        surroundings: Surroundings,
    ) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = watch::channel(false);
        let (running, ended) = channel();
        thread::Builder::new().name("otlp".into()).spawn(move || {
            runtime.block_on(run(Arc::new(feed), settings, surroundings, stopped));
            // A name that is being looked up is not waited for.
            runtime.shutdown_background();
            drop(running);
        })?;
        Ok(Self { stop, ended })
    }

    /// Pushes what there is and what waits, for at most some seconds, and ends the thread.
    pub fn stop(self) {
        self.stop.send_replace(true);
        // Twice, for it may be about to go on by other settings.
        if self.ended.recv_timeout(FLUSH * 2) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!("stopped while something was being pushed");
        }
    }
}

async fn run<F: Feed>(
    feed: Arc<F>,
    mut settings: watch::Receiver<Option<Arc<Settings>>>,
    surroundings: Surroundings,
    mut stop: watch::Receiver<bool>,
) {
    let mut encoders = Encoders::default();
    // Until somebody has told the settings nobody knows whether the log is pushed, and it is kept.
    let mut told = false;
    loop {
        let current = settings.borrow_and_update().clone();
        let running =
            current.as_deref().map(|settings| Running::start(&feed, settings, &surroundings, &mut encoders));
        if told && running.as_ref().is_none_or(|running| !running.logs) {
            surroundings.log.turn_off();
        }
        let stopping = loop {
            let changed = tokio::select! {
                changed = settings.changed() => changed.is_ok(),
                _ = stop.wait_for(|stop| *stop) => false,
            };
            if !changed {
                break true;
            }
            told = true;
            // What says the same goes on.
            if current.is_none() || *settings.borrow() != current {
                break false;
            }
        };
        if let Some(running) = running {
            running.stop(&surroundings).await;
        }
        if stopping {
            return;
        }
    }
}

/// The encoder of metrics. It remembers what was pushed before, so it outlives settings.
#[derive(Debug, Default)]
struct Encoders(Option<Arc<Mutex<Encoder>>>);

impl Encoders {
    fn of(&mut self, options: Options) -> Arc<Mutex<Encoder>> {
        let encoder = self.0.get_or_insert_with(|| Arc::new(Mutex::new(Encoder::new(options))));
        encoder.lock().unwrap_or_else(PoisonError::into_inner).set_options(options);
        Arc::clone(encoder)
    }
}

/// What pushes by some settings.
#[derive(Debug)]
struct Running {
    pumps: JoinSet<()>,
    senders: Vec<JoinHandle<()>>,
    queues: Vec<(Signal, Arc<Queue>)>,
    /// Whether the log is pushed.
    logs: bool,
    stop: watch::Sender<bool>,
    hurry: watch::Sender<bool>,
}

impl Running {
    fn start<F: Feed>(
        feed: &Arc<F>,
        settings: &Settings,
        surroundings: &Surroundings,
        encoders: &mut Encoders,
    ) -> Self {
        // Several requests have room.
        let request = usize::try_from(surroundings.memory.limit() / 4).unwrap_or(usize::MAX);
        let request = request.clamp(SMALLEST, REQUEST);
        let (stop, stopped) = watch::channel(false);
        let (hurry, hurried) = watch::channel(false);
        let Surroundings { board, clock, log, .. } = surroundings;
        let given = settings.resource.iter();
        let given = given.map(|(name, value)| Attribute::text(name.clone(), value.as_str()));
        let resource = Arc::new(surroundings.resource.clone().with(given.clone()));
        let sampled = Arc::new(surroundings.resource.clone().without(&OF_THE_EXPORTER).with(given));
        let mut running =
            Self { pumps: JoinSet::new(), senders: Vec::new(), queues: Vec::new(), logs: false, stop, hurry };
        for (number, target) in (1_u64..).zip(&settings.targets) {
            // No two nodes, nor two processes of one, have the same: in containers many have one number.
            let seed = RandomState::new().hash_one(number);
            let queue = Arc::new(Queue::new(settings.queue, &surroundings.memory));
            board.begins(target, &queue);
            let outlet =
                Outlet { signal: target.signal, queue: Arc::clone(&queue), board: Arc::clone(board) };
            let (feed, stopped) = (Arc::clone(feed), stopped.clone());
            let resource = Arc::clone(if target.signal == Signal::Profiles { &sampled } else { &resource });
            match target.signal {
                Signal::Metrics => {
                    let encoder = encoders.of(Options {
                        temporality: settings.temporality,
                        histograms: settings.histograms,
                        limit: request,
                        began: surroundings.began,
                    });
                    let every = settings.metrics_interval;
                    running.pumps.spawn(pump::metrics(feed, encoder, resource, outlet, every, stopped));
                }
                Signal::Profiles => {
                    let every = settings.profiles_interval;
                    let options = profiles::Options { limit: request, seed, ..profiles::Options::default() };
                    let how = (resource, options);
                    running.pumps.spawn(pump::profiles(feed, how, outlet, every, stopped));
                }
                Signal::Logs => {
                    log.turn_on(&resource, Arc::clone(&queue), Arc::clone(board));
                    running.logs = true;
                }
            }
            let sender = Sender {
                signal: target.signal,
                queue: Arc::clone(&queue),
                client: Client::new(target.clone(), clock.clone()),
                board: Arc::clone(board),
                clock: clock.clone(),
                backoff: Backoff::new(seed),
                hurry: hurried.clone(),
            };
            running.senders.push(tokio::spawn(sender.run()));
            running.queues.push((target.signal, queue));
            tracing::info!(
                signal = target.signal.as_str(),
                endpoint = %target.uri,
                "pushing by OTLP"
            );
        }
        running
    }

    /// Pushes what there is by now and what waits, as far as that is possible in time; the rest is dropped and counted.
    async fn stop(mut self, surroundings: &Surroundings) {
        self.stop.send_replace(true);
        self.hurry.send_replace(true);
        let log = surroundings.log.clone();
        let flushed = timeout(FLUSH, async {
            if self.logs {
                drop(spawn_blocking(move || log.pause()).await);
            }
            while self.pumps.join_next().await.is_some() {}
            for (_, queue) in &self.queues {
                queue.emptied().await;
            }
        });
        if flushed.await.is_err() {
            tracing::warn!("what could not be pushed within {FLUSH:?} is dropped");
        }
        self.senders.iter().for_each(JoinHandle::abort);
        self.pumps.abort_all();
        for (signal, queue) in &self.queues {
            surroundings.board.dropped(*signal, queue.clear());
            surroundings.board.ends(*signal);
        }
    }
}
