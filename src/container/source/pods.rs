//! Lists of pods, as the kubelet and the API server have them.

use std::collections::HashMap;

use serde::Deserialize;

use super::{Failure, Listing, Url, http};
use crate::container::identity::{Chosen, Identity, Pod, image, name};

/// The annotation that has what the kubelet calls a static pod: the API server has another UID for it.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// `PodList`
#[derive(Debug, Deserialize)]
struct Pods {
    /// `null` where there are none.
    items: Option<Vec<PodItem>>,
}

#[derive(Debug, Deserialize)]
struct PodItem {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
    #[serde(default)]
    annotations: Option<HashMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodStatus {
    #[serde(default)]
    container_statuses: Option<Vec<ContainerStatus>>,
    #[serde(default)]
    init_container_statuses: Option<Vec<ContainerStatus>>,
    #[serde(default)]
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatus {
    #[serde(default)]
    name: String,
    #[serde(default)]
    image: String,
    /// `containerd://<id>`; not there until it runs.
    #[serde(default, rename = "containerID")]
    container_id: Option<String>,
}

/// Asks for the pods behind a URL.
pub(super) async fn list(url: &Url, chosen: &Chosen) -> Result<Listing, Failure> {
    let body = http::get(url).await?;
    listing(&body, chosen)
}

fn listing(body: &[u8], chosen: &Chosen) -> Result<Listing, Failure> {
    let pods: Pods = serde_json::from_slice(body)
        .map_err(|error| Failure::new(format!("its answer is no list of pods: {error}")))?;
    let mut listing = Listing::default();
    for pod in pods.items.iter().flatten() {
        pod.enter(chosen, &mut listing);
    }
    Ok(listing)
}

impl PodItem {
    fn enter(&self, chosen: &Chosen, listing: &mut Listing) {
        let annotation = |key: &str| self.metadata.annotations.as_ref()?.get(key).map(String::as_str);
        let uid = annotation(CONFIG_HASH).unwrap_or(&self.metadata.uid);
        let mut of_pod = Identity {
            pod: Pod::new(&self.metadata.namespace, &self.metadata.name, uid),
            ..Identity::default()
        };
        let label = |key: &str| self.metadata.labels.as_ref()?.get(key).map(String::as_str);
        chosen.choose(&mut of_pod, &label, &annotation);
        let status = &self.status;
        let lists = [
            &status.container_statuses,
            &status.init_container_statuses,
            &status.ephemeral_container_statuses,
        ];
        for status in lists.into_iter().flatten().flatten() {
            let Some((_, id)) = status.container_id.as_deref().and_then(|id| id.split_once("://")) else {
                continue;
            };
            let identity =
                Identity { container: name(&status.name), image: image(&status.image), ..of_pod.clone() };
            listing.containers.push((id.into(), identity));
        }
        if !uid.is_empty() {
            listing.pods.push((uid.into(), of_pod));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_every_kind_belong_to_their_pod() {
        let body = br#"{"kind":"PodList","apiVersion":"v1","items":[
            {"metadata":{"name":"web-1","namespace":"shop","uid":"u-1","labels":{"app":"web"},"annotations":{"team":"a"}},
             "status":{"containerStatuses":[{"name":"app","image":"web:1","containerID":"containerd://c1"},
                                            {"name":"waiting","image":"web:1","containerID":""},{"name":"later"}],
                       "initContainerStatuses":[{"name":"init","containerID":"cri-o://c2"}],
                       "ephemeralContainerStatuses":[{"name":"debugger","containerID":"docker://c3"}]}},
            {"metadata":{"name":"etcd-n","namespace":"kube-system","uid":"u-2","annotations":{"kubernetes.io/config.hash":"h"}}}]}"#;
        let chosen = Chosen { labels: vec![("app".into(), "app".into())], service: vec!["team".into()] };
        let listing = listing(body, &chosen).unwrap();
        let ids: Vec<&str> = listing.containers.iter().map(|(id, _)| &**id).collect();
        assert_eq!(ids, ["c1", "c2", "c3"]);
        let pairs: Vec<_> = listing.containers[1].1.pairs().collect();
        let expected = [
            ("namespace", "shop"),
            ("pod", "web-1"),
            ("container", "init"),
            ("service", "a"),
            ("app", "web"),
        ];
        assert_eq!(pairs, expected);
        let uids: Vec<&str> = listing.pods.iter().map(|(uid, _)| &**uid).collect();
        assert_eq!(uids, ["u-1", "h"], "a static pod's cgroup is named after the hash");
    }

    #[test]
    fn a_list_without_pods_is_one_and_nonsense_is_none() {
        assert_eq!(listing(br#"{"items":null}"#, &Chosen::default()), Ok(Listing::default()));
        for body in [&b""[..], b"[]", b"{\"items\":[{}]}", b"Unauthorized"] {
            let failure = listing(body, &Chosen::default()).unwrap_err();
            assert!(failure.why.starts_with("its answer is no list of pods: "), "{failure:?}");
        }
    }
}
