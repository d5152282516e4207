//! What can be wrong with the kernel's types, or with what is asked of them.

use std::sync::Arc;

use crate::error::{Errno, FileError, printable};

/// Why a function or a variable has no type here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The kernel has no types.
    #[error("{0}: this kernel was built without its types (CONFIG_DEBUG_INFO_BTF); {INSTEAD}")]
    Absent(FileError),
    /// This process may not read them.
    #[error("{0}: the kernel's types may not be read here; {INSTEAD}")]
    Forbidden(FileError),
    /// The kernel has types, but none of this module.
    #[error("no types of a module {}: it is not loaded, or has none; {INSTEAD}", printable(.module))]
    NoModule {
        /// The module.
        module: Arc<str>,
    },
    /// The file could not be read, or is broken.
    #[error("{0}")]
    Unreadable(FileError),
    /// The bytes are not what the format allows.
    #[error("broken BTF at byte {at}: {what}")]
    Broken {
        /// Where, in bytes from the beginning.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// No function of this name has a prototype.
    #[error(
        "the kernel's types have no function {}{}",
        printable(.function), no_function(.function, .near.as_deref())
    )]
    NoFunction {
        /// The name.
        function: Arc<str>,
        /// One that is called much like it.
        near: Option<Arc<str>>,
    },
    /// There are functions of this name that take different parameters.
    #[error("there are several functions {} with different parameters; {INSTEAD}", printable(.function))]
    Ambiguous {
        /// The name.
        function: Arc<str>,
    },
    /// The function has no parameter of this name.
    #[error("no parameter {} in {}{}", printable(.name), printable(.prototype), meant(.near.as_deref()))]
    NoParameter {
        /// The parameter.
        name: Arc<str>,
        /// The function as it is declared.
        prototype: Arc<str>,
        /// A parameter that is called much like it.
        near: Option<Arc<str>>,
    },
    /// The structure has no member of this name.
    #[error("{} has no member {}{}", printable(.of), printable(.name), no_member(.near.as_deref(), .members))]
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
    #[error("{}: {why}", printable(.variable))]
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

/// A name that was probably meant.
fn meant(near: Option<&str>) -> String {
    near.map(|near| format!("; did you mean {}?", printable(near))).unwrap_or_default()
}

fn no_function(function: &str, near: Option<&str>) -> String {
    match near {
        Some(near) => format!("; did you mean {near}?"),
        // Names such as `tcp_rcv.isra.0` are made by the compiler.
        None if function.contains('.') => {
            ": the compiler changed what it takes; name its arguments by register (%di)".to_owned()
        }
        None => format!(" (those of assembler and of modules are not there); {INSTEAD}"),
    }
}

fn no_member(near: Option<&str>, members: &[Arc<str>]) -> String {
    match near {
        None if !members.is_empty() => format!("; it has {}", printable(&members.join(", "))),
        near => meant(near),
    }
}
