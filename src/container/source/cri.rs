//! Container runtime interface: `runtime.v1.RuntimeService` and `runtime.v1.ImageService`, available since containerd 1.6 and CRI-O 1.24.
//!
//! The messages are those of `k8s.io/cri-api/pkg/apis/runtime/v1/api.proto`, without unused fields.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use hyper::http::uri::PathAndQuery;
use prost::encoding::{self, DecodeContext, WireType};
use prost::{DecodeError, Message};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::cri_images::{Image, ImageNames, is_id};
use super::{ANSWER, Failure, Listing, MAX};
use crate::container::identity::{Chosen, POD_CONTAINER, image, name, pod};
use crate::net::error_text::{causes, sanitized};
use crate::net::{Bytewise, USER_AGENT};
use crate::targets::{Identity, Pod};

/// Labels that the kubelet sets on its containers.
mod label {
    pub(super) const NAMESPACE: &str = "io.kubernetes.pod.namespace";
    pub(super) const POD: &str = "io.kubernetes.pod.name";
    pub(super) const UID: &str = "io.kubernetes.pod.uid";
    pub(super) const CONTAINER: &str = "io.kubernetes.container.name";
}

/// `PodSandbox`
#[derive(Clone, PartialEq, Message)]
struct Sandbox {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(message, optional, tag = "2")]
    metadata: Option<SandboxMetadata>,
    /// 0 means ready.
    #[prost(int32, tag = "3")]
    state: i32,
    #[prost(int64, tag = "4")]
    created: i64,
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
    /// Image name from the pod, since Kubernetes 1.29 and containerd 2.0; `image` may be an ID.
    #[prost(string, tag = "18")]
    wished: String,
}

/// Requests the containers and the pods of the runtime at a socket, and the images if a container has only the ID of its image.
pub(super) async fn ask(socket: &Path) -> Result<[Bytes; 3], Failure> {
    let runtime = Runtime::connect(socket).await?;
    // Containers first: a container created between the two requests is then in the next response, instead of being listed without its pod.
    let containers = runtime.list("/runtime.v1.RuntimeService/ListContainers").await?;
    let pods = runtime.list("/runtime.v1.RuntimeService/ListPodSandbox").await?;
    let images = if items::<Container>(&containers)?.iter().any(Container::lacks_image_name) {
        // The metadata is useful without the names of images.
        runtime.list("/runtime.v1.ImageService/ListImages").await.unwrap_or_default()
    } else {
        Bytes::new()
    };
    Ok([containers, pods, images])
}

/// Decodes the responses with the containers, the pods and the images. An invalid list of images is ignored.
pub(super) fn listing([containers, pods, images]: [&[u8]; 3], chosen: &Chosen) -> Result<Listing, Failure> {
    let images = items::<Image>(images).unwrap_or_default();
    Ok(listed(items(pods)?, &items::<Container>(containers)?, &ImageNames::of(&images), chosen))
}

/// Connection to a runtime.
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
        connected.map(Self).map_err(|error| super::http::unreachable(causes(&error)))
    }

    /// Calls a method with an empty request, which has no filter.
    async fn list(&self, method: &'static str) -> Result<Bytes, Failure> {
        let mut calls = Grpc::new(self.0.clone()).max_decoding_message_size(ANSWER);
        calls.ready().await.map_err(|error| Failure::new(causes(&error)))?;
        let request = tonic::Request::new(Bytes::new());
        let answer = calls.unary(request, PathAndQuery::from_static(method), Bytewise).await;
        Ok(answer.map_err(|status| failure(&status))?.into_inner())
    }
}

/// Decodes the messages of field 1, with a limit: an empty message has two bytes in the response but needs a hundred times that in memory.
fn items<M: Message + Default>(mut answer: &[u8]) -> Result<Vec<M>, Failure> {
    let wrong = |_: DecodeError| Failure::new("the response is not a CRI message");
    let mut items = Vec::new();
    while answer.has_remaining() {
        let (tag, wire) = encoding::decode_key(&mut answer).map_err(wrong)?;
        if (tag, wire) != (1, WireType::LengthDelimited) {
            encoding::skip_field(wire, tag, &mut answer, DecodeContext::default()).map_err(wrong)?;
            continue;
        }
        if items.len() == MAX {
            return Err(Failure::too_many());
        }
        items.push(M::decode_length_delimited(&mut answer).map_err(wrong)?);
    }
    Ok(items)
}

