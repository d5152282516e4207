//! Opening of the stream on one CPU: groups of counters led by the kernel's own switch events.

use crate::attribute::{Measure, SWITCHES, bundle_fields, clock_fields, fields, sideband};
use crate::counter::open::OpenContext;
use crate::counter::reading::{Members, Read, WORDS};
use crate::counter::scale::Progress;
use crate::error::Errno;
use crate::event::{Event as Named, Topdown};
use crate::health::{Attempt, Judgement, Refusal, Scope, classify, no_descriptors};
use crate::plan::{Granularity, Stream};
use crate::ring::{DUMMY, Writers};
use crate::sys::{Attr, Event, Kernel, Place, Rate, SOFTWARE, Sampling, Sideband, Start};

/// `PERF_COUNT_SW_CPU_CLOCK`.
const CPU_CLOCK: u64 = 0;
/// `PERF_COUNT_SW_TASK_CLOCK`.
const TASK_CLOCK: u64 = 1;
/// `PERF_COUNT_SW_CONTEXT_SWITCHES`.
const CONTEXT_SWITCHES: u64 = 3;
/// `PERF_COUNT_SW_CGROUP_SWITCHES`. Linux 5.13.
const CGROUP_SWITCHES: u64 = 11;

/// Period of the records of the clock, in nanoseconds: the maximum delay of the attribution of counts to a task that never leaves its CPU.
const CLOCK_PERIOD: u64 = 100_000_000;

/// The same for a group that is multiplexed with others on the PMU. A count between two of its records can be attributed only if the group
/// was on the PMU all the time. A rotation lasts a few milliseconds (`perf_event_mux_interval_ms`).
const TURNS_CLOCK_PERIOD: u64 = 1_000_000;

/// A group that is open on a CPU. Its count of switches and its clock write into one ring.
#[derive(Debug)]
pub(super) struct Group<E> {
    /// The event `slots`, which leads a group of top-down metrics and must not write records. Without it, `switches` leads the group.
    slots: Option<E>,
    switches: E,
    clock: E,
    members: Vec<E>,
    /// For each event, in the order of the fields above: the numbers of the counters of the stream that it provides.
    pub counters: Vec<Vec<usize>>,
    /// For each event, in the same order: the counted event.
    opened: Vec<Attr>,
    /// Number of its sets that need the PMU.
    pub hardware_sets: usize,
    /// Whether its records are ordered.
    ordered: bool,
    /// The event that writes `PERF_RECORD_SWITCH` into its ring, on CPUs where samples of switches are missing.
    switch_records: Option<SwitchRecords<E>>,
    /// Its last reading.
    pub progress: Progress,
}

/// The outcome of enabling `PERF_RECORD_SWITCH`.
#[derive(Debug)]
enum SwitchRecords<E> {
    Enabled(E),
    Rejected,
}

impl<E> Group<E> {
    /// Number of the events that write records: the count of switches and the clock.
    pub(super) const OWN: usize = 2;

    pub(super) fn leader(&self) -> &E {
        self.slots.as_ref().unwrap_or(&self.switches)
    }

    /// Returns the position of the count of switches.
    pub(super) fn switches_position(&self) -> usize {
        usize::from(self.slots.is_some())
    }

    /// Returns the event that writes `PERF_RECORD_SWITCH` into its ring, if it is open.
    pub(super) fn switch_records(&self) -> Option<&E> {
        match &self.switch_records {
            Some(SwitchRecords::Enabled(event)) => Some(event),
            Some(SwitchRecords::Rejected) | None => None,
        }
    }

    /// Returns the unit of each member.
    pub(super) fn measures(&self, granularity: Granularity) -> Vec<Measure> {
        self.opened.iter().map(|attr| measure(attr, granularity)).collect()
    }

    fn counts_anything(&self) -> bool {
        self.counters.iter().any(|counters| !counters.is_empty())
    }

    /// Reports whether its readings contain no times, because it never waits for a PMU.
    pub(super) fn untimed(&self) -> bool {
        self.hardware_sets == 0
    }

    /// Returns the number of words in front of the values of a reading.
    pub(super) fn first_value(&self) -> usize {
        if self.untimed() { 1 } else { 3 }
    }

    /// Removes the members from index `keep` on, and the counters of a set.
    fn roll_back(&mut self, keep: usize, set: &[(usize, &Named)]) {
        let first = self.switches_position() + Self::OWN;
        self.members.truncate(keep);
        self.counters.truncate(first + keep);
        self.opened.truncate(first + keep);
        for counters in &mut self.counters {
            counters.retain(|counter| !set.iter().any(|(number, _)| number == counter));
        }
    }
}

