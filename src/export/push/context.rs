//! Parts of the program that the push thread uses.

use std::sync::Arc;

use super::state::Board;
use crate::budget::Share;
use crate::clock::{Clock, Timestamp};
use crate::export::otlp::attribute::Resource;
use crate::export::otlp::logs::Switch;
use crate::span::Spans;

/// Parts of the program that the push thread and the formats use.
#[derive(Debug)]
pub struct PushContext {
    /// Identity of the sender: attributes with names of the OpenTelemetry semantic conventions.
    pub resource: Resource,
    /// Accounting of pushes.
    pub board: Arc<Board>,
    /// The exporter's own log, for formats that push it.
    pub log: Switch,
    /// Spans of pushes, and all spans for formats that push them.
    pub spans: Spans,
    /// The clock.
    pub clock: Clock,
    /// Start time of the process.
    pub began: Timestamp,
    /// Memory share of all queues.
    pub memory: Share,
}
