//! The uploaded profiles, with which others are compared.
//!
//! A file is kept compressed, under a name that its content determines. It is read again for each comparison, because the tables of a profile
//! take ten times the memory of its file.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Bytes;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use crate::budget::{self, Share};
use crate::clock::{Clock, Monotonic};
use crate::lock::Lock;

/// Maximum number of files.
const FILES: usize = 8;

/// How long a file is kept after its last use.
const KEPT: Duration = Duration::from_secs(3600);

/// Number of uploads that are received at the same time.
const UPLOADS: usize = 1;

/// The kept files, the most recently used last.
#[derive(Debug)]
pub(super) struct Baselines {
    kept: Lock<VecDeque<Kept>>,
    /// A permit for each upload that is received at the same time.
    pub(super) uploads: Arc<Semaphore>,
    memory: Share,
}

#[derive(Debug)]
struct Kept {
    name: String,
    file: Bytes,
    used: Monotonic,
    _held: budget::Account,
}

impl Baselines {
    pub(super) fn new(memory: Share) -> Self {
        Self { kept: Lock::default(), uploads: Arc::new(Semaphore::new(UPLOADS)), memory }
    }

    /// Returns the maximum size of all files in bytes: half of the share of the memory.
    fn limit(&self) -> usize {
        usize::try_from(self.memory.limit() / 2).unwrap_or(usize::MAX)
    }

    /// Keeps a file and returns its name. The least recently used files are dropped. Fails if the file is too large.
    pub(super) fn keep(&self, file: Bytes, clock: &Clock) -> Result<String, usize> {
        let limit = self.limit();
        if file.len() > limit {
            return Err(limit);
        }
        let name: String =
            digest(&SHA256, &file).as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let held = self.memory.account();
        held.set(file.len() as u64);
        let mut kept = self.kept.lock();
        kept.retain(|other| other.name != name);
        kept.push_back(Kept { name: name.clone(), file, used: clock.monotonic(), _held: held });
        while kept.len() > FILES || kept.iter().map(|kept| kept.file.len()).sum::<usize>() > limit {
            kept.pop_front();
        }
        Ok(name)
    }

    /// Returns a file by its name.
    pub(super) fn get(&self, name: &str, clock: &Clock) -> Option<Bytes> {
        let now = clock.monotonic();
        let mut kept = self.kept.lock();
        kept.retain(|kept| now.since(kept.used) < KEPT);
        let place = kept.iter().position(|kept| kept.name == name)?;
        let mut found = kept.remove(place)?;
        found.used = now;
        let file = found.file.clone();
        kept.push_back(found);
        Some(file)
    }
}

/// Returns the reason why there is no file of this name.
pub(super) fn missing(name: &str) -> String {
    format!(
        "no uploaded profile {name}: a profile is kept for an hour after its last use, and until other uploads need its memory; upload \
         it again with curl --data-binary @FILE http://localhost:7373/api/v1/baselines"
    )
}

#[cfg(test)]
mod tests;
