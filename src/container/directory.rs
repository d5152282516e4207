//! Container metadata, shared by the requesting thread and its users.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;
use tokio::sync::Notify;

use super::source::{Failure, Kind, Listing, MetadataSource};
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::lock::Lock;
use crate::targets::{ContainerMetadata, ContainerPath, Identity, pod_uid};

/// Maximum number of known containers, and of known pods.
const MAX: usize = 1 << 16;

/// Retention of a container that is no longer listed. It exceeds the time for which its series are published after its end: five minutes,
/// or 30 collections for label values.
const RETENTION: Duration = Duration::from_secs(70 * 60);

/// Retention of an unknown container that is no longer counted.
const MISSED: Duration = Duration::from_secs(10 * 60);

/// Maximum time and number of requests for which a container is new. Runtimes list a pod only when it runs.
const NEW: (Duration, u32) = (Duration::from_secs(3), 2);

/// First and maximum delay before repeating a request for an unknown container; doubled each time.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Metadata of the containers of this host.
#[derive(Debug)]
pub struct Directory {
    clock: Clock,
    known: Lock<Known>,
    /// Notified when there is a container without metadata.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Known {
    containers: FxHashMap<Box<str>, Entry>,
    pods: FxHashMap<Box<str>, Entry>,
    unknown: FxHashMap<Box<str>, Unknown>,
    sources: Vec<SourceState>,
    /// Time of the last response of each source.
    answered: Vec<Monotonic>,
    /// Incremented when metadata is added or changed.
    generation: u64,
    /// Incremented when all metadata is discarded.
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    identity: Arc<Identity>,
    /// Index of the source.
    source: usize,
    /// Time of the last listing.
    listed: Monotonic,
}

/// Container that no source lists.
#[derive(Debug, Clone, Copy)]
struct Unknown {
    since: Monotonic,
    seen: Monotonic,
    asked: u32,
}

/// Metadata state of a cgroup path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not a container.
    None,
    /// New container, whose metadata is being requested.
    New,
    /// Container that no source lists.
    Unknown,
    /// Container or pod with metadata.
    Known(Arc<Identity>),
}

/// Summary of container metadata and its sources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Account {
    /// Number of containers with metadata.
    pub known: usize,
    /// Number of counted containers without metadata.
    pub unknown: usize,
    /// Metadata sources, in order of precedence.
    pub sources: Vec<SourceState>,
}

/// State of a metadata source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceState {
    /// Kind.
    #[serde(rename = "source")]
    pub kind: Kind,
    /// Location: the path of a socket, or a URL.
    pub place: String,
    /// Time of the last response.
    pub answered: Option<Timestamp>,
    /// Number of containers in the last response.
    pub containers: usize,
    /// Reason why the last request failed.
    #[serde(rename = "failing")]
    pub failure: Option<Failure>,
}

impl SourceState {
    /// Creates the state of a source before its first request.
    pub(super) fn of(source: &MetadataSource) -> Self {
        Self { kind: source.kind(), place: source.place(), answered: None, containers: 0, failure: None }
    }

    /// Records the response at a time.
    pub(super) fn note(&mut self, answer: &Result<Listing, Failure>, at: Timestamp) {
        self.failure = answer.as_ref().err().cloned();
        if let Ok(listing) = answer {
            (self.answered, self.containers) = (Some(at), listing.containers.len());
        }
    }
}

