//! Counts that `perf stat record` or `perf-exporter stat record` wrote.
//!
//! Sources: see [`crate::perf_data::counts`]; `tools/perf/builtin-stat.c` (`__cmd_report`).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::cursor::{Cursor, until_nul};
use super::features;
use super::header::{Header, damaged};
use super::stream::{Raw, Stream};
use super::topology::Topology;
use crate::health::Interval;
use crate::host::ReadAt;
use crate::perf_data::counts::{
    AGGREGATION, ANY, AggregationMode, COMM, COUNT, EVENT_UPDATE, FACTOR, INTERVAL, ROUND, STAT_CONFIG,
    THREAD_MAP, UNIT,
};
use crate::recording::Invalid;
use crate::recording::about::About;

/// Maximum number of counts of one reading: events × CPUs or threads.
const COUNTS: usize = 1 << 20;
/// The version of perf with the numbers of modes that files of this program have.
const OWN: (u32, u32) = (6, 1);

/// A counted thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedThread {
    /// The id of the thread; `u32::MAX` for all threads.
    pub tid: u32,
    /// Its name. Empty if unknown.
    pub comm: Arc<str>,
}

/// The count of an event on a CPU or of a thread, since the previous reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceCount {
    /// The event: an index into [`About::events`].
    pub event: usize,
    /// The CPU. `None` for a thread on all CPUs.
    pub cpu: Option<u32>,
    /// The thread: an index into [`CountReader::threads`].
    pub thread: usize,
    /// The count as read from the kernel.
    pub raw: u64,
    /// The time in which the event was enabled, and on the PMU.
    pub interval: Interval,
}

/// All counts of one reading.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reading {
    /// The time since the start.
    pub at: Duration,
    /// The counts, in the order of the file.
    pub counts: Vec<PlaceCount>,
}

/// An event, a CPU and a thread.
type Key = (usize, u32, u32);

/// A recording of counts that is being read.
pub struct CountReader<'f> {
    header: Header,
    about: About,
    stream: Stream<'f>,
    topology: Topology,
    threads: Vec<CountedThread>,
    /// Unit of each event, and the value of one count in it.
    units: Vec<(Arc<str>, f64)>,
    mode: AggregationMode,
    interval: bool,
    last: HashMap<Key, Last>,
    /// Number of the reading.
    number: u64,
}

/// The last values of a count.
#[derive(Debug, Default)]
struct Last {
    values: [u64; 3],
    /// Number of the reading that has the count, and its index there.
    reading: u64,
    index: usize,
}

impl std::fmt::Debug for CountReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountReader").field("about", &self.about).finish_non_exhaustive()
    }
}

impl<'f> CountReader<'f> {
    /// Reads the header and the features.
    ///
    /// # Errors
    /// If the file is not a recording of perf, damaged, or cannot be read.
    pub fn new(file: &'f dyn ReadAt) -> Result<Self, Invalid> {
        let mut header = Header::read(file)?;
        let about = features::about(&mut header, file)?;
        Ok(Self {
            stream: Stream::new(file, header.data, header.big, header.unfinished),
            topology: Topology::read(&header, file)?,
            threads: Vec::new(),
            units: vec![(Arc::default(), 1.0); about.events.len()],
            mode: AggregationMode::default(),
            interval: false,
            last: HashMap::new(),
            number: 0,
            header,
            about,
        })
    }

    /// Returns the description of the recording.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// Returns the positions of the CPUs of the recorded machine.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the counted threads. Complete after the first reading.
    pub fn threads(&self) -> &[CountedThread] {
        &self.threads
    }

    /// Returns the unit of an event, and the value of one count in it. Complete after the first reading.
    pub fn unit(&self, event: usize) -> (&str, f64) {
        self.units.get(event).map_or(("", 1.0), |(unit, factor)| (unit, *factor))
    }

    /// Returns the parts that were shown separately. Known after the first reading.
    pub fn mode(&self) -> AggregationMode {
        self.mode
    }

    /// Reports whether there is a reading for each interval. Known after the first reading.
    pub fn has_intervals(&self) -> bool {
        self.interval
    }

