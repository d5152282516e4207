//! `perf-exporter mem`: samples memory accesses into a file of perf, and shows those of a file.
//!
//! ```text
//! Catalog::memory_events ─► Sampler ─► record::record_file ─► perf.data ─► recording::Accesses ─► report::Entries
//! ```

mod args;
mod sampler;
#[cfg(test)]
mod tests;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;

use super::observe::{Ending, Failure, Host, exit};
use super::record::{FileRecording, record_file};
use super::{FAILED, fail, files, print_notes, reading_options, written};
use crate::clean::{NAME, clean};
use crate::event::memory::Wanted;
use crate::host::Roots;
use crate::recording::perf_data::{Accesses, Options as ReadingOptions};
use crate::report::{Chains, Entries, Options, rounded};
use crate::sys::Kernel;
use crate::sys::live::Live;
pub(super) use args::{AccessRecordArgs, MemArgs};
use args::{MemCommand, MemRecordArgs, MemReportArgs, Operation};
use sampler::sampler;

/// Runs a subcommand. `host` reads the state of the machine, which a report does not need.
pub(super) fn mem<'h>(args: &MemArgs, host: &impl Fn() -> Host<'h, Live>, roots: &Roots) -> ExitCode {
    match &args.command {
        MemCommand::Record(args) => {
            let MemRecordArgs { operations, physical, record: args } = args;
            let has = |operation| operations.contains(&operation);
            let (loads, stores) = (has(Operation::Load), has(Operation::Store));
            let wanted = Wanted { loads, stores, latency: args.ldlat };
            exit(record(args, wanted, *physical, &host()), "recorded")
        }
        MemCommand::Report(args) => report(args, roots),
    }
}

/// Samples memory accesses into a file, and ends like the command.
pub(super) fn record<K: Kernel>(
    args: &AccessRecordArgs,
    wanted: Wanted,
    physical: bool,
    host: &Host<'_, K>,
) -> Result<Ending, Failure> {
    // Without such events, other mistakes do not matter.
    let events = host.catalog.memory_events(wanted).map_err(anyhow::Error::from)?;
    let subject = host.find(&args.target())?;
    let sampler = sampler(args, events, physical, &subject, &host.catalog)?;
    let AccessRecordArgs { command, duration, compress, .. } = args;
    let recording = FileRecording { command, duration: *duration, compress: *compress };
    record_file(&args.output, recording, host, &subject, &sampler)
}

fn report(args: &MemReportArgs, roots: &Roots) -> ExitCode {
    let options = ReadingOptions { times: args.filter.time.clone(), ..reading_options() };
    let read = Accesses::open(&args.input, &options, &files(roots));
    match read.with_context(|| args.input.display().to_string()) {
        Ok(accesses) => {
            let mut out = BufWriter::new(io::stdout().lock());
            let printed = print(&mut out, &accesses, args).and_then(|()| out.flush());
            print_notes(&accesses.about);
            written(printed)
        }
        Err(error) => fail(FAILED, &error),
    }
}

/// Prints a table for each event with accesses.
fn print(out: &mut impl Write, accesses: &Accesses, args: &MemReportArgs) -> io::Result<()> {
    let lost = accesses.about.lost.records + accesses.about.lost.samples;
    writeln!(out, "# Total Lost Samples: {lost}\n#")?;
    for event in accesses.events.iter().filter(|event| !event.accesses.is_empty()) {
        let options = Options {
            sort: args.sort(event.has_latency),
            children: false,
            chains: Chains::None,
            counts: true,
            percent_limit: args.percent_limit,
            only: args.filter.only(),
            parent: None,
        };
        let order: Vec<&str> = options.sort.iter().map(|key| key.as_str()).collect();
        let (profile, name) = (&event.profile, clean(&event.profile.kind.name, NAME));
        writeln!(out, "# Samples: {} of event '{name}'", rounded(profile.taken()))?;
        writeln!(out, "# Total weight : {}", profile.total())?;
        writeln!(out, "# Sort order   : {}\n#", order.join(","))?;
        writeln!(out, "{}", Entries::of_accesses(event, &accesses.names, &options))?;
    }
    Ok(())
}
