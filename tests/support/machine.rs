//! A simulated machine in a directory, with one untrusted process: pid 7 on the machine and pid 1 in its container.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use perf_exporter::clock::{Clock, Timestamp};
use perf_exporter::files::{Files, Root};
use perf_exporter::host::Roots;
use perf_exporter::stack::{Code, Frame, Module, ModuleId, Process, ProcessId};
use perf_exporter::symbol::{Named, Options, Symbolizer};

/// The process.
pub(crate) const PROCESS: ProcessId = ProcessId(0);
/// Its pid on the machine.
pub(crate) const PID: u32 = 7;
/// Maximum length in bytes of a stored name of generated code, and of a name made from a file. Control characters are escaped, which makes
/// a name up to eight times as long.
const NAME: usize = 8 * 4096;

/// The machine. Its directory is removed when it is dropped.
#[derive(Debug)]
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    clock: Clock,
    pub(crate) code: Code,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let code = Code { modules: Vec::new(), processes: vec![Process { pid: PID, own_pid: 1 }] };
        let machine = Self { dir, clock: Clock::manual(Timestamp(1_000_000)), code };
        let user = fs::metadata(machine.dir.path()).expect("the directory exists").uid();
        machine.write(
            "proc/7/status",
            format!("Name:\tx\nUid:\t{user}\t{user}\t{user}\t{user}\nNSpid:\t7\t1\n"),
        );
        machine
    }

    /// Returns the roots of the machine's file systems.
    pub(crate) fn roots(&self) -> Roots {
        Roots::under(self.dir.path())
    }

    /// Returns the path on this host of a path on the machine.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("the path lies in the machine"))
            .expect("the directory can be created");
        fs::write(path, content).expect("the file can be written");
    }

    pub(crate) fn append(&self, path: &str, content: &[u8]) {
        let file = OpenOptions::new().append(true).open(self.path(path));
        file.expect("the file was written before").write_all(content).expect("the file can be extended");
    }

    /// Adds a file that the process has mapped, by its path in the container.
    pub(crate) fn module(&mut self, path: &str) -> ModuleId {
        let opened = Files::here(&self.roots()).open(&Root::Process(PID), path, None).map(Arc::new);
        let file = opened.map_err(|error| error.to_string().into());
        self.code.modules.push(Module { path: path.into(), build_id: None, process: PROCESS, file });
        ModuleId(u32::try_from(self.code.modules.len() - 1).expect("the number of modules is small"))
    }

    /// Returns a symbolizer for the machine with this much memory in bytes.
    pub(crate) fn symbolizer(&self, memory: usize) -> Symbolizer {
        let options = Options { memory, ..Options::default() };
        Symbolizer::new(&self.roots(), self.clock.clone(), options)
    }

    /// Expires all results that are cached for a time.
    pub(crate) fn later(&self) {
        self.clock.advance(Duration::from_secs(60));
    }
}

/// Symbolizes frames twice. Returns the number of symbolized frames.
///
/// # Panics
/// If an answer is missing, changes, has no text, or is longer than a name may be. Also if more memory is held than allowed or requested.
pub(crate) fn asked(
    symbolizer: &mut Symbolizer,
    machine: &Machine,
    frames: &[Frame],
    memory: usize,
) -> usize {
    let answers = symbolizer.resolve(frames, &machine.code);
    assert_eq!(answers.len(), frames.len());
    let text = |named: &Named| {
        let names = named.lines.iter().flat_map(|line| [&line.name, &line.linkage]).chain(&named.unknown);
        assert!(named.lines.is_empty() == named.unknown.is_some(), "{named:?}");
        names.map(|name| name.len()).inspect(|length| assert!((1..=NAME).contains(length))).sum::<usize>()
    };
    let told: usize = answers.iter().map(|named| text(named)).sum();
    let held = symbolizer.bytes();
    assert!(
        held <= memory + 2 * told + 64 * 1024,
        "{held} bytes are held, the limit is {memory}, {told} are needed by the answers"
    );
    assert_eq!(symbolizer.resolve(frames, &machine.code), answers);
    answers.iter().filter(|named| !named.lines.is_empty()).count()
}
