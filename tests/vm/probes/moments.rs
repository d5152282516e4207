//! Tracepoints compared with the kernel's own statistics (interrupts, softirqs, run time), and functions compared with function tracing.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};

use perf_exporter::host::{Facts, Roots, list, read_text};
use perf_exporter::probe::kallsyms;

use super::{GETPPID, kprobes, lost, service};
use crate::advance;
use crate::support::exposition::Exposition;
use crate::support::worker::{Work, Worker};

/// Parses a table of `/proc` with a row for each kind of interrupt and a column for each CPU. Returns the sum of each row.
fn interrupts(table: &str) -> BTreeMap<String, u64> {
    let text = read_text(&Path::new("/proc").join(table)).unwrap();
    let rows = text.lines().filter_map(|line| line.split_once(':'));
    let sum = |row: &str| row.split_ascii_whitespace().map_while(|count| count.parse::<u64>().ok()).sum();
    rows.map(|(name, row)| (name.trim().to_owned(), sum(row))).collect()
}

/// Two scrapes, and the lower and upper bounds of the counts between them.
struct Bracket {
    before: Exposition,
    after: Exposition,
    least: BTreeMap<String, u64>,
    most: BTreeMap<String, u64>,
}

/// Sends datagrams over the loopback interface and receives them. Each datagram raises the softirq NET_RX. Timer softirqs depend on due
/// timers; an idle guest may have none.
fn receive_datagrams(count: u8) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    for number in 0..count {
        socket.send_to(&[number], address).unwrap();
        socket.recv_from(&mut [0]).unwrap();
    }
}

/// Counts while a worker works, and reads a table of `/proc` before and after each scrape.
fn bracket(entry: &str, table: &str) -> Bracket {
    let service = service(entry, "");
    let mut worker = Worker::start("works");
    let look = || (interrupts(table), service.metrics(), interrupts(table));
    let first = look();
    worker.does(Work::Naps(300));
    worker.does(Work::Burn(300));
    receive_datagrams(20);
    let second = look();
    let between = |from: &BTreeMap<String, u64>, to: &BTreeMap<String, u64>| {
        to.iter().map(|(name, count)| (name.clone(), count - from[name])).collect()
    };
    let (least, most) = (between(&first.2, &second.0), between(&first.0, &second.2));
    Bracket { before: first.1, after: second.1, least, most }
}

/// Reports whether a number of pairs is consistent with the table. One pair on each CPU may have been open at each scrape.
fn fits(pairs: f64, least: u64, most: u64) -> bool {
    let open = Facts::read(&Roots::default()).online.len() as f64;
    (least as f64 - open..=most as f64 + open).contains(&pairs)
}

#[test]
fn each_softirq_is_one_pair_as_the_kernel_counts_them() {
    let Some(_counters) = kprobes() else { return };
    let Bracket { before, after, least, most } = bracket(
        "tracepoints: {softirq: {from: \"irq:softirq_entry\", to: \"irq:softirq_exit\", key: [vec, $cpu], \
         labels: {vec: vec}, histogram: seconds}}",
        "softirqs",
    );
    let pairs_of = |name: &str| {
        let count = "perf_tracepoint_softirq_seconds_count";
        let [before, after] = [&before, &after].map(|scrape| scrape.sum(count, &[("vec", name)]));
        after - before
    };
    for (name, least) in &least {
        let pairs = pairs_of(name);
        assert!(fits(pairs, *least, most[name]), "{name}: {pairs} of {least} to {} {after:?}", most[name]);
    }
    assert!(least["NET_RX"] > 0, "no softirq was compared: {least:?}");
    // Softirqs in progress while the events were opened, the begin events before the end events: at most one of each kind on each CPU,
    // because a slow machine serves several kinds in between.
    let most = Facts::read(&Roots::default()).online.len() * least.len();
    let unpaired = after.sum("perf_unpaired_events_total", &[]);
    assert!(unpaired <= most as f64, "{unpaired}: {after:?}");
}

