//! Pushing: requests wait in a bounded queue for each signal of each format until the receiver has accepted them.
//!
//! ```text
//! Feed ─► pump ─► encode ─► Payload ─► Queue ─► sender ─► Client ─► Transport ─► receiver
//!                                                 └► Board ─► metrics, /status
//! ```
//!
//! All of it runs on a thread of its own with a runtime of its own: neither a slow receiver nor the compression of a
//! large request delays a scrape, and no collection waits for anything here. What a receiver does not accept in time is
//! dropped, the oldest first, and counted.
//!
//! How requests are encoded, made and judged is up to a format (`format`). This module knows none of them but by the list
//! in `formats`.

mod format;
mod formats;
pub(in crate::export) mod http;
mod outcome;
mod payload;
mod pump;
mod queue;
mod retry;
mod route;
mod sender;
mod start;
mod state;
mod surroundings;
mod thread;

pub(in crate::export) use format::Format;
pub use formats::Settings;
pub(in crate::export) use outcome::Outcome;
pub use payload::{Encoded, Payload};
pub use pump::Feed;
pub(in crate::export) use pump::Outlet;
pub use route::Route;
pub(in crate::export) use sender::Transport;
pub(in crate::export) use start::{Starter, seed};
pub use state::Board;
pub use surroundings::Surroundings;
pub use thread::Pusher;
