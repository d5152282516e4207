//! Names of this server for browsers.

use std::sync::Arc;

use crate::config::Web;
use crate::export::http::HostNames;
use crate::host::{Environment, Roots};

/// Returns the names of this server in the header `Host`: those of the configuration, of the machine, and of the node in its cluster.
pub(super) fn host_names(web: &Web, roots: &Roots, environment: &Environment) -> Arc<HostNames> {
    let machine = roots.host_name();
    let node = ["NODE_NAME", "K8S_NODE_NAME"].into_iter().find_map(|name| environment.get(name));
    let names = web.hosts.iter().map(String::as_str).chain(machine.as_deref()).chain(node);
    Arc::new(HostNames::new(names))
}
