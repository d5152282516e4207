//! Passwords of basic authentication.
//!
//! A bcrypt hash takes tens of milliseconds by design. Correct passwords are remembered, so that scrapes do not compute it. Clients that
//! guess are limited by address, and wait for each other: one hash is computed at a time. Clients whose password is remembered do not
//! wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderValue;
use tokio::sync::Semaphore;

use super::RequestCpu;
use super::admission::Peer;
use super::digest::{Digest, Digester};
use super::guesses::Guesses;
use crate::clock::Clock;
use crate::lock::Lock;
use crate::net::server_tls::Secret;

/// Maximum number of remembered passwords.
const REMEMBERED: usize = 100;

/// Maximum number of requests that wait for the computation of a hash.
const WAITING: usize = 16;

/// Outcome of the check of a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Login {
    /// The password of this user.
    Of(Arc<str>),
    /// The request has no password.
    Missing,
    /// The user does not exist, or has another password.
    Wrong,
    /// The peer has sent too many wrong passwords. It may try again after this number of seconds.
    Limited(u64),
    /// Too many requests wait for the check of their password.
    Busy,
}

/// Users with their passwords.
#[derive(Debug)]
pub(super) struct Users {
    hashes: BTreeMap<Arc<str>, Secret>,
    /// Compared with the password of an unknown user, so that the time of the response does not show which users exist.
    decoy: Secret,
    digester: Digester,
    /// Digests of correct passwords.
    remembered: Lock<BTreeSet<Digest>>,
    guesses: Guesses,
    waiting: Arc<Semaphore>,
    hashing: Arc<Semaphore>,
}

impl Users {
    /// Creates users; `None` if there are none.
    pub(super) fn new(hashes: &BTreeMap<String, Secret>) -> Option<Self> {
        let decoy = hashes.values().next()?.clone();
        let hashes = hashes.iter().map(|(user, hash)| (user.as_str().into(), hash.clone())).collect();
        let [waiting, hashing] = [WAITING, 1].map(|permits| Arc::new(Semaphore::new(permits)));
        Some(Self {
            hashes,
            decoy,
            digester: Digester::new(),
            remembered: Lock::default(),
            guesses: Guesses::default(),
            waiting,
            hashing,
        })
    }

    /// Checks the header `Authorization` of a request. A hash is computed at the priority of ordinary processes.
    pub(super) async fn check(
        self: &Arc<Self>,
        header: Option<&HeaderValue>,
        peer: Peer,
        clock: &Clock,
        cpu: &RequestCpu,
    ) -> Login {
        let Some((user, password)) = header.and_then(credentials) else { return Login::Missing };
        let digest = self.digester.digest([user.as_bytes(), &password]);
        let known = self.hashes.get_key_value(user.as_str());
        if let Some((user, _)) = known
            && self.remembered.lock().contains(&digest)
        {
            return Login::Of(Arc::clone(user));
        }
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else { return Login::Busy };
        if let Some(wait) = self.guesses.take(peer, clock.monotonic()) {
            return Login::Limited(wait.as_secs() + 1);
        }
        let Ok(turn) = Arc::clone(&self.hashing).acquire_owned().await else { return Login::Busy };
        let hash = known.map_or(&self.decoy, |(_, hash)| hash).0.clone();
        let cpu = cpu.clone();
        let checked = tokio::task::spawn_blocking(move || {
            let verify = || bcrypt::verify(password, &hash).unwrap_or(false);
            let is_right = cpu.count_at_normal_priority(verify);
            drop((place, turn));
            is_right
        });
        match (checked.await, known) {
            (Ok(true), Some((user, _))) => {
                self.remember(digest);
                self.guesses.put_back(peer);
                Login::Of(Arc::clone(user))
            }
            _ => Login::Wrong,
        }
    }

    fn remember(&self, digest: Digest) {
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(digest);
    }
}

/// Returns user and password of `Basic BASE64`.
fn credentials(header: &HeaderValue) -> Option<(String, Vec<u8>)> {
    let (scheme, encoded) = header.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|&byte| byte == b':')?;
    let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
    Some((user, decoded[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests;
