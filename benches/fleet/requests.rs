//! OTLP requests of a node, made by the encoder of the exporter.

use std::collections::BTreeMap;
use std::sync::Arc;

use perf_exporter::clock::Timestamp;
use perf_exporter::export::otlp::metrics::{Encoder, Histograms, Options, Temporality};
use perf_exporter::export::otlp::{Encoded, attribute, resource};
use perf_exporter::host::Roots;
use perf_exporter::metrics::Snapshot;

/// Maximum size of a request in bytes before compression, as in the exporter: the default limit of gRPC receivers.
const LIMIT: usize = 4 << 20;

/// Encodes the series of one node, as the exporter does with the default settings.
pub(crate) struct NodeEncoder {
    encoder: Encoder,
    resource: attribute::Resource,
}

impl NodeEncoder {
    /// Creates the encoder. The resource is that of this machine, with the names of the node. `began` is the start of the simulation.
    pub(crate) fn new(node: usize, began: Timestamp) -> Self {
        let name = name(node);
        let names = ["host.id", "host.name", "k8s.node.name", "service.instance.id"];
        let names: BTreeMap<String, String> =
            names.into_iter().map(|key| (key.to_owned(), name.clone())).collect();
        let options = Options {
            temporality: Temporality::Cumulative,
            histograms: Histograms::Exponential,
            limit: LIMIT,
            began,
        };
        Self { encoder: Encoder::new(options), resource: resource::detect(&Roots::default(), &names) }
    }

    /// Returns the requests.
    pub(crate) fn encode(&mut self, snapshot: &Arc<Snapshot>) -> Encoded {
        self.encoder.encode(snapshot, &self.resource)
    }
}

/// Returns the name of a node.
pub(crate) fn name(node: usize) -> String {
    format!("node-{node:05}")
}