#[test]
fn each_interrupt_of_a_cpus_own_timer_is_one_pair() {
    let Some(_counters) = kprobes() else { return };
    let (row, entry) = if cfg!(target_arch = "aarch64") {
        let text = read_text(Path::new("/proc/interrupts")).unwrap();
        let row = text.lines().find(|line| line.contains("arch_timer")).unwrap();
        (
            row.split_once(':').unwrap().0.trim().to_owned(),
            "{from: \"irq:irq_handler_entry\", \
         to: \"irq:irq_handler_exit\", key: [irq, $cpu], labels: {irq: irq}, histogram: seconds}",
        )
    } else {
        (
            "LOC".to_owned(),
            "{from: \"irq_vectors:local_timer_entry\", to: \"irq_vectors:local_timer_exit\", \
         key: [vector, $cpu], histogram: seconds}",
        )
    };
    let Bracket { before, after, least, most } =
        bracket(&format!("tracepoints: {{timer: {entry}}}"), "interrupts");
    let labels = [("irq", &*row)];
    let labels = if cfg!(target_arch = "aarch64") { &labels[..] } else { &[] };
    let pairs = advance(&before, &after, "perf_tracepoint_timer_seconds_count", labels);
    assert!(least[&row] > 0 && fits(pairs, least[&row], most[&row]), "{pairs}: {least:?} {most:?} {after:?}");
}

/// Returns the run time of the threads of a process, in nanoseconds (`/proc/PID/task/TID/schedstat`).
fn run_time(pid: u32) -> u64 {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let of = |thread: &String| -> u64 {
        let text = read_text(&tasks.join(thread).join("schedstat")).unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    list(&tasks).unwrap().iter().map(of).sum()
}

/// The kernel's event count for each of these hits is a number of nanoseconds. The exporter must count one.
#[test]
fn the_run_time_that_the_scheduler_tells_of_is_the_one_on_its_books() {
    let Some(_counters) = kprobes() else { return };
    let mut worker = Worker::start("burns");
    let tasks = list(&PathBuf::from(format!("/proc/{}/task", worker.pid()))).unwrap();
    let filter: Vec<String> = tasks.iter().map(|task| format!("pid == {task}")).collect();
    let filter = filter.join(" || ");
    let service = service(
        &format!(
            "tracepoints:\n  run_seconds: {{event: \"sched:sched_stat_runtime\", filter: \"{filter}\", \
             sum: {{of: runtime, unit: nanoseconds}}}}\n  \
             runs: {{event: \"sched:sched_stat_runtime\", filter: \"{filter}\"}}\n"
        ),
        "",
    );
    // The worker runs for some microseconds after its answer, so that both are read while it sleeps.
    let pid = worker.pid();
    let asleep = || loop {
        let (ran, metrics) = (run_time(pid), service.metrics());
        if run_time(pid) == ran {
            return (ran, metrics);
        }
    };
    let (begin, before) = asleep();
    worker.does(Work::Burn(200));
    worker.does(Work::Naps(200));
    let (end, after) = asleep();
    let ran = end - begin;
    let told = advance(&before, &after, "perf_tracepoint_run_seconds_total", &[]);
    assert!(ran > 200_000_000 && (told * 1e9 - ran as f64).abs() < 1e3, "{told} s, {ran} ns: {after:?}");
    let hits = ["perf_tracepoint_run_total", "perf_tracepoint_runs_total"].map(|name| after.value(name, &[]));
    assert!(hits[0] == hits[1] && hits[0] > Some(200.0), "{hits:?} {after:?}");
    assert_eq!(lost(&after), 0.0, "{after:?}");
}

#[test]
fn a_function_can_be_counted_by_function_tracing_alone() {
    let Some(_counters) = kprobes() else { return };
    let mut worker = Worker::start("asks");
    // Function tracing lists only one of several names of an address.
    let roots = Roots::default();
    let known = |name: &&str| kallsyms::is_traceable(&roots, name).unwrap();
    let function = [GETPPID, "__do_sys_getppid"].into_iter().find(known).unwrap();
    let service = service(
        &format!("tracepoints: {{asks: {{event: \"ftrace:function\", filter: \"ip == {function}\"}}}}"),
        "",
    );
    let before = service.metrics();
    worker.does(Work::Getppid(1234));
    let after = service.metrics();
    assert_eq!(advance(&before, &after, "perf_tracepoint_asks_total", &[]), 1234.0, "{after:?}");
}
