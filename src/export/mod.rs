//! Publishing: a [`Snapshot`](crate::metrics::Snapshot) in the formats of Prometheus, and the HTTP server that hands it
//! out.
//!
//! ```text
//! Snapshot ─┬► prometheus::Encoder ─┬► gzip? ──┐
//!           └► protobuf::Encoder ───┘          │
//! Status ────► page, JSON ─────────────────────┴► http::Server
//! ```
//!
//! The encoders are pure; [`http`] alone knows sockets. What it needs of the rest of the program is [`http::Source`].

pub mod http;
pub mod negotiate;
pub mod page;
pub mod prometheus;
pub mod protobuf;
pub mod status;
