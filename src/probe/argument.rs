//! Probe arguments in the language of perf and the kernel: `[NAME=]FETCH[:TYPE]`.
//!
//! A fetch is an expression that the kernel can evaluate (`%di`, `$retval`, `+8(%si)`), or a variable (`sk->__sk_common.skc_dport`). A
//! variable is resolved to an expression with the kernel's types. Sources: the kernel's `Documentation/trace/kprobetrace.rst` and
//! `uprobetracer.rst`, and `perf-probe(1)`.

mod kernel;
mod parse;
mod register;
mod usdt;

use std::fmt;
use std::sync::Arc;

pub use kernel::{Site, fetch_text};
pub use register::{Arch, Register};
pub use usdt::usdt;

#[cfg(test)]
mod tests;

/// A text that is not a valid argument, or an argument that is not available at the probe. `{:#}` shows the position with a caret.
pub type ArgumentError = crate::event::ParseError;

/// A probe argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argument {
    /// Field name: the given name, or else the last member of a variable, or else `arg1`, `arg2`… by position, as in the kernel.
    pub name: Arc<str>,
    /// The fetched value.
    pub fetch: Fetch,
    /// Type of the value. `None`: the type of its variable, or else unsigned 64 bits, the kernel's default.
    pub kind: Option<FetchType>,
    /// The argument as written.
    pub text: Arc<str>,
}

/// Source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fetch {
    /// `%di`: a register.
    Register(Register),
    /// `$arg1`: an argument of the function, from 1. At the function's entry only.
    Argument(u8),
    /// `$retval`: the return value of the function.
    Return,
    /// `$stack`: the stack address; `$stack3`: the fourth word on the stack.
    Stack(Option<u16>),
    /// `$comm`: the task name.
    Comm,
    /// `\42`: a constant.
    Immediate(i64),
    /// `@0x1234`: the memory at an address.
    Address(u64),
    /// `@jiffies+8`: the kernel memory at a symbol.
    Symbol {
        /// The symbol.
        name: Arc<str>,
        /// Offset from the symbol, in bytes.
        offset: i64,
    },
    /// `@+0x10`: the memory at which this offset of the probed file is mapped.
    FileOffset(u64),
    /// `+8(%si)`: the memory at an offset from the value of another fetch.
    Deref {
        /// `+u8(…)`: user memory, although the probe is in the kernel.
        user: bool,
        /// Offset in bytes.
        offset: i64,
        /// The fetch of the address.
        of: Box<Self>,
    },
    /// A source variable, which must be resolved with types first.
    Variable(Variable),
}

/// A source variable: a parameter of the function and the path to a value, `sk->__sk_common.skc_dport`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variable {
    /// The parameter, or `$retval`.
    pub base: Arc<str>,
    /// Members and elements, in the order written.
    pub path: Vec<Step>,
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// `->name` or `.name`.
    Member {
        /// The member.
        name: Arc<str>,
        /// Whether it is written with an arrow (a pointer access).
        arrow: bool,
    },
    /// `[3]`.
    Index(u32),
}

/// The type of a field in the kernel's notation: `u32`, `string`, `b4@8/16`, `x8[6]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchType {
    /// The type of each element.
    pub element: Element,
    /// Number of elements (1 to 64) of an array.
    pub count: Option<u8>,
}

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// `u8` to `u64`: an unsigned integer.
    Unsigned(Width),
    /// `s8` to `s64`: a signed integer.
    Signed(Width),
    /// `x8` to `x64`: an unsigned integer, printed in hexadecimal.
    Hex(Width),
    /// `char`: one character (Linux 6.4).
    Char,
    /// `string`: a NUL-terminated string in kernel memory, or in user memory for a probe in a program.
    String,
    /// `ustring`: a NUL-terminated string in user memory.
    UserString,
    /// `symbol`: a kernel address, printed as a symbol.
    Symbol,
    /// `symstr`: a kernel address, recorded as a symbol string (Linux 6.3).
    SymbolString,
    /// `b<width>@<offset>/<container>`: a bit field. All in bits.
    Bits {
        /// Number of bits.
        width: u8,
        /// Offset of the first bit.
        offset: u8,
        /// Size of the containing integer: 8, 16, 32 or 64.
        container: Width,
    },
}

