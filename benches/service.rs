//! Cost of the service as a whole process, with its built-in configuration: time from start to first scrape, resident memory, and CPU time
//! with a scrape every second. If perf is installed, `perf stat -a -I 1000` with the same events by CPU only is measured as well. It does
//! less work, and so is the minimum cost of continuous counting.
//!
//! `cargo bench --bench service` takes about half a minute. Run it as root; otherwise few events can be opened.

#![expect(clippy::print_stdout, reason = "the figures are the output of the benchmark")]
#![expect(clippy::unwrap_used, reason = "a benchmark stops if it cannot measure")]
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use perf_exporter::host::read_text;

const SECONDS: u32 = 10;
const EVENTS: &str = "task-clock,context-switches,cpu-migrations,page-faults,major-faults";

/// A process that is killed at the end of the benchmark.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Running {
    fn file(&self, name: &str) -> String {
        read_text(&PathBuf::from(format!("/proc/{}/{name}", self.0.id()))).unwrap()
    }

    /// Returns a field of `/proc/PID/status`, in KiB.
    fn kib(&self, field: &str) -> u64 {
        let status = self.file("status");
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Returns user and system time so far, in ticks of 10 ms.
    fn ticks(&self) -> u64 {
        let stat = self.file("stat");
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }
}

fn scrape(address: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Returns the value of a series without labels.
fn value(answer: &str, name: &str) -> f64 {
    let line = answer.lines().find(|line| line.starts_with(name)).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

fn main() {
    let start = Instant::now();
    let mut service = Command::new(env!("CARGO_BIN_EXE_perf-exporter"))
        .args(["--listen", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut log = BufReader::new(service.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let serving = log.find(|line| line.contains("serving on http://")).unwrap();
    let address = serving.rsplit("http://").next().unwrap().trim_end_matches('/').to_owned();
    let answer = scrape(&address).unwrap();
    let first = start.elapsed();
    let series = answer.lines().filter(|line| line.starts_with("perf_")).count();
    println!("start to first scrape: {first:.1?}, {series} series, {} bytes", answer.len());

    let before = (value(&answer, "perf_exporter_cpu_seconds_total"), service.ticks());
    for _ in 0..SECONDS {
        sleep(Duration::from_secs(1));
        scrape(&address).unwrap();
    }
    let after = value(&scrape(&address).unwrap(), "perf_exporter_cpu_seconds_total");
    let percent = (after - before.0) / f64::from(SECONDS) * 100.0;
    println!("scraped every second: {percent:.2} % of one CPU");
    println!("resident: {} KiB, of which anonymous: {} KiB", service.kib("VmRSS"), service.kib("RssAnon"));
    beside_perf(service.ticks() - before.1);
}

/// Measures perf in an interval of the same length, and prints the ratio.
fn beside_perf(ours: u64) {
    let perf = Command::new("perf")
        .args(["stat", "-a", "-I", "1000", "-e", EVENTS, "sleep", "60"])
        .stderr(Stdio::null())
        .spawn();
    let Ok(perf) = perf.map(Running) else {
        println!("skipped: perf is not installed");
        return;
    };
    sleep(Duration::from_secs(1));
    let before = perf.ticks();
    sleep(Duration::from_secs(SECONDS.into()));
    let theirs = perf.ticks() - before;
    let percent = |ticks: u64| ticks as f64 / f64::from(SECONDS);
    println!(
        "perf stat -a -I 1000, per CPU only: {:.1} % of one CPU, resident {} KiB; perf-exporter by the same 10 ms clock: {:.1} %",
        percent(theirs),
        perf.kib("VmRSS"),
        percent(ours),
    );
}
