//! Names of code that was made at run time, as the processes that make it tell them.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::follow::Followed;
use super::jitdump::JitDump;
use super::perfmap::PerfMap;
use super::regions::Name;
use super::{NamedLine, Reason};
use crate::clock::Monotonic;
use crate::error::printable;
use crate::host;
use crate::probe::Root;
use crate::files::{Files, Opened, RootError};
use crate::stack::{Code, Process, ProcessId};

/// The most processes whose files are followed. Each keeps one or two open.
const PROCESS_LIMIT: usize = 256;
/// What is known of a process beside its functions, in bytes, roughly.
const KNOWN: usize = 400;

/// The processes that make code.
#[derive(Debug)]
pub(super) struct Jits {
    known: FxHashMap<ProcessId, Jit>,
    /// How much memory all of them may take, in bytes, and one.
    limit: usize,
    each: usize,
    /// Grows with each use.
    now: u64,
}

#[derive(Debug)]
struct Jit {
    process: Process,
    map: Map,
    dump: Option<(Option<Followed>, JitDump)>,
    /// When its files were looked at last.
    looked: Option<Monotonic>,
    /// It has ended: its number may be another's.
    ended: bool,
    used: u64,
    /// Names that were asked for: of a function in the map.
    names: FxHashMap<Name, Arc<str>>,
    dump_names: FxHashMap<Name, Arc<str>>,
}

#[derive(Debug)]
enum Map {
    /// There is none, or none that can be believed.
    Missing(Reason),
    /// What it told, and the file, unless nothing more is to come.
    Read(Option<Followed>, PerfMap),
}

/// What was not understood, or not kept, of what processes told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) malformed: u64,
    pub(super) dropped: u64,
}

impl Losses {
    fn since(self, before: Self) -> Self {
        Self {
            malformed: self.malformed.saturating_sub(before.malformed),
            dropped: self.dropped.saturating_sub(before.dropped),
        }
    }
}

impl Jits {
    /// All take at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { known: FxHashMap::default(), limit, each: limit / 2, now: 0 }
    }

    /// Changes the limit.
    pub(super) fn set_limit(&mut self, limit: usize) {
        (self.limit, self.each) = (limit, limit / 2);
    }

    /// How many files are held open.
    pub(super) fn open_files(&self) -> usize {
        let maps = self.known.values().filter(|jit| matches!(jit.map, Map::Read(Some(_), _)));
        maps.count() + self.known.values().filter(|jit| matches!(jit.dump, Some((Some(_), _)))).count()
    }

    /// Looks what a process has told since it was looked at last, unless that is not longer ago than `refresh`.
    pub(super) fn look(
        &mut self,
        id: ProcessId,
        code: &Code,
        files: &Files,
        now: Monotonic,
        refresh: Duration,
    ) -> Losses {
        let Some(process) = code.processes.get(id.0 as usize) else { return Losses::default() };
        self.now += 1;
        if self.known.get(&id).is_some_and(|jit| jit.process != *process) {
            self.known.remove(&id);
        }
        let jit = self.known.entry(id).or_insert_with(|| Jit::new(process.clone()));
        jit.used = self.now;
        if jit.looked.is_some_and(|looked| now.since(looked) < refresh) {
            return Losses::default();
        }
        jit.looked = Some(now);
        let before = jit.losses();
        jit.look(id, code, files, self.each);
        let losses = jit.losses().since(before);
        self.make_room(id);
        losses
    }

    /// A process has ended, or executes another program: what it told last is read, and no more is asked for.
    pub(super) fn end(&mut self, id: ProcessId) -> Losses {
        let Some(jit) = self.known.get_mut(&id) else { return Losses::default() };
        let before = jit.losses();
        jit.poll();
        let losses = jit.losses().since(before);
        jit.ended = true;
        jit.close();
        losses
    }

    /// The function that an address of a process is in.
    pub(super) fn find(&mut self, id: ProcessId, address: u64) -> Result<NamedLine, Reason> {
        self.known.get_mut(&id).map_or(Err(Reason::MapMissing), |jit| jit.find(address))
    }

    /// Forgets the processes that were not asked for longest, but this one.
    fn make_room(&mut self, but: ProcessId) {
        while self.bytes() > self.limit || self.known.len() > PROCESS_LIMIT {
            let others = self.known.iter().filter(|(id, _)| **id != but);
            let Some(oldest) = others.min_by_key(|(_, jit)| jit.used).map(|(id, _)| *id) else { return };
            self.known.remove(&oldest);
        }
    }

    /// How much memory they take, in bytes, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.known.values().map(Jit::bytes).sum()
    }
}

impl Jit {
    fn new(process: Process) -> Self {
        Self {
            process,
            map: Map::Missing(Reason::MapMissing),
            dump: None,
            looked: None,
            ended: false,
            used: 0,
            names: FxHashMap::default(),
            dump_names: FxHashMap::default(),
        }
    }

