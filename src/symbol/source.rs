//! Files with symbols. None is held open: each is opened when it is read, or borrowed from a holder that needs it open for other reasons.

use std::sync::Arc;

use super::Reason;
use super::identity::Written;
use crate::files::{Files, Opened};
use crate::host::ReadAt;
use crate::probe::Root;
use crate::probe::debug_file::FoundDebugFile;
use crate::stack::Module;

/// An open file, or a copy of one in memory.
pub(super) type Reader = Arc<dyn ReadAt + Send + Sync>;

/// The location of symbols.
#[derive(Debug)]
pub(super) enum Source {
    /// The module's own file.
    Own(Option<Written>),
    /// A debug file.
    CompanionFile(CompanionFile),
    /// A copy in memory.
    Copied(Arc<Bytes>),
}

/// A file that belongs to a module, by the path where it was found.
#[derive(Debug, Clone)]
pub(super) struct CompanionFile {
    pub(super) root: Root,
    pub(super) path: String,
    /// When it was last written, as of the first access.
    pub(super) written: Option<Written>,
}

impl From<FoundDebugFile> for CompanionFile {
    fn from(FoundDebugFile { root, path, opened }: FoundDebugFile) -> Self {
        Self { root, path, written: Written::of(&opened) }
    }
}

/// Contents that are in no file or were decompressed.
#[derive(Debug)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl ReadAt for Bytes {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        self.0[..].read_at(buffer, offset)
    }

    fn length(&self) -> std::io::Result<u64> {
        Ok(self.0.len() as u64)
    }
}

impl Source {
    /// Opens the file, if it is unchanged. A file that is closed and cannot be opened again is [`Reason::NoFile`].
    pub(super) fn open(&self, module: &Module, files: &Files) -> Result<Reader, Reason> {
        match self {
            Self::Own(written) => {
                let file = module.file.as_ref().map_err(|_| Reason::NoFile)?;
                if Written::of(file) == *written {
                    Ok(Arc::<Opened>::clone(file))
                } else {
                    Err(Reason::Changed)
                }
            }
            Self::CompanionFile(beside) => Ok(beside.open(files)?),
            Self::Copied(bytes) => Ok(Arc::<Bytes>::clone(bytes)),
        }
    }

    /// Returns its memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Own(_) => 0,
            Self::CompanionFile(beside) => beside.path.len(),
            Self::Copied(bytes) => bytes.0.len(),
        }
    }
}

impl CompanionFile {
    /// Opens the file in the root of the process through which it was found, or on the host. That process may have exited, and other
    /// processes may use the file.
    pub(super) fn open(&self, files: &Files) -> Result<Arc<Opened>, Reason> {
        let mut reason = Reason::NoFile;
        for root in [&self.root, &Root::Host] {
            let Ok(opened) = files.open(root, &self.path, None) else { continue };
            if Written::of(&opened) == self.written {
                return Ok(Arc::new(opened));
            }
            reason = Reason::Changed;
        }
        Err(reason)
    }
}