impl Directory {
    /// Creates a directory without metadata and sources.
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Lock::default(), wanted: Notify::new() }
    }

    /// Reports whether there are metadata sources.
    pub fn has_sources(&self) -> bool {
        !self.known.lock().sources.is_empty()
    }

    /// Returns a number that changes when metadata is added or changed.
    pub fn generation(&self) -> u64 {
        self.known.lock().generation
    }

    /// Returns a number that changes when earlier metadata becomes invalid.
    pub fn epoch(&self) -> u64 {
        self.known.lock().epoch
    }

    /// Returns the metadata states of cgroup paths. Requests metadata of unknown containers.
    pub fn look_up<'p>(&self, paths: impl IntoIterator<Item = &'p str>) -> Vec<State> {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        let mut news = false;
        let states = paths.into_iter().map(|path| known.state(path, now, &mut news)).collect();
        drop(known);
        if news {
            self.wanted.notify_one();
        }
        states
    }

    /// Returns the metadata of a cgroup path, if known, without requesting it.
    pub fn identity(&self, path: &str) -> Option<Arc<Identity>> {
        self.known.lock().identity(path)
    }

    /// Returns the states of the sources.
    pub fn sources(&self) -> Vec<SourceState> {
        self.known.lock().sources.clone()
    }

    /// Returns the numbers of known containers, known pods and unknown containers.
    pub fn size(&self) -> (usize, usize, usize) {
        let known = self.known.lock();
        (known.containers.len(), known.pods.len(), known.unknown.len())
    }

    /// Returns the summary of container metadata and its sources.
    pub fn account(&self) -> Account {
        let known = self.known.lock();
        Account {
            known: known.containers.len(),
            unknown: known.unknown.len(),
            sources: known.sources.clone(),
        }
    }

    /// Waits until there is a container without metadata.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Returns the time until the next request for unknown containers; `None` if there are none.
    pub(super) fn due(&self) -> Option<Duration> {
        let (first, last) = RETRY_DELAYS;
        let known = self.known.lock();
        // The first two requests have the same delay.
        let doubled = |unknown: &Unknown| first.saturating_mul(1 << unknown.asked.saturating_sub(1).min(6));
        known.unknown.values().map(|unknown| doubled(unknown).min(last)).min()
    }

    /// Sets the sources. With `forget`, existing metadata is discarded because it was selected by other settings.
    pub(super) fn set_sources(&self, sources: Vec<SourceState>, forget: bool) {
        let mut known = self.known.lock();
        known.answered = vec![Monotonic::default(); sources.len()];
        known.sources = sources;
        if forget {
            (known.containers, known.pods) = Default::default();
            known.unknown.clear();
            known.epoch += 1;
        } else {
            // The indexes now refer to other sources, so any source may replace these entries.
            for entry in known.entries() {
                entry.source = usize::MAX;
            }
        }
    }

    /// Stores the response of the source with index `place`. Lower indexes take precedence.
    pub(super) fn enter(&self, place: usize, answer: Result<Listing, Failure>) {
        let (now, at) = (self.clock.monotonic(), self.clock.now());
        let mut known = self.known.lock();
        let Some(source) = known.sources.get_mut(place) else { return };
        source.note(&answer, at);
        if let Ok(listing) = answer {
            known.store_listing(place, listing, now);
        }
    }

    /// Completes a round of requests that began at `asked`.
    pub(super) fn end_round(&self, asked: Monotonic) {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        let Known { containers, pods, unknown, answered, .. } = &mut *known;
        // While a source does not respond, its containers may still exist.
        let kept = |entry: &Entry| {
            let may_be_there = answered.get(entry.source).is_some_and(|&answered| answered <= entry.listed);
            may_be_there || now.since(entry.listed) < RETENTION
        };
        containers.retain(|_, entry| kept(entry));
        pods.retain(|_, entry| kept(entry));
        unknown.retain(|id, unknown| {
            // A container that appeared after the request may be missing from the response.
            unknown.asked += u32::from(unknown.since <= asked);
            !containers.contains_key(id) && now.since(unknown.seen) < MISSED
        });
    }
}

impl ContainerMetadata for Directory {
    fn identities(&self, paths: &[Arc<str>]) -> Vec<Option<Arc<Identity>>> {
        let states = self.look_up(paths.iter().map(|path| &**path));
        let identity = |state| match state {
            State::Known(identity) => Some(identity),
            State::None | State::New | State::Unknown => None,
        };
        states.into_iter().map(identity).collect()
    }

