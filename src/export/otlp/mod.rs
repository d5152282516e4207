//! OTLP, the format of OpenTelemetry: metrics, profiles and the exporter's log.
//!
//! ```text
//! Snapshot ─► metrics ──┬► Payload ─► push ─► grpc, http ─► receiver
//! Profiles ─► profiles ─┤
//! log ──────► logs ─────┘
//! ```
//!
//! [`metrics`] and [`profiles`] are pure encoders. They write the protobuf messages themselves, one pass over the data, for a
//! request of a hundred thousand series as a tree of objects takes many times the memory of its bytes; tests read what they
//! write with the generated types of `opentelemetry-proto`. `push` connects them to the machinery that pushes, by the
//! settings that [`settings`] finds in the configuration and in the environment.
//!
//! Format: <https://github.com/open-telemetry/opentelemetry-proto/tree/v1.11.0/opentelemetry/proto>.

pub mod attribute;
mod grpc;
mod http;
pub mod logs;
pub mod metrics;
pub mod profiles;
mod push;
pub mod resource;
mod response;
pub mod settings;

pub use super::push::{Encoded, Payload};
pub(super) use push::Otlp;
pub use settings::{Settings, Target};
