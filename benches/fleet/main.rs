//! A fleet of simulated nodes in one process: the series of each, made from the recorded scrape of a real exporter.
//!
//! `cargo bench --bench fleet` prints the size of a scrape for nodes of different sizes. `benches/fleet/run.sh` measures what Prometheus,
//! VictoriaMetrics and OpenTelemetry Collectors need for the fleet. Options, after `--`:
//!
//!   --listen ADDRESS    serves the fleet on this address, instead of printing sizes: /targets (for http_sd_configs), /node/0/metrics, …
//!   --push URL          pushes the fleet as OTLP metrics to this URL instead, over HTTP: http://127.0.0.1:4318/v1/metrics
//!   --history HOURS     prints the scrapes of the past hours with timestamps instead, for promtool and VictoriaMetrics
//!   --interval SECONDS  time between two pushes of a node, or two scrapes of the history (15)
//!   --nodes N           number of nodes (100)
//!   --containers N      containers on each node, each in a pod of its own (30)
//!   --cpus N            CPUs of each node (16)
//!   --lifetime HOURS    time until a container is replaced (24)
//!   --rollout HOURS     time between two rollouts of a Deployment (48)
//!   --restart HOURS     time between two restarts of an exporter (168)
//!   --no-hardware       no hardware counters, as in most virtual machines
//!   --recording FILE    another recording
//!
//! Nodes have no services besides those of the recording. Values of hardware counters are not recorded but follow from the CPU time.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]

mod growth;
mod hardware;
mod history;
mod nodes;
mod push;
mod recording;
mod requests;
mod server;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use hyper::Uri;
use perf_exporter::clock::Clock;
use perf_exporter::export::negotiate::Format;
use perf_exporter::export::prometheus;

use nodes::{Fleet, Shape};
use recording::Recording;
use server::{Service, compressed, encoded};

/// Address of a fleet that is not served.
const UNSERVED: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// Options of the benchmark. `cargo bench` adds `--bench`.
#[derive(Debug, Parser)]
struct Options {
    #[arg(long)]
    listen: Option<SocketAddr>,
    #[arg(long)]
    push: Option<Uri>,
    #[arg(long)]
    history: Option<f64>,
    #[arg(long, default_value_t = 15.0)]
    interval: f64,
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    #[arg(long, default_value_t = 30)]
    containers: usize,
    #[arg(long, default_value_t = 16)]
    cpus: usize,
    #[arg(long, default_value_t = 24.0)]
    lifetime: f64,
    #[arg(long, default_value_t = 48.0)]
    rollout: f64,
    #[arg(long, default_value_t = 168.0)]
    restart: f64,
    #[arg(long)]
    no_hardware: bool,
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fleet/node.txt"))]
    recording: PathBuf,
    #[arg(long, hide = true)]
    bench: bool,
}

impl Options {
    fn fleet(&self) -> anyhow::Result<Fleet> {
        #[expect(clippy::disallowed_methods, reason = "a benchmark runs on the real machine")]
        let text = std::fs::read_to_string(&self.recording);
        let text =
            text.with_context(|| format!("{}: cannot read the recording", self.recording.display()))?;
        let mut recording = Recording::parse(&text).map_err(anyhow::Error::msg)?;
        if !self.no_hardware {
            hardware::add(&mut recording)?;
        }
        Ok(Fleet::new(recording, self.shape())?)
    }

    fn shape(&self) -> Shape {
        let seconds = |hours: f64| hours * 3600.0;
        Shape {
            nodes: self.nodes,
            containers: self.containers,
            cpus: self.cpus,
            lifetime: seconds(self.lifetime),
            rollout: seconds(self.rollout),
            restart: seconds(self.restart),
        }
    }
}

/// Serves the fleet on one thread. Encoding the series of a node takes less than a millisecond, compression some milliseconds.
fn serve(service: Service, address: SocketAddr) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(address).await?;
        println!("serving {} nodes on http://{address}/targets", service.fleet.len());
        Ok(Arc::new(service).run(listener).await?)
    })
}

/// Pushes the fleet on one thread.
fn push(service: Service, url: Uri, every: Duration) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    println!("pushing {} nodes to {url}", service.fleet.len());
    runtime.block_on(push::run(Arc::new(service), url, every));
    Ok(())
}

/// Prints series and bytes of a scrape, and the time to make it, for nodes of different sizes.
fn print_sizes(options: &Options) -> anyhow::Result<()> {
    println!("containers  CPUs  series  samples  text kB  gzip kB  protobuf kB  gzip kB  encoding ms, gzip");
    for containers in [10, 50, 250] {
        for cpus in [8, 64, 256] {
            let options = Options {
                nodes: 1,
                containers,
                cpus,
                recording: options.recording.clone(),
                push: None,
                ..*options
            };
            let service = Service::new(options.fleet()?, Clock::system(), UNSERVED);
            let snapshot = service.snapshot(0);
            let text = encoded(Arc::clone(&snapshot), Format::Text(prometheus::Format::OpenMetrics100));
            let protobuf = encoded(Arc::clone(&snapshot), Format::Protobuf);
            let (plain, zipped) = (
                best(&service.clock, || {
                    encoded(Arc::clone(&snapshot), Format::Text(prometheus::Format::OpenMetrics100))
                }),
                best(&service.clock, || compressed(&text)),
            );
            let samples = text
                .split(|&byte| byte == b'\n')
                .filter(|line| line.first().is_some_and(|&byte| byte != b'#'));
            let kilobytes = |bytes: &[u8]| bytes.len() as f64 / 1e3;
            println!(
                "{containers:>10}  {cpus:>4}  {:>6}  {:>7}  {:>7.0}  {:>7.1}  {:>11.0}  {:>7.1}  {:>11.2}  {:>4.2}",
                snapshot.series(),
                samples.count(),
                kilobytes(&text),
                kilobytes(&compressed(&text)),
                kilobytes(&protobuf),
                kilobytes(&compressed(&protobuf)),
                plain.as_secs_f64() * 1e3,
                zipped.as_secs_f64() * 1e3,
            );
        }
    }
    Ok(())
}

/// Returns the shortest of seven runs.
fn best<T>(clock: &Clock, mut run: impl FnMut() -> T) -> Duration {
    let timed = |_| {
        let start = clock.monotonic();
        let result = std::hint::black_box(run());
        let took = clock.monotonic().since(start);
        drop(result);
        took
    };
    (0..7).map(timed).min().unwrap_or_default()
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(hours) = options.history {
        return Ok(history::print(&options.fleet()?, hours * 3600.0, options.interval, &Clock::system())?);
    }
    let service = |address| anyhow::Ok(Service::new(options.fleet()?, Clock::system(), address));
    if let Some(url) = &options.push {
        let every = Duration::try_from_secs_f64(options.interval)?;
        anyhow::ensure!(!every.is_zero(), "--interval must be positive");
        return push(service(UNSERVED)?, url.clone(), every);
    }
    match options.listen {
        Some(address) => serve(service(address)?, address),
        None => print_sizes(&options),
    }
}
