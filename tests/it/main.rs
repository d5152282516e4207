//! The integration tests: one binary, a module for each part.

#![cfg(test)]

mod binary;
mod collect;
mod events;
mod fake;
mod hostile;
mod hosts;
mod layers;
mod manual;
mod program;
