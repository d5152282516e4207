//! `perf-exporter sched timechart`: an SVG drawing of when CPUs and threads ran, waited and were blocked.

use super::args::TimechartArgs;
use super::follow;
use super::machine::{Machine, Observation};
use crate::cli::follow::{Listener, Output, StreamItem};
use crate::cli::observe::{Ending, Failure, Host};
use crate::cli::print_note;
use crate::export::timechart::Timechart;
use crate::sys::Kernel;

const EVENTS: [&str; 3] = ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"];

/// Traces, and writes the file at the end.
pub(super) fn run<K: Kernel>(args: &TimechartArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let mut output = Output::open("-o", Some(&args.output))?;
    let followed = follow(&args.follow, (&EVENTS, false), host, |machine| Recorder {
        machine,
        chart: Timechart::default(),
    })?;
    followed.report_missing()?;
    let chart = followed.listener.chart;
    if chart.omitted() > 0 {
        print_note(&format!("{} runs are not drawn, because there are too many", chart.omitted()));
    }
    output.put(&chart.svg(followed.time, args.width, args.proc_num as usize))?;
    Ok(followed.ending)
}

/// Collects runs.
struct Recorder {
    machine: Machine,
    chart: Timechart,
}

impl Listener for Recorder {
    fn handle(&mut self, item: &StreamItem<'_>) {
        let chart = &mut self.chart;
        self.machine.handle(item, &mut |seen| {
            if let Observation::Fact { thread, fact } = &seen {
                chart.add(thread, fact);
            }
        });
    }
}
