//! A child process that stops before its `execve` until its counters are open.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::thread;

/// The order to run the program. Any other byte, and the end of the pipe, is the order to exit.
const START: u8 = 1;
/// The order to exit without running the program.
const END: u8 = 0;

/// A child process that has not yet executed its program.
///
/// The child never reports through `Command` that the program is not to be run. The standard library's child aborts if the parent exits
/// before it reads the report. The child exits by itself instead, whether the parent dropped this value or exited without dropping it.
/// Dropping this value waits for the exit of the child and reaps it.
#[derive(Debug)]
pub struct Waiting {
    pid: u32,
    orders: File,
    /// `None` after its result was taken.
    spawner: Option<Spawner>,
}

type Spawner = thread::JoinHandle<io::Result<Child>>;

impl Waiting {
    /// Forks a child for `command` that stops before its `execve`.
    ///
    /// # Errors
    /// When no pipe, thread or process can be created.
    pub fn fork(mut command: Command) -> io::Result<Self> {
        let (mut ready_read, ready_write) = pipe()?;
        let (orders_read, orders_write) = pipe()?;
        // Kept as numbers for the child: both stay open in this process until the spawner has returned.
        let (ready, orders) = (ready_write.as_raw_fd(), orders_read.as_raw_fd());
        let other_end = orders_write.as_raw_fd();
        let wait = move || {
            // With its own copy of the writing end, the child would never see the end of the pipe after the parent has exited.
            // SAFETY: closing a descriptor number of the child's own table touches no memory.
            unsafe { libc::close(other_end) };
            let pid = std::process::id().to_ne_bytes();
            // SAFETY: `write` is async-signal-safe, the buffer is on the stack, and the pipe was inherited by fork.
            let reported = unsafe { libc::write(ready, pid.as_ptr().cast(), pid.len()) };
            let mut order = END;
            if reported == pid.len() as isize {
                // SAFETY: `read` is async-signal-safe, the byte is on the stack, and the pipe was inherited by fork.
                unsafe { libc::read(orders, (&raw mut order).cast(), 1) };
            }
            if order != START {
                // SAFETY: `_exit` is async-signal-safe, and runs nothing of the parent's in the child.
                unsafe { libc::_exit(0) };
            }
            Ok(())
        };
        // SAFETY: between fork and execve the closure only makes system calls, and touches only its stack.
        unsafe { command.pre_exec(wait) };
        // `spawn` returns only after the child's execve, which waits for this process: so it needs a thread of its own.
        let spawner = thread::Builder::new().name("spawn".into()).spawn(move || {
            let child = command.spawn();
            drop((ready_write, orders_read));
            child
        })?;
        let mut waiting = Self { pid: 0, orders: orders_write, spawner: Some(spawner) };
        let mut pid = [0; 4];
        match ready_read.read_exact(&mut pid) {
            Ok(()) => waiting.pid = u32::from_ne_bytes(pid),
            // The child was not created, or was killed before it reported.
            Err(error) => return Err(waiting.end().err().unwrap_or(error)),
        }
        Ok(waiting)
    }

    /// Returns the child's process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes the child run its program.
    ///
    /// # Errors
    /// When the program cannot be executed: it does not exist, or execution is not permitted.
    pub fn start(mut self) -> io::Result<Child> {
        self.orders.write_all(&[START])?;
        self.spawned()
    }

    /// Ends the child without running its program, and reaps it.
    ///
    /// # Errors
    /// If the process was not created, or if this method was called before.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // A write fails only if the child has already exited.
        drop(self.orders.write_all(&[END]));
        self.spawned()?.wait()
    }

    /// Waits until the child has either executed its program or exited.
    fn spawned(&mut self) -> io::Result<Child> {
        let Some(spawner) = self.spawner.take() else {
            return Err(io::Error::other("the command was started before"));
        };
        spawner
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that starts the command panicked")))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.spawner.is_some() {
            // An error leaves no child behind.
            drop(self.end());
        }
    }
}

/// Creates a pipe that programs do not inherit: (read end, write end).
fn pipe() -> io::Result<(File, File)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let file = |fd: OwnedFd| File::from(fd);
    Ok((file(read), file(write)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_runs_only_after_it_was_started() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let mut command = Command::new("touch");
        command.arg(&mark);
        let waiting = Waiting::fork(command).unwrap();
        assert!(std::path::Path::new(&format!("/proc/{}", waiting.pid())).exists());
        assert!(!mark.exists());
        let mut child = waiting.start().unwrap();
        assert!(child.wait().unwrap().success());
        assert!(mark.exists());
    }

    #[test]
    fn a_program_that_is_not_there_is_an_error_of_start() {
        let waiting = Waiting::fork(Command::new("/nonexistent/program")).unwrap();
        assert_eq!(waiting.start().unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    /// Repeated: the order in which parent and child end differs from run to run.
    #[test]
    fn a_child_that_is_never_started_does_not_run_and_ends_in_peace() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        for _ in 0..50 {
            let mut command = Command::new("touch");
            command.arg(&mark);
            let mut waiting = Waiting::fork(command).unwrap();
            let ended = waiting.end().unwrap();
            assert!(ended.success(), "{ended}");
        }
        assert!(!mark.exists());
    }

    #[test]
    fn a_child_that_is_dropped_is_reaped() {
        let waiting = Waiting::fork(Command::new("true")).unwrap();
        let process = format!("/proc/{}", waiting.pid());
        assert!(std::path::Path::new(&process).exists());
        drop(waiting);
        assert!(!std::path::Path::new(&process).exists(), "{process} is there");
    }

    #[test]
    #[ignore = "the process of the next test"]
    #[expect(clippy::exit, clippy::disallowed_methods, reason = "nothing is to be dropped")]
    fn ends_while_its_child_waits() {
        std::mem::forget(Waiting::fork(Command::new("true")).unwrap());
        std::process::exit(0);
    }

    /// This often: with a child that reports why it did not start, one process in five printed that it aborts.
    #[test]
    fn a_child_whose_parent_ended_a_thousand_times_ends_in_peace() {
        let (_crate, module) = module_path!().split_once("::").unwrap();
        let parent = format!("{module}::ends_while_its_child_waits");
        for time in 0..1000 {
            let mut command = Command::new(std::env::current_exe().unwrap());
            // The output ends when the child has exited, too.
            let output = command.args(["--ignored", "--exact", "--nocapture", &parent]).output().unwrap();
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && printed.is_empty(), "{time}: {}: {printed}", output.status);
        }
    }
}
