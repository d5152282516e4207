//! Grouping of samples by resource: by container, by service within a container, and all others.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::container::Identity;
use crate::export::numbered::Numbered;
use crate::export::otlp::attribute::{Attribute, Resource};
use crate::export::otlp::identity::{self, NAMESPACE, POD_NAME, container_name};
use crate::profile::{Profile, Task};
use crate::targets::{ContainerPath, ProcessContext, pod_uid};

/// A group of samples with one resource.
pub(super) struct Group {
    /// Unique number of the group.
    pub(super) number: usize,
    pub(super) resource: Resource,
    /// Index of each profile, with the indexes of its samples. No list is empty.
    pub(super) samples: Vec<(usize, Vec<u32>)>,
}

/// Key of a resource. The key without a container sorts first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
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
        let container = self.container.map(|id| Attribute::text(identity::CONTAINER_ID, id));
        let pod = self.pod.as_deref().map(|uid| Attribute::text(identity::POD_UID, uid));
        let named = self.identity.iter().flat_map(|identity| names(identity));
        base.clone().with(named.chain(said).chain(container).chain(pod))
    }
}

/// Returns the attributes from the container runtime. The service name of a process takes precedence over that of a pod label.
fn names(identity: &Identity) -> impl Iterator<Item = Attribute> {
    let pod = identity.pod.iter().flat_map(|pod| {
        let text = |key, value| Attribute::text(key, Arc::clone(value));
        [text(NAMESPACE, &pod.namespace), text(POD_NAME, &pod.name)]
    });
    let key = container_name(identity.pod.is_some());
    let container = identity.container.iter().map(move |name| Attribute::text(key, Arc::clone(name)));
    let service = identity.service.iter().map(|name| Attribute::text("service.name", Arc::clone(name)));
    pod.chain(container).chain(service)
}

/// Groups the samples of some profiles by resource.
pub(super) fn groups(profiles: &[Profile], base: &Resource) -> Vec<Group> {
    let mut groups = BTreeMap::<Key<'_>, Vec<(usize, Vec<u32>)>>::new();
    for (place, profile) in profiles.iter().enumerate() {
        let mut keys = Numbered::default();
        let of_tasks: Vec<u32> = profile.tasks.iter().map(|task| keys.place(Key::of(task))).collect();
        let nobody = keys.place(Key::default());
        let mut of_keys = vec![Vec::new(); keys.values.len()];
        for (at, sample) in (0..).zip(&profile.samples) {
            let group = of_tasks.get(sample.task as usize).copied().unwrap_or(nobody);
            // In bounds: each number is an index.
            of_keys[group as usize].push(at);
        }
        let of_keys = keys.values.into_iter().zip(of_keys);
        for (key, samples) in of_keys.filter(|(_, samples)| !samples.is_empty()) {
            groups.entry(key).or_default().push((place, samples));
        }
    }
    let group = |(number, (key, samples)): (usize, (Key<'_>, _))| Group {
        number,
        resource: key.resource(base),
        samples,
    };
    groups.into_iter().enumerate().map(group).collect()
}
