//! PMUs as described by sysfs: the fields of their `config`, their named events and their CPUs.
//!
//! Format: `Documentation/ABI/testing/sysfs-bus-event_source-devices-{format,events}` of the kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::parse::parse_terms;
use super::syntax::{Term, TermValue};
use super::{Scale, digits};
use crate::error::FileError;
use crate::host::{self, CpuSet};

/// Maximum number of PMUs that are read. Large servers have about three hundred.
const PMU_LIMIT: usize = 2048;
/// Maximum number of files in one PMU's `format` or `events`. POWER's `hv_24x7` has thousands of events.
const ENTRY_LIMIT: usize = 16_384;
/// Maximum size of a sysfs attribute, in bytes: one page. Some kernels have pages of 64 KiB.
const ATTRIBUTE_LIMIT: u64 = 64 << 10;

/// One PMU of this host.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pmu {
    /// Name of the PMU's directory.
    pub name: Arc<str>,
    /// Type number for `perf_event_attr.type`.
    pub kind: u32,
    /// Whether the PMU counts on the cores, so that generic names apply to it, instead of outside the cores.
    pub core: bool,
    /// CPUs on which its events can be opened: `cpus` of a core PMU, `cpumask` of other PMUs; `None` = every CPU.
    pub cpus: Option<CpuSet>,
    /// The fields of `config`, `config1`, …
    pub format: BTreeMap<Arc<str>, Field>,
    /// Its named events.
    pub events: BTreeMap<Arc<str>, Named>,
    /// The highest precision of sample addresses, if the kernel reports it.
    pub max_precise: Option<u8>,
    /// `perf_event_mux_interval_ms`: the time after which the kernel rotates groups that do not fit together.
    pub rotation_interval_ms: Option<u64>,
}

/// A field: bits of a configuration word that form one value, lowest bit of the value first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    /// Index of `config`, `config1`, `config2`, `config3`: below four.
    word: usize,
    /// First and last bit of each range.
    ranges: Vec<(u32, u32)>,
    /// The text in sysfs: `config:0-7,32-35`.
    text: Arc<str>,
}

/// A named event of a PMU.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named {
    /// Its terms. The user must supply a value for each `?`.
    pub terms: Vec<Term>,
    /// Unit of the count.
    pub scale: Option<Scale>,
    /// Description, for an event of the vendor's table.
    pub help: Option<Arc<str>>,
}

/// Encoding of an event's terms.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Encoded {
    /// `config`, `config1`, `config2`, `config3`.
    pub config: [u64; 4],
    /// Unit of the count, if a named event defines one.
    pub scale: Option<Scale>,
}

/// A term that the PMU does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BadTerm {
    /// What is wrong.
    pub reason: String,
    /// What to write instead.
    pub remedy: String,
    /// The unknown word, for suggestions.
    pub unknown: Option<Arc<str>>,
}

impl Named {
    /// Returns the event as it is written, with the parameters that the user must supply: `watchpoint_up,wp_val=?`.
    pub(super) fn written(&self, event: &Arc<str>) -> Arc<str> {
        let open = self.terms.iter().filter(|term| is_open(term));
        let mut written = event.to_string();
        open.for_each(|term| written.push_str(&format!(",{}=?", term.name)));
        if written.len() == event.len() { Arc::clone(event) } else { written.into() }
    }
}

impl BadTerm {
    fn new(reason: String, remedy: impl Into<String>) -> Self {
        Self { reason, remedy: remedy.into(), unknown: None }
    }
}

/// Reads every PMU below `/sys/bus/event_source/devices`. Unreadable files are skipped and added to `problems`.
pub(super) fn load(sys: &Path, problems: &mut Vec<FileError>) -> Vec<Pmu> {
    let devices = sys.join("bus/event_source/devices");
    let names = names(&devices, PMU_LIMIT, problems);
    names.into_iter().filter_map(|name| Pmu::load(&devices, &name, problems)).collect()
}

/// Returns the entries of a directory, at most `limit`.
fn names(dir: &Path, limit: usize, problems: &mut Vec<FileError>) -> Vec<String> {
    let mut names = present(host::list(dir), problems).unwrap_or_default();
    if names.len() > limit {
        problems.push(FileError::malformed(dir, format!("more than {limit} entries, the rest was ignored")));
        names.truncate(limit);
    }
    names
}

