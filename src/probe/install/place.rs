//! Locations of probes on this machine: kernel functions, file offsets, USDT probes.

use std::path::PathBuf;
use std::sync::Arc;

use super::ConfiguredProbe;
use super::kernel::Kernel;
use super::search::{FileKey, FoundFile, FoundFiles, Search};
use crate::event::FileId;
use crate::files::Opened;
use crate::health::{Cause, Refusal};
use crate::probe::argument::{self, Arch, Argument};
use crate::probe::binary::{Binary, BinaryError};
use crate::probe::btf::{self, BtfError};
use crate::probe::usdt::UsdtProbe;
use crate::probe::{At, Definition, Location};

/// The location of a probe.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) place: Place,
    pub(super) uses: Vec<Instance>,
    /// The file, for probes in programs.
    pub(super) file: Option<Opened>,
    /// Identity of the file. The installing thread must not access its file system.
    pub(super) id: Option<FileId>,
    /// Instruction set of the probed code.
    pub(super) arch: Arch,
}

/// Base of a probe's offsets.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Place {
    /// The start of a kernel function.
    Kernel { module: Option<Arc<str>>, function: Arc<str> },
    /// The start of a file.
    File(PathBuf),
}

/// One instance of a probe, with its arguments.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Instance {
    pub(super) offset: u64,
    pub(super) semaphore: Option<u64>,
    pub(super) arguments: Vec<Argument>,
    /// Arguments at the return of a timed function.
    pub(super) returned: Vec<Argument>,
}

/// Locations of a probe.
#[derive(Debug)]
pub(super) struct Sites {
    /// One location, or one in each file.
    pub(super) sites: Vec<Site>,
    /// What is not probed, for users.
    pub(super) notes: Vec<String>,
}

/// Finds the locations of a probe. Returns the keys of its files too, whether they can be probed or not.
pub(super) fn find(
    configured: &ConfiguredProbe,
    kernel: &mut Kernel<'_>,
    search: &Search<'_>,
) -> (Vec<FileKey>, Result<Sites, Refusal>) {
    let definition = &configured.definition;
    match &definition.location {
        Location::Kernel { module, function, offset, returns } => {
            let place = || Place::Kernel { module: module.clone(), function: Arc::clone(function) };
            let instance = in_kernel(configured, kernel, module.as_ref(), function, *offset, *returns);
            let site = instance.map(|instance| Site {
                place: place(),
                uses: vec![instance],
                file: None,
                id: None,
                arch: Arch::HOST,
            });
            (Vec::new(), site.map(|site| Sites { sites: vec![site], notes: Vec::new() }))
        }
        Location::User { path, .. } | Location::Usdt { path, .. } => {
            match search.open(&definition.within, path) {
                Ok(FoundFiles { files, keys, notes }) => {
                    (keys, in_files(configured, path, files, notes, search))
                }
                Err(error) => {
                    let refusal = refused(configured, error.cause(), error.to_string());
                    let unknown = error.is_unknown();
                    let remedy =
                        unknown.then(|| "correct the path; `in` selects the files of a container".into());
                    (Vec::new(), Err(Refusal { unknown, remedy, ..refusal }))
                }
            }
        }
    }
}

/// Finds the location in each file. Files without it do not affect the others.
fn in_files(
    configured: &ConfiguredProbe,
    path: &str,
    files: Vec<FoundFile>,
    mut notes: Vec<String>,
    search: &Search<'_>,
) -> Result<Sites, Refusal> {
    let (mut sites, mut refusal) = (Vec::new(), None);
    for file in files {
        let shown = file.opened.shown.display().to_string();
        match in_file(configured, path, file, search) {
            Ok(site) => sites.push(site),
            Err(error) => {
                notes.push(format!("{shown}: {}", error.reason));
                refusal = refusal.or(Some(error));
            }
        }
    }
    match refusal.filter(|_| sites.is_empty()) {
        Some(refusal) => Err(refusal),
        None => Ok(Sites { sites, notes }),
    }
}

