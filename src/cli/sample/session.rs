//! Samplers that are open for somebody at a shell.

use std::sync::Arc;

use anyhow::Context as _;

use crate::cli::observe::{Failure, Host, Subject};
use crate::container::Directory;
use crate::health::{Board, Cause, Refusal};
use crate::plan::Sampler;
use crate::profile::{Ask, Asked, Cgroups, Profiler};
use crate::ring::Context;
use crate::sys::{Budget, Kernel, usage};
use crate::target::Whom;

/// Memory for rings, in bytes: what the service has by default.
const RINGS: u64 = 64 << 20;

/// Debug information of one file that lines are looked up in, in bytes: what the service has by default.
const DEBUG_INFO: u64 = 256 << 20;

/// Descriptors that are kept for files: whoever reads samples holds those open whose code is executed.
const FILES: usize = 512;

/// What is sampled now.
#[derive(Debug)]
pub(in crate::cli) struct Sampling<'a, K: Kernel> {
    host: &'a Host<'a, K>,
    subject: &'a Subject,
    pub(in crate::cli) profiler: Profiler<K>,
    pub(in crate::cli) sampler: Arc<Sampler>,
    /// Who can be asked for profiles.
    pub(in crate::cli) asked: Arc<dyn Ask>,
    budget: Budget,
    board: Board,
    /// On how many CPUs it was opened.
    pub(in crate::cli) on: usize,
}

impl<'a, K: Kernel> Sampling<'a, K> {
    /// Opens a sampler for `subject` and lets it write; for `child`, a command that waits, when it is started.
    ///
    /// # Errors
    /// When nothing could be opened, or `subject` has gone.
    pub(in crate::cli) fn open(
        host: &'a Host<'a, K>,
        sampler: &Sampler,
        subject: &'a Subject,
        child: Option<u32>,
    ) -> Result<Self, Failure> {
        let whom = apart(subject.whom(host.roots, child)?);
        let cpus = subject.where_it_runs(host.facts());
        // Nobody is asked: what is sampled was named at the shell.
        let directory = Arc::new(Directory::new(host.clock.clone()));
        let profiler = Profiler::new(host.clock.clone(), crate::cli::files(host.roots), directory)
            .context("a metric has a wrong name, which is a bug")?
            .only(whom);
        let mut sampling = Self {
            asked: profiler.asked(),
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
    /// None: nobody else asks for any.
    pub(in crate::cli) fn ask(&self) -> Result<Asked, Failure> {
        Ok(self.asked.begin(&self.sampler.entry).map_err(anyhow::Error::from)?)
    }

    /// Whether the kernel's side is left out because it has to be; with why, and what would help.
    pub(in crate::cli) fn user_space_only(&self) -> Option<&'static str> {
        self.subject.user_space_only(self.host.facts()).then_some(
            "user space only: CAP_PERFMON is missing; give it, or set sysctl kernel.perf_event_paranoid=1, to see the \
             kernel's side too",
        )
    }

    /// Why something was not opened.
    pub(in crate::cli) fn refusals(&self) -> Vec<Refusal> {
        let own = !self.subject.is_processes() && self.host.facts().paranoid.is_none_or(|level| level <= 2);
        let refusals = self.board.lines().map(|line| line.refusal.clone());
        refusals.map(|refusal| if own { with_own_programs(refusal) } else { refusal }).collect()
    }

    /// Ends it. What was seen stays to be asked for.
    pub(in crate::cli) fn close(&mut self) {
        let (profiler, mut context) = self.context();
        profiler.close(&mut context);
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
    let path = |whom: &Whom| match whom {
        Whom::Cgroup { path, .. } => Some(path.clone()),
        _ => None,
    };
    let paths: Vec<String> = whom.iter().filter_map(path).collect();
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
