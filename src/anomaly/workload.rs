//! The workload that a cgroup belongs to: what was learned of a pod holds for the pod that replaces it.

use std::borrow::Cow;
use std::sync::Arc;

use crate::metrics::Labels;

/// Characters of the suffixes that Kubernetes generates: no vowels, and nothing that looks like another character.
const SAFE: &str = "bcdfghjklmnpqrstvwxz2456789";

/// Returns the name of the workload of a cgroup with these labels: namespace, owner and container of a pod, else the path of the cgroup.
pub fn of(cgroup: &str, labels: &Labels) -> String {
    match (labels.get("namespace"), labels.get("pod"), labels.get("container")) {
        (Some(namespace), Some(pod), container) => {
            format!("{namespace}/{}/{}", owner(pod), container.unwrap_or_default())
        }
        _ => cgroup.to_owned(),
    }
}

/// Returns the name of a workload on CPUs of a type, on machines with several types.
pub(super) fn on<'w>(workload: &'w str, cpu_type: Option<&Arc<str>>) -> Cow<'w, str> {
    cpu_type.map_or(Cow::Borrowed(workload), |cpu_type| Cow::Owned(format!("{workload}@{cpu_type}")))
}

/// Returns the name of a pod without the parts that Kubernetes generates: `web` for `web-5d9c7b8f6d-x2x4z`, for `web-0` and for `web-x2x4z`.
fn owner(pod: &str) -> &str {
    let Some((stem, last)) = pod.rsplit_once('-') else { return pod };
    let is_safe = |text: &str| !text.is_empty() && text.chars().all(|c| SAFE.contains(c));
    if last.len() == 5 && is_safe(last) {
        return match stem.rsplit_once('-') {
            Some((owner, hash)) if (6..=10).contains(&hash.len()) && is_safe(hash) => owner,
            _ => stem,
        };
    }
    let is_ordinal = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    if is_ordinal { stem } else { pod }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_pod_is_its_name_without_generated_parts() {
        for (pod, expected) in [
            ("web-5d9c7b8f6d-x2x4z", "web"),
            ("shop-api-66bcd9dfc7-9kq2w", "shop-api"),
            ("web-0", "web"),
            ("node-exporter-x2x4z", "node-exporter"),
            ("backup-29384750-q7wkz", "backup-29384750"),
            ("static", "static"),
            ("my-tools", "my-tools"),
            ("a-", "a-"),
        ] {
            assert_eq!(owner(pod), expected, "{pod}");
        }
    }

    #[test]
    fn a_cgroup_without_a_pod_is_its_own_workload() {
        let labels = Labels::new([("cgroup", "/system.slice/ssh.service")]);
        assert_eq!(of("/system.slice/ssh.service", &labels), "/system.slice/ssh.service");
        let labels = Labels::new([("namespace", "shop"), ("pod", "web-0"), ("container", "app")]);
        assert_eq!(of("/kubepods/x", &labels), "shop/web/app");
    }
}
