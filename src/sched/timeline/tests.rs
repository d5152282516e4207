//! Tests with synthetic events.

mod quiet;

use super::*;

const ONE: RecordThread<'_> = RecordThread { tid: 1, comm: b"one" };
const TWO: RecordThread<'_> = RecordThread { tid: 2, comm: b"two" };
const IDLE: RecordThread<'_> = RecordThread { tid: 0, comm: b"swapper/0" };

/// Incoming task, its delay, and its previous state with the time since then.
type SwitchInRow = (u32, Option<u64>, Option<(PrevState, u64)>);

/// Timeline with its reported facts, by thread.
#[derive(Default)]
struct Machine {
    timeline: Timeline,
    report: Vec<(u32, SchedFact)>,
    /// Delays: thread, cgroup, nanoseconds.
    delays: Vec<(u32, u64, u64)>,
}

impl Machine {
    fn switch(
        &mut self,
        cpu: u32,
        time: u64,
        from: RecordThread<'_>,
        prev_state: PrevState,
        to: RecordThread<'_>,
    ) {
        let tid = from.tid;
        self.enter((cpu, time), (tid + 100, u64::from(tid) + 1000), Event::Switch { from, prev_state, to });
    }

    fn enter(&mut self, at: (u32, u64), of: (u32, u64), event: Event<'_>) {
        let Self { timeline, report, delays } = self;
        timeline.enter(at, of, event, &mut |thread: &Thread, what| {
            report.push((thread.tid, what));
            if let SchedFact::SwitchIn(SwitchIn { delay: Some(delay), .. }) = what {
                delays.push((thread.tid, thread.cgroup, delay));
            }
        });
    }

    fn delays(&self) -> &[(u32, u64, u64)] {
        &self.delays
    }

    fn wakes(&mut self, time: u64, party: RecordThread<'_>) {
        self.enter((0, time), (0, 0), Event::Wakes(party));
    }

    /// Returns delays and waits of incoming tasks, in order.
    fn switch_in(&self) -> Vec<SwitchInRow> {
        let of = |&(tid, report): &(u32, SchedFact)| match report {
            SchedFact::SwitchIn(switch_in) if tid != 0 => Some((tid, switch_in.delay, switch_in.wait)),
            _ => None,
        };
        self.report.iter().filter_map(of).collect()
    }

    fn runs(&self) -> Vec<(u32, Option<u64>)> {
        let of = |&(tid, report): &(u32, SchedFact)| match report {
            SchedFact::SwitchOut(switch_out) => Some((tid, switch_out.run())),
            _ => None,
        };
        self.report.iter().filter_map(of).collect()
    }
}

#[test]
fn a_sleeper_is_delayed_from_the_first_who_wakes_it_and_has_waited_since_it_slept() {
    let mut machine = Machine::default();
    machine.switch(0, 10, IDLE, PrevState::Preempted, ONE);
    machine.switch(0, 30, ONE, PrevState::Sleeping, IDLE);
    machine.wakes(50, ONE);
    machine.wakes(60, ONE);
    machine.switch(0, 75, IDLE, PrevState::Preempted, ONE);
    assert_eq!(machine.switch_in(), [(1, None, None), (1, Some(25), Some((PrevState::Sleeping, 45)))]);
    assert_eq!(machine.runs(), [(0, None), (1, Some(20)), (0, Some(45))]);
}

#[test]
fn who_is_preempted_is_delayed_from_then_on_and_who_takes_its_place_is_known() {
    let mut machine = Machine::default();
    machine.switch(0, 10, TWO, PrevState::Sleeping, ONE);
    machine.wakes(20, TWO);
    machine.switch(0, 30, ONE, PrevState::Preempted, TWO);
    machine.switch(0, 42, TWO, PrevState::Blocked, ONE);
    let switch_in = machine.switch_in();
    assert_eq!(
        switch_in[1..],
        [(2, Some(10), Some((PrevState::Sleeping, 20))), (1, Some(12), Some((PrevState::Preempted, 12)))]
    );
    let by = machine.report.iter().find_map(|&(tid, report)| match report {
        SchedFact::SwitchOut(switch_out) if tid == 1 => {
            Some((switch_out.prev_state, switch_out.next.tid, switch_out.next.pid, switch_out.next.cgroup))
        }
        _ => None,
    });
    assert_eq!(by, Some((PrevState::Preempted, 2, 102, 1002)), "the thread is known from an earlier record");
}