fn failure(status: &Status) -> Failure {
    match (status.code(), std::error::Error::source(status)) {
        (Code::Unimplemented, _) => Failure::not_listening(
            "it does not support CRI runtime.v1: use containerd 1.6 or later (with the plugin `cri` not in \
             `disabled_plugins`), or CRI-O 1.24 or later",
        ),
        (_, Some(error)) => Failure::new(causes(error)),
        (code, None) => {
            Failure::new(format!("the server returned {code:?}: {}", sanitized(status.message())))
        }
    }
}

fn listed(
    mut sandboxes: Vec<Sandbox>,
    containers: &[Container],
    images: &ImageNames<'_>,
    chosen: &Chosen,
) -> Listing {
    let mut listing = Listing::default();
    // A pod with a recreated sandbox has several. The ready sandbox, or else the newest, determines the metadata of the pod.
    sandboxes.sort_by_key(|sandbox| (sandbox.state, Reverse(sandbox.created)));
    let mut pods = HashSet::new();
    for sandbox in &sandboxes {
        let mut identity = Identity { pod: sandbox.pod(), ..Identity::default() };
        chosen.choose(&mut identity, &|key| get(&sandbox.labels, key), &|key| get(&sandbox.annotations, key));
        if let Some(pod) = identity.pod.as_ref().filter(|pod| pods.insert(Arc::clone(&pod.uid))) {
            listing.pods.push((pod.uid.as_ref().into(), identity.clone()));
        }
        identity.container = Some(POD_CONTAINER.into());
        listing.containers.push((sandbox.id.as_str().into(), identity));
    }
    let sandboxes: HashMap<&str, &Sandbox> =
        sandboxes.iter().map(|sandbox| (sandbox.id.as_str(), sandbox)).collect();
    for container in containers {
        let sandbox = sandboxes.get(container.sandbox.as_str()).copied();
        let identity = container.identity(sandbox, images, chosen);
        listing.containers.push((container.id.as_str().into(), identity));
    }
    listing
}

impl Sandbox {
    fn pod(&self) -> Option<Pod> {
        let metadata = self.metadata.as_ref()?;
        pod(&metadata.namespace, &metadata.name, &metadata.uid)
    }
}

impl Container {
    /// Returns the name of its image, or its ID.
    fn image(&self) -> Option<&str> {
        let spec = self.image.as_ref();
        let images = [spec.map(|spec| &spec.wished), spec.map(|spec| &spec.image), Some(&self.image_ref)];
        images.into_iter().flatten().map(String::as_str).find(|text| !text.is_empty())
    }

    fn lacks_image_name(&self) -> bool {
        self.image().is_some_and(is_id)
    }

