//! Runs, waits for a CPU and blocked times of CPUs and threads as an SVG image over time, like that of `perf timechart`.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::markup::escaped;
use crate::error::printable;
use crate::sched::{PrevState, SchedFact, SwitchIn, SwitchOut, Thread};

/// Maximum number of slices in memory.
const MAX_SLICES: usize = 1 << 19;

/// Position of the time axis, and width of the names beside the rows, in pixels.
const TOP: u32 = 60;
const NAMES: u32 = 190;
const MARGIN: u32 = 20;

/// Height of a row, and of the marks in it, in pixels.
const ROW: u32 = 20;
const MARK: u32 = 14;

/// Distance in pixels below which slices of the same kind are drawn as one.
const NEAR: f64 = 0.3;

const STYLE: &str = "text{font:12px sans-serif;fill:#222}.h{font-weight:bold}.t{fill:#777;font-size:11px}\
    .l{fill:#fff;font-size:10px;pointer-events:none}.a{stroke:#ddd}.b{fill:#f4f4f4}\
    .run{fill:#2f6fb7}.wait{fill:#e8b400}.blocked{fill:#c9302c}";

/// What a thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Run,
    /// Waited for a CPU.
    Wait,
    /// Uninterruptible sleep.
    Blocked,
}

impl Kind {
    fn class(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Wait => "wait",
            Self::Blocked => "blocked",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Run => "runs",
            Self::Wait => "waits for a CPU",
            Self::Blocked => "is blocked",
        }
    }
}

/// A time of a thread, in nanoseconds.
#[derive(Debug, Clone, Copy)]
struct Slice {
    kind: Kind,
    from: u64,
    until: u64,
    cpu: u32,
    thread: usize,
}

/// What is drawn. Threads with a reused ID are separate.
#[derive(Debug, Default)]
pub struct Timechart {
    threads: Vec<Thread>,
    by_tid: FxHashMap<u32, usize>,
    slices: Vec<Slice>,
    omitted: u64,
}

impl Timechart {
    /// Adds a fact about a thread.
    pub fn add(&mut self, thread: &Thread, fact: &SchedFact) {
        if thread.tid == 0 {
            return;
        }
        match fact {
            SchedFact::SwitchIn(switch_in) => self.switch_in(thread, switch_in),
            SchedFact::SwitchOut(switch_out) => self.switch_out(thread, switch_out),
            SchedFact::Ran(_) | SchedFact::Migrated => {}
        }
    }

    /// Returns the number of slices that were omitted, because there were too many.
    pub fn omitted(&self) -> u64 {
        self.omitted
    }

    fn switch_in(&mut self, thread: &Thread, switch_in: &SwitchIn) {
        let index = self.index(thread);
        let SwitchIn { time, cpu, delay, wait, .. } = *switch_in;
        let runnable = time.saturating_sub(delay.unwrap_or_default());
        if let Some((PrevState::Blocked, off)) = wait {
            self.push(Slice {
                kind: Kind::Blocked,
                from: time.saturating_sub(off),
                until: runnable,
                cpu,
                thread: index,
            });
        }
        self.push(Slice { kind: Kind::Wait, from: runnable, until: time, cpu, thread: index });
    }

    fn switch_out(&mut self, thread: &Thread, switch_out: &SwitchOut) {
        let index = self.index(thread);
        if let Some(switch_in) = switch_out.switch_in {
            let (from, until) = (switch_in.time, switch_out.time);
            self.push(Slice { kind: Kind::Run, from, until, cpu: switch_out.cpu, thread: index });
        }
        if switch_out.prev_state == PrevState::Dead {
            self.by_tid.remove(&thread.tid);
        }
    }

    fn index(&mut self, thread: &Thread) -> usize {
        let index = *self.by_tid.entry(thread.tid).or_insert_with(|| {
            self.threads.push(*thread);
            self.threads.len() - 1
        });
        // The name of a thread changes when it executes a program.
        if let Some(known) = self.threads.get_mut(index) {
            *known = *thread;
        }
        index
    }

