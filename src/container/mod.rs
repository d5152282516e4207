//! Container metadata: names of pods and containers for the counted cgroups, from container runtimes and Kubernetes.
//!
//! The path of a cgroup contains the ID of its container ([`ContainerPath`](crate::targets::ContainerPath)). A thread ([`start`]) requests
//! metadata from the sources (`source`: a runtime with CRI, Docker, the kubelet, the API server) whenever an unknown container appears, and
//! stores it in the [`Directory`]. [`Labeller`] adds the labels `namespace`, `pod` and `container` to every series of a cgroup.
//!
//! Collections never wait for a metadata source: a series without metadata is published without the labels, and receives them when the
//! metadata is available.

mod directory;
mod identity;
mod label;
mod metadata_thread;
mod source;

pub use crate::targets::{Identity, Pod, Workload};
pub use directory::{Account, Directory, SourceState, State};
pub use identity::{Chosen, POD_CONTAINER};
pub use label::Labeller;
pub use metadata_thread::{MetadataContext, Metrics, ask_once, start};
pub use source::{Failure, FailureKind, Kind, Listing, MetadataSource, decode, find};
