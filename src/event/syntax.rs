//! Parsed event texts, before they are resolved on a host: perf's grammar as types.
//!
//! Grammar: `Documentation/perf-list.txt` and `util/parse-events.{l,y}` of the kernel's `tools/perf`.

use std::fmt;
use std::sync::Arc;

/// A group of events that are scheduled together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Members; the first is the leader.
    pub events: Vec<Event>,
}

/// One event as written. Its modifiers include those of its group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Name of the event.
    pub name: Name,
    /// Modifier letters after the last colon or slash, in the order written, each at most as often as perf allows.
    pub modifiers: Arc<str>,
    /// User-defined name: `name=` among the terms, or `name:` in the YAML.
    pub alias: Option<Arc<str>>,
}

/// Name of an event, by form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// A generic name or its alias, or a PMU event without its PMU: `cycles`, `L1-dcache-loads`, `faults`.
    Symbol(Arc<str>),
    /// `rNNN`: a hexadecimal encoding for the core PMU.
    Raw(u64),
    /// `TYPE:CONFIG`: the numbers in `perf_event_attr`.
    Numeric {
        /// `perf_event_attr.type`.
        kind: u32,
        /// `perf_event_attr.config`.
        config: u64,
    },
    /// `pmu/term,term=value/`. The PMU may be a pattern with `*`, one instance, or the stem of several instances.
    Pmu {
        /// The PMU as written.
        pmu: Arc<str>,
        /// Terms, in the order written.
        terms: Vec<Term>,
    },
    /// `system:event`. Both may contain `*` and `?`.
    Tracepoint {
        /// The subsystem: `sched`.
        system: Arc<str>,
        /// The event: `sched_switch`.
        event: Arc<str>,
    },
    /// `mem:ADDRESS[/LENGTH][:rwx]`.
    Breakpoint {
        /// The address.
        address: u64,
        /// Length in bytes. Default: 4 for data, the size of a long for code.
        length: Option<u64>,
        /// `r`, `w`, `x` or a combination. Default: `rw`.
        access: Arc<str>,
    },
}

/// One term between the slashes of a PMU event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// Text before the equals sign.
    pub name: Arc<str>,
    /// Text after it. `None` for a single word, which is a named event of the PMU or a flag.
    pub value: Option<TermValue>,
}

/// The value of a term.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TermValue {
    /// A number, written in decimal or with `0x`.
    Number(u64),
    /// Anything else.
    Text(Arc<str>),
}

impl fmt::Display for Group {
    /// Formats the group in the input syntax. A single event has no braces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [event] = &self.events[..] {
            return write!(f, "{event}");
        }
        let events: Vec<String> = self.events.iter().map(ToString::to_string).collect();
        write!(f, "{{{}}}", events.join(","))
    }
}

impl fmt::Display for Event {
    /// Formats the event in the input syntax, with numbers in hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, modifiers, alias } = self;
        write!(f, "{name}")?;
        let mut slashed = matches!(name, Name::Pmu { .. });
        if let Some(alias) = alias {
            let between = match name {
                Name::Pmu { terms, .. } if terms.is_empty() => "",
                Name::Pmu { .. } => ",",
                _ => "/",
            };
            write!(f, "{between}name={}", Quoted(alias))?;
            slashed = true;
        }
        if slashed {
            f.write_str("/")?;
        }
        let colon = if slashed || modifiers.is_empty() { "" } else { ":" };
        write!(f, "{colon}{modifiers}")
    }
}

impl fmt::Display for Name {
    /// Formats the name in the input syntax. [`Event`] adds the closing slash of a PMU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symbol(name) => f.write_str(name),
            Self::Raw(config) => write!(f, "r{config:x}"),
            Self::Numeric { kind, config } => write!(f, "{kind}:{config:#x}"),
            Self::Pmu { pmu, terms } => {
                let terms: Vec<String> = terms.iter().map(ToString::to_string).collect();
                write!(f, "{pmu}/{}", terms.join(","))
            }
            Self::Tracepoint { system, event } => write!(f, "{system}:{event}"),
            Self::Breakpoint { address, length, access } => {
                write!(f, "mem:{address:#x}")?;
                if let Some(length) = length {
                    write!(f, "/{length}")?;
                }
                write!(f, ":{access}")
            }
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => f.write_str(&self.name),
            Some(TermValue::Number(number)) => write!(f, "{}={number:#x}", self.name),
            Some(TermValue::Text(text)) => write!(f, "{}={}", self.name, Quoted(text)),
        }
    }
}

/// A value, quoted if necessary.
struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.0.starts_with(|c: char| c.is_ascii_alphabetic() || "_?*".contains(c))
            && self.0.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.*?:".contains(&b));
        let quote = match self.0.contains('\'') {
            _ if plain => "",
            true => "\"",
            false => "'",
        };
        write!(f, "{quote}{}{quote}", self.0)
    }
}
