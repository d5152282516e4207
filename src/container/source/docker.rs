//! Docker API, which Podman also supports: `GET /containers/json`.

use std::collections::HashMap;

use serde::Deserialize;

use super::bounded::Bounded;
use super::{Failure, Listing};
use crate::container::identity::{Chosen, image, name};
use crate::targets::Identity;

/// Container in the list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Container {
    id: String,
    names: Option<Vec<String>>,
    #[serde(default)]
    image: String,
    labels: Option<HashMap<String, String>>,
}

/// Path of the running containers. It contains no API version, because no version is supported by all releases: Docker 29 requires at least
/// 1.44. The fields used here are the same in all versions.
pub(super) const CONTAINERS: &str = "/containers/json";

/// Decodes a list of containers.
pub(super) fn listing(body: &[u8], chosen: &Chosen) -> Result<Listing, Failure> {
    let Bounded(containers): Bounded<Container> = serde_json::from_slice(body)
        .map_err(|error| Failure::new(format!("the response is not a list of containers: {error}")))?;
    let containers = containers.into_iter().map(|container| {
        let identity = container.identity(chosen);
        (container.id.into_boxed_str(), identity)
    });
    Ok(Listing { containers: containers.collect(), pods: Vec::new() })
}

impl Container {
    fn identity(&self, chosen: &Chosen) -> Identity {
        let label = |key: &str| self.labels.as_ref()?.get(key).map(String::as_str);
        // The names of a container include those of its links, which contain a slash.
        let own = self.names.iter().flatten().map(|name| name.trim_start_matches('/'));
        let own = own.filter(|name| !name.contains('/')).min_by_key(|name| name.len());
        let kubernetes = |key| label(key).unwrap_or_default();
        let pod = crate::container::identity::pod(
            kubernetes("io.kubernetes.pod.namespace"),
            kubernetes("io.kubernetes.pod.name"),
            kubernetes("io.kubernetes.pod.uid"),
        );
        let named = label("io.kubernetes.container.name").filter(|_| pod.is_some()).or(own);
        let mut identity = Identity {
            pod,
            container: named.and_then(name),
            image: image(&self.image),
            ..Identity::default()
        };
        chosen.choose(&mut identity, &label, &|_| None);
        identity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_have_the_name_that_they_were_given() {
        let body = br#"[{"Id":"a1","Names":["/web/db","/db"],"Image":"postgres:16","Labels":{"com.docker.compose.service":"store"}},
            {"Id":"b2","Names":null,"Image":"","Labels":null},
            {"Id":"c3","Names":["/k8s_app_web-1_shop_uid_0"],"Labels":{"io.kubernetes.pod.name":"web-1",
             "io.kubernetes.pod.namespace":"shop","io.kubernetes.pod.uid":"u","io.kubernetes.container.name":"app"}}]"#;
        let chosen = Chosen { service: vec!["com.docker.compose.service".into()], ..Chosen::default() };
        let listing = listing(body, &chosen).unwrap();
        let pairs = |at: usize| listing.containers[at].1.pairs().collect::<Vec<_>>();
        assert_eq!(pairs(0), [("container", "db"), ("service", "store")]);
        assert_eq!(pairs(1), []);
        assert_eq!(pairs(2), [("namespace", "shop"), ("pod", "web-1"), ("container", "app")]);
        assert_eq!(listing.containers[0].1.image.as_deref(), Some("postgres:16"));
    }

    #[test]
    fn a_list_that_is_too_long_is_not_taken() {
        let body = format!("[{}{{\"Id\":\"\"}}]", "{\"Id\":\"\"},".repeat(super::super::MAX));
        let failure = listing(body.as_bytes(), &Chosen::default()).unwrap_err();
        assert!(failure.why.contains("more than 16384 items are not supported"), "{failure:?}");
    }

    #[test]
    fn what_is_no_list_is_told() {
        for body in [&b""[..], b"{}", b"[{}]", b"<html>", b"[{\"Id\":7}]"] {
            let failure = listing(body, &Chosen::default()).unwrap_err();
            assert!(failure.why.starts_with("the response is not a list of containers: "), "{failure:?}");
        }
    }
}
