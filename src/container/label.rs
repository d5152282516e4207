//! Labels of series with container metadata.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::directory::{Directory, State};
use crate::clock::Timestamp;
use crate::metrics::{Family, Kind, Labels, Metadata, NameError, Point, Value};
use crate::targets::{ContainerPath, Identity, pod_uid};

/// Adds the container labels to every series with the label `cgroup`.
///
/// Series are identified by their cgroup, so metadata labels do not affect aggregation. They are added at the first collection with
/// metadata, and remain as long as the series, even if the container is gone.
#[derive(Debug)]
pub struct Labeller {
    directory: Arc<Directory>,
    info: Arc<Metadata>,
    began: Timestamp,
    /// Keyed by the address of the labels, which the entry keeps alive.
    seen: FxHashMap<usize, Seen>,
    generation: u64,
    epoch: u64,
    round: u64,
}

#[derive(Debug)]
struct Seen {
    own: Arc<Labels>,
    /// Path of the cgroup, if it belongs to a container or a pod.
    cgroup: Option<Arc<str>>,
    named: Named,
    round: u64,
}

#[derive(Debug, Clone)]
enum Named {
    /// Without metadata labels.
    Own,
    /// Not published before the first request.
    Held,
    With(Arc<Identity>, Arc<Labels>),
}

impl Labeller {
    /// Creates a labeller that uses this directory.
    ///
    /// # Errors
    /// The metric name is invalid, which is a bug.
    pub fn new(directory: Arc<Directory>, began: Timestamp) -> Result<Self, NameError> {
        let help = "Metadata of the container of a cgroup; the value is 1.";
        let info = Metadata::new("perf_container", help, "", Kind::Info)?;
        Ok(Self { directory, info, began, seen: FxHashMap::default(), generation: 0, epoch: 0, round: 0 })
    }

    /// Adds metadata labels to the series of a collection. Series of new containers are omitted until the next collection, which has their
    /// labels if a source provides them. No counts are lost, because totals are cumulative.
    #[must_use]
    pub fn name(&mut self, families: Vec<Family>) -> Vec<Family> {
        let epoch = self.directory.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.seen.clear();
        }
        if !self.directory.has_sources() && self.seen.is_empty() {
            return families;
        }
        self.round += 1;
        let labels = families.iter().flat_map(Family::points).map(|point| &point.labels);
        self.take_in(labels);
        self.look_up();
        let named = families.into_iter().map(|family| family.relabelled(|labels| self.named(labels)));
        let named = named.chain(self.about()).collect();
        let round = self.round;
        self.seen.retain(|_, seen| seen.round == round);
        named
    }

    /// Returns the info metric, with metadata that would add too many labels to every series.
    fn about(&self) -> Option<Family> {
        let mut visited = FxHashSet::default();
        let mut points = Vec::new();
        for seen in self.seen.values() {
            let (Some(path), Named::With(identity, _)) = (&seen.cgroup, &seen.named) else { continue };
            if !visited.insert(path) {
                continue;
            }
            let Some(container) = ContainerPath::all(path).last() else { continue };
            let uid = identity.pod.iter().map(|pod| ("pod_uid", &*pod.uid));
            let image = identity.image.iter().map(|image| ("image", &**image));
            let workload = identity
                .workload
                .iter()
                .flat_map(|workload| [("workload", &*workload.name), ("workload_kind", &*workload.kind)]);
            let own = [("cgroup", &**path), ("container_id", container.id)];
            let names = own.into_iter().chain(identity.names());
            let labels = Labels::new(names.chain(uid).chain(image).chain(workload));
            points.push(Point { labels, value: Value::Integer(1), start: self.began });
        }
        (!points.is_empty()).then(|| Family::new(Arc::clone(&self.info), points))
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

    /// Looks up new and held series; looks up all series if the metadata has changed.
    fn look_up(&mut self) {
        let generation = self.directory.generation();
        let all = generation != self.generation;
        self.generation = generation;
        let round = self.round;
        let asked = (self.seen.values_mut())
            .filter(|seen| seen.round == round && (all || !matches!(seen.named, Named::With(..))));
        let mut of_cgroups: FxHashMap<Arc<str>, Vec<&mut Seen>> = FxHashMap::default();
        for seen in asked {
            if let Some(path) = &seen.cgroup {
                of_cgroups.entry(Arc::clone(path)).or_default().push(seen);
            }
        }
        let states = self.directory.look_up(of_cgroups.keys().map(|path| &**path));
        for (series, state) in of_cgroups.into_values().zip(states) {
            series.into_iter().for_each(|seen| seen.note(state.clone()));
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
                // The series' own labels take precedence over metadata labels.
                let labels = Labels::new(identity.pairs().chain(self.own.pairs()));
                Named::With(identity, labels)
            }
            // A series keeps its metadata labels.
            (_, Named::With(..)) => return,
            (State::New, _) => Named::Held,
            (State::None | State::Unknown, _) => Named::Own,
        };
    }
}

