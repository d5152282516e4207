//! Limits on stored data.

use super::StackLimits;

/// Limits on stored data. Data above a limit is counted, separately from data that does not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of processes with stored mappings.
    pub processes: usize,
    /// Maximum number of executable mappings of a process.
    pub mappings: usize,
    /// Maximum size of `/proc/PID/maps` in bytes.
    pub maps_bytes: u64,
    /// Maximum number of files with executable mappings.
    pub modules: usize,
    /// Maximum number of open files: descriptors of this process.
    pub files: usize,
    /// Memory for the unwind information of all files, in bytes. A quarter is for rules, 24 bytes for each instruction that occurs in
    /// stacks. A quarter is for pages of files. Half is for indexes of files without their own.
    pub unwind_bytes: u64,
    /// Maximum number of frames of a stack that are unwound.
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
