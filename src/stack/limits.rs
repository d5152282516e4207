//! Limits on stored data.

use super::StackLimits;

/// Limits on stored data. Data above a limit is counted, separately from data that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Processes whose mappings are kept at a time.
    pub processes: usize,
    /// Executable mappings of one process.
    pub mappings: usize,
    /// The longest `/proc/PID/maps` that is read, in bytes.
    pub maps_bytes: u64,
    /// Files whose code is executed.
    pub modules: usize,
    /// The files that are held open: descriptors of this process.
    pub files: usize,
    /// Memory for unwind information of all files together, in bytes. A quarter is for rules, 24 bytes for each instruction that occurs in
    /// stacks. A quarter is for pages of files. Half is for indexes of files without their own.
    pub unwind_bytes: u64,
    /// The most frames to unwind of one stack.
    pub depth: usize,
    /// Limits on stacks.
    pub stacks: StackLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            processes: 1 << 16,
            mappings: 1 << 16,
            maps_bytes: 16 << 20,
            modules: 1 << 15,
            files: 512,
            unwind_bytes: 12 << 20,
            depth: 512,
            stacks: StackLimits::default(),
        }
    }
}
