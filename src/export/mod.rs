//! Publishing: a [`Snapshot`](crate::metrics::Snapshot) in the formats of Prometheus, a
//! [`Profile`](crate::profile::Profile) as what profilers read and as pictures, the HTTP server that hands them out, and the
//! thread that pushes them.
//!
//! ```text
//! Snapshot ─┬► prometheus::Encoder ─┬► gzip? ──┐
//!           ├► protobuf::Encoder ───┘          │
//!           ├► remote_write ───┐               │
//!           ├► otlp::metrics ──┤               │
//! Profile ───► otlp::profiles ─┴► push         │
//! Status ────► page, JSON ─────────────────────┼► http::Server
//! Profile ─┬─► pprof ──────────────────────────┤
//!          ├─► folded ─► flamegraph ─┬► page ──┤
//!          └─► top: text, JSON ──────┘─────────┘
//! ```
//!
//! The encoders are pure; [`http`] and [`push`] alone know sockets. What it needs of the rest of the program is [`http::Source`].

pub mod flamegraph;
pub mod folded;
mod gzip;
pub mod http;
pub mod negotiate;
mod numbered;
pub mod otlp;
pub mod page;
pub mod pprof;
pub mod prometheus;
pub mod protobuf;
pub mod push;
pub mod query;
pub mod remote_write;
pub mod top;
