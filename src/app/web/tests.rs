use std::fs;

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::super::reload::Reloads;
use super::*;
use crate::clock::{Monotonic, Timestamp};
use crate::config::Config;
use crate::config::web::{Access, Audience};

/// A reader of a web configuration file, without a thread.
struct Files {
    dir: TempDir,
    reader: Reader,
    /// Versions of the rules that were in force.
    rules: watch::Receiver<Arc<Rules>>,
}

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tls").join(file)
}

impl Files {
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("web.yaml"), text).unwrap();
        let (publisher, rules) = watch::channel(Arc::default());
        let mut reader = Reader {
            file: Some(dir.path().join("web.yaml")),
            names: Vec::new(),
            environment: Environment::default(),
            clock: Clock::manual(Timestamp(7_000)),
            web: Web::default(),
            seen: Seen::new(),
            rules: publisher,
            failure: SharedFailure::default(),
        };
        for file in ["server.pem", "server.key"] {
            fs::copy(data(file), dir.path().join(file)).unwrap();
        }
        reader.read_again().unwrap();
        let mut files = Self { dir, reader, rules };
        assert!(files.has_new_rules());
        files
    }

    fn write(&self, text: &str) {
        fs::write(self.dir.path().join("web.yaml"), text).unwrap();
    }

    /// Reports whether rules were put in force since the last call.
    fn has_new_rules(&mut self) -> bool {
        let is_new = self.rules.has_changed().unwrap();
        self.rules.mark_unchanged();
        is_new
    }

    fn reload(&mut self, web: Web) -> ReadRules {
        let outcome = Arc::new(Lock::new(Outcome::Pending));
        self.reader.reload(Request { web, outcome: Arc::clone(&outcome) });
        PendingRules(outcome).poll(false).unwrap()
    }

    fn failure(&self) -> Option<FailedReload> {
        self.reader.failure.lock().clone()
    }
}

const TLS: &str = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n";

fn open() -> Web {
    Web { access: Access { profiles: Audience::All, ..Access::default() }, ..Web::default() }
}

#[test]
fn a_reload_with_an_invalid_file_reports_it_and_keeps_the_rules_and_their_files() {
    let mut files = Files::new(TLS);
    for (invalid, expected) in [
        ("unknown: 1\n", "unknown setting `unknown`"),
        ("tls_server_config: {cert_file: absent.pem, key_file: server.key}\n", "absent.pem: ENOENT"),
        (
            "tls_server_config: {cert_file: server.key, key_file: server.key}\n",
            "no certificate in PEM format",
        ),
        ("access: {metrics: authenticated}\n", "excludes all clients"),
    ] {
        files.write(invalid);
        let error = files.reload(open()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!files.has_new_rules(), "{invalid}");
        assert_eq!(files.reader.web, Web::default(), "{invalid}");
        assert_eq!(files.reader.seen.len(), 3, "the certificate and the key are still watched: {invalid}");
    }
    files.write(TLS);
    assert_eq!(files.reload(open()), Ok(Vec::new()));
    assert!(files.has_new_rules());
    assert_eq!(files.reader.web, open());
}

#[test]
fn rules_of_a_reload_that_has_timed_out_never_get_in_force() {
    let mut files = Files::new("");
    let outcome = Arc::new(Lock::new(Outcome::Pending));
    let pending = PendingRules(Arc::clone(&outcome));
    assert_eq!(pending.poll(false), None);
    let error = pending.poll(true).unwrap().unwrap_err().to_string();
    assert!(error.contains("not read within 5 s"), "{error}");
    files.reader.reload(Request { web: open(), outcome });
    assert!(!files.has_new_rules());
    assert_eq!(files.reader.web, Web::default());
}

#[test]
fn a_reload_of_unchanged_rules_keeps_them() {
    let mut files = Files::new(TLS);
    assert_eq!(files.reload(Web::default()), Ok(Vec::new()));
    assert!(!files.has_new_rules());
    assert_eq!(files.reload(open()), Ok(Vec::new()));
    assert!(files.has_new_rules());
}

#[test]
fn a_change_that_cannot_be_used_is_reported_until_it_is_corrected_also_by_reloads() {
    let mut files = Files::new(TLS);
    fs::write(files.dir.path().join("server.key"), "no key").unwrap();
    assert!(files.reader.is_changed());
    files.reader.follow_change();
    let failure = files.failure().unwrap();
    assert_eq!((failure.at, failure.problems.len()), (Timestamp(7_000), 1));
    assert!(failure.problems[0].contains("no private key in PEM format"), "{failure:?}");
    assert!(!files.reader.is_changed(), "it is logged once");
    assert!(files.reload(Web::default()).is_err(), "the files are the same, and still invalid");
    assert!(!files.has_new_rules());
    fs::copy(data("server.key"), files.dir.path().join("server.key")).unwrap();
    assert!(files.reload(Web::default()).is_ok());
    assert_eq!((files.has_new_rules(), files.failure()), (true, None));
}

#[test]
fn warnings_of_the_web_configuration_file_are_returned_to_the_reload() {
    let mut files = Files::new("");
    files.write(&TLS.replace('}', ", cipher_suites: [TLS_RSA_WITH_AES_128_CBC_SHA]}"));
    let warnings = files.reload(Web::default()).unwrap();
    assert!(warnings.iter().any(|warning| warning.to_string().contains("is not supported")), "{warnings:?}");
}

#[test]
fn a_reader_that_has_ended_fails_the_reload() {
    let reader = RulesReader { requests: channel().0, failure: SharedFailure::default() };
    let error = reader.ask(Web::default()).poll(false).unwrap().unwrap_err().to_string();
    assert!(error.contains("has ended"), "{error}");
}

#[test]
fn a_reload_waits_for_the_rules_until_its_deadline() {
    let at = |seconds| Monotonic(Duration::from_secs(seconds));
    let (requests, received) = channel();
    let mut reloads =
        Reloads::default().with_rules(RulesReader { requests, failure: SharedFailure::default() });
    reloads.ask(None, oneshot::channel().0, at(0));
    let refused = |_: &Config| Err(LoadError::Web("too large".to_owned()));
    let (loaded, _) = reloads.ended(None, at(0), refused).unwrap();
    assert!(loaded.is_err() && received.try_recv().is_err(), "no rules of a refused configuration are read");

    reloads.ask(None, oneshot::channel().0, at(10));
    for seconds in [11, 15] {
        assert!(reloads.ended(None, at(seconds), |_| Ok(())).is_none(), "{seconds}");
    }
    assert!(reloads.patience(Duration::MAX) < Duration::from_secs(1));
    let (loaded, answers) = reloads.ended(None, at(16), |_| Ok(())).unwrap();
    assert!(loaded.unwrap_err().to_string().contains("not read within 5 s"));
    assert_eq!(answers.len(), 1);
    let request = received.try_recv().unwrap();
    assert!(matches!(*request.outcome.lock(), Outcome::GivenUp));

    reloads.ask(None, oneshot::channel().0, at(20));
    assert!(reloads.ended(None, at(20), |_| Ok(())).is_none());
    *received.try_recv().unwrap().outcome.lock() = Outcome::Known(Ok(Vec::new()));
    assert!(reloads.ended(None, at(20), |_| Ok(())).unwrap().0.is_ok());
}
