//! A program in C to put probes into: `tests/data/programs/probed.c`, compiled where a test can say what is probed. Each
//! copy is a file of its own, so that nobody else's calls are counted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::lines::Lines;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/probed.c");

/// A program whose time goes where it is told to.
const HOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/hot.c");

/// One whose threads run, wait and call the kernel.
const THREADS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/threads.c");

/// One of 32 bits, for x86.
const NARROW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/narrow.c");

/// One that spends its time in what was inlined, in C and in Rust.
const INLINING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/inlining.c");
const INLINING_RUST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/inlining.rs");

/// One that the scheduler has known things to do for, and that makes known system calls.
const SCHEDULED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/scheduled.c");

/// One that spins, and touches files by mappings.
const MAPPING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/mapping.c");

/// The program as a file, which is there as long as the value.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Program {
    /// Compiles it.
    pub(crate) fn compile() -> Self {
        Self::compile_with(&[])
    }

    /// Compiles it so that it needs no other files.
    pub(crate) fn compile_static() -> Self {
        Self::compile_with(&["-static"])
    }

    /// Compiles the one whose functions take known shares of its time, optimised as programs are, under a name of its own.
    #[allow(dead_code, reason = "not every target samples stacks")]
    pub(crate) fn compile_hot(name: &str, options: &[&str]) -> Self {
        Self::compile_source(HOT, name, &[&["-O2"], options].concat())
    }

    /// Compiles the one whose threads run, wait and call the kernel, under a name of its own.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn compile_threads(name: &str) -> Self {
        Self::compile_source(THREADS, name, &["-O2", "-pthread"])
    }

    /// Compiles one of 32 bits that calls the kernel 100 times for each order; `None` where no such program can be made.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn compile_narrow() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("narrow");
        let mut compiler = Command::new("gcc");
        compiler.args(["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-o"]);
        let made = compiler.arg(&path).arg(NARROW).output().is_ok_and(|output| output.status.success());
        // The kernel may know nothing of such programs.
        let runs = || Command::new(&path).stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok();
        (made && runs()).then(|| Self { path, _dir: dir })
    }

    /// Compiles the one that is scheduled and calls the kernel in known ways.
    #[allow(dead_code, reason = "not every target looks at the scheduler")]
    pub(crate) fn compile_scheduled() -> Self {
        Self::compile_source(SCHEDULED, "scheduled", &["-O1"])
    }

    /// Compiles the one that spends its time in functions that are inlined into `outermost`, with debug information.
    #[allow(dead_code, reason = "not every target samples stacks")]
    pub(crate) fn compile_inlining(name: &str) -> Self {
        Self::compile_source(INLINING, name, &["-O2", "-g"])
    }

    /// The same in Rust.
    #[allow(dead_code, reason = "not every target samples stacks")]
    pub(crate) fn compile_inlining_rust(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        compiler.args(["-g", "-O", "--edition", "2024", "--crate-name", "inlining", "-o"]);
        said(compiler.arg(&path).arg(INLINING_RUST));
        Self { path, _dir: dir }
    }

    /// Compiles the one that spins, and touches files by mappings. It is one file of some hundred pages, of which few are
    /// resident while it runs.
    #[allow(dead_code, reason = "not every target mounts file systems")]
    pub(crate) fn compile_mapping(name: &str) -> Self {
        Self::compile_source(MAPPING, name, &["-O2", "-static", "-pthread"])
    }

    fn compile_with(options: &[&str]) -> Self {
        Self::compile_source(SOURCE, "probed", &[&["-O1"], options].concat())
    }

    fn compile_source(source: &str, name: &str, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut compiler = Command::new("gcc");
        compiler.args(["-Wall", "-Werror"]).args(options).arg("-o").arg(&path).arg(source);
        let output = compiler.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self { path, _dir: dir }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A place in it, as a configuration names one.
    pub(crate) fn at(&self, function: &str) -> String {
        format!("{}:{function}", self.path.display())
    }

    /// Where in the file a function begins: the program's segments are as far from their places in the file as the
    /// linker wants, and `nm` and `readelf` tell where.
    pub(crate) fn offset_of(&self, function: &str) -> u64 {
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let symbols = said(Command::new("nm").arg(&self.path));
        let symbol = symbols.lines().find(|line| line.split(' ').nth(2) == Some(function)).unwrap();
        let address = hex(symbol.split(' ').next().unwrap());
        let segments = said(Command::new("readelf").args(["-lW"]).arg(&self.path));
        let loads = segments.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        let loads = loads.filter(|fields| fields.first() == Some(&"LOAD"));
        loads
            .map(|fields| (hex(fields[1]), hex(fields[2]), hex(fields[4])))
            .find(|&(_, start, size)| (start..start + size).contains(&address))
            .map(|(offset, start, _)| address - start + offset)
            .expect("a segment holds the function")
    }

    /// Runs it.
    pub(crate) fn start(&self) -> Running {
        Running::by(&mut Command::new(&self.path))
    }

    /// Makes a copy, which is another file.
    pub(crate) fn copy_to(&self, path: &Path) {
        copy_program(&self.path, path);
    }
}

/// Makes a copy that can be executed at once. A process of its own writes it: a file that this one had open for writing would
/// still be open in whatever another test forks at that moment, and Linux executes no such file (`ETXTBSY`).
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status().unwrap();
    assert!(copied.success(), "{} is not copied to {}", from.display(), to.display());
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The program at work. It is killed with the value.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    orders: Option<ChildStdin>,
    replies: Lines,
}

impl Running {
    /// By a command that becomes the program.
    pub(crate) fn by(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take();
        let replies = Lines::of(child.stdout.take().unwrap());
        let running = Self { child, orders, replies };
        assert_eq!(running.replies.next().as_deref(), Some("ready"), "{command:?}");
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it do something, waits until that is done, and gives what it reports.
    pub(crate) fn does(&mut self, order: &str) -> u64 {
        self.told(order);
        self.answers()
    }

    /// Has it do something.
    pub(crate) fn told(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Waits until that is done, and gives what it reports.
    pub(crate) fn answers(&mut self) -> u64 {
        let said = self.replies.next();
        let figure = said.as_deref().and_then(|said| said.strip_prefix("done "));
        let figure = figure.unwrap_or_else(|| panic!("the program was told something and said {said:?}"));
        figure.parse().unwrap()
    }

    /// The same with bytes of any kind.
    pub(crate) fn does_with(&mut self, order: &str, bytes: &[u8]) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.does(&format!("{order} {digits}"));
    }

    /// Has it execute a file in which the same program is.
    pub(crate) fn executes(&mut self, path: &Path) {
        writeln!(self.orders.as_mut().unwrap(), "executes {}", path.display()).unwrap();
        assert_eq!(self.replies.next().as_deref(), Some("ready"));
    }

    /// Lets it end, and waits for that.
    pub(crate) fn ends(mut self) {
        self.orders = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the program ended with {status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already, by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
