//! What stacks are about: files whose code is executed, and the processes that execute them.

use std::fmt;
use std::sync::Arc;

use crate::files::Opened;

/// The number of a [`Module`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);

/// The number of a [`Process`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(pub u32);

/// What the linker called a file (`.note.gnu.build-id`): at most 20 bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(pub Box<[u8]>);

impl fmt::Display for BuildId {
    /// As `file` and debuggers write it.
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
    /// Its path in the root of the process that mapped it first; `[vdso]` for what the kernel gives every process.
    pub path: Arc<str>,
    /// What its linker called it, if that is known.
    pub build_id: Option<BuildId>,
    /// Who mapped it first, for whoever looks for files beside it.
    pub process: ProcessId,
    /// The file, held open since it was seen first, so that it can be read when its processes have ended or another one
    /// is at its path; or a sentence why not.
    pub file: Result<Arc<Opened>, Arc<str>>,
}

/// A process, from when it was seen first until it ended or executed another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number on the host.
    pub pid: u32,
    /// Its number in the innermost PID namespace that it is in, by which it calls itself (`NSpid`).
    pub own_pid: u32,
}

/// Every file and process that frames tell of.
#[derive(Debug, Clone, Default)]
pub struct Code {
    /// By [`ModuleId`].
    pub modules: Vec<Module>,
    /// By [`ProcessId`].
    pub processes: Vec<Process>,
}
