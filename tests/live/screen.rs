//! A terminal of tmux: keys typed into it, and the screen that it then shows.

use std::process::{Command, Stdio};

use perf_exporter::host::read_text;
use rustix::process::Pid;

use crate::support::eventually;

pub(super) const PERF_EXPORTER: &str = env!("CARGO_BIN_EXE_perf-exporter");

/// A shell in a terminal of 100 columns and 30 lines, in a tmux server of its own. The server ends with the value.
pub(super) struct Screen {
    dir: tempfile::TempDir,
}

impl Screen {
    pub(super) fn open() -> Self {
        let screen = Self { dir: tempfile::tempdir().unwrap() };
        screen.tmux(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            "100",
            "-y",
            "30",
            "env",
            "PS1=$ ",
            "sh",
        ]);
        screen
    }

    pub(super) fn tmux(&self, arguments: &[&str]) -> String {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(self.dir.path().join("socket")).args(arguments).stdin(Stdio::null());
        // Line drawing and marks need UTF-8, whatever the locale of the test is.
        let output = tmux.env("LC_ALL", "C.UTF-8").env_remove("TMUX").output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Types a text.
    pub(super) fn types(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Presses keys by their names in tmux.
    pub(super) fn presses(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Returns the child of the shell.
    pub(super) fn foreground(&self) -> Pid {
        let shell = self.tmux(&["display-message", "-p", "#{pane_pid}"]);
        let shell = shell.trim();
        let children = read_text(format!("/proc/{shell}/task/{shell}/children").as_ref()).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }

    pub(super) fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen satisfies a condition, and returns its text.
    #[track_caller]
    pub(super) fn shows(&self, what: &str, is_shown: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        let shown = eventually_or_none(|| {
            last = self.text();
            is_shown(&last).then(|| last.clone())
        });
        shown.unwrap_or_else(|| panic!("{what}:\n{last}"))
    }

    /// Returns whether the alternate screen, the cursor and the wrapping of lines are on.
    pub(super) fn modes(&self) -> String {
        self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag} #{wrap_flag}"])
    }

    /// Returns a checksum of the settings of the terminal, which the shell prints after `name`.
    pub(super) fn settings(&self, name: &str) -> String {
        self.types(&format!("clear; stty -a | cksum | sed 's/^/{name}=/'\n"));
        let find = |text: &str| {
            text.lines().find_map(|line| line.strip_prefix(&format!("{name}=")).map(str::to_owned))
        };
        find(&self.shows("settings", |text| find(text).is_some())).unwrap()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Calls `ask` until it returns a value, for 30 seconds.
fn eventually_or_none<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let mut calls = 0;
    eventually("an answer or the last call", || {
        calls += 1;
        let answer = ask();
        (answer.is_some() || calls > 300).then_some(answer)
    })
}