fn in_file(
    configured: &ConfiguredProbe,
    path: &str,
    FoundFile { root, opened: file }: FoundFile,
    search: &Search<'_>,
) -> Result<Site, Refusal> {
    let binary = file.binary().map_err(|error| not_usable(configured, &error))?;
    let arch = binary.machine();
    let uses = uses(configured, &binary, arch, || search.debug_file(&root, path, &binary))?;
    drop(binary);
    let path = file.kernel_path().ok_or_else(|| {
        let reason = format!("{} is not open in this process (internal error)", file.shown.display());
        refused(configured, Cause::Broken, reason)
    })?;
    let id = file.id();
    Ok(Site { place: Place::File(path), uses, file: Some(file), id, arch })
}

/// Returns the files that the path currently refers to; none for a probe in the kernel.
pub(super) fn files_of(definition: &Definition, search: &Search<'_>) -> Vec<FileKey> {
    let (Location::User { path, .. } | Location::Usdt { path, .. }) = &definition.location else {
        return Vec::new();
    };
    search.open(&definition.within, path).map(|found| found.keys).unwrap_or_default()
}

fn in_kernel(
    configured: &ConfiguredProbe,
    kernel: &mut Kernel<'_>,
    module: Option<&Arc<str>>,
    function: &Arc<str>,
    offset: u64,
    returns: bool,
) -> Result<Instance, Refusal> {
    if let Some(error) = kernel.missing(function).filter(|_| module.is_none()) {
        return Err(unknown(configured, error.to_string()));
    }
    if kernel.forbids(function) {
        let reason =
            format!("the kernel does not allow a probe in {function}, because probes themselves use it");
        return Err(refused(configured, Cause::Forbidden, reason));
    }
    let (at_entry, at_return) = by_side(configured, returns);
    let needs_types = at_entry.iter().chain(&at_return).any(|argument| argument.fetch.variable().is_some());
    let types = match needs_types {
        true => Some(kernel.types(module).map_err(|error| untyped(configured, error))?),
        false => None,
    };
    let resolve = |arguments: Vec<&Argument>, returns: bool| -> Result<Vec<Argument>, Refusal> {
        let resolve = |argument: &Argument| match &types {
            Some(types) => {
                btf::resolve(types, function, returns, argument).map_err(|error| untyped(configured, &error))
            }
            None => Ok(argument.clone()),
        };
        arguments.into_iter().map(resolve).collect()
    };
    let (arguments, returned) = (resolve(at_entry, returns)?, resolve(at_return, true)?);
    Ok(Instance { offset, semaphore: None, arguments, returned })
}

/// Splits the arguments into those at the probe itself, and those at the return of a timed function.
fn by_side(configured: &ConfiguredProbe, returns: bool) -> (Vec<&Argument>, Vec<&Argument>) {
    let all = configured.definition.arguments.iter();
    if !configured.timed || returns {
        return (all.collect(), Vec::new());
    }
    all.partition(|argument| !argument.fetch.is_returned())
}