#[test]
fn who_comes_without_a_switch_is_seen_if_the_cpu_tells_and_is_not_told_twice() {
    let mut machine = Machine::default();
    machine.switch(0, 10, ONE, PrevState::Sleeping, IDLE);
    machine.wakes(40, ONE);
    machine.enter((0, 45), (101, 0), Event::Incoming { tid: 1 });
    machine.enter((0, 46), (101, 0), Event::Incoming { tid: 1 });
    machine.switch(0, 60, ONE, PrevState::Sleeping, IDLE);
    machine.enter((0, 61), (0, 0), Event::Incoming { tid: 0 });
    assert_eq!(machine.switch_in(), [(1, Some(5), Some((PrevState::Sleeping, 35)))]);
    assert_eq!(machine.runs(), [(1, None), (1, Some(15))]);
    assert_eq!(machine.timeline.untracked(), Untracked::default());
}

#[test]
fn a_wake_up_of_one_that_runs_is_no_delay() {
    let mut machine = Machine::default();
    machine.switch(0, 10, IDLE, PrevState::Preempted, ONE);
    machine.wakes(20, ONE);
    machine.switch(0, 30, ONE, PrevState::Sleeping, IDLE);
    machine.wakes(90, ONE);
    machine.switch(0, 91, IDLE, PrevState::Preempted, ONE);
    assert_eq!(machine.switch_in().last(), Some(&(1, Some(1), Some((PrevState::Sleeping, 61)))));
}

#[test]
fn who_comes_without_having_been_woken_has_no_delay_and_is_counted() {
    let mut machine = Machine::default();
    machine.switch(0, 10, IDLE, PrevState::Preempted, ONE);
    machine.switch(0, 30, ONE, PrevState::Sleeping, IDLE);
    machine.switch(0, 75, IDLE, PrevState::Preempted, ONE);
    assert_eq!(machine.switch_in(), [(1, None, None), (1, None, Some((PrevState::Sleeping, 45)))]);
    assert_eq!(machine.timeline.untracked(), Untracked { unwoken: 1, ..Untracked::default() });
}

#[test]
fn clocks_that_differ_give_no_time_and_are_counted() {
    let mut machine = Machine::default();
    machine.switch(0, 100, ONE, PrevState::Sleeping, IDLE);
    machine.wakes(200, ONE);
    machine.switch(1, 150, IDLE, PrevState::Preempted, ONE);
    assert_eq!(machine.switch_in(), [(1, None, Some((PrevState::Sleeping, 50)))]);
    machine.switch(1, 140, ONE, PrevState::Sleeping, IDLE);
    assert_eq!(machine.runs().last(), Some(&(1, None)));
    assert_eq!(machine.timeline.untracked().backwards, 2);
}

#[test]
fn after_a_loss_nothing_is_told_of_what_was_under_way() {
    let mut machine = Machine::default();
    machine.switch(0, 10, TWO, PrevState::Sleeping, ONE);
    machine.wakes(20, TWO);
    machine.timeline.mark_gap();
    machine.switch(0, 90, ONE, PrevState::Sleeping, TWO);
    assert_eq!(machine.runs().last(), Some(&(1, None)));
    assert_eq!(machine.switch_in().last(), Some(&(2, None, None)));
    assert_eq!(machine.timeline.untracked(), Untracked { dropped: 2, ..Untracked::default() });
}

#[test]
fn a_switch_from_somebody_who_was_not_seen_to_come_is_counted_and_gives_no_time() {
    let mut machine = Machine::default();
    machine.switch(0, 10, TWO, PrevState::Sleeping, IDLE);
    machine.switch(0, 50, ONE, PrevState::Sleeping, TWO);
    assert_eq!(machine.runs().last(), Some(&(1, None)));
    assert_eq!(machine.timeline.untracked().unseen, 1);
}

#[test]
fn who_never_leaves_its_cpu_runs_all_the_same_and_no_time_is_told_twice() {
    let mut machine = Machine::default();
    machine.switch(0, 5, ONE, PrevState::Sleeping, IDLE);
    machine.switch(0, 10, IDLE, PrevState::Preempted, ONE);
    let mut ran = Vec::new();
    for time in [25, 20, 40] {
        machine.timeline.pass(time, |_, thread, report| ran.push((thread.tid, report)));
    }
    assert_eq!(ran, [(1, SchedFact::Ran(15)), (1, SchedFact::Ran(15))]);
    machine.switch(0, 47, ONE, PrevState::Sleeping, IDLE);
    assert!(machine.report.contains(&(1, SchedFact::Ran(7))));
    assert_eq!(machine.runs().last(), Some(&(1, Some(37))));
}

#[test]
fn the_dead_are_forgotten_and_a_number_that_comes_again_is_another_thread() {
    let mut machine = Machine::default();
    machine.switch(0, 10, IDLE, PrevState::Preempted, ONE);
    machine.switch(0, 20, ONE, PrevState::Dead, IDLE);
    assert!(machine.timeline.is_empty());
    let other = RecordThread { tid: 1, comm: b"other" };
    machine.wakes(30, other);
    machine.switch(0, 31, IDLE, PrevState::Preempted, other);
    machine.switch(0, 40, other, PrevState::Sleeping, IDLE);
    assert_eq!(machine.switch_in().last(), Some(&(1, Some(1), None)));
}

