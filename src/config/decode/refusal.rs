//! Structured deserialization errors: the found and the expected value, the position, and a hint.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use crate::config::problem::{all_of, one_of, shown};
use crate::config::yaml::NodeId;
use crate::event::nearest;

/// Reason why a value was rejected.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Refusal {
    /// Value or key: the innermost node that the error passed.
    pub(super) at: Option<NodeId>,
    /// Description of the problem.
    pub(super) message: String,
    /// Suggested correction.
    pub(super) hint: Option<String>,
    /// Missing field, if that is the reason.
    pub(super) missing: Option<&'static str>,
    /// Whether the error is only the consequence of an earlier one.
    pub(super) follows_another: bool,
}

impl Refusal {
    pub(super) fn new(message: String, hint: Option<String>) -> Self {
        Self { at: None, message, hint, missing: None, follows_another: false }
    }

    /// Creates the error for a block that would be `text` with quotes.
    pub(super) fn unquoted(text: &str) -> Self {
        let message = "without quotes, YAML parses this as a block, not as a text".to_owned();
        Self::new(message, Some(format!("write \"{}\"", shown(text).trim_matches('`'))))
    }

    /// Sets the position to `node`, unless it is already set.
    pub(super) fn at(mut self, node: NodeId) -> Self {
        self.at.get_or_insert(node);
        self
    }
}

impl de::Error for Refusal {
    /// The text after `"; "` becomes the hint.
    fn custom<T: fmt::Display>(message: T) -> Self {
        let text = message.to_string();
        match text.split_once("; ") {
            Some((message, hint)) => Self::new(message.into(), Some(hint.into())),
            None => Self::new(text, None),
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {}", found_words(found)), None)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let message = format!("expected {}, found {}", one_of(expected), shown(variant));
        Self::new(message, nearest(variant, expected.iter().copied()).map(did_you_mean))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let hint = match nearest(field, expected.iter().copied()) {
            Some(near) => did_you_mean(near),
            None => format!("valid settings are {}", all_of(expected)),
        };
        Self::new(format!("unknown setting {}", shown(field)), Some(hint))
    }

    fn missing_field(field: &'static str) -> Self {
        let message = format!("{} is missing", shown(field));
        Self { missing: Some(field), ..Self::new(message, Some(format!("write `{field}: …`"))) }
    }
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

/// Describes the found value as part of a sentence.
pub(super) fn found_words(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(number) => format!("the number {number}"),
        Unexpected::Signed(number) => format!("the number {number}"),
        Unexpected::Float(number) => format!("the number {number:?}"),
        Unexpected::Str(text) => format!("the text {}", shown(text)),
        Unexpected::Unit | Unexpected::Option => "nothing".into(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a block".into(),
        other => other.to_string(),
    }
}
