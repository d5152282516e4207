//! Checks of `containers`: the metadata sources of containers and pods, and the pod labels that become metric labels.

use std::path::PathBuf;
use std::sync::Arc;

use super::decode::At;
use super::file;
use super::push::address;
use super::report::Report;
use super::value::List;
pub use super::value::Socket;
use crate::health::Scope;
use crate::metrics::fit_label_name;

/// Metadata sources and requested labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Containers {
    /// Runtime with CRI.
    pub cri: Socket,
    /// Docker or Podman.
    pub docker: Socket,
    /// Kubelet.
    pub kubelet: Option<Pods>,
    /// API server.
    pub api_server: Option<Pods>,
    /// Keys of pod labels, and their names in metrics.
    pub labels: Vec<(String, Arc<str>)>,
    /// Keys of labels or annotations; the first existing one contains the service name.
    pub service: Vec<String>,
    /// Keys of pod labels that selections of pods use, in alphabetical order.
    pub selecting: Vec<Arc<str>>,
    /// Whether the annotation that requests a set of `deep` is read.
    pub deep: bool,
}

/// HTTPS access to pod metadata. The environment of the pod supplies the values that are `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pods {
    /// URL of the server.
    pub url: Option<String>,
    /// File with the certificate authorities.
    pub ca: Option<PathBuf>,
    /// File with the bearer token.
    pub token: Option<PathBuf>,
    /// Whether any certificate is accepted.
    pub insecure: bool,
    /// Name of this node.
    pub node: Option<String>,
}

/// Reserved label names of cgroup series, besides the labels of scopes.
const TAKEN: [&str; 9] =
    ["container", "counters", "event", "leader", "namespace", "pod", "reason", "service", "state"];

/// Maximum number of labels.
const MAX: usize = 16;

/// Returns the checked `containers` section, with the values of `base` for omitted keys.
pub(super) fn containers(
    written: &Option<At<file::Containers>>,
    base: &Containers,
    report: &mut Report<'_>,
) -> Containers {
    let Some(At { value: written, .. }) = written else { return base.clone() };
    let file::Containers { cri, docker, kubelet, api_server, labels: of_pods, service } = written;
    Containers {
        cri: cri.as_ref().map_or(&base.cri, |at| &at.value).clone(),
        docker: docker.as_ref().map_or(&base.docker, |at| &at.value).clone(),
        kubelet: kubelet.as_ref().map(|at| pods(&at.value, report)).or_else(|| base.kubelet.clone()),
        api_server: api_server.as_ref().map(|at| pods(&at.value, report)).or_else(|| base.api_server.clone()),
        labels: of_pods.as_ref().map_or_else(|| base.labels.clone(), |at| labels(at, report)),
        service: match service {
            Some(at) => keys(at, report).into_iter().map(|at| at.value.clone()).collect(),
            None => base.service.clone(),
        },
        selecting: Vec::new(),
        deep: false,
    }
}

fn pods(written: &file::Pods, report: &mut Report<'_>) -> Pods {
    let path = |at: &Option<At<String>>| at.as_ref().map(|at| PathBuf::from(&at.value));
    let insecure = written.insecure.as_ref().is_some_and(|at| at.value);
    if let (Some(ca), true) = (&written.ca, insecure) {
        report.warning(ca.node, "this has no effect: with `insecure` any certificate is accepted", None);
    }
    Pods {
        url: written.url.as_ref().and_then(|at| {
            address(at, |_| "use the form `https://127.0.0.1:10250`".into(), report).map(|_| at.value.clone())
        }),
        ca: path(&written.ca),
        token: path(&written.token),
        insecure,
        node: written.node.as_ref().map(|at| at.value.clone()),
    }
}

/// Returns the keys, and reports empty keys.
fn keys<'f>(at: &'f At<List<String>>, report: &mut Report<'_>) -> Vec<&'f At<String>> {
    let all = &at.value;
    report.too_many(at.node, (all.len(), "labels"), MAX, None);
    for key in all.iter().filter(|key| key.value.trim().is_empty()) {
        report.error(key.node, "the label name is empty", None);
    }
    all.iter().take(MAX).collect()
}

fn labels(at: &At<List<String>>, report: &mut Report<'_>) -> Vec<(String, Arc<str>)> {
    let mut labels: Vec<(String, Arc<str>)> = Vec::new();
    for key in keys(at, report) {
        let name = fit_label_name(&key.value);
        let of_scope = Scope::ALL.iter().any(|scope| scope.label() == Some(&*name));
        if of_scope || TAKEN.contains(&&*name) {
            let message = format!("the label `{name}` is reserved");
            report.error(key.node, message, "to use it as the service name, list it under `service`");
        } else if labels.iter().any(|label| *label.1 == *name) {
            report.error(key.node, format!("another label is also converted to `{name}`"), None);
        } else {
            labels.push((key.value.clone(), name.into()));
        }
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{good, report};

    fn containers(text: &str) -> Containers {
        good(&format!("containers: {{{text}}}")).containers
    }

    #[test]
    fn sockets_are_looked_for_unless_they_are_named_or_off() {
        assert_eq!(containers(""), Containers::default());
        assert_eq!(containers("cri: /run/x.sock").cri, Socket::At("/run/x.sock".into()));
        assert_eq!(containers("cri: unix:///run/x.sock").cri, Socket::At("/run/x.sock".into()));
        let off = containers("cri: off, docker: false");
        assert_eq!((off.cri, off.docker), (Socket::Off, Socket::Off), "Helm makes a truth value of it");
        for wrong in ["run/x.sock", "true", "", "'tcp://127.0.0.1:2375'"] {
            let said = report(&format!("containers: {{docker: {wrong}}}"));
            assert!(
                said.contains("the absolute path of a socket, `auto` or `off`") || wrong.is_empty(),
                "{said}"
            );
        }
    }

    #[test]
    fn pods_are_asked_for_where_that_is_said() {
        let asked = containers(
            "kubelet: {insecure: true, token: /t}, api_server: {url: \"https://k:6443\", node: n}",
        );
        let kubelet = asked.kubelet.unwrap();
        assert_eq!((kubelet.insecure, kubelet.token), (true, Some("/t".into())));
        let api_server = asked.api_server.unwrap();
        assert_eq!(
            (api_server.url.as_deref(), api_server.node.as_deref()),
            (Some("https://k:6443"), Some("n"))
        );
        assert_eq!(containers("kubelet: {}").kubelet, Some(Pods::default()));
        assert!(report("containers: {kubelet: {url: localhost}}").contains("has no scheme"));
        assert!(report("containers: {kubelet: {insecure: true, ca: /a}}").contains("this has no effect"));
    }

    #[test]
    fn labels_have_names_of_their_own_in_metrics() {
        let labels = containers("labels: [app.kubernetes.io/name, tier], service: app").labels;
        let names: Vec<&str> = labels.iter().map(|(_, name)| &**name).collect();
        assert_eq!(names, ["app_kubernetes_io_name", "tier"]);
        assert_eq!(containers("service: app").service, ["app"]);
        let said = |text: &str| report(&format!("containers: {{labels: {text}}}"));
        assert!(said("[pod]").contains("the label `pod` is reserved"));
        assert!(said("[a.b, a/b]").contains("another label is also converted to `a_b`"));
        assert!(said("['']").contains("the label name is empty"));
        let many: Vec<String> = (0..17).map(|at| format!("l{at}")).collect();
        assert!(said(&format!("[{}]", many.join(","))).contains("17 labels, at most 16 are allowed"));
    }
}
