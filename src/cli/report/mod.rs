//! `perf-exporter report` and `perf-exporter diff`: the tables of `perf report` and `perf diff` for recordings and running services.

mod args;
mod input;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::bail;

use super::record::write_comparison;
use super::{FAILED, fail, print_notes, written};
use crate::host::Roots;
use crate::recording::{Recording, align};
use crate::report::{Chains, Differences, Entries, Key, Options, has_chains};
pub(super) use args::{DiffArgs, ReportArgs};

/// Prints the tables of the inputs. An input that cannot be read does not keep the others from being printed.
pub(super) fn report(args: &ReportArgs, roots: &Roots) -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut code = ExitCode::SUCCESS;
    for input in &args.inputs {
        match input::read(input, &args.service, roots) {
            Ok(recording) => {
                if let Err(error) = print(&mut out, &recording, args) {
                    return written(Err(error));
                }
                print_notes(&recording.about);
            }
            Err(error) => code = fail(FAILED, &error),
        }
    }
    match out.flush() {
        Ok(()) => code,
        failed => written(failed),
    }
}

/// Prints the tables of the events of a recording, each with its totals.
fn print(
    out: &mut impl Write,
    Recording { about, profiles }: &Recording,
    args: &ReportArgs,
) -> io::Result<()> {
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

/// Returns a number as perf prints it: in thousands or millions, rounded down.
fn rounded(number: u64) -> String {
    match number {
        0..=999 => format!("{number} "),
        1000..=999_999 => format!("{}K", number / 1000),
        1_000_000..=999_999_999 => format!("{}M", number / 1_000_000),
        _ => format!("{}G", number / 1_000_000_000),
    }
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
    let [base, now] = [&args.base, &args.now].map(|input| input::read(input, &args.service, roots));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_samples_are_rounded_down_as_in_perf() {
        let numbers = [0, 999, 1000, 3988, 1_999_999, 2_000_000_000].map(rounded);
        assert_eq!(numbers, ["0 ", "999 ", "1K", "3K", "1M", "2G"]);
    }
}
