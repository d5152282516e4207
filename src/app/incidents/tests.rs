use std::sync::OnceLock;

use prometheus::core::Collector as _;

use super::*;
use crate::anomaly::{Basis, Cause};
use crate::metrics::Snapshot;
use crate::profile::sample_profiles::Recorded;
use crate::status::tests::example;

/// A recorder in a directory. The test handles its events.
struct Recording {
    recorder: Recorder,
    clock: Clock,
    store: Store,
    dir: tempfile::TempDir,
}

const START: Timestamp = Timestamp(1_795_809_235_000);

fn recording() -> Recording {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("incidents");
    let settings = config::Incidents {
        directory: Some(path.clone()),
        bounds: crate::incident::Bounds { number: 100, bytes: 64 << 20 },
        cooldown: Duration::from_secs(600),
        kubernetes_events: false,
    };
    with(Some(settings), dir, path)
}

fn with(settings: Option<config::Incidents>, dir: tempfile::TempDir, path: std::path::PathBuf) -> Recording {
    let clock = Clock::manual(START);
    let published = Published {
        snapshot: Some(Arc::new(Snapshot::default())),
        metrics: Arc::default(),
        selected: OnceLock::new(),
        status: Arc::new(example()),
        profiles: Vec::new(),
        debug_info: 0,
        at: clock.monotonic(),
        freshness: Duration::ZERO,
        history: config::History::default(),
        incidents: Arc::new(settings.unwrap_or_default()),
        anomalies: crate::anomaly::Settings::default(),
    };
    let context = Context {
        published: watch::channel(Arc::new(published)).1,
        history: SharedHistory::default(),
        profiles: Arc::<Recorded>::default(),
        recent_runs: RecentRuns::default(),
        memory: Share::fixed(crate::budget::Part::Evidence, 1 << 20),
        clock: clock.clone(),
        node: "node-1".to_owned(),
        kubernetes: Err("no cluster".to_owned()),
    };
    let metrics = Metrics::new(&Registry::new()).unwrap();
    let recorder = Recorder { context, metrics, open: Vec::new(), began: HashMap::new(), last: None };
    Recording { recorder, clock, store: Store::at(path), dir }
}

impl Recording {
    fn ask(&mut self, cgroup: Option<&str>) -> Result<IncidentId, Refused> {
        let (answer, mut answered) = oneshot::channel();
        let trigger = Trigger::Request { reason: "test".to_owned() };
        self.recorder.handle(Event::Asked { trigger, cgroup: cgroup.map(str::to_owned), answer });
        answered.try_recv().unwrap()
    }

    fn anomaly(&mut self, cgroup: &str) {
        let noisy = Notable { cgroup: "/noisy".into(), basis: Basis::RanMeanwhile, score: 0.5, samples: 70 };
        let suspicion = Suspicion { causes: vec![Cause::Throttled(7.0)], suspects: vec![noisy] };
        let since = Timestamp(self.clock.now().0 - 50_000);
        let active =
            Active { entry: 0, cgroup: cgroup.into(), since, value: 0.5, usual: 0.01, score: 9.0, suspicion };
        self.recorder.handle(Event::Began { kind: "runqueue_latency".to_owned(), active });
    }

    /// Passes this time, and ends what is over.
    fn pass(&mut self, time: Duration) {
        self.clock.advance(time);
        self.recorder.end_overdue();
    }

    fn listed(&self) -> Vec<Incident> {
        self.store.list(100).0.into_iter().map(|listed| listed.incident.unwrap()).collect()
    }

    fn counted(&self, result: &str) -> f64 {
        let families = self.recorder.metrics.0.collect();
        let of_result = families
            .iter()
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .filter(|metric| metric.get_label().iter().any(|label| label.value() == result));
        of_result.map(|metric| metric.get_counter().get_value()).sum()
    }
}

#[test]
fn an_anomaly_is_recorded_at_its_begin_and_again_at_its_end() {
    let mut recording = recording();
    recording.anomaly("/victim");
    let [begun] = &recording.listed()[..] else { panic!() };
    assert_eq!((begun.cgroup.as_deref(), begun.ended_ms), (Some("/victim"), None));
    assert_eq!(begun.during, Span { from_ms: START.0 - 50_000, to_ms: START.0 });
    assert_eq!(begun.before, Span { from_ms: START.0 - 350_000, to_ms: START.0 - 50_000 });
    assert_eq!((&*begun.suspects[0].cgroup, &*begun.suspects[0].basis), ("/noisy", "ran_meanwhile"));
    assert_eq!(begun.causes, ["the cgroup has exhausted its CPU quota: 7 preemptions per second"]);
    recording.clock.advance(Duration::from_secs(500));
    let at = Timestamp(START.0 + 200_000);
    let other = Event::Ended { kind: "forks".to_owned(), cgroup: "/victim".into(), at };
    recording.recorder.handle(other);
    assert_eq!(recording.listed()[0].ended_ms, None);
    let ended = Event::Ended { kind: "runqueue_latency".to_owned(), cgroup: "/victim".into(), at };
    recording.recorder.handle(ended);
    let [complete] = &recording.listed()[..] else { panic!() };
    assert_eq!(complete.ended_ms, Some(START.0 + 200_000));
    assert_eq!(complete.during.to_ms, START.0 + 200_000);
}

