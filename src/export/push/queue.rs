//! What waits to be sent: in order, within a number of bytes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::payload::Payload;
use crate::budget::{Account, Share};

/// Payloads in the order in which they came. When there is no room the oldest makes some: what is new is worth more, and of
/// cumulative sums it says all that the old one said.
#[derive(Debug)]
pub(super) struct Queue {
    limit: u64,
    /// What it holds of the memory for all queues.
    account: Account,
    state: Mutex<State>,
    /// Somebody has put something in, or taken the last one out.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    /// The one that is being sent: it cannot make room, for it may be taken this moment.
    sending: Option<u64>,
    /// The number of the next one.
    next: u64,
    batches: u64,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its number, which no other has.
    pub(super) number: u64,
    /// The body. Copies share it.
    pub(super) bytes: Bytes,
    /// Data points, samples or log records in it.
    pub(super) items: u64,
    /// What it is a part of.
    batch: u64,
}

/// What did not find room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Dropped {
    /// Data points, samples or log records.
    pub(super) items: u64,
    /// Requests.
    pub(super) payloads: u64,
}

impl Queue {
    /// An empty one. `limit` is in bytes; all queues together have no more than `memory`.
    pub(super) fn new(limit: u64, memory: &Share) -> Self {
        Self { limit, account: memory.account(), state: Mutex::default(), changed: Notify::new() }
    }

    /// How many bytes it may hold at this moment.
    fn limit(&self) -> u64 {
        self.limit.min(self.account.room())
    }

    /// A number for what is put in together.
    pub(super) fn new_batch(&self) -> u64 {
        let mut state = self.lock();
        state.batches += 1;
        state.batches
    }

    /// Returns once one of this size can be put in without that another of its batch must make room.
    pub(super) async fn admits(&self, size: usize, batch: u64) {
        let admits = |state: &mut State| {
            let own = state.waiting.iter().filter(|one| one.batch == batch);
            let bytes: u64 = own.map(|one| one.bytes.len() as u64).sum();
            (bytes + size as u64 <= self.limit()).then_some(())
        };
        self.until(admits).await;
    }

    /// Puts one at the end, as a part of a batch. What is larger than all of the room is dropped itself.
    pub(super) fn push(&self, payload: Payload, batch: u64) -> Dropped {
        let size = payload.bytes.len() as u64;
        let mut dropped = Dropped::default();
        let limit = self.limit();
        if size > limit {
            return Dropped { items: payload.items, payloads: 1 };
        }
        let mut state = self.lock();
        while state.bytes + size > limit {
            let sending = state.sending;
            let oldest = state.waiting.iter().position(|one| Some(one.number) != sending);
            let Some(oldest) = oldest.and_then(|place| state.waiting.remove(place)) else {
                dropped.items += payload.items;
                dropped.payloads += 1;
                self.account.set(state.bytes);
                return dropped;
            };
            state.bytes -= oldest.bytes.len() as u64;
            dropped.items += oldest.items;
            dropped.payloads += 1;
        }
        let number = state.next;
        state.next += 1;
        state.bytes += size;
        self.account.set(state.bytes);
        let Payload { bytes, items } = payload;
        state.waiting.push_back(Waiting { number, bytes: bytes.into(), items, batch });
        drop(state);
        self.changed.notify_waiters();
        dropped
    }

    /// The oldest, once there is one, to be sent. It stays until it is [done](Self::done), or [put back](Self::put_back).
    pub(super) async fn oldest(&self) -> Waiting {
        let take_up = |state: &mut State| {
            let oldest = state.waiting.front().cloned()?;
            state.sending = Some(oldest.number);
            Some(oldest)
        };
        self.until(take_up).await
    }

