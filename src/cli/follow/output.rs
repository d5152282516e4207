//! Destination of lines, tables and traces: standard output or a file.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;

/// Name of standard output as a file.
const STDOUT: &str = "-";

/// Destination of what a command shows.
#[derive(Debug)]
pub(in crate::cli) enum Output {
    Standard,
    File(File),
}

impl Output {
    /// Creates the file that an option names. Without the option, or if the file is `-`, the destination is standard output. An existing
    /// file is overwritten.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub(in crate::cli) fn open(option: &str, path: Option<&Path>) -> anyhow::Result<Self> {
        match path.filter(|path| *path != STDOUT) {
            None => Ok(Self::Standard),
            Some(path) => {
                File::create(path).map(Self::File).with_context(|| format!("{option} {}", path.display()))
            }
        }
    }

    /// Writes a text, and flushes it.
    ///
    /// # Errors
    /// If standard output is closed, or the file cannot be written.
    pub(in crate::cli) fn put(&mut self, text: &str) -> io::Result<()> {
        self.write_all(text.as_bytes())?;
        self.flush()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard => io::stdout().write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard => io::stdout().flush(),
            Self::File(file) => file.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dash_is_standard_output_and_another_name_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(Output::open("-o", None), Ok(Output::Standard)));
        assert!(matches!(Output::open("-o", Some(Path::new("-"))), Ok(Output::Standard)));
        let path = dir.path().join("out");
        Output::open("-o", Some(&path)).unwrap().put("a line\n").unwrap();
        assert_eq!(crate::host::read_text(&path).unwrap(), "a line");
        let absent = dir.path().join("absent/out");
        let error = Output::open("--json", Some(&absent)).unwrap_err();
        assert!(format!("{error:#}").starts_with(&format!("--json {}: ", absent.display())), "{error:#}");
    }
}
