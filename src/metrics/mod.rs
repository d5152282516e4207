//! Data model of metrics: families of points, as plain data. Labels are rendered once, here. [`export`](crate::export) implements the rest
//! of the wire formats. All readers of one collection share one [`Snapshot`].
//!
//! Names follow the Prometheus conventions (base units, snake case) and exclude the suffix `_total`, which the text formats add to
//! counters. These types cannot represent input that makes a scraper reject the whole scrape: invalid names, duplicate family names,
//! duplicate label sets.

mod histogram;
mod labels;
mod level;
mod metadata;
mod self_metrics;
mod snapshot;

pub use histogram::{Buckets, BucketsError, Histogram, Native};
#[cfg(test)]
pub(crate) use labels::without_controls;
pub use labels::{Labels, escape_help, escape_label, fit_label_name};
pub use level::{Detail, FullOnly, Level};
pub use metadata::{Kind, Metadata, NameError, fit_name};
pub use self_metrics::{Build, SelfMetrics, Usage, registered};
pub use snapshot::{Conflict, Family, Point, Snapshot, Value};
