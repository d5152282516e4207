//! C programs with functions to probe, in `tests/data/programs`. A test compiles them at run time. Each copy is a separate file, so that
//! calls in other copies are not counted.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use super::lines::Lines;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/probed.c");

/// A program that spends its CPU time in known functions.
const HOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/hot.c");

/// A program whose threads run, wait and make system calls.
const THREADS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/threads.c");

/// A 32-bit program for x86.
const NARROW: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/narrow.c");

/// Programs that spend their time in inlined functions, in C and in Rust.
const INLINING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/inlining.c");
const INLINING_RUST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/inlining.rs");

/// A program with known scheduling and known system calls.
const SCHEDULED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/scheduled.c");

/// A program with known waits for futexes.
const FUTEXES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/futexes.c");

/// A program that causes one of several kinds of trouble.
const TROUBLED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/troubled.c");

/// A program that spins and touches mapped files.
const MAPPING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/mapping.c");

/// A program with known variables.
const SHARED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/programs/shared.c");

/// A compiled program as a file. The file is deleted when the value is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Program {
    /// Compiles the program with probed functions.
    pub(crate) fn compile() -> Self {
        Self::compile_with(&[])
    }

    /// Compiles the same program with static linking.
    pub(crate) fn compile_static() -> Self {
        Self::compile_with(&["-static"])
    }

    /// Compiles the program whose functions take known shares of its time, optimized like released programs, under its own name.
    #[allow(dead_code, reason = "not every target samples stacks")]
    pub(crate) fn compile_hot(name: &str, options: &[&str]) -> Self {
        Self::compile_source(HOT, name, &[&["-O2"], options].concat())
    }

    /// Compiles the program whose threads run, wait and make system calls, under its own name.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn compile_threads(name: &str) -> Self {
        Self::compile_source(THREADS, name, &["-O2", "-pthread"])
    }

    /// Compiles a 32-bit program that makes 100 system calls for each order. Returns `None` if no such program can be compiled.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn compile_narrow() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("narrow");
        let mut compiler = Command::new("gcc");
        compiler.args(["-m32", "-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-o"]);
        let made = compiler.arg(&path).arg(NARROW).output().is_ok_and(|output| output.status.success());
        // The kernel may not support 32-bit programs.
        let runs = || Command::new(&path).stdin(Stdio::null()).stdout(Stdio::null()).status().is_ok();
        (made && runs()).then(|| Self { path, _dir: dir })
    }

    /// Compiles the program with known scheduling and known system calls.
    #[allow(dead_code, reason = "not every target tests the scheduler")]
    pub(crate) fn compile_scheduled() -> Self {
        Self::compile_source(SCHEDULED, "scheduled", &["-O1", "-pthread"])
    }

    /// Compiles the program with known waits for futexes. It has frame pointers.
    #[allow(dead_code, reason = "not every target follows threads")]
    pub(crate) fn compile_futexes() -> Self {
        Self::compile_source(FUTEXES, "futexes", &["-O1", "-pthread", "-fno-omit-frame-pointer"])
    }

    /// Compiles the program that spends its time in functions inlined into `outermost`, with debug information.
    #[allow(dead_code, reason = "not every target samples stacks")]
    pub(crate) fn compile_inlining(name: &str) -> Self {
        Self::compile_source(INLINING, name, &["-O2", "-g"])
    }

    /// Compiles the same program in Rust.
    #[allow(dead_code, reason = "not every target samples stacks")]
    pub(crate) fn compile_inlining_rust(name: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut compiler = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        compiler.args(["-g", "-O", "--edition", "2024", "--crate-name", "inlining", "-o"]);
        said(compiler.arg(&path).arg(INLINING_RUST));
        Self { path, _dir: dir }
    }

    /// Compiles the program that causes one kind of trouble, in a function of its own. Its arguments are the kind and a path.
    #[allow(dead_code, reason = "not every target causes trouble")]
    pub(crate) fn compile_troubled(name: &str) -> Self {
        Self::compile_source(TROUBLED, name, &["-O1", "-pthread", "-fno-omit-frame-pointer"])
    }

    /// Compiles the program that spins and touches mapped files. It has some hundred pages, of which few are resident while it runs.
    #[allow(dead_code, reason = "not every target mounts file systems")]
    pub(crate) fn compile_mapping(name: &str) -> Self {
        Self::compile_source(MAPPING, name, &["-O2", "-static", "-pthread"])
    }

    /// Compiles the program with known variables, with debug information.
    #[allow(dead_code, reason = "not every target reads memory accesses")]
    pub(crate) fn compile_shared() -> Self {
        Self::compile_source(SHARED, "shared", &["-O1", "-g"])
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

    /// Returns a probe location in it, in the syntax of a configuration.
    pub(crate) fn at(&self, function: &str) -> String {
        format!("{}:{function}", self.path.display())
    }

    /// Returns the file offset of a function. It is computed from `nm` and `readelf`, because the linker chooses the difference between
    /// addresses and file offsets.
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

    /// Starts the program.
    pub(crate) fn start(&self) -> Running {
        Running::by(&mut Command::new(&self.path))
    }

    /// Copies the program to another file.
    pub(crate) fn copy_to(&self, path: &Path) {
        copy_program(&self.path, path);
    }
}

/// Copies a program so that it can be executed at once. Another process writes the copy. A file open for writing in this process could be
/// inherited by a child that another test forks. Linux does not execute a file that is open for writing (`ETXTBSY`).
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status().unwrap();
    assert!(copied.success(), "{} could not be copied to {}", from.display(), to.display());
}

fn said(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A running program. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    orders: Option<ChildStdin>,
    replies: Lines,
}

impl Running {
    /// Starts a command that executes the program.
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

    /// Sends an order, waits until it is done, and returns the reported number.
    pub(crate) fn does(&mut self, order: &str) -> u64 {
        self.told(order);
        self.answers()
    }

    /// Sends an order.
    pub(crate) fn told(&mut self, order: &str) {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
    }

    /// Waits until an order is done, and returns the reported number.
    pub(crate) fn answers(&mut self) -> u64 {
        let said = self.replies.next();
        let figure = said.as_deref().and_then(|said| said.strip_prefix("done "));
        let figure = figure.unwrap_or_else(|| panic!("the program replied {said:?} to an order"));
        figure.parse().unwrap()
    }

    /// Sends an order with arbitrary bytes, and waits until it is done.
    pub(crate) fn does_with(&mut self, order: &str, bytes: &[u8]) {
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        self.does(&format!("{order} {digits}"));
    }

    /// Orders it to execute a file that contains the same program.
    pub(crate) fn executes(&mut self, path: &Path) {
        writeln!(self.orders.as_mut().unwrap(), "executes {}", path.display()).unwrap();
        assert_eq!(self.replies.next().as_deref(), Some("ready"));
    }

    /// Closes its input and waits for its exit.
    pub(crate) fn ends(mut self) {
        self.orders = None;
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the program exited with {status}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
