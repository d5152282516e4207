//! Nodes made from a recording. Each has its own containers and rates. Containers are replaced, Deployments are rolled out and exporters
//! restart, each at a time that follows from the shape and the number of the node.

use std::sync::{Arc, Mutex, PoisonError};

use perf_exporter::clock::Timestamp;
use perf_exporter::metrics::{
    self, Buckets, Histogram, Kind, Labels, Metadata, NameError, Point, Snapshot, Value,
};

use crate::growth::{fraction, generation, grown, mix};
use crate::recording::{Owner, Recording, Series, Values};

/// Size of the fleet and frequency of changes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    /// Number of nodes.
    pub(crate) nodes: usize,
    /// Containers on each node, each in a pod of its own.
    pub(crate) containers: usize,
    /// CPUs of each node.
    pub(crate) cpus: usize,
    /// Seconds until a container is replaced for a reason of its own.
    pub(crate) lifetime: f64,
    /// Seconds between two rollouts of a Deployment. All of its containers are replaced at the same time.
    pub(crate) rollout: f64,
    /// Seconds between two restarts of an exporter.
    pub(crate) restart: f64,
}

/// Number of containers of a Deployment.
const REPLICAS: usize = 20;

/// Buckets of a histogram of a cgroup at level `standard`.
const CGROUP_BOUNDS: [f64; 4] = [1.0 / 1024.0, 1.0 / 128.0, 1.0 / 32.0, 0.25];

/// Values observed in each classic bucket of the recording, so that native histograms have several buckets in it.
const PARTS: u32 = 4;

/// All nodes.
pub(crate) struct Fleet {
    recording: Recording,
    shape: Shape,
    container_info: Arc<Metadata>,
    /// Labels that all nodes share: a set for each series of a node and of its CPUs, in the order of `recording`.
    shared: Vec<Vec<Vec<Arc<Labels>>>>,
    /// Labels of a container, other than its names, without duplicates.
    sets: Vec<Vec<(String, String)>>,
    /// Index in `sets` of each series, in the order of `recording`.
    set_of: Vec<Vec<usize>>,
    nodes: Vec<Mutex<Vec<Option<Container>>>>,
}

/// A running container.
struct Container {
    identity: (u64, u64),
    /// A label set for each of `Fleet::sets`.
    labels: Vec<Arc<Labels>>,
    info: Arc<Labels>,
}

/// Names of a container.
struct Names {
    namespace: String,
    pod: String,
    container: String,
    cgroup: String,
    id: String,
    uid: String,
}

impl Fleet {
    /// Creates the nodes.
    ///
    /// # Errors
    /// A name is invalid, which is a bug.
    pub(crate) fn new(recording: Recording, shape: Shape) -> Result<Self, NameError> {
        let help = "Metadata of the container of a cgroup; the value is 1.";
        let container_info = Metadata::new("perf_container", help, "", Kind::Info)?;
        let mut sets: Vec<Vec<(String, String)>> = Vec::new();
        let mut set_of = Vec::new();
        for family in &recording.families {
            let indexes = family.series.iter().map(|series| {
                if !matches!(series.owner, Owner::Container(_)) {
                    return usize::MAX;
                }
                sets.iter().position(|set| *set == series.labels).unwrap_or_else(|| {
                    sets.push(series.labels.clone());
                    sets.len() - 1
                })
            });
            set_of.push(indexes.collect());
        }
        let families = recording.families.iter();
        let shared = families
            .map(|family| family.series.iter().map(|series| shared(series, &recording, &shape)).collect());
        let shared = shared.collect();
        let nodes = (0..shape.nodes).map(|_| Mutex::default()).collect();
        Ok(Self { recording, shape, container_info, shared, sets, set_of, nodes })
    }

