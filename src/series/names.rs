//! Limits on process names in labels.
//!
//! A process chooses its name and can change it at any time. So names are limited per owner, which is the cgroup of the process: in total,
//! and in new names per minute. A container therefore does not affect the series of other containers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Allowance, Monotonic};

/// New names of all owners together: initial allowance, and rate per minute.
const ALL: (u64, u64) = (20_000, 2_000);
/// Divisor of the rate: an owner may replace one in N of its names each minute.
const REPLACED: u64 = 5;
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum number of owners.
const OWNERS: usize = 1 << 16;

/// Name chosen by a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnName {
    /// Cgroup of the process; empty if unknown.
    pub owner: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// Names in one table of series.
///
/// A name is reference-counted: each admission must be released. Every call takes amortized constant time.
#[derive(Debug, Clone)]
pub struct NameLimiter {
    per_owner: usize,
    owners: HashMap<Arc<str>, Owner>,
    all: Allowance,
    /// Number of owners at which removable owners are searched.
    tidy_at: usize,
}

#[derive(Debug, Clone)]
struct Owner {
    /// Held names with their reference counts.
    names: HashMap<Arc<str>, u32>,
    fresh: Allowance,
}

impl NameLimiter {
    /// Creates an empty limiter. An owner may hold `per_owner` names, and replace a fifth of them each minute.
    pub fn new(per_owner: usize) -> Self {
        Self {
            per_owner,
            owners: HashMap::new(),
            all: Allowance::new(ALL.0, ALL.1, MINUTE, Monotonic::default()),
            tidy_at: 1024,
        }
    }

    /// Sets the maximum number of names per owner. Held names are kept.
    pub fn set_limit(&mut self, per_owner: usize) {
        if per_owner != self.per_owner {
            *self = Self { owners: std::mem::take(&mut self.owners), ..Self::new(per_owner) };
            let (burst, rate) = self.rate();
            let fresh = Allowance::new(burst, rate, MINUTE, Monotonic::default());
            self.owners.values_mut().for_each(|owner| owner.fresh = fresh);
        }
    }

    /// Adds a reference to a name, and returns whether the owner may have it. Otherwise the series must be aggregated into `other`.
    pub fn admit(&mut self, OwnName { owner, name }: &OwnName, now: Monotonic) -> bool {
        let (burst, rate) = self.rate();
        if !self.owners.contains_key(owner) {
            self.tidy(now);
            if self.owners.len() >= OWNERS {
                return false;
            }
        }
        let fresh = || Owner { names: HashMap::new(), fresh: Allowance::new(burst, rate, MINUTE, now) };
        let owner = self.owners.entry(Arc::clone(owner)).or_insert_with(fresh);
        if let Some(held) = owner.names.get_mut(name) {
            *held = held.saturating_add(1);
            return true;
        }
        if owner.names.len() >= self.per_owner || owner.fresh.left(now) == 0 || self.all.left(now) == 0 {
            return false;
        }
        owner.fresh.spend(1);
        self.all.spend(1);
        owner.names.insert(Arc::clone(name), 1);
        true
    }

