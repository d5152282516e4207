//! HTTP/1.1 connections to a receiver, for formats whose requests are POSTs.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode, Uri};

use super::outcome::Outcome;
use crate::clock::Clock;
use crate::net::USER_AGENT;
use crate::net::error_text::{answered, causes};
use crate::net::http::{Client, client};
use crate::net::tls::{Pem, Tls};

/// Maximum size of a response, in bytes.
pub(in crate::export) const ANSWER: usize = 1 << 20;

/// Connections to a receiver.
#[derive(Debug)]
pub(in crate::export) struct Http(Client);

/// The response to a request.
#[derive(Debug)]
pub(in crate::export) struct Answer {
    pub(in crate::export) status: StatusCode,
    pub(in crate::export) headers: HeaderMap,
    /// `None` if the body is longer than [`ANSWER`].
    pub(in crate::export) body: Option<Bytes>,
}

impl Http {
    /// Prepares connections. Requests open them.
    ///
    /// # Errors
    /// Returns an error that describes the problem with the certificates.
    pub(in crate::export) fn new(uri: &Uri, tls: &Tls) -> Result<Self, String> {
        Ok(Self(client(uri, || Pem::read(tls)?.client())?))
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// Returns the outcome of the request if there is no response.
    pub(in crate::export) async fn post<'h>(
        &self,
        uri: &Uri,
        headers: impl IntoIterator<Item = (&'h str, &'h str)>,
        body: Bytes,
    ) -> Result<Answer, Outcome> {
        let mut request =
            Request::builder().method(Method::POST).uri(uri.clone()).header(header::USER_AGENT, USER_AGENT);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body));
        let request = request.map_err(|error| Outcome::Rejected { why: error.to_string() })?;
        let response = self.0.request(request).await.map_err(|error| Outcome::unreachable(causes(&error)))?;
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, ANSWER).collect().await {
            Ok(body) => Some(body.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
            // The receiver may have accepted the request. Sending cumulative sums twice is harmless.
            Err(error) => {
                return Err(Outcome::unreachable(format!("the response is incomplete: {}", causes(&*error))));
            }
        };
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

impl Answer {
    /// Returns the media type of the body, empty if absent.
    pub(in crate::export) fn content_type(&self) -> &str {
        self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// Evaluates an unsuccessful response. `said` is the receiver's explanation. The hints are for requests with wrong credentials and for
    /// requests to a wrong path.
    pub(in crate::export) fn judge(
        &self,
        said: &str,
        again: bool,
        hints: [&str; 2],
        clock: &Clock,
    ) -> Outcome {
        let why = answered(self.status, said);
        let [credentials, path] = hints;
        let hint = match self.status.as_u16() {
            _ if again => return Outcome::Again { after: self.retry_after(clock), why, reconnect: false },
            300..=399 => "; set the endpoint to the redirect target",
            401 | 403 => credentials,
            404 => path,
            _ => "",
        };
        Outcome::Rejected { why: why + hint }
    }

    /// Parses `Retry-After`: seconds or a date.
    pub(in crate::export) fn retry_after(&self, clock: &Clock) -> Option<Duration> {
        let text = self.headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse::<u64>() {
            return Some(Duration::from_secs(seconds));
        }
        let at = httpdate::parse_http_date(text).ok()?;
        let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
        Some(at.saturating_sub(Duration::from_millis(clock.now().0)))
    }
}