    fn push(&mut self, slice: Slice) {
        if slice.from >= slice.until {
            return;
        }
        if self.slices.len() >= MAX_SLICES {
            self.omitted += 1;
            return;
        }
        self.slices.push(slice);
    }

    /// Returns the image of a time, with a row for each CPU and for the `tasks` threads that ran longest.
    pub fn svg(&self, (begun, ended): (u64, u64), width: u32, tasks: usize) -> String {
        let mut cpus: BTreeMap<u32, Vec<Slice>> = BTreeMap::new();
        let mut times = vec![0u64; self.threads.len()];
        let mut of_threads: FxHashMap<usize, Vec<Slice>> = FxHashMap::default();
        for slice in &self.slices {
            of_threads.entry(slice.thread).or_default().push(*slice);
            if slice.kind == Kind::Run {
                cpus.entry(slice.cpu).or_default().push(*slice);
                if let Some(time) = times.get_mut(slice.thread) {
                    *time += slice.until - slice.from;
                }
            }
        }
        let mut busiest: Vec<(u64, usize)> =
            times.into_iter().enumerate().map(|(index, time)| (time, index)).collect();
        busiest.sort_unstable_by(|a, b| b.cmp(a));
        let more = busiest.len().saturating_sub(tasks);
        busiest.truncate(tasks);
        // In the order in which they appeared.
        busiest.sort_unstable_by_key(|(_, index)| *index);
        let scale = Scale::new((begun, ended), width);
        let rows = cpus.len() as u32 + busiest.len() as u32 + 2 + u32::from(more > 0);
        let mut drawing = Drawing { text: head(&scale, width, rows), scale, threads: &self.threads, y: TOP };
        drawing.heading("CPUs");
        for (cpu, slices) in cpus {
            drawing.row(&format!("CPU {cpu}"), slices, true);
        }
        drawing.heading("Threads");
        for (_, index) in busiest {
            let name = self.threads.get(index).map_or_else(String::new, name);
            drawing.row(&name, of_threads.remove(&index).unwrap_or_default(), false);
        }
        if more > 0 {
            drawing.heading(&format!("{more} more threads ran for a shorter time"));
        }
        drawing.text.push_str("</svg>\n");
        drawing.text
    }
}

fn name(thread: &Thread) -> String {
    let comm = printable(&String::from_utf8_lossy(thread.comm.bytes()));
    if thread.pid == thread.tid || thread.pid == 0 {
        format!("{comm}[{}]", thread.tid)
    } else {
        format!("{comm}[{}/{}]", thread.tid, thread.pid)
    }
}

/// Positions of times.
#[derive(Debug, Clone, Copy)]
struct Scale {
    begun: u64,
    ended: u64,
    pixels_per_nanosecond: f64,
}

impl Scale {
    fn new((begun, ended): (u64, u64), width: u32) -> Self {
        let space = f64::from(width - NAMES - MARGIN);
        Self { begun, ended, pixels_per_nanosecond: space / (ended.saturating_sub(begun).max(1)) as f64 }
    }

    fn x(&self, time: u64) -> f64 {
        let time = time.clamp(self.begun, self.ended) - self.begun;
        f64::from(NAMES) + time as f64 * self.pixels_per_nanosecond
    }

    /// Returns the distance of the marks of the time axis: 1, 2 or 5 times a power of ten, at least 80 pixels.
    fn step(&self) -> u64 {
        let least = 80.0 / self.pixels_per_nanosecond;
        let powers = (0..19).map(|power| 10u64.pow(power));
        let steps = powers.flat_map(|power| [power, power.saturating_mul(2), power.saturating_mul(5)]);
        steps.into_iter().find(|step| *step as f64 >= least).unwrap_or(u64::MAX)
    }
}