    fn has_sources(&self) -> bool {
        Self::has_sources(self)
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }
}

impl Entry {
    /// Stores metadata from a source, and returns whether it changed. A source of lower precedence replaces another only after the other
    /// has responded without this container. So a single failed request does not change names.
    fn store(&mut self, source: usize, identity: Identity, answered: &[Monotonic], now: Monotonic) -> bool {
        let other = answered.get(self.source).filter(|_| self.source < source);
        if other.is_some_and(|&answered| answered <= self.listed) {
            return false;
        }
        (self.source, self.listed) = (source, now);
        let better = *self.identity != identity;
        if better {
            self.identity = Arc::new(identity);
        }
        better
    }
}

impl Known {
    fn entries(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.containers.values_mut().chain(self.pods.values_mut())
    }

    /// Stores the response of a source.
    fn store_listing(&mut self, source: usize, listing: Listing, now: Monotonic) {
        if let Some(answered) = self.answered.get_mut(source) {
            *answered = now;
        }
        let Self { containers, pods, answered, generation, .. } = self;
        let mut better = false;
        for (of, listed) in [(containers, listing.containers), (pods, listing.pods)] {
            for (id, identity) in listed {
                let full = of.len() >= MAX;
                match of.get_mut(&id) {
                    Some(entry) => better |= entry.store(source, identity, answered, now),
                    None if full => {}
                    None => {
                        of.insert(id, Entry { identity: Arc::new(identity), source, listed: now });
                        better = true;
                    }
                }
            }
        }
        *generation += u64::from(better);
    }

    /// Returns the metadata of the innermost container. If it is unknown, returns that of its pod, otherwise that of the innermost known
    /// container around it.
    fn identity(&self, path: &str) -> Option<Arc<Identity>> {
        let known = |container: ContainerPath<'_>| self.containers.get(container.id);
        let innermost = || ContainerPath::all(path).last().and_then(known);
        let pod = || self.pods.get(&*pod_uid(path)?);
        let around = || ContainerPath::all(path).filter_map(known).last();
        innermost().or_else(pod).or_else(around).map(|entry| Arc::clone(&entry.identity))
    }

    fn state(&mut self, path: &str, now: Monotonic, news: &mut bool) -> State {
        let innermost = ContainerPath::all(path).last();
        // The pod, or the container that is a node, is known before the containers in it.
        let missing = innermost.filter(|container| !self.containers.contains_key(container.id));
        if missing.is_some_and(|container| self.is_new(container.id, now, news)) {
            return State::New;
        }
        match self.identity(path) {
            Some(identity) => State::Known(identity),
            None if innermost.is_some() => State::Unknown,
            None => State::None,
        }
    }

