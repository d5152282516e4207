//! Turns of groups on a PMU, as the kernel schedules them. A pure function of counters and groups.
//!
//! Source: `kernel/events/core.c`. The kernel places pinned groups first, then the other groups of the CPU, then those of the current task
//! (`ctx_resched`). It places the groups of a context in their order, and stops at the first one that does not fit (`group_can_go_on`). At each
//! interval of the rotation, the first group that was on the PMU moves to the end (`ctx_event_to_rotate`). So the groups on the PMU in a turn
//! are the longest sequence that fits, from one group on, and each group is the first one equally often.

use crate::event::CounterMask;

/// Assignment of events to counters: a matching, which grows event by event.
///
/// The kernel assigns the events with the fewest possible counters first (`perf_assign_events`). That finds an assignment if there is one, as
/// long as sets of counters do not overlap partially.
#[derive(Debug, Clone, Default)]
pub(super) struct Assignment {
    /// Counters that each event can use.
    events: Vec<CounterMask>,
    /// Event of each counter, by its bit in a [`CounterMask`].
    owners: Vec<Option<usize>>,
}

impl Assignment {
    /// Assigns one more event, and moves others if necessary. Returns false, and changes nothing, if there is no counter for it.
    pub(super) fn add(&mut self, event: CounterMask) -> bool {
        self.owners.resize(u64::BITS as usize, None);
        self.events.push(event);
        let mut seen = [false; u64::BITS as usize];
        let fits = self.assign(self.events.len() - 1, &mut seen);
        if !fits {
            self.events.pop();
        }
        fits
    }

    /// Assigns all of these events. Returns false, and changes nothing, if they do not fit together.
    pub(super) fn add_all(&mut self, events: &[CounterMask]) -> bool {
        let before = self.clone();
        let fits = events.iter().all(|&event| self.add(event));
        if !fits {
            *self = before;
        }
        fits
    }

    /// Finds a counter for an event along an augmenting path (Kuhn's algorithm). `seen` has the counters that were tried.
    fn assign(&mut self, event: usize, seen: &mut [bool]) -> bool {
        let Some(&mask) = self.events.get(event) else { return false };
        for counter in mask.iter().map(|bit| bit as usize) {
            let Some(seen_before) = seen.get_mut(counter) else { continue };
            if std::mem::replace(seen_before, true) {
                continue;
            }
            let owner = self.owners.get(counter).copied().flatten();
            if owner.is_none_or(|owner| self.assign(owner, seen)) {
                if let Some(slot) = self.owners.get_mut(counter) {
                    *slot = Some(event);
                }
                return true;
            }
        }
        false
    }
}

/// Context in which the kernel schedules a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContextKind {
    /// A CPU, also for the events of cgroups.
    Cpu,
    /// A task. Its groups get the counters that those of the CPU leave.
    Task,
}

/// A group to schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Counters that each event can use.
    pub events: Vec<CounterMask>,
    /// Context.
    pub context: ContextKind,
    /// Whether it is never off the PMU, or in an error state if it does not fit.
    pub pinned: bool,
}

/// Turns of groups on a PMU.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Turns {
    /// Groups that are on the PMU in each turn, by their number. One turn if all groups of CPUs, or otherwise of tasks, are on the PMU at all
    /// times. The turns of tasks are not distinguished from each other if groups of CPUs rotate.
    pub turns: Vec<Vec<usize>>,
    /// Running ratio of each group.
    pub ratios: Vec<f64>,
}

/// Maximum number of combinations of turns of CPUs with turns of tasks that are computed.
const COMBINATIONS: usize = 1 << 14;