/// Returns what was read. `None` if it is absent or broken. Broken files are added to `problems`.
fn present<T>(read: Result<T, FileError>, problems: &mut Vec<FileError>) -> Option<T> {
    read.map_err(|error| problems.extend((!error.is_absent()).then_some(error))).ok()
}

/// Returns a sysfs attribute, or `None` as [`present`].
fn attribute(path: &Path, problems: &mut Vec<FileError>) -> Option<String> {
    let bytes = present(host::read_at_most(path, ATTRIBUTE_LIMIT), problems)?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Reads an attribute and parses it with `read`. Parse errors are added to `problems`.
fn parsed<T>(
    path: &Path,
    problems: &mut Vec<FileError>,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Option<T> {
    let text = attribute(path, problems)?;
    read(&text).map_err(|what| problems.push(FileError::malformed(path, what))).ok()
}

impl Pmu {
    /// Reads one PMU. `None` if it has no `type`, because its events could not be opened.
    fn load(devices: &Path, name: &str, problems: &mut Vec<FileError>) -> Option<Self> {
        let dir = devices.join(name);
        let number = |text: &str| text.parse().map_err(|_| format!("expected a number, found {text:?}"));
        let kind = parsed(&dir.join("type"), problems, number)?;
        let mut set = |file: &str| {
            let read = |text: &str| text.parse::<CpuSet>().map_err(|error| error.to_string());
            parsed(&dir.join(file), problems, read)
        };
        let (cpus, cpumask) = (set("cpus"), set("cpumask"));
        // The same rule as in perf: s390 and non-hybrid x86 have no `cpus`; Arm and hybrid x86 do.
        let core = matches!(name, "cpu" | "cpum_cf") || cpus.is_some();
        let cpus = cpus.or(cpumask).filter(|cpus| !cpus.is_empty());
        let (format, events) = (load_format(&dir, problems), load_events(&dir, problems));
        let level =
            |text: &str| text.parse().map_err(|_| format!("expected a level from 0 to 3, found {text:?}"));
        let max_precise = parsed(&dir.join("caps/max_precise"), problems, level);
        let interval = |text: &str| match text.parse() {
            Ok(interval) if interval > 0 => Ok(interval),
            _ => Err(format!("expected a number of milliseconds, found {text:?}")),
        };
        let rotation_interval_ms = parsed(&dir.join("perf_event_mux_interval_ms"), problems, interval);
        let name = name.into();
        Some(Self { name, kind, core, cpus, format, events, max_precise, rotation_interval_ms })
    }

    /// Encodes `terms`. A later term overrides an earlier one, and every term overrides the named event, in any order.
    pub(super) fn encode(&self, terms: &[Term]) -> Result<Encoded, BadTerm> {
        let mut encoded = Encoded { config: [0; 4], scale: None };
        let event = |term: &Term| if term.value.is_none() { self.events.get(&term.name) } else { None };
        for term in terms {
            let Some(named) = event(term) else { continue };
            encoded.scale = encoded.scale.or_else(|| named.scale.clone());
            for inner in &named.terms {
                if is_open(inner) {
                    self.check_given(&term.name, inner, terms)?;
                } else {
                    self.apply(inner, &mut encoded.config)?;
                }
            }
        }
        for term in terms.iter().filter(|term| event(term).is_none()) {
            self.apply(term, &mut encoded.config)?;
        }
        Ok(encoded)
    }

    /// Checks that the user supplied a number for a parameter that the named event leaves open.
    fn check_given(&self, event: &str, open: &Term, terms: &[Term]) -> Result<(), BadTerm> {
        let name = &open.name;
        if terms.iter().any(|term| term.name == *name && matches!(term.value, Some(TermValue::Number(_)))) {
            return Ok(());
        }
        let reason = format!("event {event} of {} needs a value for {name}", self.name);
        Err(BadTerm::new(reason, format!("write {}/{event},{name}=NUMBER/", self.name)))
    }

    fn apply(&self, term: &Term, config: &mut [u64; 4]) -> Result<(), BadTerm> {
        let (name, pmu) = (&*term.name, &self.name);
        let number = || match &term.value {
            Some(TermValue::Number(number)) => Ok(*number),
            // A flag.
            None => Ok(1),
            Some(TermValue::Text(text)) => {
                let reason = format!("{name} of {pmu} requires a number, found {text:?}");
                Err(BadTerm::new(reason, format!("write {name}=NUMBER")))
            }
        };
        if let Some(field) = self.format.get(name) {
            let value = number()?;
            return field.set(value, config).map_err(|width| {
                let reason = format!(
                    "{name}={value:#x} does not fit: {name} of {pmu} has {width} bits ({})",
                    field.text
                );
                BadTerm::new(reason, format!("use at most {:#x}", low_bits(width)))
            });
        }
        if let Some(word) = word_index(name) {
            // Below four, by `word_index`.
            config[word] = number()?;
            return Ok(());
        }
        let raw = name.strip_prefix('r').and_then(|hex| digits(hex, 16));
        if let (Some(Some(raw)), None) = (raw, &term.value) {
            config[0] = raw;
            return Ok(());
        }
        if SAMPLING_TERMS.contains(&name) {
            let reason = format!("{name} configures sampling, but this event is counted, not sampled");
            return Err(BadTerm::new(reason, "remove it"));
        }
        let what = if term.value.is_none() { "no event or field" } else { "no field" };
        let unknown = Some(Arc::clone(&term.name));
        Err(BadTerm {
            reason: format!("{pmu} has {what} named {name:?}"),
            remedy: self.vocabulary(),
            unknown,
        })
    }

    /// Returns the valid fields and events of the PMU, abbreviated.
    fn vocabulary(&self) -> String {
        let some = |names: Vec<&str>| match names.len() {
            0 => "none".to_owned(),
            1..=12 => names.join(", "),
            more => format!("{}, … ({more} in all)", names[..12].join(", ")),
        };
        let fields: Vec<&str> = self.format.keys().map(|name| &**name).collect();
        let events: Vec<&str> = self.events.keys().map(|name| &**name).collect();
        format!("its fields are: {}; its events are: {}", some(fields), some(events))
    }
}

/// Terms of perf that configure sampling or perf itself.
const SAMPLING_TERMS: &[&str] = &[
    "period",
    "freq",
    "time",
    "call-graph",
    "stack-size",
    "max-stack",
    "nr",
    "inherit",
    "no-inherit",
    "overwrite",
    "no-overwrite",
    "branch_type",
    "aux-output",
    "aux-action",
    "aux-sample-size",
    "percore",
    "metric-id",
];

/// Reports whether a named event leaves the value of this term to the user.
fn is_open(term: &Term) -> bool {
    matches!(&term.value, Some(TermValue::Text(text)) if &**text == "?")
}

/// Returns the index of `config`, `config1`, `config2` or `config3`, below four.
fn word_index(name: &str) -> Option<usize> {
    ["config", "config1", "config2", "config3"].iter().position(|word| *word == name)
}

/// Returns the largest number of `width` bits.
fn low_bits(width: u32) -> u64 {
    1u64.checked_shl(width).map_or(u64::MAX, |bit| bit - 1)
}

impl Field {
    /// Parses `config:0-7,32-35`.
    fn parse(text: &str) -> Result<Self, String> {
        let bad = || format!("expected something like config:0-7,32-35, found {text:?}");
        let (word, bits) = text.split_once(':').ok_or_else(bad)?;
        let word = word_index(word.trim()).ok_or_else(bad)?;
        let (mut ranges, mut used) = (Vec::new(), 0u64);
        for part in bits.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let bit = |digits: &str| digits.trim().parse().ok().filter(|&bit: &u32| bit < 64);
            let (Some(first), Some(last)) = (bit(first), bit(last)) else { return Err(bad()) };
            if first > last {
                return Err(bad());
            }
            let mask = low_bits(last - first + 1) << first;
            if used & mask != 0 {
                return Err(format!("duplicate bit in {text:?}"));
            }
            used |= mask;
            ranges.push((first, last));
        }
        Ok(Self { word, ranges, text: text.into() })
    }

    fn width(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Stores `value` in the bits of the field. Returns the width of the field if the value does not fit.
    fn set(&self, value: u64, config: &mut [u64; 4]) -> Result<(), u32> {
        let width = self.width();
        if value > low_bits(width) {
            return Err(width);
        }
        let mut rest = value;
        for &(first, last) in &self.ranges {
            let mask = low_bits(last - first + 1);
            config[self.word] &= !(mask << first);
            config[self.word] |= (rest & mask) << first;
            rest = rest.checked_shr(last - first + 1).unwrap_or(0);
        }
        Ok(())
    }
}

fn load_format(dir: &Path, problems: &mut Vec<FileError>) -> BTreeMap<Arc<str>, Field> {
    let dir = dir.join("format");
    let names = names(&dir, ENTRY_LIMIT, problems).into_iter();
    let field = |name: String| Some((Arc::from(&*name), parsed(&dir.join(name), problems, Field::parse)?));
    names.filter_map(field).collect()
}

fn load_events(dir: &Path, problems: &mut Vec<FileError>) -> BTreeMap<Arc<str>, Named> {
    let dir = dir.join("events");
    let mut events = BTreeMap::new();
    for name in names(&dir, ENTRY_LIMIT, problems) {
        if [".scale", ".unit", ".per-pkg", ".snapshot"].iter().any(|suffix| name.ends_with(suffix)) {
            continue;
        }
        let terms = |text: &str| parse_terms(text).map_err(|error| error.to_string());
        if let Some(terms) = parsed(&dir.join(&name), problems, terms) {
            let scale = load_scale(&dir, &name, problems);
            events.insert(name.into(), Named { terms, scale, help: None });
        }
    }
    events
}

fn load_scale(dir: &Path, event: &str, problems: &mut Vec<FileError>) -> Option<Scale> {
    let factor = parsed(&dir.join(format!("{event}.scale")), problems, |text| {
        let factor = text.parse().ok().filter(|factor: &f64| factor.is_finite() && *factor > 0.0);
        factor.ok_or_else(|| format!("expected a factor above zero, found {text:?}"))
    });
    let unit = attribute(&dir.join(format!("{event}.unit")), problems);
    match (factor, unit) {
        (None, None) => None,
        (factor, unit) => Some(base_unit(factor.unwrap_or(1.0), &unit.unwrap_or_default())),
    }
}

/// Units that drivers use, in Prometheus base units. The kernel has no list. These are the `.unit` files of its drivers, and similar units.
const UNITS: &[(&[&str], f64, &str)] = &[
    (&["Joules", "joules", "J"], 1.0, "joules"),
    (&["mJ", "mJoules"], 1e-3, "joules"),
    (&["uJ", "uJoules"], 1e-6, "joules"),
    (&["Watts", "W"], 1.0, "watts"),
    (&["mWatts", "mW"], 1e-3, "watts"),
    (&["B", "Bytes", "bytes"], 1.0, "bytes"),
    (&["KiB"], 1024.0, "bytes"),
    (&["MiB"], 1_048_576.0, "bytes"),
    (&["GiB"], 1_073_741_824.0, "bytes"),
    (&["KB", "kB"], 1e3, "bytes"),
    (&["MB"], 1e6, "bytes"),
    (&["GB"], 1e9, "bytes"),
    (&["s", "sec", "secs", "seconds"], 1.0, "seconds"),
    (&["ms", "msec", "msecs"], 1e-3, "seconds"),
    (&["us", "usec", "usecs"], 1e-6, "seconds"),
    (&["ns", "nsec", "nsecs"], 1e-9, "seconds"),
    (&["C", "Celsius"], 1.0, "celsius"),
    (&["%"], 0.01, "ratio"),
];

/// Converts a factor and a unit of sysfs to base units. An unknown unit keeps its name, in lower snake case.
pub(super) fn base_unit(factor: f64, unit: &str) -> Scale {
    match UNITS.iter().find(|(names, ..)| names.contains(&unit)) {
        Some(&(_, worth, base)) => Scale { factor: factor * worth, unit: base.into() },
        None => Scale { factor, unit: super::stem::snake(unit).into() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pmu(format: &[(&str, &str)], events: &[(&str, &str)]) -> Pmu {
        let field = |(name, text): &(&str, &str)| ((*name).into(), Field::parse(text).unwrap());
        let named = |(name, text): &(&str, &str)| {
            ((*name).into(), Named { terms: parse_terms(text).unwrap(), scale: None, help: None })
        };
        Pmu {
            name: "odd".into(),
            kind: 9,
            core: false,
            cpus: None,
            format: format.iter().map(field).collect(),
            events: events.iter().map(named).collect(),
            max_precise: None,
            rotation_interval_ms: None,
        }
    }

    fn encode(pmu: &Pmu, terms: &str) -> Result<[u64; 4], String> {
        let encoded = pmu.encode(&parse_terms(terms).unwrap());
        encoded.map(|encoded| encoded.config).map_err(|bad| format!("{}; {}", bad.reason, bad.remedy))
    }

    #[test]
    fn a_value_is_laid_over_the_parts_of_its_field_from_the_lowest_bit_up() {
        let pmu =
            pmu(&[("event", "config:0-7,32-35"), ("whole", "config1:0-63"), ("flag", "config3:18")], &[]);
        assert_eq!(encode(&pmu, "event=0xabc"), Ok([0xa_0000_00bc, 0, 0, 0]));
        assert_eq!(encode(&pmu, "whole=0xffffffffffffffff,flag"), Ok([0, u64::MAX, 0, 1 << 18]));
        assert_eq!(
            encode(&pmu, "event=0x1000").unwrap_err(),
            "event=0x1000 does not fit: event of odd has 12 bits (config:0-7,32-35); use at most 0xfff"
        );
    }

    #[test]
    fn terms_of_the_user_stand_over_those_of_the_named_event() {
        let pmu =
            pmu(&[("event", "config:0-7"), ("ldlat", "config1:0-15")], &[("loads", "event=0xcd,ldlat=3")]);
        assert_eq!(encode(&pmu, "loads"), Ok([0xcd, 3, 0, 0]));
        assert_eq!(encode(&pmu, "ldlat=30,loads"), Ok([0xcd, 30, 0, 0]));
        assert_eq!(encode(&pmu, "event=1,event=2"), Ok([2, 0, 0, 0]));
        assert_eq!(encode(&pmu, "config=0x11,config2=5"), Ok([0x11, 0, 5, 0]));
        assert_eq!(encode(&pmu, "r1a8"), Ok([0x1a8, 0, 0, 0]));
    }

    #[test]
    fn a_parameter_that_the_named_event_leaves_open_must_be_given() {
        let pmu = pmu(&[("core", "config:16-31"), ("event", "config:0-7")], &[("busy", "event=7,core=?")]);
        let complaint = "event busy of odd needs a value for core; write odd/busy,core=NUMBER/";
        assert_eq!(encode(&pmu, "busy").unwrap_err(), complaint);
        assert_eq!(encode(&pmu, "busy,core=?").unwrap_err(), complaint);
        assert_eq!(encode(&pmu, "busy,core=2"), Ok([0x2_0007, 0, 0, 0]));
    }

    #[test]
    fn an_unknown_term_is_answered_with_what_there_is() {
        let pmu = pmu(&[("event", "config:0-7")], &[("busy", "event=7")]);
        let unknown = encode(&pmu, "evnt=1").unwrap_err();
        assert_eq!(unknown, "odd has no field named \"evnt\"; its fields are: event; its events are: busy");
        assert!(encode(&pmu, "period=1").unwrap_err().contains("not sampled"));
        assert!(encode(&pmu, "event=high").unwrap_err().contains("requires a number"));
    }

    #[test]
    fn fields_that_make_no_sense_are_refused() {
        for text in [
            "",
            "config",
            "config:",
            "config:7-0",
            "config:64",
            "config4:0",
            "config:0,0",
            "config:0-3,2",
            "x:1",
        ] {
            assert!(Field::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_become_base_units() {
        for (factor, unit, expected, base) in [
            (6.103515625e-5, "MiB", 64.0, "bytes"),
            (1.0, "ns", 1e-9, "seconds"),
            (2.0, "Joules", 2.0, "joules"),
            (1.0, "", 1.0, ""),
            (1.0, "Odd Units/s", 1.0, "odd_units_s"),
        ] {
            assert_eq!(base_unit(factor, unit), Scale { factor: expected, unit: base.into() }, "{unit}");
        }
    }

    proptest! {
        /// Every value that fits can be recovered from its bits, and no other bit changes.
        #[test]
        fn a_field_holds_its_value_and_nothing_else(parts in prop::collection::vec((0u32..64, 0u32..8), 1..4), value: u64, before: u64) {
            let text: Vec<_> = parts.iter().map(|(first, more)| format!("{first}-{}", (first + more).min(63))).collect();
            if let Ok(field) = Field::parse(&format!("config:{}", text.join(","))) {
                let value = value & low_bits(field.width());
                let (mut config, mut all) = ([before, 0, 0, 0], [before, 0, 0, 0]);
                prop_assert_eq!(field.set(value, &mut config), Ok(()));
                prop_assert_eq!(field.set(0, &mut all), Ok(()));
                prop_assert_eq!((config[0] ^ all[0]).count_ones(), value.count_ones());
                prop_assert_eq!(field.set(value, &mut all), Ok(()));
                prop_assert_eq!(config, all);
            }
        }

        #[test]
        fn no_file_of_sysfs_panics(text in ".{0,60}") {
            let _field = Field::parse(&text);
            let _terms = parse_terms(&text);
        }
    }
}
