//! From a name to what `perf_event_attr` needs, on this host.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::catalog::{Catalog, Missing, Unresolved, pmu_help};
use super::generic::{self, Found, Generic, Place};
use super::modifiers::Subject;
use super::pmu::{BadTerm, Pmu};
use super::syntax::{self, Name, Term};
use super::tracepoint::{MATCH_LIMIT, NoTracepoint};
use super::{Event, Kind, Modifiers, Scale, Selector, known, pattern, stem};
use crate::host::{CpuSet, KernelVersion};

/// Where the PMU's type stands in `config` of a generic event that is meant for one kind of core.
#[doc(alias = "PERF_PMU_TYPE_SHIFT")]
const PMU_TYPE_SHIFT: u32 = 32;

/// Since when Arm's PMUs take generic events with a type. (Hybrid x86 has done so since there has been any, 5.13.)
const ARM_EXTENDED_TYPE: KernelVersion = KernelVersion(6, 6);

/// One event before its modifiers.
#[derive(Clone)]
struct Draft {
    name: Name,
    called: String,
    kind: Kind,
    selector: Selector,
    pmu: Option<Arc<str>>,
    cpus: Option<CpuSet>,
    scale: Option<Scale>,
    place: Place,
    shared: bool,
    help: Arc<str>,
}

impl Draft {
    /// An event of no PMU of sysfs.
    fn plain(name: Name, called: String, kind: Kind, selector: Selector, help: String) -> Self {
        let (pmu, cpus, scale) = (None, None, None);
        let (place, shared) = (Place::Anywhere, false);
        Self { name, called, kind, selector, pmu, cpus, scale, place, shared, help: help.into() }
    }
}

impl Catalog {
    /// What an event stands for on this host: at least one [`Event`], and several where it stands for several PMUs or
    /// tracepoints. Nothing is opened, so the kernel may still refuse any of them. Reads tracefs for tracepoints.
    ///
    /// # Errors
    /// Why there is none, told apart by [`Missing`].
    pub fn resolve(&self, event: &syntax::Event) -> Result<Vec<Event>, Unresolved> {
        self.resolve_by(event, |draft| finish(draft, event))
    }

    /// As [`resolve`](Self::resolve); with `user_only` for a process that may count nothing but user space
    /// (`perf_event_paranoid` 2 or more without `CAP_PERFMON`). As perf does it, an event that says nothing of user space and kernel gets a `u`,
    /// which shows in its name.
    ///
    /// # Errors
    /// As `resolve`; and [`Missing::Forbidden`] for an event that happens in the kernel alone, which perf would show
    /// with a count of zero.
    pub fn resolve_permitted(
        &self,
        event: &syntax::Event,
        user_only: bool,
    ) -> Result<Vec<Event>, Unresolved> {
        if !user_only || event.modifiers.contains(['u', 'k', 'h']) {
            return self.resolve(event);
        }
        let modifiers = Arc::from(format!("{}u", event.modifiers));
        let narrowed = syntax::Event { modifiers, ..event.clone() };
        self.resolve_by(event, |draft| match (draft.place, draft.kind) {
            (Place::Kernel, _) | (_, Kind::Tracepoint) => Err(Unresolved::new(
                Missing::Forbidden,
                "it happens in the kernel, where this process may count nothing",
                "give perf-exporter CAP_PERFMON, or set sysctl kernel.perf_event_paranoid=1",
            )),
            // The kernel takes the letter for a clock as well, and does not divide the time by it.
            (Place::Clock, _) => Ok(named(draft, &narrowed, Modifiers::from_letters(&narrowed.modifiers))),
            (Place::Anywhere, _) => finish(draft, &narrowed),
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
            if event.alias.is_some() && drafts.len() > 1 && drafts.iter().any(|draft| draft.pmu.is_none()) {
                let reason = format!("it stands for {} events, which cannot share one name", drafts.len());
                return refuse(reason, "leave out the name, or write one event");
            }
            drafts.into_iter().map(finish).collect::<Result<Vec<_>, Unresolved>>()
        });
        finished.map_err(|no| Unresolved { event: event.to_string().into(), ..no })
    }

