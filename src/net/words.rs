//! What strangers say, and what libraries say of them, fit for a log line.

use std::error::Error;

use crate::clean::clean;

/// The longest that is kept of what one says, in bytes.
pub(crate) const TOLD: usize = 300;

/// A text of a stranger, fit for a log line.
pub(crate) fn told(text: &str) -> String {
    clean(text.trim(), TOLD).into_owned()
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
