//! `perf-exporter annotate`: the instructions of functions with their shares, of recordings and of running services.

mod args;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use hyper::Uri;

use super::{FAILED, fail, files, input, print_note, print_notes, reading_options, written};
use crate::annotate::{Annotated, Annotator, NotAnnotated, Target, hottest};
use crate::error::printable;
use crate::export::query::{self, Format, Query};
use crate::host::Roots;
use crate::profile::Profile;
use crate::recording;
pub(super) use args::AnnotateArgs;

/// Annotates functions, and prints them.
pub(super) fn annotate(args: &AnnotateArgs, roots: &Roots) -> ExitCode {
    let annotated = match input::url(&args.input) {
        Ok(Some(uri)) => of_service(args, &uri).map(|annotated| print(args, [annotated])),
        Ok(None) => of_recording(args, roots),
        Err(error) => Err(error),
    };
    match annotated {
        Ok(result) => written(result),
        Err(error) => fail(FAILED, &error),
    }
}

/// Requests an annotated function from a service, which disassembles its own files.
fn of_service(args: &AnnotateArgs, uri: &Uri) -> anyhow::Result<Annotated> {
    let name = || args.input.to_string_lossy().into_owned();
    let text = uri.query().unwrap_or(input::LAST_MINUTE);
    let query = Query::parse(text, query::ANNOTATE).map_err(|error| anyhow!(error)).with_context(name)?;
    let Target { symbol, module } = args.target();
    let syntax = args.disassembler_style;
    let query = Query { symbol, module, syntax, format: Some(Format::Json), ..query };
    let uri = input::at(uri, &query.address("/annotate"))?;
    let answer = args.service.request(&uri, None, recording::INFLATED, input::PATIENCE).with_context(name)?;
    serde_json::from_slice(&answer).with_context(name)
}

/// Annotates functions of a recording. The outer error is that of the recording, the inner one that of the output.
fn of_recording(args: &AnnotateArgs, roots: &Roots) -> anyhow::Result<io::Result<()>> {
    let recording = input::read(&args.input, None, &args.service, roots)?;
    let mut annotator = Annotator::new(&files(roots), args.options(reading_options().cache));
    let (mut all, mut refused) = (Vec::new(), None);
    for profile in recording.profiles.iter().filter(|profile| !profile.samples.is_empty()) {
        for target in targets(args, profile) {
            match annotator.annotate(profile, &target) {
                Ok(annotated) => all.push(annotated),
                Err(reason) => {
                    if args.target().symbol.is_none() {
                        print_note(&reason.to_string());
                    }
                    refused = Some(reason);
                }
            }
        }
    }
    print_notes(&recording.about);
    if all.is_empty() {
        bail!(refused.unwrap_or(NotAnnotated::NoSamples));
    }
    Ok(print(args, all))
}

/// Returns the requested function, or all that have samples in the requested module and are large enough.
fn targets(args: &AnnotateArgs, profile: &Profile) -> Vec<Target> {
    let target = args.target();
    if target.symbol.is_some() {
        return vec![target];
    }
    let smallest = profile.total() as f64 * args.percent_limit / 100.0;
    let is_meant = |of: &Target| target.means_module(of.module.as_deref().unwrap_or_default());
    let all = hottest(profile).into_iter().filter(|(of, value)| *value as f64 >= smallest && is_meant(of));
    all.map(|(target, _)| target).collect()
}

/// Prints annotated functions, and what is missing.
fn print(args: &AnnotateArgs, all: impl IntoIterator<Item = Annotated>) -> io::Result<()> {
    let options = args.text(io::stdout().is_terminal());
    let mut out = BufWriter::new(io::stdout().lock());
    for annotated in all {
        writeln!(out, "{}", annotated.text(options))?;
        annotated
            .notes
            .iter()
            .for_each(|note| print_note(&printable(&format!("{}: {note}", annotated.function))));
    }
    out.flush()
}
