//! Users of the PMU beside the exporter, each with events on every CPU: a watchdog, `perf stat`, `perf record`, `perf top`, and a
//! second exporter.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use perf_exporter::event::{Modifiers, Selector};
use perf_exporter::host::{Facts, Roots, read_text};
use perf_exporter::sys::live::{Live, LiveEvent};
use perf_exporter::sys::{Attr, Event, Fields, Kernel, Place, Rate, Sampling, Sideband, Start};

use crate::support::collector::RunningCollector;

/// `PERF_TYPE_HARDWARE`.
const HARDWARE: u32 = 0;

/// Cycles and instructions, as a group of `perf stat` has them. Each privilege level is an event of its own.
pub(crate) const PERF_STAT: [(u64, &str); 6] = [(0, ""), (1, ""), (0, "u"), (1, "u"), (0, "k"), (1, "k")];

/// Pages of a ring. With no reader it runs full, and the counter goes on to interrupt.
const PAGES: usize = 64;

/// A group on one CPU, with the ring of its leader.
struct Group {
    first: (u64, &'static str),
    events: Vec<LiveEvent>,
    pinned: bool,
    _ring: Option<<LiveEvent as Event>::Ring>,
}

/// All of them. They stop when the value is dropped.
#[derive(Default)]
pub(crate) struct Users {
    groups: Vec<Group>,
    exporters: Vec<RunningCollector>,
    programs: Vec<Child>,
    _sample_rate: SampleRate,
}

/// `kernel.perf_event_max_sample_rate`. The kernel lowers it where samples take long, as in the emulator, and then throttles all who
/// sample. Dropping the value restores it.
pub(crate) struct SampleRate {
    highest: String,
    /// `kernel.perf_cpu_time_max_percent`, the part of the time that samples may take before the kernel lowers the rate.
    percent: String,
}

impl SampleRate {
    const HIGHEST: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    const PERCENT: &str = "/proc/sys/kernel/perf_cpu_time_max_percent";

    /// Sets the rate to the kernel's default, which it then does not lower. A rate that tests before this one have lowered to one sample in
    /// a tick throttles even a hundred samples per second, because the emulator reports some overflows late.
    pub(crate) fn steady() -> Self {
        let before = Self::default();
        fs::write(Self::HIGHEST, "100000").unwrap();
        fs::write(Self::PERCENT, "100").unwrap();
        before
    }
}

impl Default for SampleRate {
    fn default() -> Self {
        let [highest, percent] =
            [Self::HIGHEST, Self::PERCENT].map(|file| read_text(Path::new(file)).unwrap());
        Self { highest, percent }
    }
}

impl Drop for SampleRate {
    fn drop(&mut self) {
        // In this order: while the rate is not lowered, the kernel refuses to change it.
        fs::write(Self::PERCENT, &self.percent).unwrap();
        fs::write(Self::HIGHEST, &self.highest).unwrap();
    }
}

impl Users {
    /// Counts a group on each CPU: each event by its number and the level it counts (`u`, `k` or both).
    pub(crate) fn count(self, events: &[(u64, &'static str)], pinned: bool) -> Self {
        self.open(events, pinned, None, false)
    }

    /// Counts each event on each CPU in a group of its own.
    pub(crate) fn count_apart(self, events: &[(u64, &'static str)]) -> Self {
        events.iter().fold(self, |users, event| users.count(&[*event], false))
    }

    /// Samples cycles on each CPU, into a ring or with none, where the counter interrupts all the same.
    pub(crate) fn sample(self, rate: Rate, ring: bool) -> Self {
        let fields = Fields { identifier: true, ip: true, tid: true, time: true, ..Fields::default() };
        let sampling = Sampling { rate, fields, sideband: Sideband::default(), ordered: false };
        self.open(&[(0, "")], false, Some(sampling), ring)
    }

    /// A second exporter with these entries, for each CPU and each cgroup.
    pub(crate) fn export(mut self, entries: &str) -> Self {
        let exporter = RunningCollector::of(&format!(
            "counters: {entries}\ncgroups: {{include: [\"/**\"], exclude: [], attribution: stream}}\n"
        ));
        assert_eq!(exporter.refusals(), [""; 0]);
        self.exporters.push(exporter);
        self
    }

    /// The program `perf`, which runs until the value is dropped.
    pub(crate) fn run(mut self, perf: &str, arguments: &str) -> Self {
        let mut command = Command::new(perf);
        command.args(arguments.split(' ')).stdin(Stdio::null()).stdout(Stdio::null());
        self.programs.push(command.spawn().unwrap());
        self
    }

    /// Every group was on the PMU and counted, a pinned one all of the time.
    pub(crate) fn assert_counted(&self) {
        for Group { events, pinned, .. } in &self.groups {
            let mut words = [0; 16];
            let read = events[0].read(&mut words).unwrap();
            let [_, enabled, running, values @ ..] = &words[..read] else {
                panic!("a group of {} of another user has no place on the PMU", events.len());
            };
            assert!(values.iter().all(|&value| value > 0), "another user counted {values:?}");
            assert!(
                running <= enabled && (!pinned || running * 100 > enabled * 99),
                "{running} of {enabled}"
            );
        }
    }

    /// What pinned groups of one event counted on all CPUs, and for how many nanoseconds; `None` without such a group.
    pub(crate) fn pinned(&self, event: (u64, &str)) -> Option<[u64; 2]> {
        let of_event = self.groups.iter().filter(|group| group.pinned && group.first == event);
        let counts = of_event.map(|group| {
            let mut words = [0; 4];
            group.events[0].read(&mut words).unwrap();
            [words[3], words[1]]
        });
        counts.reduce(|sum, more| [sum[0] + more[0], sum[1] + more[1]])
    }

    fn open(
        mut self,
        events: &[(u64, &'static str)],
        pinned: bool,
        sampling: Option<Sampling>,
        ring: bool,
    ) -> Self {
        for cpu in Facts::read(&Roots::default()).online.iter() {
            let mut group: Vec<LiveEvent> = Vec::new();
            for &(number, level) in events {
                let modifiers = Modifiers {
                    exclude_user: level == "k",
                    exclude_kernel: level == "u",
                    pinned,
                    ..Modifiers::default()
                };
                let selector = Selector { kind: HARDWARE, config: [number, 0, 0, 0] };
                let attr = Attr { selector, modifiers, ..Attr::software(0, sampling, Start::Later) };
                let attr = if group.is_empty() { attr } else { attr.of_member() };
                group.push(Live.open(&attr, Place::Cpu(cpu), group.first()).unwrap());
            }
            let ring = ring.then(|| group[0].map(PAGES).unwrap());
            group[0].enable().unwrap();
            self.groups.push(Group { first: events[0], events: group, pinned, _ring: ring });
        }
        self
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // It may have ended already, by itself.
            drop(program.kill());
            drop(program.wait());
        }
    }
}
