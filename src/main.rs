//! The `perf-exporter` binary. Everything is in the library.

use std::process::ExitCode;

/// The allocator of static programs. That of musl fragments under many threads, and does not return memory to the kernel. Its settings are
/// in `.cargo/config.toml`.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    perf_exporter::cli::main()
}
