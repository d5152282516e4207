//! Events by the names of CPU vendors: `mem_load_retired.l3_miss`, `ex_ret_instr`, `stall_backend`.
//!
//! The kernel selects an event by a code, and each CPU model has other codes. The codes are facts of the vendors' documents, collected in the
//! event files of the kernel's perf (`tools/perf/pmu-events`). `tools/vendor-events/generate.py` makes `tables.bin` of them: 75 models with
//! 51 629 events in 0.4 MB. It describes the format.
//!
//! The table of a model is decompressed for the first name that neither perf nor sysfs defines, and kept with the catalog: at most 0.2 MB.

mod cpuid;

use std::io::Read as _;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use flate2::read::ZlibDecoder;

use super::parse::parse_terms;
use super::pmu::{Named, base_unit};
use super::stem;
use crate::event::syntax::{Term, TermValue};
pub(super) use cpuid::{CpuId, matches};

/// The generated file.
const TABLES: &[u8] = include_bytes!("tables.bin");
/// Section of the events of the cores, on a machine with one type of core.
const CORE: &str = "core";
/// Maximum number of models in a message.
const MODELS_SHOWN: usize = 6;

/// A CPU model with a table of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Model {
    /// Name of the model, as in perf: `skylakex`, `amdzen4`, `arm/neoverse-v1`.
    pub name: &'static str,
    /// Release of the vendor's event list.
    pub release: &'static str,
    packed: &'static [u8],
    /// Size of the table, in bytes.
    size: usize,
}

/// The table of a model, decompressed when it is needed.
#[derive(Debug, Clone)]
pub(super) struct ModelTable {
    pub model: Model,
    cpu: CpuId,
    table: Arc<OnceLock<Table>>,
}

/// Whether the table is decompressed makes no difference.
impl PartialEq for ModelTable {
    fn eq(&self, other: &Self) -> bool {
        self.model == other.model && self.cpu == other.cpu
    }
}

/// The events of a model.
#[derive(Debug)]
struct Table {
    text: String,
    /// PMU and events of each section.
    sections: Vec<(Range<usize>, Range<usize>)>,
}

/// One event of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct VendorEvent<'t> {
    /// Name in lower case.
    pub name: &'t str,
    terms: &'t str,
    /// Counters that can count it: `0,1,2,3` or `fixed0`; empty if the list does not say so.
    pub counters: &'t str,
    scale: &'t str,
    flags: &'t str,
    /// Names of errata that affect the count.
    pub errata: &'t str,
}

/// Returns the lines of the index: pattern, model, release, offset, length, size.
fn index() -> impl Iterator<Item = (&'static str, Model)> {
    let length = TABLES.get(4..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let (index, streams) =
        TABLES.get(8..).and_then(|rest| rest.split_at_checked(length as usize)).unwrap_or_default();
    let lines = std::str::from_utf8(index).unwrap_or_default().lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(move |line| {
        let fields: Vec<&'static str> = line.split('\t').collect();
        let [pattern, name, release, offset, length, size] = fields[..] else { return None };
        let (offset, length): (usize, usize) = (offset.parse().ok()?, length.parse().ok()?);
        let packed = streams.get(offset..offset.checked_add(length)?)?;
        Some((pattern, Model { name, release, packed, size: size.parse().ok()? }))
    })
}

impl ModelTable {
    /// Returns the table of a CPU's model; `None` if there is none.
    pub(super) fn of(cpu: &CpuId) -> Option<Self> {
        let (_, model) = index().find(|(pattern, _)| matches(pattern, cpu))?;
        Some(Self { model, cpu: cpu.clone(), table: Arc::default() })
    }

    /// Reports whether the identity of the CPU fulfills a condition.
    pub(super) fn is_cpu(&self, is: impl Fn(&str) -> bool) -> bool {
        is(self.cpu.text())
    }

    /// Returns the events that a PMU of sysfs counts, sorted by name. `core`: whether it is the PMU of the cores.
    pub(super) fn events_of(&self, pmu: &str, core: bool) -> impl Iterator<Item = VendorEvent<'_>> {
        let table = self.table.get_or_init(|| self.model.table());
        table.sections().filter(move |(section, _)| is_of(section, pmu, core)).flat_map(|(_, events)| events)
    }

    /// Returns the event of a PMU with this name, in any case.
    pub(super) fn find(&self, pmu: &str, core: bool, name: &str) -> Option<VendorEvent<'_>> {
        let name = name.to_ascii_lowercase();
        self.events_of(pmu, core).find(|event| event.name == name)
    }
}

/// Reports whether a section has the events of a PMU: of the cores, of the PMU itself, or of its family.
fn is_of(section: &str, pmu: &str, core: bool) -> bool {
    match section {
        CORE => core,
        own => own == pmu || own == stem::without_instance(pmu),
    }
}

impl Model {
    fn table(&self) -> Table {
        let mut text = String::with_capacity(self.size);
        // The file is part of the program, and a test reads all of it. A damaged stream has the events before the damage.
        let read = ZlibDecoder::new(self.packed).take(self.size as u64).read_to_string(&mut text);
        debug_assert!(read.is_ok(), "{}: {read:?}", self.name);
        Table::of(text)
    }
}

