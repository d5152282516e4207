//! Resolution of event names to the fields of `perf_event_attr` on this host.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog::{Catalog, Missing, Unresolved, pmu_help};
use super::generic::{self, Found, Generic, Place};
use super::modifiers::Subject;
use super::pmu::{Named, Pmu};
use super::syntax::{self, Name, Term};
use super::topdown::Topdown;
use super::tracepoint::{MATCH_LIMIT, NoTracepoint};
use super::{Event, Kind, Modifiers, Selector, known, stem};
use crate::host::{CpuSet, KernelVersion};

/// Position of the PMU type in `config` of a generic event for one type of core.
#[doc(alias = "PERF_PMU_TYPE_SHIFT")]
const PMU_TYPE_SHIFT: u32 = 32;

/// First kernel version in which Arm's PMUs accept generic events with a PMU type. Hybrid x86 accepts them since Linux 5.13.
const ARM_EXTENDED_TYPE: KernelVersion = KernelVersion(6, 6);

/// Execution modes that events without `u`, `k` or `h` count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Modes {
    /// All modes.
    All,
    /// User space, as requested.
    User,
    /// User space, because the process may count no other mode (`perf_event_paranoid` 2 or more without `CAP_PERFMON`).
    PermittedUser,
    /// The kernel, as requested.
    Kernel,
}

impl Modes {
    /// Returns the modes that a process counts by default. `user_only` is set for a process that may count user space only.
    pub fn permitted(user_only: bool) -> Self {
        if user_only { Self::PermittedUser } else { Self::All }
    }
}

/// A resolved event before its modifiers.
#[derive(Clone)]
struct Draft {
    name: Name,
    called: String,
    place: Place,
    shared: bool,
    /// The event without its names and modifiers.
    event: Event,
}

impl Draft {
    /// Returns an event that belongs to no PMU of sysfs.
    fn plain(name: Name, called: String, kind: Kind, selector: Selector, help: String) -> Self {
        let event = Event::unnamed(kind, selector, help);
        Self { name, called, place: Place::Anywhere, shared: false, event }
    }
}

impl Catalog {
    /// Resolves an event on this host. Returns at least one [`Event`], or several if the name matches several PMUs or tracepoints. Nothing
    /// is opened, so the kernel may still reject the events. Reads tracefs for tracepoints.
    ///
    /// # Errors
    /// The reason why the event is unavailable, classified by [`Missing`].
    pub fn resolve(&self, event: &syntax::Event) -> Result<Vec<Event>, Unresolved> {
        self.resolve_by(event, |draft| finish(draft, event))
    }

    /// Resolves an event as [`resolve`](Self::resolve). As in perf, an event without `u`, `k` or `h` gets the letter of `modes`, which is
    /// visible in its name.
    ///
    /// # Errors
    /// As `resolve`, and [`Missing::Forbidden`] for an event that occurs only in the kernel, if `modes` excludes the kernel. perf reports a
    /// count of zero for it.
    pub fn resolve_in(&self, event: &syntax::Event, modes: Modes) -> Result<Vec<Event>, Unresolved> {
        let (letter, no_kernel) = match modes {
            _ if event.modifiers.contains(['u', 'k', 'h']) => return self.resolve(event),
            Modes::All => return self.resolve(event),
            Modes::Kernel => ('k', None),
            Modes::User => ('u', Some(("only user space is counted", "count it without --all-user"))),
            Modes::PermittedUser => {
                let remedy = "grant perf-exporter CAP_PERFMON, or set sysctl kernel.perf_event_paranoid=1";
                ('u', Some(("this process may count user space only", remedy)))
            }
        };
        let modifiers = Arc::from(format!("{}{letter}", event.modifiers));
        let narrowed = syntax::Event { modifiers, ..event.clone() };
        self.resolve_by(event, |draft| match (draft.place, draft.event.kind, no_kernel) {
            (Place::Kernel, _, Some((why, remedy))) | (_, Kind::Tracepoint, Some((why, remedy))) => {
                let reason = format!("the event occurs in the kernel, and {why}");
                Err(Unresolved::new(Missing::Forbidden, reason, remedy))
            }
            // The kernel also accepts the letter for a clock, without splitting the time.
            (Place::Clock, ..) => Ok(named(draft, &narrowed, Modifiers::from_letters(&narrowed.modifiers))),
            _ => finish(draft, &narrowed),
        })
    }

