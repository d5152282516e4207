//! Function names of executed files.
//!
//! The functions of a file are divided into regions. The division is kept, and the lists of those regions that were looked up, within a
//! memory limit; the least recently used are dropped. No file is held open: see [`Source`]. A file that cannot be read is not read again.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::demangle::demangle;
use super::identity::Identity;
use super::source::{Bytes, Reader, Source};
use super::spans::{Answer, Name, Space, Span, Spans};
use super::work::Work;
use super::{FileHash, Reason, Segment};
use crate::clock::Monotonic;
use crate::files::{Files, Root};
use crate::host::ReadAt;
use crate::probe::binary::{self, Addresses, Binary, BinaryError, Region, Stubs};
use crate::probe::debug_file::{DebugContents, NoDebugFile, find_debug_file};
use crate::stack::{self, Code, Module, ModuleId};

/// The approximate memory of a file without its tables, in bytes.
const KNOWN: usize = 400;
/// The most functions of a region: a list of 160 KiB, which takes 512 KiB while it is built.
const REGION: usize = 32 << 10;
/// The least number of regions that the memory for lists must hold, and the bytes of a function in a list.
const REGIONS: usize = 8;
const FUNCTION: usize = 8;

/// The files that were looked up.
#[derive(Debug)]
pub(super) struct FileNames {
    known: FxHashMap<ModuleId, Known>,
    /// The bytes of `known`.
    known_bytes: usize,
    lists: Lists,
    /// Files that are open until [`finish`](Self::finish).
    open: Readers,
    pub(super) work: Work,
    /// The memory limit for all, in bytes.
    limit: usize,
    /// Incremented with each use.
    now: u64,
    /// The value of `now` at the last call of [`age`](Self::age).
    aged: u64,
}

/// Lists of functions of regions.
#[derive(Debug, Default)]
struct Lists {
    held: FxHashMap<Key, List>,
    bytes: usize,
}

/// A file, the index of one of its tables, and a region of it.
type Key = (ModuleId, usize, usize);

#[derive(Debug)]
struct List {
    region: Region,
    used: u64,
}

/// Files with symbols: that of a table, or the module's own ([`OWN`]).
#[derive(Default)]
struct Readers(FxHashMap<(ModuleId, usize), Result<Reader, Reason>>);

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readers").field(&self.0.len()).finish()
    }
}

/// The key of the module's own file in [`Readers`].
const OWN: usize = usize::MAX;

/// A location in a file.
pub(super) struct Found {
    pub(super) name: Result<Name, Reason>,
    pub(super) segment: Arc<Segment>,
    pub(super) address: u64,
}

#[derive(Debug)]
struct Known {
    identity: Identity,
    /// The loaded segments, those with code first; each with its public form after its first use.
    segments: Vec<(binary::Segment, Option<Arc<Segment>>)>,
    /// The whole file, for offsets outside all segments.
    whole: Arc<Segment>,
    names: Result<Names, Reason>,
    /// Whether a file with more symbols could not be opened, but may be later.
    temporary: bool,
    used: u64,
}

/// The symbols of a file.
#[derive(Debug)]
struct Names {
    /// The tables of functions, in the order of precedence.
    tables: Vec<Table>,
    /// Stubs that call functions of other files.
    stubs: Option<(Stubs, Source)>,
    /// The reason for an address outside all functions.
    otherwise: Reason,
}

/// The division of functions, and the file with their names.
#[derive(Debug)]
struct Table {
    addresses: Addresses,
    source: Source,
}

/// The context for reading the names of one module.
struct Reading<'r> {
    id: ModuleId,
    module: &'r Module,
    files: &'r Files,
    lists: &'r mut Lists,
    open: &'r mut Readers,
    work: &'r mut Work,
    limit: usize,
    now: u64,
}

