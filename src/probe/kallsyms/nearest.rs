//! Symbols of the kernel by address, and addresses by name, for a few at once.

use std::sync::Arc;

use super::{FUNCTION_LIMIT, KallsymsError, symbols, text};
use crate::host::Roots;

/// Maximum distance of an address from the start of its variable, in bytes. The kernel does not report sizes, and without
/// `CONFIG_KALLSYMS_ALL` it lists only a few variables.
const VARIABLE_LIMIT: u64 = 4096;

/// The closest symbol before an address.
#[derive(Debug, Default)]
struct Nearest {
    address: u64,
    is_text: bool,
    name: Vec<u8>,
}

/// The symbol of an address.
#[derive(Debug, Clone)]
struct Found {
    is_text: bool,
    start: u64,
    name: Arc<str>,
}

/// Returns the names of the functions that contain these addresses, without modules, in the same order. `None` for an address outside all
/// functions. Reads the symbols once, for any number of addresses.
///
/// # Errors
/// [`KallsymsError::Hidden`] if this process may not see addresses. [`KallsymsError::Absent`], [`KallsymsError::Forbidden`] and
/// [`KallsymsError::Unreadable`] for the file itself.
pub fn names(roots: &Roots, addresses: &[u64]) -> Result<Vec<Option<Arc<str>>>, KallsymsError> {
    let found = nearest(roots, addresses)?;
    let function = |near: Option<Found>| near.filter(|near| near.is_text).map(|near| near.name);
    Ok(found.into_iter().map(function).collect())
}

/// A variable of the kernel that contains an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: Arc<str>,
    /// Distance of the address from the start of the variable, in bytes.
    pub distance: u64,
}

/// Returns the variables of the kernel that contain these addresses, in the same order. `None` for an address outside all variables, such as
/// allocated memory. Reads the symbols once, for any number of addresses.
///
/// # Errors
/// Those of [`names`].
pub fn variables(roots: &Roots, addresses: &[u64]) -> Result<Vec<Option<Variable>>, KallsymsError> {
    let found = nearest(roots, addresses)?.into_iter().zip(addresses);
    let variable = |(near, &address): (Option<Found>, &u64)| {
        let near = near.filter(|near| !near.is_text)?;
        let variable = Variable { name: near.name, distance: address - near.start };
        Some(variable).filter(|variable| variable.distance < VARIABLE_LIMIT)
    };
    Ok(found.map(variable).collect())
}

/// Returns the addresses of the first function or mark in the text of the kernel with each of these names, in the same order.
///
/// # Errors
/// Those of [`names`].
pub fn addresses(roots: &Roots, names: &[&str]) -> Result<Vec<Option<u64>>, KallsymsError> {
    find(roots, names, true)
}

/// Returns the addresses of the first variable of the kernel with each of these names, in the same order.
///
/// # Errors
/// Those of [`names`].
pub fn variable_addresses(roots: &Roots, names: &[&str]) -> Result<Vec<Option<u64>>, KallsymsError> {
    find(roots, names, false)
}

fn find(roots: &Roots, names: &[&str], is_text: bool) -> Result<Vec<Option<u64>>, KallsymsError> {
    let mut found = vec![None; names.len()];
    let mut hidden = true;
    symbols(roots, |symbol| {
        hidden &= symbol.address == 0;
        if symbol.is_text == is_text && symbol.module.is_none() {
            for (name, found) in names.iter().zip(&mut found) {
                if found.is_none() && name.as_bytes() == symbol.name {
                    *found = Some(symbol.address);
                }
            }
        }
    })?;
    if hidden { Err(KallsymsError::hidden(roots)) } else { Ok(found) }
}

/// Returns the closest symbol before each address. `None` if the symbol is too far.
fn nearest(roots: &Roots, addresses: &[u64]) -> Result<Vec<Option<Found>>, KallsymsError> {
    let mut wanted = addresses.to_vec();
    wanted.sort_unstable();
    wanted.dedup();
    // Each symbol is assigned only to the first address at or after it. If it is also the closest to later addresses, the pass below
    // propagates it.
    let mut found: Vec<Nearest> = wanted.iter().map(|_| Nearest::default()).collect();
    let mut hidden = true;
    symbols(roots, |symbol| {
        hidden &= symbol.address == 0;
        let place = wanted.partition_point(|&address| address < symbol.address);
        let Some(nearest) = found.get_mut(place) else { return };
        // Of several names of one address, the kernel prints the first.
        if symbol.address > nearest.address {
            (nearest.address, nearest.is_text) = (symbol.address, symbol.is_text);
            nearest.name.clear();
            nearest.name.extend_from_slice(symbol.name);
        }
    })?;
    if hidden {
        return Err(KallsymsError::hidden(roots));
    }
    let mut last: Option<Found> = None;
    let mut named = Vec::with_capacity(wanted.len());
    for (address, nearest) in wanted.iter().zip(&found) {
        if nearest.address > last.as_ref().map_or(0, |last| last.start) {
            let Nearest { address: start, is_text, .. } = *nearest;
            last = Some(Found { is_text, start, name: text(&nearest.name) });
        }
        named.push(last.clone().filter(|last| address - last.start < FUNCTION_LIMIT));
    }
    let name =
        |address| wanted.binary_search(address).ok().and_then(|place| named.get(place).cloned().flatten());
    Ok(addresses.iter().map(name).collect())
}
