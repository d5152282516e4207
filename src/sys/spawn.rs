//! A child that waits at its `execve` until its counters are open.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::thread;

/// A child process that has not yet become the program that it is to run.
#[derive(Debug)]
pub struct Waiting {
    pid: u32,
    go: File,
    spawner: thread::JoinHandle<io::Result<Child>>,
}

impl Waiting {
    /// Forks a child for `command` that stops before its `execve`.
    ///
    /// # Errors
    /// When no pipe, thread or process can be made.
    pub fn fork(mut command: Command) -> io::Result<Self> {
        let (mut ready_read, ready_write) = pipe()?;
        let (go_read, go_write) = pipe()?;
        // Kept as numbers for the child: both stay open in this process until the spawner has returned.
        let (ready, go, other_end) = (ready_write.as_raw_fd(), go_read.as_raw_fd(), go_write.as_raw_fd());
        let wait = move || {
            // The child's own copy of the writing end would keep it from ever seeing that the parent is gone.
            // SAFETY: closing a descriptor number of the child's own table touches no memory.
            unsafe { libc::close(other_end) };
            let pid = std::process::id().to_ne_bytes();
            // SAFETY: `write` is async-signal-safe, the buffer is on the stack, and the pipe was inherited by fork.
            if unsafe { libc::write(ready, pid.as_ptr().cast(), pid.len()) } != pid.len() as isize {
                return Err(io::Error::last_os_error());
            }
            let mut byte = 0u8;
            // SAFETY: `read` is async-signal-safe, the byte is on the stack, and the pipe was inherited by fork.
            match unsafe { libc::read(go, (&raw mut byte).cast(), 1) } {
                1 => Ok(()),
                // Our parent gave up, or died, before the counters were open: there is nothing to run for.
                _ => Err(io::Error::from_raw_os_error(libc::ECANCELED)),
            }
        };
        // SAFETY: between fork and execve the closure makes two system calls and touches nothing but its stack.
        unsafe { command.pre_exec(wait) };
        // `spawn` returns only after the child's execve, which waits for us: so it needs a thread of its own.
        let spawner = thread::Builder::new().name("spawn".into()).spawn(move || {
            let child = command.spawn();
            drop((ready_write, go_read));
            child
        })?;
        let mut pid = [0; 4];
        match ready_read.read_exact(&mut pid) {
            Ok(()) => Ok(Self { pid: u32::from_ne_bytes(pid), go: go_write, spawner }),
            Err(error) => match spawner.join() {
                Ok(Err(why)) => Err(why),
                _ => Err(error),
            },
        }
    }

    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets the child run its program.
    ///
    /// # Errors
    /// When the program cannot be executed: it is not there, or may not be run.
    pub fn start(mut self) -> io::Result<Child> {
        self.go.write_all(&[1])?;
        drop(self.go);
        self.spawner
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that starts the command panicked")))
    }
}

/// A pipe that programs do not inherit: (read end, write end).
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

    #[test]
    fn a_child_that_is_never_started_does_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("ran");
        let mut command = Command::new("touch");
        command.arg(&mark);
        let Waiting { go, spawner, .. } = Waiting::fork(command).unwrap();
        drop(go);
        assert_eq!(spawner.join().unwrap().unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert!(!mark.exists());
    }
}
