//! Open samplers of a command.

use std::sync::Arc;

use anyhow::Context as _;

use crate::cli::observe::{Failure, Host, Subject};
use crate::container::Directory;
use crate::health::{Board, Cause, Refusal};
use crate::host::Facts;
use crate::plan::Sampler;
use crate::profile::{ProfileRecorder, Profiler, RecordingId};
use crate::ring::Context;
use crate::sys::{Budget, Kernel, usage};

/// Memory for rings in bytes, as in the default configuration of the service.
const RINGS: u64 = 64 << 20;

/// Maximum debug information of one file for line lookup in bytes, as in the default configuration of the service.
const DEBUG_INFO: u64 = 256 << 20;

/// Descriptors reserved for files. The profiler keeps the files of executed code open.
const FILES: usize = 512;

/// An active sampling session.
#[derive(Debug)]
pub(in crate::cli) struct Sampling<'a, K: Kernel> {
    host: &'a Host<'a, K>,
    subject: &'a Subject,
    pub(in crate::cli) profiler: Profiler<K>,
    pub(in crate::cli) sampler: Arc<Sampler>,
    /// Handle to query profiles.
    pub(in crate::cli) recorder: Arc<dyn ProfileRecorder>,
    budget: Budget,
    board: Board,
    /// Number of CPUs on which the sampler was opened.
    pub(in crate::cli) on: usize,
}

impl<'a, K: Kernel> Sampling<'a, K> {
    /// Opens and enables a sampler for `subject`. For `child`, a command that has not started yet, the kernel enables it at the start.
    ///
    /// # Errors
    /// If nothing could be opened, or if `subject` has ended.
    pub(in crate::cli) fn open(
        host: &'a Host<'a, K>,
        sampler: &Sampler,
        subject: &'a Subject,
        child: Option<u32>,
    ) -> Result<Self, Failure> {
        let open_targets = subject.distinct_targets(host.roots, child)?;
        let cpus = subject.event_cpus(host.facts());
        // No metadata source is needed: the target was selected on the command line.
        let directory = Arc::new(Directory::new(host.clock.clone()));
        let profiler = Profiler::new(host.clock.clone(), crate::cli::files(host.roots), directory)
            .context("cannot create the metrics of the profiler, which is a bug in perf-exporter")?
            .only(open_targets);
        let mut sampling = Self {
            recorder: profiler.recorder(),
            profiler,
            sampler: Arc::new(sampler.clone()),
            budget: Budget::new(usage::raise_descriptor_limit(), FILES, None),
            board: Board::default(),
            host,
            subject,
            on: 0,
        };
        let samplers = [Arc::clone(&sampling.sampler)];
        let (profiler, mut context) = sampling.context();
        profiler.apply(&samplers, 1, (RINGS, DEBUG_INFO), &cpus, &mut context);
        sampling.on = sampling.profiler.states().iter().map(|state| state.open).sum();
        if sampling.on == 0 { Err(Failure::Nothing(sampling.refusals())) } else { Ok(sampling) }
    }

    fn context(&mut self) -> (&mut Profiler<K>, Context<'_, K>) {
        let Self { profiler, budget, board, host, .. } = self;
        let (kernel, facts, roots) = (host.kernel, host.facts(), host.roots);
        (profiler, Context { kernel, facts, roots, budget, board })
    }

    /// Begins a profile.
    ///
    /// # Errors
    /// None: this is the only consumer of profiles.
    pub(in crate::cli) fn begin(&self) -> Result<RecordingId, Failure> {
        Ok(self.recorder.begin(&self.sampler.entry, false).map_err(anyhow::Error::from)?)
    }

    /// Returns the reason and the remedy if kernel code cannot be sampled.
    pub(in crate::cli) fn user_space_only(&self) -> Option<&'static str> {
        user_space_only(self.subject, self.host.facts())
    }

    /// Returns the reasons why events could not be opened.
    pub(in crate::cli) fn refusals(&self) -> Vec<Refusal> {
        let refusals = self.board.lines().map(|line| line.refusal.clone()).collect();
        explained(refusals, self.subject, self.host.facts())
    }

    /// Returns the descriptors that are left for other events.
    pub(in crate::cli) fn budget(&self) -> Budget {
        self.budget
    }

    /// Closes the sampler. Its samples can still be queried.
    pub(in crate::cli) fn close(&mut self) {
        let (profiler, mut context) = self.context();
        profiler.close(&mut context);
    }
}

/// Returns the reason and the remedy if kernel code of `subject` cannot be sampled.
pub(in crate::cli) fn user_space_only(subject: &Subject, facts: &Facts) -> Option<&'static str> {
    subject.user_space_only(facts).then_some(
        "user space only: CAP_PERFMON is missing; grant it, or set sysctl kernel.perf_event_paranoid=1, to sample the \
         kernel too",
    )
}

/// Adds to refusals of samplers for `subject` what is possible without privileges.
pub(in crate::cli) fn explained(refusals: Vec<Refusal>, subject: &Subject, facts: &Facts) -> Vec<Refusal> {
    let own = !subject.is_processes() && facts.paranoid.is_none_or(|level| level <= 2);
    refusals.into_iter().map(|refusal| if own { with_own_programs(refusal) } else { refusal }).collect()
}

/// Adds to a refusal what is possible without privileges.
fn with_own_programs(mut refusal: Refusal) -> Refusal {
    if let (Cause::Forbidden, Some(remedy)) = (refusal.cause, &mut refusal.remedy) {
        remedy.push_str("; your own programs need no privileges: use -p PID or a command");
    }
    refusal
}
