//! serde's errors with their parts still apart: what was found, what was expected, where, and what to do.

use std::fmt;

use serde::de::{self, Expected, Unexpected};

use crate::config::problem::{all_of, one_of, shown};
use crate::config::yaml::NodeId;
use crate::event::nearest;

/// Why a value was not taken.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The value, or the key; the innermost place that the error passed on its way out.
    pub(super) at: Option<NodeId>,
    /// What is wrong.
    pub(super) message: String,
    /// What to do about it.
    pub(super) hint: Option<String>,
    /// The field that is missing, if that is the reason.
    pub(super) missing: Option<&'static str>,
    /// Whether it is only the consequence of an earlier refusal.
    pub(super) follows_another: bool,
}

impl Refusal {
    pub(super) fn new(message: String, hint: Option<String>) -> Self {
        Self { at: None, message, hint, missing: None, follows_another: false }
    }

    /// A block that would be `text` if there were quotes around it.
    pub(super) fn unquoted(text: &str) -> Self {
        let message = "without quotes YAML takes this for a block, not for a text".to_owned();
        Self::new(message, Some(format!("write \"{}\"", shown(text).trim_matches('`'))))
    }

    /// The same at `node`, unless its place is known already.
    pub(super) fn at(mut self, node: NodeId) -> Self {
        self.at.get_or_insert(node);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    /// What stands behind `"; "` is the hint.
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
            None => format!("what can stand here is {}", all_of(expected)),
        };
        Self::new(format!("there is no setting {}", shown(field)), Some(hint))
    }

    fn missing_field(field: &'static str) -> Self {
        let message = format!("{} is missing", shown(field));
        Self { missing: Some(field), ..Self::new(message, Some(format!("write `{field}: …`"))) }
    }
}

fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

/// What was found, as a part of a sentence.
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
