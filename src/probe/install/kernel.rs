//! What the kernel tells of its functions, asked once for all probes that are put in place together: its lists have
//! some 10 MB each.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Wish;
use crate::host::Roots;
use crate::probe::Location;
use crate::probe::btf::{Btf, BtfError};
use crate::probe::kallsyms::{self, KallsymsError};

/// The functions that some probes are about, and their types.
#[derive(Debug)]
pub(super) struct Kernel<'r> {
    pub(super) roots: &'r Roots,
    /// Functions that are not there, and why that is said.
    missing: BTreeMap<Arc<str>, KallsymsError>,
    /// Functions that nobody may probe, sorted.
    forbidden: Vec<Arc<str>>,
    /// The types of the kernel (`None`) and of its modules, as far as they were needed.
    types: BTreeMap<Option<Arc<str>>, Result<Btf, BtfError>>,
}

impl<'r> Kernel<'r> {
    /// Asks for the functions of `wishes`. Where the kernel does not tell, all are taken to be there: it answers itself
    /// when the probe is placed.
    pub(super) fn ask<'w>(roots: &'r Roots, wishes: impl IntoIterator<Item = &'w Wish>) -> Self {
        let mut any = false;
        let mut names = Vec::new();
        for wish in wishes {
            if let Location::Kernel { module, function, .. } = &wish.definition.location {
                any = true;
                // A module may be loaded later.
                names.extend(module.is_none().then_some(&**function));
            }
        }
        let found = if names.is_empty() { Ok(Vec::new()) } else { kallsyms::find_all(roots, &names) };
        let answers = names.iter().zip(found.unwrap_or_default());
        Self {
            roots,
            missing: answers.filter_map(|(&name, found)| Some((name.into(), found.err()?))).collect(),
            // Without debugfs it is not known before the kernel refuses.
            forbidden: if any { kallsyms::blacklist(roots).unwrap_or_default() } else { Vec::new() },
            types: BTreeMap::new(),
        }
    }

    /// Why a function is not there.
    pub(super) fn missing(&self, function: &str) -> Option<&KallsymsError> {
        self.missing.get(function)
    }

    /// Whether nobody may probe a function.
    pub(super) fn forbids(&self, function: &Arc<str>) -> bool {
        self.forbidden.binary_search(function).is_ok()
    }

    /// The types of the kernel, or of one of its modules.
    pub(super) fn types(&mut self, module: Option<&Arc<str>>) -> Result<&Btf, &BtfError> {
        let roots = self.roots;
        let load = || Btf::load(roots, module.map(|module| &**module));
        self.types.entry(module.cloned()).or_insert_with(load).as_ref()
    }
}
