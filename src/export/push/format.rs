//! The seam between the push machinery and the formats.
//!
//! A format is a directory in `export` and a line in the list at the end of this file. It resolves its settings
//! ([`Format::resolve`]), encodes ([`Starter::metrics`], [`Starter::profiles`]), makes requests and judges the answers
//! ([`Transport`]). Queues, retries, accounts, connections that are kept and the end of the process are the machinery's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Uri;

use super::outcome::Outcome;
use super::start::Starter;
use super::state::Board;
use super::thread::Feed;
use crate::budget::Share;
use crate::clock::{Clock, Timestamp};
use crate::config::push::{Push, Signal};
use crate::export::otlp::attribute::Resource;
use crate::export::otlp::logs::Switch;
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

/// The rest of the program, as the thread that pushes and the formats see it.
#[derive(Debug)]
pub struct Surroundings {
    /// Who sends: attributes with the names that OpenTelemetry's conventions give them.
    pub resource: Resource,
    /// The account of pushes.
    pub board: Arc<Board>,
    /// The exporter's own log, for formats that carry it.
    pub log: Switch,
    /// The time.
    pub clock: Clock,
    /// When the process began.
    pub began: Timestamp,
    /// The memory for all queues.
    pub memory: Share,
}

/// Makes requests, and judges the answers.
pub(in crate::export) trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Open connections to one receiver.
    type Connection: fmt::Debug + Send + Sync;

    /// Prepares connections; they may be opened with the first request. Is called on a tokio runtime, whenever there is no
    /// connection, so files of certificates are read again.
    ///
    /// # Errors
    /// What is wrong with the certificates.
    fn connect(&self) -> Result<Self::Connection, String>;

    /// Sends one request. The caller limits the time.
    fn send(
        &self,
        connection: &Self::Connection,
        body: &Bytes,
        clock: &Clock,
    ) -> impl Future<Output = Outcome> + Send;
}

/// One signal's way to its receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// What is pushed.
    pub signal: Signal,
    /// The receiver.
    pub uri: Uri,
    /// The name of the protocol.
    pub protocol: &'static str,
    /// The names of the headers that users add to each request. Their values may be secrets.
    pub headers: Vec<String>,
    /// How often requests are made; `None` = as the data comes.
    pub interval: Option<Duration>,
    /// How long the receiver may take to answer.
    pub timeout: Duration,
    /// How many bytes may be queued.
    pub queue: u64,
}

/// A signal in a format: what queues and accounts are kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::export) struct Flow {
    /// [`Format::NAME`].
    pub(in crate::export) format: &'static str,
    /// The signal.
    pub(in crate::export) signal: Signal,
}

impl Flow {
    /// Returns the values of the labels `format` and `signal`.
    pub(super) fn labels(self) -> [&'static str; 2] {
        [self.format, self.signal.as_str()]
    }

    /// Returns these and the value of a third label.
    pub(super) fn with(self, outcome: &str) -> [&str; 3] {
        [self.format, self.signal.as_str(), outcome]
    }
}

/// Makes [`Settings`] and [`Formats`] of the names of modules of `export` and of their types that implement [`Format`].
macro_rules! formats {
    ($($name:ident: $format:ident,)+) => {
        /// Everything that pushing needs to know, by format; `None` where nothing is pushed in it.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct Settings {
            $(
                #[doc = concat!("By `export.", stringify!($name), "` and the environment.")]
                pub $name: Option<crate::export::$name::Settings>,
            )+
        }

        impl Settings {
            /// Returns what the configuration and the environment come to, `None` if nothing is pushed; and a sentence for each
            /// part of the environment that is ignored.
            pub fn resolve(push: &Push, environment: &Environment) -> (Option<Self>, Vec<String>) {
                let mut problems = Vec::new();
                let settings = Self {
                    $($name: crate::export::$name::$format::resolve(push, environment, &mut problems),)+
                };
                ((settings != Self::default()).then_some(settings), problems)
            }

            /// Returns what is pushed where, each route behind the name of its format.
            pub fn routes(&self) -> Vec<(&'static str, Route)> {
                let mut all = Vec::new();
                $(
                    let routes = self.$name.iter().flat_map(crate::export::$name::$format::routes);
                    all.extend(routes.map(|route| (crate::export::$name::$format::NAME, route)));
                )+
                all
            }

            /// Whether profiles have to keep samples of different CPUs apart.
            pub fn samples_by_cpu(&self) -> bool {
                [$(self.$name.as_ref().is_some_and(crate::export::$name::$format::samples_by_cpu)),+]
                    .contains(&true)
            }
        }

        /// The state of each format.
        #[derive(Debug)]
        pub(super) struct Formats {
            $($name: crate::export::$name::$format,)+
        }

        impl Formats {
            pub(super) fn new(surroundings: &Surroundings) -> Self {
                Self { $($name: crate::export::$name::$format::new(surroundings),)+ }
            }

            /// Starts all that is pushed by these settings. `known` is false until they have been resolved once.
            pub(super) fn start<F: Feed>(
                &mut self,
                settings: &Settings,
                known: bool,
                starter: &mut Starter<'_, F>,
            ) {
                $(match &settings.$name {
                    Some(settings) => {
                        starter.format = crate::export::$name::$format::NAME;
                        self.$name.start(settings, starter);
                    }
                    None if known => self.$name.idle(),
                    None => {}
                })+
            }
        }
    };
}

// All formats: modules of `export`, and the section of the same name in `config::push`.
formats! {
    otlp: Otlp,
    remote_write: RemoteWrite,
}