    fn identity(&self, sandbox: Option<&Sandbox>, images: &ImageNames<'_>, chosen: &Chosen) -> Identity {
        let own = |key| get(&self.labels, key).unwrap_or_default();
        let named =
            self.metadata.as_ref().map(|metadata| metadata.name.as_str()).filter(|name| !name.is_empty());
        let mut identity = Identity {
            pod: (sandbox.and_then(Sandbox::pod))
                .or_else(|| pod(own(label::NAMESPACE), own(label::POD), own(label::UID))),
            container: name(named.unwrap_or_else(|| own(label::CONTAINER))),
            image: self.image().and_then(|text| image(images.name(text))),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(id: &str, state: i32, created: i64, app: &str) -> Sandbox {
        Sandbox {
            id: id.into(),
            metadata: Some(SandboxMetadata {
                name: "web-0".into(),
                uid: "u-1".into(),
                namespace: "shop".into(),
            }),
            state,
            created,
            labels: [("app".to_owned(), app.to_owned())].into(),
            annotations: [("team".to_owned(), "checkout".to_owned())].into(),
        }
    }

    fn container(id: &str, sandbox: &str, labels: &[(&str, &str)]) -> Container {
        Container {
            id: id.into(),
            sandbox: sandbox.into(),
            metadata: Some(ContainerMetadata { name: "app".into() }),
            image: Some(ImageSpec { image: "sha256:1".into(), wished: "web:1".into() }),
            labels: labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect(),
            ..Container::default()
        }
    }

    fn chosen() -> Chosen {
        Chosen {
            labels: vec![("app".into(), "app".into())],
            service: vec!["team".into()],
            ..Chosen::default()
        }
    }

    fn pairs(identity: &Identity) -> String {
        identity.pairs().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_container_has_the_names_and_labels_of_its_sandbox() {
        let (pods, containers) = ([sandbox("s", 0, 1, "web")], [container("c", "s", &[])]);
        let listed = listed(pods.into(), &containers, &ImageNames::default(), &chosen());
        let said: Vec<String> =
            listed.containers.iter().map(|(id, identity)| format!("{id}: {}", pairs(identity))).collect();
        let expected = [
            "s: namespace=shop pod=web-0 container=POD service=checkout app=web",
            "c: namespace=shop pod=web-0 container=app service=checkout app=web",
        ];
        assert_eq!(said, expected);
        assert_eq!(listed.containers[1].1.image.as_deref(), Some("web:1"));
        assert_eq!(pairs(&listed.pods[0].1), "namespace=shop pod=web-0 service=checkout app=web");
    }

    #[test]
    fn a_container_whose_sandbox_is_gone_has_what_the_kubelet_wrote_to_it() {
        let labels = [
            (label::NAMESPACE, "shop"),
            (label::POD, "web-0"),
            (label::UID, "u-1"),
            (label::CONTAINER, "named by a label"),
        ];
        let containers = [container("c", "gone", &labels)];
        let listed = listed(vec![], &containers, &ImageNames::default(), &chosen());
        assert_eq!(pairs(&listed.containers[0].1), "namespace=shop pod=web-0 container=app");
    }

    #[test]
    fn of_several_sandboxes_of_a_pod_the_one_that_is_there_is_believed() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            let all = [sandbox("old", 1, 9, "x"), sandbox("now", 0, 5, "y"), sandbox("older", 1, 3, "z")];
            let pods = order.map(|at| all[at].clone());
            let listed = listed(pods.into(), &[], &ImageNames::default(), &chosen());
            assert_eq!(listed.pods.len(), 1);
            assert!(pairs(&listed.pods[0].1).ends_with("app=y"));
        }
    }

    #[test]
    fn a_container_that_was_created_with_the_id_of_its_image_has_the_name_of_the_image() {
        let id = format!("sha256:{}", "4f0c".repeat(16));
        let mut created = container("c", "s", &[]);
        created.image = Some(ImageSpec { image: id.clone(), wished: String::new() });
        created.image_ref.clone_from(&id);
        assert!(created.lacks_image_name() && !container("c", "s", &[]).lacks_image_name());
        let containers = [&[0x0a], &*created.encode_length_delimited_to_vec()].concat();
        let image = [&[0x0a, 71][..], id.as_bytes(), &[0x12, 5], b"web:1"].concat();
        let images = [&[0x0a, 80], &*image].concat();
        let image_with = |images: &[u8]| {
            let listing = listing([&*containers, &[], images], &Chosen::default()).unwrap();
            listing.containers[0].1.image.as_deref().map(ToOwned::to_owned)
        };
        assert_eq!(image_with(&images).as_deref(), Some("web:1"));
        for none in [&[][..], b"HTTP/1.1"] {
            assert_eq!(image_with(none).as_ref(), Some(&id), "the ID is better than nothing");
        }
    }

    #[test]
    fn what_is_no_list_is_told_and_one_that_is_too_long_is_not_taken() {
        let many: Vec<u8> = [0x0a, 0x00].repeat(MAX + 1);
        assert_eq!(items::<Container>(&many), Err(Failure::too_many()));
        assert_eq!(items::<Container>(&many[2..]).map(|items| items.len()), Ok(MAX));
        for bytes in [&[0x0a][..], &[0x0a, 0x05, 0x01], b"HTTP/1.1", &[0xff; 12]] {
            let failure = items::<Container>(bytes).unwrap_err();
            assert_eq!(failure.why, "the response is not a CRI message");
        }
        let newer = [0x12, 0x01, 0x00, 0x0a, 0x00];
        assert_eq!(items::<Container>(&newer).map(|items| items.len()), Ok(1), "unknown fields are skipped");
    }
}
