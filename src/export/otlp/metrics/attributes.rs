//! Mapping of labels to attributes of the OpenTelemetry semantic conventions (1.44).
//!
//! Label names contain no dots, but keys of the conventions do, so two labels never map to the same key. Cgroups also get the identifiers
//! of their container and pod, as far as the cgroup path contains them, and paths of executables the name of the file.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::export::otlp::attribute::{Any, KeyValue};
use crate::export::otlp::identity;
use crate::export::protobuf::wire::Sink;
use crate::metrics::Labels;
use crate::targets::{ContainerPath, pod_uid};

/// Labels that have a key in the conventions, with that key. Other labels keep their names: labels defined by users, and labels whose
/// meaning depends on the metric (`state`, `kind`, `mode`, `reason`, …).
pub const KEYS: [(&str, &str); 12] = [
    ("by_cgroup", "perf.by_cgroup"),
    ("cgroup", identity::CGROUP),
    ("comm", identity::COMM),
    ("container", identity::POD_CONTAINER_NAME),
    ("cpu", identity::CPU),
    ("errno", "error.type"),
    ("exe", identity::EXECUTABLE_PATH),
    ("function", "code.function.name"),
    ("namespace", identity::NAMESPACE),
    ("pid", identity::PID),
    ("pod", identity::POD_NAME),
    ("tid", identity::TID),
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
        let attribute = match name {
            "container" => KeyValue(identity::container_name(in_pod), Any::Text(value)),
            _ => attribute(name, value),
        };
        to.message(field, &attribute);
        let mut derive = |key, value: &str| to.message(field, &KeyValue(key, Any::Text(value)));
        match name {
            "cgroup" => {
                let container = ContainerPath::of(value).map(|container| container.id);
                container.iter().for_each(|id| derive(identity::CONTAINER_ID, id));
                pod_uid(value).iter().for_each(|uid| derive(identity::POD_UID, uid));
            }
            "exe" => derive(identity::EXECUTABLE_NAME, identity::file_name(value)),
            _ => (),
        }
    }
}

fn attribute<'a>(name: &'a str, value: &'a str) -> KeyValue<'a> {
    let known = KEYS.iter().find(|known| known.0 == name).map(|known| known.1);
    match (known, NUMBERS.contains(&name), number(value)) {
        (Some(key), true, Some(number)) => KeyValue(key, Any::Integer(number.into())),
        (Some(key), false, _) => KeyValue(key, Any::Text(value)),
        _ => KeyValue(name, Any::Text(value)),
    }
}

/// Parses a number in canonical form; `+7` and `07` are not equivalent to `7`.
fn number(value: &str) -> Option<u32> {
    let plain = value.bytes().all(|byte| byte.is_ascii_digit()) && (value == "0" || !value.starts_with('0'));
    if plain { value.parse().ok() } else { None }
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
