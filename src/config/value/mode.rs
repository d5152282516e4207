//! Permissions of a file.

use schemars::{Schema, json_schema};

use super::scalar::{Refused, Scalar, scalar};

/// Permissions of a file as an octal number: `0660`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct FileMode(pub(in crate::config) u32);

impl Scalar for FileMode {
    const NAME: &'static str = "FileMode";
    const INLINE: bool = true;
    const EXPECTED: &'static str = "permissions of a file in quotes, such as `\"0660\"`";

    fn of_text(text: &str) -> Result<Self, Refused> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|&mode| mode <= 0o777);
        mode.map(Self).ok_or(Refused::Value)
    }

    fn of_number(number: u64) -> Result<Self, Refused> {
        // In YAML 1.1, `0660` is an octal number; in YAML 1.2, a decimal one.
        Err(Refused::Because(format!(
            "the number {number} is ambiguous without quotes; write `\"0{number}\"`"
        )))
    }

    fn schema() -> Schema {
        json_schema!({
            "description": "Permissions of a file as an octal number in quotes.",
            "type": "string",
            "pattern": "^0?[0-7]{1,3}$",
        })
    }
}

scalar!(FileMode);