    /// Returns the next reading. Counts after the end of the last reading are ignored.
    ///
    /// # Errors
    /// If the file is damaged or cannot be read, or if a reading exceeds a limit.
    pub fn next_reading(&mut self) -> Result<Option<Reading>, Invalid> {
        let mut reading = Reading::default();
        self.number += 1;
        while let Some(record) = self.stream.next()? {
            let wrong = |what| damaged(what, record.offset);
            match record.kind {
                THREAD_MAP if self.threads.is_empty() => {
                    self.threads = threads(&record, self.header.big)
                        .ok_or_else(|| wrong("a list of threads is incomplete"))?;
                }
                STAT_CONFIG => {
                    self.configure(&record).ok_or_else(|| wrong("the settings are incomplete"))?;
                }
                EVENT_UPDATE => {
                    self.update(&record).ok_or_else(|| wrong("an update of an event is incomplete"))?;
                }
                COUNT => self.count(&record, &mut reading)?,
                ROUND => {
                    let mut cursor = Cursor::new(&record.body, self.header.big);
                    // The kind is first.
                    let time = cursor.u64().and(cursor.u64());
                    let time = time.ok_or_else(|| wrong("the end of a reading is incomplete"))?;
                    reading.at = Duration::from_nanos(time);
                    return Ok(Some(reading));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Applies settings. Unknown settings are ignored.
    fn configure(&mut self, record: &Raw) -> Option<()> {
        let mut cursor = Cursor::new(&record.body, self.header.big);
        for _ in 0..cursor.u64()? {
            let (setting, value) = (cursor.u64()?, cursor.u64()?);
            match setting {
                // An unknown mode is the whole target.
                AGGREGATION => {
                    self.mode = AggregationMode::of(value, self.version()).unwrap_or_default();
                }
                INTERVAL => self.interval = value > 0,
                _ => {}
            }
        }
        Some(())
    }

    /// Returns the version of perf that wrote the file.
    fn version(&self) -> (u32, u32) {
        let parse = |version: &str| {
            let mut numbers = version.split(|letter: char| !letter.is_ascii_digit());
            Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
        };
        self.about.version.as_deref().and_then(parse).unwrap_or(OWN)
    }

    /// Applies the unit or the scale of an event. Those of unknown events are ignored.
    fn update(&mut self, record: &Raw) -> Option<()> {
        let mut cursor = Cursor::new(&record.body, self.header.big);
        let (kind, id) = (cursor.u64()?, cursor.u64()?);
        let event = self.header.ids.get(&id).copied();
        let Some((unit, factor)) = event.and_then(|event| self.units.get_mut(event)) else {
            return Some(());
        };
        match kind {
            UNIT => *unit = String::from_utf8_lossy(until_nul(cursor.rest())).into(),
            FACTOR => {
                let read = f64::from_bits(cursor.u64()?);
                *factor = if read.is_finite() && read > 0.0 { read } else { 1.0 };
            }
            _ => {}
        }
        Some(())
    }

    /// Adds a count to a reading.
    fn count(&mut self, record: &Raw, reading: &mut Reading) -> Result<(), Invalid> {
        let wrong = |what| damaged(what, record.offset);
        let mut cursor = Cursor::new(&record.body, self.header.big);
        let mut parse = || {
            let (id, cpu, thread) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
            Some((id, cpu, thread, [cursor.u64()?, cursor.u64()?, cursor.u64()?]))
        };
        let (id, cpu, thread, now) = parse().ok_or_else(|| wrong("a count is incomplete"))?;
        let only = (self.about.events.len() == 1).then_some(0);
        let event = self.header.ids.get(&id).copied().or(only);
        let event = event.ok_or_else(|| wrong("a count belongs to no event of the file"))?;
        let index = usize::try_from(thread).ok().filter(|&thread| thread < self.threads.len());
        let index = index.ok_or_else(|| wrong("a count belongs to no thread of the file"))?;
        let key = (event, cpu, thread);
        if self.last.len() >= COUNTS && !self.last.contains_key(&key) {
            return Err(Invalid::TooLarge { most: COUNTS, what: "counts in a reading" });
        }
        let last = self.last.entry(key).or_default();
        let [raw, enabled, running] = std::array::from_fn(|at| now[at].saturating_sub(last.values[at]));
        last.values = now;
        let interval = Interval { enabled, running };
        match reading.counts.get_mut(last.index) {
            // The reading has the count twice.
            Some(count) if last.reading == self.number => {
                count.raw = count.raw.saturating_add(raw);
                count.interval += interval;
            }
            _ => {
                (last.reading, last.index) = (self.number, reading.counts.len());
                let cpu = Some(cpu).filter(|&cpu| cpu != ANY);
                reading.counts.push(PlaceCount { event, cpu, thread: index, raw, interval });
            }
        }
        Ok(())
    }
}

/// Reads a list of threads.
fn threads(record: &Raw, big: bool) -> Option<Vec<CountedThread>> {
    let mut cursor = Cursor::new(&record.body, big);
    let number = cursor.u64()?;
    let mut threads = Vec::new();
    for _ in 0..number {
        let (tid, comm) = (cursor.u64()?, cursor.take(COMM)?);
        // -1 is all threads.
        let tid = u32::try_from(tid).unwrap_or(ANY);
        threads.push(CountedThread { tid, comm: String::from_utf8_lossy(until_nul(comm)).into() });
    }
    Some(threads)
}

#[cfg(test)]
mod tests;