impl FileNames {
    /// Creates an empty table of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            known: FxHashMap::default(),
            known_bytes: 0,
            lists: Lists::default(),
            open: Readers::default(),
            work: Work::default(),
            limit,
            now: 0,
            aged: 0,
        }
    }

    /// Changes the limit. Returns whether files were dropped.
    pub(super) fn set_limit(&mut self, limit: usize) -> bool {
        self.limit = limit;
        self.make_room(None)
    }

    /// Drops files whose number now belongs to another file. Returns whether there were any.
    pub(super) fn begin(&mut self, code: &Code, now: Monotonic) -> bool {
        self.work.refill(now);
        self.retain(0, |id, known| {
            !known.temporary
                && code.modules.get(id.0 as usize).is_some_and(|module| known.identity.is(module))
        })
    }

    /// Drops the files for which `keep` returns false, with their lists, and lists not used after `since`. Returns whether a file was
    /// dropped.
    fn retain(&mut self, since: u64, keep: impl FnMut(&ModuleId, &mut Known) -> bool) -> bool {
        let before = self.known.len();
        self.known.retain(keep);
        self.known_bytes = self.known.values().map(Known::bytes).sum();
        let known = &self.known;
        self.lists.retain(|id, list| list.used > since && known.contains_key(&id));
        self.known.len() < before
    }

    /// Reports whether cached results of a space are valid. Results of a dropped file are invalid, because its number may be reused.
    pub(super) fn answers_for(&self, space: Space) -> bool {
        match space {
            Space::Kernel => true,
            Space::File(id) => self.known.contains_key(&id),
        }
    }

    /// Closes all files.
    pub(super) fn finish(&mut self) {
        self.open.0.clear();
    }

    /// Returns the function at an offset in a file, from `spans` if it is cached.
    pub(super) fn find(
        &mut self,
        id: ModuleId,
        offset: u64,
        code: &Code,
        files: &Files,
        spans: &mut Spans,
    ) -> Option<Found> {
        let module = code.modules.get(id.0 as usize)?;
        self.now += 1;
        if !self.known.contains_key(&id) {
            if self.work.is_spent() {
                let segment =
                    Segment { limit: u64::MAX, path: Arc::clone(&module.path), ..Segment::default() };
                return Some(Found {
                    name: Err(Reason::Postponed),
                    segment: segment.into(),
                    address: offset,
                });
            }
            let mut known = Known::read(module, code, files, self.limit);
            self.work.take(known.passes());
            if matches!(known.names, Err(Reason::Unreadable)) {
                // The file system may respond next time.
                let (segment, address) = known.locate(offset);
                return Some(Found { name: Err(Reason::Unreadable), segment, address });
            }
            self.known_bytes += known.bytes();
            self.known.insert(id, known);
            if self.make_room(Some(id)) {
                spans.retain(|&(space, _), _| self.answers_for(space));
            }
        }
        let known = self.known.get_mut(&id)?;
        known.used = self.now;
        let (segment, address) = known.locate(offset);
        let space = Space::File(id);
        if let Some(answer) = spans.find(space, address) {
            return Some(Found { name: answer.name, segment, address });
        }
        let (limit, now) = (self.limit.saturating_sub(self.known_bytes), self.now);
        let Self { lists, open, work, .. } = self;
        let mut reading = Reading { id, module, files, lists, open, work, limit, now };
        let (name, span) = match &known.names {
            Err(reason) => (Err(*reason), None),
            Ok(names) => reading.name(names, address),
        };
        if let Some(span) = span {
            spans.keep(space, span, Answer { name: name.clone(), segment: None });
        }
        Some(Found { name, segment, address })
    }

    /// Drops the least recently used data, except the state of `but`. Lists are dropped first. Whole files are dropped if their state takes
    /// more than half of the memory. Returns whether files were dropped.
    fn make_room(&mut self, but: Option<ModuleId>) -> bool {
        let before = self.known.len();
        while self.known_bytes > self.limit / 2 {
            let others = self.known.iter().filter(|(id, _)| Some(**id) != but);
            let Some(oldest) = others.min_by_key(|(_, known)| known.used).map(|(id, _)| *id) else { break };
            if let Some(known) = self.known.remove(&oldest) {
                self.known_bytes -= known.bytes();
            }
            self.lists.retain(|id, _| id != oldest);
        }
        self.lists.shrink(self.limit.saturating_sub(self.known_bytes), None);
        self.known.len() < before
    }

    /// Drops files that were not used since the last call. Returns whether there were any.
    pub(super) fn age(&mut self) -> bool {
        let since = std::mem::replace(&mut self.aged, self.now);
        self.retain(since, |_, known| known.used > since)
    }

    /// Returns the approximate memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.known_bytes + self.lists.bytes
    }
}

