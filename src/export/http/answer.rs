//! Answers before they are sent, and headers of requests.

use hyper::StatusCode;
use hyper::header::{self, AsHeaderName, HeaderMap, HeaderName, HeaderValue};

use super::body::Content;

pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// An answer without its account.
pub(super) struct Answer {
    pub(super) code: StatusCode,
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Content,
}

impl Answer {
    pub(super) fn new(code: StatusCode, content_type: &'static str, content: Content) -> Self {
        Self { code, headers: vec![(header::CONTENT_TYPE, HeaderValue::from_static(content_type))], content }
    }

    /// Text for people, ended by a newline as terminals like it.
    pub(super) fn text(code: StatusCode, mut text: String) -> Self {
        text.push('\n');
        Self::new(code, TEXT, Content::Whole(text.into()))
    }

    pub(super) fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.headers.push((name, HeaderValue::from_static(value)));
        self
    }

    /// The same for a value that was made; one that is no value of a header is left out.
    pub(super) fn with_made(mut self, name: HeaderName, value: &str) -> Self {
        self.headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        self
    }
}

/// The values of a header, those left out that are not ASCII.
pub(super) fn values(headers: &HeaderMap, name: impl AsHeaderName) -> impl Iterator<Item = &str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok())
}
