//! Tracepoints with decoded fields, without a kernel: from a configuration and records to the scrape.

mod conservation;
mod labels;
mod owners;
mod pairs;
mod plans;
mod reload;
mod rings;
mod threads;
