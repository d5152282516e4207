use std::sync::Arc;

use super::*;
use crate::anomaly::{
    Active, AnomalyMetrics, Basis, Compared, Notable, Report, Suspicion, Unjudged, Verdict,
};
use crate::metrics::{Family, Kind, Labels, Metadata, Point, Value};
use crate::status::tests::example;

const NOW: u64 = 1_795_251_126_000;

/// Returns an hour of a machine with two cgroups, of which the second is busy in the last five minutes, and has this name.
fn recorded(name: &str) -> SharedHistory {
    let mut history = History::new(3_600_000, 1000, 64 << 20);
    let family = |metric: &str, points: &[(&str, f64)]| {
        let metadata = Metadata::new(metric, "help", "", Kind::Counter).unwrap();
        let point = |&(cgroup, value): &(&str, f64)| Point {
            labels: Labels::new([("cgroup", cgroup)]),
            value: Value::Float(value),
            start: Timestamp(0),
        };
        Family::new(metadata, points.iter().map(point).collect())
    };
    let (mut quiet, mut busy) = (0.0, 0.0);
    for second in 0..=3600 {
        quiet += 0.1;
        busy += if second > 3300 { 1.5 } else { 0.0 };
        let cpu = family("perf_cgroup_task_clock_seconds", &[("/quiet.service", quiet), (name, busy)]);
        let run = Family::new(
            Metadata::new("perf_sched_run_seconds", "help", "", Kind::Counter).unwrap(),
            vec![Point { labels: Labels::none(), value: Value::Float(quiet + busy), start: Timestamp(0) }],
        );
        let at = Timestamp(NOW - 3_600_000 + second * 1000);
        history.observe(&Arc::new(Snapshot::new(at, [cpu, run])));
    }
    let shared = SharedHistory::default();
    shared.replace(Some(history));
    shared
}

fn status() -> Status {
    Status { now: Timestamp(NOW), ..example() }
}

fn page(history: &SharedHistory, query: &str) -> String {
    let (status, query) = (status(), PageQuery::parse(query, PAGE, Timestamp(NOW)).unwrap());
    machine(View {
        status: &status,
        snapshot: None,
        history,
        report: &Report::default(),
        query: &query,
        nonce: "0",
    })
}

fn subject_page(history: &SharedHistory, scope: Scope, query: &str) -> Result<String, String> {
    let (status, query) = (status(), PageQuery::parse(query, SUBJECT, Timestamp(NOW)).unwrap());
    subject(
        View {
            status: &status,
            snapshot: None,
            history,
            report: &Report::default(),
            query: &query,
            nonce: "0",
        },
        scope,
    )
}

#[test]
fn the_overview_shows_the_load_the_busiest_and_what_changed() {
    let page = page(&recorded("/busy.service"), "");
    assert!(page.contains("data-figure=\"cpu\""), "{page}");
    assert!(page.contains("<figcaption>CPU<b>1.60</b>"), "{page}");
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing: {page}"));
    assert!(place("/busy.service</code></a>") < place("/quiet.service</code></a>"));
    assert!(page.contains("0 \u{2192} <b>1.50</b>"), "{page}");
    assert!(page.contains("Not measured: Instructions per cycle"));
    assert!(page.len() < 150_000, "{}", page.len());
}

#[test]
fn a_chart_shows_the_range_that_was_asked_for() {
    let history = recorded("/busy.service");
    let values = |query: &str| -> Vec<f64> {
        let page = page(&history, query);
        let list = page.split_once("data-figure=\"cpu\" data-v=\"").unwrap().1.split_once('"').unwrap().0;
        list.split(',').map(|value| value.parse().unwrap()).collect()
    };
    let hour = values("last=1h");
    assert!(hour.len() > 150 && hour.len() <= STEPS, "{}", hour.len());
    assert!((hour[10] - 0.1).abs() < 0.01 && (hour[hour.len() - 2] - 1.6).abs() < 0.01, "{hour:?}");
    let minute = values("from=-10m&to=-9m");
    assert_eq!(minute.len(), 6, "steps of ten seconds");
    assert!(minute.iter().all(|cpu| (cpu - 0.1).abs() < 0.01), "{minute:?}");
}

#[test]
fn the_page_of_a_cgroup_shows_its_charts_and_its_share() {
    let history = recorded("/busy.service");
    let page = subject_page(&history, Scope::Cgroup, "name=/busy.service").unwrap();
    assert!(page.contains("<figcaption>CPU<b>1.50</b>"), "{page}");
    assert!(page.contains("It uses 1.50 CPUs of 1.60 in use on this machine: 94\u{a0}%."), "{page}");
    assert!(page.contains("/flamegraph?type=cpu&amp;cgroup=/busy.service&amp;from="), "{page}");
    let unknown = subject_page(&history, Scope::Program, "name=nothing").unwrap();
    assert!(unknown.contains("No program of this name was active"), "{unknown}");
    assert_eq!(
        subject_page(&history, Scope::Program, "").unwrap_err(),
        "the key name is missing: the program to show"
    );
}

