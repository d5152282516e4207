use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use proptest::prelude::*;

use super::*;
use crate::error::{FileError, FileErrorKind};
use crate::host;

const NOW: Timestamp = Timestamp(1_795_809_235_000);
const AMPLE: Bounds = Bounds { number: 10, bytes: 1 << 20 };

/// An incident that was noticed this many seconds after [`NOW`].
pub(crate) fn example(after: u64) -> Incident {
    let noticed = Timestamp(NOW.0 + after * 1000);
    Incident {
        format: FORMAT,
        id: IncidentId::new(noticed, 1),
        node: "node-1".to_owned(),
        version: "0.0.0".to_owned(),
        trigger: Trigger::Anomaly {
            kind: "runqueue_latency".to_owned(),
            value: 0.25,
            usual: 0.0004,
            score: 12.5,
        },
        cgroup: Some("/quiet.service".to_owned()),
        labels: vec![("pod".to_owned(), "quiet-0".to_owned())],
        began_ms: noticed.0 - 30_000,
        ended_ms: None,
        causes: Vec::new(),
        suspects: vec![Suspected {
            cgroup: "/noisy.service".to_owned(),
            basis: "correlation".to_owned(),
            score: 0.5,
            samples: 60,
        }],
        further: Vec::new(),
        more: 0,
        during: Span { from_ms: noticed.0 - 30_000, to_ms: noticed.0 },
        before: Span { from_ms: noticed.0 - 330_000, to_ms: noticed.0 - 30_000 },
        scheduling: Vec::new(),
        profiles: Vec::new(),
        missing: Vec::new(),
    }
}

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path().join("incidents"));
    store.prepare().unwrap();
    (dir, store)
}

/// Writes an incident with these files.
pub(crate) fn write(
    store: &Store,
    incident: &Incident,
    files: &[(&str, Vec<u8>)],
    bounds: Bounds,
) -> Result<Written, FileError> {
    let mut archive = store.create(&incident.id, 1 << 20, NOW)?;
    for (name, content) in files {
        assert!(archive.add(name, content)?);
    }
    store.finish(archive, incident, bounds)
}

fn evidence(bytes: usize) -> [(&'static str, Vec<u8>); 1] {
    [("report.html", vec![b'x'; bytes])]
}

fn ids(store: &Store) -> Vec<String> {
    store.list(100).0.iter().map(|listed| listed.id.to_string()).collect()
}

#[test]
fn an_identifier_is_the_time_and_sorts_by_it() {
    assert_eq!(IncidentId::new(NOW, 1).as_str(), "20261127T195355Z");
    let second = IncidentId::new(NOW, 2);
    assert_eq!(second.as_str(), "20261127T195355Z-2");
    assert!(IncidentId::new(NOW, 1) < second && second < IncidentId::new(Timestamp(NOW.0 + 1000), 1));
    assert_eq!(IncidentId::parse(second.as_str()), Some(second));
}

#[test]
fn other_texts_are_no_identifiers() {
    for text in [
        "",
        "..",
        "20261127T195355",
        "20261127T195355Z-",
        "20261127T195355Z-0",
        "20261127T195355Z-12345",
        "20261127T195355Z/../../x",
        "2026112aT195355Z",
        "20261127T195355Z\u{0}",
    ] {
        assert_eq!(IncidentId::parse(text), None, "{text:?}");
        assert!(serde_json::from_value::<IncidentId>(text.into()).is_err());
    }
}

#[test]
fn an_incident_is_read_as_it_was_written_and_only_its_owner_can_read_it() {
    let (_dir, store) = store();
    let incident = example(0);
    let written = write(&store, &incident, &evidence(1000), AMPLE).unwrap();
    assert_eq!(store.read(&incident.id), Ok(incident.clone()));
    assert_eq!(store.member(&incident.id, "report.html", 1000).unwrap().unwrap(), [b'x'; 1000]);
    assert_eq!(store.member(&incident.id, "absent", 1000), Ok(None));
    let path = store.directory().join("20261127T195355Z.tar");
    assert_eq!(fs::metadata(&path).unwrap().len(), written.bytes);
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(store.directory())), (0o600, 0o700));
}

#[test]
fn the_complete_evidence_replaces_that_of_the_begin() {
    let (_dir, store) = store();
    let begun = example(0);
    write(&store, &begun, &evidence(10), AMPLE).unwrap();
    let complete = Incident { ended_ms: Some(NOW.0 + 5000), ..begun };
    write(&store, &complete, &evidence(20), AMPLE).unwrap();
    let (listed, number) = store.list(10);
    assert_eq!((number, &listed[0].incident), (1, &Ok(complete)));
}

#[test]
fn the_oldest_incidents_make_room() {
    let (_dir, store) = store();
    let bounds = Bounds { number: 3, ..AMPLE };
    let removed: Vec<usize> =
        (0..5).map(|after| write(&store, &example(after), &evidence(10), bounds).unwrap().removed).collect();
    assert_eq!(removed, [0, 0, 0, 1, 1]);
    assert_eq!(ids(&store), ["20261127T195359Z", "20261127T195358Z", "20261127T195357Z"]);
    // Each of these has about 42 KiB.
    let bounds = Bounds { bytes: 100 << 10, ..bounds };
    for after in 5..8 {
        write(&store, &example(after), &evidence(40 << 10), bounds).unwrap();
    }
    assert_eq!(ids(&store), ["20261127T195402Z", "20261127T195401Z"]);
}

