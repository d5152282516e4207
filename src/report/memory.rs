//! What the columns of memory accesses show.

use super::Key;
use crate::clean::{NAME, clean, function_name};
use crate::profile::Mode;
use crate::recording::perf_data::{Access, DataName};

/// The memory accesses of the samples of a profile, in their order; none for profiles of other events.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Memory<'p> {
    pub(super) accesses: &'p [Access],
    pub(super) names: &'p [DataName],
}

impl Memory<'_> {
    /// Returns the text of a sample in a column. `number` is the place of the sample in the profile.
    pub(super) fn cell(&self, key: Key, number: usize, mode: Mode) -> String {
        let Some(access) = self.accesses.get(number) else { return "N/A".to_owned() };
        let name = self.names.get(access.data as usize);
        let level = if mode == Mode::Kernel { 'k' } else { '.' };
        match key {
            Key::LocalWeight => access.weight.to_string(),
            Key::Mem => access.source.level_text(),
            Key::DataSymbol => {
                let symbol = name.map_or("", |name| &name.symbol);
                format!("[{level}] {}", function_name(symbol))
            }
            Key::DataObject => clean(name.map_or("", |name| name.short()), NAME).into_owned(),
            Key::Snoop => access.source.snoop_text(),
            Key::Tlb => access.source.tlb_text(),
            Key::Locked => access.source.locked_text().to_owned(),
            Key::Blocked => access.source.blocked_text().to_owned(),
            Key::LocalLatency => access.latency.to_string(),
            Key::PhysicalAddress => format!("[{level}] {:#018x}", access.physical),
            _ => "N/A".to_owned(),
        }
    }
}