    /// Reports whether an unknown container is new, and records that it exists.
    fn is_new(&mut self, id: &str, now: Monotonic, news: &mut bool) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        let answers = self.sources.iter().any(|source| source.failure.is_none());
        let full = self.unknown.len() >= MAX;
        match self.unknown.get_mut(id) {
            Some(unknown) => unknown.seen = now,
            None if full => return false,
            None => {
                self.unknown.insert(id.into(), Unknown { since: now, seen: now, asked: 0 });
                *news = true;
            }
        }
        let (time, questions) = NEW;
        let is_new = |unknown: &Unknown| unknown.asked < questions && now.since(unknown.since) < time;
        answers && self.unknown.get(id).is_some_and(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::Pod;

    const ID: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";
    const UID: &str = "0a1b2c3d-0011-2233-4455-66778899aabb";

    fn path() -> String {
        format!("/kubepods/pod{UID}/{ID}")
    }

    fn pod() -> Identity {
        let pod = Pod { namespace: "shop".into(), name: "web-0".into(), uid: UID.into() };
        Identity { pod: Some(pod), ..Identity::default() }
    }

    fn app() -> Identity {
        Identity { container: Some("app".into()), ..pod() }
    }

    fn listing(containers: &[(&str, Identity)]) -> Listing {
        let containers = containers.iter().map(|(id, identity)| ((*id).into(), identity.clone()));
        Listing { containers: containers.collect(), pods: Vec::new() }
    }

    /// Returns a directory with this many sources.
    fn directory(sources: usize) -> (Directory, Clock) {
        let clock = Clock::manual(Timestamp(1_000_000));
        clock.advance(Duration::from_secs(1));
        let directory = Directory::new(clock.clone());
        let source = |at| SourceState {
            kind: Kind::Cri,
            place: format!("/run/{at}.sock"),
            answered: None,
            containers: 0,
            failure: None,
        };
        directory.set_sources((0..sources).map(source).collect(), false);
        (directory, clock)
    }

    /// Completes a round of requests with these responses.
    fn round(directory: &Directory, asked: Monotonic, answers: Vec<Result<Listing, Failure>>) {
        answers.into_iter().enumerate().for_each(|(place, answer)| directory.enter(place, answer));
        directory.end_round(asked);
    }

    fn state(directory: &Directory) -> State {
        directory.look_up([path().as_str()]).remove(0)
    }

    #[test]
    fn who_turns_up_is_new_until_somebody_answered_twice() {
        let (directory, clock) = directory(1);
        assert_eq!(state(&directory), State::New);
        clock.advance(Duration::from_millis(10));
        round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
        assert_eq!(state(&directory), State::New, "it may have started after that response");
        round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
        assert_eq!(state(&directory), State::Unknown);
        round(&directory, clock.monotonic(), vec![Ok(listing(&[(ID, app())]))]);
        assert_eq!(state(&directory), State::Known(Arc::new(app())));
        assert_eq!(directory.size(), (1, 0, 0));
    }

    #[test]
    fn who_turns_up_is_not_new_for_long_though_nobody_answers() {
        let (directory, clock) = directory(1);
        assert_eq!(state(&directory), State::New);
        clock.advance(Duration::from_secs(4));
        assert_eq!(state(&directory), State::Unknown);
    }

    #[test]
    fn where_nobody_can_be_asked_nobody_is_new() {
        let (directory, _) = directory(0);
        assert_eq!(state(&directory), State::Unknown);
        assert_eq!(directory.size(), (0, 0, 0));
    }

    #[test]
    fn a_container_that_nobody_knows_has_the_names_of_its_pod() {
        let (directory, clock) = directory(1);
        let pods = vec![(UID.into(), pod())];
        round(&directory, clock.monotonic(), vec![Ok(Listing { pods, ..Listing::default() })]);
        assert_eq!(state(&directory), State::New, "its metadata may arrive soon");
        clock.advance(Duration::from_secs(4));
        assert_eq!(state(&directory), State::Known(Arc::new(pod())));
        let of_pod = format!("/kubepods/pod{UID}");
        assert_eq!(directory.look_up([of_pod.as_str()]), [State::Known(Arc::new(pod()))]);
    }

    #[test]
    fn the_innermost_of_containers_within_each_other_is_meant() {
        let (directory, clock) = directory(1);
        let outer = ID.replace('4', "5");
        let path = format!("/docker/{outer}/kubepods/pod{UID}/{ID}");
        let node = Identity { container: Some("node".into()), ..Identity::default() };
        round(&directory, clock.monotonic(), vec![Ok(listing(&[(&outer, node.clone())]))]);
        clock.advance(Duration::from_secs(4));
        directory.look_up([path.as_str()]);
        clock.advance(Duration::from_secs(4));
        assert_eq!(directory.look_up([path.as_str()]), [State::Known(Arc::new(node))]);
        round(&directory, clock.monotonic(), vec![Ok(listing(&[(ID, app())]))]);
        assert_eq!(directory.look_up([path.as_str()]), [State::Known(Arc::new(app()))]);
    }

    #[test]
    fn the_first_who_knows_a_container_is_believed() {
        let (directory, clock) = directory(2);
        let other = Identity { container: Some("k8s_app_web-0".into()), ..Identity::default() };
        let answers = vec![Ok(listing(&[(ID, app())])), Ok(listing(&[(ID, other.clone())]))];
        round(&directory, clock.monotonic(), answers);
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())));
        let generation = directory.generation();
        let failed = Failure::new("connection refused");
        clock.advance(Duration::from_secs(1));
        round(&directory, clock.monotonic(), vec![Err(failed.clone()), Ok(listing(&[(ID, other.clone())]))]);
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())), "no source contradicts it");
        assert_eq!(directory.generation(), generation);
        assert_eq!(directory.sources()[0].failure, Some(failed));
        assert_eq!(directory.sources()[0].containers, 1, "from its last response");
        clock.advance(Duration::from_secs(1));
        round(
            &directory,
            clock.monotonic(),
            vec![Ok(Listing::default()), Ok(listing(&[(ID, other.clone())]))],
        );
        assert_eq!(directory.identity(&path()), Some(Arc::new(other)));
        assert!(directory.generation() > generation);
    }

    #[test]
    fn whoever_does_not_answer_has_not_said_that_a_container_is_gone() {
        let (directory, clock) = directory(1);
        round(&directory, clock.monotonic(), vec![Ok(listing(&[(ID, app())]))]);
        clock.advance(RETENTION * 2);
        round(&directory, clock.monotonic(), vec![Err(Failure::new("connection refused"))]);
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())));
    }

    #[test]
    fn nobody_is_waited_for_where_nobody_answers() {
        let (directory, clock) = directory(1);
        round(&directory, clock.monotonic(), vec![Err(Failure::new("permission denied"))]);
        assert_eq!(state(&directory), State::Unknown);
        assert_eq!(directory.size().2, 1, "it is requested nevertheless");
    }

    #[test]
    fn what_was_chosen_otherwise_is_forgotten() {
        let (directory, clock) = directory(1);
        round(&directory, clock.monotonic(), vec![Ok(listing(&[(ID, app())]))]);
        let epoch = directory.epoch();
        directory.set_sources(directory.sources(), false);
        assert_eq!((directory.epoch(), directory.size().0), (epoch, 1));
        directory.set_sources(directory.sources(), true);
        assert_eq!((directory.epoch(), directory.size().0), (epoch + 1, 0));
    }

    #[test]
    fn who_is_gone_is_known_for_a_while() {
        let (directory, clock) = directory(1);
        round(&directory, clock.monotonic(), vec![Ok(listing(&[(ID, app())]))]);
        clock.advance(RETENTION / 2);
        round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())));
        clock.advance(RETENTION / 2);
        round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
        assert_eq!(directory.identity(&path()), None);
    }

    #[test]
    fn however_many_containers_turn_up_a_bounded_number_is_kept() {
        let (directory, clock) = directory(1);
        let paths: Vec<String> = (0..MAX + 10).map(|at| format!("/docker/{at:064x}")).collect();
        directory.look_up(paths.iter().map(String::as_str));
        assert_eq!(directory.size().2, MAX);
        let many = (0..MAX + 10).map(|at| (format!("{at:064x}").into(), app())).collect();
        round(&directory, clock.monotonic(), vec![Ok(Listing { containers: many, pods: Vec::new() })]);
        assert_eq!(directory.size().0, MAX);
    }

    #[test]
    fn those_whom_nobody_knows_are_asked_for_ever_more_seldom() {
        let (directory, clock) = directory(1);
        assert_eq!(directory.due(), None);
        state(&directory);
        clock.advance(Duration::from_millis(1));
        let mut pauses = Vec::new();
        for _ in 0..9 {
            round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
            pauses.push(directory.due().unwrap().as_secs());
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }
}