/// Returns a snapshot in which `/a` has made these system calls, and was preempted by `/b` as often as it wrote.
fn calls(at: u64, reads: u64, writes: u64) -> Arc<Snapshot> {
    let family = |name: &str, points: &[(&[(&str, &str)], u64)]| {
        let metadata = Metadata::new(name, "help", "", Kind::Counter).unwrap();
        let point = |&(labels, total): &(&[(&str, &str)], u64)| Point {
            labels: Labels::new(labels.iter().copied()),
            value: Value::Integer(total),
            start: Timestamp(0),
        };
        Family::new(metadata, points.iter().map(point).collect())
    };
    let calls = [
        (&[("cgroup", "/a"), ("syscall", "read")][..], reads),
        (&[("cgroup", "/a"), ("syscall", "write")][..], writes),
    ];
    let preemptions = [(&[("cgroup", "/a"), ("by_cgroup", "/b<i>")][..], writes)];
    let families = [
        family("perf_cgroup_syscalls", &calls),
        family("perf_cgroup_sched_preempted_by_cgroup", &preemptions),
    ];
    Arc::new(Snapshot::new(Timestamp(at), families))
}

#[test]
fn the_lists_of_a_page_are_those_of_its_range() {
    let mut history = History::new(3_600_000, 1000, 64 << 20);
    for second in 0..=600 {
        // The writes are in one minute, eight minutes ago.
        let at = NOW - 600_000 + second * 1000;
        history.observe(&calls(at, second * 2, second.clamp(120, 180) * 1000));
    }
    let shared = SharedHistory::default();
    shared.replace(Some(history));
    let details = |range: &str| {
        let page = subject_page(&shared, Scope::Cgroup, &format!("name=/a&{range}")).unwrap();
        page.split_once("<h2>Details").map(|(_, details)| details.to_owned()).unwrap_or_default()
    };
    let last = details("last=1m");
    assert!(last.contains("read</td><td class=\"number\">1"), "{last}");
    assert!(
        !last.contains("write") && !last.contains("Preempted by"),
        "nothing of it in the last minute: {last}"
    );
    let from = |seconds: u64| (NOW - 600_000) / 1000 + seconds;
    let burst = details(&format!("from={}&to={}", from(124), from(144)));
    assert!(burst.contains("UTC, rounded to 10 s"), "{burst}");
    assert!(burst.contains("write</td>") && burst.contains("read</td>"), "{burst}");
    let link = "<a href=\"/cgroup?name=/b%3Ci%3E&amp;from=";
    assert!(burst.contains(link) && burst.contains("<code>/b&lt;i&gt;</code>"), "{burst}");
    assert_eq!(details(&format!("from={}&to={}", from(700), from(800))), "", "after the last collection");
}

#[test]
fn without_a_history_lists_count_since_the_begin_of_the_series() {
    let (status, query) = (status(), PageQuery::parse("name=/a", SUBJECT, Timestamp(NOW)).unwrap());
    let (history, snapshot) = (SharedHistory::default(), calls(NOW, 11, 0));
    let view = View {
        status: &status,
        snapshot: Some(&snapshot),
        history: &history,
        report: &Report::default(),
        query: &query,
        nonce: "0",
    };
    let page = subject(view, Scope::Cgroup).unwrap();
    assert!(page.contains("since the exporter began to count this cgroup"), "{page}");
    assert!(page.contains("<td>read</td><td class=\"number\">11</td>"), "{page}");
}

#[test]
fn a_long_list_ends_with_the_sum_of_its_rest() {
    let mut html = Html::default();
    let metadata = Metadata::new("perf_process_syscalls", "help", "", Kind::Counter).unwrap();
    let point = |n: u64| Point {
        labels: Labels::new([("comm", "a"), ("syscall", &format!("call{n:02}"))]),
        value: Value::Integer(100 - n),
        start: Timestamp(0),
    };
    let snapshot = Snapshot::new(Timestamp(NOW), [Family::new(metadata, (0..20).map(point).collect())]);
    details::since_start(&mut html, (Scope::Program, "a"), &snapshot, "last=300s");
    let text = html.finish();
    assert!(text.contains("<small>1\u{202f}810</small>"), "{text}");
    assert!(text.contains("call09") && !text.contains("call10"), "{text}");
    assert!(text.contains("<td>others</td><td class=\"number\">855</td>"), "{text}");
    let mut html = Html::default();
    details::since_start(&mut html, (Scope::Program, "b"), &snapshot, "last=300s");
    assert_eq!(html.finish(), "");
}