    fn resolve_by(
        &self,
        event: &syntax::Event,
        finish: impl Fn(Draft) -> Result<Event, Unresolved>,
    ) -> Result<Vec<Event>, Unresolved> {
        let drafts = match &event.name {
            Name::Symbol(word) => self.symbol(word),
            Name::Raw(config) => Ok(self.raw(*config)),
            Name::Numeric { kind, config } => self.numeric(*kind, *config),
            Name::Pmu { pmu, terms } => self.pmu(pmu, terms),
            Name::Tracepoint { system, event } => self.tracepoint(system, event),
            Name::Breakpoint { address, length, access } => breakpoint(*address, *length, access),
        };
        let finished = drafts.and_then(|drafts| {
            if drafts.is_empty() {
                return Err(offline("the PMU"));
            }
            if event.alias.is_some()
                && drafts.len() > 1
                && drafts.iter().any(|draft| draft.event.pmu.is_none())
            {
                let reason = format!("it matches {} events, which cannot share one name", drafts.len());
                return refuse(reason, "remove the name, or select a single event");
            }
            drafts.into_iter().map(finish).collect::<Result<Vec<_>, Unresolved>>()
        });
        finished.map_err(|no| Unresolved { event: event.to_string().into(), ..no })
    }

    fn symbol(&self, word: &Arc<str>) -> Result<Vec<Draft>, Unresolved> {
        match generic::find(word) {
            Some(Found::Event(event)) => return self.generic(word, &event, &self.core_pmus()),
            Some(Found::Impossible(reason)) => return refuse(reason, "no machine supports it; remove it"),
            Some(Found::Tool(reason)) => return refuse(reason, "use task-clock"),
            None => {}
        }
        let mut owners: Vec<&Pmu> = self.pmus.iter().filter(|pmu| pmu.events.contains_key(word)).collect();
        if owners.is_empty() {
            owners = self.pmus.iter().filter(|pmu| self.vendor_event(pmu, word).is_some()).collect();
        }
        if owners.is_empty() {
            return Err(self.unknown_symbol(word));
        }
        let families: BTreeSet<&str> = owners.iter().map(|pmu| stem::without_instance(&pmu.name)).collect();
        if families.len() > 1 && !owners.iter().all(|pmu| pmu.core) {
            let written: Vec<String> = families.iter().map(|family| format!("{family}/{word}/")).collect();
            let remedy = format!("write {}", written.join(" or "));
            return refuse("several PMUs have an event with this name", remedy);
        }
        let terms = [Term { name: Arc::clone(word), value: None }];
        self.encode_all(&owners, &terms, |_| word.to_string())
    }

    /// Returns a generic event, once for each of `cores` on a hybrid machine.
    fn generic(&self, word: &Arc<str>, event: &Generic, cores: &[&Pmu]) -> Result<Vec<Draft>, Unresolved> {
        if !self.has(event.since) {
            let reason = format!("it needs Linux {}, but this kernel is {}", event.since, self.facts.kernel);
            return Err(Unresolved::new(Missing::AbsentOnHost, reason, "remove it, or upgrade the kernel"));
        }
        let help = event.help.to_string();
        let name = Name::Symbol(Arc::clone(word));
        let mut draft = Draft::plain(name, event.name.to_string(), event.kind, event.selector, help);
        (draft.event.scale, draft.place) = (event.scale(), event.place);
        Ok(self.on_each_core(draft, cores, |pmu| pmu_name(pmu, word)))
    }

