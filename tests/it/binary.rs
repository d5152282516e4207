//! The executable from outside: exit codes, messages, signals, reloads. These tests need no privileges: the program also runs if the kernel
//! rejects its events.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use perf_exporter::host as files;
use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Outcome, Service, command, ended, host, repository, run};

/// Options for a command that inspects a small host and opens no events.
const INSPECT: [&str; 3] = ["--no-open", "--host-root", "tests/data/hosts/vm"];

/// Runs `check --no-open` on a small host, with these additional arguments.
fn check(arguments: &[&str]) -> Outcome {
    run(["check"].iter().chain(&INSPECT).chain(arguments))
}

/// Creates a directory with the file `test.yaml`, and returns its path.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.yaml");
    fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn a_configuration_that_is_not_there_is_named_and_ends_with_2() {
    for command in [&["run"][..], &["check"], &[]] {
        let outcome = run(command.iter().chain(&["--config", "/nonexistent.yaml"]));
        assert_eq!(outcome.code, 2);
        let expected = "perf-exporter: the configuration cannot be read: /nonexistent.yaml: ENOENT: No such file or \
                        directory\n";
        assert_eq!(outcome.stderr, expected);
    }
}

const MISTAKES: &str = "\
listen: nonsense
counters:
  a: {events: [cycles], per: [cpu, moon]}
  b: {evnts: [cycles]}
limits: {series: 0}
";

#[test]
fn a_configuration_with_mistakes_is_refused_with_all_of_them() {
    let (_dir, path) = file(MISTAKES);
    let expected = format!(
        "perf-exporter: the configuration cannot be used:\n\
         {path}:1:9: listen: `nonsense` is not an IP address and a port; use the form `0.0.0.0:7373` or `[::]:7373`\n\
         {path}:3:36: counters.a.per[1]: expected `cpu`, `numa`, `cgroup` or `process`, found `moon`\n\
         {path}:4:7: counters.b.evnts: unknown setting `evnts`; did you mean `events`?\n\
         {path}:5:18: limits.series: 0 is not between 1 and 10000000\n"
    );
    for command in ["run", "check"] {
        let outcome = run([command, "--config", &path]);
        assert_eq!((outcome.code, &*outcome.stdout, outcome.stderr), (2, "", expected.clone()));
    }
}

#[test]
fn mistakes_are_told_to_programs_too() {
    let (_dir, path) = file(MISTAKES);
    let outcome = check(&["--config", &path, "--output", "json"]);
    assert_eq!((outcome.code, &*outcome.stderr), (2, ""));
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["errors"].as_array().unwrap().len(), 4);
    assert_eq!(report["file"], *path);
}

#[test]
fn a_warning_is_shown_and_fails_only_a_strict_check() {
    let (_dir, path) = file("");
    let outcome = check(&["--config", &path]);
    assert_eq!(outcome.code, 0);
    let expected = format!("{path}: no errors, 1 warning\n  {path}:1:1: warning: the file is empty");
    assert!(outcome.stdout.starts_with(&expected), "{}", outcome.stdout);
    assert_eq!(check(&["--config", &path, "--strict"]).code, 1);
}

#[test]
fn an_event_that_no_host_has_is_an_error_of_the_file_and_the_others_are_counted() {
    let (_dir, path) = file("counters: {a: {events: [pgae-faults, context-switches]}}");
    let outcome = check(&["--config", &path]);
    let error = format!(
        "{path}:1:25: counters.a.events[0]: pgae-faults: there is no event with this name; did you mean page-faults?\n"
    );
    let told = format!("{path}: 1 error, no warnings\n  {error}");
    assert!(outcome.stdout.starts_with(&told), "{}", outcome.stdout);
    // The end of a container's log contains the error, however long the report is.
    let title = "perf-exporter: the configuration has errors on this host:\n";
    assert_eq!((outcome.code, outcome.stderr), (2, format!("{title}{error}")));
    assert!(outcome.stdout.contains("perf_cpu_context_switches_total"), "{}", outcome.stdout);
}

