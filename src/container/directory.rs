//! What is known of containers, shared by who asks for it and who needs it.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde::Serialize;
use tokio::sync::Notify;

use super::identity::Identity;
use super::source::{Failure, Found, Kind, Listing};
use crate::clock::{Clock, Monotonic, Timestamp};
use crate::lock::Lock;
use crate::target::{ContainerPath, pod_uid};

/// The most containers and pods that are known at a time, each.
const MOST: usize = 1 << 16;

/// For how long a container is known that nobody lists any more: longer than any series of it stays, which is an hour for
/// those of profiles.
const KEPT: Duration = Duration::from_secs(70 * 60);

/// For how long a container counts as unknown that is not counted any more.
const MISSED: Duration = Duration::from_secs(10 * 60);

/// How long, and for how many questions, a container may be new: runtimes list a pod only once it runs.
const NEW: (Duration, u32) = (Duration::from_secs(3), 2);

/// How long it takes until a question is asked again that nobody could answer: it doubles from the first to the second.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What is known of the containers of this host.
#[derive(Debug)]
pub struct Directory {
    clock: Clock,
    known: Lock<Known>,
    /// Told when there is a container to ask for.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct Known {
    containers: FxHashMap<Box<str>, Entry>,
    pods: FxHashMap<Box<str>, Entry>,
    unknown: FxHashMap<Box<str>, Unknown>,
    sources: Vec<SourceState>,
    /// When each of the sources answered last.
    answered: Vec<Monotonic>,
    /// Rises whenever somebody is known better than before.
    generation: u64,
    /// Rises whenever everything is forgotten.
    epoch: u64,
}

#[derive(Debug)]
struct Entry {
    identity: Arc<Identity>,
    /// Who told, by its place among the sources.
    source: usize,
    /// When it did last.
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

/// Who containers are, and who tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Account {
    /// Containers whose names are known.
    pub known: usize,
    /// Containers that are counted, and that nobody knows.
    pub unknown: usize,
    /// Those who are asked, the one that is believed first in front.
    pub sources: Vec<SourceState>,
}

/// Somebody who tells of containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceState {
    /// How it is asked.
    #[serde(rename = "source")]
    pub kind: Kind,
    /// Where: the path of a socket, or a URL.
    pub place: String,
    /// When it answered last.
    pub answered: Option<Timestamp>,
    /// How many containers it then told of.
    pub containers: usize,
    /// Why it did not answer when it was asked last.
    #[serde(rename = "failing")]
    pub failure: Option<Failure>,
}

impl SourceState {
    /// Of somebody who was not asked yet.
    pub(super) fn of(source: &Found) -> Self {
        Self { kind: source.kind(), place: source.place(), answered: None, containers: 0, failure: None }
    }

    /// What it answered at this time.
    pub(super) fn note(&mut self, answer: &Result<Listing, Failure>, at: Timestamp) {
        self.failure = answer.as_ref().err().cloned();
        if let Ok(listing) = answer {
            (self.answered, self.containers) = (Some(at), listing.containers.len());
        }
    }
}

impl Directory {
    /// Nobody is known, and nobody is asked.
    pub fn new(clock: Clock) -> Self {
        Self { clock, known: Lock::default(), wanted: Notify::new() }
    }

    /// Whether anybody can be asked at all.
    pub fn is_asked(&self) -> bool {
        !self.known.lock().sources.is_empty()
    }

    /// A number that is another one as soon as somebody is known better than before.
    pub fn generation(&self) -> u64 {
        self.known.lock().generation
    }

    /// A number that is another one as soon as what was told before is not to be believed any more.
    pub fn epoch(&self) -> u64 {
        self.known.lock().epoch
    }

    /// Who the cgroups at some paths are of. Containers that nobody has told of are asked for.
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

    /// Who the cgroup at a path is of, if that is known. Nobody is asked.
    pub fn identity(&self, path: &str) -> Option<Arc<Identity>> {
        self.known.lock().identity(path)
    }

    /// Those who tell of containers.
    pub fn sources(&self) -> Vec<SourceState> {
        self.known.lock().sources.clone()
    }

    /// How many containers and pods are known, and how many containers are not.
    pub fn size(&self) -> (usize, usize, usize) {
        let known = self.known.lock();
        (known.containers.len(), known.pods.len(), known.unknown.len())
    }

    /// Who containers are, and who tells.
    pub fn account(&self) -> Account {
        let known = self.known.lock();
        Account {
            known: known.containers.len(),
            unknown: known.unknown.len(),
            sources: known.sources.clone(),
        }
    }

    /// Returns when there is a container to ask for.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// For how long those need not be asked again that could not tell; `None` if everybody is known.
    pub(super) fn due(&self) -> Option<Duration> {
        let (first, last) = AGAIN;
        let known = self.known.lock();
        // The first two questions follow each other as fast as any.
        let doubled = |unknown: &Unknown| first.saturating_mul(1 << unknown.asked.saturating_sub(1).min(6));
        known.unknown.values().map(|unknown| doubled(unknown).min(last)).min()
    }

    /// These are asked from now on. What others told is forgotten with `forget`: it was chosen otherwise.
    pub(super) fn set_sources(&self, sources: Vec<SourceState>, forget: bool) {
        let mut known = self.known.lock();
        known.answered = vec![Monotonic::default(); sources.len()];
        known.sources = sources;
        if forget {
            (known.containers, known.pods) = Default::default();
            known.unknown.clear();
            known.epoch += 1;
        } else {
            // Their places are others' now: whoever knows them may tell anew.
            for entry in known.entries() {
                entry.source = usize::MAX;
            }
        }
    }

