//! System calls: number, duration and results.
//!
//! ```text
//! raw_syscalls:sys_enter, sys_exit, in time order ─► Calls ─► Ended ─► Sums
//! ```

mod calls;
mod names;
mod sums;

pub use calls::{Calls, CompletedCall, PendingCall, Untracked};
pub use names::{Abi, Call, errno};
pub use sums::{Row, Sum, Sums};
