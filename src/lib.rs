//! Linux `perf` as an always-on service: one binary per node opens hardware counters, software events, tracepoints,
//! dynamic probes and sampled stacks through `perf_event_open`, per CPU, cgroup and process, and serves them to Prometheus,
//! as flame graphs and as pprof.
//!
//! ```text
//! YAML ──────────────► config ─┐
//! what can be named ─► event  ─┼─► plan ─┬─────────────► counter ──► metrics::Snapshot ──► export ──► /metrics, OTLP, …
//! who and where ─────► target ─┘         │                  ▲
//!                                        └► ring ┬► attribute ┤   switch stream: who counted what
//!                                                ├► tracepoint ┘  fields as labels, sums, histograms, latencies
//!                                                └► stack ► symbol ► profile ──► export ──► /flamegraph, pprof, OTLP, …
//! refusals, verdicts ► health ──► /status, perf_event_state, the log
//! ```
//!
//! | module | answers |
//! |---|---|
//! | [`error`] | what did the kernel say? |
//! | [`host`] | where are the kernel's files, and what is this machine? |
//! | [`clock`] | what time is it? |
//! | [`budget`] | how many bytes may each part hold? |
//! | [`net`] | how are others reached? |
//! | [`health`] | why was it refused, and what would help? what is this count worth? |
//! | [`metrics`] | what is a series? |
//! | [`event`] | what does this name stand for on this machine? |
//! | [`files`] | how is a file of another process opened? |
//! | [`target`] | which cgroups and processes are there? |
//! | [`probe`] | where is this function, and what can be taken there? |
//! | [`config`] | what does the file say, and what is wrong with it? |
//! | [`container`] | which pod and container is it? |
//! | [`plan`] | what is to be opened, and which metric does it become? |
//! | [`sys`] | how is the kernel called? |
//! | [`ring`] | what did the kernel write? |
//! | [`register`] | what is the name of this process, thread or cgroup? |
//! | [`attribute`] | who counted what? |
//! | [`tracepoint`] | what do the fields of a tracepoint or probe add up to? |
//! | [`counter`] | what is open, and what has it counted? |
//! | [`stack`] | who called whom? |
//! | [`symbol`] | what is the function called that a frame is in? |
//! | [`profile`] | which stacks were seen how often, or for how long? |
//! | [`export`] | how is it written, served and pushed? |
//! | [`app`] | what runs on which thread? |
//! | [`cli`] | what can be typed? |
//!
//! A module imports only from those above it; a test holds that, and that `unsafe` stands in [`sys`] alone.

pub mod app;
pub mod attribute;
pub mod budget;
mod clean;
pub mod cli;
pub mod clock;
pub mod config;
pub mod container;
pub mod counter;
pub mod error;
pub mod event;
pub mod export;
pub mod files;
pub mod health;
pub mod host;
mod lock;
pub mod metrics;
pub mod net;
pub mod plan;
pub mod probe;
pub mod profile;
pub mod register;
pub mod ring;
pub mod sched;
pub mod series;
pub mod stack;
pub mod status;
pub mod symbol;
pub mod sys;
pub mod syscall;
pub mod target;
pub mod tracepoint;
mod words;
