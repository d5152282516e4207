//! Cost of the service as a whole process, with its built-in configuration: time from start to first scrape, resident memory, and CPU time
//! with a scrape every second. If perf is installed, `perf stat -a -I 1000` with the same events by CPU only is measured as well. It does
//! less work, and so is the minimum cost of continuous counting.
//!
//! `cargo bench --bench service` takes about half a minute. Run it as root; otherwise few events can be opened.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perf_exporter::host::read_text;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

const SECONDS: u32 = 10;
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults,major-faults";

/// A process that is killed at the end of the benchmark.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Running {
    fn file(&self, name: &str) -> String {
        read_text(&PathBuf::from(format!("/proc/{}/{name}", self.0.id()))).unwrap()
    }

    /// Returns a field of `/proc/PID/status`, in KiB.
    fn kib(&self, field: &str) -> u64 {
        let status = self.file("status");
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Returns user and system time so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = self.file("stat");
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

fn scrape(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// A service with or without TLS.
struct Server {
    process: Running,
    address: String,
    tls: Option<Arc<ClientConfig>>,
}

/// A connection that counts its bytes.
struct Counted {
    stream: TcpStream,
    bytes: u64,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

impl Write for Counted {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.stream.write(buffer)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

impl Server {
    /// Starts a service with this web configuration and the built-in configuration.
    fn start(dir: &Path, web: Option<&str>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
        command.args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
        let mut tls = None;
        if let Some(web) = web {
            let file = dir.join("web.yaml");
            std::fs::write(&file, web).unwrap();
            command.arg("--web.config.file").arg(file);
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(dir.join("tls.crt")).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let config =
                ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            tls = Some(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
        }
        let mut process = command.spawn().map(Running).unwrap();
        let mut log = BufReader::new(process.0.stderr.take().unwrap()).lines().map(Result::unwrap);
        let serving = log.find(|line| line.contains("serving on http")).unwrap();
        let address = serving.rsplit("://").next().unwrap().trim_end_matches('/').to_owned();
        std::thread::spawn(move || log.for_each(drop));
        Self { process, address, tls }
    }

    /// Makes scrapes in one connection, with a TLS session of its own unless `resumes`. Returns the bytes on the wire.
    fn scrape(&self, times: u32, resumes: bool) -> u64 {
        let mut counted = Counted { stream: TcpStream::connect(&self.address).unwrap(), bytes: 0 };
        match &self.tls {
            None => (0..times).for_each(|_| get(&mut counted)),
            Some(config) => {
                let mut config = ClientConfig::clone(config);
                if !resumes {
                    config.resumption = Resumption::disabled();
                }
                let name = "localhost".try_into().unwrap();
                let mut connection = ClientConnection::new(Arc::new(config), name).unwrap();
                let mut stream = rustls::Stream::new(&mut connection, &mut counted);
                (0..times).for_each(|_| get(&mut stream));
            }
        }
        counted.bytes
    }

    /// Returns the CPU time of all threads so far, in milliseconds.
    fn cpu(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.0.id())).unwrap();
        let time = |task: std::fs::DirEntry| {
            let text = read_text(&task.path().join("schedstat")).unwrap_or_default();
            text.split(' ').next().and_then(|time| time.parse::<f64>().ok()).unwrap_or(0.0)
        };
        tasks.filter_map(Result::ok).map(time).sum::<f64>() / 1e6
    }
}

/// Requests metrics as Prometheus does, and reads the chunked response.
fn get(stream: &mut impl ReadWrite) {
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nAuthorization: Basic YW5uYTpyaWdodA==\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 1 << 14]);
    while !answer.ends_with(b"0\r\n\r\n") {
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer[..200]));
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// Compares scrapes with TLS and a password with plain ones.
fn with_tls() {
    const SCRAPES: u32 = 200;
    const ROUNDS: usize = 9;
    let dir = tempfile::tempdir().unwrap();
    let subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
    // The client does not accept the certificate of an authority as that of a server.
    let no_authority = ["-addext", "basicConstraints=critical,CA:FALSE"];
    let made = Command::new("openssl")
        .current_dir(dir.path())
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
        ])
        .args(subject)
        .args(no_authority)
        .args(["-keyout", "tls.key", "-out", "tls.crt"])
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return println!("skipped: openssl, which makes certificates, is not installed");
    }
    let web = "tls_server_config: {cert_file: tls.crt, key_file: tls.key}\n\
               basic_auth_users: {anna: $2b$10$M4aoGfZDlHfRPwjIRF8sb.3IGQ.yZ6OFJr5nRV6PX/n3K8eGOatW6}\n";
    let servers = [Server::start(dir.path(), None), Server::start(dir.path(), Some(web))];
    for server in &servers {
        server.scrape(3, false);
    }
    for (what, connections, resumes) in [
        ("one connection", 1, false),
        ("a connection for each, which resumes a session", SCRAPES, true),
        ("a connection for each, with a full handshake", SCRAPES, false),
    ] {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            let [plain, tls] = [0, 1].map(|one| {
                let server = &servers[one];
                let before = server.cpu();
                let bytes: u64 =
                    (0..connections).map(|_| server.scrape(SCRAPES / connections, resumes)).sum();
                ((server.cpu() - before) / f64::from(SCRAPES), bytes as f64 / f64::from(SCRAPES))
            });
            rounds.push((tls.0 / plain.0, plain, tls));
        }
        rounds.sort_by(|one, other| one.0.total_cmp(&other.0));
        let (ratio, plain, tls) = rounds[ROUNDS / 2];
        println!(
            "scrapes with TLS and a password, {what}: {:.2} ms of CPU beside {:.2} (ratio {ratio:.2}), {:.0} bytes beside {:.0} (ratio {:.2})",
            tls.0,
            plain.0,
            tls.1,
            plain.1,
            tls.1 / plain.1
        );
    }
}

