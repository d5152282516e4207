//! Environment variables as a value.

use std::collections::BTreeMap;

/// Environment variables. Empty variables are treated as unset, as in the OpenTelemetry specification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    /// Returns the environment of this process, without variables that are not UTF-8.
    pub fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(text).collect()
    }

    /// Returns the value of a variable, unless it is empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
