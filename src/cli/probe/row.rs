//! A variable that `probe --vars` shows.

use serde::Serialize;

/// A variable.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// Expression for the variable.
    pub(super) variable: String,
    /// Type: in C, or in assembler syntax.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// Whether the variable is available when the function returns, not when it begins.
    pub(super) at_return: bool,
    /// Fetch argument for the kernel: `FETCH[:TYPE]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<String>,
    /// Reason why the variable cannot be fetched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Where the variable has a value, relative to the function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range: Option<String>,
}
