//! Pod lists of the kubelet and the API server.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;

use super::bounded::Bounded;
use super::{Failure, Listing};
use crate::container::identity::{Chosen, image, name, pod, workload};
use crate::targets::{Identity, Workload};

/// Annotation with the kubelet's UID of a static pod; the API server has another UID for it.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// Labels of pods with a hash of their template, and the kind of the workload that sets it. The name of the ReplicaSet is that of the workload
/// with this hash.
const TEMPLATE_HASHES: [(&str, &str); 2] =
    [("pod-template-hash", "Deployment"), ("rollouts-pod-template-hash", "Rollout")];

/// Number of digits at the end of the name of a CronJob's Job: the scheduled time in minutes since 1970.
const SCHEDULE_DIGITS: usize = 8;

/// `PodList`
#[derive(Debug, Deserialize)]
struct Pods {
    /// `null` for an empty list.
    items: Option<Bounded<PodItem>>,
}

#[derive(Debug, Deserialize)]
struct PodItem {
    metadata: Metadata,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    labels: Option<HashMap<String, String>>,
    annotations: Option<HashMap<String, String>>,
    owner_references: Option<Vec<Owner>>,
}

/// `OwnerReference`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: String,
    name: String,
    /// Set for the one owner that manages the pod.
    controller: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    container_statuses: Option<Vec<ContainerStatus>>,
    init_container_statuses: Option<Vec<ContainerStatus>>,
    ephemeral_container_statuses: Option<Vec<ContainerStatus>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatus {
    name: String,
    image: String,
    /// `containerd://<id>`; missing until the container runs.
    #[serde(rename = "containerID")]
    container_id: Option<String>,
}

/// Decodes a list of pods.
pub(super) fn listing(body: &[u8], chosen: &Chosen) -> Result<Listing, Failure> {
    let pods: Pods = serde_json::from_slice(body)
        .map_err(|error| Failure::new(format!("the response is not a list of pods: {error}")))?;
    let mut listing = Listing::default();
    let pods = pods.items.map_or_else(Vec::new, |Bounded(items)| items);
    for pod in &pods {
        pod.enter(chosen, &mut listing);
    }
    // Any user can set the annotation, so it must not override a pod with that UID.
    let real: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
    for pod in &pods {
        let hash = pod.annotation(CONFIG_HASH).filter(|hash| !hash.is_empty() && !real.contains(hash));
        listing.pods.extend(hash.map(|hash| (hash.into(), pod.identity(hash, chosen))));
    }
    Ok(listing)
}

impl PodItem {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the metadata of the pod with this UID.
    fn identity(&self, uid: &str, chosen: &Chosen) -> Identity {
        let mut identity = Identity {
            pod: pod(&self.metadata.namespace, &self.metadata.name, uid),
            workload: self.workload(),
            ..Identity::default()
        };
        chosen.choose(&mut identity, &|key| self.label(key), &|key| self.annotation(key));
        identity
    }

    /// Returns the workload, without a request for intermediate objects: the names of ReplicaSets and Jobs contain that of their owner.
    fn workload(&self) -> Option<Workload> {
        let owner =
            self.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let (kind, name) = match owner.kind.as_str() {
            // The owner of a static pod.
            "Node" => return None,
            "ReplicaSet" => self.deployment(&owner.name),
            "Job" => cron_job(&owner.name).map(|name| ("CronJob", name)),
            _ => None,
        }
        .unwrap_or((owner.kind.as_str(), owner.name.as_str()));
        workload(kind, name)
    }

    /// Returns the kind and the name of the owner of a ReplicaSet.
    fn deployment<'n>(&self, replica_set: &'n str) -> Option<(&'static str, &'n str)> {
        TEMPLATE_HASHES.iter().find_map(|&(key, kind)| {
            let name = replica_set.strip_suffix(self.label(key)?)?.strip_suffix('-')?;
            Some((kind, name))
        })
    }

    fn enter(&self, chosen: &Chosen, listing: &mut Listing) {
        let uid = &self.metadata.uid;
        let of_pod = self.identity(uid, chosen);
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
            listing.pods.push((uid.as_str().into(), of_pod));
        }
    }
}

