//! Receivers of OTLP and of arbitrary HTTP requests whose answers a test chooses, valid or not: over gRPC and HTTP, with and without TLS.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use flate2::read::GzDecoder;
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};
use perf_exporter::clock::Clock;
use perf_exporter::config::push::Protocol;
use perf_exporter::host;
use prost::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use tonic::codec::CompressionEncoding;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};
use tonic::{Code, Request, Response, Status};

/// Answer to a request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// Accepts the request.
    Take,
    /// Accepts the request except for this many items, with a message.
    Partly(i64, &'static str),
    /// Answers with a status code of the protocol, and with the seconds after which the client may retry.
    Code(u16, Option<u64>),
    /// Sends these bytes instead of an HTTP answer, and closes the connection.
    Bytes(&'static [u8]),
    /// Sends nothing for this time, and closes the connection.
    Silence(Duration),
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: ExportMetricsServiceRequest,
    /// The HTTP body after decompression.
    pub(crate) raw: Vec<u8>,
    /// Whether the request was accepted.
    pub(crate) taken: bool,
    /// Time of arrival, on a clock of the receiver.
    pub(crate) at: Duration,
}

impl Received {
    /// Returns the value of the only data point of a metric that is an integer sum.
    pub(crate) fn value(&self, name: &str) -> Option<i64> {
        let metrics = self.body.resource_metrics.iter().flat_map(|resource| &resource.scope_metrics);
        let metric = metrics.flat_map(|scope| &scope.metrics).find(|metric| metric.name == name)?;
        let Some(metric::Data::Sum(sum)) = &metric.data else { return None };
        match sum.data_points.first()?.value? {
            number_data_point::Value::AsInt(value) => Some(value),
            number_data_point::Value::AsDouble(_) => None,
        }
    }
}

#[derive(Debug)]
struct State {
    clock: Clock,
    script: VecDeque<Answer>,
    received: Vec<Received>,
}

/// A receiver. It listens until the test ends.
#[derive(Debug, Clone)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

/// Whether the receiver uses TLS and requires client certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tls {
    No,
    Server,
    Mutual,
}

/// Returns the path of a certificate file.
pub(crate) fn pem(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(name)
}

fn content(name: &str) -> Vec<u8> {
    host::read(&pem(name)).unwrap()
}

impl Receiver {
    /// Starts a receiver that accepts all requests until [`Receiver::answers`] is called.
    pub(crate) fn start(protocol: Protocol, tls: Tls) -> Self {
        Self::start_at(protocol, tls, "127.0.0.1:0".parse().unwrap())
    }

    pub(crate) fn start_at(protocol: Protocol, tls: Tls, address: SocketAddr) -> Self {
        let state = Arc::new(Mutex::new(State {
            clock: Clock::system(),
            script: VecDeque::new(),
            received: Vec::new(),
        }));
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let receiver = Self { address, state };
        match protocol {
            Protocol::Grpc => receiver.serve_grpc(listener, tls),
            Protocol::Http => receiver.serve_http(listener, tls),
        }
        receiver
    }

    /// Sets the answers to the next requests. Later requests are accepted.
    pub(crate) fn answers(&self, answers: impl IntoIterator<Item = Answer>) {
        self.state.lock().unwrap().script = answers.into_iter().collect();
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.state.lock().unwrap().received.clone()
    }

    /// Returns the accepted requests.
    pub(crate) fn taken(&self) -> Vec<Received> {
        self.received().into_iter().filter(|received| received.taken).collect()
    }

    fn next(
        &self,
        path: &str,
        headers: BTreeMap<String, String>,
        body: ExportMetricsServiceRequest,
        raw: Vec<u8>,
    ) -> Answer {
        let mut state = self.state.lock().unwrap();
        let answer = state.script.pop_front().unwrap_or(Answer::Take);
        let taken = matches!(answer, Answer::Take | Answer::Partly(..));
        let at = state.clock.monotonic().0;
        state.received.push(Received { path: path.into(), headers, body, raw, taken, at });
        answer
    }

