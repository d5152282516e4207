//! The objects that frames refer to: files whose code is executed, and the processes that execute them.

use std::fmt;
use std::sync::Arc;

use crate::files::Opened;

/// The number of a [`Module`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// The number of a [`Process`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// The identifier that the linker wrote into a file (`.note.gnu.build-id`): at most 20 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(pub Box<[u8]>);

impl fmt::Display for BuildId {
    /// Writes it in hexadecimal, as `file` and debuggers do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A file whose code is executed. Processes of one image share it.
#[derive(Debug, Clone)]
pub struct Module {
    /// Its path in the root of the process that mapped it first; `[vdso]` for the code that the kernel maps into every process.
    pub path: Arc<str>,
    /// Its build id, if known.
    pub build_id: Option<BuildId>,
    /// The process that mapped it first, in whose root related files are looked up.
    pub process: ProcessId,
    /// The file, or the reason why it is not open. It is held open from its first use, so that it can be read after its processes have
    /// exited or its path was replaced.
    pub file: Result<Arc<Opened>, Arc<str>>,
}

/// A process, from its first sample until it exits or executes another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its process ID on the host.
    pub pid: u32,
    /// Its process ID in its innermost PID namespace, as the process itself sees it (`NSpid`).
    pub own_pid: u32,
}

/// All files and processes that frames refer to.
#[derive(Debug, Clone, Default)]
pub struct Code {
    /// By [`ModuleId`].
    pub modules: Vec<Module>,
    /// By [`ProcessId`].
    pub processes: Vec<Process>,
}
