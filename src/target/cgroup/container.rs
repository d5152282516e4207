//! Which container a cgroup is of, as far as its path tells.
//!
//! Runtimes name the cgroup of a container by its identifier of 64 hexadecimal digits: Docker, containerd and CRI-O, with
//! the systemd driver (`cri-containerd-<id>.scope`) or without (`<id>`). The kubelet names that of a pod above it by the
//! pod's UID: `kubepods-burstable-pod<uid>.slice`, where dashes became underscores, or `pod<uid>`.

/// Digits of the identifier of a container.
const DIGITS: usize = 64;

/// The container that a cgroup is of, or lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContainerPath<'p> {
    /// Its identifier: 64 hexadecimal digits.
    pub id: &'p str,
    /// The path of its own cgroup: the beginning of the one that was asked about.
    pub path: &'p str,
}

impl<'p> ContainerPath<'p> {
    /// Of a path below the mount point. Where containers lie within each other it is the outermost, which is the one that
    /// the host knows. `None` if no part of the path is named after a container.
    pub fn of(path: &'p str) -> Option<Self> {
        let mut start = 0;
        for part in path.split('/') {
            let end = start + part.len();
            if let (Some(id), Some(path)) = (container_id(part), path.get(..end)) {
                return Some(Self { id, path });
            }
            start = end + 1;
        }
        None
    }
}

/// The UID of the pod that a cgroup is of, or lies in, with dashes. `None` if no part of the path is named after a pod.
pub fn pod_uid(path: &str) -> Option<String> {
    path.split('/').find_map(|part| {
        let name = part.strip_suffix(".slice").unwrap_or(part);
        let uid = match name.rfind("-pod") {
            Some(at) if name.starts_with("kubepods") => name.get(at + 4..)?,
            _ => name.strip_prefix("pod")?,
        };
        let uid = uid.replace('_', "-");
        let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
        // Static pods have the hash of their file in its place, without dashes.
        let dashes = uid.bytes().filter(|&byte| byte == b'-').count();
        (digits == 32 && (dashes == 4 || dashes == 0) && digits + dashes == uid.len()).then_some(uid)
    })
}

fn container_id(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    let at = name.len().checked_sub(DIGITS)?;
    let (prefix, id) = (name.get(..at)?, name.get(at..)?);
    let named = prefix.is_empty() || prefix.ends_with('-') || prefix.ends_with(':');
    (named && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4f0cdeadbeef00112233445566778899aabbccddeeff00112233445566778899";

    fn id(path: &str) -> Option<&str> {
        ContainerPath::of(path).map(|container| container.id)
    }

    #[test]
    fn containers_of_all_runtimes_are_known_by_their_cgroups() {
        for path in [
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{ID}.scope"
            ),
            format!("/kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope/container"),
            format!("/kubepods/besteffort/pod1/{ID}"),
            format!("/system.slice/docker-{ID}.scope"),
            format!("/docker/{ID}/init"),
            format!("/k8s.io/{ID}"),
            format!("/system.slice/containerd.service/kubepods-burstable-pod1.slice:cri-containerd:{ID}"),
        ] {
            assert_eq!(id(&path), Some(ID), "{path}");
        }
    }

    #[test]
    fn what_is_no_container_is_none() {
        for path in ["/", "", "/system.slice/nginx.service", "/docker/4f0c", "/user.slice/session-1.scope"] {
            assert_eq!(id(path), None, "{path}");
        }
        let upper = format!("/docker/{}", ID.to_uppercase());
        assert_eq!(id(&upper), None);
        assert_eq!(id(&format!("/a/x{ID}")), None, "the end of another name");
        assert_eq!(id(&format!("/docker/{}é", &ID[..63])), None);
    }

    #[test]
    fn a_container_within_another_belongs_to_the_outer_one() {
        let outer = format!("/docker/{ID}");
        let path = format!("{outer}/docker/{}", ID.replace('4', "5"));
        assert_eq!(ContainerPath::of(&path), Some(ContainerPath { id: ID, path: &outer }));
    }

    #[test]
    fn pods_are_known_by_their_uid() {
        let uid = "0a1b2c3d-0011-2233-4455-66778899aabb";
        let slice = format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/x",
            uid.replace('-', "_")
        );
        assert_eq!(pod_uid(&slice).as_deref(), Some(uid));
        assert_eq!(pod_uid(&format!("/kubepods/pod{uid}")).as_deref(), Some(uid));
        let fixed = "0a1b2c3d00112233445566778899aabb";
        assert_eq!(pod_uid(&format!("/kubepods/besteffort/pod{fixed}/c")).as_deref(), Some(fixed));
        for path in ["/podman.slice", "/pods/pod7", "/kubepods.slice", "/pod"] {
            assert_eq!(pod_uid(path), None, "{path}");
        }
    }
}
