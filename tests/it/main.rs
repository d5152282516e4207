//! The integration tests: one binary, a module for each part.

#![cfg(test)]

#[path = "../support/any_argument.rs"]
mod any_argument;
#[path = "../support/any_btf.rs"]
mod any_btf;
#[path = "../support/any_certificate.rs"]
mod any_certificate;
#[path = "../support/any_elf.rs"]
mod any_elf;
#[path = "../support/any_format.rs"]
mod any_format;
#[path = "../support/any_made.rs"]
mod any_made;
#[path = "../support/any_metadata.rs"]
mod any_metadata;
#[path = "../support/any_perf_data.rs"]
mod any_perf_data;
#[path = "../support/any_record.rs"]
mod any_record;
#[path = "../support/any_recording.rs"]
mod any_recording;
#[path = "../support/any_request.rs"]
mod any_request;
#[path = "../support/any_stack.rs"]
mod any_stack;
#[path = "../support/any_stream.rs"]
mod any_stream;
#[path = "../support/any_symbols.rs"]
mod any_symbols;
#[path = "../support/any_trace.rs"]
mod any_trace;
#[path = "../support/any_web.rs"]
mod any_web;
#[path = "../support/described_host.rs"]
mod described_host;
#[path = "../support/machine.rs"]
mod machine;
#[path = "../support/otlp_profiles.rs"]
mod otlp_profiles;
#[path = "../support/receiver.rs"]
mod receiver;
#[path = "../support/reference.rs"]
mod references;

#[path = "../support/remote_write.rs"]
mod remote_write_read;
#[path = "../support/rings.rs"]
mod rings;
#[path = "../support/traced.rs"]
mod traced;

#[path = "../../benches/fleet/growth.rs"]
mod growth;
#[path = "../../benches/fleet/hardware.rs"]
mod hardware;
#[path = "../../benches/fleet/nodes.rs"]
mod nodes;
#[path = "../../benches/fleet/recording.rs"]
mod recording;
#[path = "../../benches/fleet/requests.rs"]
mod requests;
#[allow(dead_code, unused_imports, reason = "the benchmark has more methods and figures")]
#[path = "../../benches/interference/simulation/mod.rs"]
mod simulation;

mod arguments;
mod binary;
mod btf;
mod collect;
mod containers;
mod conventions;
mod corpus;
mod cycles;
mod elf;
mod events;
mod fake;
mod files;
mod fleet;
mod formats;
mod hostile;
mod hosts;
mod hotplug;
mod hybrid;
mod interference;
mod language;
mod layers;
mod machines;
mod manual;
mod mistakes;
mod otlp_profiles_checked;
mod own_telemetry;
mod probe;
mod profiles;
mod program;
mod push;
mod reference;
mod reload;
mod remote_write;
mod replay;
mod strangers;
mod traces;
