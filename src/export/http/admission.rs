//! Admission: which connections stay open and which requests are answered when there are more than places.
//!
//! The path of a request is known only after its headers, so a connection passes two gates. Every connection is accepted
//! and waits for a request; when sockets run short, waiting connections are closed to make room, idle ones first. A
//! request with complete headers then asks for a place in the [`Class`] of its path. Scrapes have places of their own, and
//! a brief answer (health, readiness, a refusal) needs none, so neither idle sockets nor slow clients nor requests for
//! profiles keep Prometheus out.
//!
//! The table is behind a lock that is held for one pass over the connections, and never across I/O.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::traffic::{Aborted, Traffic};
use crate::clock::{Clock, Monotonic};
use crate::lock::Lock;

/// Scrapes that are answered at the same time. Other requests never take these places.
const SCRAPES: usize = 8;

/// Sockets that are kept for connections whose request has not arrived.
const WAITING: usize = 8;

/// Connections of one peer that wait for a request, and its requests for profiles.
const PER_PEER: usize = 8;

/// The same for loopback: agents, sidecars and port forwarding share that address.
const PER_LOOPBACK: usize = 16;

/// How long a scrape keeps its place when all are taken and its peer asks for another one.
const SCRAPE_HOLD: Duration = Duration::from_secs(1);

/// The address that a client is counted by: for IPv6 the /64 network, because one machine usually has a whole one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Peer(IpAddr);

impl Peer {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => {
                Self(IpAddr::V6((v6.to_bits() & (u128::from(u64::MAX) << 64)).into()))
            }
            address => Self(address),
        }
    }

    fn share(self) -> usize {
        if self.0.is_loopback() { PER_LOOPBACK } else { PER_PEER }
    }
}

/// What a request needs a place for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A short text that is ready at once. It takes no place, and its connection may be closed to make room.
    Brief,
    /// `/metrics`.
    Scrape,
    /// Status pages and reloads.
    Page,
    /// Profiles, from the request until the answer is sent.
    Profile,
}

/// Why a request has no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// Its peer has as many as one peer may have.
    Peer(usize),
    /// All places are taken.
    All(usize),
}

/// How many places there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Places {
    pages: usize,
    profiles: usize,
}

impl Places {
    /// Gives a quarter of `connections` to pages, the rest to profiles, and at least one to each.
    pub(super) fn of(connections: usize) -> Self {
        let pages = (connections / 4).max(1);
        Self { pages, profiles: connections.saturating_sub(pages).max(1) }
    }

    /// Sockets that may be open at the same time.
    pub(super) fn sockets(self) -> usize {
        SCRAPES + WAITING + self.pages + self.profiles
    }

    /// The places of a class, and how many of them one peer may have; `None` where none are needed.
    fn of_class(self, class: Class, peer: Peer) -> Option<(usize, usize)> {
        match class {
            Class::Brief => None,
            Class::Scrape => Some((SCRAPES, SCRAPES)),
            Class::Page => Some((self.pages, self.pages.div_ceil(2))),
            Class::Profile => Some((self.profiles, peer.share())),
        }
    }
}

/// What a connection does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing, between two requests.
    Idle,
    /// It is new, or its request has begun to arrive.
    Arriving,
    /// An answer is made or sent; whether it is complete but for what the socket holds.
    Answering(Class, bool),
    /// It was told to close, and whether it had not been answered anything yet.
    Evicted(bool),
}

impl State {
    /// How soon it is closed to make room; `None` = it is not.
    fn evictable(self) -> Option<Aborted> {
        match self {
            Self::Idle => Some(Aborted::Idle),
            Self::Arriving | Self::Answering(Class::Brief, _) => Some(Aborted::Limit),
            Self::Answering(..) | Self::Evicted(_) => None,
        }
    }
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    state: State,
    /// Since when it is in this state.
    since: Monotonic,
    /// Whether the last bytes that came did not end a request's headers. Behind an answer, they may have begun the next
    /// request.
    partial: bool,
    evict: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    /// By number; later connections have higher ones.
    entries: BTreeMap<u64, Entry>,
    next: u64,
}

