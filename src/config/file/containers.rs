//! Keys of `containers`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::decode::At;
use crate::config::value::{List, Socket};

/// Metadata sources of container and pod names. Each cgroup of a container has the labels `namespace`, `pod` and `container`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Containers {
    /// The socket of a runtime with CRI (containerd, CRI-O): a path, `off`, or `auto` (the default). `auto` uses the first existing socket
    /// of containerd, CRI-O, k3s, RKE2, k0s, MicroK8s and cri-dockerd.
    #[schemars(extend("examples" = ["auto", "off", "/run/containerd/containerd.sock"]))]
    pub(in crate::config) cri: Option<At<Socket>>,
    /// The socket of Docker or Podman: a path, `off`, or `auto` (the default).
    #[schemars(extend("examples" = ["auto", "off", "/run/docker.sock"]))]
    pub(in crate::config) docker: Option<At<Socket>>,
    /// Requests the pods of this node from its kubelet, for hosts where the socket of the runtime is not accessible; `{}` is enough. The
    /// service account needs `get` on `nodes/pods`, or on `nodes/proxy` before Kubernetes 1.33.
    pub(in crate::config) kubelet: Option<At<Pods>>,
    /// Requests the pods of this node from the API server, for the same case. The service account needs `list` on `pods`.
    pub(in crate::config) api_server: Option<At<Pods>>,
    /// Labels of pods (or of containers outside pods) that become labels of metrics: `app.kubernetes.io/name` becomes
    /// `app_kubernetes_io_name`. Each value creates additional series.
    #[schemars(extend("examples" = [["app.kubernetes.io/name"]]))]
    pub(in crate::config) labels: Option<At<List<String>>>,
    /// Labels or annotations that contain the service name. The first one that a pod has becomes the label `service`.
    #[schemars(extend("examples" = [["app.kubernetes.io/part-of", "app", "com.docker.compose.service"]]))]
    pub(in crate::config) service: Option<At<List<String>>>,
}

/// HTTPS access to pod metadata.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Pods {
    /// URL of the server: `https://127.0.0.1:10250` for the kubelet, the address in the environment of every pod for the API server.
    pub(in crate::config) url: Option<At<String>>,
    /// File with the certificate authorities that may sign the certificate of the server; that of the service account by default.
    pub(in crate::config) ca: Option<At<String>>,
    /// File with the bearer token; that of the service account by default.
    pub(in crate::config) token: Option<At<String>>,
    /// Accept any certificate. Most kubelets have a self-signed certificate. A server that impersonates the kubelet receives the token.
    pub(in crate::config) insecure: Option<At<bool>>,
    /// Name of this node, for the API server; the variable `NODE_NAME` by default.
    pub(in crate::config) node: Option<At<String>>,
}
