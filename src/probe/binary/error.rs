//! Why a file, or a function of it, cannot be probed.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{FileError, printable};

/// Why a file, or something in it, cannot be probed. Paths are those that a person can look at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BinaryError {
    /// The kernel refused to read the file.
    #[error("{0}")]
    Unreadable(#[from] FileError),
    /// It does not begin as ELF files do.
    #[error("{} is not an ELF file ({found}): a probe needs the program or library itself", shown(.path))]
    NotElf {
        /// The file.
        path: PathBuf,
        /// What it looks like.
        found: &'static str,
    },
    /// It is ELF, and nothing that a process executes.
    #[error("{} is {what}, which no process executes: name the program or shared library", shown(.path))]
    NotProgram {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It breaks the format, or ends too early.
    #[error("{} is damaged: {what} (was it being written? readelf -a shows what is left)", shown(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It has more of something than is read.
    #[error("{} has more {what} than the {limit} that are read", shown(.path))]
    TooMany {
        /// The file.
        path: PathBuf,
        /// Of what.
        what: String,
        /// How many are read at most.
        limit: u64,
    },
    /// No function has the name.
    #[error("{} has no function {}{}{}", shown(.path), printable(.name), hint(.near), remedy(.stripped.as_deref()))]
    NoFunction {
        /// The file.
        path: PathBuf,
        /// As it was asked for.
        name: String,
        /// Functions of the file with names much like it.
        near: Vec<String>,
        /// What is missing, if the file has only the names of what it exports.
        stripped: Option<Box<Stripped>>,
    },
    /// The function is called from here, and is somewhere else.
    #[error(
        "{} only calls {}, which is in a shared library: probe it there (ldd PROGRAM lists them)",
        shown(.path), printable(.name)
    )]
    Imported {
        /// The file.
        path: PathBuf,
        /// The function.
        name: String,
    },
    /// Several functions have the name, as static functions may.
    #[error(
        "{} has {count} functions {}: name the one you mean by its offset in the file, {}",
        shown(.path), printable(.name), list(.offsets, *.count)
    )]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// How many there are.
        count: usize,
        /// Where the first of them are, as offsets in the file.
        offsets: Vec<u64>,
    },
    /// The name stands for a function that chooses another when the program starts (`STT_GNU_IFUNC`).
    #[error(
        "{} chooses one of several functions for {} when a program starts (ifunc), so that a probe there would count \
         the choice and no call: probe the one that this CPU gets{}{}",
        shown(.path), printable(.name), hint(.near), remedy(.stripped.as_deref())
    )]
    Ifunc {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// Functions that look like what is chosen from.
        near: Vec<String>,
        /// What is missing, if the file has only the names of what it exports.
        stripped: Option<Box<Stripped>>,
    },
    /// The name is no function's.
    #[error(
        "{} has {} as {what}, not as a function{}",
        shown(.path), printable(.name),
        .offset.map(|offset| format!(": if it is code, name its offset, {offset:#x}")).unwrap_or_default()
    )]
    NotFunction {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// What it is instead.
        what: &'static str,
        /// Where it is in the file, if that is where code is.
        offset: Option<u64>,
    },
    /// Nothing is executed there.
    #[error(
        "{what} is not in code of {}: what it executes is {}",
        shown(.path), ranges(.code)
    )]
    NotCode {
        /// The file.
        path: PathBuf,
        /// What was asked for.
        what: String,
        /// Where code is: offsets in the file, from and to (exclusive).
        code: Vec<(u64, u64)>,
    },
    /// It has no markers.
    #[error(
        "{} has no USDT markers: it was built without them (many programs have a switch such as --enable-dtrace), or \
         its section .note.stapsdt was taken out",
        shown(.path)
    )]
    NoMarkers {
        /// The file.
        path: PathBuf,
    },
}

/// A file without `.symtab`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stripped {
    /// Its build id, in hexadecimal.
    pub build_id: Option<String>,
    /// The name of the file that its debug symbols were moved to (`.gnu_debuglink`).
    pub debug_file: Option<String>,
}

/// How many offsets or ranges a message lists.
pub(super) const LISTED: usize = 8;

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}

fn hint(near: &[String]) -> String {
    let names: Vec<_> = near.iter().map(|name| printable(name)).collect();
    if names.is_empty() { String::new() } else { format!("; it has {}", names.join(", ")) }
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
    if shown.is_empty() { "nothing".to_owned() } else { format!("at {}", shown.join(" and ")) }
}

fn remedy(stripped: Option<&Stripped>) -> String {
    let Some(stripped) = stripped else { return String::new() };
    format!(
        "; it is stripped, so that only what it exports has a name: its debug file{stripped} has all, look the \
         function up there (readelf -sW) and name its offset"
    )
}

/// Where distributions install the debug file, or its name.
impl fmt::Display for Stripped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.build_id.as_ref().and_then(|id| id.split_at_checked(2)), &self.debug_file) {
            (Some((start, rest)), _) => write!(f, " (/usr/lib/debug/.build-id/{start}/{rest}.debug)"),
            (None, Some(file)) => write!(f, " ({})", printable(file)),
            (None, None) => Ok(()),
        }
    }
}
