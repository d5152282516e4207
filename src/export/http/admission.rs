//! Admission control: which connections stay open and which requests are answered under overload.
//!
//! The path of a request is known only after its headers, so admission has two stages. Every connection is accepted and waits for a
//! request. When sockets are scarce, waiting connections are closed, idle ones first. A request with complete headers then needs a slot in
//! the [`Class`] of its path. Scrapes have slots of their own, and brief responses (health, readiness, rejections) need none. Idle
//! sockets, slow clients and profile requests therefore cannot block Prometheus.
//!
//! The table is protected by a lock that is held for one pass over the connections, never across I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::traffic::{Aborted, Traffic};
use crate::clock::{Clock, Monotonic};
use crate::lock::Lock;

/// Maximum number of concurrent scrapes. Other requests never use these slots.
const SCRAPES: usize = 8;

/// Number of sockets reserved for connections whose request has not arrived.
const WAITING: usize = 8;

/// Maximum number of waiting connections per peer, and of profile requests per peer.
const PER_PEER: usize = 8;

/// The same limit for clients on this machine: agents, sidecars and port forwarding share the loopback address.
const PER_LOOPBACK: usize = 16;

/// Minimum time that a scrape keeps its slot when all slots are used and its peer requests another one.
const SCRAPE_HOLD: Duration = Duration::from_secs(1);

/// Identity of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Peer {
    /// By its address. For IPv6 it is the /64 network, because one machine usually has a whole one.
    Address(IpAddr),
    /// By the user ID of the process at the other end of a unix socket.
    User(u32),
}

impl Peer {
    pub(super) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) if !v6.is_loopback() => {
                Self::Address(IpAddr::V6((v6.to_bits() & (u128::from(u64::MAX) << 64)).into()))
            }
            address => Self::Address(address),
        }
    }

    /// Reports whether the client is on this machine.
    pub(super) fn is_on_this_machine(self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::User(_) => true,
        }
    }

    fn share(self) -> usize {
        if self.is_on_this_machine() { PER_LOOPBACK } else { PER_PEER }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::User(uid) => write!(f, "uid {uid}"),
        }
    }
}

/// Class of a request, which determines its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A short text that is available immediately. It needs no slot, and its connection may be closed to make room.
    Brief,
    /// `/metrics`.
    Scrape,
    /// Status pages and reloads.
    Page,
    /// Profiles, from the request until the response is sent.
    Profile,
}

/// Reason why a request has no slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The peer holds the maximum number of slots for one peer.
    Peer(usize),
    /// All slots are used.
    All(usize),
}

/// Numbers of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotLimits {
    pages: usize,
    profiles: usize,
}

impl SlotLimits {
    /// Assigns a quarter of `connections` to pages and the rest to profiles, at least one to each.
    pub(super) fn of(connections: usize) -> Self {
        let pages = (connections / 4).max(1);
        Self { pages, profiles: connections.saturating_sub(pages).max(1) }
    }

    /// Returns the maximum number of open sockets.
    pub(super) fn sockets(self) -> usize {
        SCRAPES + WAITING + self.pages + self.profiles
    }

    /// Returns the number of slots of a class and the maximum for one peer; `None` if the class needs no slot.
    fn of_class(self, class: Class, peer: Peer) -> Option<(usize, usize)> {
        match class {
            Class::Brief => None,
            Class::Scrape => Some((SCRAPES, SCRAPES)),
            Class::Page => Some((self.pages, self.pages.div_ceil(2))),
            Class::Profile => Some((self.profiles, peer.share())),
        }
    }
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between two requests.
    Idle,
    /// New, or a request has started to arrive.
    Arriving,
    /// A response is being produced or sent. The flag is set once it is complete except for buffered data.
    Answering(Class, bool),
    /// Closed to make room. The flag is set if no response had been started.
    Evicted(bool),
}

impl State {
    /// Returns the reason with which the connection can be closed to make room; `None` if it cannot.
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
    /// Start of the current state.
    since: Monotonic,
    /// Whether the last received bytes did not end the headers of a request. After a response, they may be the start of the next request.
    partial: bool,
    evict: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Table {
    /// Connections by number; later connections have higher numbers.
    entries: BTreeMap<u64, Entry>,
    next: u64,
}

impl Table {
    /// Returns the matching connection that has been in its state for the longest time.
    fn oldest(&self, wanted: impl Fn(&Entry) -> bool) -> Option<u64> {
        let wanted = self.entries.iter().filter(|(_, entry)| wanted(entry));
        wanted.min_by_key(|(number, entry)| (entry.since, **number)).map(|(number, _)| *number)
    }