    /// Returns an event of `PERF_TYPE_HARDWARE` or `PERF_TYPE_HW_CACHE` once for each of `cores`. Other events, and all events on a machine
    /// with one type of core, are returned unchanged.
    fn on_each_core(&self, draft: Draft, cores: &[&Pmu], name: impl Fn(&Pmu) -> Name) -> Vec<Draft> {
        let all = self.core_pmus().len();
        if all < 2 || !matches!(draft.event.kind, Kind::Hardware | Kind::Cache) {
            return vec![draft];
        }
        let typed = self.takes_extended_types();
        if !typed && cores.len() == all {
            // An event that is opened on a CPU uses the PMU of that CPU automatically.
            return vec![draft];
        }
        let on = |pmu: &&Pmu| {
            let mut draft = self.on_core(&draft, pmu, name(pmu))?;
            if typed {
                draft.event.selector.config[0] |= u64::from(pmu.kind) << PMU_TYPE_SHIFT;
            }
            Some(draft)
        };
        cores.iter().filter_map(on).collect()
    }

    /// Restricts an event to one type of core. `None` if none of its CPUs is online.
    fn on_core(&self, draft: &Draft, pmu: &Pmu, name: Name) -> Option<Draft> {
        let (cpus, pmu) = (self.online_of(pmu)?, Some(Arc::clone(&pmu.name)));
        Some(Draft { name, event: Event { cpus, pmu, ..draft.event.clone() }, ..draft.clone() })
    }

    /// Returns the types of cores that lack an event, of which others have it. None for an event that names its PMU.
    pub(crate) fn types_without(&self, event: &syntax::Event, found: &[Event]) -> Vec<&str> {
        let of_any_type = match &event.name {
            Name::Symbol(_) => true,
            Name::Pmu { pmu, .. } => &**pmu == "cpu",
            _ => false,
        };
        let cores = self.core_pmus();
        let has = |pmu: &Pmu| found.iter().any(|event| event.pmu.as_ref() == Some(&pmu.name));
        if !of_any_type || !cores.iter().any(|pmu| has(pmu)) {
            return Vec::new();
        }
        let lacks = |pmu: &&&Pmu| !has(pmu) && self.online_of(pmu).is_some();
        cores.iter().filter(lacks).map(|pmu| &*pmu.name).collect()
    }

    fn is_hybrid(&self) -> bool {
        self.core_pmus().len() > 1
    }

    /// Reports whether the kernel supports a PMU type in the upper half of a generic event's `config`.
    fn takes_extended_types(&self) -> bool {
        self.core_pmus().iter().all(|pmu| pmu.name.starts_with("cpu")) || self.has(ARM_EXTENDED_TYPE)
    }

    /// Returns the CPUs on which a PMU's events can be opened. `Some(None)` = every CPU, `None` = none is online.
    fn online_of(&self, pmu: &Pmu) -> Option<Option<CpuSet>> {
        let Some(cpus) = &pmu.cpus else { return Some(None) };
        let online = &self.facts.online;
        if online.is_empty() {
            return Some(Some(cpus.clone()));
        }
        let here = cpus.intersection(online);
        if here.is_empty() {
            return None;
        }
        let everywhere = pmu.core && here == *online;
        // All CPUs of the core type are included, online or not. So hotplug does not change the set, and counting continues on the others.
        Some((!everywhere).then(|| if pmu.core { cpus.clone() } else { here }))
    }

    /// Resolves `rNNN`. On a hybrid machine, the encoding differs per type of core and `PERF_TYPE_RAW` is only one of them. So each core
    /// PMU gets an event with its own type.
    fn raw(&self, config: u64) -> Vec<Draft> {
        let (name, called) = (Name::Raw(config), format!("r{config:x}"));
        let selector = Selector { kind: generic::TYPE_RAW, config: [config, 0, 0, 0] };
        let help = format!("Raw event {config:#x} of the core PMU");
        let mut draft = Draft::plain(name, called.clone(), Kind::Raw, selector, help);
        if !self.is_hybrid() {
            draft.event.topdown = self.core_pmus().first().and_then(|pmu| Topdown::of(pmu, &selector));
            return vec![draft];
        }
        let on = |pmu: &&Pmu| {
            let mut draft = self.on_core(&draft, pmu, pmu_name(pmu, &called.as_str().into()))?;
            draft.event.selector.kind = pmu.kind;
            draft.event.topdown = Topdown::of(pmu, &selector);
            Some(draft)
        };
        self.core_pmus().iter().filter_map(on).collect()
    }