#[test]
fn a_known_event_that_this_host_does_not_support_fails_only_a_strict_check() {
    let (_dir, path) = file(
        "counters: {a: {events: [\"uncore_imc/cas_count_read/\", cs]}}\npresets: []\nscheduler: {per: []}",
    );
    let outcome = check(&["--config", &path]);
    assert_eq!((outcome.code, &*outcome.stderr), (0, ""), "{}", outcome.stdout);
    let told = format!("a per cpu: uncore_imc/cas_count_read/ ({path}:1:26)");
    assert!(outcome.stdout.contains(&told), "{}", outcome.stdout);
    let strict = check(&["--config", &path, "--strict"]);
    assert_eq!(
        (strict.code, &*strict.stderr),
        (1, "perf-exporter: --strict: events that cannot be opened: 1, warnings: 0\n")
    );
}

#[test]
fn arguments_that_are_wrong_end_with_2_and_say_how_they_are_written() {
    for (arguments, told) in [
        (
            &["--nonsense"][..],
            "perf-exporter: --nonsense: there is no such option\nOptions and arguments: perf-exporter --help\n",
        ),
        (&["chekc"], "chekc: there is no such command; did you mean check?"),
        (
            &["check", "--strcit"],
            "perf-exporter: check --strcit: there is no such option; did you mean --strict?",
        ),
        (&["check", "--output", "xml"], "check --output xml: expected text or json"),
        (&["--listen", "nonsense"], "expected an IP address and a port, such as 0.0.0.0:7373 or [::]:7373"),
        (&["--config", "x.yaml", "check"], "--config is before check, where it has no effect"),
        (&["--log", "inof"], "\"inof\" is not a log level: use error, warn, info, debug, trace or off"),
        (&["--log-format", "xml"], "--log-format xml: expected text or json"),
        (&["list", "["], "\"[\" is not a pattern: unclosed character class; missing ']'"),
        (&["record", "-o", "perf.dat", "true"], "-o perf.dat: unknown file extension"),
        (&["record", "-e", "faults,cs", "true"], "is more than one event, but a profile samples one event"),
        (&["record", "-F", "0", "true"], "record --freq 0: expected a whole number of at least 1"),
        (
            &["record", "-F", "99", "-c", "9", "true"],
            "record --freq HZ: it cannot be used with --count PERIOD; remove",
        ),
        (&["record", "--call-graph", "lbr", "true"], "expected auto, fp, dwarf, dwarf,SIZE or no"),
        (&["record", "--off-cpu=5", "true"], "expected a whole number with ms, s, m or h, such as 10ms"),
        (&["record", "--off-cpu", "-e", "cs", "true"], "cannot be used with --"),
        (&["record", "--duration", "0", "true"], "such as 10 or 0.5"),
        (&["record", "-p", "1", "-a"], "cannot be used with"),
        (&["top", "-d", "0"], "top --delay 0: expected a whole number from 1 to 3600"),
        (&["top", "-z", "--window", "5"], "cannot be used with"),
        (&["top", "-p", "x"], "expected comma-separated numbers, such as 812,4711"),
        (&["top", "true"], "top true: unexpected argument; remove it"),
    ] {
        let outcome = run(arguments);
        assert_eq!((outcome.code, &*outcome.stdout), (2, ""), "{arguments:?}");
        assert!(outcome.stderr.contains(told), "{arguments:?}: {}", outcome.stderr);
    }
}

#[test]
fn options_of_every_command_may_stand_before_it_and_come_from_the_environment() {
    let vm = host("vm");
    let before = run(["--host-root".as_ref(), vm.as_os_str(), "check".as_ref(), "--no-open".as_ref()]);
    assert_eq!(before.stdout, check(&[]).stdout);
    let (_dir, path) = file("counters: {mine: {events: [page-faults]}}");
    let mut checked = command(["check", "--no-open"]);
    checked.env("PERF_EXPORTER_CONFIG", &path).env("PERF_EXPORTER_HOST_ROOT", &vm);
    assert_eq!(ended(checked).stdout, check(&["--config", &path]).stdout);
    let mut quiet = command(["check", "--no-open"]);
    quiet.env("PERF_EXPORTER_LOG", "").env("PERF_EXPORTER_HOST_ROOT", &vm);
    assert_eq!(ended(quiet).code, 0, "an empty filter counts as no filter");
}

