//! The integration tests: one binary, a module for each part.

#![cfg(test)]

mod collect;
mod events;
mod layers;