    fn symbol(&self, word: &Arc<str>) -> Result<Vec<Draft>, Unresolved> {
        match generic::find(word) {
            Some(Found::Event(event)) => return self.generic(word, &event, &self.core_pmus()),
            Some(Found::Impossible(reason)) => return refuse(reason, "no machine counts it; leave it out"),
            Some(Found::Tool(reason)) => return refuse(reason, "use task-clock"),
            None => {}
        }
        let owners: Vec<&Pmu> = self.pmus.iter().filter(|pmu| pmu.events.contains_key(word)).collect();
        if owners.is_empty() {
            return Err(self.unknown_symbol(word));
        }
        let families: BTreeSet<&str> = owners.iter().map(|pmu| stem::without_instance(&pmu.name)).collect();
        if families.len() > 1 && !owners.iter().all(|pmu| pmu.core) {
            let written: Vec<String> = families.iter().map(|family| format!("{family}/{word}/")).collect();
            let remedy = format!("write {}", written.join(" or "));
            return refuse("several PMUs have an event of this name", remedy);
        }
        let terms = [Term { name: Arc::clone(word), value: None }];
        self.encode_all(&owners, &terms, |_| word.to_string())
    }

    /// A generic event, on each of `cores` if there are several kinds of them.
    fn generic(&self, word: &Arc<str>, event: &Generic, cores: &[&Pmu]) -> Result<Vec<Draft>, Unresolved> {
        if !self.has(event.since) {
            let reason = format!("it needs Linux {}, and this is {}", event.since, self.facts.kernel);
            return Err(Unresolved::new(
                Missing::AbsentOnHost,
                reason,
                "leave it out, or upgrade the kernel",
            ));
        }
        let help = event.help.to_string();
        let name = Name::Symbol(Arc::clone(word));
        let draft = Draft {
            scale: event.scale(),
            place: event.place,
            ..Draft::plain(name, event.name.to_string(), event.kind, event.selector, help)
        };
        Ok(self.on_each_core(draft, cores, |pmu| pmu_name(pmu, word)))
    }

    /// An event of `PERF_TYPE_HARDWARE` or `PERF_TYPE_HW_CACHE` on each of `cores`; any other event, and all on a
    /// machine with one kind of core, as it is.
    fn on_each_core(&self, draft: Draft, cores: &[&Pmu], name: impl Fn(&Pmu) -> Name) -> Vec<Draft> {
        let all = self.core_pmus().len();
        if all < 2 || !matches!(draft.kind, Kind::Hardware | Kind::Cache) {
            return vec![draft];
        }
        let typed = self.takes_extended_types();
        if !typed && cores.len() == all {
            // Opened on a CPU, it finds the PMU of that CPU by itself.
            return vec![draft];
        }
        let on = |pmu: &&Pmu| {
            let mut draft = self.on_core(&draft, pmu, name(pmu))?;
            if typed {
                draft.selector.config[0] |= u64::from(pmu.kind) << PMU_TYPE_SHIFT;
            }
            Some(draft)
        };
        cores.iter().filter_map(on).collect()
    }

    /// An event for one kind of core, if one of its CPUs is online.
    fn on_core(&self, draft: &Draft, pmu: &Pmu, name: Name) -> Option<Draft> {
        let (cpus, pmu) = (self.online_of(pmu)?, Some(Arc::clone(&pmu.name)));
        Some(Draft { name, cpus, pmu, ..draft.clone() })
    }

    fn is_hybrid(&self) -> bool {
        self.core_pmus().len() > 1
    }

    /// Whether the kernel reads the PMU's type in the upper half of a generic event's `config`.
    fn takes_extended_types(&self) -> bool {
        self.core_pmus().iter().all(|pmu| pmu.name.starts_with("cpu")) || self.has(ARM_EXTENDED_TYPE)
    }

