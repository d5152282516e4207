//! The configuration in two shapes: `file` is what may be written, [`Config`] is what the program needs. Between
//! them stands `check`, which reports every problem of a file at once.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::event::syntax;
use crate::target::{CgroupSelection, ProcessSelection};

/// What the program needs to know, complete and consistent.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Where to serve.
    pub listen: SocketAddr,
    /// When to collect.
    pub collection: Collection,
    /// What to count, in the order of the file.
    pub counters: Vec<Counters>,
    /// The bounds.
    pub limits: Limits,
}

/// When collections happen. One collection serves every reader that asks within `freshness` of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collection {
    /// The longest time between two collections, whether somebody asks or not: scaling of multiplexed counters and
    /// the discovery of new cgroups and processes depend on it.
    pub interval: Duration,
    /// How old a collection may be to answer a scrape.
    pub freshness: Duration,
}

/// The bounds that the program keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Series per metric; what is over it is folded into the series `other`.
    pub series: usize,
    /// File descriptors for events; `None` = what `RLIMIT_NOFILE` allows, less a reserve.
    pub descriptors: Option<usize>,
    /// HTTP connections at a time.
    pub connections: usize,
}

/// One entry of `counters`: what to count, and for whom.
#[derive(Debug, Clone, PartialEq)]
pub struct Counters {
    /// The entry's name in the file.
    pub name: Arc<str>,
    /// The groups, each scheduled together.
    pub groups: Vec<syntax::Group>,
    /// For whom; each at most once.
    pub per: Vec<Per>,
}

/// For whom to count.
#[derive(Debug, Clone, PartialEq)]
pub enum Per {
    /// Each CPU.
    Cpu,
    /// The selected cgroups.
    Cgroup(CgroupSelection),
    /// The selected processes.
    Process(ProcessSelection),
}