    /// Returns the number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.shape.nodes
    }

    /// Returns what the exporter of a node publishes at a time, in seconds since the beginning of the simulation. `epoch` is its beginning.
    pub(crate) fn snapshot(&self, node: usize, at: f64, epoch: Timestamp) -> Arc<Snapshot> {
        let seed = mix(node as u64, 1);
        let (_, restarted) = generation(mix(seed, 2), self.shape.restart, at);
        let mut containers = self.nodes[node].lock().unwrap_or_else(PoisonError::into_inner);
        containers.resize_with(self.shape.containers, || None);
        let running: Vec<Running<'_>> = containers
            .iter_mut()
            .enumerate()
            .map(|(slot, container)| self.running(node, slot, at, container))
            .collect();
        let scrape = Scrape { at, epoch, restarted, seed };
        let families = self.recording.families.iter().enumerate().map(|(number, family)| {
            let mut points = Vec::new();
            for (place, series) in family.series.iter().enumerate() {
                let salt = mix(number as u64, place as u64);
                match series.owner {
                    Owner::Container(recorded) => {
                        let set = self.set_of[number][place];
                        let own = running.iter().filter(|running| running.recorded == recorded);
                        points.extend(own.map(|running| {
                            let object =
                                Object { labels: &running.container.labels[set], began: running.began };
                            let seed = mix(running.seed, salt);
                            scrape.point(&family.metadata, series, object, seed, running.factor)
                        }));
                    }
                    Owner::Node | Owner::Cpu(_) => {
                        for (cpu, labels) in self.shared[number][place].iter().enumerate() {
                            let seed = mix(seed, mix(salt, cpu as u64));
                            let object = Object { labels, began: 0.0 };
                            points.push(scrape.point(&family.metadata, series, object, seed, 1.0));
                        }
                    }
                }
            }
            metrics::Family::new(Arc::clone(&family.metadata), points)
        });
        let info = running.iter().map(|running| Point {
            labels: Arc::clone(&running.container.info),
            value: Value::Integer(1),
            start: scrape.time(restarted),
        });
        let info = metrics::Family::new(Arc::clone(&self.container_info), info.collect());
        Arc::new(Snapshot::new(scrape.time(at), families.chain([info])))
    }

    /// Returns the container that runs in this slot of a node. Its labels are rendered when it begins.
    fn running<'c>(
        &self,
        node: usize,
        slot: usize,
        at: f64,
        container: &'c mut Option<Container>,
    ) -> Running<'c> {
        let seed = mix(mix(node as u64, 3), slot as u64);
        let deployments = (self.shape.nodes * self.shape.containers).div_ceil(REPLICAS) as u64;
        let deployment = mix(seed, 4) % deployments;
        let (own, replaced) = generation(mix(seed, 5), self.shape.lifetime, at);
        let (rollout, rolled_out) = generation(mix(deployment, 6), self.shape.rollout, at);
        let identity = (own, rollout);
        if container.as_ref().is_none_or(|container| container.identity != identity) {
            *container = None;
        }
        let container = container.get_or_insert_with(|| {
            let names = Names::new(deployment, rollout, mix(mix(seed, own), rollout));
            Container {
                identity,
                labels: self.sets.iter().map(|set| names.labels(set)).collect(),
                info: names.info(deployment),
            }
        });
        Running {
            container,
            recorded: slot % self.recording.containers.max(1),
            began: replaced.max(rolled_out),
            seed: mix(seed, own ^ rollout << 32),
            factor: 0.5 + fraction(seed, 7),
        }
    }
}

/// A container at the time of a scrape.
struct Running<'c> {
    container: &'c Container,
    /// Number of the recorded container whose rates it has.
    recorded: usize,
    began: f64,
    seed: u64,
    /// Ratio of its rates to the recorded ones.
    factor: f64,
}

/// The object of a series.
struct Object<'l> {
    labels: &'l Arc<Labels>,
    /// Seconds at which it began.
    began: f64,
}

/// A scrape of one node.
struct Scrape {
    at: f64,
    epoch: Timestamp,
    /// Seconds at which the exporter began.
    restarted: f64,
    seed: u64,
}

impl Scrape {
    fn time(&self, at: f64) -> Timestamp {
        Timestamp(self.epoch.0 + (at * 1e3) as u64)
    }

    fn point(
        &self,
        metadata: &Metadata,
        series: &Series,
        object: Object<'_>,
        seed: u64,
        factor: f64,
    ) -> Point {
        let began = object.began.max(self.restarted);
        let elapsed = self.at - began;
        let value = match &series.values {
            Values::Counter { rate, is_integer } => {
                let total = rate * factor * grown(seed, elapsed);
                if *is_integer { Value::Integer(total as u64) } else { Value::Float(nanoseconds(total)) }
            }
            Values::Gauge { .. } if metadata.name() == "process_start_time_seconds" => {
                Value::Float(self.time(self.restarted).seconds())
            }
            Values::Gauge { first, second, is_integer } => {
                let between = first + (second - first) * fraction(seed, (self.at / 5.0) as u64);
                if *is_integer { Value::Integer(between as u64) } else { Value::Float(between) }
            }
            Values::Histogram(buckets) => {
                let bounds = bounds(metadata, buckets);
                Value::Histogram(Arc::new(histogram(&bounds, buckets, seed ^ self.seed, elapsed, factor)))
            }
        };
        Point { labels: Arc::clone(object.labels), value, start: self.time(began) }
    }
}

