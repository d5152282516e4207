//! Exports: the Prometheus formats of a [`Snapshot`](crate::metrics::Snapshot), profiler formats and images of a
//! [`Profile`](crate::profile::Profile), the HTTP server, and the push thread.
//!
//! ```text
//! Snapshot ─┬► prometheus::Encoder ─┬► gzip? ──┐
//!           ├► protobuf::Encoder ───┘          │
//!           ├► remote_write ───┐               │
//!           ├► otlp::metrics ──┤               │
//! Profile ───► otlp::profiles ─┴► push         │
//! Status ────► page, JSON ─────────────────────┼► http::Server
//! Timeline ──► timeline
//! SchedFact ─► timechart, trace_json
//! History ───► overview, JSON ─────────────────┤
//! Profile ─┬─► pprof ──────────────────────────┤
//!          ├─► folded ─► views ─► flamegraph ─┬► page ─┤
//!          └─► top, calls: text, JSON ──────┘────────┘
//! ```
//!
//! The encoders are pure; only [`http`] and [`push`] use sockets. [`http::Source`] is the interface to the rest of the program.

pub mod calls;
pub mod diff;
pub mod flamegraph;
pub mod folded;
mod gzip;
pub mod http;
pub mod incident;
mod markup;
pub mod negotiate;
pub mod otlp;
pub mod overview;
pub mod page;
pub mod pprof;
pub mod prometheus;
pub mod protobuf;
mod publication;
pub mod push;
pub mod query;
pub mod remote_write;
pub(crate) mod sums;
pub mod timechart;
pub mod timeline;
pub mod top;
pub mod trace_json;
mod views;

pub(crate) use crate::profile::numbered;
pub(crate) use publication::published;

#[cfg(test)]
mod tests;
