//! The thread that collects the evidence of incidents: it decides which triggers begin an incident, and writes its archive twice, when it
//! begins and when it ends. Collections and the history never wait for it.

mod kubernetes;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use prometheus::{IntCounterVec, Opts, Registry};
use tokio::sync::{oneshot, watch};

use super::engine::Published;
use crate::anomaly::{Active, Ended, Notable, Report, Suspicion};
use crate::budget::Share;
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::config;
use crate::export::incident::{Sources, collect};
use crate::history::SharedHistory;
use crate::incident::{FORMAT, Incident, IncidentId, Span, Store, Suspected, Trigger};
use crate::net::kubernetes::KubernetesServer;
use crate::profile::ProfileRecorder;
use crate::sched::RecentRuns;

/// Maximum number of triggers that wait for the thread. Further ones are suppressed.
const WAITING: usize = 64;

/// Maximum number of incidents that have begun and not ended.
const OPEN: usize = 4;

/// Time before a trigger from outside that belongs to its incident: an alert fires later than its cause begins.
const LEAD: Duration = Duration::from_secs(60);

/// Time after a trigger from outside at which its incident ends.
const TAIL: Duration = Duration::from_secs(60);

/// Time before an incident with which it is compared.
const BEFORE: Duration = Duration::from_secs(300);

/// Maximum length of an incident. The history and the samples of its begin may be dropped after an hour.
const LONGEST: Duration = Duration::from_secs(1800);

/// Why a trigger begins no incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("no directory is configured for incidents; set incidents.directory")]
    NoDirectory,
    #[error("an incident of this cgroup began less than incidents.cooldown ago")]
    Cooldown,
    #[error("{OPEN} incidents are in progress; try again later")]
    Busy,
    #[error("too many triggers are waiting; try again later")]
    Full,
    #[error("the exporter is stopping")]
    Stopping,
}

/// A message to the thread.
#[derive(Debug)]
enum Event {
    Began { kind: String, active: Active },
    Ended { kind: String, cgroup: Arc<str>, at: Timestamp },
    Asked { trigger: Trigger, cgroup: Option<String>, answer: oneshot::Sender<Result<IncidentId, Refused>> },
}

/// Access to the thread.
#[derive(Debug, Clone)]
pub(super) struct Incidents {
    events: SyncSender<Event>,
    metrics: Metrics,
}

/// The exporter's own metrics of incidents.
#[derive(Debug, Clone)]
pub(super) struct Metrics(IntCounterVec);

impl Metrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// A metric with the same name is already registered.
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let triggers = Opts::new(
            "perf_exporter_incident_triggers_total",
            "Triggers of incidents, by result: recorded, attached to an incident of the same cgroup, suppressed, or failed.",
        );
        let triggers = IntCounterVec::new(triggers, &["trigger", "result"])?;
        registry.register(Box::new(triggers.clone()))?;
        Ok(Self(triggers))
    }

    fn count(&self, trigger: &Trigger, result: &str) {
        self.0.with_label_values(&[trigger.word(), result]).inc();
    }
}

impl Incidents {
    /// Returns the access to a thread that does not exist.
    #[cfg(test)]
    pub(super) fn absent() -> Self {
        let metrics = Metrics::new(&Registry::new()).unwrap();
        channel(metrics).0
    }

    /// Passes on which anomalies began and ended. Does not wait.
    pub(super) fn follow(&self, report: &Report) {
        for active in &report.began {
            let event = Event::Began { kind: report.name(active.entry).to_owned(), active: active.clone() };
            if self.events.try_send(event).is_err() {
                self.metrics.0.with_label_values(&["anomaly", "suppressed"]).inc();
            }
        }
        for Ended { entry, cgroup, at } in &report.ended {
            let kind = report.name(*entry).to_owned();
            // If the queue is full, the incident ends when it is too long.
            self.events.try_send(Event::Ended { kind, cgroup: Arc::clone(cgroup), at: *at }).ok();
        }
    }

    /// Requests an incident of a cgroup, or of the machine. The evidence is collected afterwards.
    ///
    /// # Errors
    /// The reason why there will be none.
    pub(super) async fn ask(&self, trigger: Trigger, cgroup: Option<String>) -> Result<IncidentId, Refused> {
        let (answer, answered) = oneshot::channel();
        let word = trigger.word();
        match self.events.try_send(Event::Asked { trigger, cgroup, answer }) {
            Ok(()) => answered.await.unwrap_or(Err(Refused::Stopping)),
            Err(TrySendError::Full(_)) => {
                self.metrics.0.with_label_values(&[word, "suppressed"]).inc();
                Err(Refused::Full)
            }
            Err(TrySendError::Disconnected(_)) => Err(Refused::Stopping),
        }
    }
}

