//! Derived metrics: expressions over counts, and the built-in metrics of each family of CPUs. Opens no events.
//!
//! ```text
//! text ──parse──► Expression ──on_host──► Expression without constants ──groups──► syntax::Group (events to count together)
//!                                                                      └─evaluate──► value
//! ```

mod builtin;
mod constants;
mod definition;
mod expression;
mod host;
mod key;
mod parse;
mod promql;
#[cfg(test)]
mod tests;

pub(super) use constants::HostConstants;
pub use definition::{Definition, Group, Style, Unit};
pub use expression::{Constant, Expression, Operand};
pub use host::{Metric, automatic, contains, definitions, find, groups, merged, packed};
pub use key::{CLOCK, event_key, resolved_key};
pub use parse::parse;