impl<E: Event> Writers for Group<E> {
    type Event = E;

    fn holder(&self) -> &E {
        &self.switches
    }

    fn others(&self) -> impl Iterator<Item = &E> {
        // The members write no records of their own.
        std::iter::once(&self.clock).chain(self.switch_records())
    }

    fn descriptors(&self) -> usize {
        self.switches_position() + Self::OWN + self.members.len() + self.switch_records().iter().len()
    }

    fn start(&self) -> Result<(), Errno> {
        self.leader().enable()
    }
}

impl<E: Event> Group<E> {
    /// Reads the group. After its CPU has gone offline, the reading has no value for the clock.
    pub(super) fn read(&self, words: &mut [u64; WORDS]) -> Result<Read, Errno> {
        // Those behind the leader.
        let recording = Self::OWN - 1 + self.switches_position();
        Members { leader: self.leader(), recording, counting: &self.members }.read(words)
    }

    /// Enables `PERF_RECORD_SWITCH` in its ring, unless that was tried before.
    pub(super) fn enable_switch_records<K: Kernel<Event = E>>(
        &mut self,
        cpu: u32,
        means: &mut OpenContext<'_, K>,
    ) {
        if self.switch_records.is_some() {
            return;
        }
        let sideband = Sideband { switches: true, ..Sideband::default() };
        let sampling = Sampling { rate: Rate::Period(1), fields: SWITCHES, sideband, ordered: self.ordered };
        let attr = Attr::software(DUMMY, Some(sampling), Start::Later);
        let open = || {
            if !means.budget.has_room_for(1) {
                return Err(Errno::EMFILE);
            }
            let event = means.kernel.open(&attr, Place::Cpu(cpu), None)?;
            event.write_to(&self.switches)?;
            event.enable()?;
            Ok(event)
        };
        self.switch_records = Some(match open() {
            Ok(event) => {
                means.budget.take(1);
                tracing::info!(
                    cpu,
                    "enabled PERF_RECORD_SWITCH: the kernel writes no samples for some context switches of this CPU"
                );
                SwitchRecords::Enabled(event)
            }
            Err(errno) => {
                tracing::warn!(
                    cpu,
                    %errno,
                    "cannot enable PERF_RECORD_SWITCH: the kernel writes no samples for some context switches of this CPU, whose \
                     counts are `unrecorded`"
                );
                SwitchRecords::Rejected
            }
        });
    }
}

/// A counter that could not be opened on a CPU.
#[derive(Debug)]
pub(in crate::counter) struct Refused {
    pub cpu: u32,
    /// Its number in the stream; `None` = all counters, because the leader or the clock of a group could not be opened.
    pub counter: Option<usize>,
    pub refusal: Refusal,
}

/// The groups of one CPU, and the counters that are in none of them.
pub(super) type Opened<E> = (Vec<Group<E>>, Vec<Refused>);

/// Input for opening the stream on one CPU.
pub(super) struct Opener<'a, 'm, K> {
    pub means: &'a mut OpenContext<'m, K>,
    pub plan: &'a Stream,
    pub cpu: u32,
    pub spread: Spread,
    /// Number of bytes of records after which the reader of a ring is woken up.
    pub wake_up: usize,
}

/// Distribution of the hardware events of a CPU over groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// All in one group.
    Together,
    /// In as few groups as the kernel accepts.
    ByNeed,
    /// Each set in a group of its own: the kernel opened them together, but could not put them on the PMU.
    Each,
}

/// A member does not fit on the PMU together with the members that are already open.
#[derive(Debug)]
pub(super) struct DoesNotFit;

