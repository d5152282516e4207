//! Records of counts, as `perf stat record` writes them, and what their writer and their reader have in common.
//!
//! A file has the settings first: threads, CPUs, the parts that are shown separately, units. Then, for each reading, one record for each
//! event and CPU or thread, with the count since the start, and a record that ends the reading.
//!
//! Sources: `tools/lib/perf/include/perf/event.h` (`struct perf_record_stat*`, `perf_record_thread_map`, `perf_record_cpu_map`,
//! `perf_record_event_update`), `tools/perf/util/synthetic-events.c`, `enum aggr_mode` of `tools/perf/util/stat.h`.

use super::format::RecordBytes;

/// `PERF_RECORD_THREAD_MAP`: the counted threads.
pub(crate) const THREAD_MAP: u32 = 73;
/// `PERF_RECORD_CPU_MAP`: the counted CPUs.
pub(crate) const CPU_MAP: u32 = 74;
/// `PERF_RECORD_STAT_CONFIG`: pairs of a setting and its value.
pub(crate) const STAT_CONFIG: u32 = 75;
/// `PERF_RECORD_STAT`: one count.
pub(crate) const COUNT: u32 = 76;
/// `PERF_RECORD_STAT_ROUND`: the end of a reading.
pub(crate) const ROUND: u32 = 77;
/// `PERF_RECORD_EVENT_UPDATE`: the unit or the scale of an event.
pub(crate) const EVENT_UPDATE: u32 = 78;

/// Setting of a [`STAT_CONFIG`]: the parts that are shown separately.
pub(crate) const AGGREGATION: u64 = 0;
/// The interval in milliseconds; 0 for one reading at the end.
pub(crate) const INTERVAL: u64 = 1;
/// Whether readers scale counts for the time in which an event was not on the PMU.
const SCALES: u64 = 2;

/// Kind of an [`EVENT_UPDATE`]: the unit, as a text.
pub(crate) const UNIT: u64 = 0;
/// The value of one count in the unit, as a `double`.
pub(crate) const FACTOR: u64 = 1;

/// Kind of the only [`ROUND`] of a file without intervals. Those of intervals are 0.
const FINAL: u64 = 1;

/// The CPU of a count of a thread on all CPUs, and the thread of a count of all threads on a CPU.
pub(crate) const ANY: u32 = u32::MAX;

/// Size of the name of a thread in a [`THREAD_MAP`].
pub(crate) const COMM: usize = 16;

/// Maximum number of threads: a record has at most 65528 bytes, and perf ignores further records of threads.
pub(crate) const THREADS: usize = (65_528 - 16) / (8 + COMM);

/// Bytes for a unit or a factor, as in perf.
const UNIT_ROOM: usize = 24;

/// The parts that `perf stat` shows separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AggregationMode {
    /// Each CPU.
    Cpu,
    /// All together.
    #[default]
    Global,
    /// Each socket.
    Socket,
    /// Each die.
    Die,
    /// Each core.
    Core,
    /// Each thread.
    Thread,
    /// Each NUMA node.
    Node,
}

impl AggregationMode {
    /// Modes with the same number in all versions of perf.
    const STABLE: [Self; 4] = [Self::Cpu, Self::Global, Self::Socket, Self::Die];

    /// Returns the number in files of perf up to 6.4. Later versions added modes in between.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::Cpu => 0,
            Self::Global => 1,
            Self::Socket => 2,
            Self::Die => 3,
            Self::Core => 4,
            Self::Thread => 5,
            Self::Node => 7,
        }
    }

    /// Returns the mode of a number in a file that this version of perf wrote. `None` for caches, clusters and unknown numbers.
    pub(crate) fn of(number: u64, version: (u32, u32)) -> Option<Self> {
        if let Some(mode) = usize::try_from(number).ok().and_then(|number| Self::STABLE.get(number)) {
            return Some(*mode);
        }
        // 6.5 added caches after dies; 6.9 added clusters before caches.
        let added = u64::from(version >= (6, 5)) + u64::from(version >= (6, 9));
        [Self::Core, Self::Thread, Self::Node].into_iter().find(|mode| mode.number() + added == number)
    }
}

/// Returns a record of threads with their names. All threads are `u32::MAX`.
pub(crate) fn thread_map<'a>(threads: impl ExactSizeIterator<Item = (u32, &'a [u8])>) -> Vec<u8> {
    let threads = threads.take(THREADS);
    let start = RecordBytes::new(THREAD_MAP, 0).u64(threads.len() as u64);
    let add = |record: RecordBytes, (tid, name): (u32, &[u8])| {
        let tid = if tid == ANY { u64::MAX } else { u64::from(tid) };
        // Names end with a NUL.
        record.u64(tid).field(&name[..name.len().min(COMM - 1)], COMM)
    };
    threads.fold(start, add).end(0)
}