impl Table {
    /// The one of these that has been in its state for longest.
    fn oldest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<u64> {
        let wanted = self.entries.iter().filter(|(_, entry)| wanted(entry));
        wanted.min_by_key(|(number, entry)| (entry.since, **number)).map(|(number, _)| *number)
    }

    /// The peer with the most of these, and how many it has.
    fn busiest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<(Peer, usize)> {
        let mut counts: BTreeMap<Peer, usize> = BTreeMap::new();
        for entry in self.entries.values().filter(|entry| wanted(entry)) {
            *counts.entry(entry.peer).or_default() += 1;
        }
        counts.into_iter().max_by_key(|&(_, count)| count)
    }

    fn count(&self, wanted: impl Fn(&Entry) -> bool) -> usize {
        self.entries.values().filter(|entry| wanted(entry)).count()
    }

    /// Closes one connection that waits, of `peer` if there is one, else of any: the oldest idle one, else the oldest of
    /// the peer that has most.
    fn make_room(&mut self, peer: Option<Peer>) -> Option<Aborted> {
        let of = |peer: Option<Peer>, entry: &Entry| peer.is_none_or(|peer| entry.peer == peer);
        let victim = self.oldest(|entry| entry.state == State::Idle && of(peer, entry)).or_else(|| {
            let waits = |entry: &Entry| entry.state.evictable().is_some();
            let peer = peer.or_else(|| self.busiest(waits).map(|(peer, _)| peer));
            self.oldest(|entry| waits(entry) && of(peer, entry))
        })?;
        let why = self.entries.get(&victim)?.state.evictable();
        self.evict(victim);
        why
    }

    fn evict(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.state = State::Evicted(entry.state == State::Arriving);
            entry.evict.notify_one();
        }
    }

    /// Finds or makes a place for a request of `peer`. A scrape whose class is full takes the place of a peer that has
    /// more, or of an older scrape of its own peer: a client that does not read its answers keeps nobody out.
    fn place(&mut self, places: Places, class: Class, peer: Peer, now: Monotonic) -> Result<bool, Refused> {
        let Some((limit, share)) = places.of_class(class, peer) else { return Ok(false) };
        let answered = |entry: &Entry| matches!(entry.state, State::Answering(of, _) if of == class);
        let own = self.count(|entry| answered(entry) && entry.peer == peer);
        let all = self.count(answered);
        if own < share && all < limit {
            return Ok(false);
        }
        let refused = if own >= share { Refused::Peer(share) } else { Refused::All(limit) };
        if class != Class::Scrape {
            return Err(refused);
        }
        let victim = match self.busiest(answered) {
            Some((busiest, most)) if most > own + 1 => {
                self.oldest(|entry| answered(entry) && entry.peer == busiest)
            }
            _ => self.oldest(|entry| {
                answered(entry) && entry.peer == peer && now.since(entry.since) >= SCRAPE_HOLD
            }),
        };
        self.evict(victim.ok_or(refused)?);
        Ok(true)
    }
}

/// The connections of a server.
#[derive(Debug)]
pub(super) struct Admission {
    table: Lock<Table>,
    places: Places,
    clock: Clock,
    traffic: Traffic,
}

impl Admission {
    pub(super) fn new(places: Places, clock: Clock, traffic: Traffic) -> Arc<Self> {
        Arc::new(Self { table: Lock::default(), places, clock, traffic })
    }

    /// Takes in a connection that was accepted, and closes another one if there are too many.
    pub(super) fn enter(self: &Arc<Self>, peer: Peer) -> Arc<Held> {
        let evict = Arc::new(Notify::new());
        let (number, evicted) = {
            let mut table = self.table.lock();
            let waiting = table.count(|entry| entry.peer == peer && entry.state.evictable().is_some());
            let open = table.count(|entry| !matches!(entry.state, State::Evicted(_)));
            let evicted = if waiting >= peer.share() {
                table.make_room(Some(peer))
            } else if open >= self.places.sockets() {
                table.make_room(None)
            } else {
                None
            };
            table.next += 1;
            let number = table.next;
            let since = self.clock.monotonic();
            let entry =
                Entry { peer, state: State::Arriving, since, partial: false, evict: Arc::clone(&evict) };
            table.entries.insert(number, entry);
            self.traffic.set_connections(table.entries.len());
            (number, evicted)
        };
        evicted.into_iter().for_each(|why| self.traffic.aborted(why));
        Arc::new(Held { admission: Arc::clone(self), number, peer, evict })
    }

