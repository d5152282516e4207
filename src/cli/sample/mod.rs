//! Sampling for the commands `record` and `top`.
//!
//! ```text
//! SampleArgs ─► Sampler (event, rate) ─────┐
//! observe::Subject (target) ───────────────┴► Sampling: opened, read, queried for profiles
//! ```

mod args;
mod session;
mod what;

pub(super) use args::{SampleArgs, call_graph};
pub(super) use session::{Sampling, explained, user_space_only};
pub(super) use what::{lowered, rate, sampler};
