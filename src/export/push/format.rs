//! The seam between the push machinery and the formats.
//!
//! A format is a directory in `export` and a line in the list of all formats (`formats`). It resolves its settings
//! ([`Format::resolve`]), encodes ([`Starter::metrics`], [`Starter::profiles`]), makes requests and judges the answers
//! ([`Transport`](super::Transport)). Queues, retries, accounts, connections that are kept and the end of the process are
//! the machinery's.

use std::fmt;

use super::pump::Feed;
use super::route::Route;
use super::start::Starter;
use super::surroundings::Surroundings;
use crate::config::push::Push;
use crate::host::Environment;

/// A format to push in.
///
/// A value lives as long as the thread that pushes, and longer than settings: it keeps what encoders remember of earlier
/// snapshots.
pub(in crate::export) trait Format {
    /// The name of its section under `export`.
    const NAME: &'static str;

    /// Everything that pushing in this format needs to know.
    type Settings: fmt::Debug + Clone + PartialEq;

    /// Creates the state of the format. Nothing has been pushed yet.
    fn new(surroundings: &Surroundings) -> Self;

    /// Returns the settings from the configuration and the environment; `None` if nothing is pushed in this format. Appends
    /// a sentence to `problems` for each setting that is ignored.
    fn resolve(push: &Push, environment: &Environment, problems: &mut Vec<String>) -> Option<Self::Settings>;

    /// Returns what is pushed where.
    fn routes(settings: &Self::Settings) -> Vec<Route>;

    /// Whether profiles have to keep samples of different CPUs apart.
    fn samples_by_cpu(_: &Self::Settings) -> bool {
        false
    }

    /// Starts to push: calls a method of `starter` for each route. Is called on the runtime that pushes, after all earlier
    /// routes have ended.
    fn start<F: Feed>(&mut self, settings: &Self::Settings, starter: &mut Starter<'_, F>);

    /// Is called when the settings are known and nothing is pushed in this format.
    fn idle(&mut self) {}
}
