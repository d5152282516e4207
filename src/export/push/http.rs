//! HTTP/1.1 to a receiver, for formats whose requests are POSTs.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::header::{self, HeaderMap};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::outcome::Outcome;
use crate::clock::Clock;
use crate::net::USER_AGENT;
use crate::net::tls::{Pem, Tls, nobody};
use crate::net::words::{causes, told};

/// The largest answer that is read, in bytes.
pub(in crate::export) const ANSWER: usize = 1 << 20;

/// Connections to a receiver.
#[derive(Debug)]
pub(in crate::export) struct Http(Client<HttpsConnector<HttpConnector>, Full<Bytes>>);

/// The answer to a request.
#[derive(Debug)]
pub(in crate::export) struct Answer {
    pub(in crate::export) status: StatusCode,
    pub(in crate::export) headers: HeaderMap,
    /// `None` if it is longer than [`ANSWER`].
    pub(in crate::export) body: Option<Bytes>,
}

impl Http {
    /// Prepares connections. They are opened by requests.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    pub(in crate::export) fn new(uri: &Uri, tls: &Tls) -> Result<Self, String> {
        let builder = hyper_rustls::HttpsConnectorBuilder::new();
        let connector = match uri.scheme_str() {
            Some("https") => {
                builder.with_tls_config(Pem::read(tls)?.client()?).https_only().enable_http1().build()
            }
            _ => builder.with_tls_config(nobody()?).https_or_http().enable_http1().build(),
        };
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }

    /// Sends a request and reads the answer.
    ///
    /// # Errors
    /// The outcome of the request if there is no answer.
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
        let request = request.map_err(|error| Outcome::Refused { why: error.to_string() })?;
        let response = self.0.request(request).await.map_err(|error| Outcome::unreachable(causes(&error)))?;
        let (head, body) = response.into_parts();
        let body = match Limited::new(body, ANSWER).collect().await {
            Ok(body) => Some(body.to_bytes()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => None,
            // The receiver may have accepted the request or not. Cumulative sums can be sent twice.
            Err(error) => {
                return Err(Outcome::unreachable(format!("the answer broke off: {}", causes(&*error))));
            }
        };
        Ok(Answer { status: head.status, headers: head.headers, body })
    }
}

impl Answer {
    /// The media type of the body, empty if there is none.
    pub(in crate::export) fn content_type(&self) -> &str {
        self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("")
    }

    /// Describes an answer that is no success; `said` is the explanation of the receiver.
    pub(in crate::export) fn describe(&self, said: &str) -> String {
        match said.trim() {
            "" => format!("it answered {}", self.status),
            said => format!("it answered {}: {}", self.status, told(said)),
        }
    }

    /// Parses `Retry-After`: seconds, or a date.
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
