//! Registers, as the kernel spells them.

use std::fmt;
use std::sync::Arc;

use crate::words::words;

/// What fetch arguments can name on x86-64 (`regoffset_table` in the kernel's `arch/x86/kernel/ptrace.c`); the first
/// six carry the arguments of a function, in this order (System V ABI).
const X86_64: [&str; 21] = [
    "di", "si", "dx", "cx", "r8", "r9", "ax", "bx", "bp", "sp", "r10", "r11", "r12", "r13", "r14", "r15",
    "ip", "flags", "cs", "ss", "orig_ax",
];

/// The same on arm64 (`arch/arm64/kernel/ptrace.c`); the first eight carry arguments (AAPCS64).
const AARCH64: [&str; 35] = [
    "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15",
    "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x29", "x30",
    "lr", "sp", "pc", "pstate",
];

/// The letters of the four oldest registers of x86, whose parts have names of their own: `al`, `ax`, `eax`, `rax`.
const X86_LETTERS: [&str; 4] = ["a", "b", "c", "d"];

words! {
    /// An instruction set, as far as registers and calling conventions go.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Arch {
        /// x86-64.
        X86_64 = "x86-64",
        /// 64-bit ARM.
        Aarch64 = "arm64",
        /// Another one: its registers are left to the kernel to judge, and its calling convention is not known here.
        Other = "this architecture",
    }
}

impl Arch {
    /// Of the machine that this program was built for.
    pub const HOST: Self = if cfg!(target_arch = "x86_64") {
        Self::X86_64
    } else if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::Other
    };

    /// Every register that can be named; none where that is not known here.
    pub(super) fn registers(self) -> &'static [&'static str] {
        match self {
            Self::X86_64 => &X86_64,
            Self::Aarch64 => &AARCH64,
            Self::Other => &[],
        }
    }

    /// How many of [`registers`](Self::registers) carry the arguments of a function: the first ones, in order.
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
    /// The register of a name as perf or an assembler has it: `di`, `rdi`, `x0`. Whether a machine has it is not asked
    /// here; `None`: no machine has.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let plausible = name.len() <= 8
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let short = name.strip_prefix('r').filter(|short| !short.starts_with(|c: char| c.is_ascii_digit()));
        let short = short.filter(|short| X86_64.contains(short));
        plausible.then(|| Self(short.unwrap_or(name).into()))
    }

    /// A register that is in one of the tables.
    pub(super) fn known(name: &'static str) -> Self {
        Self(name.into())
    }

    /// The register that an assembler calls `name`, or that this is a part of: `edi`, `dil` and `rdi` are `di`, `w3`
    /// is in `x3`. `None`: fetch arguments cannot name it.
    pub(super) fn containing(name: &str, machine: Arch) -> Option<Self> {
        let whole = match machine {
            Arch::X86_64 => x86_whole(name),
            Arch::Aarch64 => aarch64_whole(name),
            Arch::Other => return Self::parse(name),
        };
        whole.map(|name| Self(name.into()))
    }

    /// Without `%`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The register of [`X86_64`] that `name` is or is the low end of. `ah` and its like are no low ends.
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

/// The register of [`AARCH64`] that `name` is or is the low half of.
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