/// Returns the name of the CronJob of a Job.
fn cron_job(job: &str) -> Option<&str> {
    let (name, minutes) = job.rsplit_once('-')?;
    let is_time = minutes.len() == SCHEDULE_DIGITS && minutes.bytes().all(|byte| byte.is_ascii_digit());
    (is_time && !name.is_empty()).then_some(name)
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
        let chosen = Chosen {
            labels: vec![("app".into(), "app".into())],
            service: vec!["team".into()],
            selecting: vec!["tier".into(), "app".into()],
            deep: false,
        };
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
        let selected_by = |at: usize| listing.containers[at].1.selected_by.clone();
        assert_eq!(
            selected_by(1),
            [("app".into(), "web".into())],
            "labels that selections use are no labels of metrics"
        );
        let uids: Vec<&str> = listing.pods.iter().map(|(uid, _)| &**uid).collect();
        assert_eq!(uids, ["u-1", "u-2", "h"], "the cgroup of a static pod contains the hash");
    }

    #[test]
    fn the_workload_of_a_pod_is_the_object_whose_name_stays_the_same_in_a_rollout() {
        let workload = |owner: &str, labels: &str| {
            let body = format!(
                r#"{{"items":[{{"metadata":{{"name":"p","namespace":"n","uid":"u","ownerReferences":[
                    {{"kind":"Other","name":"not-the-controller"}}{owner}],"labels":{{{labels}}}}}}}]}}"#
            );
            let identity = listing(body.as_bytes(), &Chosen::default()).unwrap().pods.remove(0).1;
            identity.workload.map(|workload| format!("{} {}", workload.kind, workload.name))
        };
        let of = |kind: &str, name: &str, labels: &str| {
            workload(&format!(r#",{{"kind":"{kind}","name":"{name}","controller":true}}"#), labels)
                .unwrap_or_default()
        };
        let hash = r#""pod-template-hash":"5d4f8c7b9""#;
        assert_eq!(of("ReplicaSet", "web-app-5d4f8c7b9", hash), "Deployment web-app");
        assert_eq!(
            of("ReplicaSet", "web-5d4f8c7b9", r#""rollouts-pod-template-hash":"5d4f8c7b9""#),
            "Rollout web"
        );
        assert_eq!(of("ReplicaSet", "web-5d4f8c7b9", ""), "ReplicaSet web-5d4f8c7b9", "without a Deployment");
        assert_eq!(of("ReplicaSet", "other", hash), "ReplicaSet other");
        assert_eq!(of("StatefulSet", "db", ""), "StatefulSet db");
        assert_eq!(of("DaemonSet", "agent", hash), "DaemonSet agent");
        assert_eq!(of("Job", "backup-29398080", ""), "CronJob backup");
        assert_eq!(of("Job", "migrate-42", ""), "Job migrate-42");
        assert_eq!(of("Node", "node-1", ""), "", "a static pod");
        assert_eq!(workload("", hash), None);
    }

    #[test]
    fn nobody_takes_the_place_of_another_pod_by_an_annotation() {
        let body = br#"{"items":[
            {"metadata":{"name":"liar","namespace":"x","uid":"u-2","annotations":{"kubernetes.io/config.hash":"u-1"}}},
            {"metadata":{"name":"web-0","namespace":"shop","uid":"u-1"}}]}"#;
        let listing = listing(body, &Chosen::default()).unwrap();
        let said: Vec<_> = listing
            .pods
            .iter()
            .map(|(uid, identity)| (&**uid, &*identity.pod.as_ref().unwrap().name))
            .collect();
        assert_eq!(said, [("u-2", "liar"), ("u-1", "web-0")]);
    }

    #[test]
    fn a_list_without_pods_is_one_and_nonsense_is_none() {
        assert_eq!(listing(br#"{"items":null}"#, &Chosen::default()), Ok(Listing::default()));
        for body in [&b""[..], b"[]", b"{\"items\":[{}]}", b"Unauthorized"] {
            let failure = listing(body, &Chosen::default()).unwrap_err();
            assert!(failure.why.starts_with("the response is not a list of pods: "), "{failure:?}");
        }
    }
}