    /// Resolves `TYPE:CONFIG`.
    fn numeric(&self, number: u32, config: u64) -> Result<Vec<Draft>, Unresolved> {
        let name = Name::Numeric { kind: number, config };
        let called = format!("type_{number}_config_{config:#x}");
        let help = format!("Event {config:#x} of type {number}");
        let selector = Selector { kind: number, config: [config, 0, 0, 0] };
        let draft = |kind| Draft::plain(name.clone(), called, kind, selector, help);
        match fixed_kind(number) {
            Some(Kind::Raw) if self.is_hybrid() => return Ok(self.raw(config)),
            // A PMU type in the upper half already selects the type of core.
            Some(kind) if config >> PMU_TYPE_SHIFT == 0 => {
                return Ok(self.on_each_core(draft(kind), &self.core_pmus(), |_| name.clone()));
            }
            Some(kind) => return Ok(vec![draft(kind)]),
            None => {}
        }
        let Some(pmu) = self.pmus.iter().find(|pmu| pmu.kind == number) else {
            let reason = format!("no PMU of this host has type {number}");
            let remedy = "type numbers differ between hosts: write pmu/config=NUMBER/ with the PMU's name";
            return Err(Unresolved::new(Missing::AbsentOnHost, reason, remedy));
        };
        let mut draft = draft(pmu.events_kind());
        draft.shared = !pmu.core && pmu.cpus.is_some();
        draft.event.topdown = Topdown::of(pmu, &selector);
        draft.event.pmu = Some(Arc::clone(&pmu.name));
        draft.event.cpus = self.online_of(pmu).ok_or_else(|| offline(&pmu.name))?;
        Ok(vec![draft])
    }

    fn pmu(&self, word: &Arc<str>, terms: &[Term]) -> Result<Vec<Draft>, Unresolved> {
        let pmus = self.select(word);
        if pmus.is_empty() {
            return Err(self.unknown_pmu(word));
        }
        // `cpu/cycles/` resolves to `cycles` on the selected cores, even if the PMU has no such named event. So all hosts export the same
        // metric.
        if let [Term { name, value: None }] = terms
            && pmus.iter().all(|pmu| pmu.core)
            && let Some(Found::Event(event)) = generic::find(name)
            && event.kind.on_core_pmu()
        {
            return self.generic(name, &event, &pmus);
        }
        let family = |pmu: &Pmu| match &**word {
            "cpu" => "cpu".to_owned(),
            _ => stem::without_instance(&pmu.name).to_owned(),
        };
        self.encode_all(&pmus, terms, |pmu| stem::called(&family(pmu), terms))
    }

    /// Encodes the terms on each PMU that accepts them. Returns the first error if no PMU does.
    fn encode_all(
        &self,
        pmus: &[&Pmu],
        terms: &[Term],
        called: impl Fn(&Pmu) -> String,
    ) -> Result<Vec<Draft>, Unresolved> {
        let mut drafts = Vec::new();
        let mut complaint = None;
        for pmu in pmus {
            match self.on_pmu(pmu, terms, called(pmu)) {
                Ok(draft) => drafts.push(draft),
                Err(no) => complaint = complaint.or(Some(no)),
            }
        }
        match complaint {
            Some(no) if drafts.is_empty() => Err(no),
            _ => Ok(drafts),
        }
    }

    fn on_pmu(&self, pmu: &Pmu, terms: &[Term], called: String) -> Result<Draft, Unresolved> {
        if known::only_records(&pmu.name) {
            let reason = format!("{} writes samples to a buffer and does not count", pmu.name);
            return refuse(reason, "count events of the core PMU");
        }
        let pmu = &*self.with_vendor_events(pmu, terms);
        let encoded = pmu.encode(terms).map_err(|bad| self.bad_term(pmu, bad))?;
        let event = terms.iter().find_map(|term| pmu.events.get_key_value(&term.name));
        let family = stem::without_instance(&pmu.name);
        let help = match event {
            Some((_, Named { help: Some(help), .. })) => help.to_string(),
            Some((event, _)) => pmu_help(family, event),
            None => format!("Counts of the PMU {family}"),
        };
        let alone = pmu.core && !self.is_hybrid();
        let name = Name::Pmu { pmu: Arc::clone(&pmu.name), terms: terms.to_vec() };
        let selector = Selector { kind: pmu.kind, config: encoded.config };
        let mut draft = Draft::plain(name, called, pmu.events_kind(), selector, help);
        draft.shared = !pmu.core && pmu.cpus.is_some();
        draft.event.pmu = (!alone).then(|| Arc::clone(&pmu.name));
        draft.event.cpus = self.online_of(pmu).ok_or_else(|| offline(&pmu.name))?;
        draft.event.scale = encoded.scale;
        draft.event.topdown = Topdown::of(pmu, &selector);
        Ok(draft)
    }

