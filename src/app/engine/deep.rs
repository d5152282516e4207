//! Sets of events that are counted for a few cgroups, for a limited time. They are entries of `counters` in the plan, so that a begin and an
//! end are what a reload is: all other events stay open.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Engine;
use crate::config::{Counters, DeepRequest, DeepSet};
use crate::deep::{DeepReport, Moment, Outcome, Refusal, RefusalKind, Wanted};
use crate::event::syntax;
use crate::sys::Kernel;
use crate::targets::{Cgroup, ContainerMetadata, Needs, Targets, Watch};
use crate::{health, plan};

/// Where the outcome is sent.
pub(in crate::app) type Answer = oneshot::Sender<Outcome>;

impl<K: Kernel> Engine<K> {
    fn moment(&self) -> Moment {
        Moment { monotonic: self.clock.monotonic(), wall: self.clock.now() }
    }

    /// Returns the entries of `counters`, with those of the sets in force.
    pub(super) fn counters(&self) -> Vec<Counters> {
        let counters = &self.config.counters;
        counters.iter().cloned().chain(self.deep.entries(counters)).collect()
    }

    /// Applies the configuration of the file.
    pub(super) fn apply_file(&mut self) {
        self.deep.set_file(&self.config.deep, self.moment());
        self.apply();
    }

    /// Ends the sets that are over. Reports whether there were any: their last counts must be published.
    pub(super) fn expire_deep(&mut self) -> bool {
        let ended = self.deep.expire(self.moment());
        if ended {
            self.apply();
        }
        ended
    }

    /// Begins and ends sets because of the cgroups of this collection.
    pub(super) fn review_deep(&mut self) {
        let limit = self.config.limits.deep_cgroups;
        if !self.deep.is_idle() && self.deep.review(&self.watch.cgroups(), limit, self.moment()) {
            self.apply();
        }
        self.metrics.deep_sets(self.deep.number());
    }

    /// Returns the state of all sets.
    pub(super) fn deep_report(&self) -> DeepReport {
        let cgroups = if self.deep.number() == 0 { Vec::new() } else { self.watch.cgroups() };
        self.deep.report(&self.config.counters, &cgroups)
    }

    /// Begins or ends a set for a client.
    pub(super) fn handle_deep(&mut self, wanted: Wanted) -> Outcome {
        let begun = match wanted {
            Wanted::Begin { request, requester } => Some(self.begin_deep(*request, &requester)?),
            Wanted::End(id) => {
                self.deep.end(id, self.moment())?;
                None
            }
        };
        self.apply();
        let report = self.deep_report();
        Ok(report.active.into_iter().find(|state| Some(state.id) == begun))
    }

    fn begin_deep(&mut self, request: DeepRequest, requester: &str) -> Result<u64, Refusal> {
        let events = self.events_of(&request.set)?;
        let cgroups = self.list_cgroups(&request.set);
        let selected = cgroups.iter().filter(|cgroup| request.set.cgroups.matches(cgroup)).count();
        self.check_descriptors(events.len(), selected)?;
        let context = (&*self.config.counters, &*cgroups, self.config.limits.deep_cgroups);
        self.deep.request(request, requester, context, self.moment())
    }

    /// Returns the events of a set on this host.
    fn events_of(&self, set: &DeepSet) -> Result<Vec<syntax::Event>, Refusal> {
        let refusal = |refused: health::Refusal| {
            let reason = format!("{}: {}", refused.event, refused.reason);
            let remedy = refused.remedy.map_or_else(|| "see perf-exporter list".to_owned(), Into::into);
            Refusal::new(RefusalKind::Wrong, reason, remedy)
        };
        let mut groups = set.events.groups.clone();
        for metric in &set.events.metrics {
            groups.extend(plan::metric_groups(&self.catalog, metric).map_err(refusal)?);
        }
        let events: Vec<syntax::Event> = groups.into_iter().flat_map(|group| group.events).collect();
        for event in &events {
            self.catalog.resolve(event).map_err(|unresolved| refusal(plan::refusal(event, &unresolved)))?;
        }
        Ok(events)
    }

    /// Checks that there are descriptors for this number of events on all CPUs, for this number of cgroups.
    fn check_descriptors(&self, events: usize, cgroups: usize) -> Result<(), Refusal> {
        let needed = events * cgroups * self.watch.online().len();
        let budget = self.collector.budget();
        let free = budget.limit.saturating_sub(budget.used);
        if needed > free {
            let reason = format!("the set needs about {needed} descriptors, and {free} are free");
            let remedy = "select fewer cgroups or events, or set limits.descriptors higher";
            return Err(Refusal::new(RefusalKind::Busy, reason, remedy));
        }
        Ok(())
    }

    /// Returns the cgroups of the host, by a scan of its own: other entries may need no cgroups, or no metadata of containers.
    fn list_cgroups(&self, set: &DeepSet) -> Vec<Arc<Cgroup>> {
        let directory = Arc::clone(&self.naming.directory);
        let mut watch = Watch::new(self.roots.clone()).with_metadata(directory as Arc<dyn ContainerMetadata>);
        let mut needs = Needs::default();
        Targets::Cgroups(set.cgroups.clone()).add_needs(&mut needs);
        watch.need(needs);
        watch.refresh();
        watch.cgroups()
    }
}
