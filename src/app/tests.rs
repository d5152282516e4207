//! Tests of the server with a stuck collection thread and stuck profiles.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;

use super::*;
use crate::anomaly::{self, SharedReport};
use crate::clock::{Monotonic, Timestamp};
use crate::status::tests::example;

/// Profiles whose lock is never released.
#[derive(Debug, Default)]
struct Stuck {
    asked: AtomicUsize,
}

impl Stuck {
    fn hang(&self) -> ! {
        self.asked.fetch_add(1, Ordering::SeqCst);
        loop {
            thread::park();
        }
    }
}

impl ProfileRecorder for Stuck {
    fn entries(&self) -> Vec<Arc<str>> {
        self.hang()
    }

    fn begin(&self, _: &str, _: bool) -> Result<RecordingId, NoProfile> {
        self.hang()
    }

    fn end(&self, _: RecordingId, _: &Selection) -> Result<Profile, NoProfile> {
        self.hang()
    }

    fn renew(&self, _: RecordingId, _: &Selection) -> Result<(Profile, RecordingId), NoProfile> {
        self.hang()
    }

    fn abandon(&self, _: RecordingId) {
        self.hang()
    }

    fn last(&self, _: &str, _: Duration, _: &Selection) -> Result<Profile, NoProfile> {
        self.hang()
    }

    fn range(&self, _: &str, _: TimeRange, _: &Selection) -> Result<Profile, NoProfile> {
        self.hang()
    }

    fn heat(&self, _: &str, _: TimeRange, _: u32, _: &Selection) -> Result<HeatMap, NoProfile> {
        self.hang()
    }
}

/// A service whose collection thread and profiles no longer respond.
struct Troubled {
    service: Service,
    clock: Clock,
    profiles: Arc<Stuck>,
    publisher: watch::Sender<Arc<Published>>,
    requests: Receiver<Request>,
}

fn published(at: Monotonic) -> Arc<Published> {
    Arc::new(Published {
        snapshot: Some(Arc::new(Snapshot::default())),
        metrics: Arc::default(),
        selected: OnceLock::new(),
        status: Arc::new(example()),
        profiles: vec!["cpu".into()],
        debug_info: 0,
        at,
        freshness: Duration::ZERO,
        history: config::History::default(),
        incidents: Arc::default(),
        anomalies: anomaly::Settings::default(),
    })
}

fn troubled() -> Troubled {
    let clock = Clock::manual(Timestamp(1_000_000));
    let (requests, received) = channel();
    let (publisher, receiver) = watch::channel(published(clock.monotonic()));
    let profiles = Arc::new(Stuck::default());
    let service = Service::new(
        requests,
        receiver,
        (
            Arc::<Stuck>::clone(&profiles),
            SharedHistory::default(),
            SharedReport::default(),
            Incidents::absent(),
        ),
        watch::channel(Arc::default()).1,
        Files::here(&Roots::default()),
        RequestCpu::default(),
        clock.clone(),
    );
    Troubled { service, clock, profiles, publisher, requests: received }
}

#[test]
fn a_scrape_gets_the_last_snapshot_with_its_age_when_a_collection_overruns() {
    let troubled = troubled();
    troubled.clock.advance(Duration::from_secs(7));
    let scrape = || {
        let scrape = Source::snapshot(&troubled.service, Duration::from_millis(5));
        on_runtime(async { Ok(scrape.await) }).unwrap().unwrap()
    };
    for _ in 0..20 {
        assert_eq!(scrape().age, Duration::from_secs(7));
    }
    assert_eq!(troubled.requests.try_iter().count(), 1, "scrapes in vain fill no queue");
    troubled.publisher.send_replace(published(troubled.clock.monotonic()));
    assert_eq!(scrape().age, Duration::ZERO);
}

#[test]
fn a_push_takes_no_snapshot_twice_for_a_collection_that_ends_later() {
    let troubled = troubled();
    troubled.clock.advance(Duration::from_secs(7));
    let pushed = thread::scope(|scope| {
        let pushing =
            scope.spawn(|| on_runtime(async { Ok(Feed::snapshot(&troubled.service).await) }).unwrap());
        let Ok(Request::Collect(demand)) = troubled.requests.recv() else { panic!("nothing is collected") };
        assert_eq!(demand.take(), Some(troubled.clock.monotonic()));
        let next = published(troubled.clock.monotonic());
        troubled.publisher.send_replace(Arc::clone(&next));
        (pushing.join().unwrap().unwrap(), next.selected().unwrap())
    });
    assert!(Arc::ptr_eq(&pushed.0, &pushed.1));
}

#[test]
fn profiles_that_hang_take_few_threads_and_nothing_else_asks_them() {
    let Troubled { service, profiles, .. } = &troubled();
    on_runtime(async {
        let wanted =
            || Wanted { kind: "cpu".into(), seconds: None, range: None, selection: Selection::default() };
        let profile = || tokio::time::timeout(Duration::from_millis(50), service.profile(wanted()));
        for _ in 0..3 * MAX_PROFILE_CALLS {
            assert!(profile().await.is_err(), "a profile that hangs ended");
        }
        assert_eq!(Source::profiles(service), ["cpu".into()]);
        assert!(service.ready().is_ok());
        service.status();
        Ok(())
    })
    .unwrap();
    assert_eq!(profiles.asked.load(Ordering::SeqCst), MAX_PROFILE_CALLS);
}
