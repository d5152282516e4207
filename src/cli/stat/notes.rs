//! Why events that were open have no count.

use super::table::{Row, Value};
use crate::cli::observe::notes::{Note, add};
use crate::host::Facts;

/// Adds the notes on rows that were open and have no count.
pub(super) fn add_uncounted(notes: &mut Vec<Note>, rows: &[Row], facts: &Facts) {
    for row in rows.iter().filter(|row| row.value == Value::NotCounted) {
        if row.interval.enabled == 0 {
            let remedy = "give it longer, or something to do".to_owned();
            add(notes, &row.event, "idle: nothing that was to be counted ran".into(), Some(remedy));
            continue;
        }
        let reason = "never on the PMU: there are more events than counters, or others hold them".into();
        let watchdog = match facts.nmi_watchdog {
            true => "; the NMI watchdog holds a counter (sysctl kernel.nmi_watchdog=0 frees it)",
            false => "",
        };
        let remedy = format!("count for longer, fewer events at once, or in smaller groups{watchdog}");
        add(notes, &row.event, reason, Some(remedy));
    }
}