/// The begin of the image: title, legend and time axis.
fn head(scale: &Scale, width: u32, rows: u32) -> String {
    let bottom = TOP + rows * ROW;
    let height = bottom + MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text class=\"h\" x=\"10\" y=\"18\">perf-exporter sched timechart: {} from {} s of CLOCK_MONOTONIC</text>\n",
        duration(scale.ended.saturating_sub(scale.begun)),
        seconds(scale.begun)
    );
    for (x, kind) in [(10, Kind::Run), (110, Kind::Wait), (270, Kind::Blocked)] {
        text.push_str(&format!(
            "<rect class=\"{}\" x=\"{x}\" y=\"26\" width=\"12\" height=\"12\"/><text x=\"{}\" y=\"36\">{}</text>\n",
            kind.class(),
            x + 17,
            kind.words()
        ));
    }
    let step = scale.step();
    let mut time = 0;
    while let Some(at) = scale.begun.checked_add(time).filter(|at| *at <= scale.ended) {
        let x = scale.x(at);
        text.push_str(&format!(
            "<line class=\"a\" x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{bottom}\"/><text class=\"t\" x=\"{x:.1}\" y=\"{}\">{}</text>\n",
            TOP - 4,
            duration(time)
        ));
        let Some(next) = time.checked_add(step) else { break };
        time = next;
    }
    text
}

/// The image that is drawn.
struct Drawing<'t> {
    text: String,
    scale: Scale,
    threads: &'t [Thread],
    /// Top of the next row.
    y: u32,
}

impl Drawing<'_> {
    fn heading(&mut self, text: &str) {
        self.text.push_str(&format!("<text class=\"h\" x=\"10\" y=\"{}\">{text}</text>\n", self.y + 14));
        self.y += ROW;
    }

    /// Draws the slices of a row, in order of time. With `names`, wide marks contain the thread.
    fn row(&mut self, label: &str, mut slices: Vec<Slice>, names: bool) {
        slices.sort_unstable_by_key(|slice| slice.from);
        let y = self.y;
        self.text.push_str(&format!(
            "<text x=\"16\" y=\"{}\">{}</text><rect class=\"b\" x=\"{NAMES}\" y=\"{}\" width=\"{:.1}\" height=\"{MARK}\"/>\n",
            y + 14,
            escaped(label),
            y + 3,
            self.scale.x(self.scale.ended) - f64::from(NAMES)
        ));
        let mut marks = slices
            .into_iter()
            .filter(|slice| slice.until > self.scale.begun && slice.from < self.scale.ended);
        let Some(first) = marks.next() else {
            self.y += ROW;
            return;
        };
        let mut text = String::new();
        let mut mark = Mark::of(first);
        for slice in marks {
            if !mark.extend(&slice, &self.scale) {
                self.mark(&mark, names, &mut text);
                mark = Mark::of(slice);
            }
        }
        self.mark(&mark, names, &mut text);
        self.text.push_str(&text);
        self.y += ROW;
    }

    fn mark(&self, Mark { slice, number, time }: &Mark, names: bool, text: &mut String) {
        let (x, end) = (self.scale.x(slice.from), self.scale.x(slice.until));
        let width = (end - x).max(NEAR);
        let thread = self.threads.get(slice.thread).map_or_else(String::new, name);
        let words = slice.kind.words();
        let title = match number {
            1 => format!(
                "{thread} {words} for {} at {} s on CPU {}",
                duration(*time),
                seconds(slice.from),
                slice.cpu
            ),
            number => format!("{number} times: {} in {}", words, duration(*time)),
        };
        text.push_str(&format!(
            "<rect class=\"{}\" x=\"{x:.2}\" y=\"{}\" width=\"{width:.2}\" height=\"{MARK}\"><title>{}</title></rect>\n",
            slice.kind.class(),
            self.y + 3,
            escaped(&title)
        ));
        let space = ((width - 6.0) / 6.0).max(0.0) as usize;
        if names && *number == 1 && space >= 4 {
            let shown: String = thread.chars().take(space).collect();
            text.push_str(&format!(
                "<text class=\"l\" x=\"{:.2}\" y=\"{}\">{}</text>\n",
                x + 3.0,
                self.y + 14,
                escaped(&shown)
            ));
        }
    }
}

