//! Names of functions of files that are executed.
//!
//! A file is read once, when a place in it is asked for first, and again if its table had to make room meanwhile. One
//! that cannot be read is not tried again.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use rustix::fs::MemfdFlags;

use super::cache::Cache;
use super::demangle::demangle;
use super::identity::{Identity, Written};
use super::{FileHash, NamedLine, Reason, Segment, debug};
use crate::host::{self, Roots};
use crate::probe::binary::{self, Addresses, Binary, BinaryError, Stubs};
use crate::probe::root::Opened;
use crate::stack::{self, Code, Module, ModuleId};

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

/// What there is of names.
#[derive(Debug)]
struct Names {
    /// The tables of functions, the one that is believed first in front.
    tables: Vec<Table>,
    /// What calls functions of other files.
    stubs: Option<(Stubs, Source)>,
    /// What is said of an address that is in no function.
    otherwise: Reason,
}

/// Where functions are, and the file that has their names.
#[derive(Debug)]
struct Table {
    addresses: Addresses,
    source: Source,
}

/// A file that names are read from.
#[derive(Debug)]
struct Source {
    file: Arc<Opened>,
    /// When it was written to last, as its table was read.
    written: Option<Written>,
    /// How much memory it takes, in bytes: what was inflated is in no other place.
    held: usize,
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
            self.known.insert(id, Known::read(module, code, roots, self.limit));
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
        self.known.values().flat_map(|known| &known.names).map(Names::bytes).sum()
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
        let hash = file.as_ref().and_then(|file| FileHash::of(&file.file));
        let go_build_id = file.as_ref().and_then(|file| stack::go_build_id(&file.file));
        let names = match file {
            None => Err(Reason::NoFile),
            Some(file) => read(file, module, code, roots, limit, &mut segments),
        };
        let named = names.as_ref().is_ok_and(|names| !names.tables.is_empty());
        let segment = |start, limit, offset| {
            let (path, build_id) = (Arc::clone(&module.path), module.build_id.clone());
            let go_build_id = go_build_id.clone();
            Arc::new(Segment { start, limit, offset, path, build_id, go_build_id, hash, named })
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
    let find = |named: &Binary, names: &Names| {
        let functions = limit.saturating_sub(names.bytes()) / Addresses::EACH;
        binary.addresses(named, functions).map_err(|error| reason(&error))
    };
    let mut names = Names { tables: Vec::new(), stubs: None, otherwise: Reason::Between };
    let own = Source::of(&file);
    let pid = code.processes.get(module.process.0 as usize).map(|process| process.pid);
    if binary.has_all_names() {
        names.add(find(&binary, &names)?, own);
    } else if let Some((opened, debug)) =
        debug::find(roots, pid, &module.path, &binary, Binary::has_all_names)
        && let Ok(Some(found)) = find(&debug, &names)
    {
        names.add(Some(found), Source::of(&Arc::new(opened)));
    } else {
        // What is exported is left out of what is compressed.
        if let Some((mini, source)) = mini_debug(&binary, limit)
            && let Ok(found) = find(&mini, &names)
        {
            names.add(found, source);
        }
        if names.tables.is_empty() {
            names.otherwise = Reason::Stripped;
        }
        match find(&binary, &names) {
            Ok(found) => names.add(found, own),
            Err(reason) if names.tables.is_empty() => return Err(reason),
            Err(_) => {}
        }
    }
    if let Ok(stubs) = binary.stubs(limit / Stubs::EACH)
        && !stubs.is_empty()
    {
        names.stubs = Some((stubs, Source::of(&file)));
    }
    if names.tables.is_empty() {
        if names.stubs.is_none() {
            return Err(Reason::NoSymbols);
        }
        names.otherwise = Reason::NoSymbols;
    }
    Ok(names)
}

/// The names that a file brings along compressed, in a file that is in memory alone.
fn mini_debug(binary: &Binary, limit: usize) -> Option<(Binary, Source)> {
    let bytes = binary.mini_debug(limit as u64 / 2).ok()??;
    let mut file = File::from(rustix::fs::memfd_create("gnu_debugdata", MemfdFlags::CLOEXEC).ok()?);
    file.write_all(&bytes).ok()?;
    let opened = Opened { file, shown: PathBuf::from("[.gnu_debugdata]"), pid: None };
    let mini = opened.binary().ok().filter(Binary::has_all_names)?;
    Some((mini, Source { held: bytes.len(), ..Source::of(&Arc::new(opened)) }))
}

impl Source {
    fn of(file: &Arc<Opened>) -> Self {
        Self { written: Written::of(&file.file), file: Arc::clone(file), held: 0 }
    }

    /// Whether names are where they were when the table was read.
    fn is_unchanged(&self) -> bool {
        Written::of(&self.file.file) == self.written
    }
}

impl Names {
    fn add(&mut self, addresses: Option<Addresses>, source: Source) {
        self.tables.extend(addresses.map(|addresses| Table { addresses, source }));
    }

    fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(|table| table.addresses.bytes() + table.source.held);
        tables.sum::<usize>() + self.stubs.as_ref().map_or(0, |(stubs, _)| stubs.bytes())
    }

    fn line(
        &self,
        id: ModuleId,
        address: u64,
        functions: &mut Cache<(ModuleId, u64), Option<NamedLine>>,
    ) -> Result<NamedLine, Reason> {
        // Of two tables the one counts whose function begins nearer: sizes may be guessed.
        let found =
            self.tables.iter().rev().filter_map(|table| Some((table, table.addresses.find(address)?)));
        let Some((table, place)) = found.max_by_key(|(_, place)| place.start) else {
            return self.stub(id, address, functions);
        };
        let key = (id, place.start);
        if let Some(line) = functions.get(&key) {
            return line.ok_or(self.otherwise);
        }
        if !table.source.is_unchanged() {
            return Err(Reason::Changed);
        }
        let name = table.addresses.name(&table.source.file.file, place).map_err(|_| Reason::Unreadable)?;
        let line = name.map(|name| {
            let linkage = String::from_utf8_lossy(&name);
            NamedLine { name: demangle(&linkage).into(), linkage: linkage.into(), file: None, line: 0 }
        });
        keep(key, line.clone(), functions);
        line.ok_or(self.otherwise)
    }

    /// What calls a function of another file is called after it, as perf does.
    fn stub(
        &self,
        id: ModuleId,
        address: u64,
        functions: &mut Cache<(ModuleId, u64), Option<NamedLine>>,
    ) -> Result<NamedLine, Reason> {
        let Some((stubs, source)) = &self.stubs else { return Err(self.otherwise) };
        let Some(start) = stubs.start(address) else { return Err(self.otherwise) };
        let key = (id, start);
        if let Some(line) = functions.get(&key) {
            return line.ok_or(self.otherwise);
        }
        if !source.is_unchanged() {
            return Err(Reason::Changed);
        }
        let name = stubs.name(&source.file.file, address).map_err(|_| Reason::Unreadable)?;
        let line = name.map(|name| {
            let linkage = String::from_utf8_lossy(&name);
            let (name, linkage) = (format!("{}@plt", demangle(&linkage)), format!("{linkage}@plt"));
            NamedLine { name: name.into(), linkage: linkage.into(), file: None, line: 0 }
        });
        keep(key, line.clone(), functions);
        line.ok_or(self.otherwise)
    }
}

fn keep(
    key: (ModuleId, u64),
    line: Option<NamedLine>,
    functions: &mut Cache<(ModuleId, u64), Option<NamedLine>>,
) {
    let held = line.as_ref().map_or(0, |line| line.name.len() + line.linkage.len() + 32);
    functions.insert(key, line, held);
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
