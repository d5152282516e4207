//! Whether a file is still what it was when it was looked at.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Weak};

use crate::probe::root::Opened;
use crate::stack::Module;

/// By what a file is told from what it was before somebody wrote into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

impl Written {
    pub(super) fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec(), size: metadata.size() })
    }
}

/// By what a module is told from another that has got its number.
#[derive(Debug)]
pub(super) struct Identity {
    path: Arc<str>,
    file: Option<Weak<Opened>>,
}

impl Identity {
    pub(super) fn of(module: &Module) -> Self {
        let file = module.file.as_ref().ok().map(Arc::downgrade);
        Self { path: Arc::clone(&module.path), file }
    }

    pub(super) fn is(&self, module: &Module) -> bool {
        let same_file = match (&self.file, &module.file) {
            (Some(held), Ok(file)) => std::ptr::eq(held.as_ptr(), Arc::as_ptr(file)),
            (None, Err(_)) => true,
            _ => false,
        };
        same_file && self.path == module.path
    }
}
