//! Loads a configuration from a path.
//!
//! A configuration must be a regular file. A separate thread reads it, because a file system can block forever. Callers wait with a
//! deadline.

use std::fs::{File, FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::memory::TooLittle;
use super::{Config, Problem, Problems, Web, load, load_all, load_web};
use crate::error::{FileError, FileErrorKind};
use crate::net::server_tls::{ServerTls, ServerTlsSettings};

/// Maximum size of a configuration file, in bytes.
const FILE_LIMIT: u64 = 1 << 20;
/// Maximum time to read and check a configuration.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// Maximum number of threads that read a configuration at the same time, including those past their deadline.
const THREADS: usize = 2;

/// Reason why there is no configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("the configuration cannot be read: {0}")]
    Unreadable(FileError),
    /// The path does not refer to a regular file.
    #[error("the configuration cannot be read: {path} is {what}; give the path of a regular file")]
    NotRegular {
        /// Path.
        path: PathBuf,
        /// Kind of the file: `a directory`.
        what: &'static str,
    },
    /// The file was not read within the [`DEADLINE`].
    #[error(
        "the configuration was not read within {seconds} s: {path}; check whether its file system responds",
        seconds = DEADLINE.as_secs()
    )]
    TimedOut {
        /// Path.
        path: PathBuf,
    },
    /// Earlier attempts are still waiting for the file.
    #[error(
        "the configuration cannot be read: {THREADS} earlier attempts are still waiting for {path}; check whether its file system responds"
    )]
    Stuck {
        /// Path.
        path: PathBuf,
    },
    /// The thread could not be started, or it panicked.
    #[error("the configuration cannot be read: {0}")]
    NoThread(String),
    /// The file is readable but invalid.
    #[error("the configuration cannot be used:\n{0}")]
    Wrong(Problems),
    /// The settings of the HTTP server contradict each other, or one of their files cannot be used.
    #[error("the HTTP server cannot be set up: {0}")]
    Web(String),
    /// The memory limit is too small for this machine.
    #[error(transparent)]
    Memory(#[from] TooLittle),
}

impl LoadError {
    /// Returns the errors, one per line.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Unreadable(error) => vec![error.to_string()],
            Self::Wrong(problems) => problems.0.iter().map(ToString::to_string).collect(),
            other => vec![other.to_string()],
        }
    }
}

/// Configuration with its warnings, or an error.
pub type Loaded = Result<(Config, Vec<Problem>), LoadError>;

/// Loads the configuration of `path`, or the built-in one, within the [`DEADLINE`].
///
/// # Errors
/// The file cannot be read in time, or it has problems; the error contains all of them.
pub fn load_file(path: Option<&Path>) -> Loaded {
    let Some(path) = path else { return Ok((Config::default(), Vec::new())) };
    Loader::default().begin(path.to_owned())?.wait(DEADLINE)
}

/// Returns the settings of a file without the parts that have problems, to check the rest; `None` if there are none.
pub fn load_valid(path: &Path) -> Option<Config> {
    let text = read_regular(path).ok()?;
    load_all(&text, &path.display().to_string()).0
}

/// Settings of the HTTP server, with their files.
#[derive(Debug)]
pub struct OpenedWeb {
    /// The settings.
    pub web: Web,
    /// TLS configuration; `None` = unencrypted connections.
    pub tls: Option<ServerTls>,
    /// Warnings about the web configuration file.
    pub warnings: Vec<Problem>,
}

/// Reads the web configuration file `path`, if there is one, over the section `base`. Blocks on file systems. Also returns warnings about
/// the file.
///
/// # Errors
/// The file cannot be read, or it has problems; the error contains all of them.
pub fn read_web(path: Option<&Path>, base: &Web) -> Result<(Web, Vec<Problem>), LoadError> {
    let read = match path {
        Some(path) => {
            let text = read_regular(path)?;
            load_web(&text, &path.display().to_string(), base).map_err(LoadError::Wrong)?
        }
        None => (base.clone(), Vec::new()),
    };
    read.0.require_clients().map_err(LoadError::Web)?;
    Ok(read)
}

