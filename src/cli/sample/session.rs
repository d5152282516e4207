//! Samplers that are open for somebody at a shell.

use std::sync::Arc;

use anyhow::Context as _;

use crate::cli::observe::{Failure, Subject};
use crate::clock::Clock;
use crate::container::Directory;
use crate::health::{Board, Cause, Refusal};
use crate::host::{CpuSet, Facts, Roots};
use crate::plan::Sampler;
use crate::profile::{Ask, Asked, Cgroups, Profiler, Shortfalls};
use crate::ring::{Context, Losses};
use crate::sys::{Budget, Kernel, usage};
use crate::target::Whom;

/// Memory for rings, in bytes: what the service has by default.
const RINGS: u64 = 64 << 20;

/// Debug information of one file that lines are looked up in, in bytes: what the service has by default.
const DEBUG_INFO: u64 = 256 << 20;

/// Descriptors that are kept for files: whoever reads samples holds those open whose code is executed.
const FILES: usize = 512;

/// Where it happens.
#[derive(Debug)]
pub(in crate::cli) struct Host<'a, K> {
    pub(in crate::cli) kernel: &'a K,
    pub(in crate::cli) roots: &'a Roots,
    pub(in crate::cli) facts: &'a Facts,
    pub(in crate::cli) clock: &'a Clock,
}

impl<K> Clone for Host<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Host<'_, K> {}

/// What is sampled now.
#[derive(Debug)]
pub(in crate::cli) struct Sampling<'a, K: Kernel> {
    host: Host<'a, K>,
    profiler: Profiler<K>,
    sampler: Arc<Sampler>,
    asked: Arc<dyn Ask>,
    budget: Budget,
    board: Board,
    cpus: CpuSet,
    /// On how many of them it was opened.
    on: usize,
    /// Whether it is of processes, and not of all that runs on CPUs or in cgroups.
    processes: bool,
    user_only: bool,
}

impl<'a, K: Kernel> Sampling<'a, K> {
    /// Opens a sampler for `subject` and lets it write; for `child`, a command that waits, when it is started.
    ///
    /// # Errors
    /// When nothing could be opened, or `subject` has gone.
    pub(in crate::cli) fn open(
        host: Host<'a, K>,
        sampler: &Sampler,
        subject: &Subject,
        child: Option<u32>,
    ) -> Result<Self, Failure> {
        let whom = apart(subject.whom(host.roots, child).map_err(Failure::Failed)?);
        let cpus = match subject.is_processes() {
            true => host.facts.online.clone(),
            false => subject.cpus().into_iter().collect(),
        };
        // Nobody is asked: what is sampled was named at the shell.
        let directory = Arc::new(Directory::new(host.clock.clone()));
        let profiler = Profiler::new(host.clock.clone(), crate::cli::files(host.roots), directory)
            .context("a metric has a wrong name, which is a bug")
            .map_err(Failure::Failed)?
            .only(whom);
        let mut sampling = Self {
            asked: profiler.asked(),
            profiler,
            sampler: Arc::new(sampler.clone()),
            budget: Budget::new(usage::raise_descriptor_limit(), FILES, None),
            board: Board::default(),
            host,
            cpus,
            on: 0,
            processes: subject.is_processes(),
            user_only: subject.user_space_only(host.facts),
        };
        sampling.begin()?;
        Ok(sampling)
    }

    fn begin(&mut self) -> Result<(), Failure> {
        let Self { profiler, budget, board, host, .. } = self;
        let Host { kernel, roots, facts, .. } = *host;
        let mut context = Context { kernel, facts, roots, budget, board };
        profiler.apply(&[Arc::clone(&self.sampler)], 1, (RINGS, DEBUG_INFO), &self.cpus, &mut context);
        self.on = profiler.states().iter().map(|state| state.open).sum();
        if self.on == 0 { Err(Failure::Nothing(self.refusals())) } else { Ok(()) }
    }

    /// Begins a profile.
    ///
    /// # Errors
    /// None: nobody else asks for any.
    pub(in crate::cli) fn ask(&self) -> Result<Asked, Failure> {
        self.asked.begin(&self.sampler.entry).map_err(|error| Failure::Failed(error.into()))
    }

    /// Who can be asked for profiles.
    pub(in crate::cli) fn asked(&self) -> &dyn Ask {
        &*self.asked
    }

    /// What is sampled.
    pub(in crate::cli) fn sampler(&self) -> &Sampler {
        &self.sampler
    }

    /// Whether the kernel's side is left out because it has to be; with why, and what would help.
    pub(in crate::cli) fn user_space_only(&self) -> Option<&'static str> {
        self.user_only.then_some(
            "user space only: CAP_PERFMON is missing; give it, or set sysctl kernel.perf_event_paranoid=1, to see the \
             kernel's side too",
        )
    }

    /// On how many CPUs.
    pub(in crate::cli) fn cpus(&self) -> usize {
        self.on
    }

    /// Takes in what was seen, and gives rings that ran over more room. To be done every few seconds.
    pub(in crate::cli) fn collect(&mut self) {
        self.profiler.collect();
    }

    /// What was read and lost so far.
    pub(in crate::cli) fn losses(&self) -> Losses {
        self.profiler.losses()
    }

    /// What samples lack.
    pub(in crate::cli) fn shortfalls(&self) -> Shortfalls {
        self.profiler.shortfalls()
    }

    /// Why something was not opened.
    pub(in crate::cli) fn refusals(&self) -> Vec<Refusal> {
        let own = !self.processes && self.host.facts.paranoid.is_none_or(|level| level <= 2);
        let refusals = self.board.lines().map(|line| line.refusal.clone());
        refusals.map(|refusal| if own { with_own_programs(refusal) } else { refusal }).collect()
    }

    /// Ends it. What was seen stays to be asked for.
    pub(in crate::cli) fn close(&mut self) {
        let Self { profiler, budget, board, host, .. } = self;
        let Host { kernel, roots, facts, .. } = *host;
        profiler.close(&mut Context { kernel, facts, roots, budget, board });
    }
}

/// A refusal with what one may do without privileges.
fn with_own_programs(mut refusal: Refusal) -> Refusal {
    if let (Cause::Forbidden, Some(remedy)) = (refusal.cause, &mut refusal.remedy) {
        remedy.push_str("; one's own programs need neither: -p PID, or a command");
    }
    refusal
}

/// Without cgroups that are below others of them: what runs there is sampled already.
fn apart(whom: Vec<Whom>) -> Vec<Whom> {
    let paths: Vec<String> = whom
        .iter()
        .filter_map(|whom| match whom {
            Whom::Cgroup { path, .. } => Some(path.clone()),
            _ => None,
        })
        .collect();
    let mut kept = Vec::new();
    for (place, whom) in whom.into_iter().enumerate() {
        if let Whom::Cgroup { path, .. } = &whom {
            let within = |(at, other): (usize, &String)| match *other == *path {
                true => at < place,
                false => Cgroups::below(other).matches(path),
            };
            if paths.iter().enumerate().any(within) {
                continue;
            }
        }
        kept.push(whom);
    }
    kept
}
