//! What a probe takes from where it is, in the language of perf and of the kernel: `[NAME=]FETCH[:TYPE]`.
//!
//! A fetch is what the kernel can evaluate (`%di`, `$retval`, `+8(%si)`) or a variable (`sk->__sk_common.skc_dport`),
//! which is turned into one with the types of the kernel. The language is that of the kernel's
//! `Documentation/trace/kprobetrace.rst` and `uprobetracer.rst`, and of `perf-probe(1)`.

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

/// A text that is not an argument, or an argument that cannot be taken there. `{:#}` shows the place with a caret.
pub type ArgumentError = crate::event::ParseError;

/// One argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Argument {
    /// The name of the field: as given, else the last member of a variable, else `arg1`, `arg2`… by its place, as the
    /// kernel has it.
    pub name: Arc<str>,
    /// What is taken.
    pub fetch: Fetch,
    /// What that is; `None`: what its variable is, else 64 bits without a sign, the kernel's own default.
    pub kind: Option<FetchType>,
    /// As it was written.
    pub text: Arc<str>,
}

/// Where a value is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fetch {
    /// `%di`: a register.
    Register(Register),
    /// `$arg1`: an argument of the function, the first is 1; at its entry only.
    Argument(u8),
    /// `$retval`: what the function returns.
    Return,
    /// `$stack`: the address of the stack; `$stack3`: the fourth word on it.
    Stack(Option<u16>),
    /// `$comm`: the name of the task.
    Comm,
    /// `\42`: this number.
    Immediate(i64),
    /// `@0x1234`: what is in memory at an address.
    Address(u64),
    /// `@jiffies+8`: what is in the kernel's memory at a symbol.
    Symbol {
        /// The symbol.
        name: Arc<str>,
        /// Bytes behind it.
        offset: i64,
    },
    /// `@+0x10`: what is in memory where this offset of the probed file is mapped.
    FileOffset(u64),
    /// `+8(%si)`: what is in memory so many bytes behind what another fetch is.
    Deref {
        /// `+u8(…)`: in the memory of the program, although the probe is in the kernel.
        user: bool,
        /// Bytes.
        offset: i64,
        /// The address.
        of: Box<Self>,
    },
    /// A variable of the source, to be resolved with types first.
    Variable(Variable),
}

/// `sk->__sk_common.skc_dport`: a parameter of the function, and the way from it to a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Variable {
    /// The parameter, or `$retval`.
    pub base: Arc<str>,
    /// Members and elements, in the order in which they are written.
    pub path: Vec<Step>,
}

/// One step into a value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// `->name` or `.name`.
    Member {
        /// The member.
        name: Arc<str>,
        /// Whether it is written with an arrow, thus through a pointer.
        arrow: bool,
    },
    /// `[3]`.
    Index(u32),
}

/// The type of a field, as the kernel spells it: `u32`, `string`, `b4@8/16`, `x8[6]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FetchType {
    /// The type of each element.
    pub element: Element,
    /// How many there are (1 to 64), where it is an array.
    pub count: Option<u8>,
}

/// The type of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// `u8` to `u64`: without a sign.
    Unsigned(Width),
    /// `s8` to `s64`: with a sign.
    Signed(Width),
    /// `x8` to `x64`: without a sign, shown in hexadecimal.
    Hex(Width),
    /// `char`: one character (Linux 6.4).
    Char,
    /// `string`: up to a NUL, in the kernel's memory, or in the program's for a probe of a program.
    String,
    /// `ustring`: up to a NUL, in the program's memory.
    UserString,
    /// `symbol`: an address of the kernel, shown as a name.
    Symbol,
    /// `symstr`: the same, recorded as a string (Linux 6.3).
    SymbolString,
    /// `b<width>@<offset>/<container>`: a bit field, in bits.
    Bits {
        /// How many bits.
        width: u8,
        /// The first of them.
        offset: u8,
        /// The size of the integer that they are in: 8, 16, 32 or 64.
        container: Width,
    },
}

/// How wide an integer is.
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
    /// All of them, the narrowest first.
    pub const ALL: [Self; 4] = [Self::W8, Self::W16, Self::W32, Self::W64];

    /// In bits.
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The width of so many bytes, if there is one.
    pub fn of_bytes(bytes: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|width| u64::from(width.bits() / 8) == bytes)
    }

    /// The width of so many bits, if there is one.
    pub fn of_bits(bits: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.bits() == bits)
    }
}

impl Element {
    /// An integer.
    pub(super) fn integer(width: Width, signed: bool) -> Self {
        if signed { Self::Signed(width) } else { Self::Unsigned(width) }
    }
}

impl Fetch {
    /// The variable at the bottom, if it is one that has to be resolved.
    pub fn variable(&self) -> Option<&Variable> {
        match self {
            Self::Variable(variable) => Some(variable),
            Self::Deref { of, .. } => of.variable(),
            _ => None,
        }
    }

    /// Whether it begins at what the function returns.
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
    /// `NAME=FETCH[:TYPE]`, which parses to the same argument.
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