/// Reads the web configuration file, and then the certificates. Calls `opens` for each file of certificates before it is read. Blocks on
/// file systems.
///
/// # Errors
/// As [`read_web`], or a certificate or key is unreadable or invalid.
pub fn open_web(path: Option<&Path>, base: &Web, opens: impl FnMut(&Path)) -> Result<OpenedWeb, LoadError> {
    let (web, warnings) = read_web(path, base)?;
    web.tls.iter().flat_map(ServerTlsSettings::files).for_each(opens);
    let tls = web.tls.as_ref().map(ServerTlsSettings::open).transpose().map_err(LoadError::Web)?;
    Ok(OpenedWeb { web, tls, warnings })
}

/// Starts threads that read configurations, and limits their number.
#[derive(Debug, Default)]
pub struct Loader {
    /// Also held by each thread, to count the running ones.
    running: Arc<()>,
}

impl Loader {
    /// Starts a thread that reads and checks a file.
    ///
    /// # Errors
    /// [`LoadError::Stuck`] if two threads are already waiting for files, [`LoadError::NoThread`] if no thread can be started.
    pub fn begin(&self, path: PathBuf) -> Result<Pending, LoadError> {
        self.begin_with(path, read_file)
    }

    fn begin_with(
        &self,
        path: PathBuf,
        read: impl FnOnce(&Path) -> Loaded + Send + 'static,
    ) -> Result<Pending, LoadError> {
        let running = Arc::clone(&self.running);
        if Arc::strong_count(&self.running) > 1 + THREADS {
            return Err(LoadError::Stuck { path });
        }
        let (send, loaded) = sync_channel(1);
        let of = path.clone();
        let started = thread::Builder::new().name("configuration".into()).spawn(move || {
            let read = read(&of);
            drop(running);
            // After the deadline there is no receiver.
            drop(send.send(read));
        });
        match started {
            Ok(thread) => Ok(Pending { path, loaded, thread }),
            Err(error) => Err(LoadError::NoThread(format!("starting a thread failed: {error}"))),
        }
    }
}

/// Configuration that is being read.
#[derive(Debug)]
pub struct Pending {
    path: PathBuf,
    loaded: Receiver<Loaded>,
    thread: JoinHandle<()>,
}

impl Pending {
    /// Waits for the configuration for at most `patience`.
    ///
    /// # Errors
    /// See [`load_file`].
    pub fn wait(self, patience: Duration) -> Loaded {
        match self.loaded.recv_timeout(patience) {
            Ok(loaded) => {
                // It ends now. The caller may give up privileges, which only holds for threads that are started later.
                drop(self.thread.join());
                loaded
            }
            Err(RecvTimeoutError::Timeout) => self.give_up(),
            Err(RecvTimeoutError::Disconnected) => Err(panicked()),
        }
    }

    /// Returns the configuration if it has been read.
    pub fn poll(&self) -> Option<Loaded> {
        match self.loaded.try_recv() {
            Ok(loaded) => Some(loaded),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err(panicked())),
        }
    }

    /// Stops waiting. The thread continues until the file system responds.
    ///
    /// # Errors
    /// Always returns [`LoadError::TimedOut`].
    pub fn give_up(self) -> Loaded {
        Err(LoadError::TimedOut { path: self.path })
    }
}

fn panicked() -> LoadError {
    LoadError::NoThread("the reader panicked, which is a bug; the location is in the log".into())
}

fn read_file(path: &Path) -> Loaded {
    let text = read_regular(path)?;
    load(&text, &path.display().to_string()).map_err(LoadError::Wrong)
}

