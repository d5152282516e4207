//! The list of all formats, and their combined settings.

use super::context::PushContext;
use super::format::Format as _;
use super::producer::Feed;
use super::route::Route;
use super::start::Starter;
use crate::config::push::{Push, Signal};
use crate::host::Environment;

/// Defines [`Settings`] and [`Formats`] from the names of modules of `export` and their types that implement [`Format`].
macro_rules! formats {
    ($($name:ident: $format:ident,)+) => {
        /// Settings of all pushes, by format; `None` if nothing is pushed in a format.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct Settings {
            $(
                #[doc = concat!("By `export.", stringify!($name), "` and the environment.")]
                pub $name: Option<crate::export::$name::Settings>,
            )+
        }

        impl Settings {
            /// Returns the settings from the configuration and the environment, `None` if nothing is pushed, and a sentence for each
            /// ignored part of the environment.
            pub fn resolve(push: &Push, environment: &Environment) -> (Option<Self>, Vec<String>) {
                let mut problems = Vec::new();
                let settings = Self {
                    $($name: crate::export::$name::$format::resolve(push, environment, &mut problems),)+
                };
                ((settings != Self::default()).then_some(settings), problems)
            }

            /// Returns all routes, each with the name of its format.
            pub fn routes(&self) -> Vec<(&'static str, Route)> {
                let mut all = Vec::new();
                $(
                    let routes = self.$name.iter().flat_map(crate::export::$name::$format::routes);
                    all.extend(routes.map(|route| (crate::export::$name::$format::NAME, route)));
                )+
                all
            }

            /// Reads the files of all settings, as pushes do. Returns the signals that cannot be pushed because of an unreadable or
            /// invalid file: the name of the format, the signal, and the reason. Blocks on file systems.
            pub fn check_files(&self) -> Vec<(&'static str, Signal, String)> {
                let mut all = Vec::new();
                $(
                    let found = self.$name.iter().flat_map(crate::export::$name::$format::check_files);
                    let name = crate::export::$name::$format::NAME;
                    all.extend(found.map(|(signal, why)| (name, signal, why)));
                )+
                all
            }

            /// Reports whether samples of different CPUs must stay separate in profiles.
            pub fn samples_by_cpu(&self) -> bool {
                [$(self.$name.as_ref().is_some_and(crate::export::$name::$format::samples_by_cpu)),+]
                    .contains(&true)
            }
        }

        /// State of each format.
        #[derive(Debug)]
        pub(super) struct Formats {
            $($name: crate::export::$name::$format,)+
        }

        impl Formats {
            pub(super) fn new(push_context: &PushContext) -> Self {
                Self { $($name: crate::export::$name::$format::new(push_context),)+ }
            }

            /// Starts all pushes of these settings. `known` is false until settings have been resolved once.
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

// All formats: modules of `export`, and the sections of the same name in `config::push`.
formats! {
    otlp: Otlp,
    remote_write: RemoteWrite,
}
