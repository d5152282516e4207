//! Pages, images and other outputs that are rendered whole, before they are sent.

use std::io;
use std::sync::Arc;

use hyper::StatusCode;
use hyper::header;
use tokio::sync::Semaphore;

use super::answer::{Answer, cannot_encode};
use super::body::Content;
use super::cpu::RequestCpu;
use super::shared::run_blocking;
use crate::export::flamegraph;
use crate::export::gzip::gzip;

/// Minimum size of a response that is compressed, in bytes.
const WORTH_COMPRESSING: usize = 1 << 10;

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";

/// Policy of standalone images: allows inline scripts and forbids loading resources.
const PICTURE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                              base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Answer {
    /// Creates a response of a whole output.
    pub(super) fn rendered(content_type: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        let content = Content::Whole(bytes.into().into());
        Self::new(StatusCode::OK, content_type, content).with(header::VARY, "Accept-Encoding")
    }

    /// Creates a response with a page. Its scripts need this nonce. They may send requests to this server only.
    pub(super) fn page(html: String, nonce: &str) -> Self {
        let policy = format!(
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
             base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        );
        Self::rendered(HTML, html).with_made(header::CONTENT_SECURITY_POLICY, &policy)
    }

    /// Creates a response with a standalone image.
    pub(super) fn picture(svg: String) -> Self {
        Self::rendered(flamegraph::CONTENT_TYPE, svg).with(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY)
    }

    /// Compresses the output, if the client accepts that and it is large enough.
    pub(super) fn compressed(self, is_accepted: bool) -> io::Result<Self> {
        match &self.content {
            Content::Whole(bytes) if is_accepted && bytes.len() >= WORTH_COMPRESSING => {
                let content = Content::Whole(gzip(bytes)?.into());
                Ok(Self { content, ..self }.with(header::CONTENT_ENCODING, "gzip"))
            }
            _ => Ok(self),
        }
    }
}

/// Renders a response on a blocking thread, once a permit is available. `what` is rendered, for messages.
pub(super) async fn render(
    permits: &Arc<Semaphore>,
    cpu: &RequestCpu,
    what: &'static str,
    make: impl FnOnce() -> io::Result<Answer> + Send + 'static,
) -> Answer {
    match run_blocking(permits, cpu, make).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) | Err(error) => cannot_encode(what, &error),
    }
}
