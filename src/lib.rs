//! Linux `perf` as an always-on service.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod counter;
pub mod error;
pub mod event;
pub mod export;
pub mod health;
pub mod host;
pub mod metrics;
pub mod plan;
pub mod sys;
pub mod target;
