//! Requests to a running service.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bytes::Bytes;
use clap::Args;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Method, Request, Uri};
use tokio::time::timeout;

use crate::host;
use crate::net::error_text::causes;
use crate::net::http::{client, read_answer};
use crate::net::tls::{Tls, Trust};

/// How a service is authenticated, and how this program authenticates itself.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ServiceArgs {
    /// File with a bearer token, if the service requires one.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificates (PEM) that the certificate of an https:// service is checked against.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

impl ServiceArgs {
    /// Sends a request with this JSON, or a GET request, and returns the response.
    ///
    /// # Errors
    /// If there is no response within `patience`, it has more than `limit` bytes, or its status is not a success.
    pub(super) fn request(
        &self,
        uri: &Uri,
        json: Option<String>,
        limit: usize,
        patience: Duration,
    ) -> anyhow::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answered = runtime.block_on(async { timeout(patience, self.send(uri, json, limit)).await });
        answered.unwrap_or_else(|_| Err(anyhow!("no response within {} s", patience.as_secs())))
    }

    async fn send(&self, uri: &Uri, json: Option<String>, limit: usize) -> anyhow::Result<Bytes> {
        let trust = Trust::Files(Tls { ca: self.ca_file.clone(), ..Tls::default() });
        let client = client(uri, || trust.client()).map_err(anyhow::Error::msg)?;
        let mut request = Request::builder().uri(uri).header(USER_AGENT, crate::net::USER_AGENT);
        if json.is_some() {
            request = request.method(Method::POST).header(CONTENT_TYPE, "application/json");
        }
        if let Some(path) = &self.token_file {
            let token = host::read_text(path).with_context(|| path.display().to_string())?;
            request = request.header(AUTHORIZATION, format!("Bearer {}", token.trim()));
        }
        let request = request.body(Full::from(json.unwrap_or_default()))?;
        let response = client.request(request).await.map_err(|error| anyhow!(causes(&error)))?;
        read_answer(response, limit).await.map_err(anyhow::Error::msg)
    }
}
