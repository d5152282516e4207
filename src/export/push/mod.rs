//! Pushing by OTLP: what was encoded waits in a bounded queue for each signal until a receiver has taken it.
//!
//! ```text
//! Feed ─► pump ─► Payload ─► Queue ─► sender ─► Client (gRPC, HTTP) ─► receiver
//!                   ▲                   └► Board ─► metrics, /status
//! log ─► logs ──────┘
//! ```
//!
//! All of it runs on a thread of its own with a runtime of its own: neither a receiver that is slow nor the compression of a
//! large request is felt by those who scrape, and nothing here is ever waited for by a collection. What a receiver does not
//! take in time is dropped, the oldest first, and counted.
//!
//! Rules: <https://opentelemetry.io/docs/specs/otlp/>.

mod client;
mod grpc;
mod http;
pub mod logs;
mod outcome;
mod pump;
mod queue;
mod retry;
mod sender;
pub mod settings;
mod state;
mod thread;

pub use settings::{Settings, Target};
pub use state::Board;
pub use thread::{Feed, Pusher, Surroundings};
