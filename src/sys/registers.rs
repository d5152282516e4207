//! The registers of a program that unwinding starts from.

/// Registers that [`Fields::user_stack`](super::Fields::user_stack) adds besides the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Registers {
    /// The address of the instruction.
    pub ip: u64,
    /// The stack pointer: the lowest address in use.
    pub sp: u64,
    /// The frame pointer, if the program uses one: `rbp`, `x29`.
    pub fp: u64,
    /// The return address on arm64 (`x30`); otherwise 0.
    pub lr: u64,
}

impl Registers {
    /// Returns the return address of a sample that has no other register (`PERF_REG_ARM64_LR`): `perf record` on arm64 adds it to call chains
    /// by frame pointers, which omit the caller of a function that calls nothing.
    pub(crate) fn return_address(mask: u64, numbers: &[u8]) -> Option<u64> {
        let number = u64::from_ne_bytes(*numbers.first_chunk()?);
        (cfg!(target_arch = "aarch64") && mask == 1 << 30).then_some(number)
    }

    /// Returns the registers among those that a sample has with another mask: 8 bytes in the order of this machine for each bit of `mask`.
    /// `None` if one is missing.
    pub(crate) fn among(mask: u64, numbers: &[u8]) -> Option<Self> {
        let mut bits = (0..u64::BITS).filter(|bit| Self::MASK >> bit & 1 != 0);
        let mut found = [0; Self::COUNT];
        for number in &mut found {
            let bit = bits.next().filter(|bit| mask >> bit & 1 != 0)?;
            let before = (mask & ((1 << bit) - 1)).count_ones() as usize;
            *number = u64::from_ne_bytes(*numbers.get(8 * before..)?.first_chunk()?);
        }
        (Self::COUNT > 0).then(|| Self::of(found))
    }
}

#[cfg(target_arch = "x86_64")]
impl Registers {
    /// `PERF_REG_X86_BP`, `_SP` and `_IP`.
    pub(super) const MASK: u64 = 1 << 6 | 1 << 7 | 1 << 8;
    /// All registers but `PERF_REG_X86_DS`, `_ES`, `_FS` and `_GS`, which the kernel does not provide.
    pub(super) const ALL: u64 = 0x00ff_0fff;
    /// Number of registers in a sample.
    pub(crate) const COUNT: usize = 3;

    /// Converts the numbers of a sample, which are in the order of their bits.
    pub(crate) fn of([fp, sp, ip]: [u64; Self::COUNT]) -> Self {
        Self { ip, sp, fp, lr: 0 }
    }

    /// Returns the numbers as in a sample.
    #[cfg(test)]
    pub(crate) fn numbers(self) -> [u64; Self::COUNT] {
        [self.fp, self.sp, self.ip]
    }
}

#[cfg(target_arch = "aarch64")]
impl Registers {
    /// `PERF_REG_ARM64_X29`, `_LR`, `_SP` and `_PC`.
    pub(super) const MASK: u64 = 1 << 29 | 1 << 30 | 1 << 31 | 1 << 32;
    /// `PERF_REG_ARM64_X0` to `_PC`.
    pub(super) const ALL: u64 = (1 << 33) - 1;
    /// Number of registers in a sample.
    pub(crate) const COUNT: usize = 4;

    /// Converts the numbers of a sample, which are in the order of their bits.
    pub(crate) fn of([fp, lr, sp, ip]: [u64; Self::COUNT]) -> Self {
        Self { ip, sp, fp, lr }
    }

    /// Returns the numbers as in a sample.
    #[cfg(test)]
    pub(crate) fn numbers(self) -> [u64; Self::COUNT] {
        [self.fp, self.lr, self.sp, self.ip]
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl Registers {
    /// None: unwinding is not supported on this architecture, and opening events with stacks fails.
    pub(super) const MASK: u64 = 0;
    /// None.
    pub(super) const ALL: u64 = 0;
    /// Number of registers in a sample.
    pub(crate) const COUNT: usize = 0;

    /// Returns no registers.
    pub(crate) fn of(_: [u64; Self::COUNT]) -> Self {
        Self::default()
    }

    /// Returns no numbers.
    #[cfg(test)]
    pub(crate) fn numbers(self) -> [u64; Self::COUNT] {
        []
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_found_among_all_others_and_a_missing_one_is_noticed() {
        let own = Registers { ip: 1, sp: 2, fp: 3, lr: if Registers::COUNT > 3 { 4 } else { 0 } };
        let mut numbers = own.numbers().into_iter();
        let has = |mask: u64, bit: u32| mask >> bit & 1 != 0;
        let all = (0..u64::BITS).filter(|&bit| has(Registers::ALL, bit));
        let words = all.map(|bit| if has(Registers::MASK, bit) { numbers.next().unwrap() } else { 99 });
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        assert_eq!(Registers::among(Registers::ALL, &bytes), Some(own));
        let highest = 1 << (u64::BITS - 1 - Registers::MASK.leading_zeros());
        assert_eq!(Registers::among(Registers::ALL & !highest, &bytes), None);
        assert_eq!(Registers::among(Registers::ALL, &bytes[..8]), None);
    }
}
