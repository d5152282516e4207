//! Pages, images and other outputs that are rendered whole, before they are sent.

use std::io;

use hyper::StatusCode;
use hyper::header;

use super::answer::Answer;
use super::body::Content;
use crate::export::flamegraph;
use crate::export::gzip::gzip;

/// Minimum size of a response that is compressed, in bytes.
const WORTH_COMPRESSING: usize = 1 << 10;

pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const JSON: &str = "application/json";

/// Policy of standalone images: allows inline scripts and forbids loading resources.
const PICTURE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                              base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A rendered output.
pub(super) struct Rendered {
    code: StatusCode,
    content_type: &'static str,
    bytes: Vec<u8>,
    compressed: bool,
    /// File name for downloads.
    file: Option<String>,
}

impl Rendered {
    pub(super) fn new(content_type: &'static str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { code: StatusCode::OK, content_type, bytes: bytes.into(), compressed: false, file: None }
    }

    /// Sets the status code.
    pub(super) fn with_code(self, code: StatusCode) -> Self {
        Self { code, ..self }
    }

    /// Sets the name of the file that a browser saves.
    pub(super) fn with_file(self, name: String) -> Self {
        Self { file: Some(name), ..self }
    }

    /// Compresses the output, if the client accepts that and it is large enough.
    pub(super) fn compressed(self, is_accepted: bool) -> io::Result<Self> {
        if !is_accepted || self.bytes.len() < WORTH_COMPRESSING {
            return Ok(self);
        }
        Ok(Self { bytes: gzip(&self.bytes)?, compressed: true, ..self })
    }

    /// Returns the response. Scripts of a page need this nonce. They may send requests to this server only.
    pub(super) fn answer(self, nonce: &str) -> Answer {
        let mut answer = Answer::new(self.code, self.content_type, Content::Whole(self.bytes.into()));
        match self.content_type {
            HTML => {
                let policy = format!(
                    "default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:; \
                     base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
                );
                answer = answer.with_made(header::CONTENT_SECURITY_POLICY, &policy);
            }
            flamegraph::CONTENT_TYPE => {
                answer = answer.with(header::CONTENT_SECURITY_POLICY, PICTURE_POLICY);
            }
            _ => {}
        }
        if let Some(file) = self.file {
            let value = format!("attachment; filename=\"{file}\"");
            answer = answer.with_made(header::CONTENT_DISPOSITION, &value);
        }
        if self.compressed {
            answer = answer.with(header::CONTENT_ENCODING, "gzip");
        }
        answer.with(header::VARY, "Accept-Encoding")
    }
}
