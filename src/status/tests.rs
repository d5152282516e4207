//! A status with all fields set, and its snapshot.

use super::*;
use crate::budget::Part;
use crate::container::{Failure, FailureKind, Kind, SourceState};
use crate::deep::{DeepState, Origin, Refusal, RefusalKind, RefusedSet};
use crate::health::{Cause, Scope};

#[test]
fn the_json_is_as_recorded() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&example()).unwrap());
}

/// Creates the status of a machine with many problems and hostile names.
pub(crate) fn example() -> Status {
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
            file: Some("/etc/perf-exporter.yaml".into()),
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
            notes: vec!["the NMI watchdog uses one hardware counter on every CPU".to_owned()],
        },
        counters: vec![
            CounterStatus {
                entry: "core".to_owned(),
                scope: Scope::CPU,
                how: "4 CPUs, own descriptors".to_owned(),
                events: vec![event("cycles", 4, 0, 0), event("instructions", 4, 0, 0)],
            },
            CounterStatus {
                entry: "cache".to_owned(),
                scope: Scope::CPU,
                how: "4 CPUs, switch stream".to_owned(),
                events: vec![
                    EventStatus { shared: Some(misses), ..event("cache-misses", 1, 0, 0) },
                    event("cache-references", 0, 0, 4),
                ],
            },
            CounterStatus {
                entry: "os".to_owned(),
                scope: Scope::Process,
                how: "12 processes, switch stream".to_owned(),
                events: vec![event("task-clock", 12, 0, 0), event("page-faults", 10, 2, 0)],
            },
        ],
        deep: DeepReport {
            active: vec![DeepState {
                id: 3,
                name: "request_3".into(),
                origin: Origin::Request,
                events: vec!["{L1-dcache-load-misses,LLC-load-misses}".to_owned()],
                selection: vec!["/system.slice/<b>.service".to_owned()],
                cgroups: 1,
                entry: "deep:l1_dcache_load_misses".into(),
                already_counted: [("cycles".to_owned(), "core".into())].into(),
                began: Timestamp(1_795_251_000_000),
                ends: Some(Timestamp(1_795_251_600_000)),
                reason: "slow <script>".to_owned(),
                requester: "10.0.0.7".to_owned(),
            }],
            refused: vec![RefusedSet {
                name: "topdown".into(),
                origin: Origin::Annotation,
                requester: "shop/web-0".to_owned(),
                refusal: Refusal::new(
                    RefusalKind::Unknown,
                    "the annotation perf-exporter/deep names no set that pods may request",
                    "add it to `deep` of the configuration, with `annotation: allowed`",
                ),
            }],
        },
        stream: Some(Stream {
            granularity: "process".to_owned(),
            leader: "context-switches",
            cpus: 4,
            descriptors: 44,
            groups: vec![vec!["core".into()], vec!["cache".into(), "os".into()]],
            record_bytes: 120,
            ring_bytes: Usage { used: 1 << 20, limit: Some(16 << 20) },
            records: 123_456_789,
            lost: 17,
            unattributed: vec![Unattributed {
                scope: Scope::Process,
                event: "task-clock".into(),
                attributed_percent: 35.246,
                reasons: vec![
                    UnattributedPart { reason: "idle", percent: 61.25 },
                    UnattributedPart { reason: "not_selected", percent: 3.5 },
                    UnattributedPart { reason: "lost", percent: 0.004 },
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
        containers: container::Account {
            known: 12,
            unknown: 1,
            sources: vec![
                SourceState {
                    kind: Kind::Cri,
                    place: "/run/containerd/containerd.sock".into(),
                    answered: Some(Timestamp(1_795_251_100_000)),
                    containers: 12,
                    failure: None,
                },
                SourceState {
                    kind: Kind::Docker,
                    place: "/run/docker.sock".into(),
                    answered: None,
                    containers: 0,
                    failure: Some(Failure { kind: FailureKind::Wrong, why: "<b>permission denied".into() }),
                },
            ],
        },
        pushes: vec![
            PushStatus {
                format: "otlp",
                signal: "metrics",
                endpoint: "https://collector:4317/".into(),
                protocol: "grpc",
                last_accepted: Some(Timestamp(1_795_251_120_000)),
                message: Some("<b>3 are too old".into()),
                accepted: 1_234_567,
                partly_rejected: 3,
                ..PushStatus::default()
            },
            PushStatus {
                format: "otlp",
                signal: "profiles",
                endpoint: "https://collector:4317/".into(),
                protocol: "grpc",
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
            log_begin: Some(Timestamp(1_795_247_526_000)),
            log_samples: 7_500,
            log_bytes: 24_600,
        }],
        traces: vec![
            TraceStatus {
                entry: "malloc_bytes".to_owned(),
                section: "probes",
                what: "histogram of size in bytes, by <comm>, per host".to_owned(),
                events: vec![event("/usr/lib/libc.so.6:malloc", 3, 0, 1)],
                hits: 1_234_567,
                series: 12,
                pairs: None,
            },
            TraceStatus {
                entry: "block_latency".to_owned(),
                section: "tracepoints",
                what: "time from begin to end, by op, per host".to_owned(),
                events: vec![
                    event("block:block_rq_issue", 4, 0, 0),
                    event("block:block_rq_complete", 4, 0, 0),
                ],
                hits: 4_711,
                series: 3,
                pairs: Some(Pairs { waiting: 2, unpaired: vec![Unpaired { reason: "no_begin", count: 8 }] }),
            },
        ],
        refusals: vec![
            SameReason {
                events: vec!["uncore_imc_0/cas_count_read/".into()],
                target: "socket 0".to_owned(),
                count: 1,
                cause: Cause::Forbidden,
                reason: "EACCES: perf_event_paranoid is 2, and counting a whole CPU needs 0 or CAP_PERFMON"
                    .to_owned(),
                remedy: "grant CAP_PERFMON, or set kernel.perf_event_paranoid to 0".to_owned(),
            },
            SameReason {
                events: vec!["cache-references".into(), "bus-cycles".into()],
                target: "cpu".to_owned(),
                count: 4,
                cause: Cause::Absent,
                reason: "ENOENT: this virtual machine's PMU does not have the event".to_owned(),
                remedy: String::new(),
            },
            SameReason {
                events: vec!["task-clock".into()],
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
        losses: vec![Loss { what: "records", reason: "ring_full", count: 17 }],
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
            PartState { part: Part::Rings, used: 4 << 20, limit: 12 << 20 },
            PartState { part: Part::Stacks, used: 11 << 20, limit: 11 << 20 },
            PartState { part: Part::History, used: 0, limit: 4 << 20 },
        ],
        open_descriptors: OpenDescriptors { event: 1019, file: 3, ..OpenDescriptors::default() },
        files: files::Report {
            helper: Some(4242),
            restarts: 1,
            late: 3,
            stuck: vec![files::Stuck {
                mount: "/mnt/<b>backup".into(),
                filesystem: "fuse.sshfs".into(),
                pid: Some(815),
                path: "/mnt/<b>backup/bin/java".into(),
                since: Duration::from_millis(83_210),
            }],
            kept: 0,
        },
    }
}