    /// Closes one connection that waits, because the process has no descriptor left.
    pub(super) fn make_room(&self) {
        let evicted = self.table.lock().make_room(None);
        evicted.into_iter().for_each(|why| self.traffic.aborted(why));
    }
}

/// The entry of one connection; removed when dropped.
#[derive(Debug)]
pub(super) struct Held {
    admission: Arc<Admission>,
    number: u64,
    peer: Peer,
    evict: Arc<Notify>,
}

/// What a connection waits for, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The next request, between two.
    Idle(Monotonic),
    /// The rest of a request's headers.
    Headers(Monotonic),
}

impl Held {
    /// Who is at the other end.
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Returns once the connection is to be closed for others.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Whether it was evicted while its request was arriving, so that no answer is under way on it.
    pub(super) fn was_arriving(&self) -> bool {
        let table = self.admission.table.lock();
        table.entries.get(&self.number).is_some_and(|entry| entry.state == State::Evicted(true))
    }

    /// What it waits for; `None` while an answer is under way.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        let table = self.admission.table.lock();
        let entry = table.entries.get(&self.number)?;
        match entry.state {
            State::Idle => Some(Waiting::Idle(entry.since)),
            State::Arriving => Some(Waiting::Headers(entry.since)),
            State::Answering(..) | State::Evicted(_) => None,
        }
    }

    /// Notes that bytes came, and whether they end a request's headers. On an idle connection they begin a request.
    pub(super) fn bytes_came(&self, end: bool) {
        self.change(|entry| {
            entry.partial = !end;
            (entry.state == State::Idle).then_some(State::Arriving)
        });
    }

    /// Notes that all was written that was to be written. Returns whether that was the end of an answer, behind which the
    /// connection waits again.
    pub(super) fn flushed(&self) -> bool {
        self.change(|entry| match entry.state {
            State::Answering(_, true) if entry.partial => Some(State::Arriving),
            State::Answering(_, true) => Some(State::Idle),
            _ => None,
        })
    }

    /// Takes a place for the answer to a request whose headers have come; it is brief if there is none.
    pub(super) fn admit(self: &Arc<Self>, class: Class) -> (Place, Option<Refused>) {
        let (admission, place) = (&self.admission, Place(Arc::clone(self)));
        let mut table = admission.table.lock();
        let now = admission.clock.monotonic();
        let outcome = table.place(admission.places, class, self.peer, now);
        let class = if outcome.is_ok() { class } else { Class::Brief };
        if let Some(entry) =
            table.entries.get_mut(&self.number).filter(|entry| !matches!(entry.state, State::Evicted(_)))
        {
            (entry.state, entry.since) = (State::Answering(class, false), now);
        }
        drop(table);
        if outcome == Ok(true) {
            admission.traffic.aborted(Aborted::Displaced);
        }
        (place, outcome.err())
    }

    /// Puts it into another state if `to` gives one. Returns whether it did.
    fn change(&self, to: impl FnOnce(&mut Entry) -> Option<State>) -> bool {
        let now = self.admission.clock.monotonic();
        let mut table = self.admission.table.lock();
        let Some(entry) = table.entries.get_mut(&self.number) else { return false };
        let Some(state) = to(entry) else { return false };
        (entry.state, entry.since) = (state, now);
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.admission.table.lock();
        table.entries.remove(&self.number);
        self.admission.traffic.set_connections(table.entries.len());
    }
}

/// A place for one answer, held until the last of it was given to the connection.
#[derive(Debug)]
pub(super) struct Place(Arc<Held>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.change(|entry| match entry.state {
            State::Answering(class, false) => Some(State::Answering(class, true)),
            _ => None,
        });
    }
}

#[cfg(test)]
mod tests;