/// Width of an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// 8 bits.
    W8 = 8,
    /// 16 bits.
    W16 = 16,
    /// 32 bits.
    W32 = 32,
    /// 64 bits.
    W64 = 64,
}

impl Width {
    /// All widths, narrowest first.
    pub const ALL: [Self; 4] = [Self::W8, Self::W16, Self::W32, Self::W64];

    /// Returns the width in bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// Returns the width of this number of bytes, if there is one.
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|width| u64::from(width.bits() / 8) == bytes)
    }

    /// Returns the width of this number of bits, if there is one.
    pub fn of_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.bits() == bits)
    }
}

impl Element {
    /// Returns an integer type.
    pub(super) fn integer(width: Width, signed: bool) -> Self {
        if signed { Self::Signed(width) } else { Self::Unsigned(width) }
    }
}

impl Fetch {
    /// Returns the variable that must be resolved, if the fetch contains one.
    pub fn variable(&self) -> Option<&Variable> {
        match self {
            Self::Variable(variable) => Some(variable),
            Self::Deref { of, .. } => of.variable(),
            _ => None,
        }
    }

    /// Reports whether the fetch is based on the return value.
    pub fn is_returned(&self) -> bool {
        match self {
            Self::Return => true,
            Self::Variable(variable) => &*variable.base == "$retval",
            Self::Deref { of, .. } => of.is_returned(),
            _ => false,
        }
    }
}

impl From<Element> for FetchType {
    fn from(element: Element) -> Self {
        Self { element, count: None }
    }
}

impl fmt::Display for Argument {
    /// Formats the argument as `NAME=FETCH[:TYPE]`, which parses to the same argument.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.fetch)?;
        self.kind.map_or(Ok(()), |kind| write!(f, ":{kind}"))
    }
}

impl fmt::Display for Fetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(register) => write!(f, "%{register}"),
            Self::Argument(number) => write!(f, "$arg{number}"),
            Self::Return => f.write_str("$retval"),
            Self::Stack(None) => f.write_str("$stack"),
            Self::Stack(Some(word)) => write!(f, "$stack{word}"),
            Self::Comm => f.write_str("$comm"),
            Self::Immediate(value) => write!(f, "\\{value}"),
            Self::Address(address) => write!(f, "@{address:#x}"),
            Self::Symbol { name, offset: 0 } => write!(f, "@{name}"),
            Self::Symbol { name, offset } => write!(f, "@{name}{offset:+}"),
            Self::FileOffset(offset) => write!(f, "@+{offset:#x}"),
            Self::Deref { user, offset, of } => {
                let sign = if *offset < 0 { '-' } else { '+' };
                let user = if *user { "u" } else { "" };
                write!(f, "{sign}{user}{}({of})", offset.unsigned_abs())
            }
            Self::Variable(variable) => write!(f, "{variable}"),
        }
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.base)?;
        for step in &self.path {
            match step {
                Step::Member { name, arrow: true } => write!(f, "->{name}")?,
                Step::Member { name, arrow: false } => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for FetchType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.element)?;
        self.count.map_or(Ok(()), |count| write!(f, "[{count}]"))
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(width) => write!(f, "u{}", width.bits()),
            Self::Signed(width) => write!(f, "s{}", width.bits()),
            Self::Hex(width) => write!(f, "x{}", width.bits()),
            Self::Char => f.write_str("char"),
            Self::String => f.write_str("string"),
            Self::UserString => f.write_str("ustring"),
            Self::Symbol => f.write_str("symbol"),
            Self::SymbolString => f.write_str("symstr"),
            Self::Bits { width, offset, container } => write!(f, "b{width}@{offset}/{}", container.bits()),
        }
    }
}
