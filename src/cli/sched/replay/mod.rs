//! `perf-exporter sched replay`: does again what the threads of the target did.

mod run;
mod workload;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::args::ReplayArgs;
use super::follow;
use super::machine::Machine;
use crate::cli::follow::{Listener, StreamItem};
use crate::cli::observe::{Ending, Failure, Host, Wait, measure};
use crate::cli::{print_note, put};
use crate::clock::Clock;
use crate::sys::Kernel;
use run::Replay;
use workload::Workload;

const EVENTS: [&str; 3] = ["sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup_new"];

/// Traces, and then replays.
pub(super) fn run<K: Kernel>(args: &ReplayArgs, host: &Host<'_, K>) -> Result<Ending, Failure> {
    let followed = follow(&args.follow, (&EVENTS, false), host, |machine| Recorder {
        machine,
        workload: Workload::default(),
    })?;
    followed.report_missing()?;
    let workload = followed.listener.workload;
    if workload.omitted() > 0 {
        print_note(&format!(
            "{} steps are not replayed, because the workload is too large",
            workload.omitted()
        ));
    }
    Ok(replay(workload, args.repeat, host.clock.clone())?.unwrap_or(followed.ending))
}

/// Collects the workload.
struct Recorder {
    machine: Machine,
    workload: Workload,
}

impl Listener for Recorder {
    fn handle(&mut self, item: &StreamItem<'_>) {
        let workload = &mut self.workload;
        if matches!(item, StreamItem::Gap) {
            workload.mark_gap();
        }
        self.machine.handle(item, &mut |seen| workload.take(&seen));
    }
}

/// Replays in a thread of its own, so that a signal ends the replay. Returns how it ended, if by a signal.
fn replay(workload: Workload, repeat: u32, clock: Clock) -> Result<Option<Ending>, Failure> {
    measure(async |signals| {
        let stopped = Arc::new(AtomicBool::new(false));
        let replay = Replay::new(workload, repeat, clock, Arc::clone(&stopped));
        let mut running = tokio::task::spawn_blocking(move || replay.run(put));
        let mut wait = Wait::new(signals, None, Vec::new(), None, None);
        let (result, ending) = tokio::select! {
            result = &mut running => (result, None),
            happened = wait.next() => {
                stopped.store(true, Ordering::Relaxed);
                let result = running.await;
                (result, Some(wait.end(happened).await))
            }
        };
        result.map_err(|error| Failure::Failed(error.into()))??;
        Ok(ending)
    })
}
