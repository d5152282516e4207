//! The container runtime interface: `runtime.v1.RuntimeService`, which containerd has since 1.6 and CRI-O since 1.24.
//!
//! The messages are those of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`, less what is not needed.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use hyper::http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::{ANSWER, Failure, Listing};
use crate::container::identity::{Chosen, Identity, POD_CONTAINER, Pod, image, name};
use crate::net::words::{causes, told};
use crate::net::{Bytewise, USER_AGENT};

/// What the kubelet writes to the containers that it makes.
mod label {
    pub(super) const NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(super) const POD: &str = "io.kubernetes.pod.name";
    pub(super) const UID: &str = "io.kubernetes.pod.uid";
    pub(super) const CONTAINER: &str = "io.kubernetes.container.name";
}

#[derive(Clone, PartialEq, Message)]
struct Sandboxes {
    #[prost(message, repeated, tag = "1")]
    items: Vec<Sandbox>,
}

/// `PodSandbox`
#[derive(Clone, PartialEq, Message)]
struct Sandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<SandboxMetadata>,
    #[prost(map = "string, string", tag = "5")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "6")]
    annotations: HashMap<String, String>,
}

/// `PodSandboxMetadata`
#[derive(Clone, PartialEq, Message)]
struct SandboxMetadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message)]
struct Containers {
    #[prost(message, repeated, tag = "1")]
    containers: Vec<Container>,
}

/// `Container`
#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    sandbox: String,
    #[prost(message, optional, tag = "3")]
    metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "4")]
    image: Option<ImageSpec>,
    #[prost(string, tag = "5")]
    image_ref: String,
    #[prost(map = "string, string", tag = "8")]
    labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "9")]
    annotations: HashMap<String, String>,
}

/// `ContainerMetadata`
#[derive(Clone, PartialEq, Message)]
struct ContainerMetadata {
    #[prost(string, tag = "1")]
    name: String,
}

/// `ImageSpec`
#[derive(Clone, PartialEq, Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
    /// As the pod has it, from Kubernetes 1.29 on; `image` may be an identifier.
    #[prost(string, tag = "18")]
    wished: String,
}

/// Asks the runtime behind a socket for its pods and containers.
pub(super) async fn list(socket: &Path, chosen: &Chosen) -> Result<Listing, Failure> {
    let runtime = Runtime::connect(socket).await?;
    // Pods first: a container that is made between the two questions then lacks its pod for a second, instead of its name.
    let sandboxes: Sandboxes = runtime.call("/runtime.v1.RuntimeService/ListPodSandbox").await?;
    let containers: Containers = runtime.call("/runtime.v1.RuntimeService/ListContainers").await?;
    Ok(listing(sandboxes, containers, chosen))
}

/// A connection to a runtime.
struct Runtime(Channel);

impl Runtime {
    async fn connect(socket: &Path) -> Result<Self, Failure> {
        let path = socket.to_str().ok_or_else(|| Failure::new("the path of the socket is not UTF-8"))?;
        let endpoint = Endpoint::from_shared(format!("unix:{path}"))
            .and_then(|endpoint| endpoint.user_agent(USER_AGENT));
        let connected = match endpoint {
            Ok(endpoint) => endpoint.connect().await,
            Err(error) => Err(error),
        };
        connected.map(Self).map_err(|error| Failure::new(super::http::with_remedy(causes(&error))))
    }

    /// Calls a method with a request that asks for everything, and so is empty.
    async fn call<M: Message + Default>(&self, method: &'static str) -> Result<M, Failure> {
        let mut calls = Grpc::new(self.0.clone()).max_decoding_message_size(ANSWER);
        calls.ready().await.map_err(|error| Failure::new(causes(&error)))?;
        let request = tonic::Request::new(Bytes::new());
        let answer = calls.unary(request, PathAndQuery::from_static(method), Bytewise).await;
        let answer = answer.map_err(|status| Failure::new(words(&status)))?;
        M::decode(answer.into_inner()).map_err(|_| Failure::new("its answer is no message of CRI"))
    }
}

fn words(status: &Status) -> String {
    match (status.code(), std::error::Error::source(status)) {
        (Code::Unimplemented, _) => {
            "it does not speak runtime.v1 of CRI: containerd does since 1.6 (unless its plugin `cri` \
             is among `disabled_plugins`), CRI-O since 1.24"
                .to_owned()
        }
        (_, Some(error)) => causes(error),
        (code, None) => format!("it answered {code:?}: {}", told(status.message())),
    }
}

fn listing(sandboxes: Sandboxes, containers: Containers, chosen: &Chosen) -> Listing {
    let mut listing = Listing::default();
    let sandboxes: HashMap<&str, &Sandbox> =
        sandboxes.items.iter().map(|sandbox| (sandbox.id.as_str(), sandbox)).collect();
    let mut pods = HashSet::new();
    for sandbox in sandboxes.values() {
        let mut identity = Identity { pod: sandbox.pod(), ..Identity::default() };
        chosen.choose(&mut identity, &|key| get(&sandbox.labels, key), &|key| get(&sandbox.annotations, key));
        if let Some(pod) = identity.pod.as_ref().filter(|pod| pods.insert(pod.uid.clone())) {
            listing.pods.push((pod.uid.as_ref().into(), identity.clone()));
        }
        identity.container = Some(POD_CONTAINER.into());
        listing.containers.push((sandbox.id.as_str().into(), identity));
    }
    for container in &containers.containers {
        let sandbox = sandboxes.get(container.sandbox.as_str()).copied();
        listing.containers.push((container.id.as_str().into(), container.identity(sandbox, chosen)));
    }
    listing
}

impl Sandbox {
    fn pod(&self) -> Option<Pod> {
        let metadata = self.metadata.as_ref()?;
        Pod::new(&metadata.namespace, &metadata.name, &metadata.uid)
    }
}

impl Container {
    fn identity(&self, sandbox: Option<&Sandbox>, chosen: &Chosen) -> Identity {
        let own = |key| get(&self.labels, key).unwrap_or_default();
        let named =
            self.metadata.as_ref().map(|metadata| metadata.name.as_str()).filter(|name| !name.is_empty());
        let spec = self.image.as_ref();
        let images = [spec.map(|spec| &spec.wished), spec.map(|spec| &spec.image), Some(&self.image_ref)];
        let mut identity = Identity {
            pod: (sandbox.and_then(Sandbox::pod))
                .or_else(|| Pod::new(own(label::NAMESPACE), own(label::POD), own(label::UID))),
            container: name(named.unwrap_or_else(|| own(label::CONTAINER))),
            image: images.into_iter().flatten().find_map(|text| image(text)),
            ..Identity::default()
        };
        chosen.choose(
            &mut identity,
            &|key| get(&self.labels, key).or_else(|| get(&sandbox?.labels, key)),
            &|key| get(&self.annotations, key).or_else(|| get(&sandbox?.annotations, key)),
        );
        identity
    }
}

fn get<'m>(map: &'m HashMap<String, String>, key: &str) -> Option<&'m str> {
    map.get(key).map(String::as_str)
}
