//! Who a container is.

use std::sync::Arc;

use crate::clean::clean;
use crate::config::containers::Containers;

/// The longest name or value that is kept, in bytes. In Kubernetes a pod's name has at most 253, and a container's, or the value
/// of a label, 63.
const LONGEST: usize = 256;

/// The longest name of an image, in bytes.
const LONGEST_IMAGE: usize = 512;

/// What a runtime calls a container that only holds the namespaces of a pod, as cAdvisor has it.
pub const POD_CONTAINER: &str = "POD";

/// What a runtime tells of a container, or of a pod as a whole.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Identity {
    /// The pod; `None` for containers that are in none.
    pub pod: Option<Pod>,
    /// The container's name; `None` of the pod as a whole, [`POD_CONTAINER`] of the container that holds its namespaces.
    pub container: Option<Arc<str>>,
    /// The image as it was asked for, or its digest where nobody knows more.
    pub image: Option<Arc<str>>,
    /// The service that it is a part of, by the label or annotation that was chosen to tell.
    pub service: Option<Arc<str>>,
    /// The labels that were chosen: their names in metrics, and their values.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
}

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pod {
    /// The namespace.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
    /// The UID, with dashes; of static pods the hash of their file. What stands in the path of its cgroup.
    pub uid: Arc<str>,
}

/// Which labels and annotations are kept of all that pods and containers have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// Keys of labels, and what they are called in metrics.
    pub labels: Vec<(String, Arc<str>)>,
    /// Keys of labels or annotations; the first that is there names the service.
    pub service: Vec<String>,
}

/// The texts that somebody gave a pod or container: labels before annotations, its own before those of its pod.
pub(super) type Told<'t> = &'t dyn Fn(&str) -> Option<&'t str>;

impl Chosen {
    /// What the settings name.
    pub fn of(settings: &Containers) -> Self {
        Self { labels: settings.labels.clone(), service: settings.service.clone() }
    }

    /// Takes from labels and annotations what was chosen.
    pub(super) fn choose(&self, identity: &mut Identity, label: Told<'_>, annotation: Told<'_>) {
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
    /// `None` unless it has a name and a namespace.
    pub(super) fn new(namespace: &str, pod: &str, uid: &str) -> Option<Self> {
        Some(Self { namespace: name(namespace)?, name: name(pod)?, uid: text(uid) })
    }
}

impl Identity {
    /// The pairs of a label set that tell who it is: its names, and the labels that were chosen.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.names().chain(self.labels.iter().map(|(name, value)| (&**name, &**value)))
    }

    /// Its names, under those that metrics have for them: `namespace`, `pod`, `container`, `service`.
    pub fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        let pod = self.pod.iter().flat_map(|pod| [("namespace", &*pod.namespace), ("pod", &*pod.name)]);
        let container = self.container.iter().map(|name| ("container", &**name));
        let service = self.service.iter().map(|name| ("service", &**name));
        pod.chain(container).chain(service)
    }
}

/// A name that is not empty.
pub(super) fn name(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| self::text(text))
}

/// The name of an image.
pub(super) fn image(text: &str) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| clean(text, LONGEST_IMAGE).into())
}

fn text(text: &str) -> Arc<str> {
    clean(text, LONGEST).into()
}
