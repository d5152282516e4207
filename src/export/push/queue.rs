//! A queue of requests in order, with a limit in bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::Notify;

use super::payload::Payload;
use crate::budget::{Account, Share};
use crate::lock::Lock;

/// Payloads in order of arrival. When the queue is full, the oldest payload is dropped: new data is more valuable, and cumulative sums
/// supersede older ones.
#[derive(Debug)]
pub(super) struct Queue {
    limit: u64,
    /// Accounting in the memory share of all queues.
    account: Account,
    state: Lock<State>,
    /// Notified when a payload was added, or the last one was removed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: u64,
    /// The payload that is being sent. It is not dropped, because the receiver may be accepting it.
    sending: Option<u64>,
    /// The number of the next payload.
    next: u64,
    batches: u64,
}

/// A queued request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Unique number.
    pub(super) number: u64,
    /// The body, shared by copies.
    pub(super) bytes: Bytes,
    /// Number of data points, samples or log records in it.
    pub(super) items: u64,
    /// Batch to which the request belongs.
    batch: u64,
}

/// Dropped requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Dropped {
    /// Number of data points, samples or log records.
    pub(super) items: u64,
    /// Number of requests.
    pub(super) payloads: u64,
}

impl Queue {
    /// Creates an empty queue. `limit` is in bytes; all queues together are limited by `memory`.
    pub(super) fn new(limit: u64, memory: &Share) -> Self {
        Self { limit, account: memory.account(), state: Lock::default(), changed: Notify::new() }
    }

    /// Returns the current limit in bytes.
    fn limit(&self) -> u64 {
        self.limit.min(self.account.room())
    }

    /// Returns a number for a batch of payloads.
    pub(super) fn new_batch(&self) -> u64 {
        let mut state = self.state.lock();
        state.batches += 1;
        state.batches
    }

    /// Completes once a payload of this size can be added without dropping another one of its batch.
    pub(super) async fn admits(&self, size: usize, batch: u64) {
        let admits = |state: &mut State| {
            let own = state.waiting.iter().filter(|one| one.batch == batch);
            let bytes: u64 = own.map(|one| one.bytes.len() as u64).sum();
            (bytes + size as u64 <= self.limit()).then_some(())
        };
        self.until(admits).await;
    }

    /// Appends a payload as part of a batch. A payload that exceeds the limit of the queue is dropped itself.
    pub(super) fn push(&self, payload: Payload, batch: u64) -> Dropped {
        let size = payload.bytes.len() as u64;
        let mut dropped = Dropped::default();
        let limit = self.limit();
        if size > limit {
            return Dropped { items: payload.items, payloads: 1 };
        }
        let mut state = self.state.lock();
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

    /// Waits for the oldest payload and marks it as being sent. It remains queued until it is [done](Self::done) or [put
    /// back](Self::put_back).
    pub(super) async fn oldest(&self) -> Waiting {
        let take_up = |state: &mut State| {
            let oldest = state.waiting.front().cloned()?;
            state.sending = Some(oldest.number);
            Some(oldest)
        };
        self.until(take_up).await
    }

    /// Waits until `find` returns a value.
    async fn until<T>(&self, mut find: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on no addition is missed.
            changed.as_mut().enable();
            let found = find(&mut self.state.lock());
            if let Some(found) = found {
                return found;
            }
            changed.await;
        }
    }

    /// Marks the payload that was being sent as queued, so that it may be dropped.
    pub(super) fn put_back(&self) {
        self.state.lock().sending = None;
    }

    /// Removes a payload if it is still queued.
    pub(super) fn done(&self, number: u64) {
        let mut state = self.state.lock();
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

    /// Completes once the queue is empty.
    pub(super) async fn emptied(&self) {
        self.until(|state| state.waiting.is_empty().then_some(())).await;
    }

    /// Removes all queued payloads and returns their counts.
    pub(super) fn clear(&self) -> Dropped {
        let mut state = self.state.lock();
        state.bytes = 0;
        self.account.set(0);
        state.sending = None;
        let waiting = std::mem::take(&mut state.waiting);
        let items = waiting.iter().map(|one| one.items).sum();
        Dropped { items, payloads: waiting.len() as u64 }
    }

    /// Returns the number of queued bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }

    /// Returns the number of queued requests.
    pub(super) fn len(&self) -> u64 {
        self.state.lock().waiting.len() as u64
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
        // The queue drops its own payloads only: those of the other queue are of equal value.
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
