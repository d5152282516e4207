use super::*;
use crate::budget::Part;
use crate::incident::tests::{example, write};
use crate::incident::{Bounds, Store, Trigger};
use crate::profile::sample_profiles::{Recorded, hostile};
use crate::sched::{Comm, PrevState, RunLog, SchedFact, SwitchIn, SwitchOut, Thread};

/// Profiles of the cgroup of the example.
fn recorded(entries: &[&'static str]) -> Recorded {
    Recorded { entries: entries.to_vec(), cgroup: Some("/quiet.service") }
}

fn collected(incident: &mut Incident, profiles: &Recorded, limit: u64) -> Vec<(String, Vec<u8>)> {
    let dir = tempfile::tempdir().unwrap();
    collected_in(&Store::at(dir.path()), incident, profiles, &RecentRuns::default(), limit)
}

fn collected_in(
    store: &Store,
    incident: &mut Incident,
    profiles: &Recorded,
    recent_runs: &RecentRuns,
    limit: u64,
) -> Vec<(String, Vec<u8>)> {
    let history = SharedHistory::default();
    let memory = Share::fixed(Part::Evidence, 1 << 20);
    let now = Timestamp(incident.during.to_ms);
    let sources = Sources {
        history: &history,
        profiles,
        recent_runs,
        threads: None,
        snapshot: None,
        store,
        memory: &memory,
        now,
    };
    let mut archive = store.create(&incident.id, limit, now).unwrap();
    collect(incident, sources, &mut archive).unwrap();
    store.finish(archive, incident, Bounds { number: 1, bytes: u64::MAX }).unwrap();
    assert_eq!(memory.used(), 0);
    let bytes = store.archive(&incident.id, u64::MAX - 1).unwrap();
    let mut archive = tar::Archive::new(&*bytes);
    let member = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
        (String::from_utf8(entry.path_bytes().into_owned()).unwrap(), content)
    };
    archive.entries().unwrap().map(member).collect()
}

/// Returns runs of five seconds until a time: a thread of the cgroup of the example waits for 30 ms of each 40 ms, in which one of another
/// cgroup runs. Its name is hostile.
fn runs_until(until: Timestamp) -> RecentRuns {
    const LIMIT: usize = 1 << 20;
    let (mut log, recent_runs) = (RunLog::default(), RecentRuns::default());
    recent_runs.set_limit(LIMIT);
    log.take(LIMIT);
    let mut run = |cgroup: u64, (from, to): (u64, u64), delay| {
        let comm = Comm::new(b"</td><script>");
        let thread = Thread { tid: cgroup as u32, pid: 7, cgroup, comm, kernel: false };
        let time = |milliseconds: u64| milliseconds * 1_000_000;
        let switch_in =
            SwitchIn { time: time(from), cpu: 0, delay: Some(time(delay)), wait: None, migrated: None };
        let out = SwitchOut {
            time: time(to),
            cpu: 0,
            switch_in: Some(switch_in),
            prev_state: PrevState::Preempted,
            next: Thread::default(),
        };
        log.note(&thread, &SchedFact::SwitchOut(out));
    };
    for begin in (5000..10_000).step_by(40) {
        run(2, (begin, begin + 30), 0);
        run(1, (begin + 30, begin + 40), 30);
    }
    let path = |id| Some(if id == 1 { "/quiet.service".into() } else { "/noisy.service".into() });
    recent_runs.keep(log.take(LIMIT), (10_000_000_000, until), path);
    recent_runs
}

#[test]
fn the_runs_of_the_begin_stay_in_the_archive_when_those_of_the_end_are_added() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    let mut incident = example(0);
    let profiles = recorded(&["cpu"]);
    let runs = runs_until(Timestamp(incident.during.to_ms));
    let begin = collected_in(&store, &mut incident, &profiles, &runs, 1 << 24);
    let file = |members: &[(String, Vec<u8>)], name: &str| {
        members.iter().find(|(member, _)| member == name).map(|(_, content)| content.clone())
    };
    let trace = file(&begin, "scheduler-begin.json.gz").unwrap();
    let trace: serde_json::Value = serde_json::from_reader(flate2::read::GzDecoder::new(&*trace)).unwrap();
    // A run on its CPU and of its thread for each of 250, a wait for half of them, and names.
    let slices = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    assert!((600..=625).contains(&slices.count()));
    let [scheduling] = &incident.scheduling[..] else { panic!("{:?}", incident.scheduling) };
    let ran = &scheduling.meanwhile[0];
    assert!(
        (&*ran.cgroup, scheduling.waits) == ("/noisy.service", 125) && ran.share > 0.99,
        "{scheduling:?}"
    );
    let report = String::from_utf8(file(&begin, REPORT).unwrap()).unwrap();
    assert!(
        report.contains("Ran meanwhile") && report.contains("&lt;/td&gt;&lt;script&gt; (process 7"),
        "{report}"
    );
    let ended = incident.during.to_ms + 60_000;
    (incident.ended_ms, incident.during.to_ms) = (Some(ended), ended);
    let end = collected_in(&store, &mut incident, &profiles, &runs_until(Timestamp(ended)), 1 << 24);
    let name = "scheduler-begin.json.gz";
    assert_eq!(file(&end, name), file(&begin, name));
    assert!(file(&end, "scheduler-end.json.gz").is_some());
    assert_eq!(incident.scheduling.len(), 2);
}

