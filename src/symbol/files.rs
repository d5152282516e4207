//! Names of functions of files that are executed.
//!
//! A file is read once, when a place in it is asked for first, and again if its table had to make room meanwhile. One
//! that cannot be read is not tried again.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use rustc_hash::FxHashMap;
use rustix::fs::MemfdFlags;

use super::cache::Cache;
use super::demangle::demangle;
use super::{NamedLine, Reason, Segment, debug};
use crate::host::{self, Roots};
use crate::probe::binary::{self, Addresses, Binary, BinaryError};
use crate::probe::root::Opened;
use crate::stack::{Code, Module, ModuleId};

/// What the kernel gives every process, in bytes at most.
const VDSO_LIMIT: u64 = 256 << 10;
/// What is known of a file beside its table, in bytes, roughly.
const KNOWN: usize = 400;

/// The files that were asked for.
#[derive(Debug)]
pub(super) struct Files {
    known: FxHashMap<ModuleId, Known>,
    /// Functions by where they begin.
    functions: Cache<(ModuleId, u64), Option<NamedLine>>,
    /// How much memory tables may take, in bytes.
    limit: usize,
    /// Grows with each use.
    now: u64,
}

/// A place in a file.
pub(super) struct Found {
    pub(super) line: Result<NamedLine, Reason>,
    pub(super) segment: Arc<Segment>,
    pub(super) address: u64,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    /// What of it is loaded; what has code first.
    segments: Vec<(binary::Segment, Arc<Segment>)>,
    /// The file, where its headers tell nothing.
    whole: Arc<Segment>,
    names: Result<Names, Reason>,
    used: u64,
}

#[derive(Debug)]
struct Names {
    addresses: Addresses,
    /// The file that has them.
    file: Arc<Opened>,
    /// When it was written to last, as its table was read.
    written: Option<Written>,
    /// What is said of an address that is in no function.
    otherwise: Reason,
}

/// By what a file is told from what it was before somebody wrote into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Written {
    seconds: i64,
    nanoseconds: i64,
    size: u64,
}

impl Written {
    fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok()?;
        Some(Self { seconds: metadata.mtime(), nanoseconds: metadata.mtime_nsec(), size: metadata.size() })
    }
}

/// By what a module is told from another that has got its number.
#[derive(Debug)]
struct Identity {
    path: Arc<str>,
    file: Option<Weak<Opened>>,
}

impl Identity {
    fn of(module: &Module) -> Self {
        let file = module.file.as_ref().ok().map(Arc::downgrade);
        Self { path: Arc::clone(&module.path), file }
    }

    fn is(&self, module: &Module) -> bool {
        let same_file = match (&self.file, &module.file) {
            (Some(held), Ok(file)) => std::ptr::eq(held.as_ptr(), Arc::as_ptr(file)),
            (None, Err(_)) => true,
            _ => false,
        };
        same_file && self.path == module.path
    }
}

impl Files {
    /// Tables take at most `tables` bytes, and names of functions `names`.
    pub(super) fn new(tables: usize, names: usize) -> Self {
        Self { known: FxHashMap::default(), functions: Cache::new(names), limit: tables, now: 0 }
    }

    /// Forgets what a number stood for that stands for another file now. Whether there was any.
    pub(super) fn check(&mut self, code: &Code) -> bool {
        let is = |id: &ModuleId, known: &Known| {
            code.modules.get(id.0 as usize).is_some_and(|module| known.identity.is(module))
        };
        let before = self.known.len();
        self.known.retain(|id, known| is(id, known));
        if self.known.len() == before {
            return false;
        }
        let known = &self.known;
        self.functions.retain(|(id, _)| known.contains_key(id));
        true
    }

    /// What is at an offset in a file.
    pub(super) fn find(&mut self, id: ModuleId, offset: u64, code: &Code, roots: &Roots) -> Option<Found> {
        let module = code.modules.get(id.0 as usize)?;
        self.now += 1;
        if !self.known.contains_key(&id) {
            let limit = self.limit / Addresses::EACH;
            self.known.insert(id, Known::read(module, code, roots, limit));
            self.make_room(id);
        }
        let known = self.known.get_mut(&id)?;
        known.used = self.now;
        let (segment, address) = known.locate(offset);
        let line = match &known.names {
            Err(reason) => Err(*reason),
            Ok(names) => names.line(id, address, &mut self.functions),
        };
        Some(Found { line, segment, address })
    }

    /// Takes away tables that were not used for long, but this one.
    fn make_room(&mut self, but: ModuleId) {
        while self.table_bytes() > self.limit {
            let tables = self.known.iter().filter(|(id, known)| **id != but && known.names.is_ok());
            let Some(oldest) = tables.min_by_key(|(_, known)| known.used).map(|(id, _)| *id) else { return };
            self.known.remove(&oldest);
        }
    }

    fn table_bytes(&self) -> usize {
        self.known.values().flat_map(|known| &known.names).map(|names| names.addresses.bytes()).sum()
    }

