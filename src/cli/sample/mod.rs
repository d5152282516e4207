//! Sampling for somebody at a shell: what `record` and `top` share.
//!
//! ```text
//! SampleArgs ─► Sampler (what, how often) ─┐
//! observe::Subject (whom) ─────────────────┴► Sampling: opened, read, asked for profiles
//! ```

mod args;
mod session;
mod what;

pub(super) use args::SampleArgs;
pub(super) use session::Sampling;
pub(super) use what::sampler;