/// Returns the turns of `candidates`, in the order of their opening. `held`: counters that other users occupy at all times.
pub(super) fn turns(held: &[CounterMask], candidates: &[Candidate]) -> Turns {
    let mut always = Assignment::default();
    for &other in held {
        always.add(other);
    }
    let mut ratios = vec![0.0; candidates.len()];
    let of = |context, pinned| {
        let numbered = candidates.iter().enumerate();
        let mine = move |(_, group): &(usize, &Candidate)| group.context == context && group.pinned == pinned;
        numbered.filter(mine).collect::<Vec<_>>()
    };
    let mut pinned = Vec::new();
    for (number, group) in [of(ContextKind::Cpu, true), of(ContextKind::Task, true)].concat() {
        if always.add_all(&group.events) {
            pinned.push(number);
            ratios[number] = 1.0;
        }
    }
    let (cpu, task) = (of(ContextKind::Cpu, false), of(ContextKind::Task, false));
    let rounds = rounds(&always, &cpu);
    for &number in rounds.iter().flat_map(|(groups, _)| groups) {
        ratios[number] += 1.0 / rounds.len() as f64;
    }
    let step = (rounds.len() * task.len()).div_ceil(COMBINATIONS).max(1);
    let sampled: Vec<_> = rounds.iter().step_by(step).collect();
    let mut task_turns = Vec::new();
    for (_, left) in &sampled {
        task_turns = self::rounds(left, &task);
        for &number in task_turns.iter().flat_map(|(groups, _)| groups) {
            ratios[number] += 1.0 / (task_turns.len() * sampled.len()) as f64;
        }
    }
    let turns = match (&*rounds, &*task_turns) {
        ([(groups, _)], tasks) if tasks.len() > 1 => {
            tasks.iter().map(|(tasks, _)| [groups.clone(), tasks.clone()].concat()).collect()
        }
        ([(groups, _)], [(tasks, _)]) => vec![[groups.clone(), tasks.clone()].concat()],
        _ => rounds.iter().map(|(groups, _)| groups.clone()).collect(),
    };
    let with_pinned = |turn: Vec<usize>| [pinned.clone(), turn].concat();
    let turns = turns.into_iter().map(with_pinned).collect();
    Turns { turns, ratios: ratios.into_iter().map(|ratio: f64| ratio.min(1.0)).collect() }
}

