//! The choice of a function of a profile, and the samples of its instructions.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;

use super::{NotAnnotated, Target};
use crate::clean::{NAME, clean, function_name};
use crate::profile::{Function, Location, Mapping, Origin, Profile};
use crate::symbol::FileIdentity;

/// Maximum number of processes in which a file is looked up.
const PROCESSES: usize = 16;

/// The value and the number of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) value: u64,
    pub(super) samples: u64,
}

impl Sum {
    pub(super) fn add(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// The samples of a profile by innermost location. Only these are at exact addresses: callers have return addresses.
#[derive(Debug)]
pub(super) struct Choice<'p> {
    profile: &'p Profile,
    /// For each location.
    own: Vec<Sum>,
}

/// A function in a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'p> {
    pub(super) file: FileIdentity<'p>,
    /// The offset in the file of an instruction of the function.
    pub(super) offset: u64,
    /// The requested function, if it was inlined into the chosen one.
    pub(super) inlined: Option<&'p str>,
}

impl<'p> Choice<'p> {
    pub(super) fn new(profile: &'p Profile) -> Self {
        let mut own = vec![Sum::default(); profile.locations.len()];
        for sample in &profile.samples {
            let stack = profile.stacks.get(sample.stack as usize);
            let innermost = stack.and_then(|stack| own.get_mut(*stack.first()? as usize));
            if let Some(sum) = innermost {
                sum.add(Sum { value: sample.value, samples: sample.count });
            }
        }
        Self { profile, own }
    }

    fn locations(&self) -> impl Iterator<Item = (&'p Location, Sum)> {
        self.profile.locations.iter().zip(self.own.iter().copied())
    }

    fn functions(&self, location: &'p Location) -> impl DoubleEndedIterator<Item = &'p Function> {
        let functions = &self.profile.functions;
        location.lines.iter().filter_map(|line| functions.get(line.function as usize))
    }

    fn mapping(&self, location: &Location) -> Option<&'p Mapping> {
        let place = location.mapping.filter(|_| location.origin == Origin::Native)?;
        self.profile.mappings.get(place as usize)
    }

    /// Returns the function with the largest value, of those that the target means. A function that contains an inlined copy comes after
    /// those that have the name themselves.
    pub(super) fn choose(&self, target: &Target) -> Result<Chosen<'p>, NotAnnotated> {
        let mut found: FxHashMap<(bool, FileIdentity<'p>, &'p str), (Sum, Sum, Chosen<'p>)> =
            FxHashMap::default();
        let mut other = None;
        for (location, own) in self.locations() {
            if !target.means_module(self.profile.module(location)) {
                continue;
            }
            let Some(outermost) = self.functions(location).next_back() else { continue };
            let named = match target.symbol.as_deref() {
                Some(symbol) => self.functions(location).rev().find(|function| has_name(function, symbol)),
                // Without a name, callers are not meant.
                None => Some(outermost).filter(|_| own.samples > 0),
            };
            let Some(named) = named else { continue };
            let Some(mapping) = self.mapping(location) else {
                other = Some((&*named.name, location.origin));
                continue;
            };
            let file = identity(mapping);
            let inlined = (*named != *outermost).then_some(&*named.name);
            let chosen = Chosen { file, offset: offset(mapping, location), inlined };
            let key = (inlined.is_some(), file, &*outermost.linkage);
            let (sum, largest, representative) =
                found.entry(key).or_insert((Sum::default(), Sum::default(), chosen));
            sum.add(own);
            if own.value > largest.value {
                (*largest, *representative) = (own, chosen);
            }
        }
        let best = found.into_iter().min_by_key(|((is_inlined, file, name), (sum, ..))| {
            (*is_inlined, Reverse(sum.value), file.path, *name)
        });
        match (best, other, &target.symbol) {
            (Some((_, (.., chosen))), ..) => Ok(chosen),
            (None, Some((name, Origin::Kernel)), Some(_)) => Err(NotAnnotated::Kernel(name.to_owned())),
            (None, Some((name, _)), Some(_)) => Err(NotAnnotated::Generated(name.to_owned())),
            (None, None, Some(symbol)) => {
                let (symbol, module) = (symbol.clone(), target.module.clone());
                Err(NotAnnotated::NoFunction { symbol, module })
            }
            (None, _, None) => Err(NotAnnotated::NoSamples),
        }
    }

    /// Returns the processes that executed the file.
    pub(super) fn processes(&self, chosen: &Chosen<'_>) -> Vec<u32> {
        let is_in = |location: &Location| {
            self.mapping(location).is_some_and(|mapping| identity(mapping) == chosen.file)
        };
        let is_in: Vec<bool> = self.profile.locations.iter().map(is_in).collect();
        let mut pids = Vec::new();
        for sample in &self.profile.samples {
            let stack = self.profile.stacks.get(sample.stack as usize).map_or(&[][..], |stack| stack);
            let task = self.profile.tasks.get(sample.task as usize);
            let Some(pid) = task.map(|task| task.pid).filter(|pid| !pids.contains(pid)) else { continue };
            if stack.iter().any(|&location| is_in.get(location as usize) == Some(&true)) {
                pids.push(pid);
            }
            if pids.len() >= PROCESSES {
                break;
            }
        }
        pids
    }

    /// Returns the samples of the file by the offset of their instruction.
    pub(super) fn by_offset(&self, chosen: &Chosen<'_>) -> Vec<(u64, Sum)> {
        let of_file = self.locations().filter_map(|(location, own)| {
            let mapping = self.mapping(location).filter(|mapping| identity(mapping) == chosen.file)?;
            Some((offset(mapping, location), own))
        });
        of_file.filter(|(_, own)| own.samples > 0).collect()
    }

    /// Returns the functions of files with samples, those with the largest values first.
    pub(super) fn hottest(&self) -> Vec<(Target, u64)> {
        let mut sums: FxHashMap<(&str, &str), u64> = FxHashMap::default();
        for (location, own) in self.locations().filter(|(_, own)| own.samples > 0) {
            let outermost = self.functions(location).next_back();
            if let (Some(mapping), Some(function)) = (self.mapping(location), outermost) {
                let sum = sums.entry((&function.name, &mapping.path)).or_default();
                *sum = sum.saturating_add(own.value);
            }
        }
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_unstable_by_key(|&(key, value)| (Reverse(value), key));
        let target = |name: &str, path: &str| Target { symbol: Some(name.into()), module: Some(path.into()) };
        all.into_iter().map(|((name, path), value)| (target(name, path), value)).collect()
    }
}

fn identity(mapping: &Mapping) -> FileIdentity<'_> {
    let build_id = mapping.build_id.as_ref();
    FileIdentity { path: &mapping.path, build_id, hash: mapping.hash.filter(|_| build_id.is_none()) }
}

/// Returns the offset of a location in its file. The addresses of a mapping may have been moved, as in pprof.
fn offset(mapping: &Mapping, location: &Location) -> u64 {
    location.address.wrapping_sub(mapping.start).wrapping_add(mapping.offset)
}

impl Target {
    /// Reports whether it means functions of a module, which is given by its path: any, or that with this path or name of the file, as
    /// tables show it.
    pub fn means_module(&self, path: &str) -> bool {
        self.module.as_deref().is_none_or(|module| {
            module == path || module == clean(path, NAME) || path.rsplit('/').next() == Some(module)
        })
    }
}

/// Reports whether a text names a function: demangled, as tables show it, or as in the symbol table.
fn has_name(function: &Function, text: &str) -> bool {
    text == &*function.name || text == &*function.linkage || text == function_name(&function.name)
}
