//! Types of cores of hybrid machines that lack an event which other types have.

use std::sync::Arc;

use super::wrong;
use crate::event::{Catalog, Event, syntax};
use crate::health::{Cause, Refusal};

/// Returns a refusal for each type of core that lacks an event. The event is counted on the other types.
pub(super) fn refusals(catalog: &Catalog, event: &syntax::Event, found: &[Event]) -> Vec<Refusal> {
    let written = syntax::Event { alias: None, ..event.clone() };
    let name: Arc<str> = written.to_string().into();
    let refusal = |pmu: &str| {
        let reason = format!("{pmu} has no such event, so it is not counted on the cores of {pmu}");
        let target = format!("the cores of {pmu}");
        Refusal { target, cause: Cause::Absent, ..wrong(&name, reason) }
    };
    catalog.types_without(event, found).into_iter().map(refusal).collect()
}
