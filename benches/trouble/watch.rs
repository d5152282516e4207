//! Observes the exporter once a second, by scrapes as Prometheus does and by `/proc`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};

use perf_exporter::host::{list, read_text};
use rustix::process::setpriority_process;

use crate::support::http::ask;

/// Timeout of a scrape and of a health check.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between requests of profiles, and their timeout.
const PROFILES: Duration = Duration::from_secs(30);

/// Observations of one second.
#[derive(Debug, Clone)]
pub(crate) struct Second {
    pub(crate) phase: &'static str,
    /// Time since the start.
    pub(crate) at: Duration,
    /// Duration of the scrape; an error if it was not answered.
    pub(crate) scrape: Result<Duration, String>,
    pub(crate) healthy: bool,
    pub(crate) resources: Resources,
    /// Bytes of each part of the exporter's memory, as reported by it.
    pub(crate) parts: BTreeMap<String, f64>,
    /// Number of lines of the answer.
    pub(crate) lines: usize,
    /// Load average of one minute.
    pub(crate) load: f64,
}

/// Resources of the exporter and its children together.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Resources {
    /// Bytes.
    pub(crate) resident: u64,
    pub(crate) processes: usize,
    pub(crate) descriptors: usize,
    /// CPU time in seconds.
    pub(crate) cpu: f64,
}

/// A requested profile.
#[derive(Debug, Clone)]
pub(crate) struct Looked {
    pub(crate) took: Duration,
    /// Status code and body, or the error.
    pub(crate) answer: Result<(u16, String), String>,
}

/// All observations.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) seconds: Vec<Second>,
    pub(crate) profiles: Vec<Looked>,
    /// First and last answer to a scrape during the load.
    pub(crate) first: String,
    pub(crate) last: String,
    /// The answer with the most lines.
    pub(crate) largest: String,
}

/// The observing threads.
pub(crate) struct Watch {
    ends: Arc<AtomicBool>,
    phase: Arc<Mutex<&'static str>>,
    scraper: JoinHandle<Seen>,
    reader: JoinHandle<Vec<Looked>>,
}

impl Watch {
    pub(crate) fn start(address: String, pid: u32) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let phase = Arc::new(Mutex::new("alone"));
        let scraper = {
            let (address, ends, phase) = (address.clone(), Arc::clone(&ends), Arc::clone(&phase));
            thread::spawn(move || scrape(&address, pid, &ends, &phase))
        };
        let reader = {
            let (ends, phase) = (Arc::clone(&ends), Arc::clone(&phase));
            thread::spawn(move || read_profiles(&address, &ends, &phase))
        };
        Self { ends, phase, scraper, reader }
    }

    /// Assigns later observations to this phase.
    pub(crate) fn begins(&self, phase: &'static str) {
        *self.phase.lock().unwrap() = phase;
    }

    pub(crate) fn end(self) -> Seen {
        self.ends.store(true, Ordering::Relaxed);
        let mut seen = self.scraper.join().unwrap();
        seen.profiles = self.reader.join().unwrap();
        seen
    }
}

/// Waits for the next whole second after `start`.
fn next_second(start: Instant) {
    let passed = start.elapsed();
    sleep(Duration::from_secs(passed.as_secs() + 1) - passed);
}

fn scrape(address: &str, pid: u32, ends: &AtomicBool, phase: &Mutex<&'static str>) -> Seen {
    // For this thread only. A scraper on another machine would not wait for a CPU of this one.
    setpriority_process(None, -20).unwrap();
    let (mut seen, start) = (Seen::default(), Instant::now());
    let mut most = 0;
    while !ends.load(Ordering::Relaxed) {
        next_second(start);
        let (phase, asked) = (*phase.lock().unwrap(), Instant::now());
        let answer = ask(address, "GET", "/metrics", TIMEOUT).map_err(|error| error.to_string());
        let took = asked.elapsed();
        let answer = answer.and_then(|answer| match answer.code {
            200 => Ok(answer.body),
            code => Err(format!("{code}: {}", answer.body.trim())),
        });
        let healthy = ask(address, "GET", "/-/healthy", TIMEOUT).is_ok_and(|answer| answer.code == 200);
        let lines = answer.as_ref().map_or(0, |body| body.lines().count());
        seen.seconds.push(Second {
            phase,
            at: start.elapsed(),
            scrape: answer.as_ref().map(|_| took).map_err(Clone::clone),
            healthy,
            resources: resources(pid),
            parts: answer.as_ref().map_or_else(|_| BTreeMap::new(), |body| parts(body)),
            lines,
            load: load_average(),
        });
        let Ok(body) = answer else { continue };
        if lines > most {
            most = lines;
            seen.largest.clone_from(&body);
        }
        if phase == "alone" || seen.first.is_empty() {
            seen.first.clone_from(&body);
        }
        if phase != "afterwards" {
            seen.last = body;
        }
    }
    seen
}

fn read_profiles(address: &str, ends: &AtomicBool, phase: &Mutex<&'static str>) -> Vec<Looked> {
    let (mut profiles, mut last) = (Vec::new(), Instant::now());
    while !ends.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(200));
        if last.elapsed() < PROFILES || *phase.lock().unwrap() == "afterwards" {
            continue;
        }
        last = Instant::now();
        let answer = ask(address, "GET", "/folded?type=cpu", PROFILES);
        let answer = answer.map(|answer| (answer.code, answer.body)).map_err(|error| error.to_string());
        profiles.push(Looked { took: last.elapsed(), answer });
    }
    profiles
}

fn parts(metrics: &str) -> BTreeMap<String, f64> {
    let part = |line: &str| {
        let (part, bytes) = line.strip_prefix("perf_exporter_memory_bytes{part=\"")?.split_once("\"} ")?;
        Some((part.to_owned(), bytes.parse().ok()?))
    };
    metrics.lines().filter_map(part).collect()
}

fn load_average() -> f64 {
    let text = read_text(Path::new("/proc/loadavg")).unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// Adds up a process and its children. Processes that exit meanwhile are skipped.
fn resources(pid: u32) -> Resources {
    let mut total = Resources::default();
    let mut left = vec![pid];
    while let Some(pid) = left.pop() {
        let dir = PathBuf::from(format!("/proc/{pid}"));
        let Ok(stat) = read_text(&dir.join("stat")) else { continue };
        let Some((_, stat)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<f64> = stat.split(' ').map(|field| field.parse().unwrap_or_default()).collect();
        // utime, stime and rss of `man 5 proc_pid_stat`, counted from the state.
        total.cpu += (fields[11] + fields[12]) / rustix::param::clock_ticks_per_second() as f64;
        total.resident += fields[21] as u64 * rustix::param::page_size() as u64;
        total.processes += 1;
        total.descriptors += fs::read_dir(dir.join("fd")).map_or(0, Iterator::count);
        for task in list(&dir.join("task")).unwrap_or_default() {
            let children = read_text(&dir.join("task").join(task).join("children")).unwrap_or_default();
            left.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    total
}
