//! The program running as a service, and an HTTP client for it.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use perf_exporter::host::read_text;

use super::exposition::Exposition;
use super::lines::Lines;

/// Timeout of one read of an answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A running service. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) child: Child,
    /// Path of its configuration file.
    pub(crate) configuration: PathBuf,
    /// Address and port at which it serves.
    pub(crate) address: String,
    log: Lines,
    logged: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Service {
    /// Starts the program with a file that contains `configuration`, and waits until it counts and serves. Sampling is off unless the file
    /// enables it, so that the built-in profile does not disturb measurements.
    pub(crate) fn start(configuration: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_perf-exporter")), configuration)
    }

    /// Starts the program so that each scrape makes a collection, and no other collections happen.
    #[allow(dead_code, reason = "not every target scrapes that often")]
    pub(crate) fn start_fresh(configuration: &str) -> Self {
        Self::start(&format!(
            "collection: {{interval: 1m, freshness: 0s}}\nhistory: {{for: 0s}}\n{configuration}"
        ))
    }

    /// Starts the program by a command to which its arguments are appended.
    pub(crate) fn start_by(mut command: Command, configuration: &str) -> Self {
        // Readable by all, because the service may run as another user.
        let open = Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        let file = dir.path().join("perf-exporter.yaml");
        fs::write(&file, complete(configuration)).unwrap();
        command.args(["--listen", "127.0.0.1:0", "--config"]).arg(&file);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Lines::of(child.stderr.take().unwrap());
        let mut service =
            Self { child, configuration: file, address: String::new(), log, logged: Vec::new(), _dir: dir };
        let line = service.wait_for("serving on http://");
        let (_, url) = line.split_once("http://").unwrap();
        service.address = url.trim_end_matches('/').to_owned();
        // A scrape fails after ten seconds, and a slow machine may need longer to open all events.
        service.wait_for("configuration applied groups=");
        // The answer arrives after the first collection, which follows the opening of the counters.
        service.metrics();
        service
    }

    /// Waits until a line with this text is in the log, and returns the first such line. Earlier lines count as well, because threads write
    /// their lines in any order.
    fn wait_for(&mut self, text: &str) -> String {
        let mut seen = 0;
        loop {
            if let Some(line) = self.logged[seen..].iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            seen = self.logged.len();
            let Some(line) = self.log.next() else {
                panic!("the service exited: {}", self.logged.join("\n"))
            };
            self.logged.push(line);
        }
    }

    /// Replaces the content of the configuration file, for the next reload. Sampling is off unless it enables it.
    #[allow(dead_code, reason = "not every target reloads")]
    pub(crate) fn rewrite(&self, configuration: &str) {
        // Renamed, so that a reload that is under way never reads a part of the file.
        let new = self.configuration.with_extension("new");
        fs::write(&new, complete(configuration)).unwrap();
        fs::rename(new, &self.configuration).unwrap();
    }

    /// Returns the log so far.
    pub(crate) fn log(&mut self) -> String {
        self.logged.extend(self.log.ready());
        self.logged.join("\n")
    }

    /// Waits until the log contains all of `texts`. A line may arrive later than the effect that it reports.
    ///
    /// # Panics
    /// With the log, if a text is missing.
    pub(crate) fn has_logged(&mut self, texts: &[&str]) {
        for _ in 0..1000 {
            let log = self.log();
            if texts.iter().all(|text| log.contains(text)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("the log does not contain all of {texts:?}:\n{}", self.log());
    }

    /// Makes a scrape.
    pub(crate) fn metrics(&self) -> Exposition {
        Exposition::parse(&get(&self.address, TEXT).1).unwrap()
    }
}

/// Disables the built-in profile, the presets and the scheduler in a configuration that does not mention them, and publishes all metrics.
fn complete(configuration: &str) -> String {
    let profiles = if configuration.contains("profiles:") { "" } else { "\nprofiles: {}\n" };
    let presets = if configuration.contains("presets:") { "" } else { "\npresets: []\n" };
    let scheduler = if configuration.contains("scheduler:") { "" } else { "\nscheduler: {per: []}\n" };
    let metrics = if configuration.contains("metrics:") { "" } else { "\nmetrics: {level: full}\n" };
    format!("{configuration}{profiles}{presets}{scheduler}{metrics}")
}

impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            let configuration = read_text(&self.configuration).unwrap_or_default();
            eprintln!("configuration of the service:\n{configuration}\nlog:\n{}", self.log());
        }
        // It may have been stopped already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Media type of text 0.0.4.
pub(crate) const TEXT: &str = "text/plain;version=0.0.4";

/// Scrapes the service at `address` with `accept` as the only accepted media type. Returns the content type and the body.
///
/// # Panics
/// If the status is not 200.
pub(crate) fn get(address: &str, accept: &str) -> (String, String) {
    ask(address, "/metrics", accept)
}

/// Scrapes the service at `address` with `accept` as the only accepted media type. Returns the body, which is binary.
///
/// # Panics
/// If the status is not 200.
#[allow(dead_code, reason = "not every target requests binary bodies")]
pub(crate) fn get_binary(address: &str, accept: &str) -> Vec<u8> {
    ask_bytes(address, "/metrics", accept).1
}

/// Requests a path of the service at `address`. Returns the content type and the body.
///
/// # Panics
/// If the status is not 200.
#[allow(dead_code, reason = "not every target requests more than metrics")]
pub(crate) fn get_path(address: &str, path: &str) -> (String, String) {
    ask(address, path, "*/*")
}

/// Requests a path whose body is binary.
///
/// # Panics
/// If the status is not 200.
#[allow(dead_code, reason = "not every target requests binary bodies")]
pub(crate) fn get_bytes(address: &str, path: &str) -> Vec<u8> {
    ask_bytes(address, path, "*/*").1
}

fn ask(address: &str, path: &str, accept: &str) -> (String, String) {
    let (kind, body) = ask_bytes(address, path, accept);
    (kind, String::from_utf8(body).unwrap())
}

/// Retries, as scrapers do, while the service answers that it is busy. This happens on machines with too few CPUs.
fn ask_bytes(address: &str, path: &str, accept: &str) -> (String, Vec<u8>) {
    for _ in 0..12 {
        let (status, headers, body) = ask_once(address, path, accept);
        if status.contains(" 200 ") {
            let kind = headers.lines().filter_map(|line| line.split_once(": "));
            let kind =
                kind.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type")).unwrap().1;
            return (kind.to_owned(), body);
        }
        let body = String::from_utf8_lossy(&body);
        eprintln!("{path}: {status}: {body}");
        assert!(status.contains(" 503 "), "{status}: {body}");
    }
    panic!("{path} is still unavailable after all retries");
}

/// Returns the status line, the headers and the body.
fn ask_once(address: &str, path: &str, accept: &str) -> (String, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    // HTTP 1.0: the body ends with the connection. A scrape waits for a new collection for a twentieth of its timeout. The timeout here
    // allows for the longest possible wait.
    let timeout = "X-Prometheus-Scrape-Timeout-Seconds: 600";
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n{timeout}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_owned(), body)
}