impl Lists {
    fn retain(&mut self, keep: impl Fn(ModuleId, &List) -> bool) {
        self.held.retain(|(id, ..), list| keep(*id, list));
        self.bytes = self.held.values().map(List::bytes).sum();
    }

    /// Drops the least recently used lists, except one.
    fn shrink(&mut self, limit: usize, but: Option<Key>) {
        while self.bytes > limit {
            let others = self.held.iter().filter(|(key, _)| Some(**key) != but);
            let Some(oldest) = others.min_by_key(|(_, list)| list.used).map(|(key, _)| *key) else { return };
            if let Some(list) = self.held.remove(&oldest) {
                self.bytes -= list.bytes();
            }
        }
    }
}

impl List {
    fn bytes(&self) -> usize {
        self.region.bytes() + size_of::<(Key, Self)>()
    }
}

impl Known {
    fn read(module: &Module, code: &Code, files: &Files, limit: usize) -> Self {
        let identity = Identity::of(module);
        let mut segments = Vec::new();
        let copied = (&*module.path == "[vdso]" && module.file.is_err())
            .then(|| stack::vdso(&files.roots().proc))
            .flatten();
        let copied = copied.map(|bytes| Arc::new(Bytes(bytes)));
        let file: Option<&dyn ReadAt> = match (&copied, &module.file) {
            (Some(bytes), _) => Some(&**bytes),
            (None, Ok(file)) => Some(&**file),
            (None, Err(_)) => None,
        };
        let own = || match &copied {
            Some(bytes) => Source::Copied(Arc::clone(bytes)),
            None => Source::Own(identity.written()),
        };
        let mut temporary = false;
        let names = match file {
            None => Err(Reason::NoFile),
            Some(file) => read(file, &own, module, code, files, limit, (&mut segments, &mut temporary)),
        };
        let hash = file.and_then(FileHash::of);
        let go_build_id = module.file.as_ref().ok().and_then(|file| stack::go_build_id(&file.file));
        let whole = Segment {
            start: 0,
            limit: u64::MAX,
            offset: 0,
            path: Arc::clone(&module.path),
            build_id: module.build_id.clone(),
            go_build_id,
            hash,
            named: names.as_ref().is_ok_and(|names| !names.tables.is_empty()),
        };
        let segments = segments.into_iter().map(|segment| (segment, None)).collect();
        Self { identity, whole: whole.into(), segments, names, temporary, used: 0 }
    }

    /// Returns the segment of an offset, and its address.
    fn locate(&mut self, offset: u64) -> (Arc<Segment>, u64) {
        let mut found = self.segments.iter_mut();
        let found = found.find_map(|(segment, shown)| Some((segment.address_of(offset)?, segment, shown)));
        let Some((address, segment, shown)) = found else { return (Arc::clone(&self.whole), offset) };
        let shown = shown.get_or_insert_with(|| {
            let &mut binary::Segment { start, limit, offset, .. } = segment;
            Arc::new(Segment { start, limit, offset, ..(*self.whole).clone() })
        });
        (Arc::clone(shown), address)
    }

    /// Returns the bytes of tables that were read to build this state.
    fn passes(&self) -> u64 {
        let tables = self.names.iter().flat_map(|names| &names.tables);
        tables.map(|table| table.addresses.pass()).sum()
    }

