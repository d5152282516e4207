//! Tests of the shutdown from outside: the test binary is started again as a service that is stuck.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;

use super::*;
use crate::app::{Options, serve};
use crate::error::Errno;
use crate::export::otlp::logs::Switch;
use crate::host::{Environment, Roots};
use crate::net::listen::ListenAddress;
use crate::sys::fake::FakeKernel;

/// Variable that selects the part of the service that is stuck.
const STUCK: &str = "PERF_EXPORTER_TEST_STUCK";

fn never_return() -> ! {
    loop {
        thread::park();
    }
}

/// A service whose collection thread is stuck in the kernel from the beginning.
fn serve_with_a_stuck_collector() {
    let dir = tempfile::tempdir().unwrap();
    let cpus = dir.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(&cpus).unwrap();
    std::fs::write(cpus.join("online"), "0\n").unwrap();
    let kernel = FakeKernel::new();
    kernel.refuse(Errno::EINVAL, |_, _, _| never_return());
    let options = Options {
        config: None,
        web_config: None,
        listen: vec![ListenAddress::Tcp(([127, 0, 0, 1], 0).into())],
        files: crate::files::Files::here(&Roots::under(dir.path())),
        sandbox: false,
        roots: Roots::under(dir.path()),
        clock: Clock::system(),
        environment: Environment::default(),
        log: Switch::default(),
    };
    serve(options, Vec::new(), kernel).unwrap();
}

/// The process that the other tests start.
#[test]
#[ignore = "only the other tests start it, in a process of its own"]
fn a_stuck_service() {
    match std::env::var(STUCK).as_deref() {
        Ok("collector") => serve_with_a_stuck_collector(),
        Ok("main") => {
            on_signals(Clock::system()).unwrap();
            never_return();
        }
        _ => {}
    }
}

/// Starts the service, and sends SIGTERM after it has installed a handler.
fn terminated(stuck: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "app::stop::tests::a_stuck_service", "--ignored", "--test-threads=1"])
        .env(STUCK, stuck)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (status, terminate) = (format!("/proc/{}/status", child.id()), 1_u64 << (libc::SIGTERM - 1));
    loop {
        #[expect(clippy::disallowed_methods, reason = "the file is that of a child of this test")]
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        if u64::from_str_radix(caught, 16).unwrap() & terminate != 0 {
            break;
        }
        assert_eq!(child.try_wait().unwrap(), None, "it ended before the signal");
        thread::sleep(Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    child
}

/// Waits up to a minute for the end of a child.
fn end_of(mut child: Child) -> std::process::ExitStatus {
    for _ in 0..6000 {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap()
}

#[test]
fn a_service_whose_collection_never_ends_stops() {
    let status = end_of(terminated("collector"));
    // On an overloaded machine, the exit is forced.
    assert!(matches!(status.code(), Some(0 | ENDED)), "{status}");
}

#[test]
fn a_process_that_does_not_stop_is_ended() {
    let status = end_of(terminated("main"));
    assert_eq!((status.code(), status.signal()), (Some(ENDED), None));
}

#[test]
fn what_is_stuck_on_a_blocking_thread_does_not_hold_up_the_end() {
    let (stuck, never) = channel::<()>();
    let (done, ended) = channel();
    thread::spawn(move || {
        let outcome = crate::app::on_runtime(async move {
            tokio::task::spawn_blocking(move || never.recv().ok());
            Ok(())
        });
        done.send(outcome.is_ok()).ok();
    });
    assert_ne!(ended.recv_timeout(Duration::from_secs(60)), Err(RecvTimeoutError::Timeout));
    drop(stuck);
}
