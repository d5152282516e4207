//! What is known of containers, shared by who asks for it and who needs it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use tokio::sync::Notify;

use super::identity::Identity;
use super::source::{Failure, Kind, Listing};
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::target::{ContainerPath, pod_uid};

/// The most containers and pods that are known at a time, each.
const MOST: usize = 1 << 16;

/// For how long a container is known that no runtime lists any more. Its series stay for five minutes, and who looks at a
/// profile may look at one of some minutes ago.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// How long, and for how many questions, a container may be new: runtimes list a pod only once it runs.
const NEW: (Duration, u32) = (Duration::from_secs(3), 2);

/// How long it takes until a question is asked again that nobody could answer: it doubles from the first to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What is known of the containers of this host.
#[derive(Debug)]
pub struct Directory {
    clock: Clock,
    known: Mutex<Known>,
    /// Told when there is a container to ask for.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Known {
    containers: FxHashMap<Box<str>, Entry>,
    pods: FxHashMap<Box<str>, Entry>,
    unknown: FxHashMap<Box<str>, Unknown>,
    sources: Vec<SourceState>,
    /// Rises whenever somebody is known better than before.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    identity: Arc<Identity>,
    listed: Monotonic,
}

/// A container that turned up and that nobody tells of.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    since: Monotonic,
    seen: Monotonic,
    asked: u32,
}

/// What a cgroup's path says with what is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is of no container.
    None,
    /// It is of a container that turned up just now: somebody is being asked.
    New,
    /// Nobody tells whose it is.
    Unknown,
    /// It is known.
    Known(Arc<Identity>),
}

/// Somebody who tells of containers, for the status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceState {
    /// How it is asked.
    pub kind: Kind,
    /// Where: the path of a socket, or a URL.
    pub place: String,
    /// When it answered last.
    pub answered: Option<Timestamp>,
    /// How many containers it then told of.
    pub containers: usize,
    /// Why it did not answer when it was asked last.
    pub failure: Option<Failure>,
}