fn is_of_a_container(path: &str) -> bool {
    ContainerPath::of(path).is_some() || pod_uid(path).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::container::source::{Kind as Source, Listing};
    use crate::container::{Pod, SourceState, Workload};

    const ID: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

    fn identity(pod: &str) -> Identity {
        let pod = Pod { namespace: "shop".into(), name: pod.into(), uid: "u-1".into() };
        Identity {
            pod: Some(pod),
            container: Some("app".into()),
            image: Some("web:1".into()),
            workload: Some(Workload { kind: "Deployment".into(), name: "web".into() }),
            service: None,
            labels: vec![("tier".into(), "a\"b".into())],
            selected_by: Vec::new(),
            deep: None,
        }
    }

    struct Host {
        directory: Arc<Directory>,
        labeller: Labeller,
        clock: Clock,
        metadata: Arc<Metadata>,
        labels: Vec<Arc<Labels>>,
    }

    impl Host {
        /// Returns series of a container, of a service, and without a cgroup.
        fn new() -> Self {
            let clock = Clock::manual(Timestamp(1_000_000));
            let directory = Arc::new(Directory::new(clock.clone()));
            let (kind, place) = (Source::Cri, String::new());
            let source = SourceState { kind, place, answered: None, containers: 0, failure: None };
            directory.set_sources(vec![source], false);
            let container = format!("/docker/{ID}");
            let labels = vec![
                Labels::new([("cgroup", container.as_str()), ("pod", "named by an entry")]),
                Labels::new([("cgroup", container.as_str()), ("tier", "")]),
                Labels::new([("cgroup", "/system.slice/a.service")]),
                Labels::new([("cpu", "0")]),
            ];
            Self {
                labeller: Labeller::new(Arc::clone(&directory), Timestamp(7)).unwrap(),
                directory,
                clock,
                metadata: Metadata::new("a", "help", "", Kind::Counter).unwrap(),
                labels,
            }
        }

        fn reports(&self, identity: Option<Identity>) {
            let containers = identity.into_iter().map(|identity| (ID.into(), identity)).collect();
            self.clock.advance(std::time::Duration::from_secs(1));
            self.directory.enter(0, Ok(Listing { containers, pods: vec![] }));
            self.directory.end_round(self.clock.monotonic());
        }

        /// Returns the series of a collection, one per line.
        fn published(&mut self) -> Vec<String> {
            let point = |labels: &Arc<Labels>| Point {
                labels: Arc::clone(labels),
                value: Value::Integer(1),
                start: Timestamp(0),
            };
            let family = Family::new(Arc::clone(&self.metadata), self.labels.iter().map(point).collect());
            let named = self.labeller.name(vec![family]);
            let line = |family: &Family| {
                let name = family.metadata().name().to_owned();
                family
                    .points()
                    .iter()
                    .map(move |point| format!("{name}{{{}}}", point.labels.text()))
                    .collect::<Vec<_>>()
            };
            named.iter().flat_map(line).map(|line| line.replace(ID, "ID")).collect()
        }
    }

    const OTHERS: [&str; 2] = [r#"a{cgroup="/system.slice/a.service"}"#, r#"a{cpu="0"}"#];

    #[test]
    fn series_of_a_container_have_its_names_and_those_of_others_have_none() {
        let mut host = Host::new();
        assert_eq!(host.published(), OTHERS, "series of a new container appear at the next collection");
        host.reports(Some(identity("web-0")));
        let named = host.published();
        let expected = [
            r#"a{cgroup="/docker/ID",container="app",namespace="shop",pod="named by an entry",tier="a\"b"}"#,
            r#"a{cgroup="/docker/ID",container="app",namespace="shop",pod="web-0",tier="a\"b"}"#,
            OTHERS[0],
            OTHERS[1],
            r#"perf_container{cgroup="/docker/ID",container="app",container_id="ID",image="web:1",namespace="shop",pod="web-0",pod_uid="u-1",workload="web",workload_kind="Deployment"}"#,
        ];
        assert_eq!(named, expected);
        assert_eq!(host.published(), named);
    }

    #[test]
    fn whom_nobody_knows_is_published_without_names_and_gets_them_when_somebody_does() {
        let mut host = Host::new();
        host.published();
        host.reports(None);
        host.reports(None);
        assert_eq!(host.published().len(), 4);
        assert!(!host.published().join("").contains("namespace"));
        host.reports(Some(identity("web-0")));
        assert!(host.published()[1].contains(r#"pod="web-0""#));
        host.reports(Some(identity("renamed")));
        assert!(host.published()[1].contains(r#"pod="renamed""#));
    }

    #[test]
    fn names_stay_as_long_as_the_series_though_everybody_forgot_them() {
        let mut host = Host::new();
        host.published();
        host.reports(Some(identity("web-0")));
        host.published();
        for _ in 0..3 {
            host.clock.advance(std::time::Duration::from_secs(2 * 3600));
            host.reports(None);
            assert!(host.published()[1].contains(r#"pod="web-0""#));
        }
        assert_eq!(host.directory.size().0, 0);
        let gone: Vec<_> = host.labels.drain(..2).collect();
        host.published();
        host.labels.extend(gone);
        assert!(
            !host.published().join("").contains("web-0"),
            "a later series with the same labels is a different one"
        );
    }

    #[test]
    fn names_that_are_not_asked_for_any_more_go() {
        let mut host = Host::new();
        host.published();
        host.reports(Some(identity("web-0")));
        assert!(host.published()[1].contains("web-0"));
        host.directory.set_sources(vec![], true);
        assert_eq!(host.published().len(), 4);
        assert!(!host.published().join("").contains("web-0"));
    }

    #[test]
    fn where_nobody_is_asked_nothing_is_changed() {
        let mut host = Host::new();
        host.directory.set_sources(vec![], true);
        assert_eq!(host.published().len(), 4);
        assert!(host.labeller.seen.is_empty());
    }
}
