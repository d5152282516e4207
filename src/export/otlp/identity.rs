//! Keys of the attributes that tell which program, cgroup, container and pod a metric or sample belongs to. Metrics and profiles use the
//! same keys with the same values, so that receivers can join them.
//!
//! Keys that begin with `perf.` have no convention: `process.executable.name` is the name of the file, which differs from the kernel's name
//! of a process, and `process.linux.cgroup` is the content of `/proc/PID/cgroup`, with the numbers of the hierarchies.

/// Path of a cgroup below the mount point.
pub const CGROUP: &str = "perf.cgroup";

/// The kernel's name of a process: the name of its main thread, at most 15 bytes.
pub const COMM: &str = "perf.comm";

/// Path of the file that a process executes, as the process sees it.
pub const EXECUTABLE_PATH: &str = "process.executable.path";

/// Name of the file that a process executes: the last part of its path.
pub const EXECUTABLE_NAME: &str = "process.executable.name";

/// ID of the container of a cgroup.
pub const CONTAINER_ID: &str = "container.id";

/// Name of a container outside of any pod, which does not belong to Kubernetes.
pub const CONTAINER_NAME: &str = "container.name";

/// Name of a container of a pod.
pub const POD_CONTAINER_NAME: &str = "k8s.container.name";

/// UID of the pod of a cgroup.
pub const POD_UID: &str = "k8s.pod.uid";

/// Name of a pod.
pub const POD_NAME: &str = "k8s.pod.name";

/// Namespace of a pod.
pub const NAMESPACE: &str = "k8s.namespace.name";

/// Number of a process.
pub const PID: &str = "process.pid";

/// Number of a thread.
pub const TID: &str = "thread.id";

/// Number of a CPU.
pub const CPU: &str = "cpu.logical_number";

/// Returns the last part of the path of a file; an empty text if there is none.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Returns the key of the name of a container.
pub(super) fn container_name(in_pod: bool) -> &'static str {
    if in_pod { POD_CONTAINER_NAME } else { CONTAINER_NAME }
}