#[test]
fn the_archive_has_the_report_and_each_profile_of_both_times() {
    let mut incident = example(0);
    let members = collected(&mut incident, &recorded(&["cpu", "off_cpu"]), 1 << 24);
    let names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        [
            "cpu-during.pb.gz",
            "cpu-during.folded",
            "cpu-before.pb.gz",
            "cpu-before.folded",
            "off_cpu-during.pb.gz",
            "off_cpu-during.folded",
            "off_cpu-before.pb.gz",
            "off_cpu-before.folded",
            "off_cpu.html",
            "report.html",
            "incident.json"
        ]
    );
    let [profile, _] = &incident.profiles[..] else { panic!("{:?}", incident.profiles) };
    assert_eq!((&*profile.name, profile.during), ("cpu", hostile().taken()));
}

#[test]
fn what_is_missing_is_named_with_its_reason() {
    let mut incident = example(0);
    let profiles = recorded(&["stalled", "cpu"]);
    let members = collected(&mut incident, &profiles, 6000);
    let missing = incident.missing.join("\n");
    for expected in
        ["profile stalled: the profile reader is blocked", "set history.for", "set incidents.size higher"]
    {
        assert!(missing.contains(expected), "{missing}");
    }
    // The description is always there, and names it.
    let json = String::from_utf8(members.last().unwrap().1.clone()).unwrap();
    assert!(json.contains("set incidents.size higher"), "{json}");
    collected(&mut incident, &recorded(&[]), 1 << 24);
    assert!(incident.missing.join("\n").contains("no entry of profiles is configured"));
}

#[test]
fn hostile_names_are_text_in_a_report() {
    let hostile = "</title><script>alert(1)</script>\" onload=\"x\u{1b}[2J".to_owned();
    let mut incident = example(0);
    incident.trigger = Trigger::Request { reason: hostile.clone() };
    incident.labels = vec![("pod".to_owned(), hostile.clone())];
    incident.suspects[0].cgroup.clone_from(&hostile);
    incident.further = vec![Trigger::Alert { name: hostile.clone(), summary: hostile }];
    let members = collected(&mut incident, &recorded(&["cpu", "off_cpu"]), 1 << 24);
    for (name, content) in members.iter().filter(|(name, _)| name.ends_with("html")) {
        let page = String::from_utf8(content.clone()).unwrap();
        assert_eq!(page.matches("<script").count(), page.matches("<script nonce=\"0\"").count(), "{name}");
        assert!(!page.contains("alert(1)</script>") && !page.contains('\u{1b}'), "{name}");
        assert!(!page.contains(" onload=\""), "{name}");
    }
}

#[test]
fn a_report_needs_nothing_from_elsewhere() {
    let members = collected(&mut example(0), &recorded(&["cpu"]), 1 << 24);
    let (_, report) = members.into_iter().find(|(name, _)| name == REPORT).unwrap();
    let report = String::from_utf8(report).unwrap();
    for attribute in ["src=", "url(", "@import"] {
        assert!(!report.contains(attribute), "{attribute}");
    }
    assert!(report.contains("default-src 'none'"));
    assert!(report.contains("runqueue_latency: 0.2500 instead of 0.000400"), "{report}");
    assert!(report.contains(
        "/noisy.service</td><td>correlation of its CPU time in 60 intervals</td><td class=\"number\">0.50"
    ));
    assert!(report.contains("not ended when this was written"));
}

#[test]
fn the_list_links_each_incident_and_shows_why_one_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::at(dir.path());
    assert!(list_page(Some(&store), "0").contains("There was none so far"));
    write(&store, &example(0), &[], Bounds { number: 9, bytes: 1 << 20 }).unwrap();
    std::fs::write(dir.path().join("20261127T195359Z.tar"), "damaged").unwrap();
    let page = list_page(Some(&store), "0");
    assert!(page.contains("href=\"/incidents/20261127T195355Z\">2026-11-27 19:53:25 UTC</a>"), "{page}");
    assert!(page.contains("the archive cannot be read"), "{page}");
    let json: serde_json::Value = serde_json::from_slice(&list_json(Some(&store)).unwrap()).unwrap();
    assert_eq!((&json["total"], &json["incidents"][0]["incident"]), (&2.into(), &serde_json::Value::Null));
    assert_eq!(json["incidents"][1]["incident"]["cgroup"], "/quiet.service");
    let none: serde_json::Value = serde_json::from_slice(&list_json(None).unwrap()).unwrap();
    assert_eq!(none, serde_json::json!({"directory": null, "total": 0, "incidents": []}));
    assert!(list_page(None, "0").contains("directory: /var/lib/perf-exporter/incidents"));
}