    /// Where a PMU can be opened: `Some(None)` = on every CPU, `None` = on none that is online.
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
        // The CPUs of a kind of core are the same whether they are online or not: what is counted on the others goes on.
        Some((!everywhere).then(|| if pmu.core { cpus.clone() } else { here }))
    }

    /// `rNNN`: on a hybrid machine the number means something else on each kind of core, and `PERF_TYPE_RAW` is only
    /// one of them; so each gets its own type.
    fn raw(&self, config: u64) -> Vec<Draft> {
        let (name, called) = (Name::Raw(config), format!("r{config:x}"));
        let selector = Selector { kind: generic::TYPE_RAW, config: [config, 0, 0, 0] };
        let help = format!("Raw event {config:#x} of the core PMU");
        let draft = Draft::plain(name, called.clone(), Kind::Raw, selector, help);
        if !self.is_hybrid() {
            return vec![draft];
        }
        let on = |pmu: &&Pmu| {
            let draft = self.on_core(&draft, pmu, pmu_name(pmu, &called.as_str().into()))?;
            Some(Draft { selector: Selector { kind: pmu.kind, ..selector }, ..draft })
        };
        self.core_pmus().iter().filter_map(on).collect()
    }

    /// `TYPE:CONFIG`.
    fn numeric(&self, number: u32, config: u64) -> Result<Vec<Draft>, Unresolved> {
        let name = Name::Numeric { kind: number, config };
        let called = format!("type_{number}_config_{config:#x}");
        let help = format!("Event {config:#x} of type {number}");
        let selector = Selector { kind: number, config: [config, 0, 0, 0] };
        let draft = |kind| Draft::plain(name.clone(), called, kind, selector, help);
        match fixed_kind(number) {
            Some(Kind::Raw) if self.is_hybrid() => return Ok(self.raw(config)),
            // A type in the upper half says already which kind of core is meant.
            Some(kind) if config >> PMU_TYPE_SHIFT == 0 => {
                return Ok(self.on_each_core(draft(kind), &self.core_pmus(), |_| name.clone()));
            }
            Some(kind) => return Ok(vec![draft(kind)]),
            None => {}
        }
        let Some(pmu) = self.pmus.iter().find(|pmu| pmu.kind == number) else {
            let reason = format!("no PMU of this host has the type {number}");
            let remedy = "the numbers differ from host to host: write pmu/config=NUMBER/ with the PMU's name";
            return Err(Unresolved::new(Missing::AbsentOnHost, reason, remedy));
        };
        let cpus = self.online_of(pmu).ok_or_else(|| offline(&pmu.name))?;
        let shared = !pmu.core && pmu.cpus.is_some();
        Ok(vec![Draft { pmu: Some(Arc::clone(&pmu.name)), cpus, shared, ..draft(pmu.events_kind()) }])
    }

    fn pmu(&self, word: &Arc<str>, terms: &[Term]) -> Result<Vec<Draft>, Unresolved> {
        let pmus = self.select(word);
        if pmus.is_empty() {
            return Err(self.unknown_pmu(word));
        }
        // `cpu/cycles/` is `cycles` on the cores that are meant, whether the PMU names such an event or not: one metric
        // on all hosts.
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

    /// The terms on each PMU that understands them; the first complaint if none does.
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
        let encoded = pmu.encode(terms).map_err(|bad| self.bad_term(pmu, bad))?;
        let event = terms.iter().find(|term| pmu.events.contains_key(&term.name)).map(|term| &*term.name);
        let family = stem::without_instance(&pmu.name);
        let help = match event {
            Some(event) => pmu_help(family, event),
            None => format!("Counts of the PMU {family}").into(),
        };
        let alone = pmu.core && !self.is_hybrid();
        Ok(Draft {
            name: Name::Pmu { pmu: Arc::clone(&pmu.name), terms: terms.to_vec() },
            called,
            kind: pmu.events_kind(),
            selector: Selector { kind: pmu.kind, config: encoded.config },
            pmu: (!alone).then(|| Arc::clone(&pmu.name)),
            cpus: self.online_of(pmu).ok_or_else(|| offline(&pmu.name))?,
            scale: encoded.scale,
            place: Place::Anywhere,
            shared: !pmu.core && pmu.cpus.is_some(),
            help,
        })
    }

    fn tracepoint(&self, system: &str, event: &str) -> Result<Vec<Draft>, Unresolved> {
        let found = self.tracepoints.find(system, event).map_err(|why| no_tracepoint(system, event, why))?;
        let draft = |found: super::tracepoint::Tracepoint| {
            let (system, event) = (&found.system, &found.event);
            let help = format!("Times that the tracepoint {system}:{event} was passed");
            let name = Name::Tracepoint { system: system.as_str().into(), event: event.as_str().into() };
            let selector = Selector { kind: generic::TYPE_TRACEPOINT, config: [found.id, 0, 0, 0] };
            Draft::plain(name, format!("{system}_{event}"), Kind::Tracepoint, selector, help)
        };
        Ok(found.into_iter().map(draft).collect())
    }

    fn bad_term(&self, pmu: &Pmu, bad: BadTerm) -> Unresolved {
        let word = bad.unknown.unwrap_or_default();
        if known::pmu_of(&word)
            .is_some_and(|owner| self.select(owner).iter().any(|found| found.name == pmu.name))
        {
            let reason = format!("{} of this host has no event {word}", pmu.name);
            return Unresolved::new(Missing::AbsentOnHost, reason, bad.remedy);
        }
        let words = pmu.events.keys().chain(pmu.format.keys()).map(|name| &**name);
        let near = pattern::nearest(&word, words);
        Unresolved::new(Missing::BadTerm, bad.reason, bad.remedy).meant(near)
    }

    fn unknown_symbol(&self, word: &str) -> Unresolved {
        if pattern::is_pattern(word) {
            let remedy = "patterns may stand for PMUs (uncore_*/event/) and tracepoints (block:*)";
            return Unresolved::new(
                Missing::Refused,
                "a pattern cannot stand for names of this kind",
                remedy,
            );
        }
        if let Some(pmu) = known::pmu_of(word) {
            let mut no = self.absent_pmu(pmu);
            if !self.select(pmu).is_empty() {
                no.reason = format!("the PMU {pmu} of this host has no such event");
                "perf-exporter list shows what it has".clone_into(&mut no.remedy);
            }
            return no;
        }
        let generic: Vec<_> = generic::all().collect();
        let names = generic.iter().flat_map(|(event, aliases)| aliases.iter().copied().chain([&*event.name]));
        let named = self.pmus.iter().flat_map(|pmu| pmu.events.keys().map(|name| &**name));
        let near = pattern::nearest(word, names.chain(named));
        let remedy = "perf-exporter list shows what can be named here; names from vendors' tables \
             (INST_RETIRED.ANY) are written as cpu/event=…,umask=…/";
        Unresolved::new(Missing::UnknownName, "there is no event of this name", remedy).meant(near)
    }

    fn unknown_pmu(&self, word: &str) -> Unresolved {
        if known::pmu(word).is_some() {
            return self.absent_pmu(word);
        }
        let families = self.pmus.iter().map(|pmu| stem::without_instance(&pmu.name));
        let near = pattern::nearest(word, families);
        let names: Vec<&str> = self.pmus().take(12).collect();
        let names = if names.is_empty() { "none".into() } else { names.join(", ") };
        let (reason, remedy) =
            (format!("there is no PMU named {word}"), format!("PMUs of this host: {names}"));
        Unresolved::new(Missing::UnknownName, reason, remedy).meant(near)
    }

    /// A PMU that other hosts have.
    fn absent_pmu(&self, pmu: &str) -> Unresolved {
        let what = known::pmu(pmu).map(|what| format!(": {what}")).unwrap_or_default();
        let remedy = if self.facts.virtual_machine {
            "a virtual machine has only the PMUs that its hypervisor passes on; measure on its host"
        } else {
            "load the driver if this machine has the hardware, or leave the event out"
        };
        Unresolved::new(Missing::AbsentOnHost, format!("this host has no PMU {pmu}{what}"), remedy)
    }
}

