//! Definition of a dynamic probe in YAML or on the command line.

mod parse;
mod request;

use std::fmt;
use std::sync::Arc;

pub use request::Request;

use super::argument::{Argument, ArgumentError, Element, Fetch, Site};
use crate::event::{Parsed, fault};
use crate::files::Root;
use crate::named_enum::named_enum;
use crate::targets::ContainerRule;

/// A text that is not a valid probe location. `{:#}` shows the position with a caret.
pub type LocationError = crate::event::ParseError;

named_enum! {
    /// Kinds of probes, as spelled in the configuration.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum ProbeKind {
        /// A kernel instruction.
        Kprobe = "kprobe",
        /// The return of a kernel function.
        Kretprobe = "kretprobe",
        /// An instruction of a program.
        Uprobe = "uprobe",
        /// The return of a function of a program.
        Uretprobe = "uretprobe",
        /// A USDT probe in a program.
        Usdt = "usdt",
    }
}

impl ProbeKind {
    /// Returns the kind of a probe in the kernel or in a program, at the return of a function or elsewhere.
    pub const fn at(site: Site, returns: bool) -> Self {
        match (site, returns) {
            (Site::Kernel, false) => Self::Kprobe,
            (Site::Kernel, true) => Self::Kretprobe,
            (Site::User, false) => Self::Uprobe,
            (Site::User, true) => Self::Uretprobe,
        }
    }

    /// Returns whether the probe is in the kernel or in a program.
    pub const fn site(self) -> Site {
        match self {
            Self::Kprobe | Self::Kretprobe => Site::Kernel,
            Self::Uprobe | Self::Uretprobe | Self::Usdt => Site::User,
        }
    }

    /// Reports whether the probe is at the return of a function.
    pub const fn returns(self) -> bool {
        matches!(self, Self::Kretprobe | Self::Uretprobe)
    }
}

/// Where the path of a probe is searched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Within {
    /// In one root file system.
    Root(Root),
    /// In the root file systems of all cgroups that the rule selects.
    Containers(Box<ContainerRule>),
}

impl Default for Within {
    fn default() -> Self {
        Self::Root(Root::Host)
    }
}

/// A probe: its location, its root file system, and its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Location of the probe.
    pub location: Location,
    /// Where a path is searched.
    pub within: Within,
    /// Recorded arguments.
    pub arguments: Vec<Argument>,
}

/// Location of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Location {
    /// In the kernel: `tcp_sendmsg`, `tcp_sendmsg+0x10`, `nf_conntrack:nf_conntrack_in`.
    Kernel {
        /// The kernel module, if specified.
        module: Option<Arc<str>>,
        /// The function.
        function: Arc<str>,
        /// Offset from the function's start, in bytes; 0 for its entry.
        offset: u64,
        /// Whether the probe is at the function's return.
        returns: bool,
    },
    /// In an executable file: `/usr/lib/libc.so.6:malloc`, `…:malloc+0x4`, `…:0x1234` (a file offset).
    User {
        /// The file, absolute in its root.
        path: Arc<str>,
        /// Location in the file.
        at: At,
        /// Whether the probe is at the function's return.
        returns: bool,
    },
    /// A USDT probe: `/usr/bin/postgres:postgresql:query__start`.
    Usdt {
        /// The file, absolute in its root.
        path: Arc<str>,
        /// The provider; `None`: any provider.
        provider: Option<Arc<str>>,
        /// The probe name.
        name: Arc<str>,
    },
}

impl Location {
    /// Returns the kind of the probe.
    pub fn kind(&self) -> ProbeKind {
        match self {
            Self::Kernel { returns, .. } => ProbeKind::at(Site::Kernel, *returns),
            Self::User { returns, .. } => ProbeKind::at(Site::User, *returns),
            Self::Usdt { .. } => ProbeKind::Usdt,
        }
    }

    /// Checks that an argument is available at this location, as far as possible without the file and the machine. Parameters are available
    /// at a function's entry, return values at its return.
    ///
    /// # Errors
    /// The argument is not available.
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
                false => fault(0, "$retval is available at the return only", self.at_return()),
            },
            Fetch::Argument(_) | Fetch::Variable(_) if returns => {
                fault(0, format!("{fetch} is available at the entry only"), "use a probe at the entry")
            }
            Fetch::Argument(_) | Fetch::Variable(_) if inside => {
                let remedy = "remove the offset, or use the register that holds the value there";
                fault(0, format!("{fetch} is available at the function's entry only"), remedy)
            }
            _ => Ok(()),
        }
    }

    fn at_return(&self) -> &'static str {
        match self {
            Self::Kernel { .. } => "use a kretprobe",
            Self::User { .. } => "use a uretprobe",
            Self::Usdt { .. } => "a USDT probe has $arg1, $arg2, …",
        }
    }

    fn admits_type(&self, argument: &Argument) -> Parsed<()> {
        match argument.kind.map(|kind| kind.element) {
            Some(Element::Symbol | Element::SymbolString) if !matches!(self, Self::Kernel { .. }) => fault(
                0,
                "the kernel symbolizes kernel addresses only, not those of a program",
                "use x64 instead",
            ),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Location {
    /// Formats the location so that [`parse`](Self::parse) with the same [`kind`](Self::kind) returns the same location.
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
        // A plus sign in the name requires an explicit offset.
        0 if !name.contains('+') => f.write_str(name),
        _ => write!(f, "{name}+{offset:#x}"),
    }
}

/// A location in a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum At {
    /// An offset from the start of a function.
    Symbol {
        /// The function.
        name: Arc<str>,
        /// Offset in bytes.
        offset: u64,
    },
    /// An offset from the start of the file, in bytes.
    Offset(u64),
}
