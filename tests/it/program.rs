//! The executable as a user runs it: commands that exit, and the service with its page.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use perf_exporter::metrics::Level;
use rustix::process::{Pid, Signal, kill_process};

/// Long enough for a loaded machine. An event that has not happened by then counts as missing.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a directory of the repository.
pub(crate) fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the directory of a fixture host.
pub(crate) fn host(name: &str) -> PathBuf {
    repository("tests/data/hosts").join(name)
}

/// Returns a command that runs the executable with only `PATH` in its environment. Relative paths start at the repository.
pub(crate) fn command<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perf-exporter"));
    command.args(arguments).current_dir(repository(".")).env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Exit status and output of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command until it exits.
///
/// # Panics
/// If a signal ended it, or it panicked, or its output is not UTF-8.
pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Outcome {
    ended(command(arguments))
}

/// Runs a prepared command like [`run`].
pub(crate) fn ended(mut command: Command) -> Outcome {
    let output = command.output().unwrap();
    let outcome = Outcome {
        code: output.status.code().unwrap_or_else(|| panic!("{:?}", output.status)),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    outcome
}

/// The running service. It is killed if the test ends first.
pub(crate) struct Service {
    child: Child,
    log: Receiver<String>,
    seen: Vec<String>,
    pub(crate) address: SocketAddr,
}

impl Service {
    /// Starts the service on a free port with these additional arguments, and waits until it serves.
    pub(crate) fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Self {
        let mut command = command(["run", "--listen", "127.0.0.1:0"]);
        command.args(arguments);
        Self::start_by(command)
    }

    /// Starts the service on a fixture host with an unreachable receiver, and waits until it reports the failure. It publishes the metrics
    /// of a level.
    pub(crate) fn start_pushing(host: &str, level: Level) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("level.yaml");
        std::fs::write(&path, format!("metrics: {{level: {level}}}")).unwrap();
        let path = path.to_str().unwrap();
        let mut command = command(["run", "--listen", "127.0.0.1:0", "--host-root", host, "--config", path]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
        let service = Self::start_by(command);
        service.wait_for("/metrics", |text| {
            text.contains("perf_exporter_push_failing{format=\"otlp\",signal=\"profiles\"}")
        });
        service
    }

    /// Starts the service by a command, and waits until it serves.
    pub(crate) fn start_by(mut command: Command) -> Self {
        command.stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (lines, log) = channel();
        thread::spawn(move || {
            for line in stderr.lines() {
                // The test may have dropped the receiver of the log.
                if lines.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut service = Self { child, log, seen: Vec::new(), address };
        let line = service.wait_for_log("serving on http://");
        let address = line.rsplit_once("http://").unwrap().1.split('/').next().unwrap();
        service.address = address.parse().unwrap();
        service
    }

    /// Waits until a line of the log contains `text`, and returns the line.
    pub(crate) fn wait_for_log(&mut self, text: &str) -> String {
        if let Some(line) = self.seen.iter().find(|line| line.contains(text)) {
            return line.clone();
        }
        loop {
            match self.log.recv_timeout(TIMEOUT) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return line;
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("no line of the log contains {text:?}: {:#?}", self.seen)
                }
            }
        }
    }

    /// Repeats a request until its body satisfies `wanted`, and returns the body.
    pub(crate) fn wait_for(&self, path: &str, wanted: impl Fn(&str) -> bool) -> String {
        let pause = Duration::from_millis(20);
        let mut last = String::new();
        for _ in 0..TIMEOUT.as_millis() / pause.as_millis() {
            last = self.get(path).1;
            if wanted(&last) {
                return last;
            }
            thread::sleep(pause);
        }
        panic!("{path} did not become as expected: {last}");
    }

    /// Returns status code and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "")
    }

    /// Returns the body of a GET of this media type.
    pub(crate) fn get_as(&self, path: &str, accept: &str) -> String {
        self.ask("GET", path, &format!("accept: {accept}\r\n")).1
    }

    /// Returns status code and body of a POST.
    pub(crate) fn post(&self, path: &str) -> (u16, String) {
        self.ask("POST", path, "")
    }

    fn ask(&self, method: &str, path: &str, header: &str) -> (u16, String) {
        let mut stream = self.connect();
        // A scrape waits for a new collection for a twentieth of its timeout. The timeout here allows for the longest possible wait.
        let header = format!("x-prometheus-scrape-timeout-seconds: 600\r\n{header}");
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{header}connection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        (code, if chunked { unchunked(body) } else { body.to_owned() })
    }

    /// Opens a connection and sends nothing.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the exit of the service, and returns its status and the whole log.
    pub(crate) fn end(mut self) -> (ExitStatus, Vec<String>) {
        // The log ends with the process.
        loop {
            match self.log.recv_timeout(TIMEOUT) {
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("the service did not exit: {:#?}", self.seen),
            }
        }
        (self.child.wait().unwrap(), std::mem::take(&mut self.seen))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // In a test that passed, it has already exited.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Decodes a chunked text body.
fn unchunked(mut body: &str) -> String {
    let mut content = String::new();
    loop {
        let (size, rest) = body.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return content;
        }
        content.push_str(&rest[..size]);
        body = &rest[size + 2..];
    }
}
