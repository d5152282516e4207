//! What may be written under `containers`.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::decode::At;
use crate::config::value::{List, Socket};

/// Who tells the names of containers and pods. Each cgroup of a container then has the labels `namespace`, `pod` and
/// `container`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Containers {
    /// The socket of a runtime that speaks CRI (containerd, CRI-O): a path, `off`, or `auto` (the default): the first that is
    /// there of those that containerd, CRI-O, k3s, RKE2, k0s, MicroK8s and cri-dockerd have.
    #[schemars(extend("examples" = ["auto", "off", "/run/containerd/containerd.sock"]))]
    pub(in crate::config) cri: Option<At<Socket>>,
    /// The socket of Docker, or of Podman: a path, `off`, or `auto` (the default).
    #[schemars(extend("examples" = ["auto", "off", "/run/docker.sock"]))]
    pub(in crate::config) docker: Option<At<Socket>>,
    /// Ask the kubelet of this node for its pods, for hosts whose runtime's socket cannot be had; `{}` is enough. The service
    /// account needs `get` of `nodes/proxy`.
    pub(in crate::config) kubelet: Option<At<Pods>>,
    /// Ask the API server for the pods of this node, likewise. The service account needs `list` of `pods`.
    pub(in crate::config) api_server: Option<At<Pods>>,
    /// Labels of pods (or of containers that are in none) that become labels of metrics: `app.kubernetes.io/name` becomes
    /// `app_kubernetes_io_name`. Each value makes series of its own.
    #[schemars(extend("examples" = [["app.kubernetes.io/name"]]))]
    pub(in crate::config) labels: Option<At<List<String>>>,
    /// Labels or annotations that name the service, as the label `service`; the first that a pod has.
    #[schemars(extend("examples" = [["app.kubernetes.io/part-of", "app", "com.docker.compose.service"]]))]
    pub(in crate::config) service: Option<At<List<String>>>,
}

/// How to ask for pods over HTTPS.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct Pods {
    /// Where: `https://127.0.0.1:10250` for the kubelet, what every pod is told for the API server.
    pub(in crate::config) url: Option<At<String>>,
    /// A file with the authorities that may vouch for it; that of the service account by default.
    pub(in crate::config) ca: Option<At<String>>,
    /// A file with the token to show; that of the service account by default.
    pub(in crate::config) token: Option<At<String>>,
    /// Take any certificate. Kubelets mostly have one that they signed themselves. Whoever listens in its place is then shown
    /// the token.
    pub(in crate::config) insecure: Option<At<bool>>,
    /// The name of this node, for the API server; the variable `NODE_NAME` by default.
    pub(in crate::config) node: Option<At<String>>,
}
