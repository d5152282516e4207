//! Metadata of containers from the responses of sources.

use std::sync::Arc;

use crate::clean::clean;
use crate::config::containers::Containers;
use crate::targets::{DEEP, Identity, Pod, Workload};

/// Maximum length of a name or value, in bytes. Kubernetes limits pod names to 253, and container names and label values to 63.
const LONGEST: usize = 256;

/// Maximum length of an image name, in bytes.
const LONGEST_IMAGE: usize = 512;

/// Name of the container that holds the namespaces of a pod, as in cAdvisor.
pub const POD_CONTAINER: &str = "POD";

/// Selected labels and annotations of pods and containers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chosen {
    /// Keys of labels, and their names in metrics.
    pub labels: Vec<(String, Arc<str>)>,
    /// Keys of labels or annotations; the first existing one contains the service name.
    pub service: Vec<String>,
    /// Keys of labels that selections use.
    pub selecting: Vec<Arc<str>>,
    /// Whether the annotation that requests a set of `deep` is read.
    pub deep: bool,
}

/// Lookup of a label or annotation of a container, including those of its pod.
pub(super) type LabelLookup<'t> = &'t dyn Fn(&str) -> Option<&'t str>;

impl Chosen {
    /// Returns the selection of the settings.
    pub fn of(settings: &Containers) -> Self {
        Self {
            labels: settings.labels.clone(),
            service: settings.service.clone(),
            selecting: settings.selecting.clone(),
            deep: settings.deep,
        }
    }

    /// Sets the selected labels, the service and the requested set of events from labels and annotations.
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
        let selecting = self.selecting.iter().filter_map(|key| Some((Arc::clone(key), text(label(key)?))));
        identity.selected_by = selecting.collect();
        identity.deep = self.deep.then(|| annotation(DEEP)).flatten().and_then(name);
        identity.service =
            self.service.iter().find_map(|key| label(key).or_else(|| annotation(key)).and_then(name));
    }
}

/// Returns a pod; `None` without a name or a namespace.
pub(super) fn pod(namespace: &str, pod: &str, uid: &str) -> Option<Pod> {
    Some(Pod { namespace: name(namespace)?, name: name(pod)?, uid: text(uid) })
}

/// Returns a workload; `None` without a kind or a name.
pub(super) fn workload(kind: &str, workload: &str) -> Option<Workload> {
    Some(Workload { kind: name(kind)?, name: name(workload)? })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the set of events that a pod requests with this annotation.
    fn requested(deep: bool, key: &'static str, value: &str) -> Option<Arc<str>> {
        let mut identity = Identity::default();
        let chosen = Chosen { deep, ..Chosen::default() };
        chosen.choose(&mut identity, &|_| None, &|wanted| (wanted == key).then_some(value));
        identity.deep
    }

    #[test]
    fn the_annotation_of_a_pod_requests_a_set_of_events_if_the_file_allows_annotations() {
        assert_eq!(requested(true, "perf-exporter/deep", "cache").as_deref(), Some("cache"));
        assert_eq!(requested(false, "perf-exporter/deep", "cache"), None);
        assert_eq!(requested(true, "other/deep", "cache"), None);
        assert_eq!(requested(true, "perf-exporter/deep", ""), None);
    }

    #[test]
    fn hostile_values_of_the_annotation_are_short_and_printable() {
        let hostile = format!("\u{1b}[2J\n{}", "x".repeat(1 << 20));
        let value = requested(true, "perf-exporter/deep", &hostile).unwrap();
        assert!(value.len() < 2 * LONGEST && !value.contains(char::is_control), "{value:?}");
    }
}
