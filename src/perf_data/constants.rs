//! Numbers of the format that its writer and its reader have in common.

/// Begin of a file in the byte order of the machine that wrote it.
pub(crate) const MAGIC: &[u8; 8] = b"PERFILE2";

/// Size of the header in bytes.
pub(crate) const HEADER: usize = 104;

/// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the byte after the build id is its length.
pub(crate) const BUILD_ID_SIZE: u16 = 1 << 15;

/// Room for a build id, in bytes.
pub(crate) const BUILD_ID_ROOM: usize = 20;

/// Protection of a mapping of code (`PROT_EXEC`).
pub(crate) const EXECUTABLE: u32 = 4;

// Numbers of features (`HEADER_*` of `tools/perf/util/header.h`).

/// Formats of the tracepoints that were recorded.
pub(crate) const TRACING_DATA: u32 = 1;
/// Build ids of mapped files.
pub(crate) const BUILD_ID: u32 = 2;
pub(crate) const HOSTNAME: u32 = 3;
pub(crate) const OSRELEASE: u32 = 4;
/// Version of the program that wrote the file.
pub(crate) const VERSION: u32 = 5;
pub(crate) const ARCH: u32 = 6;
pub(crate) const NRCPUS: u32 = 7;
pub(crate) const CPUDESC: u32 = 8;
pub(crate) const TOTAL_MEM: u32 = 10;
pub(crate) const CMDLINE: u32 = 11;
pub(crate) const EVENT_DESC: u32 = 12;
pub(crate) const CPU_TOPOLOGY: u32 = 13;
/// Memory and CPUs of the NUMA nodes.
pub(crate) const NUMA_TOPOLOGY: u32 = 14;
pub(crate) const PMU_MAPPINGS: u32 = 16;
/// The file contains counts of `perf stat record` instead of samples. The section is empty.
pub(crate) const STAT: u32 = 19;
/// Times of the first and of the last sample.
pub(crate) const SAMPLE_TIME: u32 = 21;
/// Resolution of the clock of the records.
pub(crate) const CLOCKID: u32 = 23;
/// The clock of the records, and one of its times on the wall clock.
pub(crate) const CLOCK_DATA: u32 = 29;