    /// Returns the PMU with the events of the vendor's table that the terms name, and that sysfs does not have.
    pub(super) fn with_vendor_events<'p>(&self, pmu: &'p Pmu, terms: &[Term]) -> Cow<'p, Pmu> {
        let mut pmu = Cow::Borrowed(pmu);
        for Term { name, value } in terms {
            let is_known = value.is_some() || pmu.events.contains_key(name) || pmu.format.contains_key(name);
            if !is_known && let Some(named) = self.vendor_event(&pmu, name) {
                pmu.to_mut().events.insert(Arc::clone(name), named);
            }
        }
        pmu
    }

    fn tracepoint(&self, system: &str, event: &str) -> Result<Vec<Draft>, Unresolved> {
        let found = self.tracepoints.find(system, event).map_err(|why| no_tracepoint(system, event, why))?;
        let draft = |found: super::tracepoint::Tracepoint| {
            let (system, event) = (&found.system, &found.event);
            let help = format!("Number of times the kernel reached the tracepoint {system}:{event}");
            let name = Name::Tracepoint { system: system.as_str().into(), event: event.as_str().into() };
            let selector = Selector { kind: generic::TYPE_TRACEPOINT, config: [found.id, 0, 0, 0] };
            Draft::plain(name, format!("{system}_{event}"), Kind::Tracepoint, selector, help)
        };
        Ok(found.into_iter().map(draft).collect())
    }
}

impl Pmu {
    /// Returns the family of this PMU's events.
    pub(super) fn events_kind(&self) -> Kind {
        match fixed_kind(self.kind) {
            // A core PMU may have the type `PERF_TYPE_RAW` or its own type.
            _ if self.core => Kind::Raw,
            Some(kind) => kind,
            None => Kind::Pmu,
        }
    }
}

/// Returns the family of a type whose number is the same on every host.
fn fixed_kind(number: u32) -> Option<Kind> {
    match number {
        generic::TYPE_HARDWARE => Some(Kind::Hardware),
        generic::TYPE_SOFTWARE => Some(Kind::Software),
        generic::TYPE_TRACEPOINT => Some(Kind::Tracepoint),
        generic::TYPE_HW_CACHE => Some(Kind::Cache),
        generic::TYPE_RAW => Some(Kind::Raw),
        generic::TYPE_BREAKPOINT => Some(Kind::Breakpoint),
        _ => None,
    }
}

/// Returns the event with its modifiers, if these apply to it.
fn finish(draft: Draft, event: &syntax::Event) -> Result<Event, Unresolved> {
    let modifiers = Modifiers::from_letters(&event.modifiers);
    modifiers.check(Subject { kind: draft.event.kind, place: draft.place, shared: draft.shared })?;
    Ok(named(draft, event, modifiers))
}

/// Returns the event with its names.
fn named(draft: Draft, event: &syntax::Event, modifiers: Modifiers) -> Event {
    let Draft { name, called, event: unnamed, .. } = draft;
    let named = syntax::Event { name, modifiers: Arc::clone(&event.modifiers), alias: None }.to_string();
    Event {
        stem: stem::stem(event.alias.as_deref(), &called, &modifiers).into(),
        name: event.alias.clone().unwrap_or_else(|| named.into()),
        modifiers,
        ..unnamed
    }
}

/// Returns `pmu/word/`.
fn pmu_name(pmu: &Pmu, word: &Arc<str>) -> Name {
    Name::Pmu { pmu: Arc::clone(&pmu.name), terms: vec![Term { name: Arc::clone(word), value: None }] }
}

