//! Decoder of Prometheus remote write 1.0 requests, written from the specification and independent of the exporter's encoder:
//! <https://prometheus.io/docs/specs/prw/remote_write_spec/>.

use std::collections::BTreeMap;

use prost::Message;

/// `prometheus.WriteRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    pub(crate) labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) samples: Vec<Sample>,
}

/// `prometheus.Label`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

/// `prometheus.Sample`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    #[prost(double, tag = "1")]
    pub(crate) value: f64,
    #[prost(int64, tag = "2")]
    pub(crate) timestamp: i64,
}

impl Sample {
    /// Reports whether it is a staleness marker: a NaN with the payload that the specification defines.
    pub(crate) fn is_stale(&self) -> bool {
        self.value.to_bits() == 0x7ff0_0000_0000_0002
    }
}

/// Decodes an uncompressed request. Panics if the request breaks a rule of the specification.
pub(crate) fn read(bytes: &[u8]) -> WriteRequest {
    let request = WriteRequest::decode(bytes).unwrap();
    assert!(!request.timeseries.is_empty());
    for series in &request.timeseries {
        assert!(!series.samples.is_empty(), "{series:?}");
        assert!(
            series.labels.is_sorted_by(|a, b| a.name < b.name),
            "labels are not sorted, or a name is repeated: {series:?}"
        );
        for Label { name, value } in &series.labels {
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let follows = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            assert!(starts && follows && !value.is_empty(), "{series:?}");
        }
        assert!(series.labels.iter().any(|label| label.name == "__name__"), "{series:?}");
        assert!(series.samples.is_sorted_by(|a, b| a.timestamp < b.timestamp), "{series:?}");
    }
    request
}

/// Returns `name{label="value",…}`.
pub(crate) fn identity(series: &TimeSeries) -> String {
    let name = series.labels.iter().find(|label| label.name == "__name__");
    let labels = series.labels.iter().filter(|label| label.name != "__name__");
    let labels: Vec<String> = labels.map(|Label { name, value }| format!("{name}={value:?}")).collect();
    format!("{}{{{}}}", name.map_or("", |label| &label.value), labels.join(","))
}

/// Returns the content of a receiver after these requests: the samples of each series in order of arrival. Panics if a timestamp is not
/// later than the one before; Prometheus rejects such samples.
pub(crate) fn stored<'r>(
    requests: impl IntoIterator<Item = &'r WriteRequest>,
) -> BTreeMap<String, Vec<Sample>> {
    let mut stored: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for series in requests.into_iter().flat_map(|request| &request.timeseries) {
        stored.entry(identity(series)).or_default().extend(series.samples.iter().cloned());
    }
    for (series, samples) in &stored {
        assert!(samples.is_sorted_by(|a, b| a.timestamp < b.timestamp), "{series}: {samples:?}");
    }
    stored
}