/// Returns the turns of the groups of one context beside those that are on the PMU at all times, each with the resulting assignment. One
/// turn if all fit.
fn rounds(always: &Assignment, groups: &[(usize, &Candidate)]) -> Vec<(Vec<usize>, Assignment)> {
    let turn = |first: usize| {
        let mut assignment = always.clone();
        let in_order = groups.iter().cycle().skip(first).take(groups.len());
        let placed = in_order.take_while(|(_, group)| assignment.add_all(&group.events));
        (placed.map(|&(number, _)| number).collect::<Vec<_>>(), assignment)
    };
    let whole = turn(0);
    if whole.0.len() == groups.len() {
        return vec![whole];
    }
    (0..groups.len()).map(turn).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn group(events: usize, counters: u32) -> Candidate {
        let events = vec![CounterMask::general(counters); events];
        Candidate { events, context: ContextKind::Cpu, pinned: false }
    }

    fn of_task(group: Candidate) -> Candidate {
        Candidate { context: ContextKind::Task, ..group }
    }

    fn pinned(group: Candidate) -> Candidate {
        Candidate { pinned: true, ..group }
    }

    fn turns_of(candidates: &[Candidate]) -> (Vec<Vec<usize>>, Vec<f64>) {
        let Turns { turns, ratios } = turns(&[], candidates);
        (turns, ratios)
    }

    #[test]
    fn an_event_moves_to_another_counter_to_make_room() {
        let mut assignment = Assignment::default();
        assert!(assignment.add(CounterMask::general(2)));
        assert!(assignment.add(CounterMask::general(1)), "the first event moves to counter 1");
        assert!(!assignment.add(CounterMask::general(2)));
        assert!(assignment.add(CounterMask::general(3)));
    }

    #[test]
    fn groups_that_fit_together_are_on_the_pmu_at_all_times() {
        assert_eq!(turns_of(&[group(2, 4), group(2, 4)]), (vec![vec![0, 1]], vec![1.0, 1.0]));
        assert_eq!(turns_of(&[]), (vec![vec![]], vec![]));
    }

    #[test]
    fn each_group_begins_a_turn_and_the_kernel_stops_at_the_first_that_does_not_fit() {
        // Groups of 2, 3 and 2 events on 4 counters: the second group is alone, and the third is with the first.
        let (turns, ratios) = turns_of(&[group(2, 4), group(3, 4), group(2, 4)]);
        assert_eq!(turns, [vec![0], vec![1], vec![2, 0]]);
        assert_eq!(ratios, [2.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0]);
        let (_, ratios) = turns_of(&[1, 1, 1, 1, 1, 1, 1, 1].map(|events| group(events, 4)));
        assert_eq!(ratios, [0.5; 8]);
    }

    #[test]
    fn groups_of_tasks_get_what_those_of_the_cpu_leave() {
        let (turns, ratios) = turns_of(&[group(3, 4), of_task(group(1, 4)), of_task(group(1, 4))]);
        assert_eq!(turns, [vec![0, 1], vec![0, 2]]);
        assert_eq!(ratios, [1.0, 0.5, 0.5]);
        assert_eq!(turns_of(&[group(4, 4), of_task(group(1, 4))]).1, [1.0, 0.0]);
        // Two turns of CPUs leave one and two counters.
        let (_, ratios) = turns_of(&[group(3, 4), group(2, 4), of_task(group(2, 4))]);
        assert_eq!(ratios, [0.5, 0.5, 0.5]);
    }

    #[test]
    fn pinned_groups_come_first_and_the_rest_shares_what_is_left() {
        let candidates = [group(3, 6), pinned(group(4, 6)), pinned(group(4, 6)), group(1, 6)];
        // The first group never fits, and the kernel does not try the last one in the turns in which it is behind the first.
        let (turns, ratios) = turns_of(&candidates);
        assert_eq!(turns, [vec![1], vec![1, 3]]);
        assert_eq!(ratios, [0.0, 1.0, 0.0, 0.5]);
    }

    #[test]
    fn the_counter_of_the_watchdog_is_not_available() {
        let held = [CounterMask::general(4)];
        assert_eq!(turns(&held, &[group(4, 4)]).ratios, [0.0]);
        assert_eq!(turns(&held, &[group(3, 4)]).ratios, [1.0]);
    }

    fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
        let mask = prop_oneof![
            3 => Just(CounterMask::general(6)),
            1 => Just(CounterMask::general(2)),
            1 => (0u32..3).prop_map(|number| CounterMask::general(6) | CounterMask::fixed(number)),
            1 => Just(CounterMask::fixed(2)),
        ];
        let group = (proptest::collection::vec(mask, 1..6), any::<bool>(), 0u8..6);
        let group = group.prop_map(|(events, is_of_task, pinned)| {
            let context = if is_of_task { ContextKind::Task } else { ContextKind::Cpu };
            Candidate { events, context, pinned: pinned == 0 }
        });
        proptest::collection::vec(group, 0..12)
    }

    proptest! {
        #[test]
        fn plans_contain_only_groups_that_fit_starve_none_that_fits_and_are_deterministic(
            groups in candidates(), watchdog in any::<bool>()
        ) {
            let held = if watchdog { vec![CounterMask::general(6)] } else { Vec::new() };
            let result = turns(&held, &groups);
            prop_assert_eq!(&result, &turns(&held, &groups));
            for turn in &result.turns {
                let mut assignment = Assignment::default();
                prop_assert!(assignment.add_all(&held));
                for &number in turn {
                    prop_assert!(assignment.add_all(&groups[number].events), "{turn:?}");
                }
            }
            let mut always = Assignment::default();
            always.add_all(&held);
            for (number, group) in groups.iter().enumerate().filter(|(_, group)| group.pinned) {
                if result.ratios[number] > 0.0 {
                    prop_assert!(always.add_all(&group.events));
                }
            }
            for (number, group) in groups.iter().enumerate() {
                let ratio = result.ratios[number];
                prop_assert!((0.0..=1.0).contains(&ratio));
                // Groups of CPUs that fit beside the pinned groups run in their own turn. Groups of tasks may find no counter.
                if !group.pinned && group.context == ContextKind::Cpu {
                    let fits = always.clone().add_all(&group.events);
                    prop_assert_eq!(ratio > 0.0, fits);
                    prop_assert!(!fits || ratio >= 1.0 / groups.len() as f64 - 1e-9);
                }
            }
            let busy: f64 = groups.iter().zip(&result.ratios).map(|(group, ratio)| ratio * group.events.len() as f64).sum();
            prop_assert!(busy + held.len() as f64 <= 9.0 + 1e-9, "{busy} of 9 counters");
        }
    }

    #[test]
    fn a_thousand_groups_are_planned_at_once() {
        let mut groups: Vec<Candidate> = (0..1000).map(|_| group(1, 6)).collect();
        groups.extend((0..1000).map(|_| of_task(group(2, 6))));
        let ratios = turns(&[], &groups).ratios;
        assert!((ratios[0] - 0.006).abs() < 1e-9, "{}", ratios[0]);
        assert_eq!(ratios[1000], 0.0);
    }
}
