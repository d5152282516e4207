//! Limits of guesses: wrong passwords and tokens, by peer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::admission::Peer;
use super::rate::TokenBucket;
use crate::clock::Monotonic;
use crate::lock::Lock;

/// Maximum number of guesses of a peer in succession, and the time after which it has another one.
const GUESSES: u32 = 5;
const PER_GUESS: Duration = Duration::from_secs(12);

/// Maximum number of peers whose guesses are counted. A further peer replaces the one that may guess again first.
const PEERS: usize = 1024;

/// The guesses of each peer.
#[derive(Debug, Default)]
pub(super) struct Guesses(Lock<BTreeMap<Peer, TokenBucket>>);

impl Guesses {
    /// Counts a guess of a peer. Returns how long the peer must wait if it has guessed too often.
    pub(super) fn take(&self, peer: Peer, now: Monotonic) -> Option<Duration> {
        let mut guesses = self.0.lock();
        if guesses.len() >= PEERS && !guesses.contains_key(&peer) {
            guesses.retain(|_, bucket| !bucket.is_full(now));
            if guesses.len() >= PEERS {
                let first_to_be_full =
                    guesses.iter().min_by_key(|(_, bucket)| bucket.wait(now)).map(|(&peer, _)| peer);
                first_to_be_full.map(|peer| guesses.remove(&peer));
            }
        }
        let bucket = guesses.entry(peer).or_insert_with(|| TokenBucket::new(PER_GUESS, GUESSES));
        if bucket.take(now) { None } else { Some(bucket.wait(now)) }
    }

    /// Takes back the latest guess, which was right.
    pub(super) fn put_back(&self, peer: Peer) {
        if let Some(bucket) = self.0.lock().get_mut(&peer) {
            bucket.put_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn peer(number: u32) -> Peer {
        Peer::of(Ipv4Addr::from(0x0a00_0000 + number).into())
    }

    #[test]
    fn any_number_of_peers_takes_a_bounded_table() {
        let guesses = Guesses::default();
        let at = |seconds| Monotonic(Duration::from_secs(seconds));
        for number in 0..2000 {
            guesses.take(peer(number), at(0));
        }
        assert_eq!(guesses.0.lock().len(), PEERS);
        guesses.take(peer(5000), at(60));
        assert_eq!(guesses.0.lock().len(), 1, "peers that have waited are forgotten");
    }
}