/// Returns the names of the models with an event of this name, at most [`MODELS_SHOWN`]. Reads all tables.
pub(super) fn models_with(name: &str) -> Vec<&'static str> {
    let mut found: Vec<&str> = Vec::new();
    for (_, model) in index() {
        let has =
            |table: Table| table.sections().any(|(_, mut events)| events.any(|event| event.name == name));
        if !found.contains(&model.name) && has(model.table()) {
            found.push(model.name);
        }
        if found.len() == MODELS_SHOWN {
            break;
        }
    }
    found
}

impl Table {
    fn of(text: String) -> Self {
        let starts: Vec<usize> = text.match_indices("[").map(|(at, _)| at).collect();
        let ends = starts.iter().skip(1).copied().chain([text.len()]);
        let section = |(&start, end): (&usize, usize)| {
            let name = start + 1..start + text[start..end].find("]\n")?;
            Some((name.clone(), name.end + 2..end))
        };
        let sections = starts.iter().zip(ends).filter_map(section).collect();
        Self { sections, text }
    }

    /// Returns the PMU of each section and its events.
    fn sections(&self) -> impl Iterator<Item = (&str, impl Iterator<Item = VendorEvent<'_>>)> {
        self.sections.iter().map(|(name, events)| {
            (&self.text[name.clone()], self.text[events.clone()].lines().map(VendorEvent::of))
        })
    }
}

impl<'t> VendorEvent<'t> {
    fn of(line: &'t str) -> Self {
        let mut fields = line.split('\t');
        let mut field = || fields.next().unwrap_or_default();
        let (name, terms, counters) = (field(), field(), field());
        Self { name, terms, counters, scale: field(), flags: field(), errata: field() }
    }

    /// Returns the event select and the unit mask, as in `config` of Intel's PMUs.
    pub(super) fn code(&self) -> Option<u32> {
        let terms = parse_terms(self.terms).ok()?;
        let number = |name: &str| {
            let found = terms.iter().find(|term| &*term.name == name)?;
            match found.value {
                Some(TermValue::Number(number)) => u32::try_from(number).ok(),
                _ => None,
            }
        };
        Some(number("event")? & 0xff | (number("umask").unwrap_or(0) & 0xff) << 8)
    }

    /// Reports whether the vendor replaced it by another event.
    pub(super) fn is_deprecated(&self) -> bool {
        self.flags.split('+').any(|flag| flag == "deprecated")
    }

    /// Returns the terms of the PMU and the unit of the count; `None` if this program cannot read the terms.
    pub(super) fn named(&self) -> Option<Named> {
        let terms: Vec<Term> = parse_terms(self.terms).ok()?;
        let digits =
            self.scale.len() - self.scale.trim_start_matches(|c: char| "0123456789.eE+-".contains(c)).len();
        let (factor, unit) = self.scale.split_at(digits);
        let scale = factor.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
        Some(Named { terms, scale: scale.map(|factor| base_unit(factor, unit)), help: None })
    }

    /// Describes the event: its counters, whether it is deprecated, errata.
    pub(super) fn help(&self, model: &Model) -> Arc<str> {
        let mut help = format!("Event {} of {}", self.name, model.name);
        if !self.counters.is_empty() {
            help.push_str(&format!(", counters {}", self.counters));
        }
        if self.is_deprecated() {
            help.push_str(", deprecated");
        }
        if !self.errata.is_empty() {
            help.push_str(&format!(", errata {}", self.errata));
        }
        help.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_readable_and_every_event_has_terms() {
        let (mut count, mut unread) = (0, Vec::new());
        for (pattern, model) in index() {
            let table = model.table();
            assert_eq!(table.text.len(), model.size, "{pattern} {}", model.name);
            let read: usize = table.sections.iter().map(|(name, events)| name.len() + 3 + events.len()).sum();
            assert_eq!(read, model.size, "{pattern} {}", model.name);
            for event in table.sections().flat_map(|(_, events)| events) {
                count += 1;
                if event.named().is_none() {
                    unread.push(format!("{} {} {}", model.name, event.name, event.terms));
                }
            }
        }
        assert!(count > 50_000, "{count}");
        assert_eq!(unread, [""; 0]);
    }

    #[test]
    fn events_of_known_models_have_the_codes_of_the_vendors() {
        // Intel SDM volume 3, chapter 20; AMD PPR 19-11; Arm Neoverse V1 TRM.
        for (cpu, name, terms) in [
            ("GenuineIntel-6-55-4", "MEM_LOAD_RETIRED.L3_MISS", "event=0xd1,umask=0x20"),
            ("GenuineIntel-6-8F-8", "topdown.backend_bound_slots", "event=0xa4,umask=2"),
            ("AuthenticAMD-25-11-1", "ex_ret_instr", "event=0xc0"),
            ("0x00000000411fd401", "stall_backend", "event=0x24"),
        ] {
            let table = ModelTable::of(&CpuId::from(cpu)).unwrap();
            let event = table.find("cpu", true, name).unwrap_or_else(|| panic!("{cpu} {name}"));
            assert_eq!(event.terms, terms, "{cpu} {name}");
        }
    }

    #[test]
    fn a_name_of_another_family_has_the_models_that_know_it() {
        assert!(models_with("ex_ret_instr").iter().all(|model| model.starts_with("amdzen")));
        assert_eq!(models_with("no_such_event"), [""; 0]);
    }
}
