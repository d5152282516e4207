//! Labels that tell whose container a series is of.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::directory::{Directory, State};
use super::identity::Identity;
use crate::metrics::{Family, Labels};
use crate::target::{ContainerPath, pod_uid};

/// Gives every series that has the label `cgroup` the labels of the container that this cgroup is of.
///
/// Series are told apart by their cgroup, so that names change nothing about what adds up where: they come with the first
/// collection that knows them, and stay as long as the series does, though the container be gone.
#[derive(Debug)]
pub struct Labeller {
    directory: Arc<Directory>,
    /// By the address of the labels, which the entry keeps.
    seen: FxHashMap<usize, Seen>,
    generation: u64,
    round: u64,
}

#[derive(Debug)]
struct Seen {
    own: Arc<Labels>,
    /// The path of the cgroup, if that is one of a container or a pod.
    cgroup: Option<Arc<str>>,
    named: Named,
    round: u64,
}

#[derive(Debug, Clone)]
enum Named {
    /// As they are.
    Own,
    /// Not to be published before somebody was asked.
    Held,
    With(Arc<Identity>, Arc<Labels>),
}

impl Labeller {
    /// One that looks into this directory.
    pub fn new(directory: Arc<Directory>) -> Self {
        Self { directory, seen: FxHashMap::default(), generation: 0, round: 0 }
    }

    /// Names the series of a collection. Those of containers that turned up just now are left out: they come with the next
    /// one, with names if a runtime has told any. Nothing that they counted is lost, for totals only grow.
    #[must_use]
    pub fn name(&mut self, families: Vec<Family>) -> Vec<Family> {
        if !self.directory.is_asked() && self.seen.is_empty() {
            return families;
        }
        self.round += 1;
        let labels = families.iter().flat_map(Family::points).map(|point| &point.labels);
        self.take_in(labels);
        self.look_up();
        let named = families.into_iter().map(|family| family.relabelled(|labels| self.named(labels))).collect();
        let round = self.round;
        self.seen.retain(|_, seen| seen.round == round);
        named
    }

    fn take_in<'l>(&mut self, labels: impl Iterator<Item = &'l Arc<Labels>>) {
        for own in labels {
            let new = || Seen {
                own: Arc::clone(own),
                cgroup: own.get("cgroup").filter(|path| is_of_a_container(path)).map(Arc::from),
                named: Named::Own,
                round: 0,
            };
            self.seen.entry(Arc::as_ptr(own).addr()).or_insert_with(new).round = self.round;
        }
    }

    /// Asks about those that are new, or held back; about all when somebody is known better.
    fn look_up(&mut self) {
        let generation = self.directory.generation();
        let all = generation != self.generation;
        self.generation = generation;
        let round = self.round;
        let mut asked: Vec<&mut Seen> = (self.seen.values_mut())
            .filter(|seen| seen.round == round && seen.cgroup.is_some())
            .filter(|seen| all || !matches!(seen.named, Named::With(..)))
            .collect();
        let paths = asked.iter().map(|seen| seen.cgroup.as_deref().unwrap_or_default());
        let states = self.directory.look_up(paths.collect::<Vec<_>>());
        for (seen, state) in asked.iter_mut().zip(states) {
            seen.note(state);
        }
    }

    fn named(&self, own: &Arc<Labels>) -> Option<Arc<Labels>> {
        match self.seen.get(&Arc::as_ptr(own).addr()).map(|seen| &seen.named) {
            Some(Named::With(_, labels)) => Some(Arc::clone(labels)),
            Some(Named::Held) => None,
            Some(Named::Own) | None => Some(Arc::clone(own)),
        }
    }
}

impl Seen {
    fn note(&mut self, state: State) {
        self.named = match (state, &self.named) {
            (State::Known(identity), Named::With(before, _)) if identity == *before => return,
            (State::Known(identity), _) => {
                // What a series is told apart by is stronger than what somebody called a pod.
                let labels = Labels::new(identity.pairs().chain(self.own.pairs()));
                Named::With(identity, labels)
            }
            // A series keeps the names that it has.
            (_, Named::With(..)) => return,
            (State::New, _) => Named::Held,
            (State::None | State::Unknown, _) => Named::Own,
        };
    }
}

fn is_of_a_container(path: &str) -> bool {
    ContainerPath::of(path).is_some() || pod_uid(path).is_some()
}
