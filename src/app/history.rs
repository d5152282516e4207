//! The thread that records the history, each collection as soon as it is published, and compares its figures with their past.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use tokio::runtime::Builder;
use tokio::sync::watch;

use super::baselines::Baselines;
use super::engine::Published;
use super::incidents::Incidents;
use super::observer::Observer;
use crate::anomaly::{Report, SharedReport, Watch};
use crate::budget::Share;
use crate::clock::Timestamp;
use crate::config;
use crate::history::{History, SharedHistory};

/// Part of the share of memory that what was learned may use: one in this number.
const LEARNED: usize = 8;

/// Starts the thread. It ends with the collection thread. The receiver is disconnected when it has ended, and what was learned is written.
///
/// # Errors
/// If the thread cannot be started.
pub(super) fn start(
    mut published: watch::Receiver<Arc<Published>>,
    share: Share,
    report: SharedReport,
    incidents: Incidents,
    mut observer: Observer,
    cpu_model: Option<String>,
) -> io::Result<(SharedHistory, Receiver<Infallible>)> {
    let history = SharedHistory::default();
    let mut settings = published.borrow().history;
    history.replace(created(settings));
    let recorded = history.clone();
    let runtime = Builder::new_current_thread().build()?;
    let (running, ended) = channel();
    thread::Builder::new().name("history".into()).spawn(move || {
        let (account, mut watch) = (share.account(), Watch::on(cpu_model));
        let (mut baselines, mut now) = (Baselines::new(running), Timestamp::default());
        runtime.block_on(async {
            while published.changed().await.is_ok() {
                let last = Arc::clone(&published.borrow_and_update());
                if std::mem::replace(&mut settings, last.history) != last.history {
                    recorded.replace(created(settings));
                }
                let Some(snapshot) = &last.snapshot else { continue };
                let limit = usize::try_from(share.limit()).unwrap_or(usize::MAX);
                let bytes = recorded.change(|history| {
                    history.set_additional(&last.anomalies.additional);
                    history.set_limit(limit.saturating_sub(watch.bytes()));
                    history.observe(snapshot)
                });
                watch.set_limit(limit / LEARNED);
                account.set((bytes.unwrap_or(0) + watch.bytes()) as u64);
                watch.set(&last.anomalies.entries);
                watch.set_specifications(&last.anomalies.specifications);
                now = snapshot.taken();
                baselines.follow(&last.anomalies.directory, &mut watch, now);
                if !watch.is_due(now) {
                    continue;
                }
                let observed = observer.observe();
                match recorded.read(|history| watch.judge(history, &observed)) {
                    Some(Some(judged)) => {
                        judged.log();
                        incidents.follow(&judged);
                        report.replace(judged);
                    }
                    Some(None) => {}
                    // Without a history, nothing is known.
                    None => report.replace(Report::default()),
                }
            }
        });
        baselines.finish(&mut watch, now);
    })?;
    Ok((history, ended))
}

/// Creates an empty history with these settings.
fn created(settings: config::History) -> Option<History> {
    let milliseconds = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    settings.is_kept().then(|| History::new(milliseconds(settings.kept), milliseconds(settings.step), 0))
}
