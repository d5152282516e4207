//! Tables that are printed one after another, for a file or a pipe.

use std::io::{self, Write};

use super::args::TopArgs;
use super::source::Source;
use crate::cli::observe::{Ending, Failure, Wait, WaitEvent, notes};
use crate::cli::put;
use crate::cli::sample::Sampling;
use crate::export::flamegraph::nothing;
use crate::export::top::Top;
use crate::profile::Profile;
use crate::sys::Kernel;

/// Prints tables until the target ends, a signal arrives, or the requested number is reached.
pub(super) async fn run<K: Kernel>(
    args: &TopArgs,
    sampling: &mut Sampling<'_, K>,
    mut source: Source,
    wait: &mut Wait<'_>,
) -> Result<Ending, Failure> {
    report_missing(sampling)?;
    let mut tables = 0;
    loop {
        let happened = wait.next().await;
        match happened {
            WaitEvent::Stopped(number) => return Ok(Ending::of_view(number)),
            WaitEvent::TimeUp => return Ok(Ending::Done),
            WaitEvent::Interval | WaitEvent::Ended => {}
        }
        sampling.profiler.collect();
        let table = table(&source.next()?, args.lines());
        put(if tables == 0 { table } else { format!("\n{table}") })?;
        tables += 1;
        if happened == WaitEvent::Ended || args.iterations == Some(tables) {
            return Ok(Ending::Done);
        }
    }
}

/// Reports refusals before the first table.
fn report_missing<K: Kernel>(sampling: &Sampling<'_, K>) -> io::Result<()> {
    let mut out = io::stderr().lock();
    sampling.user_space_only().iter().try_for_each(|text| writeln!(out, "{text}"))?;
    notes::write_refused(&mut out, "sampled", &sampling.refusals())
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
    fn hostile_names_cannot_talk_to_the_terminal() {
        let table = table(&hostile(), 100);
        assert!(!table.contains(|c: char| c.is_control() && c != '\n'));
    }

    #[test]
    fn where_nothing_was_seen_the_table_says_so() {
        assert!(table(&Profile::default(), 5).contains("no samples so far"));
    }
}
