//! Event modifiers: translates letters into bits of `perf_event_attr`, as perf does.

use super::catalog::{Missing, Unresolved};
use super::generic::Place;
use super::{Kind, Modifiers, Precise};

/// Properties of an event that determine which modifiers apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    /// Family of the event.
    pub kind: Kind,
    /// Where the event occurs.
    pub place: Place,
    /// Whether the event is counted outside the cores (a PMU with a `cpumask`), so that it cannot be attributed.
    pub shared: bool,
}

impl Modifiers {
    /// Returns the bits for perf's modifier letters.
    ///
    /// As in perf 6.13 and later, guests are counted unless `H` is given. Earlier versions of perf stat set `exclude_guest` only for events
    /// without modifiers and for `:u`. Adding a `k` would then change whether one metric includes guests.
    pub(super) fn from_letters(letters: &str) -> Self {
        let has = |letter| letters.contains(letter);
        let modes = has('u') || has('k') || has('h');
        let sides = has('G') || has('H');
        let precise = u8::try_from(letters.matches('p').count()).unwrap_or(u8::MAX).min(3);
        Self {
            exclude_user: modes && !has('u'),
            exclude_kernel: modes && !has('k'),
            exclude_hv: modes && !has('h'),
            exclude_idle: has('I'),
            exclude_host: sides && !has('H'),
            exclude_guest: sides && !has('G'),
            precise: match precise {
                _ if has('P') => Precise::Max,
                0 => Precise::Any,
                level => Precise::Level(level),
            },
            pinned: has('D'),
            exclusive: has('e'),
            weak: has('W'),
            leader_sampling: has('S'),
        }
    }

    /// Checks that these bits apply to an event. Rejects counts that would contradict their names or stay zero. What depends on the PMU is
    /// left to the kernel.
    pub(super) fn check(&self, subject: Subject) -> Result<(), Unresolved> {
        let refuse = |reason, remedy| Err(Unresolved::new(Missing::Refused, reason, remedy));
        let modes = self.exclude_user || self.exclude_kernel || self.exclude_hv;
        let sides = self.exclude_host || self.exclude_guest;
        if modes && subject.place == Place::Clock {
            return refuse(
                "the kernel does not split clock time into user and kernel time",
                "remove u, k and h, or use cycles:u and cycles:k",
            );
        }
        if self.exclude_kernel && subject.place == Place::Kernel {
            return refuse(
                "the event occurs only in the kernel, so its count would stay zero",
                "remove u and h",
            );
        }
        if (modes || sides) && subject.shared {
            return refuse(
                "the PMU is outside the cores and cannot separate user, kernel, host and guest",
                "remove u, k, h, G and H",
            );
        }
        let precise = self.precise != Precise::Any;
        if precise && matches!(subject.kind, Kind::Software | Kind::Tracepoint | Kind::Breakpoint) {
            return refuse(
                "p and P apply to samples of hardware events, but the kernel counts this event in software",
                "remove p and P",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(letters: &str) -> String {
        let m = Modifiers::from_letters(letters);
        let named = [
            (m.exclude_user, "!u"),
            (m.exclude_kernel, "!k"),
            (m.exclude_hv, "!h"),
            (m.exclude_idle, "!idle"),
            (m.exclude_host, "!host"),
            (m.exclude_guest, "!guest"),
            (m.pinned, "pinned"),
            (m.exclusive, "exclusive"),
            (m.weak, "weak"),
            (m.leader_sampling, "leader"),
        ];
        let mut words: Vec<_> =
            named.iter().filter(|(set, _)| *set).map(|(_, word)| (*word).to_owned()).collect();
        match m.precise {
            Precise::Any => {}
            Precise::Level(level) => words.push(format!("p{level}")),
            Precise::Max => words.push("pmax".into()),
        }
        words.join(" ")
    }

    /// Bits that `perf stat -vv -e cycles:LETTERS` sets in `perf_event_attr`, except for the default `exclude_guest` of perf before 6.13.
    #[test]
    fn letters_become_the_bits_that_perf_makes_of_them() {
        for (letters, expected) in [
            ("", ""),
            ("u", "!k !h"),
            ("k", "!u !h"),
            ("h", "!u !k"),
            ("uk", "!h"),
            ("ukh", ""),
            ("G", "!host"),
            ("H", "!guest"),
            ("GH", ""),
            ("uH", "!k !h !guest"),
            ("I", "!idle"),
            ("kp", "!u !h p1"),
            ("ppp", "p3"),
            ("P", "pmax"),
            ("D", "pinned"),
            ("e", "exclusive"),
            ("W", "weak"),
            ("S", "leader"),
        ] {
            assert_eq!(bits(letters), expected, "{letters}");
        }
    }

    #[test]
    fn letters_without_meaning_for_an_event_are_refused() {
        let cycles = Subject { kind: Kind::Hardware, place: Place::Anywhere, shared: false };
        let clock = Subject { kind: Kind::Software, place: Place::Clock, ..cycles };
        let switches = Subject { kind: Kind::Software, place: Place::Kernel, ..cycles };
        let tracepoint = Subject { kind: Kind::Tracepoint, ..cycles };
        let uncore = Subject { kind: Kind::Pmu, shared: true, ..cycles };
        for (letters, subject, allowed) in [
            ("ukhGHp", cycles, true),
            ("u", clock, false),
            ("D", clock, true),
            ("u", switches, false),
            ("k", switches, true),
            ("P", switches, false),
            ("pp", tracepoint, false),
            ("k", tracepoint, true),
            ("u", uncore, false),
            ("H", uncore, false),
            ("", uncore, true),
        ] {
            assert_eq!(
                Modifiers::from_letters(letters).check(subject).is_ok(),
                allowed,
                "{letters} {subject:?}"
            );
        }
    }
}
