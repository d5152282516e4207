//! The `perf-exporter` binary. Everything is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    perf_exporter::cli::main()
}
