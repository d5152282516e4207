//! One entry of a stack.

use super::{ModuleId, ProcessId};
use crate::named_enum::named_enum;

/// The location of an instruction.
///
/// For a call it is the last byte of the call instruction: the return address minus one. It lies within the calling function, even if the
/// call was its last instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// An address in the kernel.
    Kernel(u64),
    /// A location in a file that a process executes.
    File {
        /// The file.
        module: ModuleId,
        /// The offset in the file, in bytes.
        offset: u64,
    },
    /// An address in memory of a process without a file: code that was generated at run time.
    Memory {
        /// The process.
        process: ProcessId,
        /// The address.
        address: u64,
    },
    /// An address of a process outside all known mappings.
    Nowhere(u64),
    /// The outermost entry of a truncated stack.
    Truncation(Truncation),
}

named_enum! {
    /// The reason why a stack is truncated.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Truncation {
        /// The stack is deeper than the kernel writes, or deeper than the limit.
        Deep = "depth_limit",
        /// The copy of the stack ended, and there were no frame pointers to continue with.
        Copy = "copy_limit",
        /// Unwind information is missing or damaged.
        Unwound = "no_unwind_info",
        /// The stack table is full.
        Full = "table_full",
    }
}