    /// Waits until something is found.
    async fn until<T>(&self, mut find: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on nothing that is put in is missed.
            changed.as_mut().enable();
            let found = find(&mut self.lock());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    /// The one that was being sent waits again, and may have to make room.
    pub(super) fn put_back(&self) {
        self.lock().sending = None;
    }

    /// Takes this one out, if it is still there.
    pub(super) fn done(&self, number: u64) {
        let mut state = self.lock();
        state.sending = None;
        if state.waiting.front().is_some_and(|oldest| oldest.number == number)
            && let Some(payload) = state.waiting.pop_front()
        {
            state.bytes -= payload.bytes.len() as u64;
        }
        self.account.set(state.bytes);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Returns once nothing waits.
    pub(super) async fn emptied(&self) {
        self.until(|state| state.waiting.is_empty().then_some(())).await;
    }

    /// Takes out all that wait, and tells what they were.
    pub(super) fn clear(&self) -> Dropped {
        let mut state = self.lock();
        state.bytes = 0;
        self.account.set(0);
        state.sending = None;
        let waiting = std::mem::take(&mut state.waiting);
        let items = waiting.iter().map(|one| one.items).sum();
        Dropped { items, payloads: waiting.len() as u64 }
    }

    /// How many bytes wait.
    pub(super) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// How many requests wait.
    pub(super) fn len(&self) -> u64 {
        self.lock().waiting.len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::budget::Part;

    fn queue(limit: u64) -> Queue {
        Queue::new(limit, &Share::fixed(Part::Queues, 1 << 30))
    }

    #[test]
    fn all_queues_together_keep_to_their_share_of_memory() {
        let share = Share::fixed(Part::Queues, 10);
        let (one, other) = (Queue::new(100, &share), Queue::new(100, &share));
        assert_eq!(one.push(payload(6, 1), one.new_batch()), Dropped::default());
        assert_eq!(other.push(payload(3, 1), other.new_batch()), Dropped::default());
        assert_eq!((share.used(), one.bytes(), other.bytes()), (9, 6, 3));
        // It makes room among its own, for what the other one holds is not less worth.
        assert_eq!(other.push(payload(4, 1), other.new_batch()), Dropped { items: 1, payloads: 1 });
        assert_eq!(other.push(payload(5, 2), other.new_batch()), Dropped { items: 2, payloads: 1 });
        assert_eq!((share.used(), one.bytes(), other.bytes()), (10, 6, 4));
        one.clear();
        drop(other);
        assert_eq!(share.used(), 0);
    }

    fn payload(bytes: usize, items: u64) -> Payload {
        Payload { bytes: vec![0; bytes], items }
    }

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
    }

    #[test]
    fn the_oldest_makes_room_and_is_counted() {
        let queue = queue(10);
        assert_eq!(queue.push(payload(4, 1), 0), Dropped::default());
        assert_eq!(queue.push(payload(4, 2), 1), Dropped::default());
        assert_eq!(queue.push(payload(7, 3), 2), Dropped { items: 3, payloads: 2 });
        assert_eq!((queue.bytes(), queue.len()), (7, 1));
        assert_eq!(queue.push(payload(11, 4), 3), Dropped { items: 4, payloads: 1 }, "it never fits");
        assert_eq!(queue.bytes(), 7);
    }

    #[test]
    fn what_is_being_sent_makes_no_room_until_it_is_put_back() {
        let queue = queue(10);
        queue.push(payload(6, 1), 0);
        let first = block_on(queue.oldest()).number;
        assert_eq!(queue.push(payload(6, 2), 1), Dropped { items: 2, payloads: 1 });
        queue.done(first);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
        queue.push(payload(6, 3), 2);
        block_on(queue.oldest());
        queue.put_back();
        assert_eq!(queue.push(payload(6, 4), 3), Dropped { items: 3, payloads: 1 });
        let oldest = block_on(queue.oldest());
        assert_eq!((oldest.items, queue.len(), queue.bytes()), (4, 1, 6));
    }

    #[test]
    fn a_batch_that_is_larger_than_the_room_waits_for_itself_to_be_sent() {
        let queue = Arc::new(queue(10));
        block_on(async {
            queue.push(payload(6, 1), 0);
            queue.admits(6, 1).await;
            queue.push(payload(6, 2), 1);
            let waits = Arc::clone(&queue);
            let admitted = tokio::spawn(async move { waits.admits(6, 1).await });
            tokio::task::yield_now().await;
            assert!(!admitted.is_finished());
            let number = queue.oldest().await.number;
            queue.done(number);
            admitted.await.unwrap();
        });
    }

    #[test]
    fn whoever_waits_hears_of_the_first_and_of_the_last() {
        let queue = Arc::new(queue(10));
        block_on(async {
            let waits = Arc::clone(&queue);
            let oldest = tokio::spawn(async move { waits.oldest().await.items });
            tokio::task::yield_now().await;
            queue.push(payload(1, 7), 0);
            assert_eq!(oldest.await.unwrap(), 7);
            let waits = Arc::clone(&queue);
            let emptied = tokio::spawn(async move { waits.emptied().await });
            tokio::task::yield_now().await;
            let number = queue.oldest().await.number;
            queue.done(number);
            emptied.await.unwrap();
        });
    }
}