#[test]
fn an_archive_of_a_newer_program_is_neither_read_nor_removed() {
    let (_dir, store) = store();
    let newer = Incident { format: FORMAT + 1, ..example(0) };
    write(&store, &newer, &evidence(10), AMPLE).unwrap();
    assert_eq!(store.read(&newer.id), Err(NoIncident::Newer(FORMAT + 1)));
    let bounds = Bounds { number: 1, ..AMPLE };
    assert_eq!(write(&store, &example(1), &evidence(10), bounds).unwrap().removed, 0);
    assert_eq!(write(&store, &example(2), &evidence(10), bounds).unwrap().removed, 1);
    assert_eq!(ids(&store), ["20261127T195357Z", "20261127T195355Z"]);
}

#[test]
fn an_archive_whose_writing_was_interrupted_is_removed_and_other_files_stay() {
    let (_dir, store) = store();
    let path = |name: &str| store.directory().join(name);
    let others = ["notes.txt", "x.tar.partial", "20261127T195355Z.tar.old"];
    for name in others.into_iter().chain(["20261127T195355Z.tar.partial"]) {
        fs::write(path(name), "x").unwrap();
    }
    store.prepare().unwrap();
    assert!(!path("20261127T195355Z.tar.partial").exists());
    assert!(others.iter().all(|name| path(name).exists()));
    assert_eq!(ids(&store), [""; 0]);
}

#[test]
fn links_and_directories_in_place_of_an_archive_are_not_read() {
    let (dir, store) = store();
    let secret = dir.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    symlink(&secret, store.directory().join("20261127T195355Z.tar")).unwrap();
    fs::create_dir(store.directory().join("20261127T195356Z.tar")).unwrap();
    for after in 0..2 {
        assert!(matches!(store.archive(&example(after).id, 100), Err(NoIncident::Unreadable(_))));
    }
    assert_eq!(ids(&store), [""; 0]);
    assert_eq!(store.archive(&example(2).id, 100), Err(NoIncident::Unknown));
}

#[test]
fn a_missing_directory_is_an_error_with_its_path_and_leaves_nothing() {
    let (dir, store) = store();
    fs::remove_dir(store.directory()).unwrap();
    let error = write(&store, &example(0), &evidence(10), AMPLE).unwrap_err();
    assert_eq!(error.path, store.directory().join("20261127T195355Z.tar.partial"));
    assert!(matches!(error.kind, FileErrorKind::Errno(_)));
    assert_eq!(host::list(dir.path()).unwrap().len(), 0);
}

#[test]
fn a_member_that_does_not_fit_is_left_out() {
    let (_dir, store) = store();
    let mut archive = store.create(&example(0).id, 11_000, NOW).unwrap();
    let mut add = |bytes| archive.add("file", &vec![0; bytes]).unwrap();
    assert_eq!([add(4000), add(4000), add(1000)], [true, false, true]);
}

#[test]
fn of_an_archive_that_is_not_finished_nothing_is_left() {
    let (_dir, store) = store();
    let mut archive = store.create(&example(0).id, 1 << 20, NOW).unwrap();
    archive.add("file", b"content").unwrap();
    assert_eq!(host::list(store.directory()).unwrap(), ["20261127T195355Z.tar.partial"]);
    assert_eq!(ids(&store), [""; 0]);
    drop(archive);
    assert_eq!(host::list(store.directory()).unwrap(), [""; 0]);
}

#[test]
fn triggers_beyond_the_limit_are_counted() {
    let mut incident = example(0);
    (0..FURTHER + 5).for_each(|_| incident.note(Trigger::Signal));
    assert_eq!((incident.further.len(), incident.more), (FURTHER, 5));
}

proptest! {
    #[test]
    fn no_content_of_a_file_breaks_the_list(content in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let (_dir, store) = store();
        fs::write(store.directory().join("20261127T195355Z.tar"), content).unwrap();
        let (listed, number) = store.list(10);
        prop_assert_eq!(number, 1);
        prop_assert!(listed[0].incident.is_err());
        write(&store, &example(1), &evidence(10), Bounds { number: 1, ..AMPLE }).unwrap();
        prop_assert_eq!(store.list(10).1, 1);
    }

    #[test]
    fn no_damage_of_an_archive_is_taken_for_another_program(at in 0_usize..2000, byte in any::<u8>()) {
        let (_dir, store) = store();
        write(&store, &example(0), &evidence(10), AMPLE).unwrap();
        let path = store.directory().join("20261127T195355Z.tar");
        let mut archive = host::read(&path).unwrap();
        let at = at.min(archive.len() - 1);
        archive[at] = byte;
        fs::write(&path, archive).unwrap();
        // It is read, or there is a reason.
        let _read = store.read(&example(0).id);
    }
}
