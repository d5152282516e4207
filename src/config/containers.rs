//! What `containers` comes to: who is asked for the names of containers, and which labels of theirs are taken.

use std::path::PathBuf;
use std::sync::Arc;

use super::decode::At;
use super::file;
use super::problem::shown;
use super::push::url;
use super::report::Report;
use super::value::List;
use crate::metrics::fit_label_name;

/// Who is asked, and for what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Containers {
    /// A runtime that speaks CRI.
    pub cri: Socket,
    /// Docker or Podman.
    pub docker: Socket,
    /// The kubelet.
    pub kubelet: Option<Pods>,
    /// The API server.
    pub api_server: Option<Pods>,
    /// Keys of labels, and what they are called in metrics.
    pub labels: Vec<(String, Arc<str>)>,
    /// Keys of labels or annotations of which the first that is there names the service.
    pub service: Vec<String>,
}

/// Where the socket of a runtime is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Socket {
    /// Where it usually is, if it is there.
    #[default]
    Auto,
    /// Nobody is asked.
    Off,
    /// Here.
    At(PathBuf),
}

/// How pods are asked for over HTTPS; what is `None` is for the pod's surroundings to say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pods {
    /// Where.
    pub url: Option<String>,
    /// A file with authorities.
    pub ca: Option<PathBuf>,
    /// A file with a token.
    pub token: Option<PathBuf>,
    /// Whether any certificate is taken.
    pub insecure: bool,
    /// The name of this node.
    pub node: Option<String>,
}

/// Labels that series of cgroups have for other reasons.
const TAKEN: [&str; 11] = [
    "cgroup",
    "container",
    "counters",
    "cpu",
    "event",
    "leader",
    "namespace",
    "pod",
    "reason",
    "service",
    "state",
];

/// The most labels that are taken.
const MOST: usize = 16;

/// The meaning of `containers`, over `base` for what it does not mention.
pub(super) fn containers(
    written: Option<&At<file::Containers>>,
    base: &Containers,
    report: &mut Report<'_>,
) -> Containers {
    let Some(At { value: written, .. }) = written else { return base.clone() };
    let file::Containers { cri, docker, kubelet, api_server, labels: of_pods, service } = written;
    Containers {
        cri: cri.as_ref().map_or_else(|| base.cri.clone(), |at| socket(at, report)),
        docker: docker.as_ref().map_or_else(|| base.docker.clone(), |at| socket(at, report)),
        kubelet: kubelet.as_ref().map(|at| pods(&at.value, report)).or_else(|| base.kubelet.clone()),
        api_server: api_server.as_ref().map(|at| pods(&at.value, report)).or_else(|| base.api_server.clone()),
        labels: of_pods.as_ref().map_or_else(|| base.labels.clone(), |at| labels(at, report)),
        service: match service {
            Some(at) => keys(at, report).into_iter().map(|at| at.value.clone()).collect(),
            None => base.service.clone(),
        },
    }
}

fn socket(at: &At<String>, report: &mut Report<'_>) -> Socket {
    let path = at.value.strip_prefix("unix://").unwrap_or(&at.value);
    match path {
        "auto" => Socket::Auto,
        "off" => Socket::Off,
        path if path.starts_with('/') => Socket::At(path.into()),
        _ => {
            let message = format!("{} is no socket", shown(&at.value));
            report.error(at.node, message, Some("write its path from the root on, `auto` or `off`".into()));
            Socket::Off
        }
    }
}

fn pods(written: &file::Pods, report: &mut Report<'_>) -> Pods {
    let path = |at: &Option<At<String>>| at.as_ref().map(|at| PathBuf::from(&at.value));
    let insecure = written.insecure.as_ref().is_some_and(|at| at.value);
    if let (Some(ca), true) = (&written.ca, insecure) {
        report.warning(ca.node, "this has no effect: with `insecure` any certificate is taken", None);
    }
    Pods {
        url: written.url.as_ref().and_then(|at| endpoint(at, report)),
        ca: path(&written.ca),
        token: path(&written.token),
        insecure,
        node: written.node.as_ref().map(|at| at.value.clone()),
    }
}

fn endpoint(at: &At<String>, report: &mut Report<'_>) -> Option<String> {
    match url(&at.value) {
        Ok(_) => Some(at.value.clone()),
        Err((why, _)) => {
            report.error(at.node, why, Some("write it like `https://127.0.0.1:10250`".into()));
            None
        }
    }
}

/// Keys that are not empty.
fn keys<'f>(at: &'f At<List<String>>, report: &mut Report<'_>) -> Vec<&'f At<String>> {
    let all = &at.value;
    if all.len() > MOST {
        report.error(at.node, format!("{} labels are too many; {MOST} is the most", all.len()), None);
    }
    for key in all.iter().filter(|key| key.value.trim().is_empty()) {
        report.error(key.node, "a label has a name", None);
    }
    all.iter().take(MOST).collect()
}

fn labels(at: &At<List<String>>, report: &mut Report<'_>) -> Vec<(String, Arc<str>)> {
    let mut labels: Vec<(String, Arc<str>)> = Vec::new();
    for key in keys(at, report) {
        let name = fit_label_name(&key.value);
        if TAKEN.contains(&&*name) {
            let message = format!("series have a label `{name}` of another meaning");
            report.error(key.node, message, Some("`service` may name pods by such a label".into()));
        } else if labels.iter().any(|label| *label.1 == *name) {
            report.error(key.node, format!("another one is called `{name}` in metrics as well"), None);
        } else {
            labels.push((key.value.clone(), name.into()));
        }
    }
    labels
}

impl Containers {
    /// Whether nobody is asked, whatever there is.
    pub fn is_off(&self) -> bool {
        self.cri == Socket::Off
            && self.docker == Socket::Off
            && self.kubelet.is_none()
            && self.api_server.is_none()
    }
}