#[test]
fn a_port_that_is_taken_is_named_with_who_may_have_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let outcome = run(["run", "--listen", &address.to_string()]);
    assert_eq!(outcome.code, 1);
    let port = address.port();
    assert_eq!(
        outcome.stderr,
        format!(
            "perf-exporter: cannot listen on {address}: EADDRINUSE: Address already in use; another process uses port \
             {port} (`ss -ltnp 'sport = :{port}'` shows it): stop it, or choose another port with `listen:` or \
             `--listen`\n"
        )
    );
}

#[test]
fn the_schema_that_is_printed_is_the_one_in_the_repository() {
    let outcome = run(["check", "--schema"]);
    let stored = files::read_text(&repository("config/schema.json")).unwrap();
    assert_eq!(outcome.stdout.trim_end(), stored.trim_end());
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(run(["--version"]).stdout, format!("perf-exporter {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn help_says_what_each_command_does() {
    for (name, arguments) in [
        ("help", &["--help"][..]),
        ("help-run", &["run", "--help"]),
        ("help-check", &["check", "--help"]),
        ("help-list", &["list", "--help"]),
        ("help-probe", &["probe", "--help"]),
        ("help-stat", &["stat", "--help"]),
        ("help-stat-record", &["stat", "record", "--help"]),
        ("help-stat-report", &["stat", "report", "--help"]),
        ("help-record", &["record", "--help"]),
        ("help-annotate", &["annotate", "--help"]),
        ("help-top", &["top", "--help"]),
        ("help-script", &["script", "--help"]),
        ("help-report", &["report", "--help"]),
        ("help-diff", &["diff", "--help"]),
        ("help-sched", &["sched", "--help"]),
        ("help-sched-latency", &["sched", "latency", "--help"]),
        ("help-sched-timehist", &["sched", "timehist", "--help"]),
        ("help-sched-map", &["sched", "map", "--help"]),
        ("help-sched-timechart", &["sched", "timechart", "--help"]),
        ("help-sched-replay", &["sched", "replay", "--help"]),
        ("help-trace", &["trace", "--help"]),
        ("help-lock", &["lock", "--help"]),
        ("help-lock-contention", &["lock", "contention", "--help"]),
        ("help-lock-futex", &["lock", "futex", "--help"]),
        ("help-kmem", &["kmem", "--help"]),
        ("help-mem", &["mem", "--help"]),
        ("help-mem-record", &["mem", "record", "--help"]),
        ("help-mem-report", &["mem", "report", "--help"]),
        ("help-c2c", &["c2c", "--help"]),
        ("help-c2c-record", &["c2c", "record", "--help"]),
        ("help-c2c-report", &["c2c", "report", "--help"]),
    ] {
        let outcome = run(arguments);
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""));
        let mut settings = insta::Settings::clone_current();
        settings.set_omit_expression(true);
        settings.set_prepend_module_to_snapshot(false);
        settings.bind(|| insta::assert_snapshot!(name, outcome.stdout));
    }
}

/// As in `perf-exporter list | head -1`.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    for arguments in
        [&["list"][..], &["list", "--output", "json"], &["check"], &["check", "--output", "json"]]
    {
        let mut child = command(arguments.iter().chain(&INSPECT))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    for arguments in [&["list"][..], &["check"], &["check", "--output", "json"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = command(arguments.iter().chain(&INSPECT));
        command.stdout(full);
        let outcome = ended(command);
        assert_eq!(outcome.code, 1, "{arguments:?}");
        let told = "perf-exporter: cannot write the result: No space left on device (os error 28)\n";
        assert_eq!(outcome.stderr, told);
    }
}

#[test]
fn a_pattern_that_no_event_matches_ends_with_1() {
    let outcome = run(["list", "nosuchthing"].iter().chain(&INSPECT));
    assert_eq!((outcome.code, &*outcome.stdout), (1, ""));
    let told = "perf-exporter: no event matches \"nosuchthing\"; run perf-exporter list to list all events, and perf-exporter \
                probe to find functions and USDT probes\n";
    assert_eq!(outcome.stderr, told);
}

/// A cheap configuration, on a host without cgroups and processes.
const SMALL: &str = "counters: {a: {events: [page-faults]}}\ncollection: {freshness: 0s}\n";

fn small(path: &str) -> Service {
    Service::start(["--config", path, "--host-root", "tests/data/hosts/vm"])
}

/// Returns the value of a series without labels.
fn value<'a>(scrape: &'a str, name: &str) -> Option<&'a str> {
    scrape.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

