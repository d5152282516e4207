//! What strangers say, and what libraries say of them, fit for a log line.

use std::error::Error;

use hyper::StatusCode;

use crate::clean::clean;

/// The longest that is kept of what one says, in bytes.
pub(crate) const TOLD: usize = 300;

/// A text of a stranger, fit for a log line.
pub(crate) fn told(text: &str) -> String {
    clean(text.trim(), TOLD).into_owned()
}

/// What a server answered that is no success, with the explanation that it gave.
pub(crate) fn answered(status: StatusCode, said: &str) -> String {
    match &*told(said) {
        "" => format!("it answered {status}"),
        said => format!("it answered {status}: {said}"),
    }
}

/// An error with all that caused it, for the outermost only says that something failed.
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
    told(&text)
}
