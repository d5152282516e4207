//! `perf-exporter report` and `perf-exporter diff`: the tables of `perf report` and `perf diff` for recordings and running services.

mod args;
mod browser;

use std::borrow::Cow;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::{anyhow, bail};

use super::observe::exit;
use super::record::write_comparison;
use super::terminal::Screen;
use super::{FAILED, USAGE, fail, files, input, print_notes, reading_options, written};
use crate::annotate::{self, Annotator};
use crate::host::Roots;
use crate::recording::{Recording, align};
use crate::report::{Chains, Differences, Entries, Header, Key, Options, has_chains, rounded};
pub(super) use args::{DiffArgs, FilterArgs, ReportArgs, expected};
use browser::Event;

/// Shows the tables of the inputs on the terminal, or prints them. An input that cannot be read does not keep the others from being shown.
pub(super) fn report(args: &ReportArgs, roots: &Roots) -> ExitCode {
    if args.tui && !Screen::is_possible() {
        return fail(USAGE, &anyhow!("--tui needs a terminal as standard input and output"));
    }
    let is_text = args.is_text() || !Screen::is_possible();
    let mut code = ExitCode::SUCCESS;
    let read = args.inputs.iter().filter_map(|input| {
        match input::read(input, args.table.filter.time.as_ref(), &args.service, roots) {
            Ok(recording) => Some((input.to_string_lossy(), recording)),
            Err(error) => {
                code = fail(FAILED, &error);
                None
            }
        }
    });
    let ended = if is_text { print_all(read, args) } else { browse(&read.collect::<Vec<_>>(), args, roots) };
    if ended == ExitCode::SUCCESS { code } else { ended }
}

/// Prints the tables of recordings one after another.
fn print_all<'i>(recordings: impl Iterator<Item = (Cow<'i, str>, Recording)>, args: &ReportArgs) -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    for (_, recording) in recordings {
        if let Err(error) = print(&mut out, &recording, args) {
            return written(Err(error));
        }
        print_notes(&recording.about);
    }
    written(out.flush())
}

/// Shows recordings on the terminal.
fn browse(recordings: &[(Cow<'_, str>, Recording)], args: &ReportArgs, roots: &Roots) -> ExitCode {
    if recordings.is_empty() {
        return ExitCode::SUCCESS;
    }
    let mut events = Vec::new();
    for (input, Recording { about, profiles }) in recordings {
        // An event that only reports mappings has no samples.
        for profile in profiles.iter().filter(|profile| !profile.samples.is_empty()) {
            let input = (recordings.len() > 1).then(|| input.to_string());
            events.push(Event { input, profile, about, options: args.options(has_chains(profile)) });
        }
    }
    let options = annotate::Options { cache: reading_options().cache, ..annotate::Options::default() };
    let annotator = Annotator::new(&files(roots), options);
    let code = exit(browser::browse(events, annotator), "shown");
    recordings.iter().for_each(|(_, recording)| print_notes(&recording.about));
    code
}

/// Prints the tables of the events of a recording, each with its totals.
fn print(
    out: &mut impl Write,
    Recording { about, profiles }: &Recording,
    args: &ReportArgs,
) -> io::Result<()> {
    if args.header || args.header_only {
        write!(out, "{}", Header(about))?;
    }
    if args.header_only {
        return Ok(());
    }
    if args.quiet {
        return profiles.iter().try_for_each(|profile| {
            let entries = Entries::new(profile, &args.options(has_chains(profile))).to_string();
            let mut lines = entries.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
            lines.try_for_each(|line| writeln!(out, "{line}"))
        });
    }
    let lost = about.lost.records + about.lost.samples;
    writeln!(out, "# Total Lost Samples: {lost}\n#")?;
    for profile in profiles {
        let options = args.options(has_chains(profile));
        writeln!(out, "# Samples: {} of event '{}'", rounded(profile.taken()), profile.kind.name)?;
        writeln!(out, "# Event count (approx.): {}\n#", profile.total())?;
        writeln!(out, "{}", Entries::new(profile, &options))?;
    }
    Ok(())
}

/// Compares two recordings: prints a table for each event that both have, or writes a differential flame graph of the first one.
pub(super) fn diff(args: &DiffArgs, roots: &Roots) -> ExitCode {
    match compare(args, roots) {
        Ok(result) => written(result),
        Err(error) => fail(FAILED, &error),
    }
}

/// The outer error is that of the recordings, the inner one that of the output.
fn compare(args: &DiffArgs, roots: &Roots) -> anyhow::Result<io::Result<()>> {
    let [base, now] = [&args.base, &args.now]
        .map(|input| input::read(input, args.table.filter.time.as_ref(), &args.service, roots));
    let (mut base, mut now) = (base?, now?);
    // An event that only reports mappings has no samples.
    base.profiles.retain(|profile| !profile.samples.is_empty());
    now.profiles.retain(|profile| !profile.samples.is_empty());
    // Recordings of different programs have one event each, with different names.
    let is_only = base.profiles.len() == 1 && now.profiles.len() == 1;
    let mut pairs = Vec::new();
    for profile in &now.profiles {
        let mut events = base.profiles.iter();
        if let Some(place) = events.position(|base| is_only || base.kind.name == profile.kind.name) {
            // In bounds: a place of a profile, here and below.
            align(&mut base.profiles[place], profile);
            pairs.push((place, profile));
        }
    }
    let Some(&(place, first)) = pairs.first() else { bail!("the recordings have no event in common") };
    [&base.about, &now.about].into_iter().for_each(print_notes);
    if let Some(path) = &args.output {
        return write_comparison(path, &base.profiles[place], first);
    }
    let options =
        Options { children: false, chains: Chains::None, ..args.table.options(&[Key::Dso, Key::Symbol]) };
    let mut out = io::stdout().lock();
    Ok(pairs.into_iter().try_for_each(|(place, now)| {
        let before = Entries::new(&base.profiles[place], &options);
        let differences = Differences::of(&before, &Entries::new(now, &options));
        writeln!(out, "# Event '{}'\n#\n{differences}", now.kind.name)
    }))
}
