//! The memory access of a sample.

use std::sync::Arc;

use super::data_source::DataSource;
use crate::stack::ModuleId;

/// What distinguishes equal offsets of data: whether the access was in the kernel, the number of the file or memory, and the process for
/// private memory.
pub type Region = (bool, u64, Option<u32>);

/// The place of data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DataPlace {
    /// Whether the access was in the kernel.
    pub kernel: bool,
    /// What is mapped at the address; `None` if that is unknown.
    pub(crate) module: Option<ModuleId>,
    /// The process, for private memory without a file. Other memory is the same in all processes that map it.
    pub process: Option<u32>,
    /// The offset in the file, or the address where there is no file.
    pub offset: u64,
    /// The address.
    pub address: u64,
}

impl DataPlace {
    /// Returns what distinguishes equal offsets. As in perf, unknown places are the last ones.
    pub fn region(&self) -> Region {
        (self.kernel, self.module.map_or(u64::MAX, |module| module.0.into()), self.process)
    }
}

/// The name of a place of data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataName {
    /// The variable with the distance from its first byte: `table+0x40`; the address if it has no name.
    pub symbol: Arc<str>,
    /// The path of the file, or the kind of memory: `[heap]`, `//anon`, `[unknown]`.
    pub object: Arc<str>,
}

impl DataName {
    /// Returns the last part of the path of an object, as perf shows it: `libc.so.6`, `anon`, `[heap]`.
    pub fn short(&self) -> &str {
        let object = &*self.object;
        if object.starts_with('[') { object } else { object.rsplit('/').next().unwrap_or(object) }
    }
}

/// A memory access, as a sample contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledAccess {
    /// The place of the data.
    pub data: DataPlace,
    /// The weight that the hardware reported: for loads the latency in cycles; 0 if none.
    pub weight: u64,
    /// The latency of the instruction in cycles; 0 if none.
    pub latency: u16,
    /// The source of the data.
    pub source: DataSource,
    /// The physical address; 0 if it was not recorded.
    pub physical: u64,
    /// Whether mappings of the code and of the data are known.
    pub is_mapped: bool,
}
