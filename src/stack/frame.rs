//! One entry of a stack.

use super::{ModuleId, ProcessId};
use crate::words::words;

/// Where a function was, or called another.
///
/// Of a call it is the last byte of the instruction (the return address less one), so that it is within the function
/// that called, even if the call was its last instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// An address in the kernel.
    Kernel(u64),
    /// In a file that a process executes.
    File {
        /// Which.
        module: ModuleId,
        /// Where in it, in bytes.
        offset: u64,
    },
    /// An address in memory of a process that is no file's: code that was made at run time.
    Memory {
        /// Which.
        process: ProcessId,
        /// The address.
        address: u64,
    },
    /// An address of a process at which nothing is mapped that we know of.
    Nowhere(u64),
    /// The outermost entry of a stack of which the rest is not known.
    Cut(Cut),
}

words! {
    /// Why the rest of a stack is not known.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Cut {
        /// It is deeper than the kernel writes, or than is kept.
        Deep = "deep",
        /// The copy of the stack ended, and there were no frame pointers to go on with.
        Copy = "copy",
        /// What says how to go on is missing or damaged.
        Unwound = "unwound",
        /// There is no room for another stack.
        Full = "full",
    }
}