#[test]
fn how_long_it_was_ready_before_it_moved_is_told() {
    let mut machine = Machine::default();
    machine.wakes(10, ONE);
    machine.enter((0, 14), (0, 0), Event::Migrates(ONE));
    machine.switch(1, 20, IDLE, PrevState::Preempted, ONE);
    machine.switch(1, 30, ONE, PrevState::Sleeping, IDLE);
    assert_eq!(machine.report[0], (1, SchedFact::Migrated));
    let switch_in = SwitchIn { time: 20, cpu: 1, delay: Some(10), wait: None, migrated: Some(4) };
    assert!(machine.report.contains(&(1, SchedFact::SwitchIn(switch_in))), "{:?}", machine.report);
}

/// Returns a machine with a new thread, created by one of cgroup 1001, that was woken and runs. Its own cgroup is 1002.
fn with_a_newcomer() -> Machine {
    let mut machine = Machine::default();
    machine.switch(0, 10, ONE, PrevState::Sleeping, IDLE);
    machine.timeline.created(Thread { tid: 2, pid: 2, cgroup: 1001, ..Thread::default() });
    machine.wakes(20, TWO);
    machine.switch(0, 25, IDLE, PrevState::Preempted, TWO);
    assert_eq!(machine.delays(), [], "no record has contained its cgroup");
    machine
}

#[test]
fn the_first_delay_of_a_thread_is_of_the_cgroup_that_its_first_record_names() {
    for prev_state in [PrevState::Sleeping, PrevState::Preempted, PrevState::Dead] {
        let mut machine = with_a_newcomer();
        machine.switch(0, 40, TWO, prev_state, IDLE);
        assert_eq!(machine.delays(), [(2, 1002, 5)], "{prev_state:?}");
        assert_eq!(machine.runs().last(), Some(&(2, Some(15))));
    }
    let mut of_the_clock = with_a_newcomer();
    for time in [30, 40] {
        of_the_clock.enter((0, time), (2, 1002), Event::Runs { tid: 2 });
        assert_eq!(of_the_clock.delays(), [(2, 1002, 5)]);
    }
    let mut reaped = with_a_newcomer();
    let switch = Event::Switch { from: TWO, prev_state: PrevState::Dead, to: IDLE };
    reaped.enter((0, 40), (u32::MAX, 1002), switch);
    assert_eq!(reaped.delays(), [(2, 1002, 5)]);
}

#[test]
fn the_first_delay_is_of_the_cgroup_of_the_parent_where_no_record_names_another() {
    let mut alone = with_a_newcomer();
    let mut report = Vec::new();
    for (time, expected) in [(SETTLED, 0), (25 + SETTLED, 2), (26 + SETTLED, 3)] {
        alone.timeline.pass(time, |_, thread, what| {
            if thread.tid == 2 {
                report.push((thread.cgroup, what));
            }
        });
        assert_eq!(report.len(), expected, "{report:?}");
    }
    assert!(matches!(report[0], (1001, SchedFact::SwitchIn(SwitchIn { delay: Some(5), .. }))), "{report:?}");
    assert_eq!(report[1..], [(1001, SchedFact::Ran(SETTLED)), (1001, SchedFact::Ran(1))]);
    alone.switch(0, 30 + SETTLED, TWO, PrevState::Sleeping, IDLE);
    assert_eq!(alone.delays(), [], "it was already reported");

    let mut passed_over = with_a_newcomer();
    passed_over.switch(0, 40, ONE, PrevState::Sleeping, IDLE);
    assert_eq!(passed_over.delays(), [(2, 1001, 5)], "its switch was missed");
    let mut of_the_cpu = with_a_newcomer();
    of_the_cpu.enter((0, 40), (101, 0), Event::Incoming { tid: 1 });
    assert_eq!(of_the_cpu.delays(), [(2, 1001, 5)], "nor here");
}

#[test]
fn where_no_record_names_a_cgroup_a_delay_is_told_at_once() {
    let mut machine = Machine::default();
    machine.wakes(20, TWO);
    let switch = Event::Switch { from: IDLE, prev_state: PrevState::Preempted, to: TWO };
    machine.enter((0, 25), (0, 0), switch);
    assert_eq!(machine.delays(), [(2, 0, 5)]);
}

#[test]
fn a_name_is_fifteen_bytes_of_any_kind() {
    let name = Comm::new(b"\xff\n0123456789abcdef");
    assert_eq!(name.bytes(), b"\xff\n0123456789abc");
    assert!(name.is(b"\xff\n0123456789abcdef"));
    assert!(!Comm::new(b"one").is(b"ones"));
}
