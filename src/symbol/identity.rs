//! Detection of files that changed after the first access.

use std::sync::{Arc, Weak};

use crate::files::Opened;
use crate::stack::{BuildId, Module};

/// The state of a file that changes when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    modified: (i64, i64),
    size: u64,
}

impl Written {
    pub(super) fn of(opened: &Opened) -> Option<Self> {
        let stat = opened.file.stat().ok()?;
        Some(Self { modified: stat.modified, size: stat.size })
    }
}

/// Distinguishes a module from a later one with the same number. It does not hold the file open.
#[derive(Debug)]
pub(super) struct Identity {
    path: Arc<str>,
    build_id: Option<BuildId>,
    file: Option<Weak<Opened>>,
    /// When the file was last written, as of the first access.
    written: Option<Written>,
}

impl Identity {
    pub(super) fn of(module: &Module) -> Self {
        let file = module.file.as_ref().ok();
        Self {
            path: Arc::clone(&module.path),
            build_id: module.build_id.clone(),
            written: file.and_then(|file| Written::of(file)),
            file: file.map(Arc::downgrade),
        }
    }

    /// Reports whether the module is the same. A file that was closed, or closed and opened again, is the same.
    pub(super) fn is(&mut self, module: &Module) -> bool {
        if self.path != module.path || (self.build_id.is_some() && self.build_id != module.build_id) {
            return false;
        }
        match (&self.file, &module.file) {
            (_, Err(_)) => true,
            (None, Ok(_)) => false,
            (Some(held), Ok(file)) if std::ptr::eq(held.as_ptr(), Arc::as_ptr(file)) => true,
            (Some(_), Ok(file)) => {
                let is_same = self.written.is_some() && Written::of(file) == self.written;
                self.file = Some(Arc::downgrade(file));
                is_same
            }
        }
    }

    /// Returns when the file was last written, as of the first access.
    pub(super) fn written(&self) -> Option<Written> {
        self.written
    }
}
