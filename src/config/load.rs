//! From a path to a configuration.

use std::path::Path;

use super::memory::TooLittle;
use super::{Config, Problem, Problems, load};
use crate::error::FileError;
use crate::host::read_at_most;

/// What a configuration file may hold, in bytes.
const FILE_LIMIT: u64 = 1 << 20;

/// Why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("the configuration cannot be read: {0}")]
    Unreadable(FileError),
    /// It can, and is wrong.
    #[error("the configuration cannot be used:\n{0}")]
    Wrong(Problems),
    /// It asks for less memory than this machine takes.
    #[error(transparent)]
    Memory(TooLittle),
}

impl LoadError {
    /// What is wrong, a line each.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Unreadable(error) => vec![error.to_string()],
            Self::Wrong(problems) => problems.0.iter().map(ToString::to_string).collect(),
            Self::Memory(error) => vec![error.to_string()],
        }
    }
}

/// Reads the configuration of `path`, or the built-in one. The problems beside it are warnings.
///
/// # Errors
/// When the file cannot be read, or every problem that it has.
pub fn load_file(path: Option<&Path>) -> Result<(Config, Vec<Problem>), LoadError> {
    let Some(path) = path else { return Ok((Config::default(), Vec::new())) };
    let text = read_at_most(path, FILE_LIMIT).map_err(LoadError::Unreadable)?;
    load(&text, &path.display().to_string()).map_err(LoadError::Wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = load_file(Some(Path::new("/nonexistent/x.yaml"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the configuration cannot be read: /nonexistent/x.yaml: ENOENT: No such file or directory"
        );
    }

    #[test]
    fn without_a_file_the_built_in_configuration_holds() {
        assert_eq!(load_file(None).unwrap(), (Config::default(), Vec::new()));
    }
}