#[test]
fn the_flame_graph_of_a_program_has_all_its_threads() {
    let history = recorded("/busy.service");
    let page = subject_page(&history, Scope::Program, "name=postgres").unwrap();
    assert!(page.contains("/flamegraph?type=cpu&amp;program=postgres&amp;from="), "{page}");
    let query = page.split_once("/flamegraph?").unwrap().1.split_once('"').unwrap().0.replace("&amp;", "&");
    let query = crate::export::query::Query::parse(&query, crate::export::query::FLAMEGRAPH).unwrap();
    assert_eq!(query.selection.program.unwrap().as_str(), "postgres");
}

#[test]
fn the_flame_graph_of_a_name_with_pattern_characters_is_that_of_this_name() {
    let history = recorded("/a*[b].service");
    let page = subject_page(&history, Scope::Cgroup, "name=/a*%5Bb%5D.service").unwrap();
    assert!(page.contains("cgroup=/a%5B*%5D%5B%5B%5Db%5B%5D%5D.service&amp;from="), "{page}");
}

#[test]
fn hostile_names_stay_text() {
    let long = format!("/{}", "x".repeat(65_536));
    for name in ["/<script>alert(1)</script>\"'&", "/\u{1b}[31m\u{202e}", &long] {
        let history = recorded(name);
        for page in [page(&history, ""), page(&history, "last=1h&sort=context_switches")] {
            assert_eq!(page.matches("<script").count(), 1, "{name}");
            assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{name}");
            assert!(page.len() < 600_000, "{}", page.len());
        }
    }
}

#[test]
fn without_a_history_the_page_says_how_to_get_one() {
    let page = page(&SharedHistory::default(), "");
    assert!(page.contains("history: {for: 1h, step: 1s}"), "{page}");
}

