//! Check of `limits.memory` against the number of CPUs.

use super::Config;
use super::value::Size;
use crate::budget::{Demand, Shares};

/// `limits.memory` is less than this machine requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "limits.memory: {} is too small for {cpus} CPUs{}; write `{}` or more, or omit it",
    Size(*memory),
    if *profiles { " with profiles" } else { "" },
    Size(*least)
)]
pub struct TooLittle {
    memory: u64,
    cpus: usize,
    profiles: bool,
    least: u64,
}

/// Maximum number of ring kinds per CPU; see [`Demand::rings`].
const MAX_RINGS: usize = 3;

impl Config {
    /// Returns the parameters that determine the shares of `limits.memory`, for `cpus` CPUs with `rings` kinds of rings each.
    pub fn demand(&self, cpus: usize, rings: usize) -> Demand {
        let ring_memory = self.limits.ring_memory;
        let (profiles, pushes) = (!self.profiles.is_empty(), self.push.is_any());
        let (history, incidents) = (self.history.is_kept(), self.incidents.directory.is_some());
        Demand { cpus, profiles, pushes, history, incidents, rings, ring_memory }
    }

    /// Returns the shares of `limits.memory`, or of its default.
    pub fn shares(&self, cpus: usize, rings: usize) -> Shares {
        let demand = self.demand(cpus, rings);
        Shares::of(self.limits.memory.unwrap_or_else(|| demand.default_limit()), &demand)
    }

    /// Checks that `limits.memory` is large enough for `cpus` CPUs.
    ///
    /// # Errors
    /// The limit is too small; the message contains the minimum.
    pub fn require_memory(&self, cpus: usize) -> Result<(), TooLittle> {
        let demand = self.demand(cpus, MAX_RINGS);
        // Rounded up to whole mebibytes to be readable in the message.
        let least = demand.least().next_multiple_of(1 << 20);
        match self.limits.memory {
            Some(memory) if memory < demand.least() => {
                Err(TooLittle { memory, cpus, profiles: demand.profiles, least })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::config::tests::good;

    #[test]
    fn too_little_memory_is_refused_with_what_would_do() {
        let config = good("limits: {memory: 8MiB}");
        let error = config.require_memory(64).unwrap_err();
        assert_eq!(
            error.to_string(),
            "limits.memory: 8MiB is too small for 64 CPUs with profiles; write `28MiB` or more, or omit it"
        );
        assert_eq!(good("limits: {memory: 28MiB}").require_memory(64), Ok(()));
        assert_eq!(good("{limits: {memory: 8MiB}, profiles: {}}").require_memory(2), Ok(()));
        assert_eq!(Config::default().require_memory(4096), Ok(()));
    }
}
