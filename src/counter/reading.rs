//! Reading of a group of counters, also after its CPU has gone offline.

use crate::error::Errno;
use crate::plan::MAX_MEMBERS;
use crate::sys::Event;

/// Number of words of the largest group read: the number of members, two times, and a value for each member. The switch stream adds two
/// members of its own.
pub(super) const WORDS: usize = 3 + 2 + MAX_MEMBERS;

/// The events of a group, in the order in which they were opened.
#[derive(Debug)]
pub(super) struct Members<'a, E> {
    pub leader: &'a E,
    /// Number of members behind the leader that write records. They cannot be read on their own.
    pub recording: usize,
    /// All other members.
    pub counting: &'a [E],
}

/// Result of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Read {
    /// Number of words.
    pub length: usize,
    /// Whether the kernel has not dissolved the group.
    pub whole: bool,
}

impl<E: Event> Members<'_, E> {
    /// Reads the group into `words`. If the kernel has dissolved the group because its CPU went offline, reads each event on its own and
    /// puts its value into its position. The value of a member that writes records is then 0: its count is in its last record.
    ///
    /// # Errors
    /// The kernel's errno for the leader.
    pub(super) fn read(&self, words: &mut [u64; WORDS]) -> Result<Read, Errno> {
        let length = self.leader.read(words)?;
        if length == 0 || words[0] == self.len() as u64 {
            return Ok(Read { length, whole: true });
        }
        Ok(Read { length: self.complete(words, length), whole: false })
    }

    fn len(&self) -> usize {
        1 + self.recording + self.counting.len()
    }

    /// Puts the values of the members into their positions, behind the `length` words that were read from the leader.
    fn complete(&self, words: &mut [u64; WORDS], length: usize) -> usize {
        let found = usize::try_from(words[0]).unwrap_or(usize::MAX);
        // The values are the last words, behind the times.
        let Some(first) = length.checked_sub(found) else { return 0 };
        let all = first + self.len();
        let Some(values) = words.get_mut(first..all) else { return 0 };
        values.iter_mut().skip(found).for_each(|value| *value = 0);
        for (value, member) in values.iter_mut().skip(1 + self.recording).zip(self.counting) {
            let mut own = [0];
            if member.read(&mut own) == Ok(1) {
                *value = own[0];
            }
        }
        words[0] = self.len() as u64;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fake::{Count, FakeEvent, FakeKernel};
    use crate::sys::{Attr, Fields, Kernel, Place, Rate, ReadFormat, Sampling, Sideband, Start};

    fn recording(untimed: bool) -> Sampling {
        let read = Some(ReadFormat { untimed });
        let fields = Fields { read, ..Fields::default() };
        Sampling { rate: Rate::Period(1), fields, sideband: Sideband::default(), ordered: false }
    }

    /// A leader, a member that writes records, and two others. Each event counts 100 plus its position.
    fn group(untimed: bool) -> (FakeKernel, Vec<FakeEvent>) {
        let kernel = FakeKernel::new();
        let mut events: Vec<FakeEvent> = Vec::new();
        for (config, sampling) in
            [Some(recording(untimed)), Some(recording(untimed)), None, None].iter().enumerate()
        {
            let start = if config == 0 { Start::Later } else { Start::WithLeader };
            let attr = Attr::software(config as u64, *sampling, start);
            events.push(kernel.open(&attr, Place::Cpu(1), events.first()).unwrap());
        }
        kernel.update(|event| {
            event.count = Count { value: 100 + event.attr.selector.config[0], enabled: 9, running: 8 };
        });
        (kernel, events)
    }

    fn members(events: &[FakeEvent]) -> Members<'_, FakeEvent> {
        Members { leader: &events[0], recording: 1, counting: &events[2..] }
    }

    /// Returns the words, and whether the kernel has not dissolved the group.
    fn reading(events: &[FakeEvent]) -> (Vec<u64>, bool) {
        let mut words = [7; WORDS];
        let Read { length, whole } = members(events).read(&mut words).unwrap();
        (words[..length].to_vec(), whole)
    }

    #[test]
    fn of_a_cpu_that_went_offline_each_event_keeps_its_count_except_those_that_write_records() {
        for (untimed, times) in [(false, &[9, 8][..]), (true, &[])] {
            let (kernel, events) = group(untimed);
            assert_eq!(reading(&events), ([&[4], times, &[100, 101, 102, 103]].concat(), true));
            kernel.take_offline(1);
            assert_eq!(reading(&events), ([&[4], times, &[100, 0, 102, 103]].concat(), false));
        }
    }

    #[test]
    fn a_pinned_group_that_finds_no_place_has_no_reading() {
        let (kernel, events) = group(false);
        kernel.set_unplaced(true);
        assert_eq!(reading(&events), (vec![], true));
    }

    #[test]
    fn a_reading_of_more_members_than_words_or_of_a_group_that_is_too_large_is_empty() {
        let (_kernel, events) = group(false);
        let mut words = [0; WORDS];
        for (found, length) in [(4, 3), (u64::MAX, 3), (1, WORDS)] {
            words[0] = found;
            assert_eq!(members(&events).complete(&mut words, length), 0, "{found} in {length}");
        }
    }
}
