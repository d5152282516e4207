//! Pushes the series of all nodes as OTLP metrics over HTTP. Each node has a connection and a time within the interval of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE};
use hyper::{Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::requests::NodeEncoder;
use crate::server::{Service, compressed};

/// Results of all nodes.
#[derive(Default)]
struct Results {
    /// Data points in accepted requests.
    points: AtomicU64,
    accepted: AtomicU64,
    failed: AtomicU64,
    /// The last error.
    error: Mutex<String>,
}

/// Pushes without end, and prints the totals once an interval.
pub(crate) async fn run(service: Arc<Service>, url: Uri, every: Duration) {
    let results = Arc::new(Results::default());
    let nodes = service.fleet.len();
    for node in 0..nodes {
        let delay = every.mul_f64(node as f64 / nodes as f64);
        let (service, results, url) = (Arc::clone(&service), Arc::clone(&results), url.clone());
        tokio::spawn(async move {
            sleep(delay).await;
            push(&service, node, &url, every, &results).await;
        });
    }
    let mut ticks = interval(every);
    loop {
        ticks.tick().await;
        println!("{}", results.line());
    }
}

/// Pushes one node without end. A node whose receiver is slow skips pushes. Failed requests are not retried.
async fn push(service: &Service, node: usize, url: &Uri, every: Duration, results: &Results) {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let mut encoder = NodeEncoder::new(node, service.epoch());
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        for payload in encoder.encode(&service.snapshot(node)).payloads {
            results.add(payload.items, post(&client, url, &payload.bytes).await);
        }
    }
}

/// Sends a request, compressed as the exporter does.
async fn post(client: &Client<HttpConnector, Full<Bytes>>, url: &Uri, message: &[u8]) -> anyhow::Result<()> {
    let request = Request::post(url.clone())
        .header(CONTENT_TYPE, "application/x-protobuf")
        .header(CONTENT_ENCODING, "gzip")
        .body(Full::new(compressed(message).into()))?;
    let response = client.request(request).await.context("no response")?;
    let status = response.status();
    let body = response.into_body().collect().await.context("the response is incomplete")?.to_bytes();
    anyhow::ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
    Ok(())
}

impl Results {
    fn add(&self, points: u64, result: anyhow::Result<()>) {
        match result {
            Ok(()) => {
                self.points.fetch_add(points, Ordering::Relaxed);
                self.accepted.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                *self.error.lock().unwrap_or_else(PoisonError::into_inner) = format!("{error:#}");
            }
        }
    }

    fn line(&self) -> String {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (accepted, points, failed) = (of(&self.accepted), of(&self.points), of(&self.failed));
        format!("accepted: {accepted} requests with {points} points; failed: {failed} requests {error}")
    }
}
