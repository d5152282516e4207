//! Tests on the kernel of this machine, of the library with the live kernel and of the program as a service. Each
//! test asks for what it needs and is skipped, with the reason on stderr, where the machine does not have it.

#![cfg(test)]

#[path = "../support/mod.rs"]
mod support;

mod agreement;
mod cgroups;
mod counting;
mod perf;
mod processes;
mod service;
mod stat;
mod tracepoints;
