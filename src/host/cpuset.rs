//! Sets of CPUs in the kernel's list format.

use std::fmt;
use std::str::FromStr;

/// Set of CPU numbers, parsed and formatted like in the kernel (`0-3,8,10-14:2`).
#[derive(Clone, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct CpuSet(Vec<u32>);

impl CpuSet {
    /// Highest accepted CPU number: the kernel's maximum for `NR_CPUS` is 8192.
    pub const HIGHEST: u32 = 8191;

    /// Returns the CPU numbers in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Reports whether the set contains `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// Returns the number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Reports whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the CPUs in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.iter().filter(|&cpu| other.contains(cpu)).collect())
    }

    /// Returns the CPUs that are not in the other set.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.iter().filter(|&cpu| !other.contains(cpu)).collect())
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut cpus: Vec<u32> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        Self(cpus)
    }
}

/// Error for an invalid CPU list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of CPUs such as 0-3,8")]
pub struct CpuSetError(String);

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// Parses the kernel's list format, including strides; an empty text is the empty set.
    ///
    /// Format: <https://www.kernel.org/doc/html/latest/admin-guide/kernel-parameters.html> ("cpu lists").
    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let bad = || CpuSetError(text.chars().take(80).collect());
        let number = |digits: &str| -> Result<u32, CpuSetError> {
            digits.trim().parse().ok().filter(|&n| n <= Self::HIGHEST).ok_or_else(bad)
        };
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (range, step) = match part.split_once(':') {
                Some((range, step)) => (range, number(step.split('/').next_back().unwrap_or(step))?),
                None => (part, 1),
            };
            let (first, last) = match range.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(range)?, number(range)?),
            };
            if step == 0 || first > last {
                return Err(bad());
            }
            cpus.extend((first..=last).step_by(step as usize));
        }
        Ok(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|&(&cpu, expected)| cpu == expected).count();
            let last = rest[run - 1];
            match run {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
            rest = &rest[run..];
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_ranges_and_strides_are_read() {
        let set: CpuSet = "0-3,8,10-14:2\n".parse().unwrap();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8, 10, 12, 14]);
        assert_eq!(set.to_string(), "0-3,8,10,12,14");
        assert!("".parse::<CpuSet>().unwrap().is_empty());
    }

    #[test]
    fn nonsense_is_refused_without_a_large_allocation() {
        for text in ["a", "3-1", "0-4000000000", "1-2:0", "-", "1-", "99999"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(cpus in proptest::collection::vec(0u32..300, 0..40)) {
            let set: CpuSet = cpus.into_iter().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        #[test]
        fn any_text_is_refused_or_means_what_is_printed(text in "[0-9,:-]{0,12}|.{0,40}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            }
        }
    }
}