impl Directory {
    /// Nobody is known, and nobody is asked.
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Mutex::default(), wanted: Notify::new() }
    }

    /// Whether anybody can be asked at all.
    pub fn is_asked(&self) -> bool {
        !self.known().sources.is_empty()
    }

    /// A number that is another one as soon as somebody is known better than before.
    pub fn generation(&self) -> u64 {
        self.known().generation
    }

    /// Who the cgroups at some paths are of. Containers that nobody has told of are asked for.
    pub fn look_up<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Vec<State> {
        let now = self.clock.monotonic();
        let mut known = self.known();
        let mut news = false;
        let states = paths.into_iter().map(|path| known.state(path, now, &mut news)).collect();
        drop(known);
        if news {
            self.wanted.notify_one();
        }
        states
    }

    /// Who the cgroup at a path is of, if that is known. Nobody is asked.
    pub fn identity(&self, path: &str) -> Option<Arc<Identity>> {
        self.known().identity(path)
    }

    /// Those who tell of containers.
    pub fn sources(&self) -> Vec<SourceState> {
        self.known().sources.clone()
    }

    /// How many containers and pods are known, and how many containers are not.
    pub fn size(&self) -> (usize, usize, usize) {
        let known = self.known();
        (known.containers.len(), known.pods.len(), known.unknown.len())
    }

    /// Returns when there is a container to ask for.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// For how long those need not be asked again that could not tell; `None` if everybody is known.
    pub(super) fn due(&self) -> Option<Duration> {
        let (first, last) = AGAIN;
        let known = self.known();
        // The first two questions follow each other as fast as any.
        let doubled = |unknown: &Unknown| first.saturating_mul(1 << unknown.asked.saturating_sub(1).min(6));
        known.unknown.values().map(|unknown| doubled(unknown).min(last)).min()
    }

    /// These are asked from now on. What others told is forgotten with `forget`: it was chosen otherwise.
    pub(super) fn set_sources(&self, sources: Vec<SourceState>, forget: bool) {
        let mut known = self.known();
        known.sources = sources;
        if forget {
            (known.containers, known.pods) = Default::default();
            known.unknown.clear();
            known.generation += 1;
        }
    }

    /// Enters what those who were asked since `asked` said, in the order of who is believed first.
    pub(super) fn enter(&self, asked: Monotonic, answers: Vec<Result<Listing, Failure>>) {
        let (now, at) = (self.clock.monotonic(), self.clock.now());
        let mut known = self.known();
        let mut better = false;
        let mut told = (FxHashSet::default(), FxHashSet::default());
        for (place, answer) in answers.into_iter().enumerate() {
            let listing = match answer {
                Ok(listing) => listing,
                Err(failure) => {
                    if let Some(source) = known.sources.get_mut(place) {
                        source.failure = Some(failure);
                    }
                    continue;
                }
            };
            if let Some(source) = known.sources.get_mut(place) {
                (source.failure, source.answered, source.containers) =
                    (None, Some(at), listing.containers.len());
            }
            better |= enter(&mut known.containers, listing.containers, &mut told.0, now);
            better |= enter(&mut known.pods, listing.pods, &mut told.1, now);
        }
        known.containers.retain(|_, entry| now.since(entry.listed) < KEPT);
        known.pods.retain(|_, entry| now.since(entry.listed) < KEPT);
        let Known { containers, unknown, generation, .. } = &mut *known;
        unknown.retain(|id, unknown| {
            // One that turned up meanwhile may have come too late for the answer.
            unknown.asked += u32::from(unknown.since <= asked);
            !containers.contains_key(id) && now.since(unknown.seen) < KEPT
        });
        // One that is not new any more is published without names.
        *generation += u64::from(better);
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing is left half done where a panic could come from.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn identity(&self, path: &str) -> Option<Arc<Identity>> {
        let container = ContainerPath::of(path).and_then(|container| self.containers.get(container.id));
        let pod = || self.pods.get(&*pod_uid(path)?);
        container.or_else(pod).map(|entry| Arc::clone(&entry.identity))
    }

    fn state(&mut self, path: &str, now: Monotonic, news: &mut bool) -> State {
        let container = ContainerPath::of(path);
        if let Some(identity) = self.identity(path) {
            // A pod is known before its containers are.
            let whole = identity.container.is_some() || container.is_none();
            if whole || !self.is_new(container.map(|container| container.id), now, news) {
                return State::Known(identity);
            }
            return State::New;
        }
        match container {
            None => State::None,
            Some(container) if self.is_new(Some(container.id), now, news) => State::New,
            Some(_) => State::Unknown,
        }
    }

    /// Whether a container that is not known turned up just now. Notes that it is there.
    fn is_new(&mut self, id: Option<&str>, now: Monotonic, news: &mut bool) -> bool {
        let Some(id) = id else { return false };
        if self.sources.is_empty() {
            return false;
        }
        let full = self.unknown.len() >= MOST;
        match self.unknown.get_mut(id) {
            Some(unknown) => unknown.seen = now,
            None if full => return false,
            None => {
                self.unknown.insert(id.into(), Unknown { since: now, seen: now, asked: 0 });
                *news = true;
            }
        }
        let (time, questions) = NEW;
        self.unknown.get(id).is_some_and(|unknown| unknown.asked < questions && now.since(unknown.since) < time)
    }
}

/// Enters what somebody told, but for what was told by others before. Returns whether anything is new.
fn enter(
    known: &mut FxHashMap<Box<str>, Entry>,
    listed: Vec<(Box<str>, Identity)>,
    told: &mut FxHashSet<Box<str>>,
    now: Monotonic,
) -> bool {
    let mut better = false;
    for (id, identity) in listed {
        if !told.insert(id.clone()) {
            continue;
        }
        let full = known.len() >= MOST;
        match known.get_mut(&id) {
            Some(entry) => {
                entry.listed = now;
                if *entry.identity != identity {
                    entry.identity = Arc::new(identity);
                    better = true;
                }
            }
            None if full => {}
            None => {
                known.insert(id, Entry { identity: Arc::new(identity), listed: now });
                better = true;
            }
        }
    }
    better
}
