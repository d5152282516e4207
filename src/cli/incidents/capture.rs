//! `perf-exporter incidents capture`: requests an incident from a service.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use hyper::Uri;
use serde::Deserialize;

use crate::clean::clean;
use crate::cli::service::ServiceArgs;

/// Maximum size of a response in bytes.
const ANSWER: usize = 1 << 20;

/// Maximum time of the request: the service answers before it writes the evidence.
const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum length of an error of the service in a message, in bytes.
const TEXT: usize = 300;

#[derive(Debug, Args)]
pub(super) struct CaptureArgs {
    /// Why the evidence is wanted. The report contains it.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Cgroup that the incident is about, such as /system.slice/shop.service; the machine by default.
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// Address of the service.
    #[arg(long, value_name = "URL", default_value = "http://localhost:7373")]
    url: Uri,
    #[command(flatten)]
    service: ServiceArgs,
}

/// One incident of the response.
#[derive(Debug, Deserialize)]
struct Outcome {
    incident: Option<String>,
    error: Option<String>,
}

/// Requests the incident, and returns its identifier.
///
/// # Errors
/// If the service does not answer, or begins no incident.
pub(super) fn capture(args: &CaptureArgs) -> anyhow::Result<String> {
    let base = args.url.to_string();
    let uri: Uri = format!("{}/api/v1/incidents", base.trim_end_matches('/')).parse()?;
    let body = serde_json::json!({ "reason": args.reason, "cgroup": args.cgroup }).to_string();
    let answer = args.service.request(&uri, Some(body), ANSWER, PATIENCE);
    let answer = answer.with_context(|| format!("cannot request an incident from {}", args.url))?;
    let outcomes: Vec<Outcome> =
        serde_json::from_slice(&answer).context("the response is not that of a perf-exporter service")?;
    match outcomes.into_iter().next() {
        Some(Outcome { incident: Some(path), .. }) => {
            Ok(path.rsplit('/').next().unwrap_or_default().to_owned())
        }
        Some(Outcome { error: Some(error), .. }) => bail!("no incident began: {}", clean(&error, TEXT)),
        _ => bail!("no incident began: the service keeps no history; set history.for"),
    }
}
