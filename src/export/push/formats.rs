//! The list of all formats, and the settings of all of them.

use super::format::Format as _;
use super::pump::Feed;
use super::route::Route;
use super::start::Starter;
use super::surroundings::Surroundings;
use crate::config::push::Push;
use crate::host::Environment;

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
