//! Values of HTTP headers.

use schemars::{Schema, json_schema};

use super::{Refused, Scalar, scalar};

/// Value of a header: a text or a number.
#[derive(Debug)]
pub(in crate::config) struct HeaderText(pub(in crate::config) String);

impl Scalar for HeaderText {
    const NAME: &'static str = "HeaderText";
    const INLINE: bool = true;
    const EXPECTED: &'static str = "the value of a header";

    fn of_text(text: &str) -> Result<Self, Refused> {
        Ok(Self(text.to_owned()))
    }

    fn of_number(number: u64) -> Result<Self, Refused> {
        Ok(Self(number.to_string()))
    }

    fn schema() -> Schema {
        json_schema!({ "type": ["string", "integer"] })
    }
}

scalar!(HeaderText);
