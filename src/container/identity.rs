//! Metadata of a container.

use std::sync::Arc;

use crate::clean::clean;
use crate::config::containers::Containers;

/// Maximum length of a name or value, in bytes. Kubernetes limits pod names to 253, and container names and label values to 63.
const LONGEST: usize = 256;

/// Maximum length of an image name, in bytes.
const LONGEST_IMAGE: usize = 512;

/// Name of the container that holds the namespaces of a pod, as in cAdvisor.
pub const POD_CONTAINER: &str = "POD";

/// Metadata of a container, or of a pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Identity {
    /// Pod; `None` for containers outside pods.
    pub pod: Option<Pod>,
    /// Container name; `None` for a pod as a whole, [`POD_CONTAINER`] for the container that holds its namespaces.
    pub container: Option<Arc<str>>,
    /// Image as requested, or its digest if the name is unknown.
    pub image: Option<Arc<str>>,
    /// Workload of the pod; `None` for pods without an owner, and from sources that do not list owners.
    pub workload: Option<Workload>,
    /// Service name, from the configured labels or annotations.
    pub service: Option<Arc<str>>,
    /// Configured labels: names in metrics, and values.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

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

/// Selected labels and annotations of pods and containers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// Keys of labels, and their names in metrics.
    pub labels: Vec<(String, Arc<str>)>,
    /// Keys of labels or annotations; the first existing one contains the service name.
    pub service: Vec<String>,
}

/// Lookup of a label or annotation of a container, including those of its pod.
pub(super) type LabelLookup<'t> = &'t dyn Fn(&str) -> Option<&'t str>;

impl Chosen {
    /// Returns the selection of the settings.
    pub fn of(settings: &Containers) -> Self {
        Self { labels: settings.labels.clone(), service: settings.service.clone() }
    }

    /// Sets the selected labels and the service from labels and annotations.
    pub(super) fn choose(
        &self,
        identity: &mut Identity,
        label: LabelLookup<'_>,
        annotation: LabelLookup<'_>,
    ) {
        let found = self.labels.iter().filter_map(|(key, name)| {
            let value = label(key).filter(|value| !value.is_empty())?;
            Some((Arc::clone(name), text(value)))
        });
        identity.labels = found.collect();
        identity.service =
            self.service.iter().find_map(|key| label(key).or_else(|| annotation(key)).and_then(name));
    }
}

impl Pod {
    /// Creates a pod; `None` without a name or a namespace.
    pub(super) fn new(namespace: &str, pod: &str, uid: &str) -> Option<Self> {
        Some(Self { namespace: name(namespace)?, name: name(pod)?, uid: text(uid) })
    }
}

impl Workload {
    /// Creates a workload; `None` without a kind or a name.
    pub(super) fn new(kind: &str, workload: &str) -> Option<Self> {
        Some(Self { kind: name(kind)?, name: name(workload)? })
    }
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

/// Returns a cleaned name, unless it is empty.
pub(super) fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| self::text(text))
}

/// Returns a cleaned image name, unless it is empty.
pub(super) fn image(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| clean(text, LONGEST_IMAGE).into())
}

fn text(text: &str) -> Arc<str> {
    clean(text, LONGEST).into()
}