/// Reads a regular file. Other kinds of files are not opened, because that can block forever or have side effects.
fn read_regular(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |error: io::Error| LoadError::Unreadable(FileError::io(path, &error));
    let check = |found: &Metadata| match not_regular(found.file_type()) {
        Some(what) => Err(LoadError::NotRegular { path: path.to_owned(), what }),
        None => Ok(()),
    };
    check(&path.metadata().map_err(unreadable)?)?;
    // The path may refer to another file by now.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
    check(&file.metadata().map_err(unreadable)?)?;
    let mut text = Vec::new();
    file.take(FILE_LIMIT + 1).read_to_end(&mut text).map_err(unreadable)?;
    if text.len() as u64 > FILE_LIMIT {
        let kind = FileErrorKind::TooLarge { limit: FILE_LIMIT };
        return Err(LoadError::Unreadable(FileError { path: path.to_owned(), kind }));
    }
    Ok(text)
}

/// Returns the kind of a file that is not regular.
fn not_regular(kind: FileType) -> Option<&'static str> {
    let kinds = [
        (kind.is_file(), None),
        (kind.is_dir(), Some("a directory")),
        (kind.is_fifo(), Some("a named pipe (FIFO)")),
        (kind.is_socket(), Some("a socket")),
        (kind.is_char_device() || kind.is_block_device(), Some("a device")),
    ];
    kinds.into_iter().find_map(|(is, what)| is.then_some(what)).unwrap_or(Some("not a regular file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = load_file(Some(Path::new("/nonexistent/x.yaml"))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the configuration cannot be read: /nonexistent/x.yaml: ENOENT: No such file or directory"
        );
    }

    #[test]
    fn without_a_file_the_built_in_configuration_holds() {
        assert_eq!(load_file(None).unwrap(), (Config::default(), Vec::new()));
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_else_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (fifo, socket) = (dir.path().join("fifo"), dir.path().join("socket"));
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for (path, expected) in [
            (dir.path(), "a directory"),
            (&fifo, "a named pipe (FIFO)"),
            (&socket, "a socket"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = load_file(Some(path)).unwrap_err();
            assert_eq!(error, LoadError::NotRegular { path: path.to_owned(), what: expected });
            let text = error.to_string();
            assert!(text.ends_with(&format!(" is {expected}; give the path of a regular file")), "{text}");
        }
        let link = dir.path().join("link");
        std::fs::write(dir.path().join("file"), "listen: 127.0.0.1:1\n").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        assert!(load_file(Some(&link)).is_ok(), "as Kubernetes mounts them");
    }

    #[test]
    fn a_file_that_is_too_large_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(FILE_LIMIT + 1).unwrap();
        assert!(matches!(load_file(Some(file.path())), Err(LoadError::Unreadable(_))));
    }

    #[test]
    fn a_file_system_that_hangs_keeps_two_threads_at_most() {
        let loader = Loader::default();
        let path = || PathBuf::from("/hung");
        let begin = || {
            let (release, hung) = sync_channel::<()>(0);
            let begun = loader.begin_with(path(), move |_| {
                hung.recv().unwrap_err();
                load_file(None)
            });
            begun.map(|pending| (pending, release))
        };
        let mut releases = Vec::new();
        for _ in 0..THREADS {
            let (pending, release) = begin().unwrap();
            assert!(pending.poll().is_none());
            assert_eq!(pending.wait(Duration::ZERO), Err(LoadError::TimedOut { path: path() }));
            releases.push(release);
        }
        assert_eq!(begin().err(), Some(LoadError::Stuck { path: path() }));
        releases.pop();
        // The thread exits as soon as it is scheduled.
        let mut tries = 0;
        let (pending, release) = loop {
            match begin() {
                Ok(begun) => break begun,
                Err(_) => thread::sleep(Duration::from_millis(1)),
            }
            tries += 1;
            assert!(tries < 30_000);
        };
        drop(release);
        assert_eq!(pending.wait(Duration::from_secs(60)), load_file(None));
    }
}