    /// How much memory they take, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.known.len() * KNOWN + self.table_bytes() + self.functions.bytes()
    }
}

impl Known {
    fn read(module: &Module, code: &Code, roots: &Roots, limit: usize) -> Self {
        let vdso = (&*module.path == "[vdso]" && module.file.is_err()).then(|| vdso(roots)).flatten();
        let file = vdso.map(Arc::new).or_else(|| module.file.as_ref().ok().cloned());
        let mut segments = Vec::new();
        let names = match file {
            None => Err(Reason::NoFile),
            Some(file) => read(file, module, code, roots, limit, &mut segments),
        };
        let named = names.is_ok();
        let segment = |start, limit, offset| {
            let (path, build_id) = (Arc::clone(&module.path), module.build_id.clone());
            Arc::new(Segment { start, limit, offset, path, build_id, named })
        };
        let shown = |found: binary::Segment| (found, segment(found.start, found.limit, found.offset));
        Self {
            identity: Identity::of(module),
            whole: segment(0, u64::MAX, 0),
            segments: segments.into_iter().map(shown).collect(),
            names,
            used: 0,
        }
    }

    /// The segment that an offset is in, and its address.
    fn locate(&self, offset: u64) -> (Arc<Segment>, u64) {
        let mut found = self.segments.iter();
        let found = found.find_map(|(segment, shown)| Some((Arc::clone(shown), segment.address_of(offset)?)));
        found.unwrap_or_else(|| (Arc::clone(&self.whole), offset))
    }
}

fn read(
    file: Arc<Opened>,
    module: &Module,
    code: &Code,
    roots: &Roots,
    limit: usize,
    segments: &mut Vec<binary::Segment>,
) -> Result<Names, Reason> {
    let binary = file.binary().map_err(|error| reason(&error))?;
    *segments = binary.segments();
    let written = Written::of(&file.file);
    let read = |named: &Binary| binary.addresses(named, limit).map_err(|error| reason(&error));
    if !binary.has_all_names() {
        let pid = code.processes.get(module.process.0 as usize).map(|process| process.pid);
        if let Some((opened, debug)) = debug::find(roots, pid, &module.path, &binary)
            && let written = Written::of(&opened.file)
            && let Ok(Some(addresses)) = read(&debug)
        {
            return Ok(Names { addresses, file: Arc::new(opened), written, otherwise: Reason::Between });
        }
    }
    let otherwise = if binary.has_all_names() { Reason::Between } else { Reason::Stripped };
    let addresses = read(&binary)?.ok_or(Reason::NoSymbols)?;
    Ok(Names { addresses, file, written, otherwise })
}

impl Names {
    fn line(
        &self,
        id: ModuleId,
        address: u64,
        functions: &mut Cache<(ModuleId, u64), Option<NamedLine>>,
    ) -> Result<NamedLine, Reason> {
        let place = self.addresses.find(address).ok_or(self.otherwise)?;
        let key = (id, place.start);
        if let Some(line) = functions.get(&key) {
            return line.ok_or(self.otherwise);
        }
        // Names are where they were when the table was read.
        if Written::of(&self.file.file) != self.written {
            return Err(Reason::Changed);
        }
        let name = self.addresses.name(&self.file.file, place).map_err(|_| Reason::Unreadable)?;
        let line = name.map(|name| {
            let linkage = String::from_utf8_lossy(&name);
            let name = demangle(&linkage);
            NamedLine { name: name.into(), linkage: linkage.into(), file: None, line: 0 }
        });
        let held = line.as_ref().map_or(0, |line| line.name.len() + line.linkage.len() + 32);
        functions.insert(key, line.clone(), held);
        line.ok_or(self.otherwise)
    }
}

fn reason(error: &BinaryError) -> Reason {
    match error {
        BinaryError::NotElf { .. } | BinaryError::NotProgram { .. } => Reason::NotElf,
        BinaryError::Damaged { .. } => Reason::Damaged,
        BinaryError::TooMany { .. } => Reason::TooLarge,
        _ => Reason::Unreadable,
    }
}

/// What the kernel maps into every process, which is in no file. It is taken out of this one, where it is the same.
fn vdso(roots: &Roots) -> Option<Opened> {
    let own = roots.proc.join("self");
    let maps = host::read_text(&own.join("maps")).ok()?;
    let range = maps.lines().find(|line| line.ends_with("[vdso]"))?.split(' ').next()?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let size = end.checked_sub(start).filter(|&size| size <= VDSO_LIMIT)?;
    let mut bytes = vec![0; usize::try_from(size).ok()?];
    File::open(own.join("mem")).ok()?.read_exact_at(&mut bytes, start).ok()?;
    let mut file = File::from(rustix::fs::memfd_create("vdso", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(&bytes).ok()?;
    Some(Opened { file, shown: PathBuf::from("[vdso]"), pid: None })
}
