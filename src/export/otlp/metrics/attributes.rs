//! Labels as attributes by OpenTelemetry's semantic conventions (1.44).
//!
//! Names of labels have no dots, and those that conventions have a key for do, so that no two labels get one key. A cgroup
//! has the identifiers of the container and the pod that it is of besides, as far as its path tells.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::export::protobuf::wire::{Sink, WireType, delimited, width};
use crate::metrics::Labels;
use crate::target::{ContainerPath, pod_uid};

/// The attribute that has the path of a cgroup below the mount point. (`process.linux.cgroup` is what `/proc/PID/cgroup`
/// holds, of a process.)
pub const CGROUP: &str = "perf.cgroup";

/// The identifier of the container that a cgroup is of.
pub const CONTAINER_ID: &str = "container.id";

/// The name of a container that is in no pod.
pub const CONTAINER_NAME: &str = "container.name";

/// The UID of the pod that a cgroup is of.
pub const POD_UID: &str = "k8s.pod.uid";

/// Labels that conventions have a key for, and that key. All others keep their names: those that users gave, and those
/// of which each metric has its own meaning (`state`, `kind`, `mode`, `reason`, …).
///
/// `comm` is what the kernel calls a process, the first 15 bytes of the name of its executable unless it has given itself
/// another one.
pub const KEYS: [(&str, &str); 12] = [
    ("by_cgroup", "perf.by_cgroup"),
    ("cgroup", CGROUP),
    ("comm", "process.executable.name"),
    ("container", "k8s.container.name"),
    ("cpu", "cpu.logical_number"),
    ("errno", "error.type"),
    ("exe", "process.executable.path"),
    ("function", "code.function.name"),
    ("namespace", "k8s.namespace.name"),
    ("pid", "process.pid"),
    ("pod", "k8s.pod.name"),
    ("tid", "thread.id"),
];

/// Keys whose values are numbers. Where a label is none (`other`, for what has no series of its own), it keeps its name,
/// so that a key has values of one type.
const NUMBERS: [&str; 3] = ["cpu", "pid", "tid"];

/// How many bytes of attributes are kept.
const KEPT: usize = 8 << 20;

/// Writes the labels as `KeyValue`s into this field.
pub(super) fn write(labels: &Labels, field: u32, to: &mut impl Sink) {
    let in_pod = labels.get("pod").is_some();
    for (name, value) in labels.pairs() {
        match name {
            // One that is in no pod is none of Kubernetes'.
            "container" if !in_pod => Attribute(CONTAINER_NAME, Any::Text(value)).write(field, to),
            _ => attribute(name, value).write(field, to),
        }
        if name == "cgroup" {
            let container = ContainerPath::of(value).map(|container| container.id);
            container.into_iter().for_each(|id| Attribute(CONTAINER_ID, Any::Text(id)).write(field, to));
            pod_uid(value).iter().for_each(|uid| Attribute(POD_UID, Any::Text(uid)).write(field, to));
        }
    }
}

fn attribute<'a>(name: &'a str, value: &'a str) -> Attribute<'a> {
    let known = KEYS.iter().find(|known| known.0 == name).map(|known| known.1);
    match (known, NUMBERS.contains(&name), number(value)) {
        (Some(key), true, Some(number)) => Attribute(key, Any::Integer(number)),
        (Some(key), false, _) => Attribute(key, Any::Text(value)),
        _ => Attribute(name, Any::Text(value)),
    }
}

/// A number as the program writes one; `+7` and `07` are other values than `7`.
fn number(value: &str) -> Option<u32> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit()) && (value == "0" || !value.starts_with('0'));
    if plain { value.parse().ok() } else { None }
}

/// `opentelemetry.proto.common.v1.KeyValue`, borrowed.
struct Attribute<'a>(&'a str, Any<'a>);

/// `AnyValue`.
enum Any<'a> {
    Text(&'a str),
    Integer(u32),
}

impl Attribute<'_> {
    /// Writes it into this field. Lengths are reckoned instead of counted, for there are a million of them in a request.
    fn write(&self, field: u32, to: &mut impl Sink) {
        let value = match self.1 {
            Any::Text(text) => delimited(text.len() as u64),
            Any::Integer(number) => 1 + width(u64::from(number)),
        };
        to.key(field, WireType::Delimited);
        to.varint(delimited(self.0.len() as u64) + delimited(value));
        to.string(1, self.0);
        to.key(2, WireType::Delimited);
        to.varint(value);
        match self.1 {
            Any::Text(text) => to.string(1, text),
            Any::Integer(number) => to.unsigned(3, u64::from(number)),
        }
    }
}

/// Attributes as bytes, for the families of a snapshot share their labels: what is counted of a cgroup has ten metrics and
/// one label set.
#[derive(Debug)]
pub(super) struct Cache {
    field: u32,
    /// By the address of the labels, which the snapshot holds.
    places: FxHashMap<usize, (usize, usize)>,
    bytes: Vec<u8>,
    /// Of labels for which there is no room.
    once: Vec<u8>,
}

impl Cache {
    /// For points that have their attributes in this field.
    pub(super) fn new(field: u32) -> Self {
        Self { field, places: FxHashMap::default(), bytes: Vec::new(), once: Vec::new() }
    }

    /// What [`write`] writes. All labels that are asked for stay where they are as long as the cache lives.
    pub(super) fn get(&mut self, labels: &Arc<Labels>) -> &[u8] {
        let address = Arc::as_ptr(labels).addr();
        if let Some(&(start, end)) = self.places.get(&address) {
            // In bounds: bytes are only added.
            return &self.bytes[start..end];
        }
        if self.bytes.len() >= KEPT {
            self.once.clear();
            write(labels, self.field, &mut self.once);
            return &self.once;
        }
        let start = self.bytes.len();
        write(labels, self.field, &mut self.bytes);
        self.places.insert(address, (start, self.bytes.len()));
        &self.bytes[start..]
    }
}