    fn serve_http(&self, listener: TcpListener, tls: Tls) {
        let config = (tls != Tls::No).then(|| Arc::new(server_config(tls)));
        let receiver = self.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (receiver, config) = (receiver.clone(), config.clone());
                // Some tests close the connection early.
                thread::spawn(move || match config {
                    None => drop(receiver.converse(stream.unwrap())),
                    Some(config) => {
                        let connection = ServerConnection::new(config).unwrap();
                        drop(receiver.converse(StreamOwned::new(connection, stream.unwrap())));
                    }
                });
            }
        });
    }

    /// Answers the requests of one connection.
    fn converse(&self, stream: impl Read + Write) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if stream.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let mut lines = head.lines();
            let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
            let pairs = lines.filter_map(|line| line.split_once(": "));
            let headers: BTreeMap<String, String> =
                pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            let mut body = vec![0; headers["content-length"].parse().unwrap()];
            stream.read_exact(&mut body)?;
            if headers.get("content-encoding").is_some_and(|encoding| encoding == "gzip") {
                let mut plain = Vec::new();
                GzDecoder::new(&*body).read_to_end(&mut plain)?;
                body = plain;
            }
            let decoded = ExportMetricsServiceRequest::decode(&*body).unwrap_or_default();
            let (code, after, answer) = match self.next(&path, headers, decoded, body) {
                Answer::Take => (200, None, response(0, "")),
                Answer::Partly(rejected, message) => (200, None, response(rejected, message)),
                Answer::Code(code, after) => (code, after, Vec::new()),
                Answer::Bytes(bytes) => {
                    stream.get_mut().write_all(bytes)?;
                    return stream.get_mut().flush();
                }
                Answer::Silence(pause) => {
                    thread::sleep(pause);
                    return Ok(());
                }
            };
            let after = after.map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
            let length = answer.len();
            let head = format!(
                "HTTP/1.1 {code} X\r\ncontent-type: application/x-protobuf\r\n{after}content-length: {length}\r\n\r\n"
            );
            stream.get_mut().write_all(head.as_bytes())?;
            stream.get_mut().write_all(&answer)?;
            stream.get_mut().flush()?;
        }
    }

    fn serve_grpc(&self, listener: TcpListener, tls: Tls) {
        let receiver = self.clone();
        listener.set_nonblocking(true).unwrap();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let mut server = Server::builder();
                if tls != Tls::No {
                    let identity = Identity::from_pem(content("server.pem"), content("server.key"));
                    let mut config = ServerTlsConfig::new().identity(identity);
                    if tls == Tls::Mutual {
                        config = config.client_ca_root(Certificate::from_pem(content("ca.pem")));
                    }
                    server = server.tls_config(config).unwrap();
                }
                let service = MetricsServiceServer::new(receiver)
                    .accept_compressed(CompressionEncoding::Gzip)
                    // Compresses answers, as receivers written in Go do.
                    .send_compressed(CompressionEncoding::Gzip);
                server.add_service(service).serve_with_incoming(TcpIncoming::from(listener)).await.unwrap();
            });
        });
    }
}

#[tonic::async_trait]
impl MetricsService for Receiver {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        let headers = headers
            .iter()
            .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())));
        let headers = headers.collect();
        match self.next("", headers, request.into_inner(), Vec::new()) {
            Answer::Take => Ok(Response::new(ExportMetricsServiceResponse::default())),
            Answer::Partly(rejected, message) => Ok(Response::new(
                ExportMetricsServiceResponse::decode(&*response(rejected, message)).unwrap(),
            )),
            Answer::Code(code, after) => {
                let details = after.map(retry_info).unwrap_or_default();
                Err(Status::with_details(
                    Code::from(i32::from(code)),
                    "as ordered by the test",
                    details.into(),
                ))
            }
            Answer::Bytes(_) => Err(Status::unknown("this answer is not possible over gRPC")),
            Answer::Silence(pause) => {
                tokio::time::sleep(pause).await;
                Err(Status::unavailable("late"))
            }
        }
    }
}

fn response(rejected_data_points: i64, error_message: &str) -> Vec<u8> {
    let partial = (rejected_data_points > 0 || !error_message.is_empty())
        .then(|| ExportMetricsPartialSuccess { rejected_data_points, error_message: error_message.into() });
    ExportMetricsServiceResponse { partial_success: partial }.encode_to_vec()
}

/// Returns `google.rpc.Status` with a `RetryInfo`, byte by byte: fields 1 (code), 3 (details: 1 URL, 2 content: 1 delay: 1 seconds).
fn retry_info(seconds: u64) -> Vec<u8> {
    let delimited = |field: u8, content: &[u8]| {
        let mut bytes = vec![field << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    };
    let duration = [8, u8::try_from(seconds).unwrap()];
    let mut any = delimited(1, b"type.googleapis.com/google.rpc.RetryInfo");
    any.extend(delimited(2, &delimited(1, &duration)));
    let mut status = vec![8, 8];
    status.extend(delimited(3, &any));
    status
}

fn server_config(tls: Tls) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificates = |name: &str| -> Vec<CertificateDer<'static>> {
        CertificateDer::pem_slice_iter(&content(name)).collect::<Result<_, _>>().unwrap()
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let builder = if tls == Tls::Mutual {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates("ca.pem"));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
        builder.with_client_cert_verifier(verifier)
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_slice(&content("server.key")).unwrap();
    builder.with_single_cert(certificates("server.pem"), key).unwrap()
}

/// Starts a listener that calls `act` with each connection and speaks no protocol itself.
pub(crate) fn stranger(act: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().for_each(|stream| act(stream.unwrap())));
    address
}