impl<'a, K: Kernel> Opener<'a, '_, K> {
    /// Opens every set without starting it. Software events are in one group, which comes first. It never waits for a PMU: it has a record
    /// of each switch and counts all the time, whatever else uses the PMU. Hardware events have groups of their own.
    ///
    /// # Errors
    /// When the sets do not fit into as few groups as `spread` requires. No event is open then.
    pub(super) fn open(&mut self) -> Result<Opened<K::Event>, DoesNotFit> {
        let (mut groups, mut refused): (Vec<Group<K::Event>>, Vec<Refused>) = (Vec::new(), Vec::new());
        for (hardware, counted) in self.parts() {
            let group = groups.iter_mut().rfind(|group| match self.spread {
                Spread::Together | Spread::ByNeed => hardware == (group.hardware_sets > 0),
                Spread::Each => !hardware && group.hardware_sets == 0,
            });
            if let Some(group) = group {
                match self.add(group, &counted, true, &mut refused) {
                    Ok(()) => {
                        group.hardware_sets += usize::from(hardware);
                        continue;
                    }
                    Err(DoesNotFit) if self.spread == Spread::Together => return Err(DoesNotFit),
                    Err(DoesNotFit) => {}
                }
            }
            match self.lead(groups.is_empty(), hardware, &counted) {
                Ok(mut group) => {
                    // In a group of its own, an event that does not fit is reported as a refusal.
                    let _fits = self.add(&mut group, &counted, false, &mut refused);
                    group.hardware_sets = usize::from(hardware);
                    // A group that counts nothing would cost a record at each switch.
                    if group.counts_anything() || groups.is_empty() && !hardware {
                        groups.push(group);
                    }
                }
                Err(refusal) => {
                    refused.push(Refused { cpu: self.cpu, counter: None, refusal });
                    break;
                }
            }
        }
        if let [only] = &*groups
            && !only.counts_anything()
        {
            groups.clear();
        }
        for group in &mut groups {
            group.progress = Progress::new(group.counters.len());
        }
        self.means.budget.take(groups.iter().map(Writers::descriptors).sum());
        Ok((groups, refused))
    }

    /// Returns the events to count on this CPU, with their numbers, and whether they need a PMU; the software events of all sets first, then
    /// top-down metrics, because their group can take in others. If there are only hardware events, a part without events comes first: its
    /// group records the current task while the other groups are off the PMU.
    fn parts(&self) -> Vec<(bool, Vec<(usize, &'a Named)>)> {
        let mut parts = Vec::new();
        for hardware in [false, true] {
            for (index, set) in self.plan.sets.iter().enumerate() {
                let numbered = (self.plan.first_of(index)..).zip(&set.events);
                let mine = |event: &Named| event.is_on(self.cpu) && event.kind.needs_pmu() == hardware;
                let counted: Vec<_> = numbered.filter(|(_, event)| mine(event)).collect();
                if !counted.is_empty() {
                    parts.push((hardware, counted));
                }
            }
        }
        parts.sort_by_key(|(hardware, counted)| (*hardware, slots_of(counted).is_none()));
        if let Some((true, _)) = parts.first() {
            parts.insert(0, (false, Vec::new()));
        }
        parts
    }

    /// Opens the count of switches and the clock of a group. `slots` among the `counted` events becomes its leader, if the kernel opens it. The clock of the first group of a CPU also writes sideband records.
    fn lead(
        &self,
        first: bool,
        hardware: bool,
        counted: &[(usize, &Named)],
    ) -> Result<Group<K::Event>, Refusal> {
        let config = switches(self.plan.granularity);
        let fields = bundle_fields(fields(self.plan), !hardware);
        let ordered = fields.time;
        let sampling = Sampling { rate: Rate::Period(1), fields, sideband: Sideband::default(), ordered };
        let wake_up = self.wake_up;
        let place = Place::Cpu(self.cpu);
        let leading = slots_of(counted).map(member);
        let slots = leading.as_ref().and_then(|attr| {
            // A refusal is reported when it is opened as a member.
            self.means.kernel.open(&Attr { start: Start::Later, ordered, ..attr.clone() }, place, None).ok()
        });
        let start = if slots.is_some() { Start::WithLeader } else { Start::Later };
        let attr = Attr { wake_up, ..Attr::software(config, Some(sampling), start) };
        let refuse = |errno| {
            let refusal =
                self.refusal(self.plan.granularity.leader(), Attempt::software(Scope::CPU), errno, false);
            Refusal { reason: no_stream(&refusal.reason), ..refusal }
        };
        if !self.means.budget.has_room_for(Group::<K::Event>::OWN + self.plan.width()) {
            return Err(self.no_room());
        }
        let switches = self.means.kernel.open(&attr, place, slots.as_ref()).map_err(refuse)?;
        let takes_turns = hardware && self.spread != Spread::Together;
        let sideband = if first { sideband(self.plan) } else { Sideband::default() };
        let period = if takes_turns { TURNS_CLOCK_PERIOD } else { CLOCK_PERIOD };
        let sampling =
            Sampling { rate: Rate::Period(period), fields: clock_fields(fields), sideband, ordered };
        let clock = Attr::software(CPU_CLOCK, Some(sampling), Start::WithLeader);
        let leader = slots.as_ref().unwrap_or(&switches);
        let clock = self.means.kernel.open(&clock, place, Some(leader)).map_err(refuse)?;
        let opened = leading.filter(|_| slots.is_some()).into_iter().chain(own(self.plan.granularity));
        let opened: Vec<Attr> = opened.collect();
        Ok(Group {
            slots,
            switches,
            clock,
            members: Vec::new(),
            counters: vec![Vec::new(); opened.len()],
            opened,
            hardware_sets: 0,
            ordered,
            switch_records: None,
            progress: Progress::new(0),
        })
    }

    /// Adds events of a set, with their numbers, to a group. If they `may_leave` and do not fit together with the open members, the group
    /// stays unchanged.
    fn add(
        &self,
        group: &mut Group<K::Event>,
        counted: &[(usize, &Named)],
        may_leave: bool,
        refused: &mut Vec<Refused>,
    ) -> Result<(), DoesNotFit> {
        let before = (group.members.len(), refused.len());
        for &(counter, event) in counted {
            let what = member(event);
            if let Some(there) = group.opened.iter().position(|opened| *opened == what)
                && let Some(counters) = group.counters.get_mut(there)
            {
                counters.push(counter);
                continue;
            }
            let attr = Attr { ordered: group.ordered, ..what.clone() };
            match self.means.kernel.open(&attr, Place::Cpu(self.cpu), Some(group.leader())) {
                Ok(member) => {
                    group.members.push(member);
                    group.counters.push(vec![counter]);
                    group.opened.push(what);
                }
                Err(Errno::EINVAL) if may_leave && event.kind.needs_pmu() => {
                    group.roll_back(before.0, counted);
                    refused.truncate(before.1);
                    return Err(DoesNotFit);
                }
                Err(errno) => {
                    // EINVAL means that the group is too large for the PMU, or that the event is invalid.
                    let alone = Attr { start: Start::Later, ..what };
                    let opens_alone = errno == Errno::EINVAL
                        && self.means.kernel.open(&alone, Place::Cpu(self.cpu), None).is_ok();
                    let refusal = self.refusal(&event.name, event.attempt(Scope::CPU), errno, opens_alone);
                    refused.push(Refused { cpu: self.cpu, counter: Some(counter), refusal });
                }
            }
        }
        Ok(())
    }

    fn refusal(&self, name: &str, attempt: Attempt, errno: Errno, opens_alone: bool) -> Refusal {
        let attempt = Attempt { core_pmu_present: self.means.core_pmu_present, opens_alone, ..attempt };
        classify(errno, &attempt, self.means.facts).refusal(
            &name.into(),
            format!("cpu {}", self.cpu),
            Some(errno),
        )
    }

    fn no_room(&self) -> Refusal {
        let judgement = no_descriptors(self.means.budget.limit);
        let judgement = Judgement { reason: no_stream(&judgement.reason), ..judgement };
        judgement.refusal(&self.plan.granularity.leader().into(), format!("cpu {}", self.cpu), None)
    }
}

