//! The kernel's functions and types, read once for all probes that are installed together. The lists have about 10 MB each.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ConfiguredProbe;
use crate::host::Roots;
use crate::probe::Location;
use crate::probe::btf::{Btf, BtfError};
use crate::probe::kallsyms::{self, KallsymsError};

/// The functions that the probes refer to, and their types.
#[derive(Debug)]
pub(super) struct Kernel<'r> {
    pub(super) roots: &'r Roots,
    /// Missing functions, and the error for each.
    missing: BTreeMap<Arc<str>, KallsymsError>,
    /// Functions that cannot be probed, sorted.
    forbidden: Vec<Arc<str>>,
    /// Types of the kernel (`None`) and of its modules, loaded on demand.
    types: BTreeMap<Option<Arc<str>>, Result<Btf, BtfError>>,
}

impl<'r> Kernel<'r> {
    /// Looks up the functions of `configured_probes`. If the list is not readable, all functions are assumed to exist. The kernel then
    /// checks them when the probe is installed.
    pub(super) fn ask<'w>(
        roots: &'r Roots,
        configured_probes: impl IntoIterator<Item = &'w ConfiguredProbe>,
    ) -> Self {
        let mut any = false;
        let mut names = Vec::new();
        for configured in configured_probes {
            if let Location::Kernel { module, function, .. } = &configured.definition.location {
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
            // Without debugfs, the blacklist is unknown until the kernel rejects the probe.
            forbidden: if any { kallsyms::blacklist(roots).unwrap_or_default() } else { Vec::new() },
            types: BTreeMap::new(),
        }
    }

    /// Returns the error for a missing function.
    pub(super) fn missing(&self, function: &str) -> Option<&KallsymsError> {
        self.missing.get(function)
    }

    /// Reports whether a function cannot be probed.
    pub(super) fn forbids(&self, function: &Arc<str>) -> bool {
        self.forbidden.binary_search(function).is_ok()
    }

    /// Returns the types of the kernel, or of one of its modules.
    pub(super) fn types(&mut self, module: Option<&Arc<str>>) -> Result<&Btf, &BtfError> {
        let roots = self.roots;
        let load = || Btf::load(roots, module.map(|module| &**module));
        self.types.entry(module.cloned()).or_insert_with(load).as_ref()
    }
}
