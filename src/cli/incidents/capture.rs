//! `perf-exporter incidents capture`: requests an incident from a service.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Request, Uri};
use serde::Deserialize;
use tokio::time::timeout;

use crate::clean::clean;
use crate::host;
use crate::net::error_text::causes;
use crate::net::http::{client, read_answer};
use crate::net::tls::{Tls, Trust};

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
    /// File with a bearer token, if the service requires one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificates (PEM) that the certificate of an https:// service is checked against.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime
        .block_on(async { timeout(PATIENCE, post(args)).await })
        .unwrap_or_else(|_| Err(anyhow!("no response within {} s", PATIENCE.as_secs())))
        .with_context(|| format!("cannot request an incident from {}", args.url))?;
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

async fn post(args: &CaptureArgs) -> anyhow::Result<bytes::Bytes> {
    let base = args.url.to_string();
    let uri: Uri = format!("{}/api/v1/incidents", base.trim_end_matches('/')).parse()?;
    let trust = Trust::Files(Tls { ca: args.ca_file.clone(), ..Tls::default() });
    let client = client(&uri, || trust.client()).map_err(anyhow::Error::msg)?;
    let body = serde_json::json!({ "reason": args.reason, "cgroup": args.cgroup }).to_string();
    let mut request = Request::post(&uri)
        .header(USER_AGENT, crate::net::USER_AGENT)
        .header(CONTENT_TYPE, "application/json");
    if let Some(path) = &args.token_file {
        let token = host::read_text(path)?;
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
    }
    let request = request.body(Full::from(body))?;
    let response = client.request(request).await.map_err(|error| anyhow!(causes(&error)))?;
    read_answer(response, ANSWER).await.map_err(anyhow::Error::msg)
}
