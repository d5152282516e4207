//! Metadata of containers and pods, as the sources of the module `container` list it.

use std::fmt;
use std::sync::Arc;

/// Metadata of a container, or of a pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Identity {
    /// Pod; `None` for containers outside pods.
    pub pod: Option<Pod>,
    /// Container name; `None` for a pod as a whole, `POD` for the container that holds its namespaces.
    pub container: Option<Arc<str>>,
    /// Image as requested, or its digest if the name is unknown.
    pub image: Option<Arc<str>>,
    /// Workload of the pod; `None` for pods without an owner, and from sources that do not list owners.
    pub workload: Option<Workload>,
    /// Service name, from the configured labels or annotations.
    pub service: Option<Arc<str>>,
    /// Configured labels: names in metrics, and values.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// Labels that selections of the configuration use: keys, and values.
    pub selected_by: Vec<(Arc<str>, Arc<str>)>,
    /// Set of events that the pod requests, from the annotation [`DEEP`].
    pub deep: Option<Arc<str>>,
}

/// Annotation with which a pod requests a set of `deep` of the configuration, by its name.
pub const DEEP: &str = "perf-exporter/deep";

/// Pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// UID with dashes; for static pods the hash of their file. Part of the path of the pod's cgroup.
    pub uid: Arc<str>,
}

/// Object that creates pods, such as a Deployment. Its name does not change with a rollout.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    /// Kind: `Deployment`, `StatefulSet`, `DaemonSet`, `CronJob`, …
    pub kind: Arc<str>,
    /// Name, in the namespace of the pod.
    pub name: Arc<str>,
}

impl Identity {
    /// Returns the label pairs: the names, and the selected labels.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names().chain(self.labels.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// Returns the names with their label names: `namespace`, `pod`, `container`, `service`.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let pod = self.pod.iter().flat_map(|pod| [("namespace", &*pod.namespace), ("pod", &*pod.name)]);
        let container = self.container.iter().map(|name| ("container", &**name));
        let service = self.service.iter().map(|name| ("service", &**name));
        pod.chain(container).chain(service)
    }
}

/// Source of the metadata of cgroups.
pub trait ContainerMetadata: fmt::Debug + Send + Sync {
    /// Returns the metadata of the containers and pods at these paths; `None` as long as it is unknown, and for other cgroups. Requests
    /// unknown metadata, without waiting for it.
    fn identities(&self, paths: &[Arc<str>]) -> Vec<Option<Arc<Identity>>>;

    /// Reports whether metadata is requested from any source.
    fn has_sources(&self) -> bool;

    /// Returns a number that changes when metadata is added or changed.
    fn generation(&self) -> u64;
}