    fn look(&mut self, id: ProcessId, code: &Code, files: &Files, limit: usize) {
        if self.ended {
            return;
        }
        match open_map(files, &self.process) {
            Ok(opened) if matches!(&self.map, Map::Read(Some(held), _) if held.is(&opened)) => {}
            Ok(opened) => {
                self.map = Map::Read(Some(Followed::new(Arc::new(opened))), PerfMap::new(limit));
                self.names.clear();
            }
            // What was read of a file that is gone is still true.
            Err(reason) => {
                if let Map::Missing(missing) = &mut self.map {
                    *missing = reason;
                }
            }
        }
        if self.dump.is_none() {
            let file = dump_of(id, &self.process, code);
            self.dump = file.map(|file| (Some(Followed::new(file)), JitDump::new(limit)));
        }
        self.poll();
    }

    /// Reads what was appended to the files that are open.
    fn poll(&mut self) {
        if let Map::Read(Some(file), map) = &mut self.map {
            match file.poll(map) {
                // Names may stand elsewhere now.
                Ok(true) => self.names.clear(),
                Err(_) if map.regions.len() == 0 => self.map = Map::Missing(Reason::MapUnreadable),
                Ok(false) | Err(_) => {}
            }
        }
        if let Some((Some(file), dump)) = &mut self.dump
            && !matches!(file.poll(dump), Ok(false))
        {
            self.dump_names.clear();
        }
    }

    fn close(&mut self) {
        if let Map::Read(file, _) = &mut self.map {
            *file = None;
        }
        if let Some((file, _)) = &mut self.dump {
            *file = None;
        }
    }

    fn find(&mut self, address: u64) -> Result<NamedLine, Reason> {
        if let Some((_, dump)) = &self.dump
            && let Some((start, name)) = dump.regions.find(address)
        {
            let name = interned(&mut self.dump_names, name, || dump.regions.text(name));
            let line = dump.line(start, address);
            return Ok(NamedLine {
                linkage: Arc::clone(&name),
                name,
                file: line.map(|line| Arc::clone(&line.file)).filter(|file| !file.is_empty()),
                line: line.map_or(0, |line| line.number),
            });
        }
        match &self.map {
            Map::Missing(_) if self.dump.is_some() => Err(Reason::NotInMap),
            Map::Missing(reason) => Err(*reason),
            Map::Read(_, map) => {
                let (_, name) = map.regions.find(address).ok_or(Reason::NotInMap)?;
                let name = interned(&mut self.names, name, || map.regions.text(name));
                Ok(NamedLine { linkage: Arc::clone(&name), name, file: None, line: 0 })
            }
        }
    }

    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        if let Map::Read(_, map) = &self.map {
            losses = Losses { malformed: map.malformed, dropped: map.dropped };
        }
        if let Some((_, dump)) = &self.dump {
            losses.malformed += dump.malformed;
            losses.dropped += dump.dropped;
        }
        losses
    }

    fn bytes(&self) -> usize {
        let map = if let Map::Read(_, map) = &self.map { map.regions.bytes() } else { 0 };
        let names = self.names.values().chain(self.dump_names.values()).map(|name| name.len() + 64);
        KNOWN + map + self.dump.as_ref().map_or(0, |(_, dump)| dump.bytes()) + names.sum::<usize>()
    }
}

fn interned<'t>(
    names: &mut FxHashMap<Name, Arc<str>>,
    name: Name,
    text: impl FnOnce() -> &'t [u8],
) -> Arc<str> {
    let text = || printable(&String::from_utf8_lossy(text())).into();
    Arc::clone(names.entry(name).or_insert_with(text))
}

/// Opens the list that a process keeps for `perf`: in its own root, by the number that it calls itself. `/tmp` is
/// everybody's, so it must be its user's or root's, as for `perf` itself.
fn open_map(files: &Files, process: &Process) -> Result<Opened, Reason> {
    let path = format!("/tmp/perf-{}.map", process.own_pid);
    let opened =
        files.open(&Root::Process(process.pid), &path, None).map_err(|error| match error {
            RootError::NoProcess(_) | RootError::Absent { .. } => Reason::MapMissing,
            RootError::ProcessForbidden { .. } | RootError::FileForbidden { .. } => Reason::MapForbidden,
            _ => Reason::MapUnreadable,
        })?;
    let owner = opened.file.metadata().map_err(|_| Reason::MapUnreadable)?.uid();
    if owner == 0 || users(files, process.pid).contains(&owner) {
        Ok(opened)
    } else {
        Err(Reason::MapForbidden)
    }
}

/// The users that a process acts for: real, effective, saved and of file systems. None if it has ended.
fn users(files: &Files, pid: u32) -> Vec<u32> {
    let status = host::read_text(&files.roots().proc.join(pid.to_string()).join("status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The file that a process has mapped so that `perf` knows where it tells of its code.
fn dump_of(id: ProcessId, process: &Process, code: &Code) -> Option<Arc<Opened>> {
    let name = format!("jit-{}.dump", process.own_pid);
    let mut modules = code.modules.iter().filter(|module| module.process == id);
    modules.find_map(|module| {
        let path = module.path.strip_suffix(" (deleted)").unwrap_or(&module.path);
        let is_dump = path.rsplit('/').next() == Some(&*name);
        module.file.as_ref().ok().filter(|_| is_dump).cloned()
    })
}
