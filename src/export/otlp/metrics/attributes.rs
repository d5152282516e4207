//! Mapping of labels to attributes of the OpenTelemetry semantic conventions (1.44).
//!
//! Label names contain no dots, but keys of the conventions do, so two labels never map to the same key. Cgroups also get the identifiers
//! of their container and pod, as far as the cgroup path contains them.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::export::protobuf::wire::{Sink, WireType, delimited, width};
use crate::metrics::Labels;
use crate::targets::{ContainerPath, pod_uid};

/// Attribute with the path of a cgroup below the mount point. (`process.linux.cgroup` is the content of `/proc/PID/cgroup`.)
pub const CGROUP: &str = "perf.cgroup";

/// Attribute with the ID of the container of a cgroup.
pub const CONTAINER_ID: &str = "container.id";

/// Attribute with the name of a container outside of any pod.
pub const CONTAINER_NAME: &str = "container.name";

/// Attribute with the UID of the pod of a cgroup.
pub const POD_UID: &str = "k8s.pod.uid";

/// Labels that have a key in the conventions, with that key. Other labels keep their names: labels defined by users, and labels whose
/// meaning depends on the metric (`state`, `kind`, `mode`, `reason`, …).
///
/// `comm` is the kernel's name of a process: the first 15 bytes of the name of its executable, unless the process has changed it.
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

/// Keys with numeric values. If a label value is not a number (`other`, for aggregated series), the label keeps its name, so that each key
/// has values of one type.
const NUMBERS: [&str; 3] = ["cpu", "pid", "tid"];

/// Maximum size of the cached attributes in bytes.
const MAX_KEPT_BYTES: usize = 8 << 20;

/// Writes the labels as `KeyValue`s into this field.
pub(super) fn write(labels: &Labels, field: u32, to: &mut impl Sink) {
    let in_pod = labels.get("pod").is_some();
    for (name, value) in labels.pairs() {
        match name {
            // Containers outside of a pod do not belong to Kubernetes.
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

/// Parses a number in canonical form; `+7` and `07` are not equivalent to `7`.
fn number(value: &str) -> Option<u32> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit()) && (value == "0" || !value.starts_with('0'));
    if plain { value.parse().ok() } else { None }
}

/// Message `opentelemetry.proto.common.v1.KeyValue`, borrowed.
struct Attribute<'a>(&'a str, Any<'a>);

/// Message `AnyValue`.
enum Any<'a> {
    Text(&'a str),
    Integer(u32),
}

impl Attribute<'_> {
    /// Writes the attribute into this field. Lengths are computed instead of measured, because a request can contain a million attributes.
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

/// Cache of encoded attributes. The families of a snapshot share labels: a cgroup can have ten metrics with one label set.
#[derive(Debug)]
pub(super) struct Cache {
    field: u32,
    /// Positions of the encoded attributes, by the address of the labels, which the snapshot keeps alive.
    places: FxHashMap<usize, (usize, usize)>,
    bytes: Vec<u8>,
    /// Buffer for labels that do not fit into the cache.
    once: Vec<u8>,
}

impl Cache {
    /// Creates a cache for points whose attributes are in this field.
    pub(super) fn new(field: u32) -> Self {
        Self { field, places: FxHashMap::default(), bytes: Vec::new(), once: Vec::new() }
    }

    /// Returns the output of [`write`]. All labels passed in must stay at their address for the lifetime of the cache.
    pub(super) fn get(&mut self, labels: &Arc<Labels>) -> &[u8] {
        let address = Arc::as_ptr(labels).addr();
        if let Some(&(start, end)) = self.places.get(&address) {
            // In bounds: bytes are only appended.
            return &self.bytes[start..end];
        }
        if self.bytes.len() >= MAX_KEPT_BYTES {
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
