//! Reasons why open events have no count.

use super::table::{Row, Value};
use crate::cli::observe::notes::{Note, add};
use crate::host::Facts;

/// Adds a note for each row whose event was open but has no count.
pub(super) fn add_uncounted(notes: &mut Vec<Note>, rows: &[Row], facts: &Facts) {
    for row in rows.iter().filter(|row| row.value == Value::NotCounted) {
        if row.interval.enabled == 0 {
            let remedy = "measure for longer, or while the target is busy".to_owned();
            add(notes, &row.event, "idle: the target did not run".into(), Some(remedy));
            continue;
        }
        let reason =
            "never scheduled on the PMU: there are more events than counters, or the counters are in use"
                .into();
        let watchdog = match facts.nmi_watchdog {
            true => "; the NMI watchdog uses a counter (sysctl kernel.nmi_watchdog=0 frees it)",
            false => "",
        };
        let remedy = format!("count for longer, count fewer events, or use smaller groups{watchdog}");
        add(notes, &row.event, reason, Some(remedy));
    }
}
