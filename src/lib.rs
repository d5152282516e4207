//! Linux `perf` as an always-on service. One process per node opens hardware counters, software events, tracepoints, dynamic probes and
//! sampled stacks through `perf_event_open`, per CPU, cgroup and process. It exports them to Prometheus, as flame graphs and as pprof.
//!
//! ```text
//! YAML ──────────────► config ─┐
//! event names ───────► event  ─┼─► plan ─┬─────────────► counter ──► metrics::Snapshot ──► export ──► /metrics, OTLP, …
//! selections ────────► target ─┘         │                  ▲
//!                                        └► ring ┬► attribute ┤   switch stream: attribution of counts
//!                                                ├► tracepoint ┘  fields as labels, sums, histograms, latencies
//!                                                └► stack ► symbol ► profile ──► export ──► /flamegraph, pprof, OTLP, …
//! refusals, verdicts ► health ──► /status, perf_event_state, the log
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`error`] | errors of the kernel and of files |
//! | [`span`] | spans of the exporter's own work |
//! | [`host`] | paths of kernel file systems, facts of this machine |
//! | [`clock`] | time |
//! | [`budget`] | memory limits of the parts of the exporter |
//! | [`net`] | network connections |
//! | [`health`] | refusals with reasons and remedies, reliability of counts |
//! | [`metrics`] | series and their values |
//! | [`history`] | the past of the machine, of cgroups and of programs |
//! | [`event`] | events of this machine by name |
//! | [`files`] | access to files of other processes |
//! | [`targets`] | cgroups and processes, and selections of them |
//! | [`probe`] | locations and arguments of probes |
//! | [`config`] | the configuration file and its errors |
//! | [`deep`] | sets of events for a few cgroups, for a limited time |
//! | [`container`] | pods and containers of cgroups |
//! | [`plan`] | events to open, and their metrics |
//! | [`sys`] | system calls |
//! | [`ring`] | records of the kernel |
//! | [`register`] | names of processes, threads and cgroups |
//! | [`attribute`] | attribution of counts |
//! | [`tracepoint`] | aggregation of tracepoint and probe fields |
//! | [`counter`] | open events and their counts |
//! | [`stack`] | call chains |
//! | [`symbol`] | function names of frames |
//! | [`profile`] | samples and off-CPU times by stack |
//! | `perf_data` | files in the format of perf |
//! | [`annotate`] | instructions of functions with their samples |
//! | [`export`] | export formats, HTTP server, push |
//! | [`app`] | threads of the service |
//! | [`cli`] | the command line |
//!
//! A module imports only from modules above it. A test checks this, and that only [`sys`] contains `unsafe` code.

pub mod annotate;
pub mod anomaly;
pub mod app;
pub mod attribute;
pub mod budget;
mod clean;
pub mod cli;
pub mod clock;
pub mod config;
pub mod container;
pub mod counter;
pub mod deep;
mod durable;
pub mod error;
pub mod event;
pub mod export;
pub mod files;
pub mod health;
pub mod history;
pub mod host;
pub mod incident;
mod lock;
pub mod metrics;
mod named_enum;
pub mod net;
mod perf_data;
pub mod plan;
pub mod probe;
pub mod profile;
pub mod recording;
pub mod register;
pub mod report;
pub mod ring;
pub mod sched;
pub mod series;
pub mod span;
pub mod stack;
pub mod status;
pub mod symbol;
pub mod sys;
pub mod syscall;
pub mod targets;
pub mod tracepoint;