const RELOADED: &str = "perf_exporter_config_last_reload_successful";

#[test]
fn a_reload_of_a_broken_file_changes_nothing_and_says_why_until_the_file_is_repaired() {
    let (_dir, path) = file(SMALL);
    let mut service = small(&path);
    service.wait_for("/metrics", |scrape| value(scrape, RELOADED) == Some("1"));

    fs::write(&path, "counters: {a: {events: [instructions], per: moon}}").unwrap();
    service.signal(Signal::HUP);
    let told = "expected `cpu`, `numa`, `cgroup` or `process`, found `moon`";
    let status = service.wait_for("/api/v1/status", |status| status.contains(told));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["configuration"]["failed_reload"]["problems"].as_array().unwrap().len(), 1);
    assert_eq!(status["counters"][0]["events"][0]["event"], "page-faults");
    assert!(service.get("/status").1.contains("found `moon`"));
    assert_eq!(value(&service.get("/metrics").1, RELOADED), Some("0"));
    assert!(
        service
            .wait_for_log("configuration reload failed; the previous configuration stays in force")
            .contains("ERROR")
    );
    let (code, answer) = service.post("/-/reload");
    assert_eq!(code, 500);
    assert!(answer.contains(told) && answer.starts_with("reload failed"), "{answer}");

    fs::write(&path, "counters: {a: {events: [context-switches]}}\nlisten: 127.0.0.1:1\n").unwrap();
    let (code, answer) = service.post("/-/reload");
    let told = "configuration reloaded; restart to apply the new listen";
    assert_eq!((code, answer.trim_end()), (200, told));
    service.wait_for_log(told);
    let status: Value = serde_json::from_str(&service.get("/api/v1/status").1).unwrap();
    assert_eq!(status["configuration"]["failed_reload"], Value::Null);
    assert_eq!(status["counters"][0]["events"][0]["event"], "context-switches");
    assert_eq!(value(&service.get("/metrics").1, RELOADED), Some("1"));
}

#[test]
fn a_reload_with_an_invalid_web_configuration_changes_nothing_and_says_why() {
    let (dir, path) = file(SMALL);
    let web = dir.path().join("web.yaml");
    fs::write(&web, "").unwrap();
    let arguments = ["--config", &path, "--host-root", "tests/data/hosts/vm", "--web.config.file"];
    let mut service = Service::start(arguments.iter().copied().chain([web.to_str().unwrap()]));
    service.wait_for("/metrics", |scrape| value(scrape, RELOADED) == Some("1"));

    fs::write(&path, "counters: {a: {events: [context-switches]}}").unwrap();
    for (text, told) in [
        ("tls_server_config: {cert_file: absent.pem, key_file: absent.key}", "absent.pem: ENOENT"),
        ("unknown: 1", "unknown setting `unknown`"),
    ] {
        fs::write(&web, text).unwrap();
        let (code, answer) = service.post("/-/reload");
        assert!(
            code == 500 && answer.starts_with("reload failed") && answer.contains(told),
            "{code} {answer}"
        );
        let status: Value = serde_json::from_str(&service.get("/api/v1/status").1).unwrap();
        let problems = &status["configuration"]["failed_reload"]["problems"];
        assert!(problems[0].as_str().unwrap().contains(told), "{problems}");
        assert_eq!(
            status["counters"][0]["events"][0]["event"], "page-faults",
            "nothing of the file is applied"
        );
        assert_eq!(value(&service.get("/metrics").1, RELOADED), Some("0"));
        service.wait_for_log("configuration reload failed; the previous configuration stays in force");
    }

    fs::write(&web, "http_server_config: {headers: {X-Frame-Options: sameorigin}}").unwrap();
    let (code, answer) = service.post("/-/reload");
    assert_eq!((code, answer.trim_end()), (200, "configuration reloaded"));
    let status: Value = serde_json::from_str(&service.get("/api/v1/status").1).unwrap();
    assert_eq!(status["configuration"]["failed_reload"], Value::Null);
    assert_eq!(status["counters"][0]["events"][0]["event"], "context-switches");
    assert_eq!(value(&service.get("/metrics").1, RELOADED), Some("1"));

    // Without a reload, the file is read again because it has changed.
    fs::write(&web, "unknown: 1").unwrap();
    service.wait_for("/metrics", |scrape| value(scrape, RELOADED) == Some("0"));
    assert!(service.get("/status").1.contains("unknown setting `unknown`"));
    service.wait_for_log("the previous rules of access stay in force");
    fs::write(&web, "").unwrap();
    service.wait_for("/metrics", |scrape| value(scrape, RELOADED) == Some("1"));
}

