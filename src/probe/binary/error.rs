//! Errors of executable files and their functions.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{FileError, printable};

/// The reason why a file, or a symbol in it, cannot be probed. Paths are user-visible paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BinaryError {
    /// The kernel failed to read the file.
    #[error("{0}")]
    Unreadable(#[from] FileError),
    /// The file does not have an ELF header.
    #[error("{} is not an ELF file ({found}): a probe needs the program or library itself", shown(.path))]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What the file looks like.
        found: &'static str,
    },
    /// The file is ELF, but not executable.
    #[error("{} is {what}, which cannot be executed: specify a program or shared library", shown(.path))]
    NotProgram {
        /// The file.
        path: PathBuf,
        /// What the file is.
        what: &'static str,
    },
    /// The file is malformed or truncated.
    #[error("{} is damaged: {what} (it may be incomplete; inspect it with readelf -a)", shown(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
    /// The file exceeds a limit.
    #[error("{} exceeds the limit of {limit} {what}", shown(.path))]
    TooMany {
        /// The file.
        path: PathBuf,
        /// The limited quantity.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// No function has the name.
    #[error("{} has no function {}{}{}", shown(.path), printable(.name), hint(.near), remedy(.stripped.as_deref()))]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// The requested name.
        name: String,
        /// Functions of the file with similar names.
        near: Vec<String>,
        /// Identification of the debug file, if the file has exported symbols only.
        stripped: Option<Box<DebugFile>>,
    },
    /// The function is imported from another file.
    #[error(
        "{} only imports {}, which is in a shared library: probe that library (ldd PROGRAM lists them)",
        shown(.path), printable(.name)
    )]
    Imported {
        /// The file.
        path: PathBuf,
        /// The function.
        name: String,
    },
    /// Several functions have the name, which static functions may.
    #[error(
        "{} has {count} functions named {}: select one by its file offset, {}",
        shown(.path), printable(.name), list(.offsets, *.count)
    )]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Number of functions.
        count: usize,
        /// File offsets of the first functions.
        offsets: Vec<u64>,
    },
    /// The symbol is an ifunc, which selects the implementation at program start (`STT_GNU_IFUNC`).
    #[error(
        "{} selects an implementation of {} at program start (ifunc), so a probe there would not count calls: \
         probe the implementation for this CPU{}{}",
        shown(.path), printable(.name), hint(.near), remedy(.stripped.as_deref())
    )]
    Ifunc {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Functions that may be implementations.
        near: Vec<String>,
        /// Identification of the debug file, if the file has exported symbols only.
        stripped: Option<Box<DebugFile>>,
    },
    /// The symbol is not a function.
    #[error(
        "{} defines {} as {what}, not as a function{}",
        shown(.path), printable(.name),
        .offset.map(|offset| format!(": if it is code, use its file offset {offset:#x}")).unwrap_or_default()
    )]
    NotFunction {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// What the symbol is instead.
        what: &'static str,
        /// Its file offset, if it is in code.
        offset: Option<u64>,
    },
    /// The location is not in code.
    #[error(
        "{what} is not in the code of {}; code: {}",
        shown(.path), ranges(.code)
    )]
    NotCode {
        /// The file.
        path: PathBuf,
        /// The requested location.
        what: String,
        /// Code ranges as file offsets, from and to (exclusive).
        code: Vec<(u64, u64)>,
    },
    /// The file has no USDT probes.
    #[error(
        "{} has no USDT probes: it was built without them (many programs have a build option such as --enable-dtrace), or \
         its section .note.stapsdt was removed",
        shown(.path)
    )]
    NoUsdtProbes {
        /// The file.
        path: PathBuf,
    },
}

/// What identifies the separate debug file of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DebugFile {
    /// Build id of both, in hexadecimal.
    pub build_id: Option<String>,
    /// Name (`.gnu_debuglink`).
    pub name: Option<String>,
}

/// Maximum number of offsets or ranges in a message.
pub(super) const LISTED: usize = 8;

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

fn hint(near: &[String]) -> String {
    let names: Vec<_> = near.iter().map(|name| printable(name)).collect();
    if names.is_empty() { String::new() } else { format!("; similar names: {}", names.join(", ")) }
}

fn list(offsets: &[u64], count: usize) -> String {
    let mut text = offsets.iter().map(|offset| format!("{offset:#x}")).collect::<Vec<_>>().join(" or ");
    if count > offsets.len() {
        text.push_str(" or others");
    }
    text
}

fn ranges(code: &[(u64, u64)]) -> String {
    let shown = code.iter().take(LISTED).map(|(from, to)| format!("{from:#x} up to {to:#x}"));
    let shown: Vec<_> = shown.collect();
    if shown.is_empty() { "none".to_owned() } else { format!("at {}", shown.join(" and ")) }
}

fn remedy(stripped: Option<&DebugFile>) -> String {
    let Some(stripped) = stripped else { return String::new() };
    format!(
        "; it is stripped and has exported symbols only: install its debug file{stripped}, or use the file offset of the function"
    )
}

/// Formats the path where distributions install the debug file, or its name.
impl fmt::Display for DebugFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.build_id.as_ref().and_then(|id| id.split_at_checked(2)), &self.name) {
            (Some((start, rest)), _) => write!(f, " (/usr/lib/debug/.build-id/{start}/{rest}.debug)"),
            (None, Some(file)) => write!(f, " ({})", printable(file)),
            (None, None) => Ok(()),
        }
    }
}
