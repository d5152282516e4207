//! Modifiers: letters to the bits of `perf_event_attr`, as perf computes them.

use super::generic::Place;
use super::{Kind, Modifiers, Precise};

/// What is known of an event when its letters are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Subject {
    /// Its family.
    pub kind: Kind,
    /// Where it happens.
    pub place: Place,
    /// Whether it is counted beside the cores (a PMU with a `cpumask`), and so for nobody in particular.
    pub shared: bool,
}

/// A letter that has no meaning for an event: why, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NoMeaning {
    pub reason: &'static str,
    pub remedy: &'static str,
}

impl Modifiers {
    /// The bits that perf's letters stand for.
    ///
    /// As in perf 6.13 and later, guests are counted unless `H` says otherwise. Before, perf stat set
    /// `exclude_guest` on an event without modifiers, on `:u`, and on no other; a node whose guests vanish from its
    /// cycles as soon as a `k` is added tells two stories with one metric.
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

    /// Whether these bits mean something for such an event. A count that would silently be something else than its
    /// name says, or stay zero, is refused here; what only some PMUs can do is left to the kernel.
    pub(super) fn check(&self, subject: Subject) -> Result<(), NoMeaning> {
        let refuse = |reason, remedy| Err(NoMeaning { reason, remedy });
        let modes = self.exclude_user || self.exclude_kernel || self.exclude_hv;
        let sides = self.exclude_host || self.exclude_guest;
        if modes && subject.place == Place::Clock {
            return refuse(
                "it is time, which the kernel does not divide into user space and kernel",
                "leave out u, k and h; cycles:u and cycles:k divide the cycles",
            );
        }
        if self.exclude_kernel && subject.place == Place::Kernel {
            return refuse("it happens in the kernel alone, and would stay zero", "leave out u and h");
        }
        if (modes || sides) && subject.shared {
            return refuse(
                "it is counted beside the cores, by hardware that does not know whose work it does",
                "leave out u, k, h, G and H",
            );
        }
        let precise = self.precise != Precise::Any;
        if precise && matches!(subject.kind, Kind::Software | Kind::Tracepoint | Kind::Breakpoint) {
            return refuse(
                "p and P are about the samples of hardware, and this is counted by the kernel",
                "leave out p and P",
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

    /// What `perf stat -vv -e cycles:LETTERS` puts into `perf_event_attr`, without the `exclude_guest` that perf set
    /// by default before 6.13.
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