    /// Enters what the source at `place` said. Sources are in the order in which they are believed.
    pub(super) fn enter(&self, place: usize, answer: Result<Listing, Failure>) {
        let (now, at) = (self.clock.monotonic(), self.clock.now());
        let mut known = self.known.lock();
        let Some(source) = known.sources.get_mut(place) else { return };
        source.note(&answer, at);
        if let Ok(listing) = answer {
            known.take_in(place, listing, now);
        }
    }

    /// Ends a round of questions that began at `asked`.
    pub(super) fn end_round(&self, asked: Monotonic) {
        let now = self.clock.monotonic();
        let mut known = self.known.lock();
        let Known { containers, pods, unknown, answered, .. } = &mut *known;
        // Of whom a source says nothing that does not answer, nobody knows that it is gone.
        let kept = |entry: &Entry| {
            let may_be_there = answered.get(entry.source).is_some_and(|&answered| answered <= entry.listed);
            may_be_there || now.since(entry.listed) < KEPT
        };
        containers.retain(|_, entry| kept(entry));
        pods.retain(|_, entry| kept(entry));
        unknown.retain(|id, unknown| {
            // One that turned up meanwhile may have come too late for the answer.
            unknown.asked += u32::from(unknown.since <= asked);
            !containers.contains_key(id) && now.since(unknown.seen) < MISSED
        });
    }
}

impl Entry {
    /// Takes what a source says. One that is believed less is not heard until the one that was has answered without naming
    /// it: an answer that fails once does not change names. Returns whether anything is new.
    fn hear(&mut self, source: usize, identity: Identity, answered: &[Monotonic], now: Monotonic) -> bool {
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

    /// Enters what a source told.
    fn take_in(&mut self, source: usize, listing: Listing, now: Monotonic) {
        if let Some(answered) = self.answered.get_mut(source) {
            *answered = now;
        }
        let Self { containers, pods, answered, generation, .. } = self;
        let mut better = false;
        for (of, listed) in [(containers, listing.containers), (pods, listing.pods)] {
            for (id, identity) in listed {
                let full = of.len() >= MOST;
                match of.get_mut(&id) {
                    Some(entry) => better |= entry.hear(source, identity, answered, now),
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

    /// Of the innermost container; if that is not known, of its pod; else of the innermost around it that is known.
    fn identity(&self, path: &str) -> Option<Arc<Identity>> {
        let known = |container: ContainerPath<'_>| self.containers.get(container.id);
        let innermost = || ContainerPath::all(path).last().and_then(known);
        let pod = || self.pods.get(&*pod_uid(path)?);
        let around = || ContainerPath::all(path).filter_map(known).last();
        innermost().or_else(pod).or_else(around).map(|entry| Arc::clone(&entry.identity))
    }

    fn state(&mut self, path: &str, now: Monotonic, news: &mut bool) -> State {
        let innermost = ContainerPath::all(path).last();
        // A pod, or the container that a node is, is known before the containers in it are.
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

    /// Whether a container that is not known turned up just now. Notes that it is there.
    fn is_new(&mut self, id: &str, now: Monotonic, news: &mut bool) -> bool {
        if self.sources.is_empty() {
            return false;
        }
        let answers = self.sources.iter().any(|source| source.failure.is_none());
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

    /// A directory with so many sources.
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

    /// A round of questions in which sources answer so.
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
        assert_eq!(state(&directory), State::New, "it may have come too late for that answer");
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
        assert_eq!(state(&directory), State::New, "it may be told in a moment");
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
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())), "nobody says that this is wrong now");
        assert_eq!(directory.generation(), generation);
        assert_eq!(directory.sources()[0].failure, Some(failed));
        assert_eq!(directory.sources()[0].containers, 1, "what it said last");
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
        clock.advance(KEPT * 2);
        round(&directory, clock.monotonic(), vec![Err(Failure::new("connection refused"))]);
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())));
    }

    #[test]
    fn nobody_is_waited_for_where_nobody_answers() {
        let (directory, clock) = directory(1);
        round(&directory, clock.monotonic(), vec![Err(Failure::new("permission denied"))]);
        assert_eq!(state(&directory), State::Unknown);
        assert_eq!(directory.size().2, 1, "it is asked for all the same");
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
        clock.advance(KEPT / 2);
        round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
        assert_eq!(directory.identity(&path()), Some(Arc::new(app())));
        clock.advance(KEPT / 2);
        round(&directory, clock.monotonic(), vec![Ok(Listing::default())]);
        assert_eq!(directory.identity(&path()), None);
    }

    #[test]
    fn however_many_containers_turn_up_a_bounded_number_is_kept() {
        let (directory, clock) = directory(1);
        let paths: Vec<String> = (0..MOST + 10).map(|at| format!("/docker/{at:064x}")).collect();
        directory.look_up(paths.iter().map(String::as_str));
        assert_eq!(directory.size().2, MOST);
        let many = (0..MOST + 10).map(|at| (format!("{at:064x}").into(), app())).collect();
        round(&directory, clock.monotonic(), vec![Ok(Listing { containers: many, pods: Vec::new() })]);
        assert_eq!(directory.size().0, MOST);
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
