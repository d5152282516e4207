//! Recordings of perf (`perf.data`), of this program and of perf itself.
//!
//! ```text
//! header, features ─┐
//! Stream ─► Sorted ─┴► Machine: names, mappings ─► Sampled ─┬► Aggregation ─► Profile for each event
//!                                                           ├► Timeline: all samples in memory
//!                                                           ├► Accesses: samples of memory accesses
//!                                                           └► `script`
//! header, features, Stream ─► CountReader: counts of `stat record`
//! ```
//!
//! The file is read from its begin to its end once, in pieces. Files are untrusted: every size is compared with the size of the file or
//! with a limit before memory is reserved.
//!
//! Not supported: files that `perf record` wrote into a pipe, directories of `perf record --threads`, and AUX data, which are skipped.

mod access;
mod accesses;
mod aggregation;
mod copied;
mod counts;
mod cursor;
mod data_source;
mod features;
mod files;
mod header;
mod machine;
mod sample;
mod sorted;
mod stream;
mod symbols;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
mod topology;
mod zstd;

use std::ops::RangeInclusive;
use std::sync::Arc;

use perf_event_open_sys::bindings as abi;

pub use self::access::{DataName, DataPlace, Region, SampledAccess};
pub use self::accesses::{Access, Accesses, EventAccesses};
use self::copied::CopiedStacks;
pub use self::counts::{CountReader, CountedThread, PlaceCount, Reading};
use self::cursor::{Cursor, until_nul};
pub use self::data_source::{Blocked, DataSource, Level, Snoop};
use self::features::Tracepoints;
pub use self::header::Attribute;
use self::header::{BIG, Header, damaged};
pub use self::machine::CpuMode;
use self::machine::Machine;
use self::sorted::{Record, Sorted};
use self::stream::Stream;
pub use self::symbols::Options;
use self::symbols::Symbols;
pub use self::timeline::{TimedSample, Timeline, Track};
pub use self::topology::Topology;
use super::Invalid;
use super::about::About;
use crate::event::format::Format;
use crate::files::Files;
use crate::host::ReadAt;
use crate::perf_data::constants::MAGIC;
pub use crate::perf_data::counts::AggregationMode;
use crate::ring::Ksymbol;
use crate::stack::Frame;
use crate::symbol::Named;

pub(super) use self::aggregation::profiles;

/// Maximum number of addresses of a call chain.
const CHAIN_LIMIT: usize = 8192;

/// Reports whether a file begins like a recording of perf.
pub(super) fn is_perf_data(first: &[u8]) -> bool {
    first.starts_with(MAGIC) || first.starts_with(BIG)
}

/// One sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sampled {
    /// The event: an index into [`About::events`].
    pub event: usize,
    /// The time in nanoseconds on the clock of the records, if it was recorded.
    pub time: Option<u64>,
    /// The process; `u32::MAX` if unknown.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name of the thread at that time.
    pub comm: Arc<str>,
    /// The name of the main thread.
    pub program: Arc<str>,
    /// The path of the program, if known.
    pub exe: Option<Arc<str>>,
    /// The CPU, if it was recorded.
    pub cpu: Option<u32>,
    /// The weight: how many events the sample represents.
    pub period: u64,
    /// The mode in which the event occurred.
    pub mode: CpuMode,
    /// The cgroup, if it was recorded.
    pub cgroup: Option<Arc<str>>,
    /// The call chain, innermost first: the address of the instruction only, if no call chain was recorded. Empty if there is no address.
    pub chain: Vec<Place>,
    /// Whether `chain` is a recorded call chain.
    pub has_chain: bool,
    /// The memory access, if its source was recorded.
    pub access: Option<SampledAccess>,
    /// The record of the tracepoint, from `common_type` on.
    pub raw: Option<Box<[u8]>>,
}

/// An address of a call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The recorded address: the instruction, or the one to which a call returns.
    pub address: u64,
    /// Where it is.
    pub frame: Frame,
}

/// A recording that is being read.
pub struct Reader<'f> {
    header: Header,
    about: About,
    tracepoints: Tracepoints,
    records: Sorted<'f>,
    machine: Machine,
    symbols: Symbols,
    return_addresses: bool,
    /// The first and the last time of samples that are read.
    times: RangeInclusive<u64>,
    copied: CopiedStacks,
}