#[test]
fn a_request_is_about_the_minute_before_it_and_the_minute_after() {
    let mut recording = recording();
    let id = recording.ask(None).unwrap();
    assert_eq!(recording.listed()[0].began_ms, START.0 - 60_000);
    recording.pass(Duration::from_secs(60));
    let [complete] = &recording.listed()[..] else { panic!() };
    assert_eq!((&complete.id, complete.ended_ms), (&id, Some(START.0 + 60_000)));
}

#[test]
fn a_thousand_triggers_cost_one_recording() {
    let mut recording = recording();
    let first = recording.ask(Some("/a")).unwrap();
    for _ in 0..999 {
        assert_eq!(recording.ask(Some("/a")).as_ref(), Ok(&first));
    }
    recording.pass(Duration::from_secs(60));
    let [complete] = &recording.listed()[..] else { panic!() };
    assert_eq!(complete.further.len() as u64 + complete.more, 999);
    assert_eq!((recording.counted("recorded"), recording.counted("attached")), (1.0, 999.0));
    // Then the cool-down applies to this cgroup, not to others.
    assert_eq!(recording.ask(Some("/a")), Err(Refused::Cooldown));
    assert!(recording.ask(Some("/b")).is_ok());
    recording.pass(Duration::from_secs(540));
    assert!(recording.ask(Some("/a")).is_ok());
}

#[test]
fn few_incidents_are_in_progress_at_the_same_time() {
    let mut recording = recording();
    let outcomes: Vec<_> = (0..6).map(|number| recording.ask(Some(&format!("/{number}")))).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), OPEN);
    assert_eq!(outcomes[OPEN], Err(Refused::Busy));
    // All began in the same second.
    assert_eq!(outcomes[1].as_ref().unwrap().as_str(), "20261127T195355Z-2");
    assert_eq!(recording.counted("suppressed"), 2.0);
}

#[test]
fn an_anomaly_that_does_not_end_is_complete_after_half_an_hour() {
    let mut recording = recording();
    recording.anomaly("/victim");
    recording.pass(Duration::from_secs(1799));
    assert_eq!(recording.listed()[0].ended_ms, None);
    recording.pass(Duration::from_secs(1));
    assert_eq!(recording.listed()[0].ended_ms, Some(START.0 + 1_800_000));
}

#[test]
fn without_a_directory_nothing_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("incidents");
    let mut recording = with(None, dir, path);
    assert_eq!(recording.ask(None), Err(Refused::NoDirectory));
    recording.anomaly("/victim");
    assert!(recording.recorder.open.is_empty());
    assert_eq!(crate::host::list(recording.dir.path()).unwrap().len(), 0);
}

#[test]
fn a_directory_that_vanishes_is_created_again_and_a_file_in_its_place_is_a_failure() {
    let mut recording = recording();
    recording.ask(Some("/a")).unwrap();
    std::fs::remove_dir_all(recording.store.directory()).unwrap();
    recording.pass(Duration::from_secs(60));
    assert_eq!(recording.listed().len(), 1);
    std::fs::remove_dir_all(recording.store.directory()).unwrap();
    std::fs::write(recording.store.directory(), "").unwrap();
    recording.ask(Some("/b")).unwrap();
    assert_eq!(recording.counted("failed"), 1.0);
}

#[tokio::test]
async fn a_full_queue_refuses_at_once() {
    let (incidents, _triggers) = channel(Metrics::new(&Registry::new()).unwrap());
    let report = Report {
        entries: vec!["forks".into()],
        ended: vec![Ended { entry: 0, cgroup: "/a".into(), at: START }; WAITING],
        ..Report::default()
    };
    incidents.follow(&report);
    assert_eq!(incidents.ask(Trigger::Signal, None).await, Err(Refused::Full));
    drop(_triggers);
    assert_eq!(incidents.ask(Trigger::Signal, None).await, Err(Refused::Stopping));
}
