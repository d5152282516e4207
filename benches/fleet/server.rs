//! HTTP server of all nodes: `/node/NUMBER/metrics` and the list of targets for Prometheus, `/targets`.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::export::negotiate::{self, Format};
use perf_exporter::export::{prometheus, protobuf};
use perf_exporter::metrics::Snapshot;
use tokio::net::TcpListener;

use crate::nodes::Fleet;
use crate::requests;

/// Seconds that the simulation has run for when the server starts, so that containers and exporters have different ages.
const PAST: u64 = 7 * 86_400;

/// The fleet as a service.
pub(crate) struct Service {
    pub(crate) fleet: Fleet,
    pub(crate) clock: Clock,
    /// Begin of the simulation.
    epoch: Timestamp,
    address: SocketAddr,
}

impl Service {
    /// Creates the service. The simulation began a week ago.
    pub(crate) fn new(fleet: Fleet, clock: Clock, address: SocketAddr) -> Self {
        let epoch = Timestamp(clock.now().0.saturating_sub(PAST * 1000));
        Self { fleet, clock, epoch, address }
    }

    /// Returns the begin of the simulation.
    pub(crate) fn epoch(&self) -> Timestamp {
        self.epoch
    }

    /// Returns the current series of a node.
    pub(crate) fn snapshot(&self, node: usize) -> Arc<Snapshot> {
        let at = self.clock.now().0.saturating_sub(self.epoch.0) as f64 / 1e3;
        self.fleet.snapshot(node, at, self.epoch)
    }

    /// Serves without end.
    pub(crate) async fn run(self: Arc<Self>, listener: TcpListener) -> io::Result<()> {
        loop {
            let (stream, _) = listener.accept().await?;
            let service = Arc::clone(&self);
            tokio::spawn(async move {
                let answer = service_fn(move |request| {
                    let answer = service.answer(&request);
                    async { Ok::<_, Infallible>(answer) }
                });
                // A connection that fails concerns only its client.
                http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok()
            });
        }
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = request.uri().path();
        if path == "/targets" {
            return response("application/json", self.targets().into());
        }
        let number = path.strip_prefix("/node/").and_then(|rest| rest.strip_suffix("/metrics")?.parse().ok());
        let Some(node) = number.filter(|&node| node < self.fleet.len()) else {
            let mut missing =
                response("text/plain", Bytes::from_static(b"/targets or /node/NUMBER/metrics\n"));
            *missing.status_mut() = StatusCode::NOT_FOUND;
            return missing;
        };
        let values = |name: HeaderName| {
            request.headers().get_all(name).into_iter().filter_map(|value| value.to_str().ok())
        };
        let format = negotiate::format(values(ACCEPT));
        let body = encoded(self.snapshot(node), format);
        if negotiate::gzip(values(ACCEPT_ENCODING)) {
            let mut answer = response(format.content_type(), compressed(&body).into());
            answer.headers_mut().insert(CONTENT_ENCODING, hyper::header::HeaderValue::from_static("gzip"));
            return answer;
        }
        response(format.content_type(), body.into())
    }

    /// Returns all nodes in the format of `http_sd_configs`.
    fn targets(&self) -> String {
        let groups = (0..self.fleet.len()).map(|node| {
            serde_json::json!({
                "targets": [self.address.to_string()],
                "labels": {"__metrics_path__": format!("/node/{node}/metrics"), "instance": requests::name(node)},
            })
        });
        serde_json::Value::from_iter(groups).to_string()
    }
}

fn response(content_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(content_type));
    response
}

/// Encodes the series as the exporter does.
pub(crate) fn encoded(snapshot: Arc<Snapshot>, format: Format) -> Vec<u8> {
    let mut body = Vec::new();
    match format {
        Format::Text(format) => {
            let mut encoder = prometheus::Encoder::new(snapshot, format);
            while encoder.next_chunk(&mut body) {}
        }
        Format::Protobuf => {
            let mut encoder = protobuf::Encoder::new(snapshot);
            while encoder.next_chunk(&mut body) {}
        }
    }
    body
}

/// Compresses as the exporter does.
pub(crate) fn compressed(body: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    // Writing to memory does not fail.
    gzip.write_all(body).and_then(|()| gzip.finish()).unwrap_or_default()
}
