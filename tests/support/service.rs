//! The program itself, running as a service, and what it says to those who ask.

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

/// How long one read of an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running service. It is killed with the value.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) child: Child,
    /// Where the file of its configuration is.
    pub(crate) configuration: PathBuf,
    /// Where it serves: address and port.
    pub(crate) address: String,
    log: Lines,
    logged: Vec<String>,
    _dir: tempfile::TempDir,
}

impl Service {
    /// Starts the program with a file that holds `configuration`, and waits until it counts and serves. Nothing is sampled
    /// unless the file says so: what a test measures should not be disturbed by the built-in profile.
    pub(crate) fn start(configuration: &str) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_perf-exporter")), configuration)
    }

    /// The same where each scrape is a collection of its own, and there are no others.
    #[allow(dead_code, reason = "not every target asks that often")]
    pub(crate) fn start_fresh(configuration: &str) -> Self {
        Self::start(&format!("collection: {{interval: 1m, freshness: 0s}}\n{configuration}"))
    }

    /// Starts it by a command that ends where its arguments begin.
    pub(crate) fn start_by(mut command: Command, configuration: &str) -> Self {
        // Readable by all: the service may run as somebody else.
        let open = Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().permissions(open).tempdir().unwrap();
        let file = dir.path().join("perf-exporter.yaml");
        fs::write(&file, unsampled(configuration)).unwrap();
        command.args(["--listen", "127.0.0.1:0", "--config"]).arg(&file);
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Lines::of(child.stderr.take().unwrap());
        let mut service =
            Self { child, configuration: file, address: String::new(), log, logged: Vec::new(), _dir: dir };
        let line = service.wait_for("serving on http://");
        let (_, url) = line.split_once("http://").unwrap();
        service.address = url.trim_end_matches('/').to_owned();
        // A scrape is refused after ten seconds, and a slow machine may take longer to open everything.
        service.wait_for("counting groups=");
        // The answer comes with the first collection, and that after the counters were opened.
        service.metrics();
        service
    }

    /// Waits until it has logged a line with this text, and gives the first of them. Lines of different threads come in
    /// any order, so those that came before count as well.
    fn wait_for(&mut self, text: &str) -> String {
        let mut seen = 0;
        loop {
            if let Some(line) = self.logged[seen..].iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            seen = self.logged.len();
            let Some(line) = self.log.next() else { panic!("the service ended: {}", self.logged.join("\n")) };
            self.logged.push(line);
        }
    }

    /// Gives the file another content, which holds from the next reload on. Nothing is sampled unless it says so.
    #[allow(dead_code, reason = "not every target reloads")]
    pub(crate) fn rewrite(&self, configuration: &str) {
        fs::write(&self.configuration, unsampled(configuration)).unwrap();
    }

    /// What it logged so far.
    pub(crate) fn log(&mut self) -> String {
        self.logged.extend(self.log.ready());
        self.logged.join("\n")
    }

    /// Waits until it has logged all of `texts`: a line reaches us later than what it tells of may be seen.
    ///
    /// # Panics
    /// If it does not, with what it logged instead.
    pub(crate) fn has_logged(&mut self, texts: &[&str]) {
        for _ in 0..1000 {
            let log = self.log();
            if texts.iter().all(|text| log.contains(text)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("{texts:?} are not all in the log:\n{}", self.log());
    }

    /// A scrape.
    pub(crate) fn metrics(&self) -> Exposition {
        Exposition::parse(&get(&self.address, TEXT).1).unwrap()
    }
}

/// A configuration without the built-in profile, presets and scheduler, unless it says something about them.
fn unsampled(configuration: &str) -> String {
    let profiles = if configuration.contains("profiles:") { "" } else { "\nprofiles: {}\n" };
    let presets = if configuration.contains("presets:") { "" } else { "\npresets: []\n" };
    let scheduler = if configuration.contains("scheduler:") { "" } else { "\nscheduler: {per: []}\n" };
    format!("{configuration}{profiles}{presets}{scheduler}")
}

impl Drop for Service {
    fn drop(&mut self) {
        if thread::panicking() {
            let configuration = read_text(&self.configuration).unwrap_or_default();
            eprintln!("the configuration of the service:\n{configuration}\nand its log:\n{}", self.log());
        }
        // It may have been stopped already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The media type of text 0.0.4.
pub(crate) const TEXT: &str = "text/plain;version=0.0.4";

/// Scrapes the service at `address`, taking only the media type `accept`; gives the content type and the body.
///
/// # Panics
/// If the answer is not 200.
pub(crate) fn get(address: &str, accept: &str) -> (String, String) {
    ask(address, "/metrics", accept)
}

/// What the service at `address` has at a path; gives the content type and the body.
///
/// # Panics
/// If the answer is not 200.
#[allow(dead_code, reason = "not every target asks for more than metrics")]
pub(crate) fn get_path(address: &str, path: &str) -> (String, String) {
    ask(address, path, "*/*")
}

/// The same where the body is no text.
///
/// # Panics
/// If the answer is not 200.
#[allow(dead_code, reason = "not every target asks for more than text")]
pub(crate) fn get_bytes(address: &str, path: &str) -> Vec<u8> {
    ask_bytes(address, path, "*/*").1
}

fn ask(address: &str, path: &str, accept: &str) -> (String, String) {
    let (kind, body) = ask_bytes(address, path, accept);
    (kind, String::from_utf8(body).unwrap())
}

/// Asks again where the service says that it could not yet, as scrapers do: on a machine with more to do than CPUs.
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
    panic!("{path} is not there, however often one asks");
}

/// The first line of the answer, its headers and its body.
fn ask_once(address: &str, path: &str, accept: &str) -> (String, String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // HTTP 1.0: the body ends with the connection.
    // A scrape waits for a new collection for a twentieth of its timeout: here as long as that may take.
    let timeout = "X-Prometheus-Scrape-Timeout-Seconds: 600";
    let request = format!("GET {path} HTTP/1.0\r\nHost: test\r\nAccept: {accept}\r\n{timeout}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_owned(), body)
}