/// Returns the instances of a probe in a file. A function that a stripped file does not name is looked up in its debug file.
fn uses(
    configured: &ConfiguredProbe,
    binary: &Binary<'_>,
    arch: Arch,
    debug_file: impl FnOnce() -> Option<Opened>,
) -> Result<Vec<Instance>, Refusal> {
    let refuse = |error: BinaryError| not_usable(configured, &error);
    let own = |(at_entry, at_return): (Vec<&Argument>, Vec<&Argument>), offset| Instance {
        offset,
        semaphore: None,
        arguments: at_entry.into_iter().cloned().collect(),
        returned: at_return.into_iter().cloned().collect(),
    };
    match &configured.definition.location {
        Location::User { at: At::Offset(offset), returns, .. } => {
            binary.check_offset(*offset).map_err(refuse)?;
            Ok(vec![own(by_side(configured, *returns), *offset)])
        }
        Location::User { at: At::Symbol { name, offset }, returns, .. } => {
            let symbol = match binary.symbol(name) {
                Err(error @ BinaryError::NoFunction { .. }) if !binary.has_all_names() => {
                    let debug = debug_file().and_then(|opened| opened.into_binary().ok());
                    debug.map_or(Err(error), |debug| binary.with_names_of(debug).symbol(name))
                }
                symbol => symbol,
            };
            let symbol = symbol.map_err(refuse)?;
            if *offset >= symbol.size.max(1) {
                let reason =
                    format!("{name} is {} bytes long, and {name}+{offset:#x} is beyond its end", symbol.size);
                return Err(refused(configured, Cause::Broken, reason));
            }
            Ok(vec![own(by_side(configured, *returns), symbol.offset + offset)])
        }
        Location::Usdt { provider, name, .. } => {
            let usdt_probes = binary.usdt().map_err(refuse)?;
            let is_mine = |usdt_probe: &&UsdtProbe| {
                usdt_probe.name == *name
                    && provider.as_ref().is_none_or(|provider| usdt_probe.provider == *provider)
            };
            let found: Vec<_> = usdt_probes.iter().filter(is_mine).collect();
            if found.is_empty() {
                let all = usdt_probes
                    .iter()
                    .map(|usdt_probe| format!("{}:{}", usdt_probe.provider, usdt_probe.name));
                return Err(unknown(configured, no_usdt_probe(name, all.collect())));
            }
            let instance = |usdt_probe: &&UsdtProbe| -> Result<Instance, Refusal> {
                let marked = argument::usdt(&usdt_probe.arguments, arch);
                let arguments =
                    configured.definition.arguments.iter().map(|argument| argument.at_usdt_probe(&marked));
                let arguments = arguments.collect::<Result<_, _>>();
                let arguments =
                    arguments.map_err(|error| refused(configured, Cause::Broken, error.to_string()))?;
                let UsdtProbe { offset, semaphore, .. } = **usdt_probe;
                Ok(Instance { offset, semaphore, arguments, returned: Vec::new() })
            };
            found.iter().map(instance).collect()
        }
        Location::Kernel { .. } => Ok(Vec::new()),
    }
}

fn no_usdt_probe(name: &str, mut all: Vec<String>) -> String {
    all.sort();
    all.dedup();
    if let Some(near) = crate::event::nearest(name, all.iter().map(String::as_str)) {
        return format!("the file has no USDT probe {name}; did you mean {near}?");
    }
    all.truncate(8);
    format!("the file has no USDT probe {name}; available: {}", all.join(", "))
}

fn untyped(configured: &ConfiguredProbe, error: &BtfError) -> Refusal {
    let cause = match error {
        BtfError::Absent(_) | BtfError::NoModule { .. } => Cause::Absent,
        BtfError::Forbidden(_) => Cause::Forbidden,
        _ => Cause::Broken,
    };
    refused(configured, cause, error.to_string())
}

/// Returns the refusal for a file that is not a program, or does not contain the location.
fn not_usable(configured: &ConfiguredProbe, error: &BinaryError) -> Refusal {
    match error {
        BinaryError::NoFunction { .. } | BinaryError::Imported { .. } | BinaryError::NoUsdtProbes { .. } => {
            unknown(configured, error.to_string())
        }
        _ => refused(configured, Cause::Broken, error.to_string()),
    }
}

/// Returns the refusal for a location that does not exist on this host.
fn unknown(configured: &ConfiguredProbe, reason: String) -> Refusal {
    Refusal { unknown: true, ..refused(configured, Cause::Absent, reason) }
}

pub(super) fn refused(configured: &ConfiguredProbe, cause: Cause, reason: String) -> Refusal {
    Refusal {
        event: configured.definition.location.to_string().into(),
        target: "this host".into(),
        cause,
        errno: None,
        reason,
        remedy: None,
        unknown: false,
    }
}
