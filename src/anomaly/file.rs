//! The file that keeps what was learned. It is replaced as a whole, so a crash leaves the old or the new content.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::saved::{Refusal, SIZE, Saved, decode};
use crate::durable::Unfinished;
use crate::lock;

/// Name of the file.
const NAME: &str = "baselines";

/// Name of the file while it is written.
const UNFINISHED: &str = "baselines.new";

/// Reason why nothing was loaded.
#[derive(Debug, thiserror::Error)]
pub enum Unloaded {
    /// The directory does not exist, or cannot be used.
    #[error("{path}: {error}", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The file cannot be read.
    #[error("{path}: {error}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        error: io::Error,
    },
    /// The file has another content.
    #[error("{path}: {refusal}", path = path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The reason.
        refusal: Refusal,
    },
}

/// The file in a directory.
#[derive(Debug)]
pub struct BaselineFile {
    directory: PathBuf,
    /// Whether the file has a content that this program cannot use. It is not replaced.
    is_refused: bool,
}

impl BaselineFile {
    /// Returns the file of a directory. Nothing is opened.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), is_refused: false }
    }

    fn path(&self) -> PathBuf {
        self.directory.join(NAME)
    }

    /// Returns the baselines of the file; none if there is no file yet.
    ///
    /// # Errors
    /// The reason why the file cannot be used. Then it is left alone until it is removed.
    pub fn load(&mut self, now: u64) -> Result<Vec<Saved>, Unloaded> {
        lock::assert_may_block("reading what was learned");
        let path = self.path();
        let loaded = match content(&path) {
            Ok(content) => decode(&content, now).map_err(|refusal| Unloaded::Refused { path, refusal }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let path = self.directory.clone();
                return match fs::metadata(&path) {
                    Ok(_) => Ok(Vec::new()),
                    Err(error) => Err(Unloaded::Directory { path, error }),
                };
            }
            Err(error) => Err(Unloaded::Unreadable { path, error }),
        };
        self.is_refused = loaded.is_err();
        loaded
    }

    /// Replaces the content of the file. Returns `false` if the file is left alone.
    ///
    /// # Errors
    /// The error of the kernel. The previous content is kept.
    pub fn save(&mut self, content: &[u8]) -> io::Result<bool> {
        lock::assert_may_block("writing what was learned");
        let path = self.path();
        if self.is_refused {
            match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.is_refused = false,
                _ => return Ok(false),
            }
        }
        let mut file = Unfinished::create(&self.directory.join(UNFINISHED))?;
        file.write_all(content)?;
        file.replace(&path)?;
        Ok(true)
    }
}

/// Reads a regular file of a limited size.
fn content(path: &Path) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut content = Vec::new();
    file.take(SIZE as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}
