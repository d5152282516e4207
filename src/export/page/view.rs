//! The input of the profile pages.

use std::sync::Arc;

use crate::export::query::Query;

/// Input of a page.
#[derive(Debug, Clone, Copy)]
pub(in crate::export) struct View<'v> {
    /// The query.
    pub(in crate::export) query: &'v Query,
    /// The available kinds of profiles.
    pub(in crate::export) kinds: &'v [Arc<str>],
    /// The nonce of the scripts: hexadecimal digits.
    pub(in crate::export) nonce: &'v str,
}

/// Kind of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::export) enum Page {
    FlameGraph,
    Top,
    Annotate,
    HeatMap,
}

impl Page {
    /// Returns the title and the path of the page.
    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::FlameGraph => ("Flame graph", "/flamegraph"),
            Self::Top => ("Functions", "/top"),
            Self::Annotate => ("Annotate", "/annotate"),
            Self::HeatMap => ("Heat map", "/heatmap"),
        }
    }
}