/// Returns the value of a series without labels.
fn value(answer: &str, name: &str) -> f64 {
    let line = answer.lines().find(|line| line.starts_with(name)).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn main() {
    let start = Instant::now();
    let mut service = Command::new(env!("CARGO_BIN_EXE_perf-exporter"))
        .args(["--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut log = BufReader::new(service.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let serving = log.find(|line| line.contains("serving on http://")).unwrap();
    let address = serving.rsplit("http://").next().unwrap().trim_end_matches('/').to_owned();
    let answer = scrape(&address).unwrap();
    let first = start.elapsed();
    let series = answer.lines().filter(|line| line.starts_with("perf_")).count();
    println!("start to first scrape: {first:.1?}, {series} series, {} bytes", answer.len());

    let before = (value(&answer, "perf_exporter_cpu_seconds_total"), service.ticks());
    for _ in 0..SECONDS {
        sleep(Duration::from_secs(1));
        scrape(&address).unwrap();
    }
    let after = value(&scrape(&address).unwrap(), "perf_exporter_cpu_seconds_total");
    let percent = (after - before.0) / f64::from(SECONDS) * 100.0;
    println!("scraped every second: {percent:.2} % of one CPU");
    println!("resident: {} KiB, of which anonymous: {} KiB", service.kib("VmRSS"), service.kib("RssAnon"));
    beside_perf(service.ticks() - before.1);
    drop(service);
    with_tls();
}

/// Measures perf in an interval of the same length, and prints the ratio.
fn beside_perf(ours: u64) {
    let perf = Command::new("perf")
        .args(["stat", "-a", "-I", "1000", "-e", EVENTS, "sleep", "60"])
        .stderr(Stdio::null())
        .spawn();
    let Ok(perf) = perf.map(Running) else {
        println!("skipped: perf is not installed");
        return;
    };
    sleep(Duration::from_secs(1));
    let before = perf.ticks();
    sleep(Duration::from_secs(SECONDS.into()));
    let theirs = perf.ticks() - before;
    let percent = |ticks: u64| ticks as f64 / f64::from(SECONDS);
    println!(
        "perf stat -a -I 1000, per CPU only: {:.1} % of one CPU, resident {} KiB; perf-exporter by the same 10 ms clock: {:.1} %",
        percent(theirs),
        perf.kib("VmRSS"),
        percent(ours),
    );
}
