//! The integration tests: one binary, a module for each part.

#![cfg(test)]

#[path = "../support/any_record.rs"]
mod any_record;
#[path = "../support/any_stream.rs"]
mod any_stream;
#[path = "../support/rings.rs"]
mod rings;

mod binary;
mod collect;
mod events;
mod fake;
mod hostile;
mod hosts;
mod layers;
mod manual;
mod program;
mod replay;