    /// Returns its bytes as if all its segments were in use.
    fn bytes(&self) -> usize {
        let segment = size_of::<(binary::Segment, Option<Arc<Segment>>)>() + size_of::<Segment>();
        KNOWN + self.segments.len() * segment + self.names.as_ref().map_or(0, Names::bytes)
    }
}

fn read(
    file: &dyn ReadAt,
    own: &dyn Fn() -> Source,
    module: &Module,
    code: &Code,
    files: &Files,
    limit: usize,
    (segments, temporary): (&mut Vec<binary::Segment>, &mut bool),
) -> Result<Names, Reason> {
    let binary = Binary::read(file, Path::new("")).map_err(|error| reason(&error))?;
    *segments = binary.segments();
    let each = (limit / (REGIONS * FUNCTION)).clamp(256, REGION);
    let find = |named: &Binary<'_>| binary.addresses(named, each).map_err(|error| reason(&error));
    let mut names = Names { tables: Vec::new(), stubs: None, otherwise: Reason::Between };
    let pid = code.processes.get(module.process.0 as usize).map(|process| process.pid);
    let all_names = binary.has_all_names();
    let beside = if all_names {
        Err(NoDebugFile { temporary: false })
    } else {
        let root = pid.map_or(Root::Host, Root::Process);
        find_debug_file(files, &root, None, &module.path, &binary, DebugContents::AllNames)
    };
    *temporary = beside.as_ref().is_err_and(|missing| missing.temporary);
    if all_names {
        names.add(find(&binary)?, own());
    } else if let Some((found, source)) = beside.ok().and_then(|beside| {
        let found = find(&beside.opened.binary().ok()?).ok()?;
        Some((found?, Source::CompanionFile(beside.into())))
    }) {
        names.add(Some(found), source);
    } else {
        // The compressed symbols do not contain exported ones.
        if let Ok(Some(bytes)) = binary.mini_debug(limit as u64 / 4)
            && let Some(found) = in_all_names(&bytes, find)
        {
            names.add(found, Source::Copied(Arc::new(Bytes(bytes))));
        }
        if names.tables.is_empty() {
            names.otherwise = Reason::Stripped;
        }
        match find(&binary) {
            Ok(found) => names.add(found, own()),
            Err(reason) if names.tables.is_empty() => return Err(reason),
            Err(_) => {}
        }
    }
    if let Ok(stubs) = binary.stubs(limit / 4 / Stubs::EACH)
        && !stubs.is_empty()
    {
        names.stubs = Some((stubs, own()));
    }
    if names.tables.is_empty() {
        if names.stubs.is_none() {
            return Err(Reason::NoSymbols);
        }
        names.otherwise = Reason::NoSymbols;
    }
    Ok(names)
}

