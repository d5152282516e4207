//! `perf-exporter top`: the equivalent of `perf top`, with the profiler of the service.

mod args;
mod screen;

use std::io::{self, Write};

use anyhow::Context;

use super::observe::{Ending, Failure, Host, Wait, WaitEvent, if_any, measure, notes};
use super::put;
use super::sample::{Sampling, sampler};
use crate::export::flamegraph::nothing;
use crate::export::top::Top;
use crate::profile::{Profile, RecordingId, Selection};
use crate::sys::Kernel;
pub(super) use args::TopArgs;
use screen::Screen;

/// Lines of a table other than functions: three for the totals, three for headings, one for omitted functions, and two above the table.
const AROUND: usize = ABOVE + 7;
/// Lines above a table.
const ABOVE: usize = 2;

/// Shows tables until the user quits.
pub(super) fn top<K: Kernel>(args: &TopArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let subject = host.find(&args.sample.target_args.target(&[]))?;
    let window = if args.zero { args.delay() } else { args.window() };
    let sampler = sampler(&args.sample, &subject, &host.catalog, window)?;
    measure(async |signals| {
        let sampling = Sampling::open(host, &sampler, &subject, None)?;
        let screen = match args.batch {
            true => None,
            false => Screen::take().context("cannot set up the terminal")?,
        };
        let subject_text = subject.describe("");
        let shown = Shown { args, screen, subject_text, begun: None, tables: 0, sampling };
        let wait = Wait::new(signals, None, subject.ends_with(host.roots), Some(args.delay()), None);
        shown.go_on(wait).await
    })
}

/// State of the display.
struct Shown<'a, K: Kernel> {
    args: &'a TopArgs,
    screen: Option<Screen>,
    subject_text: String,
    /// The profile of the next table, if each table covers only its own time.
    begun: Option<RecordingId>,
    tables: u64,
    sampling: Sampling<'a, K>,
}

impl<K: Kernel> Shown<'_, K> {
    async fn go_on(mut self, mut wait: Wait<'_>) -> Result<Ending, Failure> {
        self.report_missing()?;
        if self.args.zero {
            self.begun = Some(self.sampling.begin()?);
        }
        loop {
            let happened = tokio::select! {
                happened = wait.next() => happened,
                () = if_any(self.screen.as_ref().map(Screen::quit)) => return Ok(Ending::Done),
            };
            match happened {
                // Ctrl-C is the normal way to quit, therefore it is not a failure. Other signals are reflected in the exit status.
                WaitEvent::Stopped(number) if number == rustix::process::Signal::INT => {
                    return Ok(Ending::Done);
                }
                WaitEvent::Stopped(number) => return Ok(Ending::Signal(number)),
                WaitEvent::TimeUp => return Ok(Ending::Done),
                WaitEvent::Interval | WaitEvent::Ended => {}
            }
            self.sampling.profiler.collect();
            let profile = self.profile()?;
            self.show(&profile)?;
            self.tables += 1;
            if happened == WaitEvent::Ended || self.args.iterations == Some(self.tables) {
                return Ok(Ending::Done);
            }
        }
    }

    /// Returns the profile of the next table.
    fn profile(&mut self) -> Result<Profile, Failure> {
        let everybody = Selection::default();
        let Some(begun) = self.begun.take() else {
            let Sampling { recorder, sampler, .. } = &self.sampling;
            let last = recorder.last(&sampler.entry, self.args.window(), &everybody);
            return Ok(last.map_err(anyhow::Error::from)?);
        };
        // Begin the next profile before this one ends: symbolization takes time, and samples taken meanwhile must be included.
        self.begun = Some(self.sampling.begin()?);
        Ok(self.sampling.recorder.end(begun, &everybody).map_err(anyhow::Error::from)?)
    }

    fn show(&self, profile: &Profile) -> io::Result<()> {
        let Some(screen) = &self.screen else {
            let table = table(profile, self.args.lines(None));
            return put(if self.tables == 0 { table } else { format!("\n{table}") });
        };
        let lines = self.args.lines(Some((screen.rows(), AROUND)));
        let Sampling { sampler, on, .. } = &self.sampling;
        let event = sampler.events.first().map_or("", |event| &*event.name);
        let heading = format!(
            "\x1b[7m perf-exporter top \x1b[0m {event}, {}; {} on {on} CPUs; press q to quit\n\n",
            sampler.rate, self.subject_text
        );
        screen.show(&(heading + &table(profile, lines)))
    }

    /// Reports refusals before the first table, unless a terminal screen is used, which would hide them.
    fn report_missing(&self) -> io::Result<()> {
        if self.screen.is_some() {
            return Ok(());
        }
        let mut out = io::stderr().lock();
        self.sampling.user_space_only().iter().try_for_each(|text| writeln!(out, "{text}"))?;
        notes::write_refused(&mut out, "sampled", &self.sampling.refusals())
    }
}

/// Returns a table of the busiest functions.
fn table(profile: &Profile, lines: usize) -> String {
    Top::new(profile, lines).text(profile, &nothing(profile, 0), "-n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::sample_profiles::{example, hostile};

    #[test]
    fn the_table_is_as_recorded() {
        insta::assert_snapshot!(table(&example(), 5));
    }

    #[test]
    fn a_table_has_no_more_lines_than_are_around_its_functions() {
        for lines in [1, 3, 10] {
            assert!(table(&example(), lines).lines().count() <= lines + AROUND - ABOVE);
        }
    }

    #[test]
    fn hostile_names_cannot_talk_to_the_terminal() {
        let table = table(&hostile(), 100);
        assert!(!table.contains(|c: char| c.is_control() && c != '\n'));
    }

    #[test]
    fn where_nothing_was_seen_the_table_says_so() {
        assert!(table(&Profile::default(), 5).contains("no samples so far"));
    }
}
