//! Rules that select containers by their metadata, and by the path of their cgroup.

use std::fmt;
use std::sync::Arc;

use super::{Glob, Identity};

/// A rule for pods and their containers. All of its given conditions must match. Unknown metadata matches no condition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodRule {
    /// Namespace of the pod.
    pub namespace: Option<Glob>,
    /// Name of the pod.
    pub pod: Option<Glob>,
    /// Name of the container.
    pub container: Option<Glob>,
    /// Labels of the pod: keys, and patterns of their values.
    pub labels: Vec<(Arc<str>, Glob)>,
}

impl PodRule {
    /// Reports whether the rule has no condition.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Reports whether a container, or a pod as a whole, meets all conditions.
    pub fn matches(&self, identity: &Identity) -> bool {
        let Self { namespace, pod, container, labels } = self;
        let met = |wanted: &Option<Glob>, name: Option<&Arc<str>>| {
            wanted.as_ref().is_none_or(|wanted| name.is_some_and(|name| wanted.matches_name(name)))
        };
        let labelled = |(key, wanted): &(Arc<str>, Glob)| {
            let own = identity.selected_by.iter().find(|(own, _)| own == key);
            own.is_some_and(|(_, value)| wanted.matches_name(value))
        };
        met(namespace, identity.pod.as_ref().map(|pod| &pod.namespace))
            && met(pod, identity.pod.as_ref().map(|pod| &pod.name))
            && met(container, identity.container.as_ref())
            && labels.iter().all(labelled)
    }

    /// Returns the keys of the labels.
    pub fn label_keys(&self) -> impl Iterator<Item = &Arc<str>> {
        self.labels.iter().map(|(key, _)| key)
    }
}

/// Lists the conditions: `namespace shop, pod web-*`.
impl fmt::Display for PodRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, pod, container, labels } = self;
        let names = [("namespace", namespace), ("pod", pod), ("container", container)];
        let names =
            names.into_iter().filter_map(|(word, glob)| Some(format!("{word} {}", glob.as_ref()?.as_str())));
        let labels = labels.iter().map(|(key, glob)| format!("label {key}={}", glob.as_str()));
        f.write_str(&names.chain(labels).collect::<Vec<_>>().join(", "))
    }
}

/// Selection of cgroups by the metadata of their containers and pods.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodSelection {
    /// Rules to include a container; one matching rule suffices.
    pub include: Vec<PodRule>,
    /// Rules to exclude a container; takes precedence over `include`.
    pub exclude: Vec<PodRule>,
}

impl PodSelection {
    /// Reports whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty()
    }

    /// Returns all rules.
    pub fn rules(&self) -> impl Iterator<Item = &PodRule> {
        self.include.iter().chain(&self.exclude)
    }
}

/// A rule for the cgroups of containers. All of its given conditions must match.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ContainerRule {
    /// Path of the cgroup.
    pub cgroup: Option<Glob>,
    /// Metadata.
    pub pod: PodRule,
}

impl ContainerRule {
    /// Reports whether the path of a cgroup meets its condition, if there is one.
    pub fn matches_path(&self, path: &str) -> bool {
        self.cgroup.as_ref().is_none_or(|glob| glob.matches(path))
    }
}

impl fmt::Display for ContainerRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cgroup {
            Some(glob) if self.pod.is_empty() => write!(f, "cgroup {}", glob.as_str()),
            Some(glob) => write!(f, "cgroup {}, {}", glob.as_str(), self.pod),
            None => self.pod.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::targets::Pod;

    fn glob(text: &str) -> Option<Glob> {
        Some(Glob::new(text).unwrap())
    }

    fn web() -> Identity {
        let pod = Pod { namespace: "shop".into(), name: "web-0".into(), uid: "u".into() };
        Identity {
            pod: Some(pod),
            container: Some("app".into()),
            selected_by: vec![("app".into(), "web".into()), ("tier".into(), "".into())],
            ..Identity::default()
        }
    }

    #[test]
    fn a_rule_matches_if_all_of_its_conditions_do() {
        let all = PodRule {
            namespace: glob("shop"),
            pod: glob("web-*"),
            container: glob("app"),
            labels: vec![("app".into(), Glob::new("{web,api}").unwrap())],
        };
        assert!(all.matches(&web()));
        for other in [
            PodRule { namespace: glob("shops"), ..all.clone() },
            PodRule { pod: glob("web"), ..all.clone() },
            PodRule { container: glob("POD"), ..all.clone() },
            PodRule { labels: vec![("app".into(), Glob::new("db").unwrap())], ..all.clone() },
            PodRule { labels: vec![("missing".into(), Glob::new("*").unwrap())], ..all },
        ] {
            assert!(!other.matches(&web()), "{other}");
        }
    }

    #[test]
    fn a_condition_on_unknown_metadata_does_not_match() {
        let outside = Identity { container: Some("app".into()), ..Identity::default() };
        assert!(PodRule { container: glob("app"), ..PodRule::default() }.matches(&outside));
        assert!(!PodRule { pod: glob("*"), ..PodRule::default() }.matches(&outside));
        let pod = Identity { container: None, ..web() };
        assert!(PodRule { pod: glob("web-*"), ..PodRule::default() }.matches(&pod), "a pod as a whole");
        assert!(!PodRule { container: glob("*"), ..PodRule::default() }.matches(&pod));
    }

    #[test]
    fn a_rule_is_shown_with_its_conditions() {
        let pod = PodRule {
            pod: glob("web-*"),
            labels: vec![("app".into(), Glob::new("w").unwrap())],
            ..PodRule::default()
        };
        let rule = ContainerRule { cgroup: glob("/kubepods*/**"), pod };
        assert_eq!(rule.to_string(), "cgroup /kubepods*/**, pod web-*, label app=w");
    }

    proptest! {
        #[test]
        fn a_rule_of_literal_names_matches_exactly_its_own_container(
            wanted in prop::array::uniform3("[a-c*?{}\\[\\]-]{1,4}"),
            own in prop::array::uniform3("[a-c*?{}\\[\\]-]{1,4}"),
            equal in any::<bool>(),
        ) {
            let own = if equal { wanted.clone() } else { own };
            let [namespace, pod, container] = wanted.each_ref().map(|text| glob(&Glob::literal(text)));
            let rule = PodRule { namespace, pod, container, labels: Vec::new() };
            let [namespace, name, container] = own.each_ref().map(|text| Arc::<str>::from(text.as_str()));
            let pod = Some(Pod { namespace, name, uid: "u".into() });
            let identity = Identity { pod, container: Some(container), ..Identity::default() };
            prop_assert_eq!(rule.matches(&identity), own == wanted);
        }
    }
}
