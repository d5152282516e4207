//! System calls: how often, how long, and how they end.
//!
//! ```text
//! raw_syscalls:sys_enter, sys_exit, in the order of their times ─► Calls ─► Ended ─► Sums
//! ```

mod calls;
mod names;
mod sums;

pub use calls::{Begun, Calls, Ended, Untold};
pub use names::{Abi, Call, errno};
pub use sums::{Row, Sum, Sums};