/// Returns the functions of a file in memory, if it has all symbols.
fn in_all_names(
    bytes: &[u8],
    find: impl Fn(&Binary<'_>) -> Result<Option<Addresses>, Reason>,
) -> Option<Option<Addresses>> {
    let mini = Binary::read(bytes, Path::new("")).ok().filter(Binary::has_all_names)?;
    find(&mini).ok()
}

impl Names {
    fn add(&mut self, addresses: Option<Addresses>, source: Source) {
        self.tables.extend(addresses.map(|addresses| Table { addresses, source }));
    }

    /// Returns the result for a linkage name that was read from a file, with a suffix.
    /// `function` are the addresses of the function.
    fn result(
        &self,
        read: std::io::Result<Option<Vec<u8>>>,
        suffix: &str,
        function: Span,
        span: Span,
    ) -> NameResult {
        let Ok(linkage) = read else { return (Err(Reason::Unreadable), None) };
        let name = linkage.map(|linkage| {
            let linkage = String::from_utf8_lossy(&linkage);
            Name::new(&format!("{}{suffix}", demangle(&linkage)), &format!("{linkage}{suffix}")).at(function)
        });
        (name.ok_or(self.otherwise), Some(span))
    }

    fn bytes(&self) -> usize {
        let tables = self.tables.iter().map(|table| table.addresses.bytes() + table.source.bytes());
        tables.sum::<usize>() + self.stubs.as_ref().map_or(0, |(stubs, _)| stubs.bytes())
    }
}

/// A name or the reason why there is none, and the span for which the result is valid; `None` if it must not be cached.
type NameResult = (Result<Name, Reason>, Option<Span>);

impl Reading<'_> {
    /// Returns the name of the function that contains an address.
    fn name(&mut self, names: &Names, address: u64) -> NameResult {
        let (mut best, mut span) = (None, (0, u64::MAX));
        // Of several tables, the function that begins nearest takes precedence: sizes may be guessed.
        for (number, table) in names.tables.iter().enumerate().rev() {
            let (reader, place) = match self.place(number, table, address) {
                Ok(found) => found,
                Err((reason, span)) => return (Err(reason), span),
            };
            span = within(span, place.span);
            if let Some(function) = place.function {
                let is_best = best
                    .as_ref()
                    .is_none_or(|(_, _, best): &(_, _, binary::Function)| best.start <= function.start);
                if is_best {
                    best = Some((table, reader, function));
                }
            }
        }
        let Some((table, reader, function)) = best else { return self.stub(names, address, span) };
        let addresses = (function.start, function.end);
        names.result(table.addresses.name(&*reader, &function), "", addresses, span)
    }

    /// Names a stub after the function of another file that it calls, as perf does.
    fn stub(&mut self, names: &Names, address: u64, span: Span) -> NameResult {
        let Some((stubs, source)) = &names.stubs else { return (Err(names.otherwise), Some(span)) };
        let (own, is_stub) = stubs.span(address);
        let span = within(span, own);
        if !is_stub {
            return (Err(names.otherwise), Some(span));
        }
        let reader = match self.open(OWN, source) {
            Ok(reader) => reader,
            Err(reason) => return (Err(reason), None),
        };
        names.result(stubs.name(&*reader, address), "@plt", own, span)
    }

    /// Looks up an address in a table.
    fn place(
        &mut self,
        number: usize,
        table: &Table,
        address: u64,
    ) -> Result<(Reader, binary::Place), (Reason, Option<Span>)> {
        let addresses = &table.addresses;
        let reader = self.open(number, &table.source).map_err(|reason| (reason, None))?;
        let key = (self.id, number, addresses.region_of(address));
        if !self.lists.held.contains_key(&key) {
            if !self.work.take(addresses.pass()) {
                return Err((Reason::Postponed, None));
            }
            let span = addresses.span_of(key.2);
            let region = addresses.read(&*reader, key.2);
            let list = List { region: region.map_err(|error| (reason(&error), Some(span)))?, used: self.now };
            if list.bytes() > self.limit {
                return Err((Reason::TooLarge, Some(span)));
            }
            self.lists.bytes += list.bytes();
            self.lists.held.insert(key, list);
            self.lists.shrink(self.limit, Some(key));
        }
        // The list was there or has just been added.
        let Some(list) = self.lists.held.get_mut(&key) else { return Err((Reason::TooLarge, None)) };
        list.used = self.now;
        let place = addresses.find(&*reader, &list.region, address);
        Ok((reader, place.map_err(|_| (Reason::Unreadable, None))?))
    }

    /// Opens a file, once for all symbols that are looked up together.
    fn open(&mut self, number: usize, source: &Source) -> Result<Reader, Reason> {
        let opened = self.open.0.entry((self.id, number));
        opened.or_insert_with(|| source.open(self.module, self.files)).clone()
    }
}

fn within(one: Span, other: Span) -> Span {
    (one.0.max(other.0), one.1.min(other.1))
}

fn reason(error: &BinaryError) -> Reason {
    match error {
        BinaryError::NotElf { .. } | BinaryError::NotProgram { .. } => Reason::NotElf,
        BinaryError::Damaged { .. } => Reason::Damaged,
        BinaryError::TooMany { .. } => Reason::TooLarge,
        _ => Reason::Unreadable,
    }
}