impl Pmu {
    /// The family of this PMU's events.
    pub(super) fn events_kind(&self) -> Kind {
        match fixed_kind(self.kind) {
            // A core PMU may have the number of `PERF_TYPE_RAW`, or one of its own.
            _ if self.core => Kind::Raw,
            Some(kind) => kind,
            None => Kind::Pmu,
        }
    }
}

/// The family of a type whose number is the same on every host.
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

/// The event with the modifiers that were written, if they mean something for it.
fn finish(draft: Draft, event: &syntax::Event) -> Result<Event, Unresolved> {
    let modifiers = Modifiers::from_letters(&event.modifiers);
    modifiers
        .check(Subject { kind: draft.kind, place: draft.place, shared: draft.shared })
        .map_err(|no| Unresolved::new(Missing::Refused, no.reason, no.remedy))?;
    Ok(named(draft, event, modifiers))
}

/// The event with its names.
fn named(draft: Draft, event: &syntax::Event, modifiers: Modifiers) -> Event {
    let Draft { name, called, kind, selector, pmu, cpus, scale, help, .. } = draft;
    let named = syntax::Event { name, modifiers: Arc::clone(&event.modifiers), alias: None }.to_string();
    Event {
        stem: stem::stem(event.alias.as_deref(), &called, &modifiers).into(),
        name: event.alias.clone().unwrap_or_else(|| named.into()),
        kind,
        selector,
        modifiers,
        pmu,
        cpus,
        scale,
        help,
        probe: None,
        filter: None,
    }
}

