//! Uploaded profiles, with which others are compared: `POST /api/v1/baselines`.
//!
//! A file is checked when it arrives, and kept compressed, under a name that its content determines. It is read again for each comparison,
//! because the tables of a profile take ten times the memory of its file.

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::StatusCode;
use hyper::body::{Body, Bytes};
use ring::digest::{SHA256, digest};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::Source;
use super::access::Client;
use super::answer::{Answer, cannot_encode};
use super::body::Content;
use super::profiles::Refused;
use super::shared::{Shared, run_blocking};
use crate::budget::{self, Share};
use crate::clock::{Clock, Monotonic};
use crate::export::gzip::gzip;
use crate::lock::Lock;
use crate::profile::Profile;
use crate::recording;

/// Maximum number of files.
const FILES: usize = 8;

/// How long a file is kept after its last use.
const KEPT: Duration = Duration::from_secs(3600);

/// Time for the arrival of a file.
const ARRIVAL: Duration = Duration::from_secs(20);

/// Maximum size of an upload in bytes. A file is compressed before it is kept.
const UPLOAD: usize = 8 << 20;

/// Number of uploads that are received at the same time.
const UPLOADS: usize = 1;

/// The kept files, the most recently used last.
#[derive(Debug)]
pub(super) struct Baselines {
    kept: Lock<VecDeque<Kept>>,
    uploads: Arc<Semaphore>,
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
    fn keep(&self, file: Bytes, clock: &Clock) -> Result<String, usize> {
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
pub(super) fn missing(name: &str) -> Refused {
    let sentence = format!(
        "no uploaded profile {name}: a profile is kept for an hour after its last use, and until other uploads need its memory; upload \
         it again with curl --data-binary @FILE http://localhost:7373/api/v1/baselines"
    );
    Refused::new(StatusCode::NOT_FOUND, sentence)
}

/// The response to an upload.
#[derive(Debug, Serialize)]
struct Uploaded {
    /// Value of the key `base`.
    base: String,
    /// Number of samples in the file.
    samples: u64,
    /// Sum of the values.
    total: u64,
    /// Unit of the values.
    unit: &'static str,
    /// A comparison with the file.
    flamegraph: String,
}

/// Answers an upload.
pub(super) async fn upload<S: Source, B: Body<Error: Into<Box<dyn Error + Send + Sync>>>>(
    shared: &Arc<Shared<S>>,
    client: &Client,
    user: Option<&str>,
    body: B,
) -> Answer {
    let Ok(_permit) = shared.baselines.uploads.try_acquire() else {
        return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "another upload is in progress".to_owned())
            .with(hyper::header::RETRY_AFTER, "5");
    };
    let file = match timeout(ARRIVAL, Limited::new(body, UPLOAD).collect()).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => return too_large(UPLOAD, "bytes"),
        Err(_) => {
            let text = format!("the upload did not end within {ARRIVAL:?}");
            return Answer::text(StatusCode::REQUEST_TIMEOUT, text);
        }
    };
    let (own, clock) = (Arc::clone(shared), shared.clock.clone());
    let kept = run_blocking(&shared.encoded, shared.traffic.cpu(), move || {
        let profile = recording::read(&file).map_err(|error| {
            Answer::text(StatusCode::BAD_REQUEST, format!("{error}; pprof and folded stacks are read"))
        })?;
        let compressed = match recording::is_compressed(&file) {
            true => file,
            false => gzip(&file).map_err(|error| cannot_encode("the file", &error))?.into(),
        };
        let name = own
            .baselines
            .keep(compressed, &clock)
            .map_err(|limit| too_large(limit, "bytes after compression: set limits.memory higher"))?;
        Ok::<_, Answer>((name, profile))
    });
    let (base, profile) = match kept.await {
        Ok(Ok(kept)) => kept,
        Ok(Err(answer)) => return answer,
        Err(error) => return cannot_encode("the file", &error),
    };
    tracing::info!(peer = %client, user, base, samples = profile.taken(), "profile uploaded for comparisons");
    created(base, &profile)
}

fn created(base: String, profile: &Profile) -> Answer {
    let flamegraph = format!("/flamegraph?base={base}");
    let (samples, total, unit) = (profile.taken(), profile.total(), profile.kind.value.unit.as_str());
    match serde_json::to_vec_pretty(&Uploaded { base, samples, total, unit, flamegraph }) {
        Ok(json) => Answer::new(StatusCode::CREATED, "application/json", Content::Whole(json.into())),
        Err(error) => cannot_encode("the response", &error),
    }
}

fn too_large(limit: usize, what: &str) -> Answer {
    let text = format!("the file is too large: the maximum is {limit} {what}");
    Answer::text(StatusCode::PAYLOAD_TOO_LARGE, text)
}

#[cfg(test)]
mod tests;