/// Returns the reason why nothing is counted on a CPU, where the refused event is not one of the configuration.
pub(super) fn no_stream(reason: &str) -> String {
    format!("the switch stream could not be opened on this CPU: {reason}")
}

/// Returns the unit of an event.
fn measure(attr: &Attr, granularity: Granularity) -> Measure {
    let config = attr.selector.config[0];
    match attr.selector.kind {
        SOFTWARE if config == CPU_CLOCK || config == TASK_CLOCK => Measure::Time,
        SOFTWARE if config == CONTEXT_SWITCHES => Measure::Switches,
        SOFTWARE if config == CGROUP_SWITCHES && granularity == Granularity::Cgroup => {
            Measure::CgroupSwitches
        }
        _ => Measure::Other,
    }
}

/// Returns the software event that leads a group.
pub(super) fn switches(granularity: Granularity) -> u64 {
    match granularity {
        Granularity::Cgroup => CGROUP_SWITCHES,
        Granularity::Process => CONTEXT_SWITCHES,
    }
}

/// Returns the event that must lead the group of these events.
fn slots_of<'e>(counted: &[(usize, &'e Named)]) -> Option<&'e Named> {
    counted.iter().map(|(_, event)| *event).find(|event| event.topdown == Some(Topdown::Slots))
}

/// Returns the count of switches and the clock of a group.
pub(super) fn own(granularity: Granularity) -> [Attr; 2] {
    [switches(granularity), CPU_CLOCK].map(|config| Attr::software(config, None, Start::WithLeader))
}

/// Returns the counted event as a member of a group. Members with equal values are opened once.
pub(super) fn member(event: &Named) -> Attr {
    Attr::counting(event).of_member()
}
