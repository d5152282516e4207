//! Tracepoints whose fields are looked into, without a kernel: from a configuration and records to what is scraped.

mod conservation;
mod labels;
mod owners;
mod pairs;
mod plans;
mod rings;
mod threads;
