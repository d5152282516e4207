//! The fields that are printed for the samples of an event.

use anyhow::bail;
use perf_event_open_sys::bindings as abi;

use crate::named_enum::named_enum;
use crate::recording::perf_data::Attribute;

/// The event that reports mappings (`PERF_COUNT_SW_DUMMY`).
const DUMMY: u64 = abi::PERF_COUNT_SW_DUMMY as u64;

named_enum! {
    /// A field of a sample.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(super) enum Field {
        /// Name of the thread.
        Comm = "comm",
        /// Thread.
        Tid = "tid",
        /// Process.
        Pid = "pid",
        /// Time.
        Time = "time",
        /// CPU.
        Cpu = "cpu",
        /// Weight.
        Period = "period",
        /// Name of the event.
        Event = "event",
        /// Fields of a tracepoint.
        Trace = "trace",
        /// Addresses.
        Ip = "ip",
        /// Functions.
        Sym = "sym",
        /// Offsets in functions.
        Symoff = "symoff",
        /// Files.
        Dso = "dso",
        /// Path of the cgroup.
        Cgroup = "cgroup",
    }
}

/// The printed fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fields(u32);

impl Fields {
    fn of(fields: &[Field]) -> Self {
        Self(fields.iter().fold(0, |bits, &field| bits | 1 << field as u32))
    }

    pub(super) fn has(self, field: Field) -> bool {
        self.0 & (1 << field as u32) != 0
    }

    fn set(&mut self, field: Field, on: bool) {
        let bit = 1 << field as u32;
        self.0 = if on { self.0 | bit } else { self.0 & !bit };
    }

    /// Returns the default fields of an event, as in perf 6.1. Fields that its samples do not have are left out.
    pub(super) fn default_of(event: &Attribute, chains: bool) -> Self {
        use Field::{Comm, Cpu, Dso, Event, Ip, Period, Sym, Symoff, Tid, Time, Trace};
        let place = [Ip, Sym, Symoff, Dso];
        let mut fields = Self::of(&[Comm, Tid, Cpu, Time, Event]);
        if event.kind == abi::PERF_TYPE_TRACEPOINT {
            fields.set(Trace, true);
        } else {
            fields.set(Period, true);
        }
        if event.kind != abi::PERF_TYPE_TRACEPOINT || chains && event.has(abi::PERF_SAMPLE_CALLCHAIN) {
            place.into_iter().for_each(|field| fields.set(field, true));
        }
        for field in Field::ALL {
            if !is_recorded(field, event) {
                fields.set(field, false);
            }
        }
        fields
    }

    /// Returns the fields of a list for an event. A list of `+FIELD` and `-FIELD` changes the default.
    ///
    /// # Errors
    /// If a field does not exist or was not recorded.
    pub(super) fn parse(list: &str, event: &Attribute, chains: bool) -> anyhow::Result<Self> {
        let changes = list.starts_with(['+', '-']);
        let mut fields = if changes { Self::default_of(event, chains) } else { Self(0) };
        for word in list.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let (name, on) = match word.strip_prefix('-') {
                Some(name) => (name, false),
                None => (word.strip_prefix('+').unwrap_or(word), true),
            };
            let Some(field) = Field::ALL.into_iter().find(|field| field.as_str() == name) else {
                let known: Vec<&str> = Field::ALL.iter().map(|field| field.as_str()).collect();
                bail!("--fields {list}: {name:?} is not a field; the fields are {}", known.join(", "));
            };
            // An event that only reports mappings has no samples.
            let has_samples = (event.kind, event.config) != (abi::PERF_TYPE_SOFTWARE, DUMMY);
            if on && has_samples && !is_recorded(field, event) {
                bail!("--fields {list}: the samples of {} have no field {name}", event.name);
            }
            fields.set(field, on);
        }
        Ok(fields)
    }
}

/// Reports whether the samples of an event have a field.
fn is_recorded(field: Field, event: &Attribute) -> bool {
    match field {
        Field::Tid | Field::Pid => event.has(abi::PERF_SAMPLE_TID),
        Field::Time => event.has(abi::PERF_SAMPLE_TIME),
        Field::Cpu => event.has(abi::PERF_SAMPLE_CPU),
        Field::Ip | Field::Sym | Field::Symoff | Field::Dso => {
            event.has(abi::PERF_SAMPLE_IP) || event.has(abi::PERF_SAMPLE_CALLCHAIN)
        }
        Field::Cgroup => event.has(abi::PERF_SAMPLE_CGROUP),
        Field::Trace => event.kind == abi::PERF_TYPE_TRACEPOINT && event.has(abi::PERF_SAMPLE_RAW),
        Field::Comm | Field::Period | Field::Event => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: u32, sample: u32) -> Attribute {
        let mut event = Attribute::default();
        (event.kind, event.sample, event.name) = (kind, sample.into(), "x".into());
        event
    }

    #[test]
    fn fields_that_were_not_recorded_are_left_out_by_default_and_rejected_in_a_list() {
        let clock = event(abi::PERF_TYPE_SOFTWARE, abi::PERF_SAMPLE_IP | abi::PERF_SAMPLE_TID);
        let fields = Fields::default_of(&clock, true);
        assert!(fields.has(Field::Sym) && fields.has(Field::Period));
        assert!(!fields.has(Field::Cpu) && !fields.has(Field::Trace));
        let error = Fields::parse("comm,cpu", &clock, true).unwrap_err().to_string();
        assert_eq!(error, "--fields comm,cpu: the samples of x have no field cpu");
        let error = Fields::parse("comm,brstack", &clock, true).unwrap_err().to_string();
        assert!(error.contains("\"brstack\" is not a field; the fields are comm, tid"), "{error}");
    }

    #[test]
    fn a_list_with_signs_changes_the_default() {
        let clock = event(abi::PERF_TYPE_SOFTWARE, abi::PERF_SAMPLE_IP | abi::PERF_SAMPLE_TID);
        let fields = Fields::parse("+pid,-symoff", &clock, true).unwrap();
        assert!(fields.has(Field::Pid) && fields.has(Field::Comm) && !fields.has(Field::Symoff));
        let only = Fields::parse("ip,sym", &clock, true).unwrap();
        assert_eq!(only, Fields::of(&[Field::Ip, Field::Sym]));
    }

    #[test]
    fn tracepoints_have_places_only_with_call_chains() {
        let sample = abi::PERF_SAMPLE_RAW | abi::PERF_SAMPLE_IP;
        assert!(!Fields::default_of(&event(abi::PERF_TYPE_TRACEPOINT, sample), true).has(Field::Ip));
        let chained = event(abi::PERF_TYPE_TRACEPOINT, sample | abi::PERF_SAMPLE_CALLCHAIN);
        assert!(Fields::default_of(&chained, true).has(Field::Ip));
        assert!(!Fields::default_of(&chained, false).has(Field::Ip));
    }
}
