//! What every connection to somebody else needs: certificates ([`tls`]), connections over HTTP (`http`), calls over gRPC
//! whose messages are bytes (`bytewise`), and words for what went wrong (`words`).

mod bytewise;
pub(crate) mod http;
pub mod tls;
pub(crate) mod words;

pub use bytewise::Bytewise;

/// How this program calls itself.
pub(crate) const USER_AGENT: &str = concat!("perf-exporter/", env!("CARGO_PKG_VERSION"));
