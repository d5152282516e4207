//! OTLP, the OpenTelemetry protocol: metrics, profiles, and the exporter's own log and spans.
//!
//! ```text
//! Snapshot ─► metrics ───────────────┬─► Payload ─► push ─► grpc, http ─► receiver
//! Profiles ─► profiles ──────────────┤
//! log ──────► logs ───► SDK ─► outlet ┤
//! Spans ────► traces ─► SDK ─► outlet ┘
//! ```
//!
//! [`metrics`] and [`profiles`] are pure encoders. They write the protobuf messages directly, in one pass over the data. An object tree for
//! a request of a hundred thousand series would need many times the memory of its bytes. Tests decode the result with the generated types
//! of `opentelemetry-proto`. The exporter's own [`logs`] and `traces` are few: the OpenTelemetry SDK and its crate `opentelemetry-otlp` encode
//! them, and `outlet` puts their requests into the same queues. `push` connects the encoders to the push machinery, with the [`settings`]
//! from the configuration and the environment.
//!
//! Format: <https://github.com/open-telemetry/opentelemetry-proto/tree/v1.11.0/opentelemetry/proto>.

pub mod attribute;
mod grpc;
mod http;
pub mod identity;
pub mod logs;
pub mod metrics;
mod outlet;
pub mod profiles;
mod push;
pub mod resource;
mod response;
pub mod settings;
mod traces;

pub use super::push::{Encoded, Payload};
pub(super) use push::Otlp;
pub use settings::{Settings, Target};
