//! What all connections of a server share, and the blocking threads that make their answers.

use std::io;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::cpu::RequestCpu;
use super::turns::Turns;
use super::{Limits, Source, Traffic};
use crate::budget::Share;
use crate::clock::Clock;

/// Pages that are made at the same time. More would compete with scrapes for the CPUs.
const PAGES: usize = 2;

/// Profiles that are encoded at the same time, likewise.
const ENCODED: usize = 2;

/// What all connections of a server share.
#[derive(Debug)]
pub(super) struct Shared<S> {
    pub(super) source: S,
    pub(super) traffic: Traffic,
    pub(super) clock: Clock,
    pub(super) limits: Limits,
    /// The memory for answers that are not sent yet.
    pub(super) memory: Share,
    /// Who may have a profile made.
    pub(super) turns: Turns,
    /// One for each profile that may be encoded at a time.
    pub(super) encoded: Arc<Semaphore>,
    /// One for each page that may be made at a time.
    pub(super) pages: Arc<Semaphore>,
}

impl<S: Source> Shared<S> {
    pub(super) fn new(source: S, traffic: Traffic, clock: Clock, limits: Limits, memory: Share) -> Self {
        let turns = Turns::new(limits.profiles);
        let [encoded, pages] = [ENCODED, PAGES].map(|permits| Arc::new(Semaphore::new(permits)));
        Self { source, traffic, clock, limits, memory, turns, encoded, pages }
    }
}

/// Makes something on a blocking thread, at the priority of ordinary processes, once there is a permit. The permit is kept
/// until it is made, also if the client goes away.
///
/// # Errors
/// It panicked, or the runtime ends.
pub(super) async fn aside<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    cpu: &RequestCpu,
    make: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let cpu = cpu.clone();
    let made = spawn_blocking(move || {
        let made = cpu.count_at_normal_priority(make);
        drop(permit);
        made
    });
    made.await.map_err(io::Error::other)
}