#[test]
fn a_file_that_went_away_is_no_reason_to_stop() {
    let (dir, path) = file(SMALL);
    let service = small(&path);
    drop(dir);
    service.signal(Signal::HUP);
    service
        .wait_for("/api/v1/status", |status| status.contains("test.yaml: ENOENT: No such file or directory"));
    assert_eq!(service.get("/-/healthy").0, 200);
}

#[test]
fn both_signals_end_the_service_with_0_and_are_named_in_the_log() {
    let (_dir, path) = file(SMALL);
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::INT, "SIGINT")] {
        let service = small(&path);
        service.signal(signal);
        let (status, log) = service.end();
        assert_eq!(status.code(), Some(0), "{log:#?}");
        assert!(log.iter().any(|line| line.ends_with(&format!("stopping: received {name}"))), "{log:#?}");
    }
}

#[test]
fn a_service_manager_is_told_of_readiness_reloads_life_and_the_end() {
    let (dir, path) = file(SMALL);
    let socket = UnixDatagram::bind(dir.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut told = command(["run", "--listen", "127.0.0.1:0", "--host-root"]);
    told.arg(host("vm")).arg("--config").arg(&path);
    told.env("NOTIFY_SOCKET", dir.path().join("notify")).env("WATCHDOG_USEC", "100000");
    let service = Service::start_by(told);
    let heard = |wanted: &str| {
        let mut message = [0; 128];
        loop {
            let length = socket.recv(&mut message).unwrap();
            let text = std::str::from_utf8(&message[..length]).unwrap();
            if text.starts_with(wanted) {
                return;
            }
            // Watchdog notifications continue during the wait.
            assert_eq!(text, "WATCHDOG=1", "instead of {wanted}");
        }
    };
    heard("READY=1");
    heard("WATCHDOG=1");
    service.signal(Signal::HUP);
    heard("RELOADING=1\nMONOTONIC_USEC=");
    heard("READY=1");
    service.signal(Signal::TERM);
    heard("STOPPING=1");
    assert_eq!(service.end().0.code(), Some(0));
}

#[test]
fn a_client_that_never_ends_its_request_does_not_hold_up_the_end() {
    let (_dir, path) = file(SMALL);
    let service = small(&path);
    let mut client = service.connect();
    client.write_all(b"GET /metrics HTTP/1.1\r\nhost: ").unwrap();
    // An answer to a second client shows that the server has accepted the first one.
    assert_eq!(service.get("/-/healthy").0, 200);
    service.signal(Signal::TERM);
    let (status, log) = service.end();
    assert_eq!(status.code(), Some(0), "{log:#?}");
}

/// A FIFO without a writer blocks the collection that reads it forever.
#[test]
fn a_collection_that_does_not_end_does_not_hold_up_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let process = dir.path().join("proc/1");
    fs::create_dir_all(process.join("task/1")).unwrap();
    pipe(&process.join("stat"));
    let root = dir.path().to_str().unwrap();
    let (_dir, path) = file("counters: {a: {events: [page-faults], per: process}}");
    let service = Service::start(["--config", &path, "--host-root", root]);
    let (code, answer) = service.get("/-/ready");
    assert_eq!((code, &*answer), (503, "not ready: the first collection has not completed yet\n"));
    service.signal(Signal::TERM);
    let (status, log) = service.end();
    assert_eq!(status.code(), Some(0), "{log:#?}");
    assert!(log.iter().any(|line| line.ends_with("stopped during an unfinished collection")), "{log:#?}");
}

fn pipe(path: &Path) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn the_log_can_be_read_by_programs() {
    let (_dir, path) = file(SMALL);
    let arguments = ["--config", &path, "--host-root", "tests/data/hosts/vm", "--log-format", "json"];
    let service = Service::start(arguments);
    service.signal(Signal::TERM);
    let (_, log) = service.end();
    assert!(log.len() > 1);
    for line in log {
        let entry: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert!(entry["level"].is_string() && entry["message"].is_string(), "{line}");
    }
}
