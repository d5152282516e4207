//! Whose samples they are: those of a container, of a service in it, and of nobody in particular.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::container::Identity;
use crate::export::otlp::attribute::{Attribute, Resource};
use crate::profile::{Profile, Task};
use crate::target::{ContainerPath, ProcessContext, pod_uid};

/// What has one resource.
pub(super) struct Group {
    pub(super) resource: Resource,
    /// For each profile its place, and the places of the samples in it. None is empty.
    pub(super) samples: Vec<(usize, Vec<u32>)>,
}

/// What tells resources apart; that without a container comes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Key<'p> {
    container: Option<&'p str>,
    pod: Option<String>,
    identity: Option<&'p Identity>,
    context: Option<&'p ProcessContext>,
}

impl<'p> Key<'p> {
    fn of(task: &'p Task) -> Self {
        let path = task.cgroup.as_deref().unwrap_or_default();
        Self {
            container: ContainerPath::of(path).map(|container| container.id),
            pod: pod_uid(path),
            identity: task.container.as_deref(),
            context: task.context.as_deref(),
        }
    }

    fn resource(&self, base: &Resource) -> Resource {
        let said = self.context.iter().flat_map(|context| context.attributes());
        let said = said.map(|(key, value)| Attribute::text(*key, Arc::clone(value)));
        let container = self.container.map(|id| Attribute::text("container.id", id));
        let pod = self.pod.as_deref().map(|uid| Attribute::text("k8s.pod.uid", uid));
        let named = self.identity.iter().flat_map(|identity| names(identity));
        base.clone().with(named.chain(said).chain(container).chain(pod))
    }
}

/// What a runtime calls it. The service that a process names itself is stronger than the one that a pod's label names.
fn names(identity: &Identity) -> impl Iterator<Item = Attribute> {
    let pod = identity.pod.iter().flat_map(|pod| {
        let text = |key, value| Attribute::text(key, Arc::clone(value));
        [text("k8s.namespace.name", &pod.namespace), text("k8s.pod.name", &pod.name)]
    });
    let key = if identity.pod.is_some() { "k8s.container.name" } else { "container.name" };
    let container = identity.container.iter().map(move |name| Attribute::text(key, Arc::clone(name)));
    let service = identity.service.iter().map(|name| Attribute::text("service.name", Arc::clone(name)));
    pod.chain(container).chain(service)
}

/// Whose the samples of some profiles are.
pub(super) fn groups<'p>(profiles: &'p [Profile], base: &Resource) -> Vec<Group> {
    let mut groups = BTreeMap::<Key<'_>, Vec<(usize, Vec<u32>)>>::new();
    for (place, profile) in profiles.iter().enumerate() {
        let mut numbers = BTreeMap::new();
        let mut of_groups: Vec<(Key<'p>, Vec<u32>)> = Vec::new();
        let mut number = |key: Key<'p>| {
            *numbers.entry(key).or_insert_with_key(|key| {
                of_groups.push((key.clone(), Vec::new()));
                of_groups.len() - 1
            })
        };
        let of_tasks: Vec<usize> = profile.tasks.iter().map(|task| number(Key::of(task))).collect();
        let nobody = number(Key::default());
        for (at, sample) in (0..).zip(&profile.samples) {
            let group = of_tasks.get(sample.task as usize).copied().unwrap_or(nobody);
            // In bounds: each number is a place.
            of_groups[group].1.push(at);
        }
        for (key, samples) in of_groups.into_iter().filter(|(_, samples)| !samples.is_empty()) {
            groups.entry(key).or_default().push((place, samples));
        }
    }
    groups.into_iter().map(|(key, samples)| Group { resource: key.resource(base), samples }).collect()
}
