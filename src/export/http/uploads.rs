//! `POST /api/v1/baselines`: uploads of profiles, with which others are compared. A file is checked when it arrives.

use std::error::Error;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Limited};
use hyper::StatusCode;
use hyper::body::Body;
use serde::Serialize;
use tokio::time::timeout;

use super::Source;
use super::access::Client;
use super::answer::{Answer, cannot_encode};
use super::rendered::JSON;
use super::shared::{Shared, run_blocking};
use crate::export::gzip::gzip;
use crate::profile::Profile;
use crate::recording;

/// Maximum size of an upload in bytes. A file is compressed before it is kept.
const UPLOAD: usize = 8 << 20;

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
        return Answer::text(StatusCode::SERVICE_UNAVAILABLE, "another upload is in progress")
            .with(hyper::header::RETRY_AFTER, "5");
    };
    let file = match timeout(shared.limits.upload, Limited::new(body, UPLOAD).collect()).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(_)) => return too_large(UPLOAD, "bytes"),
        Err(_) => {
            let text = format!("the upload did not end within {:?}", shared.limits.upload);
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
    tracing::info!(
        name: "perf_exporter.profile.uploaded",
        peer = %client,
        user,
        base,
        samples = profile.taken(),
        "profile uploaded for comparisons"
    );
    created(base, &profile)
}

fn created(base: String, profile: &Profile) -> Answer {
    let flamegraph = format!("/flamegraph?base={base}");
    let (samples, total, unit) = (profile.taken(), profile.total(), profile.kind.value.unit.as_str());
    match serde_json::to_vec_pretty(&Uploaded { base, samples, total, unit, flamegraph }) {
        Ok(json) => Answer { code: StatusCode::CREATED, ..Answer::rendered(JSON, json) },
        Err(error) => cannot_encode("the response", &error),
    }
}

fn too_large(limit: usize, what: &str) -> Answer {
    let text = format!("the file is too large: the maximum is {limit} {what}");
    Answer::text(StatusCode::PAYLOAD_TOO_LARGE, text)
}

#[cfg(test)]
mod tests;
