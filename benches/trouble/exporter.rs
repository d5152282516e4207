//! The measured program, in its own cgroup.

use std::fs::write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::janitor::Janitor;
use crate::load::inside;
use crate::support::lines::Lines;

/// Timeout of its exit.
const PATIENCE: Duration = Duration::from_secs(15);

pub(crate) struct Exporter {
    child: Child,
    pub(crate) address: String,
    lines: Lines,
    logged: Vec<String>,
}

impl Exporter {
    /// Starts the program, and waits until it serves.
    pub(crate) fn start(program: &Path, configuration: &str, janitor: &Janitor) -> Self {
        let mut arguments = vec![program.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let file = janitor.scratch().join("configuration.yaml");
        if !configuration.is_empty() {
            write(&file, configuration).unwrap();
            arguments.extend(["--config", file.to_str().unwrap()]);
        }
        let mut command: Command = inside(&janitor.cgroup("exporter"), &arguments);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stderr.take().unwrap());
        let mut logged = Vec::new();
        let address = loop {
            let line = lines.next().unwrap_or_else(|| panic!("the exporter exited: {}", logged.join("\n")));
            let address =
                line.split_once("serving on http://").map(|(_, url)| url.trim_end_matches('/').to_owned());
            logged.push(line);
            if let Some(address) = address {
                break address;
            }
        };
        Self { child, address, lines, logged }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends SIGTERM and returns the time until the exit; `None` after the timeout.
    pub(crate) fn terminate(&mut self) -> Option<Duration> {
        let start = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM).ok();
        while start.elapsed() < PATIENCE {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return Some(start.elapsed());
            }
            sleep(Duration::from_millis(10));
        }
        None
    }

    /// Returns its warnings and errors from the log.
    pub(crate) fn log(&mut self) -> Vec<String> {
        self.logged.extend(self.lines.ready());
        let loud = |line: &&String| line.contains("WARN") || line.contains("ERROR");
        self.logged.iter().filter(loud).cloned().collect()
    }
}
