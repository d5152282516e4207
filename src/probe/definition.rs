//! A dynamic probe as it is written in YAML or on the command line.

mod parse;
mod request;

use std::fmt;
use std::sync::Arc;

pub use request::Request;

use super::argument::{Argument, ArgumentError, Element, Fetch};
use crate::event::{Parsed, fault};
use crate::files::Root;
use crate::words::words;

/// A text that is not the place of a probe. `{:#}` shows where with a caret.
pub type LocationError = crate::event::ParseError;

words! {
    /// The kinds of probes, by the words for them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum ProbeKind {
        /// An instruction of the kernel.
        Kprobe = "kprobe",
        /// The return of a function of the kernel.
        Kretprobe = "kretprobe",
        /// An instruction of a program.
        Uprobe = "uprobe",
        /// The return of a function of a program.
        Uretprobe = "uretprobe",
        /// A marker in a program.
        Usdt = "usdt",
    }
}

impl ProbeKind {
    /// Whether it is at the return of a function.
    pub const fn returns(self) -> bool {
        matches!(self, Self::Kretprobe | Self::Uretprobe)
    }
}

/// A probe: where, in whose files, and what is taken from there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Where.
    pub location: Location,
    /// Whose file system a path is in.
    pub root: Root,
    /// What is taken.
    pub arguments: Vec<Argument>,
}

/// Where a probe is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// In the kernel: `tcp_sendmsg`, `tcp_sendmsg+0x10`, `nf_conntrack:nf_conntrack_in`.
    Kernel {
        /// The module, if one is named.
        module: Option<Arc<str>>,
        /// The function.
        function: Arc<str>,
        /// Bytes behind its beginning; 0 for its entry.
        offset: u64,
        /// At its return instead.
        returns: bool,
    },
    /// In a file that programs execute: `/usr/lib/libc.so.6:malloc`, `…:malloc+0x4`, `…:0x1234` (an offset in the file).
    User {
        /// The file, absolute in its [`Root`].
        path: Arc<str>,
        /// Where in it.
        at: At,
        /// At the return of the function instead.
        returns: bool,
    },
    /// A marker that was compiled in (USDT): `/usr/bin/postgres:postgresql:query__start`.
    Usdt {
        /// The file, absolute in its [`Root`].
        path: Arc<str>,
        /// The provider; `None`: whichever has the name.
        provider: Option<Arc<str>>,
        /// The name.
        name: Arc<str>,
    },
}

impl Location {
    /// The kind of probe that this is the place of.
    pub fn kind(&self) -> ProbeKind {
        match self {
            Self::Kernel { returns: false, .. } => ProbeKind::Kprobe,
            Self::Kernel { returns: true, .. } => ProbeKind::Kretprobe,
            Self::User { returns: false, .. } => ProbeKind::Uprobe,
            Self::User { returns: true, .. } => ProbeKind::Uretprobe,
            Self::Usdt { .. } => ProbeKind::Usdt,
        }
    }

    /// Whether an argument can be taken at this place, as far as that shows without the file and the machine: parameters
    /// are known where a function begins, what it returns where it ends.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self, argument: &Argument) -> Result<(), ArgumentError> {
        self.admits(&argument.fetch)
            .and_then(|()| self.admits_type(argument))
            .map_err(|fault| fault.of(&argument.text))
    }

    fn admits(&self, fetch: &Fetch) -> Parsed<()> {
        let returns = self.kind().returns();
        let inside = match self {
            Self::Kernel { offset, .. } | Self::User { at: At::Symbol { offset, .. }, .. } => *offset != 0,
            Self::User { at: At::Offset(_), .. } | Self::Usdt { .. } => false,
        };
        match fetch {
            Fetch::Deref { of, .. } => self.admits(of),
            _ if fetch.is_returned() => match returns {
                true => Ok(()),
                false => fault(0, "$retval is known at the return only", self.at_return()),
            },
            Fetch::Argument(_) | Fetch::Variable(_) if returns => {
                fault(0, format!("{fetch} is known at the entry only"), "take it with a probe at the entry")
            }
            Fetch::Argument(_) | Fetch::Variable(_) if inside => {
                let remedy = "leave the offset out, or name the register that has it there";
                fault(0, format!("{fetch} is known at the entry of the function only"), remedy)
            }
            _ => Ok(()),
        }
    }

    fn at_return(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => "make it a kretprobe",
            Self::User { .. } => "make it a uretprobe",
            Self::Usdt { .. } => "a marker has $arg1, $arg2, …",
        }
    }

    fn admits_type(&self, argument: &Argument) -> Parsed<()> {
        match argument.kind.map(|kind| kind.element) {
            Some(Element::Symbol | Element::SymbolString) if !matches!(self, Self::Kernel { .. }) => {
                fault(0, "the kernel names its own addresses only, not those of a program", "take it as x64")
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Location {
    /// What [`parse`](Self::parse) reads as the same place, given the same [`kind`](Self::kind).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { module, function, offset, .. } => {
                if let Some(module) = module {
                    write!(f, "{module}:")?;
                }
                write_symbol(f, function, *offset)
            }
            Self::User { path, at: At::Symbol { name, offset }, .. } => {
                write!(f, "{}:", parse::escaped(path))?;
                write_symbol(f, name, *offset)
            }
            Self::User { path, at: At::Offset(offset), .. } => {
                write!(f, "{}:{offset:#x}", parse::escaped(path))
            }
            Self::Usdt { path, provider: Some(provider), name } => {
                write!(f, "{}:{provider}:{name}", parse::escaped(path))
            }
            Self::Usdt { path, provider: None, name } => write!(f, "{}:{name}", parse::escaped(path)),
        }
    }
}

fn write_symbol(f: &mut fmt::Formatter<'_>, name: &str, offset: u64) -> fmt::Result {
    match offset {
        // Behind a plus sign in the name an offset is expected.
        0 if !name.contains('+') => f.write_str(name),
        _ => write!(f, "{name}+{offset:#x}"),
    }
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum At {
    /// So many bytes behind the beginning of a function.
    Symbol {
        /// The function.
        name: Arc<str>,
        /// Bytes.
        offset: u64,
    },
    /// So many bytes behind the beginning of the file.
    Offset(u64),
}