/// Creates the access to a thread that [`start`] starts.
pub(super) fn channel(metrics: Metrics) -> (Incidents, Triggers) {
    let (events, received) = sync_channel(WAITING);
    (Incidents { events, metrics: metrics.clone() }, Triggers { events: received, metrics })
}

/// The triggers that a thread receives.
pub(super) struct Triggers {
    events: Receiver<Event>,
    metrics: Metrics,
}

/// What the thread reads.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) published: watch::Receiver<Arc<Published>>,
    pub(super) history: SharedHistory,
    pub(super) profiles: Arc<dyn ProfileRecorder>,
    /// The last runs of threads.
    pub(super) recent_runs: RecentRuns,
    /// The share of memory for evidence.
    pub(super) memory: Share,
    pub(super) clock: Clock,
    /// The name of the node.
    pub(super) node: String,
    /// The API server of the cluster, or why its address is unknown.
    pub(super) kubernetes: Result<KubernetesServer, String>,
}

impl Context {
    /// Creates an event of Kubernetes about an incident.
    fn announce(&self, incident: &Incident, now: Timestamp) {
        let server = self.kubernetes.as_ref().map_err(Clone::clone);
        if let Err(error) = server.and_then(|server| kubernetes::create(server, incident, now)) {
            tracing::warn!(incident = %incident.id, error, "cannot create an event of Kubernetes");
        }
    }
}

/// Starts the thread. It ends with the last [`Incidents`].
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn start(triggers: Triggers, context: Context) -> io::Result<()> {
    let Triggers { events, metrics } = triggers;
    thread::Builder::new().name("incidents".into()).spawn(move || {
        let mut recorder = Recorder { context, metrics, open: Vec::new(), began: HashMap::new(), last: None };
        recorder.run(&events);
    })?;
    Ok(())
}

/// An incident that has begun and not ended.
#[derive(Debug)]
struct Open {
    incident: Incident,
    /// The entry of its anomaly. The incident ends with the anomaly.
    kind: Option<String>,
    /// When it ends in any case.
    until: Monotonic,
}

#[derive(Debug)]
struct Recorder {
    context: Context,
    metrics: Metrics,
    open: Vec<Open>,
    /// When the last incident of each cgroup began.
    began: HashMap<Option<String>, Monotonic>,
    /// The last second in which an incident began, and the number of incidents in it.
    last: Option<(u64, u32)>,
}

impl Recorder {
    fn run(&mut self, events: &Receiver<Event>) {
        loop {
            let now = self.context.clock.monotonic();
            let wait = self.open.iter().map(|open| open.until.since(now)).min();
            match events.recv_timeout(wait.unwrap_or(Duration::from_secs(3600))) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.end_overdue();
        }
    }

    /// Ends the incidents that last too long.
    fn end_overdue(&mut self) {
        let (now, ended) = (self.context.clock.monotonic(), self.context.clock.now());
        while let Some(place) = self.open.iter().position(|open| open.until <= now) {
            self.end(place, ended);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Began { kind, active } => {
                let Active { cgroup, since, value, usual, score, suspicion, .. } = active;
                let trigger = Trigger::Anomaly { kind: kind.clone(), value, usual, score };
                let begun = self.begin(trigger, Some(cgroup.to_string()), since, (Some(kind), suspicion));
                if let Ok((_, Some(place))) = begun {
                    self.write(place);
                }
            }
            Event::Ended { kind, cgroup, at } => {
                let is_of = |open: &Open| {
                    open.kind.as_ref() == Some(&kind) && open.incident.cgroup.as_deref() == Some(&*cgroup)
                };
                if let Some(place) = self.open.iter().position(is_of) {
                    self.end(place, at);
                }
            }
            Event::Asked { trigger, cgroup, answer } => {
                let began = Timestamp(self.context.clock.now().0.saturating_sub(milliseconds(LEAD)));
                let begun = self.begin(trigger, cgroup, began, (None, Suspicion::default()));
                let place = begun.as_ref().ok().and_then(|(_, place)| *place);
                // A client that has disconnected wants the evidence, too.
                answer.send(begun.map(|(id, _)| id)).ok();
                if let Some(place) = place {
                    self.write(place);
                }
            }
        }
    }