/// One mark for slices of the same kind that are too near to each other to be seen.
struct Mark {
    slice: Slice,
    number: u64,
    /// Sum of the slices, in nanoseconds.
    time: u64,
}

impl Mark {
    fn of(slice: Slice) -> Self {
        Self { slice, number: 1, time: slice.until - slice.from }
    }

    /// Adds a slice, unless it has its own place.
    fn extend(&mut self, slice: &Slice, scale: &Scale) -> bool {
        let narrow = |slice: &Slice| scale.x(slice.until) - scale.x(slice.from) < 2.0 * NEAR;
        let near = scale.x(slice.from) - scale.x(self.slice.until) < NEAR;
        if slice.kind != self.slice.kind
            || !near
            || !(narrow(slice) && (self.number > 1 || narrow(&self.slice)))
        {
            return false;
        }
        self.slice.until = self.slice.until.max(slice.until);
        self.number += 1;
        self.time += slice.until - slice.from;
        true
    }
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{:06}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000 / 1000)
}

/// Formats nanoseconds with the largest unit in which the number is at least one.
fn duration(nanoseconds: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1000, "µs")];
    match UNITS.iter().find(|(unit, _)| nanoseconds >= *unit) {
        Some((unit, word)) => {
            let number = format!("{:.3}", nanoseconds as f64 / *unit as f64);
            format!("{} {word}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        None => format!("{nanoseconds} ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Comm;

    fn thread(tid: u32, name: &str) -> Thread {
        Thread { tid, pid: 7, comm: Comm::new(name.as_bytes()), ..Thread::default() }
    }

    fn ran(chart: &mut Timechart, thread: &Thread, (from, until): (u64, u64), off: (PrevState, u64)) {
        let switch_in = SwitchIn {
            time: from,
            cpu: thread.tid % 2,
            delay: Some(100_000),
            wait: Some(off),
            migrated: None,
        };
        chart.add(thread, &SchedFact::SwitchIn(switch_in));
        let (prev_state, next) = (PrevState::Sleeping, Thread::default());
        let out = SwitchOut { time: until, cpu: switch_in.cpu, switch_in: Some(switch_in), prev_state, next };
        chart.add(thread, &SchedFact::SwitchOut(out));
    }

    #[test]
    fn the_image_is_as_recorded() {
        let mut chart = Timechart::default();
        let (web, hostile, brief) = (thread(7, "web"), thread(8, "</svg>\x1b["), thread(9, "brief"));
        ran(&mut chart, &web, (1_000_000, 5_000_000), (PrevState::Sleeping, 500_000));
        ran(&mut chart, &hostile, (2_000_000, 3_000_000), (PrevState::Blocked, 900_000));
        ran(&mut chart, &brief, (3_000_000, 3_100_000), (PrevState::Sleeping, 500_000));
        // Too near to each other to be seen.
        for at in [7_000_000, 7_002_000, 7_004_000] {
            ran(&mut chart, &hostile, (at, at + 1000), (PrevState::Preempted, 100));
        }
        ran(&mut chart, &Thread::default(), (0, 9_000_000), (PrevState::Preempted, 0));
        let svg = chart.svg((0, 10_000_000), 800, 2);
        assert!(!svg.contains("</svg>\u{1b}") && svg.matches("</svg>").count() == 1, "{svg}");
        insta::assert_snapshot!(svg);
    }

    #[test]
    fn durations_have_the_largest_unit() {
        for (nanoseconds, text) in
            [(0, "0 ns"), (999, "999 ns"), (1500, "1.5 µs"), (20_000_000, "20 ms"), (61_000_000_000, "61 s")]
        {
            assert_eq!(duration(nanoseconds), text);
        }
    }

    #[test]
    fn marks_of_the_time_axis_are_round_numbers() {
        for (time, width, step) in
            [(10_000_000, 1010, 1_000_000), (1_000_000_000, 1010, 100_000_000), (0, 400, 1)]
        {
            assert_eq!(Scale::new((5, 5 + time), width).step(), step, "{time}");
        }
    }
}
