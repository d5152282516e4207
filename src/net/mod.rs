//! Building blocks of connections: addresses to listen on ([`listen`]), certificates of clients ([`tls`]) and of the server
//! ([`server_tls`]), HTTP clients (`http`), servers of Kubernetes ([`kubernetes`]),
//! gRPC calls with raw bytes (`bytewise`), e-mail addresses in certificates ([`alternative_names`]), and error texts (`error_text`).

pub mod alternative_names;
mod bytewise;
pub(crate) mod error_text;
pub(crate) mod http;
pub mod kubernetes;
pub mod listen;
pub mod server_tls;
pub mod tls;

pub use bytewise::Bytewise;

/// User agent of all requests.
pub(crate) const USER_AGENT: &str = concat!("perf-exporter/", env!("CARGO_PKG_VERSION"));
