//! The host, as the commands use it.

use super::{Failure, Subject, Target};
use crate::clock::Clock;
use crate::event::Catalog;
use crate::host::{Facts, Roots};

/// The host: kernel, file systems, event catalog and clock.
#[derive(Debug)]
pub(in crate::cli) struct Host<'a, K> {
    pub(in crate::cli) kernel: &'a K,
    pub(in crate::cli) roots: &'a Roots,
    pub(in crate::cli) catalog: Catalog,
    pub(in crate::cli) clock: Clock,
}

impl<'a, K> Host<'a, K> {
    /// Reads the current facts of the machine.
    pub(in crate::cli) fn new(kernel: &'a K, roots: &'a Roots) -> Self {
        let catalog = Catalog::load(roots, &Facts::read(roots));
        Self { kernel, roots, catalog, clock: Clock::system() }
    }

    pub(in crate::cli) fn facts(&self) -> &Facts {
        self.catalog.facts()
    }

    /// Resolves `target` on this host.
    ///
    /// # Errors
    /// If a selected CPU or cgroup does not exist, or none of the selected processes or threads.
    pub(in crate::cli) fn find(&self, target: &Target) -> Result<Subject, Failure> {
        Subject::find(target, self.roots, self.facts())
    }
}
