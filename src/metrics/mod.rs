//! The one model of metrics: families of points, as plain data. Of wire formats it knows only how labels look, which
//! are rendered once; [`export`](crate::export) does the rest, and every reader of one collection shares one
//! [`Snapshot`].
//!
//! Names follow Prometheus' conventions (base units, snake case) and are stored without the `_total` that the text
//! formats put behind a counter. What a scraper would refuse as a whole — a bad name, two families of one name, two
//! series with the same labels — cannot be held by these types.

mod histogram;
mod labels;
mod metadata;
mod self_metrics;
mod snapshot;

pub use histogram::{Buckets, BucketsError, Histogram, Native};
pub use labels::{Labels, escape_help, escape_label, fit_label_name};
pub use metadata::{Kind, Metadata, NameError, fit_name};
pub use self_metrics::{Build, SelfMetrics, Usage, registered};
pub use snapshot::{Conflict, Family, Point, Snapshot, Value};
