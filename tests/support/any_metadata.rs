//! Invariants for arbitrary responses of container runtimes, kubelets and API servers. Called by a fuzz target and by a test that keeps the
//! target working.

use perf_exporter::container::{Chosen, Identity, Kind, decode};

/// Checks the bytes as a response of each kind. The byte 0xff separates the responses of CRI.
pub(crate) fn holds(bytes: &[u8]) {
    let chosen = Chosen {
        labels: vec![("app".into(), "app".into())],
        service: vec!["team".into(), "app".into()],
        ..Chosen::default()
    };
    let mut parts = bytes.splitn(3, |&byte| byte == 0xff);
    let responses = [(); 3].map(|()| parts.next().unwrap_or_default());
    for kind in [Kind::Cri, Kind::Docker, Kind::Kubelet, Kind::ApiServer] {
        match decode(kind, responses, &chosen) {
            Ok(listing) => {
                let all = listing.containers.iter().chain(&listing.pods);
                all.for_each(|(_, identity)| can_be_a_label(identity));
            }
            Err(failure) => assert!(!failure.why.contains(char::is_control), "{failure:?}"),
        }
    }
}

/// The values become labels of metrics.
fn can_be_a_label(identity: &Identity) {
    for (name, value) in identity.pairs() {
        assert!(!name.is_empty() && !value.is_empty(), "{identity:?}");
        assert!(value.len() <= 512, "{} bytes", value.len());
    }
}
