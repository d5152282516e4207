//! Those who tell of containers.

mod bounded;
mod cri;
mod docker;
mod http;
mod pods;

use std::path::{Path, PathBuf};

use hyper::Uri;
use serde::{Serialize, Serializer};

use super::identity::{Chosen, Identity};
use crate::config::containers::{Containers, Pods, Socket};
use crate::host::{Environment, Roots};
use crate::net::tls::{Tls, Trust};
use crate::words::words;

/// The largest answer that is read, in bytes: what the kubelet takes of a runtime. A thousand containers take some 2 MB, and
/// gRPC's own limit is 4.
const ANSWER: usize = 16 << 20;

/// The most containers or pods of one answer.
const MOST: usize = 1 << 14;

/// Where the sockets of runtimes are that speak CRI: containerd, CRI-O, k3s and RKE2, k0s, MicroK8s, cri-dockerd.
const CRI_SOCKETS: [&str; 6] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/cri-dockerd.sock",
];

/// Where those are that speak Docker's API: Docker, Podman.
const DOCKER_SOCKETS: [&str; 2] = ["/run/docker.sock", "/run/podman/podman.sock"];

/// The files of a pod's service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

words! {
    /// How somebody is asked.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// A runtime, by the container runtime interface: gRPC over a socket.
        Cri = "cri",
        /// Docker or Podman, by Docker's API over a socket.
        Docker = "docker",
        /// The kubelet of this node: `GET /pods`.
        Kubelet = "kubelet",
        /// The API server of the cluster, for the pods of this node.
        ApiServer = "api_server",
    }
}

/// What it means that somebody did not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Time ran out.
    Late,
    /// Nobody is there who could tell.
    Nobody,
    /// Anything else.
    Wrong,
}

/// Why somebody did not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What it means.
    pub kind: FailureKind,
    /// What is wrong, and what helps.
    pub why: String,
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.why)
    }
}

impl Failure {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { kind: FailureKind::Wrong, why: why.into() }
    }

    pub(super) fn nobody(why: impl Into<String>) -> Self {
        Self { kind: FailureKind::Nobody, why: why.into() }
    }

    fn too_many() -> Self {
        Self::new(format!("it tells of more than {MOST}, which is not taken"))
    }
}

/// What somebody told: by the identifiers of containers, and by the UIDs of pods.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Listing {
    pub(super) containers: Vec<(Box<str>, Identity)>,
    pub(super) pods: Vec<(Box<str>, Identity)>,
}

/// Somebody who can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// It was found by looking where such are, and named by nobody.
    pub(super) guessed: bool,
}

/// Where somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Socket(PathBuf),
    Url(Url),
}

/// A URL, and how to be let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) uri: Uri,
    pub(super) trust: Trust,
    pub(super) token: Option<PathBuf>,
}

impl Found {
    /// Where it is, for people.
    pub fn place(&self) -> String {
        match &self.place {
            Place::Socket(path) => path.display().to_string(),
            Place::Url(url) => url.uri.to_string(),
        }
    }

    /// How it is asked.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Asks for all containers. Must run on a tokio runtime; whoever asks has the patience.
    pub(super) async fn ask(&self, chosen: &Chosen) -> Result<Listing, Failure> {
        match (self.kind, &self.place) {
            (Kind::Cri, Place::Socket(path)) => cri::list(path, chosen).await,
            (_, Place::Socket(path)) => docker::list(path, chosen).await,
            (_, Place::Url(url)) => pods::list(url, chosen).await,
        }
    }
}

/// Those who are to be asked on this host, the one who is believed first in front, and what cannot be asked and why.
///
/// Sockets that are looked for, and not there, are nobody's fault: there may be no containers on this host.
pub fn find(wanted: &Containers, roots: &Roots, environment: &Environment) -> (Vec<Found>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let sockets =
        [(Kind::Cri, &wanted.cri, &CRI_SOCKETS[..]), (Kind::Docker, &wanted.docker, &DOCKER_SOCKETS[..])];
    for (kind, socket, usual) in sockets {
        let at = |path, guessed| Found { kind, place: Place::Socket(path), guessed };
        match socket {
            Socket::Off => {}
            Socket::At(path) => found.push(at(path.clone(), false)),
            Socket::Auto => {
                let there = usual.iter().map(|path| roots.mounted(path)).filter(|path| is_socket(path));
                found.extend(there.map(|path| at(path, true)));
            }
        }
    }
    let node = |pods: &Pods| {
        let node = pods.node.clone().or_else(|| environment.get("NODE_NAME").map(ToOwned::to_owned));
        node.ok_or_else(|| "which node this is: give `node`, or the variable NODE_NAME".to_owned())
    };
    let mut add = |kind, place: Result<Place, String>| match place {
        Ok(place) => found.push(Found { kind, place, guessed: false }),
        Err(problem) => problems.push(problem),
    };
    if let Some(pods) = &wanted.kubelet {
        let url = pods.url.clone().unwrap_or_else(|| kubelet_of(environment));
        let place = url_of(&format!("{}/pods", url.trim_end_matches('/')), pods);
        add(Kind::Kubelet, place.map_err(|why| format!("the kubelet cannot be asked for pods: {why}")));
    }
    if let Some(pods) = &wanted.api_server {
        let url = pods.url.clone().map_or_else(|| in_cluster(environment), Ok);
        let place = url.and_then(|url| {
            let node = node(pods)?;
            let plain = node.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
            if !plain {
                return Err(format!("{node:?} is no name of a node"));
            }
            let url = url.trim_end_matches('/');
            url_of(&format!("{url}/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3D{node}"), pods)
        });
        let problem = |why| format!("the API server cannot be asked for pods: nobody says {why}");
        add(Kind::ApiServer, place.map_err(problem));
    }
    (found, problems)
}

/// Where the kubelet is. In a pod's own network this host is elsewhere, and the pod may be told where.
fn kubelet_of(environment: &Environment) -> String {
    match environment.get("NODE_IP") {
        Some(address) if address.contains(':') => format!("https://[{address}]:10250"),
        Some(address) => format!("https://{address}:10250"),
        None => "https://127.0.0.1:10250".into(),
    }
}

/// Where the API server is, as a pod is told.
fn in_cluster(environment: &Environment) -> Result<String, String> {
    let (host, port) = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT");
    match (environment.get(host), environment.get(port)) {
        (Some(host), Some(port)) if host.contains(':') => Ok(format!("https://[{host}]:{port}")),
        (Some(host), Some(port)) => Ok(format!("https://{host}:{port}")),
        _ => Err(format!("where it is: give `url`, or the variables {host} and {port} that every pod has")),
    }
}

fn url_of(text: &str, pods: &Pods) -> Result<Place, String> {
    let uri: Uri = text.parse().map_err(|error| format!("{text:?}: {error}"))?;
    let account = |name: &str| Path::new(ACCOUNT).join(name);
    let trust = match (&pods.ca, pods.insecure) {
        (_, true) => Trust::Anybody,
        (Some(ca), false) => Trust::Files(Tls { ca: Some(ca.clone()), ..Tls::default() }),
        (None, false) => Trust::Files(Tls { ca: Some(account("ca.crt")), ..Tls::default() }),
    };
    let token = pods.token.clone().or_else(|| Some(account("token")));
    // A token is not for everybody on the way to read.
    let token = token.filter(|_| uri.scheme_str() == Some("https"));
    Ok(Place::Url(Url { uri, trust, token }))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
