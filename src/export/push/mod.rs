//! Push export: requests are queued per signal and format, in bounded queues, until the receiver has accepted them.
//!
//! ```text
//! Feed ─► pump ─► encode ─► Payload ─► Queue ─► sender ─► Client ─► Transport ─► receiver
//!                                                 └► Board ─► metrics, /status
//! ```
//!
//! Everything runs on a separate thread with its own runtime. Slow receivers and the compression of large requests therefore do not delay
//! scrapes, and no collection waits for a push. Requests that are not accepted in time are dropped, oldest first, and counted.
//!
//! Each format implements the encoding, sending and evaluation of requests (`format`). This module refers to formats only in the list in
//! `formats`.

mod context;
mod format;
mod formats;
pub(in crate::export) mod http;
mod outcome;
mod payload;
mod producer;
mod queue;
mod retry;
mod route;
mod sender;
mod span;
mod start;
mod state;
mod thread;

pub use context::PushContext;
pub(in crate::export) use format::Format;
pub use formats::Settings;
pub(in crate::export) use outcome::Outcome;
pub use payload::{Encoded, Payload};
pub use producer::Feed;
pub(in crate::export) use producer::PayloadSink;
pub use route::Route;
pub(in crate::export) use sender::Transport;
pub(in crate::export) use start::{Starter, seed};
pub use state::Board;
pub use thread::Pusher;
