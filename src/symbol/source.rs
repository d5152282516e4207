//! Files that names are read from. None is held open: each is opened when it is read, or borrowed from whoever holds it
//! open for other reasons.

use std::sync::Arc;

use super::Reason;
use super::identity::Written;
use crate::files::{Files, Opened};
use crate::host::ReadAt;
use crate::probe::Root;
use crate::stack::Module;

/// An open file, or a copy of one in memory.
pub(super) type Reader = Arc<dyn ReadAt + Send + Sync>;

/// Where names are.
#[derive(Debug)]
pub(super) enum Source {
    /// In the module's own file.
    Own(Option<Written>),
    /// In a debug file.
    Beside(Beside),
    /// In memory.
    Copied(Arc<Bytes>),
}

/// A file that belongs to a module, by where it was found.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    pub(super) root: Root,
    pub(super) path: String,
    /// When it was written to last, as it was looked at first.
    pub(super) written: Option<Written>,
}

/// What is in no file, or was inflated.
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
    /// The file, if it is what it was. One that is not open any more, and cannot be opened again, is [`Reason::NoFile`].
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
            Self::Beside(beside) => Ok(beside.open(files)?),
            Self::Copied(bytes) => Ok(Arc::<Bytes>::clone(bytes)),
        }
    }

    /// How much memory it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Own(_) => 0,
            Self::Beside(beside) => beside.path.len(),
            Self::Copied(bytes) => bytes.0.len(),
        }
    }
}

impl Beside {
    /// Opens the file in the root of the process that it was found through, or on the host: that process may have ended, and the
    /// file may belong to the program of others.
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