    /// Releases a name that was admitted.
    pub fn release(&mut self, OwnName { owner, name }: &OwnName) {
        let Some(owner) = self.owners.get_mut(owner) else { return };
        if let Some(held) = owner.names.get_mut(name) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                owner.names.remove(name);
            }
        }
    }

    fn rate(&self) -> (u64, u64) {
        let burst = self.per_owner as u64;
        (burst, (burst / REPLACED).max(1))
    }

    /// Removes owners without names whose allowance is full again, so that they do not differ from new owners.
    fn tidy(&mut self, now: Monotonic) {
        if self.owners.len() < self.tidy_at {
            return;
        }
        let burst = self.per_owner as u64;
        self.owners.retain(|_, owner| !owner.names.is_empty() || owner.fresh.left(now) < burst);
        self.tidy_at = 1024.max(self.owners.len().saturating_mul(2)).min(OWNERS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(owner: &str, name: &str) -> OwnName {
        OwnName { owner: owner.into(), name: name.into() }
    }

    fn second(number: u64) -> Monotonic {
        Monotonic(Duration::from_secs(number))
    }

    #[test]
    fn an_owner_has_as_many_names_as_it_may_and_others_theirs() {
        let mut limiter = NameLimiter::new(100);
        let admitted = (0..10_000).filter(|n| limiter.admit(&name("/a", &n.to_string()), second(1))).count();
        assert_eq!(admitted, 100);
        assert!(limiter.admit(&name("/b", "nginx"), second(1)));
        assert!(limiter.admit(&name("/a", "5"), second(1)), "a name that it has already");
    }

    #[test]
    fn a_name_is_held_until_it_was_released_as_often_as_it_was_admitted() {
        let mut limiter = NameLimiter::new(1);
        let (a, b) = (name("/", "a"), name("/", "b"));
        assert!(limiter.admit(&a, second(0)) && limiter.admit(&a, second(0)));
        limiter.release(&a);
        assert!(!limiter.admit(&b, second(600)));
        limiter.release(&a);
        assert!(limiter.admit(&b, second(600)));
        limiter.release(&name("/", "never admitted"));
    }

    #[test]
    fn names_are_replaced_at_a_bounded_rate() {
        let mut limiter = NameLimiter::new(100);
        let mut admitted = 0;
        for n in 0..6000 {
            let name = name("/a", &n.to_string());
            if limiter.admit(&name, second(n / 10)) {
                admitted += 1;
                limiter.release(&name);
            }
        }
        assert!((290..=300).contains(&admitted), "100 at first, and 20 in each of ten minutes: {admitted}");
    }

    #[test]
    fn an_owner_of_few_names_may_replace_one_each_minute() {
        let mut limiter = NameLimiter::new(2);
        let mut admitted = |now: u64| {
            let names = (0..3).map(|n| name("/", &(now * 3 + n).to_string()));
            let admitted: Vec<_> = names.filter(|name| limiter.admit(name, second(now))).collect();
            admitted.iter().for_each(|name| limiter.release(name));
            admitted.len()
        };
        assert_eq!([0, 59, 60, 119, 120].map(&mut admitted), [2, 0, 1, 0, 1]);
    }

    #[test]
    fn owners_without_names_are_forgotten() {
        let mut limiter = NameLimiter::new(10);
        for n in 0..100_000u64 {
            let name = name(&n.to_string(), "x");
            if limiter.admit(&name, second(n)) {
                limiter.release(&name);
            }
        }
        assert!(limiter.owners.len() < 5000, "{}", limiter.owners.len());
    }

    #[test]
    fn an_owner_is_remembered_while_it_holds_names_or_has_used_up_its_allowance() {
        let mut limiter = NameLimiter::new(2);
        // Owners whose allowance is soon full again, so that they do not differ from new owners.
        for n in 0..1022 {
            assert!(limiter.admit(&name(&n.to_string(), "x"), second(0)));
            limiter.release(&name(&n.to_string(), "x"));
        }
        assert!(
            limiter.admit(&name("/holds", "a"), second(0)) && limiter.admit(&name("/holds", "b"), second(0))
        );
        for new in ["a", "b"] {
            assert!(limiter.admit(&name("/spent", new), second(600)));
            limiter.release(&name("/spent", new));
        }
        assert_eq!(limiter.owners.len(), 1024, "few owners are not tidied");
        assert!(limiter.admit(&name("/new", "a"), second(600)));
        let mut left: Vec<&str> = limiter.owners.keys().map(|owner| &**owner).collect();
        left.sort_unstable();
        assert_eq!(left, ["/holds", "/new", "/spent"]);
        assert!(!limiter.admit(&name("/holds", "c"), second(600)), "it holds two names");
        assert!(!limiter.admit(&name("/spent", "c"), second(600)), "it had two new names in this minute");
    }

    #[test]
    fn all_owners_together_have_a_bounded_number_of_new_names() {
        let mut limiter = NameLimiter::new(usize::MAX);
        let mut owners = 0u64..;
        let mut admitted = |limiter: &mut NameLimiter, wanted: usize, now: u64| {
            let names = owners.by_ref().take(wanted).map(|n| name(&(n % 7).to_string(), &n.to_string()));
            names.filter(|name| limiter.admit(name, second(now))).count()
        };
        assert_eq!(admitted(&mut limiter, 25_000, 0), 20_000);
        assert_eq!(admitted(&mut limiter, 5000, 60), 2000);
    }

    #[test]
    fn there_is_a_bounded_number_of_owners_that_hold_names() {
        let mut limiter = NameLimiter::new(10);
        for n in 0..OWNERS {
            assert!(limiter.admit(&name(&n.to_string(), "x"), second(n as u64)));
        }
        let now = second(OWNERS as u64);
        assert!(!limiter.admit(&name("one more", "x"), now));
        assert!(limiter.admit(&name("7", "y"), now), "it is an owner already");
        limiter.release(&name("8", "x"));
        assert!(limiter.admit(&name("one more", "x"), now), "another owner has no names by now");
    }

    #[test]
    fn the_same_limit_gives_no_new_allowance() {
        let mut limiter = NameLimiter::new(1);
        assert!(limiter.admit(&name("/", "a"), second(0)));
        limiter.release(&name("/", "a"));
        limiter.set_limit(1);
        assert!(!limiter.admit(&name("/", "b"), second(0)));
        limiter.set_limit(2);
        assert!(limiter.admit(&name("/", "b"), second(0)));
    }

    #[test]
    fn another_limit_holds_for_new_names() {
        let mut limiter = NameLimiter::new(2);
        let admit = |limiter: &mut NameLimiter, n: u32| limiter.admit(&name("/", &n.to_string()), second(9));
        assert_eq!([1, 2, 3].map(|n| admit(&mut limiter, n)), [true, true, false]);
        limiter.set_limit(3);
        assert_eq!([3, 4].map(|n| admit(&mut limiter, n)), [true, false]);
        limiter.set_limit(1);
        assert!(admit(&mut limiter, 1), "it is held");
    }
}
