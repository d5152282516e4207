//! The registers of a program that unwinding begins with.

/// What [`Fields::user_stack`](super::Fields::user_stack) brings besides the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// The address of the instruction.
    pub ip: u64,
    /// The end of the stack: its lowest address in use.
    pub sp: u64,
    /// The frame pointer, if the program keeps one: `rbp`, `x29`.
    pub fp: u64,
    /// Where the function returns to, on arm64 (`x30`); else 0.
    pub lr: u64,
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// `PERF_REG_X86_BP`, `_SP` and `_IP`.
    pub(super) const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;
    /// How many numbers a sample has of them.
    pub(crate) const COUNT: usize = 3;

    /// From a sample, where they stand in the order of their bits.
    pub(crate) fn of([fp, sp, ip]: [u64; Self::COUNT]) -> Self {
        Self { ip, sp, fp, lr: 0 }
    }

    /// As a sample has them.
    #[cfg(test)]
    pub(crate) fn numbers(self) -> [u64; Self::COUNT] {
        [self.fp, self.sp, self.ip]
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// `PERF_REG_ARM64_X29`, `_LR`, `_SP` and `_PC`.
    pub(super) const MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
    /// How many numbers a sample has of them.
    pub(crate) const COUNT: usize = 4;

    /// From a sample, where they stand in the order of their bits.
    pub(crate) fn of([fp, lr, sp, ip]: [u64; Self::COUNT]) -> Self {
        Self { ip, sp, fp, lr }
    }

    /// As a sample has them.
    #[cfg(test)]
    pub(crate) fn numbers(self) -> [u64; Self::COUNT] {
        [self.fp, self.lr, self.sp, self.ip]
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Registers {
    /// None: how such a machine is unwound is not known here, and events that ask for stacks are refused.
    pub(super) const MASK: u64 = 0;
    /// How many numbers a sample has of them.
    pub(crate) const COUNT: usize = 0;

    /// None.
    pub(crate) fn of(_: [u64; Self::COUNT]) -> Self {
        Self::default()
    }

    /// None.
    #[cfg(test)]
    pub(crate) fn numbers(self) -> [u64; Self::COUNT] {
        []
    }
}
