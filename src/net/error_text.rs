//! Error texts of servers and libraries, sanitized for log lines.

use std::error::Error;

use hyper::StatusCode;

use crate::clean::clean;

/// Maximum length of an untrusted text in bytes.
pub(crate) const MESSAGE_LIMIT: usize = 300;

/// Sanitizes and truncates an untrusted text for a log line.
pub(crate) fn sanitized(text: &str) -> String {
    clean(text.trim(), MESSAGE_LIMIT).into_owned()
}

/// Formats an unsuccessful HTTP status with the explanation of the server.
pub(crate) fn answered(status: StatusCode, said: &str) -> String {
    match &*sanitized(said) {
        "" => format!("the server returned {status}"),
        said => format!("the server returned {status}: {said}"),
    }
}

/// Formats an error with all of its causes.
pub(crate) fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    sanitized(&text)
}
