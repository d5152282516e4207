//! The records of a perf.data file in the order of the file.

use super::cursor::Cursor;
use super::header::{Section, damaged};
use super::zstd::Inflater;
use crate::host::ReadAt;
use crate::recording::Invalid;

/// Size of the header of a record in bytes.
const RECORD_HEADER: usize = 8;
/// Number of bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Kinds of records that perf adds.
pub(super) const FINISHED_ROUND: u32 = 68;
const AUXTRACE: u32 = 71;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// A record as it is in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raw {
    pub(super) kind: u32,
    pub(super) misc: u16,
    /// The bytes after the header.
    pub(super) body: Box<[u8]>,
    /// The offset of the record in the file, or that of the compressed record that contains it.
    pub(super) offset: u64,
}

/// Reads the records.
pub(super) struct Stream<'f> {
    file: &'f dyn ReadAt,
    big: bool,
    /// The offset of the next record, and the end.
    at: u64,
    end: u64,
    /// Whether the last record may be incomplete.
    unfinished: bool,
    buffer: Vec<u8>,
    /// The offset of the buffer in the file.
    start: u64,
    inflater: Option<Inflater>,
    /// The offset of the last compressed record.
    compressed: u64,
    /// Whether the file ends within a record.
    pub(super) truncated: bool,
}

impl<'f> Stream<'f> {
    pub(super) fn new(file: &'f dyn ReadAt, data: Section, big: bool, unfinished: bool) -> Self {
        Self {
            file,
            big,
            at: data.offset,
            end: data.end(),
            unfinished,
            buffer: Vec::new(),
            start: data.offset,
            inflater: None,
            compressed: 0,
            truncated: false,
        }
    }

    /// Reports whether records were compressed. Their order differs from that of the records around them.
    pub(super) fn is_compressed(&self) -> bool {
        self.inflater.is_some()
    }

    /// Returns the offset of the next record.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Returns the next record.
    pub(super) fn next(&mut self) -> Result<Option<Raw>, Invalid> {
        loop {
            let (big, offset) = (self.big, self.compressed);
            if let Some(inflater) = &mut self.inflater {
                let damaged = |_| damaged("compressed records are damaged", offset);
                if let Some(record) = inflater.record().map_err(damaged)? {
                    return Ok(raw(record, big, offset));
                }
            }
            let offset = self.at;
            let Some(record) = self.outer()? else {
                match &mut self.inflater {
                    Some(inflater) if inflater.can_end() => inflater.end(),
                    _ => return Ok(None),
                }
                continue;
            };
            let Some(raw) = raw(record, big, offset) else { return Ok(None) };
            match raw.kind {
                COMPRESSED => self.inflate(&raw.body, offset),
                COMPRESSED2 => {
                    let mut cursor = Cursor::new(&raw.body, big);
                    let data = cursor.u64().and_then(|size| cursor.take(usize::try_from(size).ok()?));
                    let data = data.ok_or_else(|| damaged("a compressed record is incomplete", offset))?;
                    self.inflate(data, offset);
                }
                AUXTRACE => {
                    let size = Cursor::new(&raw.body, big).u64().unwrap_or(0);
                    self.at = self.at.saturating_add(size);
                    if self.at > self.end {
                        return Err(damaged("the file ends within AUX data", offset));
                    }
                }
                _ => return Ok(Some(raw)),
            }
        }
    }

    fn inflate(&mut self, bytes: &[u8], offset: u64) {
        self.compressed = offset;
        self.inflater.get_or_insert_default().add(bytes);
    }

    /// Returns the next record of the file with its header.
    fn outer(&mut self) -> Result<Option<&[u8]>, Invalid> {
        let left = self.end.saturating_sub(self.at);
        if left == 0 {
            return Ok(None);
        }
        let (offset, big) = (self.at, self.big);
        let is_whole = left >= RECORD_HEADER as u64;
        let size = if is_whole { Cursor::new(&self.peek(RECORD_HEADER)?[6..], big).u16() } else { None };
        let size = size.map_or(0, usize::from);
        // The last record of a recording that was killed may be incomplete, or zeros.
        if self.unfinished && (!is_whole || size == 0 || size as u64 > left) {
            (self.truncated, self.at) = (true, self.end);
            return Ok(None);
        }
        if is_whole && size < RECORD_HEADER {
            return Err(damaged("a record has an invalid size", offset));
        }
        if !is_whole || size as u64 > left {
            return Err(damaged("the data end within a record", offset));
        }
        self.peek(size)?;
        self.at += size as u64;
        let from = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
        Ok(self.buffer.get(from..from.saturating_add(size)))
    }

    /// Returns the next bytes without consuming them.
    fn peek(&mut self, size: usize) -> Result<&[u8], Invalid> {
        let from = self.at.checked_sub(self.start).and_then(|from| usize::try_from(from).ok());
        match from.filter(|from| from.saturating_add(size) <= self.buffer.len()) {
            Some(from) => Ok(&self.buffer[from..from + size]),
            None => {
                self.fill(size)?;
                Ok(&self.buffer[..size])
            }
        }
    }

    /// Reads the next bytes into the buffer, `size` at least.
    fn fill(&mut self, size: usize) -> Result<(), Invalid> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        self.buffer.resize(left.min(CHUNK).max(size), 0);
        self.start = self.at;
        self.file.read_exact_at(&mut self.buffer, self.at).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => damaged("the file was truncated while it was read", self.at),
            _ => Invalid::Unreadable(error),
        })
    }
}

/// Splits a record into header and body.
fn raw(record: &[u8], big: bool, offset: u64) -> Option<Raw> {
    let mut cursor = Cursor::new(record, big);
    let (kind, misc, _) = (cursor.u32()?, cursor.u16()?, cursor.u16()?);
    Some(Raw { kind, misc, body: cursor.rest().into(), offset })
}
