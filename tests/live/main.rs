//! Tests on the kernel of this machine: of the library with the live kernel, and of the program as a service. A test that needs a missing
//! feature is skipped, with the reason on stderr.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

#[allow(dead_code, reason = "receivers of these tests accept everything")]
#[path = "../support/receiver.rs"]
mod receiver;

#[allow(dead_code, reason = "other targets generate the page")]
#[path = "../support/reference.rs"]
mod references;

#[path = "../support/rings.rs"]
mod rings;

mod agreement;
mod annotate;
mod anomalies;
mod attribution;
mod bursts;
mod cgroups;
mod conservation;
mod container_probes;
mod containers;
mod counting;
mod deep;
mod fork_storm;
mod functions;
mod hanging;
mod hostile_names;
mod incidents;
mod inlined;
mod kernel_memory;
mod leftovers;
mod lock_contention;
mod lock_futex;
mod memory_accesses;
mod pairs;
mod perf;
mod perf_data;
mod presets;
mod privileges;
mod probes;
mod probing;
mod processes;
mod profiles;
mod profiles_agreement;
mod profiles_probes;
mod pushing;
mod recording;
mod reference;
mod reloading;
mod report;
mod report_screen;
mod sandbox;
mod sched_again;
mod sched_commands;
mod sched_replay;
mod scheduler;
mod screen;
mod script;
mod service;
mod shell_tests;
mod stat;
mod stream_records;
mod syscalls;
mod top_screen;
mod tracepoints;
mod traces;
mod tracing;
mod tracing_stacks;
mod vendor_events;
