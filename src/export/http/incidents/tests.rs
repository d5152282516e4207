use super::*;
use crate::incident::Bounds;
use crate::incident::tests::{example, write};

fn alerts(json: &str) -> Posted {
    serde_json::from_str(json).unwrap()
}

fn empty() -> History {
    History::new(3_600_000, 1000, 1 << 20)
}

#[test]
fn a_reason_and_a_cgroup_begin_one_incident() {
    let posted = alerts(r#"{"reason": "slow\u001b[2J", "cgroup": "/a"}"#);
    let [(Trigger::Request { reason }, cgroup)] = &wanted(&posted, &empty())[..] else { panic!() };
    assert!(reason.starts_with("slow") && !reason.contains('\u{1b}'), "{reason:?}");
    assert_eq!(cgroup.as_deref(), Some("/a"));
    let of_machine = wanted(&alerts("{}"), &empty());
    assert_eq!(of_machine, [(Trigger::Request { reason: String::new() }, None)]);
}

#[test]
fn alerts_about_other_nodes_and_resolved_alerts_begin_none() {
    let posted = alerts(
        r#"{"version": "4", "status": "firing", "alerts": [
            {"status": "firing", "labels": {"alertname": "Elsewhere", "namespace": "shop", "pod": "web-1"}},
            {"status": "firing", "labels": {"alertname": "Gone", "cgroup": "/gone"}},
            {"status": "resolved", "labels": {"alertname": "Over"}},
            {"status": "firing", "labels": {"alertname": "NodeSlow"}, "annotations": {"summary": "slow"}},
            {"status": "firing", "labels": {"alertname": "NodeSlowToo"}}
        ]}"#,
    );
    let expected = Trigger::Alert { name: "NodeSlow".to_owned(), summary: "slow".to_owned() };
    assert_eq!(wanted(&posted, &empty()), [(expected, None)]);
}

#[test]
fn other_json_is_refused() {
    for text in ["[]", "3", r#"{"alerts": 3}"#, r#"{"reason": []}"#, "{"] {
        assert!(serde_json::from_str::<Posted>(text).is_err(), "{text}");
    }
}

#[test]
fn the_files_of_an_incident_are_served_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let files = [
        (REPORT, b"<script nonce=\"0\">x</script>nonce=&quot;0&quot;".to_vec()),
        ("cpu-during.folded", b"a;b 1\n".to_vec()),
    ];
    write(&store, &example(0), &files, Bounds { number: 9, bytes: 1 << 20 }).unwrap();
    let get = |path: &str| file(Some(&store), path, "abc");
    let whole = |answer: Answer| match answer.content {
        Content::Whole(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        Content::Encoded(_) => panic!("not whole"),
    };
    let report = get("20261127T195355Z");
    assert_eq!(report.code, StatusCode::OK);
    assert_eq!(whole(report), "<script nonce=\"abc\">x</script>nonce=&quot;0&quot;");
    assert_eq!(whole(get("20261127T195355Z/cpu-during.folded")), "a;b 1\n");
    assert_eq!(get("20261127T195355Z/archive.tar").code, StatusCode::OK);
    for path in [
        "20261127T195356Z",
        "20261127T195355Z/../x",
        "../../etc/passwd",
        "20261127T195355Z/",
        "%2e%2e",
        "x/archive.tar",
    ] {
        assert_eq!(get(path).code, StatusCode::NOT_FOUND, "{path}");
    }
    std::fs::write(dir.path().join("20261127T195356Z.tar"), "damaged").unwrap();
    assert_eq!(get("20261127T195356Z").code, StatusCode::CONFLICT);
    assert_eq!(file(None, "20261127T195355Z", "abc").code, StatusCode::NOT_FOUND);
}
