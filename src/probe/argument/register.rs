//! Registers, in the kernel's spelling.

use std::fmt;
use std::sync::Arc;

use crate::named_enum::named_enum;

/// Registers that fetch arguments support on x86-64 (`regoffset_table` in the kernel's `arch/x86/kernel/ptrace.c`). The first six carry
/// function arguments, in this order (System V ABI).
const X86_64: [&str; 21] = [
    "di", "si", "dx", "cx", "r8", "r9", "ax", "bx", "bp", "sp", "r10", "r11", "r12", "r13", "r14", "r15",
    "ip", "flags", "cs", "ss", "orig_ax",
];

/// Registers that fetch arguments support on arm64 (`arch/arm64/kernel/ptrace.c`). The first eight carry arguments (AAPCS64).
const AARCH64: [&str; 35] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
    "lr", "sp", "pc", "pstate",
];

/// Letters of the four oldest x86 registers, whose parts have names of their own: `al`, `ax`, `eax`, `rax`.
const X86_LETTERS: [&str; 4] = ["a", "b", "c", "d"];

named_enum! {
    /// An instruction set, with its registers and its calling convention.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Arch {
        /// x86-64.
        X86_64 = "x86-64",
        /// 64-bit ARM.
        Aarch64 = "arm64",
        /// Any other architecture. The kernel validates its registers, and its calling convention is not supported.
        Other = "this architecture",
    }
}

impl Arch {
    /// The architecture that this program was built for.
    pub const HOST: Self = if cfg!(target_arch = "x86_64") {
        Self::X86_64
    } else if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::Other
    };

    /// Returns every supported register. Empty for an unsupported architecture.
    pub(super) fn registers(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &X86_64,
            Self::Aarch64 => &AARCH64,
            Self::Other => &[],
        }
    }

    /// Returns the number of [`registers`](Self::registers) that carry function arguments: the first ones, in order.
    pub(super) fn parameters(self) -> u8 {
        match self {
            Self::X86_64 => 6,
            Self::Aarch64 => 8,
            Self::Other => 0,
        }
    }
}

/// A register in the kernel's spelling, without `%`: `di` (not `rdi`), `x0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Register(Arc<str>);

impl Register {
    /// Returns the register for a name as written in perf or an assembler: `di`, `rdi`, `x0`. Does not check whether the machine has it.
    /// `None` if no machine has it.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let plausible = name.len() <= 8
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let short = name.strip_prefix('r').filter(|short| !short.starts_with(|c: char| c.is_ascii_digit()));
        let short = short.filter(|short| X86_64.contains(short));
        plausible.then(|| Self(short.unwrap_or(name).into()))
    }

    /// Returns a register from one of the tables.
    pub(super) fn known(name: &'static str) -> Self {
        Self(name.into())
    }

    /// Returns the register that an assembler calls `name`, or that contains it: `edi`, `dil` and `rdi` are in `di`, `w3` is in `x3`.
    /// `None` if fetch arguments do not support it.
    pub(super) fn containing(name: &str, machine: Arch) -> Option<Self> {
        let whole = match machine {
            Arch::X86_64 => x86_whole(name),
            Arch::Aarch64 => aarch64_whole(name),
            Arch::Other => return Self::parse(name),
        };
        whole.map(|name| Self(name.into()))
    }

    /// Returns the name without `%`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the register of [`X86_64`] that equals `name` or has it as its low end. `ah` and similar registers are not low ends.
fn x86_whole(name: &str) -> Option<&'static str> {
    let known = |name: &str| X86_64.into_iter().find(|&known| known == name);
    if let Some(numbered) = name.strip_prefix('r').filter(|n| n.starts_with(|c: char| c.is_ascii_digit())) {
        return known(&format!("r{}", numbered.trim_end_matches(['b', 'w', 'd'])));
    }
    let stem = name.strip_suffix('l').unwrap_or(name);
    if X86_LETTERS.contains(&stem) && stem != name {
        return known(&format!("{stem}x"));
    }
    let stem = if matches!(stem, "di" | "si" | "bp" | "sp") { stem } else { name };
    known(stem.strip_prefix(['r', 'e']).unwrap_or(stem))
}

/// Returns the register of [`AARCH64`] that equals `name` or has it as its low half.
fn aarch64_whole(name: &str) -> Option<&'static str> {
    let whole = match name.strip_prefix('w') {
        Some("sp") => "sp".to_owned(),
        Some(number) => format!("x{number}"),
        None => name.to_owned(),
    };
    AARCH64.into_iter().find(|&known| known == whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_register_are_the_kernels() {
        for (written, kernel) in
            [("rdi", "di"), ("di", "di"), ("r8", "r8"), ("rip", "ip"), ("x0", "x0"), ("a0", "a0")]
        {
            assert_eq!(Register::parse(written).unwrap().as_str(), kernel);
        }
        for nothing in ["", "8", "DI", "a b", "much_too_long"] {
            assert_eq!(Register::parse(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_part_of_a_register_is_found_in_the_whole() {
        for (part, whole) in [
            ("rax", "ax"),
            ("eax", "ax"),
            ("ax", "ax"),
            ("al", "ax"),
            ("bl", "bx"),
            ("dil", "di"),
            ("bpl", "bp"),
            ("esp", "sp"),
            ("r8", "r8"),
            ("r8d", "r8"),
            ("r15b", "r15"),
            ("r10w", "r10"),
        ] {
            assert_eq!(Register::containing(part, Arch::X86_64).unwrap().as_str(), whole, "{part}");
        }
        for (part, whole) in [("w0", "x0"), ("x30", "x30"), ("sp", "sp"), ("wsp", "sp")] {
            assert_eq!(Register::containing(part, Arch::Aarch64).unwrap().as_str(), whole, "{part}");
        }
    }

    #[test]
    fn what_is_no_low_end_of_a_register_is_none() {
        for name in ["ah", "xmm0", "st", "fs", "l", "el", "r16", "r", "al0"] {
            assert_eq!(Register::containing(name, Arch::X86_64), None, "{name}");
        }
        for name in ["w31", "xzr", "v0", "d0", "w", "rax"] {
            assert_eq!(Register::containing(name, Arch::Aarch64), None, "{name}");
        }
    }
}