    /// Returns the peer with the most matching connections, and their number.
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

    /// Closes one waiting connection, of `peer` if given, otherwise of any peer. It is the oldest idle one, or else the oldest one of the
    /// peer with the most connections.
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

    /// Finds or frees a slot for a request of `peer`. If all scrape slots are used, a scrape displaces a scrape of a peer that has more,
    /// or an older one of its own peer. A client that does not read its responses therefore cannot block others.
    fn place(
        &mut self,
        places: SlotLimits,
        class: Class,
        peer: Peer,
        now: Monotonic,
    ) -> Result<bool, Refused> {
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
    places: SlotLimits,
    clock: Clock,
    traffic: Traffic,
}

impl Admission {
    pub(super) fn new(places: SlotLimits, clock: Clock, traffic: Traffic) -> Arc<Self> {
        Arc::new(Self { table: Lock::default(), places, clock, traffic })
    }

    /// Adds an accepted connection, and closes another one if there are too many.
    pub(super) fn enter(self: &Arc<Self>, peer: Peer) -> Arc<ConnectionEntry> {
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
        Arc::new(ConnectionEntry { admission: Arc::clone(self), number, peer, evict })
    }

    /// Closes one waiting connection because the process has no free descriptor.
    pub(super) fn make_room(&self) {
        let evicted = self.table.lock().make_room(None);
        evicted.into_iter().for_each(|why| self.traffic.aborted(why));
    }
}

/// Entry of one connection, removed on drop.
#[derive(Debug)]
pub(super) struct ConnectionEntry {
    admission: Arc<Admission>,
    number: u64,
    peer: Peer,
    evict: Arc<Notify>,
}

/// What a connection waits for, with the start of the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The next request, between two requests.
    Idle(Monotonic),
    /// The rest of the headers of a request.
    Headers(Monotonic),
}

impl ConnectionEntry {
    /// Completes when the connection must be closed to make room.
    pub(super) async fn evicted(&self) {
        self.evict.notified().await;
    }

    /// Reports whether the connection was evicted while its request was arriving, so that no response is in progress.
    pub(super) fn was_arriving(&self) -> bool {
        let table = self.admission.table.lock();
        table.entries.get(&self.number).is_some_and(|entry| entry.state == State::Evicted(true))
    }

    /// Returns what the connection waits for; `None` while a response is in progress.
    pub(super) fn waiting(&self) -> Option<Waiting> {
        let table = self.admission.table.lock();
        let entry = table.entries.get(&self.number)?;
        match entry.state {
            State::Idle => Some(Waiting::Idle(entry.since)),
            State::Arriving => Some(Waiting::Headers(entry.since)),
            State::Answering(..) | State::Evicted(_) => None,
        }
    }

    /// Records received bytes, and whether they end the headers of a request. On an idle connection they start a request.
    pub(super) fn bytes_came(&self, end: bool) {
        self.change(|entry| {
            entry.partial = !end;
            (entry.state == State::Idle).then_some(State::Arriving)
        });
    }

    /// Records that all pending data was written. Returns whether this completed a response, after which the connection waits again.
    pub(super) fn flushed(&self) -> bool {
        self.change(|entry| match entry.state {
            State::Answering(_, true) if entry.partial => Some(State::Arriving),
            State::Answering(_, true) => Some(State::Idle),
            _ => None,
        })
    }

    /// Acquires a slot for the response to a request with complete headers. Without a slot, the response is brief.
    pub(super) fn admit(self: &Arc<Self>, class: Class) -> (Slot, Option<Refused>) {
        let (admission, place) = (&self.admission, Slot(Arc::clone(self)));
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

    /// Changes the state if `to` returns one. Returns whether it changed.
    fn change(&self, to: impl FnOnce(&mut Entry) -> Option<State>) -> bool {
        let now = self.admission.clock.monotonic();
        let mut table = self.admission.table.lock();
        let Some(entry) = table.entries.get_mut(&self.number) else { return false };
        let Some(state) = to(entry) else { return false };
        (entry.state, entry.since) = (state, now);
        true
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let mut table = self.admission.table.lock();
        table.entries.remove(&self.number);
        self.admission.traffic.set_connections(table.entries.len());
    }
}

/// A slot for one response, held until all of it was passed to the connection.
#[derive(Debug)]
pub(super) struct Slot(Arc<ConnectionEntry>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.change(|entry| match entry.state {
            State::Answering(class, false) => Some(State::Answering(class, true)),
            _ => None,
        });
    }
}

#[cfg(test)]
mod tests;
