//! The rest of the program, as what pushes sees it.

use std::sync::Arc;

use super::state::Board;
use crate::budget::Share;
use crate::clock::{Clock, Timestamp};
use crate::export::otlp::attribute::Resource;
use crate::export::otlp::logs::Switch;

/// The rest of the program, as the thread that pushes and the formats see it.
#[derive(Debug)]
pub struct Surroundings {
    /// Who sends: attributes with the names that OpenTelemetry's conventions give them.
    pub resource: Resource,
    /// The account of pushes.
    pub board: Arc<Board>,
    /// The exporter's own log, for formats that carry it.
    pub log: Switch,
    /// The time.
    pub clock: Clock,
    /// When the process began.
    pub began: Timestamp,
    /// The memory for all queues.
    pub memory: Share,
}
