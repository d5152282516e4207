//! The `perf-exporter` binary. Everything is in the library.

use std::process::ExitCode;

/// The allocator of static programs. That of musl fragments under many threads, and does not return memory to the kernel.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: dlmalloc::GlobalDlmalloc = dlmalloc::GlobalDlmalloc;

fn main() -> ExitCode {
    perf_exporter::cli::main()
}
