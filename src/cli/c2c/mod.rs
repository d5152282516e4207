//! `perf-exporter c2c`: samples memory accesses as `mem`, and shows the cache lines that cores share.

mod args;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;

use super::observe::{Host, exit};
use super::{FAILED, fail, files, mem, print_notes, reading_options, written};
use crate::event::memory::Wanted;
use crate::host::{self, Roots};
use crate::recording::perf_data::{Accesses, Options};
use crate::report::CacheLines;
use crate::sys::live::Live;
pub(super) use args::C2cArgs;
use args::{C2cCommand, C2cRecordArgs, C2cReportArgs};

/// Maximum debug information of one file for source lines, in bytes.
const DEBUG_INFO: u64 = 256 << 20;

/// Size of a cache line in bytes, unless the kernel reports another one.
const LINE: u64 = 64;

/// Runs a subcommand. `host` reads the state of the machine, which a report does not need.
pub(super) fn c2c<'h>(args: &C2cArgs, host: &impl Fn() -> Host<'h, Live>, roots: &Roots) -> ExitCode {
    match &args.command {
        C2cCommand::Record(C2cRecordArgs { record: args }) => {
            let wanted = Wanted { loads: true, stores: true, latency: args.ldlat };
            exit(mem::record(args, wanted, true, &host()), "recorded")
        }
        C2cCommand::Report(args) => report(args, roots),
    }
}

fn report(args: &C2cReportArgs, roots: &Roots) -> ExitCode {
    let debug_info = if args.no_source { 0 } else { DEBUG_INFO };
    let options = Options { debug_info, times: args.time.clone(), ..reading_options() };
    let read = Accesses::open(&args.input, &options, &files(roots));
    match read.with_context(|| args.input.display().to_string()) {
        Ok(accesses) => {
            let lines = CacheLines::new(&accesses, &args.options(line(roots)));
            let mut out = BufWriter::new(io::stdout().lock());
            let printed = write!(out, "{lines}").and_then(|()| out.flush());
            print_notes(&accesses.about);
            written(printed)
        }
        Err(error) => fail(FAILED, &error),
    }
}

/// Returns the size of a cache line of this machine in bytes. As in perf, recordings do not contain it.
fn line(roots: &Roots) -> u64 {
    let file = roots.sys.join("devices/system/cpu/cpu0/cache/index0/coherency_line_size");
    host::read_number(&file).ok().filter(|size| size.is_power_of_two()).unwrap_or(LINE)
}