    /// Begins an incident, or attaches the trigger to that of the same cgroup. Returns its identifier, and its place if it is new.
    fn begin(
        &mut self,
        trigger: Trigger,
        cgroup: Option<String>,
        began: Timestamp,
        (kind, suspicion): (Option<String>, Suspicion),
    ) -> Result<(IncidentId, Option<usize>), Refused> {
        if let Some(open) = self.open.iter_mut().find(|open| open.incident.cgroup == cgroup) {
            self.metrics.count(&trigger, "attached");
            open.incident.note(trigger);
            return Ok((open.incident.id.clone(), None));
        }
        let (now, settings) = (self.context.clock.monotonic(), self.settings());
        self.began.retain(|_, began| now.since(*began) < settings.cooldown);
        let refused = if settings.directory.is_none() {
            Some(Refused::NoDirectory)
        } else if self.began.contains_key(&cgroup) {
            Some(Refused::Cooldown)
        } else if self.open.len() >= OPEN {
            Some(Refused::Busy)
        } else {
            None
        };
        if let Some(refused) = refused {
            self.metrics.count(&trigger, "suppressed");
            return Err(refused);
        }
        let id = self.next_id();
        let lasts = if kind.is_some() { LONGEST } else { TAIL };
        let until = now.after(lasts);
        self.began.insert(cgroup.clone(), now);
        let to_ms = self.context.clock.now().0;
        let from_ms = began.0.min(to_ms);
        let incident = Incident {
            format: FORMAT,
            id: id.clone(),
            node: self.context.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            labels: Vec::new(),
            trigger,
            cgroup,
            began_ms: from_ms,
            ended_ms: None,
            causes: suspicion.causes.iter().map(ToString::to_string).collect(),
            suspects: suspicion.suspects.iter().map(suspected).collect(),
            further: Vec::new(),
            more: 0,
            during: Span { from_ms, to_ms },
            before: Span { from_ms: from_ms.saturating_sub(milliseconds(BEFORE)), to_ms: from_ms },
            scheduling: Vec::new(),
            profiles: Vec::new(),
            missing: Vec::new(),
        };
        self.open.push(Open { incident, kind, until });
        Ok((id, Some(self.open.len() - 1)))
    }

    fn next_id(&mut self) -> IncidentId {
        let now = self.context.clock.now();
        let second = now.0 / 1000;
        let number = match self.last {
            Some((last, number)) if last == second => number + 1,
            _ => 1,
        };
        self.last = Some((second, number));
        IncidentId::new(now, number)
    }

    /// Ends an incident and writes its complete evidence.
    fn end(&mut self, place: usize, ended: Timestamp) {
        if let Some(open) = self.open.get_mut(place) {
            open.incident.ended_ms = Some(ended.0);
            open.incident.during.to_ms = ended.0;
        }
        self.write(place);
        self.open.swap_remove(place);
    }

    /// Collects the evidence of an incident as of now, and writes it.
    fn write(&mut self, place: usize) {
        let settings = self.settings();
        let Some(open) = self.open.get_mut(place) else { return };
        let incident = &mut open.incident;
        let Some(directory) = &settings.directory else { return };
        let now = self.context.clock.now();
        let Context { history, profiles, recent_runs, memory, .. } = &self.context;
        let store = Store::at(directory);
        let published = Arc::clone(&self.context.published.borrow());
        let sources = Sources {
            history,
            profiles: &**profiles,
            recent_runs,
            threads: published.status.threads.as_ref(),
            snapshot: published.snapshot.as_deref(),
            store: &store,
            memory,
            now,
        };
        let written = store.prepare().and_then(|()| {
            let mut archive = store.create(&incident.id, settings.each(), now)?;
            collect(incident, sources, &mut archive)?;
            store.finish(archive, incident, settings.bounds)
        });
        let (id, is_new) = (&incident.id, incident.ended_ms.is_none());
        match written {
            Ok(written) => {
                if is_new {
                    self.metrics.count(&incident.trigger, "recorded");
                    if settings.kubernetes_events {
                        self.context.announce(incident, now);
                    }
                }
                tracing::info!(
                    name: "perf_exporter.incident.recorded",
                    incident = %id,
                    trigger = %incident.trigger.text(),
                    cgroup = incident.cgroup,
                    complete = !is_new,
                    bytes = written.bytes,
                    removed = written.removed,
                    "evidence of an incident was recorded; see /incidents/{id}"
                );
            }
            Err(error) => {
                self.metrics.count(&incident.trigger, "failed");
                tracing::error!(
                    name: "perf_exporter.incident.failed",
                    incident = %id,
                    %error,
                    "the evidence of an incident cannot be written"
                );
            }
        }
    }

    fn settings(&self) -> Arc<config::Incidents> {
        Arc::clone(&self.context.published.borrow().incidents)
    }
}

fn suspected(suspect: &Notable) -> Suspected {
    let Notable { cgroup, basis, score, samples } = suspect;
    Suspected { cgroup: cgroup.to_string(), basis: basis.to_string(), score: *score, samples: *samples }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
