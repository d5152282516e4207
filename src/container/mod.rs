//! Who the containers are: names of pods and containers for the cgroups that are counted, as container runtimes tell them.
//!
//! A cgroup's path has the identifier of its container ([`ContainerPath`](crate::target::ContainerPath)). A thread asks
//! those who know more (`source`: a runtime by CRI, Docker, the kubelet, the API server) whenever a container turns up that
//! nobody has told of yet ([`start`]), and enters what it hears into the [`Directory`]. [`Labeller`] then gives every series
//! of a cgroup the labels `namespace`, `pod` and `container`.
//!
//! Nobody waits for a runtime: a series without names is published without them, and with them as soon as they are known.

mod asker;
mod directory;
mod identity;
mod label;
mod source;

pub use asker::{Metrics, Surroundings, ask_once, start};
pub use directory::{Account, Directory, SourceState, State};
pub use identity::{Chosen, Identity, POD_CONTAINER, Pod};
pub use label::Labeller;
pub use source::{Failure, FailureKind, Found, Kind, find};
