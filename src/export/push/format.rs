//! The interface between the push machinery and the formats.
//!
//! A format is a module in `export` and a line in the list of all formats (`formats`). It resolves its settings ([`Format::resolve`]),
//! encodes data ([`Starter::metrics`], [`Starter::profiles`]), sends requests and evaluates the responses
//! ([`Transport`](super::Transport)). The machinery handles queues, retries, accounting, open connections and shutdown.

use std::fmt;

use super::context::PushContext;
use super::producer::Feed;
use super::route::Route;
use super::start::Starter;
use crate::config::push::{Push, Signal};
use crate::host::Environment;

/// A push format.
///
/// The value lives as long as the push thread, longer than settings, so that encoders can keep state about earlier snapshots.
pub(in crate::export) trait Format {
    /// Name of the section under `export`.
    const NAME: &'static str;

    /// Settings of a push in this format.
    type Settings: fmt::Debug + Clone + PartialEq;

    /// Creates the state of the format before anything was pushed.
    fn new(push_context: &PushContext) -> Self;

    /// Returns the settings from the configuration and the environment; `None` if nothing is pushed in this format. Appends a sentence to
    /// `problems` for each ignored setting.
    fn resolve(push: &Push, environment: &Environment, problems: &mut Vec<String>) -> Option<Self::Settings>;

    /// Returns the routes: signals with their receivers.
    fn routes(settings: &Self::Settings) -> Vec<Route>;

    /// Reads the files of the settings, as a push does. Returns the signals that cannot be pushed because of an unreadable or invalid file, with
    /// the reason. Blocks on file systems.
    fn check_files(settings: &Self::Settings) -> Vec<(Signal, String)>;

    /// Reports whether samples of different CPUs must stay separate in profiles.
    fn samples_by_cpu(_: &Self::Settings) -> bool {
        false
    }

    /// Starts pushing: calls a method of `starter` for each route. Called on the push runtime, after all earlier routes have ended.
    fn start<F: Feed>(&mut self, settings: &Self::Settings, starter: &mut Starter<'_, F>);

    /// Called when the settings are known and nothing is pushed in this format.
    fn idle(&mut self) {}
}
