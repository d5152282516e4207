//! What can be wrong with the kernel's types, or with what is asked of them.

use std::fmt;
use std::sync::Arc;

use crate::error::{Errno, FileError, printable};

/// Why a function or a variable has no type here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BtfError {
    /// The kernel has no types.
    Absent(FileError),
    /// This process may not read them.
    Forbidden(FileError),
    /// The kernel has types, but none of this module.
    NoModule {
        /// The module.
        module: Arc<str>,
    },
    /// The file could not be read, or is broken.
    Unreadable(FileError),
    /// The bytes are not what the format allows.
    Broken {
        /// Where, in bytes from the beginning.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// No function of this name has a prototype.
    NoFunction {
        /// The name.
        function: Arc<str>,
        /// One that is called much like it.
        near: Option<Arc<str>>,
    },
    /// There are functions of this name that take different parameters.
    Ambiguous {
        /// The name.
        function: Arc<str>,
    },
    /// The function has no parameter of this name.
    NoParameter {
        /// The parameter.
        name: Arc<str>,
        /// The function as it is declared.
        prototype: Arc<str>,
        /// A parameter that is called much like it.
        near: Option<Arc<str>>,
    },
    /// The structure has no member of this name.
    NoMember {
        /// The member.
        name: Arc<str>,
        /// The structure, as C.
        of: Arc<str>,
        /// A member that is called much like it.
        near: Option<Arc<str>>,
        /// The first members.
        members: Vec<Arc<str>>,
    },
    /// The kernel cannot take this from where it is.
    Unfit {
        /// The variable, as far as it was followed.
        variable: Arc<str>,
        /// Why not, and what helps.
        why: String,
    },
}

impl BtfError {
    pub(super) fn broken(at: usize, what: &'static str) -> Self {
        Self::Broken { at, what }
    }
}

impl From<FileError> for BtfError {
    fn from(error: FileError) -> Self {
        match error.errno() {
            Some(Errno::EACCES | Errno::EPERM) => Self::Forbidden(error),
            _ => Self::Unreadable(error),
        }
    }
}

/// What a variable can always be replaced by.
const INSTEAD: &str = "name the argument by its place ($arg1) or its register (%di)";

impl fmt::Display for BtfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(error) => {
                write!(
                    f,
                    "{error}: this kernel was built without its types (CONFIG_DEBUG_INFO_BTF); {INSTEAD}"
                )
            }
            Self::Forbidden(error) => {
                write!(f, "{error}: the kernel's types may not be read here; {INSTEAD}")
            }
            Self::NoModule { module } => {
                let module = printable(module);
                write!(f, "no types of a module {module}: it is not loaded, or has none; {INSTEAD}")
            }
            Self::Unreadable(error) => write!(f, "{error}"),
            Self::Broken { at, what } => write!(f, "broken BTF at byte {at}: {what}"),
            Self::NoFunction { function, near } => {
                let name = printable(function);
                write!(f, "the kernel's types have no function {name}")?;
                match near {
                    Some(near) => write!(f, "; did you mean {near}?"),
                    // Names such as `tcp_rcv.isra.0` are made by the compiler.
                    None if function.contains('.') => {
                        write!(
                            f,
                            ": the compiler changed what it takes; name its arguments by register (%di)"
                        )
                    }
                    None => write!(f, " (those of assembler and of modules are not there); {INSTEAD}"),
                }
            }
            Self::Ambiguous { function } => {
                let name = printable(function);
                write!(f, "there are several functions {name} with different parameters; {INSTEAD}")
            }
            Self::NoParameter { name, prototype, near } => {
                write!(f, "no parameter {} in {}", printable(name), printable(prototype))?;
                near.as_ref().map_or(Ok(()), |near| write!(f, "; did you mean {}?", printable(near)))
            }
            Self::NoMember { name, of, near, members } => {
                write!(f, "{} has no member {}", printable(of), printable(name))?;
                match near {
                    Some(near) => write!(f, "; did you mean {}?", printable(near)),
                    None if members.is_empty() => Ok(()),
                    None => write!(f, "; it has {}", printable(&members.join(", "))),
                }
            }
            Self::Unfit { variable, why } => write!(f, "{}: {why}", printable(variable)),
        }
    }
}

impl std::error::Error for BtfError {}
