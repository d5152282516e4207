//! The host, as the commands at a shell see it.

use super::{Failure, Subject, Target};
use crate::clock::Clock;
use crate::event::Catalog;
use crate::host::{Facts, Roots};

/// Where it happens.
#[derive(Debug)]
pub(in crate::cli) struct Host<'a, K> {
    pub(in crate::cli) kernel: &'a K,
    pub(in crate::cli) roots: &'a Roots,
    pub(in crate::cli) catalog: Catalog,
    pub(in crate::cli) clock: Clock,
}

impl<'a, K> Host<'a, K> {
    /// The machine as it is now.
    pub(in crate::cli) fn new(kernel: &'a K, roots: &'a Roots) -> Self {
        let catalog = Catalog::load(roots, &Facts::read(roots));
        Self { kernel, roots, catalog, clock: Clock::system() }
    }

    pub(in crate::cli) fn facts(&self) -> &Facts {
        self.catalog.facts()
    }

    /// Looks for `target` on it.
    ///
    /// # Errors
    /// When any of those who were named is not there.
    pub(in crate::cli) fn find(&self, target: &Target) -> Result<Subject, Failure> {
        Subject::find(target, self.roots, self.facts())
    }
}
