//! Sources of container metadata.

mod bounded;
mod cri;
mod cri_images;
mod docker;
mod http;
mod pods;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use serde::{Serialize, Serializer};

use super::identity::Chosen;
use crate::config::containers::{Containers, Pods, Socket};
use crate::host::{Environment, Roots};
use crate::named_enum::named_enum;
use crate::net::kubernetes::{KubernetesServer, in_cluster};
use crate::targets::Identity;

/// Maximum size of a response, in bytes; the kubelet has the same limit for runtimes. A thousand containers need about 2 MB, and the
/// default limit of gRPC is 4 MB.
const ANSWER: usize = 16 << 20;

/// Maximum number of containers or pods in one response.
const MAX: usize = 1 << 14;

/// Usual sockets of runtimes with CRI: containerd, CRI-O, k3s and RKE2, k0s, MicroK8s, cri-dockerd.
const CRI_SOCKETS: [&str; 6] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
    "/run/cri-dockerd.sock",
];

/// Usual sockets with the Docker API: Docker, Podman.
const DOCKER_SOCKETS: [&str; 2] = ["/run/docker.sock", "/run/podman/podman.sock"];

named_enum! {
    /// Kind of a metadata source.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Kind {
        /// Runtime with the container runtime interface: gRPC over a socket.
        Cri = "cri",
        /// Docker or Podman: the Docker API over a socket.
        Docker = "docker",
        /// Kubelet of this node: `GET /pods`.
        Kubelet = "kubelet",
        /// API server of the cluster, for the pods of this node.
        ApiServer = "api_server",
    }
}

/// Class of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// Timeout.
    Late,
    /// No server, or a server without this API.
    NotListening,
    /// Other failure.
    Wrong,
}

/// Reason of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Class.
    pub kind: FailureKind,
    /// Reason and remedy.
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

    pub(super) fn not_listening(why: impl Into<String>) -> Self {
        Self { kind: FailureKind::NotListening, why: why.into() }
    }

    fn too_many() -> Self {
        Self::new(format!("it lists more than {MAX} containers or pods, which is not supported"))
    }
}

/// Response of a source: metadata by container ID and by pod UID.
#[derive(Debug, Default, PartialEq)]
pub struct Listing {
    /// Container IDs with their metadata.
    pub containers: Vec<(Box<str>, Identity)>,
    /// Pod UIDs with their metadata.
    pub pods: Vec<(Box<str>, Identity)>,
}

/// Decodes the response of a source of this kind. It is untrusted. CRI has three, with the containers, the pods and the images; all but the
/// first one of other kinds are ignored.
///
/// # Errors
/// Returns an error if it is not such a response, or has too many entries.
pub fn decode(kind: Kind, responses: [&[u8]; 3], chosen: &Chosen) -> Result<Listing, Failure> {
    match kind {
        Kind::Cri => cri::listing(responses, chosen),
        Kind::Docker => docker::listing(responses[0], chosen),
        Kind::Kubelet | Kind::ApiServer => pods::listing(responses[0], chosen),
    }
}

/// Metadata source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataSource {
    pub(super) kind: Kind,
    pub(super) place: Place,
    /// Whether the source was auto-detected instead of configured.
    pub(super) guessed: bool,
}

/// Location of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Socket(PathBuf),
    /// A server, and the path of its pods.
    Server(KubernetesServer, String),
}

impl MetadataSource {
    /// Returns the location for display.
    pub fn place(&self) -> String {
        match &self.place {
            Place::Socket(path) => path.display().to_string(),
            Place::Server(server, path) => format!("{}{path}", server.url()),
        }
    }

    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Requests all containers. Requires a tokio runtime; the caller sets the timeout.
    pub(super) async fn ask(&self, chosen: &Chosen) -> Result<Listing, Failure> {
        let answer = match (self.kind, &self.place) {
            (Kind::Cri, Place::Socket(path)) => cri::ask(path).await?,
            (_, Place::Socket(path)) => {
                [http::get_local(path, docker::CONTAINERS).await?, Bytes::new(), Bytes::new()]
            }
            (_, Place::Server(server, path)) => {
                let pods = server.get(path, ANSWER).await.map_err(|why| self.failure(why))?;
                [pods, Bytes::new(), Bytes::new()]
            }
        };
        decode(self.kind, answer.each_ref().map(|bytes| &**bytes), chosen)
    }

    /// Adds the remedy for a certificate that only kubelets have.
    fn failure(&self, mut why: String) -> Failure {
        if self.kind == Kind::Kubelet && why.ends_with("; set `ca`") {
            why.push_str(", or `insecure: true` for a self-signed certificate");
        }
        Failure::new(why)
    }
}

/// Returns the metadata sources of this host, in order of precedence, and the problems of the others.
///
/// A missing auto-detected socket is not a problem, because the host may have no containers.
pub fn find(
    wanted: &Containers,
    roots: &Roots,
    environment: &Environment,
) -> (Vec<MetadataSource>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let sockets =
        [(Kind::Cri, &wanted.cri, &CRI_SOCKETS[..]), (Kind::Docker, &wanted.docker, &DOCKER_SOCKETS[..])];
    for (kind, socket, usual) in sockets {
        let at = |path, guessed| MetadataSource { kind, place: Place::Socket(path), guessed };
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
        node.ok_or_else(|| "the node name is missing: set `node` or the variable NODE_NAME".to_owned())
    };
    let mut add = |kind, place: Result<Place, String>| match place {
        Ok(place) => found.push(MetadataSource { kind, place, guessed: false }),
        Err(problem) => problems.push(problem),
    };
    if let Some(pods) = &wanted.kubelet {
        let url = pods.url.clone().unwrap_or_else(|| kubelet_of(environment));
        add(Kind::Kubelet, Ok(Place::Server(server_of(&url, pods), "/pods".to_owned())));
    }
    if let Some(pods) = &wanted.api_server {
        let url = pods.url.clone().map_or_else(|| in_cluster(environment), Ok);
        let place = url.and_then(|url| {
            let node = node(pods)?;
            let plain = node.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
            if !plain {
                return Err(format!("{node:?} is not a valid node name"));
            }
            let path = format!("/api/v1/pods?resourceVersion=0&fieldSelector=spec.nodeName%3D{node}");
            Ok(Place::Server(server_of(&url, pods), path))
        });
        let problem = |why| format!("pods cannot be requested from the API server: {why}");
        add(Kind::ApiServer, place.map_err(problem));
    }
    (found, problems)
}

/// Returns the URL of the kubelet. A pod with its own network needs the address of the node, which its environment may contain.
fn kubelet_of(environment: &Environment) -> String {
    match environment.get("NODE_IP") {
        Some(address) if address.contains(':') => format!("https://[{address}]:10250"),
        Some(address) => format!("https://{address}:10250"),
        None => "https://127.0.0.1:10250".into(),
    }
}

fn server_of(url: &str, pods: &Pods) -> KubernetesServer {
    let server = KubernetesServer::new(url, pods.ca.as_deref(), pods.token.as_deref());
    if pods.insecure { server.insecure() } else { server }
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket())
}