impl std::fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("about", &self.about).finish_non_exhaustive()
    }
}

impl<'f> Reader<'f> {
    /// Reads the header and the features. Files of the recording are opened by `files`.
    ///
    /// # Errors
    /// If the file is not a recording of perf, damaged, or cannot be read.
    pub fn new(file: &'f dyn ReadAt, options: &Options, files: &Files) -> Result<Self, Invalid> {
        let mut header = Header::read(file)?;
        let about = features::about(&mut header, file)?;
        let build_ids = features::build_ids(&header, file)?;
        let tracepoints = features::tracepoints(&header, file)?;
        let kernel = build_ids.get(&b"[kernel.kallsyms]"[..]).cloned();
        let stream = Stream::new(file, header.data, header.big, header.unfinished);
        Ok(Self {
            copied: CopiedStacks::new(files, options.cache.clone(), about.arch.as_deref(), header.big),
            symbols: Symbols::new(files, options.clone(), &about, kernel),
            records: Sorted::new(stream),
            machine: Machine::new(build_ids, header.attributes.iter().any(Attribute::has_accesses)),
            return_addresses: options.return_addresses,
            times: options.times.clone().unwrap_or(0..=u64::MAX),
            header,
            about,
            tracepoints,
        })
    }

    /// Returns the description of the recording. Lost records and notes are complete after the last sample.
    pub fn about(&self) -> About {
        let mut about = self.about.clone();
        about.lost = self.machine.lost;
        about.lost.unknown = self.records.unknown;
        about.notes = self.symbols.notes(&self.machine);
        if self.header.unfinished {
            about.notes.push(
                "the recording was not finished: the list of build ids and the description are missing"
                    .into(),
            );
        }
        if self.records.stream.truncated {
            about.notes.push("the last record is incomplete and was ignored".into());
        }
        if self.copied.foreign {
            about.notes.push(
                "copied user stacks (--call-graph dwarf) are of another architecture and are not unwound: callers in programs are \
                 missing"
                    .into(),
            );
        }
        about
    }

    /// Returns the format of a tracepoint by its id, with its system.
    pub fn format(&self, id: u64) -> Option<(&str, &Format)> {
        self.tracepoints.formats.get(&id).map(|(system, format)| (&**system, format))
    }

    /// Returns the constant text of the recorded kernel at an address.
    pub fn text(&self, address: u64) -> Option<&str> {
        self.tracepoints.texts.get(&address).map(|text| &**text)
    }

    /// Returns the name of the kernel or the module that contains an address.
    pub fn kernel_module(&self, address: u64) -> Option<&Arc<str>> {
        self.machine.kernel_module(address)
    }

    /// Returns the path of the file of a location in a program.
    pub fn path(&self, frame: Frame) -> Option<&Arc<str>> {
        match frame {
            Frame::File { module, .. } => {
                self.machine.files.code.modules.get(module.0 as usize).map(|module| &module.path)
            }
            _ => None,
        }
    }

    /// Returns the next sample in the order of time.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read.
    pub fn next_sample(&mut self) -> Result<Option<Sampled>, Invalid> {
        while let Some(record) = self.records.next(&self.header)? {
            match record.raw.kind {
                abi::PERF_RECORD_SAMPLE => {
                    let sample = self.sampled(&record)?;
                    if sample.time.is_none_or(|time| self.times.contains(&time)) {
                        return Ok(Some(sample));
                    }
                }
                abi::PERF_RECORD_KSYMBOL => self.apply_ksymbol(&record),
                _ => self.machine.apply(&record.raw, self.header.big)?,
            }
        }
        Ok(None)
    }

    /// Returns the offset up to which the file was read, and that of its end.
    pub fn progress(&self) -> (u64, u64) {
        (self.records.stream.position(), self.header.data.end())
    }

    /// Looks up the functions of locations. The results are in the same order.
    pub fn resolve(&mut self, frames: &[Frame]) -> Vec<Arc<Named>> {
        self.symbols.resolve(frames, &mut self.machine)
    }

    /// Returns the names of places of data, in their order.
    fn resolve_data(&mut self, places: &[DataPlace]) -> Vec<DataName> {
        self.symbols.resolve_data(places, &mut self.machine)
    }