/// Returns a record of CPUs. No CPU means that threads are counted on all CPUs.
pub(crate) fn cpu_map(cpus: impl ExactSizeIterator<Item = u32>) -> Vec<u8> {
    const LIST: u16 = 0;
    // Numbers have 16 bits.
    let mut list: Vec<u16> = cpus.map(|cpu| cpu as u16).collect();
    if list.is_empty() {
        list.push(ANY as u16);
    }
    let words = [LIST, list.len() as u16].into_iter().chain(list);
    let bytes: Vec<u8> = words.flat_map(u16::to_ne_bytes).collect();
    RecordBytes::new(CPU_MAP, 0).field(&bytes, bytes.len().next_multiple_of(8)).end(0)
}

/// Returns a record of the settings. `interval` is in milliseconds.
pub(crate) fn stat_config(mode: AggregationMode, interval: u64) -> Vec<u8> {
    let settings = [(AGGREGATION, mode.number()), (INTERVAL, interval), (SCALES, 1)];
    let start = RecordBytes::new(STAT_CONFIG, 0).u64(settings.len() as u64);
    settings.into_iter().fold(start, |record, (setting, value)| record.u64(setting).u64(value)).end(0)
}

/// Returns the records of the unit of an event, and of the value of one count in it.
pub(crate) fn unit(id: u64, unit: &str, factor: f64) -> Vec<u8> {
    let update = |kind| RecordBytes::new(EVENT_UPDATE, 0).u64(kind).u64(id);
    let bytes = unit.as_bytes();
    let unit = update(UNIT).field(&bytes[..bytes.len().min(UNIT_ROOM - 1)], UNIT_ROOM);
    [unit.end(0), update(FACTOR).field(&factor.to_ne_bytes(), UNIT_ROOM).end(0)].concat()
}

/// A count since the start, with its enabled and running time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    /// The identifier of the event.
    pub(crate) id: u64,
    /// The CPU, or [`ANY`].
    pub(crate) cpu: u32,
    /// Index of the thread in the list of threads.
    pub(crate) thread: u32,
    pub(crate) value: u64,
    pub(crate) enabled: u64,
    pub(crate) running: u64,
}

impl Count {
    /// Returns the record.
    pub(crate) fn record(&self) -> Vec<u8> {
        let start = RecordBytes::new(COUNT, 0).u64(self.id).u32(self.cpu).u32(self.thread);
        start.u64(self.value).u64(self.enabled).u64(self.running).end(0)
    }
}

/// Returns the record at the end of a reading. `time` is in nanoseconds since the start.
pub(crate) fn round(is_final: bool, time: u64) -> Vec<u8> {
    let kind = if is_final { FINAL } else { 0 };
    RecordBytes::new(ROUND, 0).u64(kind).u64(time).end(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_number_of_the_version_that_wrote_them() {
        use AggregationMode::*;
        for mode in [Cpu, Global, Socket, Die, Core, Thread, Node] {
            assert_eq!(AggregationMode::of(mode.number(), (6, 1)), Some(mode));
        }
        for (version, number, mode) in [
            ((6, 5), 4, None),
            ((6, 5), 5, Some(Core)),
            ((6, 9), 5, None),
            ((6, 9), 6, Some(Core)),
            ((7, 0), 7, Some(Thread)),
            ((7, 0), 9, Some(Node)),
            ((6, 1), 6, None),
            ((6, 1), u64::MAX, None),
        ] {
            assert_eq!(AggregationMode::of(number, version), mode, "{version:?} {number}");
        }
    }

    #[test]
    fn records_have_the_sizes_of_perf() {
        let name: &[u8] = b"a name of more than sixteen bytes";
        let threads = thread_map([(7, name), (ANY, b"")].into_iter());
        assert_eq!(threads.len(), 16 + 2 * 24);
        assert_eq!(&threads[24..40], b"a name of more \0");
        assert_eq!((cpu_map([0, 1, 2].into_iter()).len(), cpu_map([].into_iter()).len()), (24, 16));
        assert_eq!(stat_config(AggregationMode::Core, 100).len(), 0x40);
        assert_eq!(unit(1, "msec", 1e-6).len(), 2 * 0x30);
        assert_eq!((Count::default().record().len(), round(true, 1).len()), (0x30, 0x18));
    }
}
