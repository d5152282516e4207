//! A status of which every field is set, and what it looks like.

use super::*;

#[test]
fn moments_are_printed_in_utc() {
    let table = [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_399_999, "2000-02-28T23:59:59Z"),
        (951_782_400_000, "2000-02-29T00:00:00Z"),
        (951_868_800_000, "2000-03-01T00:00:00Z"),
        (1_735_689_599_000, "2024-12-31T23:59:59Z"),
        (4_107_542_400_000, "2100-03-01T00:00:00Z"),
    ];
    for (milliseconds, text) in table {
        assert_eq!(Utc(Timestamp(milliseconds)).to_string(), text);
    }
    assert_eq!(format!("{:#}", Utc(Timestamp(0))), "1970-01-01 00:00:00 UTC");
    assert!(!Utc(Timestamp(u64::MAX)).to_string().is_empty());
}

#[test]
fn the_json_is_as_recorded() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&specimen()).unwrap());
}

/// A machine on a bad day, with hostile names.
pub(crate) fn specimen() -> Status {
    let event = |event: &str, counting, stalled, refused| EventStatus {
        event: event.to_owned(),
        counting,
        shared: None,
        stalled,
        refused,
    };
    let misses = Shared { count: 3, lowest_percent: 61 };
    Status {
        now: Timestamp(1_795_251_126_000),
        started: Timestamp(1_795_062_000_000),
        version: "0.1.0 (3fce3b5b)".to_owned(),
        configuration: Configuration {
            file: Some("/etc/perf-exporter.yaml".to_owned()),
            loaded: Timestamp(1_795_062_000_000),
            failed_reload: Some(FailedReload {
                at: Timestamp(1_795_250_000_000),
                problems: vec![
                    "line 12: counters.core.events: \"cycels\" is not an event; did you mean cycles?"
                        .to_owned(),
                ],
            }),
        },
        host: Host {
            kernel: "6.12.9-amd64 x86_64".to_owned(),
            cpus: "0-3".to_owned(),
            paranoid: Some(2),
            capabilities: vec!["CAP_PERFMON".to_owned(), "CAP_DAC_READ_SEARCH".to_owned()],
            pmus: ["cpu", "msr", "software", "tracepoint", "uncore_imc_0"].map(str::to_owned).into(),
            virtual_machine: true,
            notes: vec!["the NMI watchdog holds one hardware counter on every CPU".to_owned()],
        },
        counters: vec![
            CounterStatus {
                entry: "core".to_owned(),
                scope: "cpu".to_owned(),
                how: "4 CPUs, own descriptors".to_owned(),
                events: vec![event("cycles", 4, 0, 0), event("instructions", 4, 0, 0)],
            },
            CounterStatus {
                entry: "cache".to_owned(),
                scope: "cpu".to_owned(),
                how: "4 CPUs, switch stream".to_owned(),
                events: vec![
                    EventStatus { shared: Some(misses), ..event("cache-misses", 1, 0, 0) },
                    event("cache-references", 0, 0, 4),
                ],
            },
            CounterStatus {
                entry: "os".to_owned(),
                scope: "process".to_owned(),
                how: "12 processes, switch stream".to_owned(),
                events: vec![event("task-clock", 12, 0, 0), event("page-faults", 10, 2, 0)],
            },
        ],
        stream: Some(Stream {
            granularity: "process".to_owned(),
            leader: "context-switches".to_owned(),
            cpus: 4,
            descriptors: 44,
            groups: vec![vec!["core".to_owned()], vec!["cache".to_owned(), "os".to_owned()]],
            record_bytes: 120,
            ring_bytes: Usage { used: 1 << 20, limit: Some(16 << 20) },
            records: 123_456_789,
            lost: 17,
            unattributed: vec![Unattributed {
                scope: "process".to_owned(),
                event: "task-clock".to_owned(),
                attributed_percent: 35.246,
                reasons: vec![
                    UnattributedPart { reason: "idle".to_owned(), percent: 61.25 },
                    UnattributedPart { reason: "not_selected".to_owned(), percent: 3.5 },
                    UnattributedPart { reason: "lost".to_owned(), percent: 0.004 },
                ],
            }],
        }),
        threads: Some(Threads {
            reduced: Some("nothing of processes".into()),
            delays: vec![Delay {
                comm: "<b>nginx\u{7}".into(),
                pid: 4711,
                tid: 4713,
                seconds: 0.012_345,
                at: Timestamp(1_795_251_100_000),
                cpu: 3,
            }],
            stuck: vec![Stuck {
                comm: "java".into(),
                pid: 815,
                tid: 815,
                syscall: "fsync".into(),
                seconds: 73.25,
            }],
        }),
        containers: Containers {
            known: 12,
            unknown: 1,
            sources: vec![
                ContainerSource {
                    source: "cri".into(),
                    place: "/run/containerd/containerd.sock".into(),
                    answered: Some(Timestamp(1_795_251_100_000)),
                    containers: 12,
                    failing: None,
                },
                ContainerSource {
                    source: "docker".into(),
                    place: "/run/docker.sock".into(),
                    failing: Some("<b>permission denied".into()),
                    ..ContainerSource::default()
                },
            ],
        },
        pushes: vec![
            PushStatus {
                format: "otlp".into(),
                signal: "metrics".into(),
                endpoint: "https://collector:4317/".into(),
                protocol: "grpc".into(),
                last_taken: Some(Timestamp(1_795_251_120_000)),
                message: Some("<b>3 are too old".into()),
                taken: 1_234_567,
                rejected: 3,
                ..PushStatus::default()
            },
            PushStatus {
                format: "otlp".into(),
                signal: "profiles".into(),
                endpoint: "https://collector:4317/".into(),
                protocol: "grpc".into(),
                failing: Some(PushFailure {
                    since: Timestamp(1_795_250_000_000),
                    why: "connection refused".into(),
                }),
                dropped: 40_000,
                waiting_requests: 9,
                waiting_bytes: 33_000_000,
                ..PushStatus::default()
            },
        ],
        profiles: vec![ProfileStatus {
            entry: "cpu".into(),
            what: "19 times a second and CPU, unwound by auto".into(),
            events: vec![EventStatus {
                event: "cpu-clock".into(),
                counting: 4,
                shared: None,
                stalled: 0,
                refused: 0,
            }],
            samples: 7_600,
        }],
        traces: vec![
            TraceStatus {
                entry: "malloc_bytes".to_owned(),
                section: "probes".to_owned(),
                what: "histogram of size in bytes, by <comm>, per host".to_owned(),
                events: vec![event("/usr/lib/libc.so.6:malloc", 3, 0, 1)],
                hits: 1_234_567,
                series: 12,
                pairs: None,
            },
            TraceStatus {
                entry: "block_latency".to_owned(),
                section: "tracepoints".to_owned(),
                what: "time from the first to the second, by op, per host".to_owned(),
                events: vec![
                    event("block:block_rq_issue", 4, 0, 0),
                    event("block:block_rq_complete", 4, 0, 0),
                ],
                hits: 4_711,
                series: 3,
                pairs: Some(Pairs {
                    waiting: 2,
                    unpaired: vec![Unpaired { reason: "no_begin".to_owned(), count: 8 }],
                }),
            },
        ],
        refusals: vec![
            Refusal {
                events: vec!["uncore_imc_0/cas_count_read/".to_owned()],
                target: "socket 0".to_owned(),
                count: 1,
                cause: Cause::Forbidden,
                reason: "EACCES: perf_event_paranoid is 2, and counting a whole CPU needs 0 or CAP_PERFMON"
                    .to_owned(),
                remedy: "grant CAP_PERFMON, or set kernel.perf_event_paranoid to 0".to_owned(),
            },
            Refusal {
                events: vec!["cache-references".to_owned(), "bus-cycles".to_owned()],
                target: "cpu".to_owned(),
                count: 4,
                cause: Cause::Absent,
                reason: "ENOENT: this virtual machine's PMU does not have the event".to_owned(),
                remedy: String::new(),
            },
            Refusal {
                events: vec!["task-clock".to_owned()],
                target: "process <script>alert(\"x\")</script>&\u{7}".to_owned(),
                count: 1,
                cause: Cause::Exhausted,
                reason: "EMFILE: 1024 descriptors are open, as many as RLIMIT_NOFILE allows".to_owned(),
                remedy: "raise LimitNOFILE=, or count fewer processes".to_owned(),
            },
        ],
        descriptors: Usage { used: 1019, limit: Some(1024) },
        series: vec![
            Series { metric: "perf_cpu_cycles_total".to_owned(), series: 4, in_other: 0 },
            Series {
                metric: "perf_cgroup_task_clock_seconds_total".to_owned(),
                series: 20_000,
                in_other: 1_234,
            },
        ],
        losses: vec![Loss { what: "records".to_owned(), reason: "ring_full".to_owned(), count: 17 }],
        collection: Some(Collection {
            at: Timestamp(1_795_251_121_000),
            duration: Duration::from_micros(3_400),
            interval: Duration::from_secs(10),
            series: 20_004,
        }),
        cost: Cost {
            cpu: Duration::from_millis(83_210),
            cpu_percent: Some(0.44),
            resident_bytes: 23_500_000,
        },
        memory: vec![
            MemoryPart { part: "rings", used_bytes: 4 << 20, limit_bytes: 12 << 20 },
            MemoryPart { part: "stacks", used_bytes: 11 << 20, limit_bytes: 11 << 20 },
            MemoryPart { part: "history", used_bytes: 0, limit_bytes: 4 << 20 },
        ],
        open_descriptors: vec![
            DescriptorKind { kind: "event", open: 1019 },
            DescriptorKind { kind: "file", open: 3 },
        ],
        files: FilesStatus {
            helper: Some(4242),
            restarts: 1,
            late: 3,
            stuck: vec![StuckFile {
                mount: "/mnt/<b>backup".into(),
                filesystem: "fuse.sshfs".into(),
                pid: Some(815),
                path: "/mnt/<b>backup/bin/java".into(),
                since: Duration::from_millis(83_210),
            }],
        },
    }
}