#[test]
fn the_pages_load_nothing_and_have_no_event_handlers() {
    let page = page(&recorded("/busy.service"), "");
    for reference in ["src=", "url(", "@import", "\"http:", "\"https:", "onclick", "onload"] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn the_json_contains_the_values_of_each_step() {
    let history = recorded("/busy.service");
    let query =
        PageQuery::parse("scope=cgroup&figure=cpu&last=20s&step=10s&sort=cpu", HISTORY, Timestamp(NOW));
    let json = history.read(|history| json(history, &query.unwrap(), Timestamp(NOW))).unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let busiest = &json["subjects"][0];
    assert_eq!(
        (&busiest["name"], &busiest["figures"]["cpu"]["unit"]),
        (&"/busy.service".into(), &"CPUs".into())
    );
    let values = busiest["figures"]["cpu"]["values"].as_array().unwrap();
    assert!(
        values.len() >= 2 && values.iter().all(|value| (value.as_f64().unwrap() - 1.5).abs() < 0.01),
        "{json}"
    );
    assert_eq!(json["step_seconds"], 10.0);
    assert!(busiest.get("lists").is_none(), "only on request");
    let unknown = PageQuery::parse("scope=cgroup&name=/x", HISTORY, Timestamp(NOW)).unwrap();
    let error = history.read(|history| super::json(history, &unknown, Timestamp(NOW))).unwrap();
    assert_eq!(error, Err("no cgroup of this name is in the history".to_owned()));
}

#[test]
fn the_json_contains_the_requested_lists() {
    let mut history = History::new(3_600_000, 1000, 64 << 20);
    for second in 0..=60 {
        history.observe(&calls(NOW - 60_000 + second * 1000, second, second * 3));
    }
    let query = "scope=cgroup&name=/a&figure=syscalls&list=syscalls,preempts&last=1m";
    let query = PageQuery::parse(query, HISTORY, Timestamp(NOW)).unwrap();
    let json: serde_json::Value =
        serde_json::from_slice(&json(&history, &query, Timestamp(NOW)).unwrap()).unwrap();
    let lists = &json["subjects"][0]["lists"];
    let seconds = (lists["to_ms"].as_u64().unwrap() - lists["from_ms"].as_u64().unwrap()) / 1000;
    assert!(seconds >= 50 && seconds.is_multiple_of(10), "{json}");
    let calls = &lists["values"]["syscalls"];
    assert_eq!((&calls[0][0], &calls[1][0]), (&"write".into(), &"read".into()));
    assert_eq!(calls[0][1].as_f64().unwrap(), 3.0 * calls[1][1].as_f64().unwrap());
    assert!(
        lists["values"].get("preempted_by").is_none() && lists["values"].get("preempts").is_none(),
        "{json}"
    );
}

#[test]
fn the_overview_shows_anomalies_with_their_suspects() {
    let history = recorded("/busy.service");
    let metrics = AnomalyMetrics::new(Timestamp(0)).unwrap();
    let report = |suspects| Report {
        entries: vec!["runqueue_latency".into()],
        active: vec![Active {
            entry: 0,
            cgroup: "/quiet.service".into(),
            since: Timestamp(NOW),
            value: 0.5,
            usual: 0.01,
            score: 12.25,
            suspicion: Suspicion { causes: Vec::new(), suspects },
        }],
        ..Report::default()
    };
    let shown = |report| {
        metrics.report().replace(report);
        let snapshot = Snapshot::new(Timestamp(NOW), metrics.families());
        let (status, query) = (status(), PageQuery::parse("", PAGE, Timestamp(NOW)).unwrap());
        machine(View {
            status: &status,
            snapshot: Some(&snapshot),
            history: &history,
            report: &Report::default(),
            query: &query,
            nonce: "0",
        })
    };
    let page = shown(report(vec![Notable {
        cgroup: "/<b>noisy".into(),
        basis: Basis::Correlation,
        score: 0.5,
        samples: 60,
    }]));
    assert!(
        page.contains(
            "/quiet.service</code></a></td><td>runqueue_latency</td><td class=\"number\">12.2</td>"
        ),
        "{page}"
    );
    assert!(page.contains("/&lt;b&gt;noisy</code></a> <small>0.50</small>"), "{page}");
    assert!(shown(report(Vec::new())).contains("none stands out"));
    assert!(!shown(Report::default()).contains("Anomalies"));
}

/// The last results of `/busy.service`: one that was judged, and one that was not.
fn compared() -> Report {
    let judged = Compared {
        entry: 0,
        at: Timestamp(NOW),
        verdict: Verdict::Normal,
        value: Some(1.5),
        usual: Some(1.25),
        limit: Some(1.75),
    };
    let verdict = Verdict::NotJudged(Unjudged::Multiplexed);
    let unjudged = Compared { entry: 1, verdict, value: None, usual: None, limit: None, ..judged };
    Report {
        entries: vec!["cpi".into(), "<misses>".into()],
        results: [("/busy.service", vec![judged, unjudged]), ("/a", vec![judged])].into_iter().collect(),
        ..Report::default()
    }
}

#[test]
fn the_page_of_a_cgroup_shows_what_is_not_judged_with_its_reason() {
    let (history, report) = (recorded("/busy.service"), compared());
    let page = |scope, name: &str| {
        let query = PageQuery::parse(&format!("name={name}"), SUBJECT, Timestamp(NOW)).unwrap();
        let (status, query) = (status(), query);
        let view = View {
            status: &status,
            snapshot: None,
            history: &history,
            report: &report,
            query: &query,
            nonce: "0",
        };
        subject(view, scope).unwrap()
    };
    let text = page(Scope::Cgroup, "/busy.service");
    assert!(
        text.contains(
            "<td>cpi</td><td>normal</td><td class=\"number\">1.50</td><td class=\"number\">1.25</td>"
        ),
        "{text}"
    );
    assert!(
        text.contains(
            "<td>&lt;misses&gt;</td><td><span class=\"quiet\">not judged: its events were on the PMU"
        ),
        "{text}"
    );
    assert!(!page(Scope::Cgroup, "/quiet.service").contains("Compared with its past"));
    assert!(!page(Scope::Program, "busy").contains("Compared with its past"));
}

#[test]
fn the_json_of_a_cgroup_has_the_last_results() {
    let (history, report) = (recorded("/busy.service"), compared());
    let query = PageQuery::parse("scope=cgroup&name=/busy.service&last=1m", HISTORY, Timestamp(NOW)).unwrap();
    let json = history.read(|history| json_with(history, &report, &query, Timestamp(NOW))).unwrap().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let results = &json["subjects"][0]["anomalies"];
    assert_eq!((&results["cpi"]["result"], &results["cpi"]["judged"]), (&"normal".into(), &true.into()));
    assert_eq!((&results["cpi"]["usual"], &results["cpi"]["limit"]), (&1.25.into(), &1.75.into()));
    let misses = &results["<misses>"];
    assert_eq!((&misses["result"], &misses["judged"]), (&"multiplexed".into(), &false.into()));
    assert!(misses["value"].is_null() && misses["usual"].is_null());
}
