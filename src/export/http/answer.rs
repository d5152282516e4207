//! Responses before they are sent, and access to request headers.

use std::error::Error;

use hyper::StatusCode;
use hyper::header::{self, AsHeaderName, HeaderMap, HeaderName, HeaderValue};

use super::body::Content;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A response without its [`Account`](super::body::Account).
pub(super) struct Answer {
    pub(super) code: StatusCode,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Content,
}

impl Answer {
    pub(super) fn new(code: StatusCode, content_type: &'static str, content: Content) -> Self {
        Self { code, headers: vec![(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], content }
    }

    /// Creates a text response that ends with a newline, for terminals.
    pub(super) fn text(code: StatusCode, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.push('\n');
        Self::new(code, TEXT, Content::Whole(text.into()))
    }

    pub(super) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// Adds a header with a computed value. Invalid header values are dropped.
    pub(super) fn with_made(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
}

/// Returns the response when `what` could not be encoded, which is logged.
pub(super) fn cannot_encode(what: &'static str, error: &dyn Error) -> Answer {
    tracing::error!(%error, "encoding {what} failed");
    Answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("encoding {what} failed: {error}"))
}

/// Returns the values of a header, without those that are not ASCII.
pub(super) fn values(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}
