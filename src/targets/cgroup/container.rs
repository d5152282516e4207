//! Recognition of containers and pods by the path of a cgroup.
//!
//! Runtimes name the cgroup of a container by its ID of 64 hexadecimal digits: Docker, Podman, containerd and CRI-O, with the systemd
//! driver (`cri-containerd-<id>.scope`) or without (`<id>`). Fargate uses 32 digits, a dash and a number. The monitor of a container,
//! `conmon`, has a cgroup named after the container, which is not a container. The kubelet names the cgroup of a pod by the pod's UID:
//! `kubepods-burstable-pod<uid>.slice`, with underscores instead of dashes, or `pod<uid>`.

/// Number of digits of a container ID.
const DIGITS: usize = 64;

/// Number of digits in front of the dash, and maximum number of digits behind it, in a container ID of Fargate.
const FARGATE: (usize, usize) = (32, 10);

/// The container of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContainerPath<'p> {
    /// The container ID, usually 64 hexadecimal digits.
    pub id: &'p str,
    /// The path of the container's own cgroup: a prefix of the given path.
    pub path: &'p str,
}

impl<'p> ContainerPath<'p> {
    /// Returns the container of a path below the mount point. For nested containers it is the outermost one, which is the one that the
    /// host's runtime manages. `None` if no component of the path is the name of a container.
    pub fn of(path: &'p str) -> Option<Self> {
        Self::all(path).next()
    }

    /// Returns all containers of a path, the outermost first. A node of a cluster can be a container itself. The runtime in the cluster
    /// then manages the inner one, and the runtime of the host the outer one.
    pub fn all(path: &'p str) -> impl Iterator<Item = Self> {
        let mut start = 0;
        path.split('/').filter_map(move |part| {
            let end = start + part.len();
            start = end + 1;
            Some(Self { id: container_id(part)?, path: path.get(..end)? })
        })
    }
}

/// Returns the UID of the pod of a cgroup, with dashes. `None` if no component of the path is the name of a pod.
pub fn pod_uid(path: &str) -> Option<String> {
    path.split('/').find_map(|part| {
        // The name of a container follows if containerd is a systemd service and puts cgroups below its own.
        let name = part.split(".slice").next().unwrap_or(part);
        let uid = match name.rfind("-pod") {
            Some(at) if name.starts_with("kubepods") || name.starts_with("kubelet-kubepods") => {
                name.get(at + 4..)?
            }
            _ => name.strip_prefix("pod")?,
        };
        let uid = uid.replace('_', "-");
        let digits = uid.bytes().filter(u8::is_ascii_hexdigit).count();
        // Static pods have the hash of their file instead of a UID, without dashes.
        let dashes = uid.bytes().filter(|&byte| byte == b'-').count();
        (digits == 32 && (dashes == 4 || dashes == 0) && digits + dashes == uid.len()).then_some(uid)
    })
}

fn container_id(part: &str) -> Option<&str> {
    let name = part.strip_suffix(".scope").unwrap_or(part);
    if is_of_fargate(name) {
        return Some(name);
    }
    let at = name.len().checked_sub(DIGITS)?;
    let (prefix, id) = (name.get(..at)?, name.get(at..)?);
    let named = prefix.is_empty() || prefix.ends_with('-') || prefix.ends_with(':');
    (named && !prefix.ends_with("conmon-") && id.bytes().all(is_digit)).then_some(id)
}

fn is_of_fargate(name: &str) -> bool {
    let (first, most) = FARGATE;
    name.split_once('-').is_some_and(|(id, number)| {
        id.len() == first
            && id.bytes().all(is_digit)
            && (1..=most).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)
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
            format!("/kubepods.slice/kubepods-pod1.slice/docker-{ID}.scope"),
            format!("/kubepods/burstable/pod1/{ID}/nested/deeper"),
            format!("/machine.slice/libpod-{ID}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope"),
            format!("/libpod_parent/libpod-{ID}"),
            format!("/ecs/0aac7b8d7e1b4f5c9f6d/{ID}"),
            format!("/ecs/prod/0aac7b8d-7e1b-4f5c-9f6d-0aac7b8d7e1b/{ID}"),
            format!("/system.slice/docker.service/docker/{ID}"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice/cri-containerd-{ID}.scope"
            ),
            format!("/actions_job/{ID}"),
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
    fn a_container_of_fargate_has_an_identifier_of_its_own_kind() {
        let of = "cd189a933e5849daa93386466019ab50-2495160603";
        assert_eq!(id(&format!("/ecs/cd189a933e5849daa93386466019ab50/{of}")), Some(of));
        assert_eq!(id("/ecs/cd189a933e5849daa93386466019ab50"), None, "the task is none");
        assert_eq!(id("/ecs/cd189a933e5849daa93386466019ab5x-2495160603"), None);
        assert_eq!(id("/ecs/cd189a933e5849daa93386466019ab50-24951606031"), None);
    }

    #[test]
    fn who_watches_over_a_container_is_none() {
        assert_eq!(id(&format!("/machine.slice/libpod-conmon-{ID}.scope")), None);
        assert_eq!(id(&format!("/kubepods.slice/kubepods-pod1.slice/crio-conmon-{ID}.scope")), None);
    }

    #[test]
    fn a_node_that_is_a_container_has_containers_within() {
        let (node, inner) = (ID.replace('4', "5"), ID);
        let path = format!("/docker/{node}/kubepods/burstable/pod1/{inner}");
        let all: Vec<&str> = ContainerPath::all(&path).map(|container| container.id).collect();
        assert_eq!(all, [&*node, inner]);
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
        let below_a_service = format!(
            "/system.slice/containerd.service/kubepods-burstable-pod{}.slice:cri-containerd:{ID}",
            uid.replace('-', "_")
        );
        assert_eq!(pod_uid(&below_a_service).as_deref(), Some(uid));
        let kind = format!(
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice",
            uid.replace('-', "_")
        );
        assert_eq!(pod_uid(&kind).as_deref(), Some(uid));
        let fixed = "0a1b2c3d00112233445566778899aabb";
        assert_eq!(pod_uid(&format!("/kubepods/besteffort/pod{fixed}/c")).as_deref(), Some(fixed));
        for path in ["/podman.slice", "/pods/pod7", "/kubepods.slice", "/pod"] {
            assert_eq!(pod_uid(path), None, "{path}");
        }
    }
}
