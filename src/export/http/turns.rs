//! Scheduling of profile requests: the maximum number in progress, and their order.
//!
//! Peers are scheduled round robin, and one peer never holds more than half of the turns. A peer with twenty requests delays the first
//! request of another peer by at most one turn. The slots of [`Class::Profile`](super::admission::Class::Profile) bound the queue: only
//! admitted requests are queued.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::admission::Peer;
use crate::lock::Lock;

/// Assigns turns. Clones share the state.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Lock<State>>);

#[derive(Debug)]
struct State {
    /// Peers of the profiles in progress, one entry for each profile.
    taken: Vec<Peer>,
    limit: usize,
    /// The peers with queued requests in scheduling order, each with its requests in order of arrival.
    waiting: VecDeque<(Peer, VecDeque<oneshot::Sender<()>>)>,
}

impl State {
    fn may_take(&self, peer: Peer) -> bool {
        let own = self.taken.iter().filter(|taken| **taken == peer).count();
        self.taken.len() < self.limit && own < self.limit.div_ceil(2)
    }

    /// Assigns free turns to queued requests. A peer moves to the end of the queue when one of its requests gets a turn.
    fn hand_out(&mut self) {
        while let Some(at) = self.waiting.iter().position(|(peer, _)| self.may_take(*peer)) {
            let Some((peer, mut requests)) = self.waiting.remove(at) else { return };
            // Requests whose client has disconnected are skipped.
            if std::iter::from_fn(|| requests.pop_front()).any(|request| request.send(()).is_ok()) {
                self.taken.push(peer);
            }
            if !requests.is_empty() {
                self.waiting.push_back((peer, requests));
            }
        }
    }

    fn give_back(&mut self, peer: Peer) {
        if let Some(at) = self.taken.iter().position(|taken| *taken == peer) {
            self.taken.swap_remove(at);
        }
        self.hand_out();
    }
}

impl Turns {
    /// Creates a scheduler for `limit` concurrent turns, at least one.
    pub(super) fn new(limit: usize) -> Self {
        let state = State { taken: Vec::new(), limit: limit.max(1), waiting: VecDeque::new() };
        Self(Arc::new(Lock::new(state)))
    }

    /// Waits for a turn. Dropping the future cancels the wait.
    pub(super) async fn next(&self, peer: Peer) -> Turn {
        let (give, given) = oneshot::channel();
        {
            let mut state = self.0.lock();
            match state.waiting.iter_mut().find(|(waiting, _)| *waiting == peer) {
                Some((_, requests)) => requests.push_back(give),
                None => state.waiting.push_back((peer, VecDeque::from([give]))),
            }
            state.hand_out();
        }
        let mut ticket = Ticket { turns: self.clone(), peer, given };
        // The sender is dropped only with the state, which the ticket keeps alive.
        drop((&mut ticket.given).await);
        ticket.redeem()
    }
}

/// A queued wait for a turn. A turn that was assigned but not accepted is returned on drop.
#[derive(Debug)]
struct Ticket {
    turns: Turns,
    peer: Peer,
    given: oneshot::Receiver<()>,
}

impl Ticket {
    fn redeem(self) -> Turn {
        // The receiver is consumed, so dropping the ticket returns nothing.
        Turn { turns: self.turns.clone(), peer: self.peer }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.given.close();
        if self.given.try_recv().is_ok() {
            self.turns.0.lock().give_back(self.peer);
        }
    }
}

/// A turn, returned on drop.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    peer: Peer,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.lock().give_back(self.peer);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn peer(number: u8) -> Peer {
        Peer::of([192, 0, 2, number].into())
    }

    /// Polls all waiting futures and returns the turns that were assigned.
    fn poll_all<F: Future<Output = Turn>>(waiting: &mut [std::pin::Pin<&mut F>]) -> Vec<Option<Turn>> {
        let mut cx = Context::from_waker(Waker::noop());
        let turn = |request: &mut std::pin::Pin<&mut F>| match request.as_mut().poll(&mut cx) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        };
        waiting.iter_mut().map(turn).collect()
    }

    #[test]
    fn a_peer_with_one_request_is_next_whoever_has_many() {
        let turns = Turns::new(2);
        let mut hog: Vec<_> = (0..20).map(|_| Box::pin(turns.next(peer(1)))).collect();
        let mut hog: Vec<_> = hog.iter_mut().map(|request| request.as_mut()).collect();
        let mut given = poll_all(&mut hog[..]);
        assert_eq!(given.iter().flatten().count(), 1, "half of the turns");
        let other = pin!(turns.next(peer(2)));
        let mut other = [other];
        let others = poll_all(&mut other);
        assert!(others[0].is_some());
        let third = pin!(turns.next(peer(3)));
        let mut third = [third];
        assert!(poll_all(&mut third)[0].is_none(), "both are taken");
        // The first peer has 19 more requests, all queued earlier.
        drop(given.swap_remove(0));
        let thirds = poll_all(&mut third);
        let hogs = poll_all(&mut hog[1..]);
        assert_eq!(hogs.iter().chain(&thirds).flatten().count(), 1);
        drop((hogs, others));
        assert!(thirds[0].is_some() || poll_all(&mut third)[0].is_some());
    }

    #[test]
    fn a_turn_that_was_given_and_not_taken_goes_to_the_next() {
        let turns = Turns::new(1);
        let (mut first, mut second) = (Box::pin(turns.next(peer(1))), Box::pin(turns.next(peer(1))));
        let mut third = Box::pin(turns.next(peer(2)));
        let held = poll_all(&mut [first.as_mut()]);
        assert!(
            poll_all(&mut [second.as_mut()])[0].is_none() && poll_all(&mut [third.as_mut()])[0].is_none()
        );
        // The second request is assigned the turn and is dropped before accepting it.
        drop(held);
        drop(second);
        let last = poll_all(&mut [third.as_mut()]);
        assert!(last[0].is_some());
        drop(last);
        assert!(turns.0.lock().taken.is_empty() && turns.0.lock().waiting.is_empty());
    }
}
