//! Events of Kubernetes about incidents: `kubectl describe` shows them beside the pod, or the node.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Builder;
use tokio::time::timeout;

use crate::clean::clean;
use crate::clock::Timestamp;
use crate::incident::Incident;
use crate::net::kubernetes::KubernetesServer;
use crate::targets::pod_uid;

/// Maximum time of a request. The thread collects no other evidence meanwhile.
const PATIENCE: Duration = Duration::from_secs(5);

/// Maximum size of a response in bytes.
const ANSWER: usize = 1 << 20;

/// Maximum length of a message, in bytes: that of the API is 1024 characters.
const MESSAGE: usize = 1000;

/// Creates an event about an incident that began.
///
/// # Errors
/// The reason, with the remedy.
pub(super) fn create(server: &KubernetesServer, incident: &Incident, now: Timestamp) -> Result<(), String> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let (namespace, event) = event(incident, now);
    let path = format!("/api/v1/namespaces/{namespace}/events");
    let sent = runtime.block_on(async {
        timeout(PATIENCE, server.post(&path, event.to_string().into_bytes(), ANSWER)).await
    });
    match sent {
        Ok(answer) => answer.map(drop),
        Err(_) => Err(format!("no response within {} s", PATIENCE.as_secs())),
    }
}

/// Returns the namespace and the content of an event (`v1.Event` of the Kubernetes API): about the pod of the cgroup, or about the node.
fn event(incident: &Incident, now: Timestamp) -> (String, Value) {
    let label = |wanted: &str| {
        incident.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    };
    let (namespace, object) = match (label("namespace"), label("pod")) {
        (Some(namespace), Some(pod)) => {
            let uid = incident.cgroup.as_deref().and_then(pod_uid);
            let container = label("container").map(|name| format!("spec.containers{{{name}}}"));
            let object = json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod, "uid": uid, "fieldPath": container,
            });
            (namespace.to_owned(), object)
        }
        // The kubelet, too, uses the name of the node as its UID in events.
        _ => {
            let object =
                json!({"apiVersion": "v1", "kind": "Node", "name": incident.node, "uid": incident.node});
            ("default".to_owned(), object)
        }
    };
    let time = now.to_string();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": "perf-exporter-", "namespace": namespace},
        "involvedObject": object,
        "type": "Warning",
        "reason": "PerfIncident",
        "message": clean(&message(incident), MESSAGE),
        "firstTimestamp": time,
        "lastTimestamp": time,
        "count": 1,
        "source": {"component": "perf-exporter", "host": incident.node},
        "reportingComponent": "perf-exporter",
        "reportingInstance": incident.node,
    });
    (namespace, event)
}

fn message(incident: &Incident) -> String {
    let causes = incident.causes.iter().map(|cause| format!("; {cause}"));
    let suspects = incident.suspects.iter().map(|suspect| suspect.cgroup.as_str());
    let suspects: Vec<&str> = suspects.collect();
    let suspects =
        if suspects.is_empty() { String::new() } else { format!("; suspects: {}", suspects.join(", ")) };
    let Incident { id, node, trigger, .. } = incident;
    format!("{}{}{suspects}; evidence: /incidents/{id} of {node}", trigger.text(), causes.collect::<String>())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::incident::tests::example;

    fn of_pod() -> Incident {
        let labels = [("namespace", "shop"), ("pod", "web-0"), ("container", "app")];
        Incident {
            cgroup: Some("/kubepods/pod12345678-1234-1234-1234-123456789abc/app".to_owned()),
            labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
            causes: vec!["the cgroup has exhausted its CPU quota: 7 preemptions per second".to_owned()],
            ..example(0)
        }
    }

    #[test]
    fn an_event_is_about_the_pod_with_its_uid_or_about_the_node() {
        let (namespace, event) = event(&of_pod(), Timestamp(1_795_809_235_000));
        assert_eq!(namespace, "shop");
        assert_eq!(
            event["involvedObject"],
            json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-0",
                "uid": "12345678-1234-1234-1234-123456789abc", "fieldPath": "spec.containers{app}",
            })
        );
        assert_eq!(
            event["message"],
            "runqueue_latency: 0.2500 instead of 0.000400; the cgroup has exhausted its CPU quota: 7 preemptions per second; \
             suspects: /noisy.service; evidence: /incidents/20261127T195355Z of node-1"
        );
        assert_eq!(event["firstTimestamp"], "2026-11-27T19:53:55Z");
        let (namespace, event) =
            super::event(&Incident { cgroup: None, labels: Vec::new(), ..example(0) }, Timestamp(0));
        assert_eq!((&*namespace, &event["involvedObject"]["kind"]), ("default", &json!("Node")));
    }

    #[test]
    fn an_event_is_posted_and_a_refusal_names_the_remedy() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = KubernetesServer::new(&format!("http://{}", listener.local_addr().unwrap()), None, None);
        let served = thread::spawn(move || {
            ["201 Created", "403 Forbidden"].map(|status| {
                let (mut stream, _) = listener.accept().unwrap();
                let (mut request, mut part) = (Vec::new(), [0; 4096]);
                while !request.ends_with(b"}") {
                    let size = stream.read(&mut part).unwrap();
                    request.extend_from_slice(&part[..size]);
                }
                write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}")
                    .unwrap();
                String::from_utf8(request).unwrap()
            })
        });
        assert_eq!(create(&server, &of_pod(), Timestamp(0)), Ok(()));
        let refused = create(&server, &of_pod(), Timestamp(0)).unwrap_err();
        assert!(refused.contains("the service account needs the role"), "{refused}");
        let [request, _] = served.join().unwrap();
        assert!(request.starts_with("POST /api/v1/namespaces/shop/events HTTP/1.1\r\n"), "{request}");
    }
}