/// `pmu/word/`.
fn pmu_name(pmu: &Pmu, word: &Arc<str>) -> Name {
    Name::Pmu { pmu: Arc::clone(&pmu.name), terms: vec![Term { name: Arc::clone(word), value: None }] }
}

fn refuse<T>(reason: impl Into<String>, remedy: impl Into<String>) -> Result<T, Unresolved> {
    Err(Unresolved::new(Missing::Refused, reason, remedy))
}

fn offline(pmu: &str) -> Unresolved {
    let reason = format!("none of the CPUs of {pmu} is online");
    Unresolved::new(Missing::AbsentOnHost, reason, "put one of them online, or leave the event out")
}

fn no_tracepoint(system: &str, event: &str, why: NoTracepoint) -> Unresolved {
    match why {
        NoTracepoint::NotMounted(at) => {
            let remedy = format!("mount -t tracefs tracefs {}", at.display());
            Unresolved::new(Missing::AbsentOnHost, "tracefs is not mounted", remedy)
        }
        NoTracepoint::NoTracing(at) => {
            let reason = format!("the kernel has no tracing: there is no {}", at.display());
            let remedy = "use a kernel with CONFIG_TRACING, or leave tracepoints out";
            Unresolved::new(Missing::AbsentOnHost, reason, remedy)
        }
        NoTracepoint::Forbidden(error) => {
            let remedy = "run as root or with CAP_DAC_READ_SEARCH, or mount tracefs with gid= and mode=0750";
            Unresolved::new(Missing::Forbidden, format!("tracefs may not be read: {error}"), remedy)
        }
        NoTracepoint::Broken(error) => {
            let remedy = "see the kernel's log, or leave the tracepoint out";
            Unresolved::new(Missing::Broken, error.to_string(), remedy)
        }
        NoTracepoint::NoSystem(near) => {
            let reason = format!("this kernel has no tracepoints of a system {system}");
            let remedy = "load the module that brings it, or see perf-exporter list '*:*'";
            let near = near.map(|system| format!("{system}:{event}"));
            Unresolved::new(Missing::AbsentOnHost, reason, remedy).meant(near)
        }
        NoTracepoint::NoEvent(near) => {
            let reason = format!("the system {system} has no tracepoint {event}");
            let remedy = "kernels differ: see perf-exporter list for those of this one";
            let near = near.map(|event| format!("{system}:{event}"));
            Unresolved::new(Missing::AbsentOnHost, reason, remedy).meant(near)
        }
        NoTracepoint::TooMany(count) => {
            let reason =
                format!("it stands for {count} tracepoints, and at most {MATCH_LIMIT} are taken at once");
            Unresolved::new(Missing::Refused, reason, "name fewer")
        }
    }
}

/// Bits of `bp_type`: `HW_BREAKPOINT_R`, `_W`, `_X` of `include/uapi/linux/hw_breakpoint.h`.
const BREAKPOINT_ACCESS: [(char, u64); 3] = [('r', 1), ('w', 2), ('x', 4)];

fn breakpoint(address: u64, length: Option<u64>, access: &Arc<str>) -> Result<Vec<Draft>, Unresolved> {
    let code = access.contains('x');
    if code && access.len() > 1 {
        return refuse("a breakpoint on code (x) cannot watch data (r, w) as well", "write two events");
    }
    let bytes = length.unwrap_or(if code && !cfg!(target_arch = "aarch64") { 8 } else { 4 });
    if !matches!(bytes, 1 | 2 | 4 | 8) {
        return refuse(format!("a breakpoint cannot watch {bytes} bytes"), "give 1, 2, 4 or 8");
    }
    let kinds = BREAKPOINT_ACCESS.iter().filter(|(letter, _)| access.contains(*letter));
    let name = Name::Breakpoint { address, length, access: Arc::clone(access) };
    let given = length.map(|length| format!("_{length}")).unwrap_or_default();
    let called = format!("mem_{address:#x}{given}_{access}");
    let selector = Selector {
        kind: generic::TYPE_BREAKPOINT,
        config: [kinds.map(|(_, bit)| bit).sum(), address, bytes, 0],
    };
    let help = format!("Accesses ({access}) to the {bytes} bytes at {address:#x}");
    Ok(vec![Draft::plain(name, called, Kind::Breakpoint, selector, help)])
}
