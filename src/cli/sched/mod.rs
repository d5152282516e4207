//! `perf-exporter sched`: what `perf sched record` does together with `perf sched latency` and `perf sched timehist`, live.
//!
//! ```text
//! follow::Session ─► Machine: sched::Timeline, and who is to be shown ─┬► latency: a table at the end
//!                                                                      └► timehist: a line for each run, a summary, JSON
//! ```
//!
//! Events are opened for all that runs, whoever is shown: who wakes a thread, and who had its CPU, may be anybody.

mod args;
mod latency;
mod machine;
mod summary;
mod timehist;
mod trace_json;

use std::process::ExitCode;
use std::time::Duration;

use super::follow::{Session, Source};
use super::observe::{Ending, Failure, Program, Subject, TargetArgs, exit};
use super::sample::Host;
use crate::clock::Clock;
use crate::event::Catalog;
use crate::host::{Facts, Roots};
use crate::sys::live::Live;
use crate::sys::{Fields, Sideband};
pub(super) use args::SchedArgs;
use args::{Follow, View};

/// Shows what the scheduler does, and ends as the command ended.
pub(super) fn sched(args: &SchedArgs, roots: &Roots) -> ExitCode {
    let outcome = match &args.view {
        View::Latency(args) => latency::run(args, roots),
        View::Timehist(args) => timehist::run(args, roots),
    };
    exit(outcome, "followed")
}

/// What both do to begin.
struct Begin<'a> {
    follow: &'a Follow,
    events: &'a [&'a str],
    roots: &'a Roots,
}

impl Begin<'_> {
    /// Finds what is needed, and hands it over to be followed.
    fn session(
        &self,
        then: impl FnOnce(&Session<'_, Live>) -> Result<Ending, Failure>,
    ) -> Result<Ending, Failure> {
        let facts = Facts::read(self.roots);
        let catalog = Catalog::load(self.roots, &facts);
        let Follow { whom, command, limit } = self.follow;
        let subject = Subject::find(&TargetArgs::target(whom, command), self.roots, &facts)?;
        let sources = Source::find_all(self.events, None, &catalog)?;
        let amounts = sources.iter().any(|source| source.event.counts_amounts());
        let cgroup = matches!(subject, Subject::Cgroups { .. });
        let fields = Fields {
            identifier: true,
            tid: true,
            time: true,
            period: amounts,
            raw: true,
            cgroup,
            ..Fields::default()
        };
        let sideband = Sideband { task: true, switches: true, cgroup, ..Sideband::default() };
        let session = Session {
            host: Host { kernel: &Live, roots: self.roots, facts: &facts, clock: &Clock::system() },
            sources: &sources,
            fields,
            sideband,
            subject: &subject,
            everybody: true,
            program: Program::new(command),
            limit: *limit,
        };
        then(&session)
    }
}

/// A time of the records' clock as perf writes it, in seconds.
fn seconds(nanoseconds: u64) -> String {
    // Microseconds, as perf has them: cut, not rounded.
    let time = Duration::from_nanos(nanoseconds);
    format!("{}.{:06}", time.as_secs(), time.subsec_micros())
}