    fn apply_ksymbol(&mut self, record: &Record) {
        let mut cursor = Cursor::new(&record.raw.body, self.header.big);
        let mut parse = || {
            let (address, length, _, flags) = (cursor.u64()?, cursor.u32()?, cursor.u16()?, cursor.u16()?);
            let name = until_nul(cursor.rest());
            Some(Ksymbol { address, length, removed: flags & 1 != 0, name })
        };
        if let Some(symbol) = parse() {
            self.symbols.apply(&symbol);
        }
    }

    fn sampled(&mut self, record: &Record) -> Result<Sampled, Invalid> {
        let wrong = || damaged("a sample is shorter than its fields", record.raw.offset);
        let event = record.event.unwrap_or(0);
        let attribute = self.header.attributes.get(event).ok_or_else(wrong)?;
        let fields = sample::sample(&record.raw.body, attribute, self.header.big).ok_or_else(wrong)?;
        let (pid, tid) = fields.task.unwrap_or((u32::MAX, u32::MAX));
        let mode = CpuMode::of(record.raw.misc);
        let has_access = attribute.has_accesses();
        let is_split = attribute.has(abi::PERF_SAMPLE_WEIGHT_STRUCT);
        let period = fields.period.unwrap_or(if attribute.frequency { 1 } else { attribute.period });
        let chain = match (fields.chain, fields.ip) {
            (Some(chain), _) => self.chain(chain, &fields, (pid, attribute.registers), mode),
            (None, Some(address)) => vec![Place { address, frame: self.machine.frame(pid, mode, address) }],
            (None, None) => Vec::new(),
        };
        let access = has_access.then(|| self.machine.access(pid, mode, &fields, is_split));
        let names = self.machine.names(pid, tid);
        Ok(Sampled {
            event,
            time: fields.time,
            pid,
            tid,
            comm: names.comm,
            program: names.program,
            exe: names.exe,
            cpu: fields.cpu,
            period,
            mode,
            cgroup: fields.cgroup.and_then(|id| self.machine.cgroup(id)),
            chain,
            has_chain: fields.chain.is_some(),
            access,
            raw: fields.raw.map(Box::from),
        })
    }

    /// Returns the locations of a call chain. Markers change the mode of the addresses behind them. The addresses of the program are those
    /// that were unwound, if its stack was copied. `mask` are the registers of samples.
    fn chain(
        &mut self,
        bytes: &[u8],
        fields: &sample::Fields<'_>,
        (pid, mask): (u32, u64),
        mut mode: CpuMode,
    ) -> Vec<Place> {
        let unwound = self.copied.unwind(pid, fields, mask, &mut self.machine);
        let (mut cursor, mut chain) = (Cursor::new(bytes, self.header.big), Vec::new());
        let mut is_innermost = true;
        while let Some(address) = cursor.u64().filter(|_| chain.len() < CHAIN_LIMIT) {
            match CpuMode::of_marker(address) {
                Some(marked) => mode = marked,
                None if unwound.is_some() && mode == CpuMode::User => {}
                None => {
                    let back = u64::from(!chain.is_empty() && !self.return_addresses);
                    chain.push(self.place(pid, mode, address, back));
                    if mode == CpuMode::User && std::mem::take(&mut is_innermost) {
                        let caller =
                            self.copied.caller_of_leaf((pid, address), fields, mask, &mut self.machine);
                        chain.extend(caller.map(|address| self.caller(pid, address)));
                    }
                }
            }
        }
        let unwound = unwound.into_iter().flatten().enumerate();
        chain.extend(unwound.map(|(depth, address)| match depth {
            0 => self.place(pid, CpuMode::User, address, 0),
            _ => self.caller(pid, address),
        }));
        chain
    }

    /// Returns the place of an address, which is looked up `back` bytes before.
    fn place(&mut self, pid: u32, mode: CpuMode, address: u64, back: u64) -> Place {
        Place { address, frame: self.machine.frame(pid, mode, address.saturating_sub(back)) }
    }

    /// Returns the place of a call that unwinding found, by its return address. As perf with libdw: the address is that of its last byte.
    fn caller(&mut self, pid: u32, address: u64) -> Place {
        self.place(pid, CpuMode::User, address.saturating_sub(1), 0)
    }
}
