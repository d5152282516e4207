//! Writing of a file that a reader can open at any time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use perf_event_open_sys::bindings::{PERF_RECORD_MMAP2, PERF_RECORD_SAMPLE};

use super::compressed::{compressed, feature};
use super::constants::HEADER;
use super::format::{EventSection, Start};
use super::sections::layout;
use super::{BuildIds, Features};
use crate::ring::{Record, time_of};
use crate::sys::Fields;

/// Bytes of records that are written at once.
const ENOUGH: usize = 1 << 20;

/// A file under construction: header, events, records, features.
#[derive(Debug)]
pub(crate) struct Writer {
    file: File,
    start: Start,
    features: Features,
    /// `None` for a file without samples.
    build_ids: Option<BuildIds>,
    /// Fields in all samples, up to the time.
    side: Fields,
    /// Whether records are compressed.
    compress: bool,
    /// Bytes of records in the file, and before they were compressed.
    written: u64,
    records: u64,
    /// Records that are not in the file yet.
    buffer: Vec<u8>,
    /// Whether the header announces features behind the records.
    announced: bool,
    /// Times of the first and the last sample.
    times: Option<(u64, u64)>,
}

impl Writer {
    /// Begins a file. `side` are the fields at the start of all samples, which are also at the end of all other records. With `compress`,
    /// records are compressed. Without `build_ids`, the file describes no mapped files.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn begin(
        file: File,
        events: &[EventSection],
        features: Features,
        build_ids: Option<BuildIds>,
        side: Fields,
        compress: bool,
    ) -> io::Result<Self> {
        let writer = Self {
            file,
            start: Start::new(events),
            features,
            build_ids,
            side,
            compress,
            written: 0,
            records: 0,
            buffer: Vec::new(),
            announced: false,
            times: None,
        };
        writer.write_header(&[])?;
        writer.file.write_all_at(&writer.start.bytes, HEADER as u64)?;
        Ok(writer)
    }

    /// Adds a record, which the next [`commit`](Self::commit) writes.
    pub(crate) fn append(&mut self, record: &[u8]) {
        self.buffer.extend_from_slice(record);
        let kind = record.first_chunk().map(|&kind| u32::from_ne_bytes(kind));
        match kind {
            Some(PERF_RECORD_SAMPLE) => {
                if let Some(time) = time_of(record, &self.side) {
                    self.times = Some((self.times.map_or(time, |(first, _)| first), time));
                }
            }
            Some(PERF_RECORD_MMAP2) => {
                if let (Some(build_ids), Ok(Record::Mmap(mmap))) =
                    (&mut self.build_ids, Record::parse(record, &self.side))
                {
                    build_ids.add(&mmap);
                }
            }
            _ => {}
        }
    }

    /// Reports whether there are enough records for a commit.
    pub(crate) fn is_due(&self) -> bool {
        self.buffer.len() >= ENOUGH
    }

    /// Returns the size of the file in bytes, with the records that are not written yet.
    pub(crate) fn size(&self) -> u64 {
        self.start.data() + self.written + self.buffer.len() as u64
    }

    /// Writes the records that were added, and the features behind them. Until the header announces them, it describes the file as of the
    /// previous commit, without features: so a reader never sees an incomplete record.
    ///
    /// # Errors
    /// If the file cannot be written. It is then as of the previous commit.
    pub(crate) fn commit(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.announced) {
            self.write_header(&[])?;
        }
        let compressed = self.compress.then(|| compressed(&self.buffer));
        let bytes = compressed.as_deref().unwrap_or(&self.buffer);
        let size = self.written + bytes.len() as u64;
        let written = self.file.write_all_at(bytes, self.start.data() + self.written);
        match written.and_then(|()| self.announce(size)) {
            Ok(()) => {
                self.written = size;
                self.records += self.buffer.len() as u64;
                self.buffer.clear();
                self.buffer.shrink_to(2 * ENOUGH);
                Ok(())
            }
            Err(error) => {
                // The features of the previous commit had room.
                let before = self.file.set_len(self.start.data() + self.written);
                if let Err(again) = before.and_then(|()| self.announce(self.written)) {
                    tracing::debug!(
                        "the recording has no features, because they cannot be written either: {again}"
                    );
                }
                Err(error)
            }
        }
    }

    /// Writes the features behind `size` bytes of records, and announces both.
    fn announce(&mut self, size: u64) -> io::Result<()> {
        let compression = self.compress.then(|| feature((self.records + self.buffer.len() as u64, size)));
        let build_ids = self.build_ids.as_ref().map(BuildIds::section).unwrap_or_default();
        let features = self.features.with(self.times, build_ids, compression);
        let end = self.start.data() + size;
        self.file.write_all_at(&layout(&features, end), end)?;
        let numbers: Vec<u32> = features.iter().map(|(number, _)| *number).collect();
        self.file.write_all_at(&self.start.header(size, numbers.into_iter()), 0)?;
        self.announced = true;
        Ok(())
    }

    fn write_header(&self, features: &[u32]) -> io::Result<()> {
        self.file.write_all_at(&self.start.header(self.written, features.iter().copied()), 0)
    }

    /// Writes the rest, with all build ids. Returns the size of the records in bytes.
    ///
    /// # Errors
    /// If the file cannot be written. It is then as of the previous commit.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.build_ids.iter_mut().for_each(BuildIds::finish);
        self.commit()
    }
}
