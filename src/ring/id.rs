//! Identifiers of rings.

/// A ring, identified by its CPU and its number on that CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingId {
    /// The CPU.
    pub cpu: u32,
    /// Number among the rings of this CPU, from 0.
    pub number: u32,
}

impl RingId {
    /// Returns the first ring of a CPU.
    pub const fn of_cpu(cpu: u32) -> Self {
        Self { cpu, number: 0 }
    }

    pub(super) fn token(self) -> u64 {
        u64::from(self.cpu) | u64::from(self.number) << 32
    }

    pub(super) fn of_token(token: u64) -> Self {
        Self { cpu: token as u32, number: (token >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_identifies_one_ring() {
        for (cpu, number, token) in
            [(0, 0, 0), (7, 0, 7), (0, 1, 1 << 32), (7, 3, 3 << 32 | 7), (u32::MAX, 3, 3 << 32 | 0xffff_ffff)]
        {
            let ring = RingId { cpu, number };
            assert_eq!(ring.token(), token, "{ring:?}");
            assert_eq!(RingId::of_token(token), ring);
        }
    }
}