/// Rounds to a nanosecond, as times of the kernel are.
fn nanoseconds(seconds: f64) -> f64 {
    (seconds * 1e9).floor() / 1e9
}

fn bounds(metadata: &Metadata, buckets: &[(f64, f64)]) -> Vec<f64> {
    if metadata.name().starts_with("perf_cgroup_") {
        return CGROUP_BOUNDS.into();
    }
    buckets.iter().map(|bucket| bucket.0).filter(|bound| bound.is_finite()).collect()
}

/// Returns the histogram after `elapsed` seconds. Histograms of the scheduler are exponential, as those of the exporter are.
fn histogram(bounds: &[f64], buckets: &[(f64, f64)], seed: u64, elapsed: f64, factor: f64) -> Histogram {
    let mut histogram = Buckets::exponential_with(bounds)
        .map_or_else(|_| Histogram::new(bounds), |buckets| Histogram::of(&buckets));
    let mut lower = buckets.first().map_or(0.0, |first| first.0 / 2.0);
    for (number, &(bound, rate)) in buckets.iter().enumerate() {
        let upper = if bound.is_finite() { bound } else { lower * 2.0 };
        if rate > 0.0 {
            let seconds = grown(mix(seed, number as u64), elapsed);
            for part in 1..=PARTS {
                let value = lower + (upper - lower) * f64::from(part) / f64::from(PARTS);
                histogram.observe_many(value, (rate * factor * seconds / f64::from(PARTS)) as u64);
            }
        }
        lower = upper;
    }
    histogram
}

/// Returns the labels of a series that all nodes share: one for a series of the node, one for each CPU that has this recorded one's rates.
fn shared(series: &Series, recording: &Recording, shape: &Shape) -> Vec<Arc<Labels>> {
    let own = || series.labels.iter().map(|(name, value)| (&**name, value.clone()));
    match series.owner {
        Owner::Node => vec![Labels::new(own())],
        Owner::Cpu(recorded) => (recorded..shape.cpus)
            .step_by(recording.cpus.max(1))
            .map(|cpu| Labels::new(own().chain([("cpu", cpu.to_string())])))
            .collect(),
        Owner::Container(_) => Vec::new(),
    }
}

impl Names {
    fn new(deployment: u64, rollout: u64, seed: u64) -> Self {
        let (high, low) = (mix(seed, 1), mix(seed, 2));
        let template = mix(deployment, rollout) & 0xff_ffff_ffff;
        let uid = format!(
            "{:08x}_{:04x}_{:04x}_{:04x}_{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        );
        let id = (3..7).map(|part| format!("{:016x}", mix(seed, part))).collect::<String>();
        Self {
            namespace: format!("team-{}", deployment % 20),
            pod: format!("service-{deployment}-{template:010x}-{:05x}", high & 0xf_ffff),
            container: "app".to_owned(),
            cgroup: format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{id}.scope"
            ),
            uid: uid.replace('_', "-"),
            id,
        }
    }

    fn own(&self) -> [(&str, &str); 4] {
        [
            ("cgroup", &self.cgroup),
            ("container", &self.container),
            ("namespace", &self.namespace),
            ("pod", &self.pod),
        ]
    }

    fn labels(&self, more: &[(String, String)]) -> Arc<Labels> {
        Labels::new(self.own().into_iter().chain(more.iter().map(|(name, value)| (&**name, &**value))))
    }

    fn info(&self, deployment: u64) -> Arc<Labels> {
        let (workload, image) =
            (format!("service-{deployment}"), format!("registry.example.com/service-{deployment}:1.4"));
        let more = [
            ("container_id", &*self.id),
            ("image", &image),
            ("pod_uid", &self.uid),
            ("workload", &workload),
            ("workload_kind", "Deployment"),
        ];
        Labels::new(self.own().into_iter().chain(more))
    }
}
