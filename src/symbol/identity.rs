//! Whether a file is still what it was when it was looked at.

use std::sync::{Arc, Weak};

use crate::files::Opened;
use crate::stack::{BuildId, Module};

/// By what a file is told from what it was before somebody wrote into it.
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

/// By what a module is told from another that has got its number. It does not hold the file open.
#[derive(Debug)]
pub(super) struct Identity {
    path: Arc<str>,
    build_id: Option<BuildId>,
    file: Option<Weak<Opened>>,
    /// When it was written to last, as it was looked at first.
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

    /// Whether the module is the same. A file that was closed meanwhile, or closed and opened again, is.
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

    /// When the file was written to last, as it was looked at first.
    pub(super) fn written(&self) -> Option<Written> {
        self.written
    }
}