fn refuse<T>(reason: impl Into<String>, remedy: impl Into<String>) -> Result<T, Unresolved> {
    Err(Unresolved::new(Missing::Refused, reason, remedy))
}

fn offline(pmu: &str) -> Unresolved {
    let reason = format!("no CPU of {pmu} is online");
    Unresolved::new(Missing::AbsentOnHost, reason, "bring one of its CPUs online, or remove the event")
}

fn no_tracepoint(system: &str, event: &str, why: NoTracepoint) -> Unresolved {
    match why {
        NoTracepoint::NotMounted(at) => {
            let remedy = format!("mount -t tracefs tracefs {}", at.display());
            Unresolved::new(Missing::AbsentOnHost, "tracefs is not mounted", remedy)
        }
        NoTracepoint::NoTracing(at) => {
            let reason = format!("the kernel was built without tracing: {} does not exist", at.display());
            let remedy = "use a kernel with CONFIG_TRACING, or remove the tracepoints";
            Unresolved::new(Missing::AbsentOnHost, reason, remedy)
        }
        NoTracepoint::Forbidden(error) => {
            let remedy = "run as root or with CAP_DAC_READ_SEARCH, or mount tracefs with gid= and mode=0750";
            Unresolved::new(Missing::Forbidden, format!("tracefs could not be read: {error}"), remedy)
        }
        NoTracepoint::Broken(error) => {
            let remedy = "check the kernel log, or remove the tracepoint";
            Unresolved::new(Missing::Broken, error.to_string(), remedy)
        }
        NoTracepoint::NoSystem(near) => {
            let reason = format!("this kernel has no tracepoint system {system}");
            let remedy =
                "load the module that provides it, or run perf-exporter list '*:*' to see all tracepoints";
            let near = near.map(|system| format!("{system}:{event}"));
            Unresolved::new(Missing::UnknownTracepoint, reason, remedy).meant(near)
        }
        NoTracepoint::NoEvent(near) => {
            let reason = format!("the system {system} has no tracepoint {event}");
            let remedy =
                "tracepoints differ between kernels: run perf-exporter list to see those of this kernel";
            let near = near.map(|event| format!("{system}:{event}"));
            Unresolved::new(Missing::UnknownTracepoint, reason, remedy).meant(near)
        }
        NoTracepoint::TooMany(count) => {
            let reason = format!("it matches {count} tracepoints, more than the limit of {MATCH_LIMIT}");
            Unresolved::new(Missing::Refused, reason, "use a narrower pattern")
        }
    }
}

/// Bits of `bp_type`: `HW_BREAKPOINT_R`, `_W`, `_X` in `include/uapi/linux/hw_breakpoint.h`.
const BREAKPOINT_ACCESS: [(char, u64); 3] = [('r', 1), ('w', 2), ('x', 4)];

fn breakpoint(address: u64, length: Option<u64>, access: &Arc<str>) -> Result<Vec<Draft>, Unresolved> {
    let code = access.contains('x');
    if code && access.len() > 1 {
        return refuse("a code breakpoint (x) cannot also watch data (r, w)", "write two events");
    }
    let bytes = length.unwrap_or(if code && !cfg!(target_arch = "aarch64") { 8 } else { 4 });
    if !matches!(bytes, 1 | 2 | 4 | 8) {
        return refuse(format!("a breakpoint cannot watch {bytes} bytes"), "use 1, 2, 4 or 8");
    }
    let kinds = BREAKPOINT_ACCESS.iter().filter(|(letter, _)| access.contains(*letter));
    let name = Name::Breakpoint { address, length, access: Arc::clone(access) };
    let given = length.map(|length| format!("_{length}")).unwrap_or_default();
    let called = format!("mem_{address:#x}{given}_{access}");
    let selector = Selector {
        kind: generic::TYPE_BREAKPOINT,
        config: [kinds.map(|(_, bit)| bit).sum(), address, bytes, 0],
    };
    let help = format!("Accesses ({access}) to {bytes} bytes at {address:#x}");
    Ok(vec![Draft::plain(name, called, Kind::Breakpoint, selector, help)])
}
