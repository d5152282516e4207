//! Resolution of `tracepoints` and `probes` on this host. Entries that only count hits become counter groups. Entries that use fields
//! become a [`Trace`], whose events write a record for each hit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::trace::{Amount, Feed, Output, Pairing, Role, Source, Trace, ValueLocation};
use super::{Builder, Entries, Group, PlanRefusal, PlanResult, Source as GroupSource, wrong};
use crate::config::Word;
use crate::config::traced::{EventSource, Label, Measure, Pair, Quantity, Traced, TracedKind};
use crate::event::format::{Field, Format};
use crate::event::{Catalog, Event, filter, syntax};
use crate::health::{Refusal, Scope};
use crate::metrics::{self, Buckets, Detail, Metadata, NameError, fit_name};
use crate::probe::install::{ConfiguredProbe, Placed, Placements};
use crate::probe::{Definition, Within};
use crate::targets::Targets;

/// Returns the probe that an entry requires.
pub(super) fn configured_probe(traced: &Traced) -> Option<ConfiguredProbe> {
    let (definition, timed) = match &traced.source {
        EventSource::Probe(definition) => (definition, false),
        EventSource::Timed(definition) => (definition, true),
        EventSource::Events(_) | EventSource::Pair(_) => return None,
    };
    let (section, name) = (traced.kind.section(), Arc::clone(&traced.name));
    Some(ConfiguredProbe {
        section,
        name,
        definition: definition.clone(),
        timed,
        filtered: traced.filter.is_some(),
    })
}

/// Returns the probe of an entry if its files change with the containers that it follows.
fn follows_containers(traced: &Traced) -> Option<Arc<Definition>> {
    let (EventSource::Probe(definition) | EventSource::Timed(definition)) = &traced.source else {
        return None;
    };
    matches!(definition.within, Within::Containers(_)).then(|| Arc::new(definition.clone()))
}

/// Function that returns the kernel's message about a filter of a tracepoint (system, name, filter), if available.
pub type Complain<'a> = dyn Fn(&str, &str, &str) -> Option<String> + 'a;

impl Builder<'_> {
    /// Plans one entry.
    pub(super) fn trace(&mut self, traced: &Traced, catalog: &Catalog, entries: &Entries<'_>) {
        self.level = traced.level;
        let events = match self.events_of(traced, catalog, entries.placed) {
            Ok(events) => self.filtered(traced, events, entries.complain),
            Err(unfit) => return self.refuse_traced(traced, *unfit),
        };
        if events.is_empty() {
            return;
        }
        // A USDT probe with several instances has one count, so its records must be merged. The number of files of a probe that follows
        // containers changes.
        let apart = (events.len() == 1 && follows_containers(traced).is_none())
            || matches!(traced.source, EventSource::Events(_));
        // Records are hits, even if the kernel counts amounts.
        let counts_hits = !events.iter().any(|placed| placed.event.counts_amounts());
        if traced.measure == Measure::Count && traced.labels.is_empty() && apart && counts_hits {
            self.count(traced, events);
        } else {
            self.look_into(traced, events);
        }
    }

    /// Sets the filter of events, and drops events that it does not fit. For a pair, the filter applies to the first event; without the
    /// first, the pair is dropped.
    fn filtered(&mut self, traced: &Traced, mut events: Vec<Placed>, complain: &Complain<'_>) -> Vec<Placed> {
        let Some(filter) = &traced.filter else { return events };
        let is_pair = matches!(traced.source, EventSource::Pair(_) | EventSource::Timed(_));
        let mut filtered = Vec::new();
        for group in events.chunks_mut(if is_pair { 2 } else { 1 }) {
            let Some(first) = group.first_mut() else { continue };
            match set_filter(first, filter, complain) {
                Ok(()) => filtered.extend_from_slice(group),
                Err(unfit) => {
                    self.refuse_traced(traced, *unfit);
                    // The filter does not hide wrong fields.
                    let wrong = sources(traced, group).err().unwrap_or_default();
                    wrong.into_iter().for_each(|unfit| self.refuse_traced(traced, unfit));
                }
            }
        }
        filtered
    }

    /// Returns the events of an entry that exist on this host.
    fn events_of(
        &mut self,
        traced: &Traced,
        catalog: &Catalog,
        placed: &Placements,
    ) -> PlanResult<Vec<Placed>> {
        match &traced.source {
            EventSource::Events(events) => {
                let mut found = Vec::new();
                let mut seen = BTreeSet::new();
                for placed in events.iter().flat_map(|event| tracepoints(catalog, event, looks_into(traced)))
                {
                    match placed {
                        // Two patterns may match the same event.
                        Ok(placed) if seen.insert(Arc::clone(&placed.event.name)) => found.push(placed),
                        Ok(_) => {}
                        Err(unfit) => self.refuse_traced(traced, *unfit),
                    }
                }
                Ok(found)
            }
            EventSource::Pair(Pair { from, to, .. }) => {
                let (mut found, mut wrong) = (Vec::new(), Vec::new());
                for placed in [from, to].into_iter().flat_map(|event| tracepoints(catalog, event, true)) {
                    placed.map_or_else(|unfit| wrong.push(unfit), |placed| found.push(placed));
                }
                let last = wrong.pop();
                wrong.into_iter().for_each(|unfit| self.refuse_traced(traced, *unfit));
                last.map_or(Ok(found), Err)
            }
            EventSource::Probe(_) | EventSource::Timed(_) => {
                let entry = (traced.kind.section(), Arc::clone(&traced.name));
                let placed = placed.get(&entry).cloned().unwrap_or_else(|| Ok(Vec::new()));
                placed.map_err(PlanRefusal::of_probe)
            }
        }
    }

    /// Plans counters without records.
    fn count(&mut self, traced: &Traced, events: Vec<Placed>) {
        let several = events.len() > 1;
        for targets in &traced.per {
            for Placed { event, .. } in &events {
                let label = several.then(|| Arc::clone(&event.name));
                let named = Event { stem: fit_name(&traced.name).into(), ..event.clone() };
                let prefix = prefix(traced.kind, targets.scope());
                match self.claim(&traced.name, targets.scope(), prefix, named, label.as_ref()) {
                    Ok(counter) => self.groups.push(Group {
                        entry: Arc::clone(&traced.name),
                        targets: targets.clone(),
                        counters: vec![counter],
                        cpus: None,
                        pmu: None,
                        event: label,
                        weak: false,
                        source: GroupSource::Dedicated,
                    }),
                    Err(refusal) => self.refuse_traced(traced, PlanRefusal::new(refusal, true)),
                }
            }
        }
    }

    /// Plans a trace.
    fn look_into(&mut self, traced: &Traced, events: Vec<Placed>) {
        // A timed function has a pair in each of its files.
        let is_pair = matches!(traced.source, EventSource::Pair(_) | EventSource::Timed(_));
        let mut found = Vec::new();
        for group in events.chunks(if is_pair { 2 } else { 1 }) {
            match sources(traced, group) {
                Ok(sources) => found.extend(sources),
                Err(wrong) => {
                    wrong.into_iter().for_each(|unfit| self.refuse_traced(traced, unfit));
                    if is_pair {
                        return;
                    }
                    // An event without a required field does not affect the others.
                }
            }
        }
        let sources = found;
        if sources.is_empty() {
            return;
        }
        let mut outputs = Vec::new();
        for targets in &traced.per {
            match self.output(traced, targets, &sources) {
                Ok(output) => outputs.push(output),
                Err(refusal) => self.refuse_traced(traced, PlanRefusal::new(refusal, true)),
            }
        }
        if outputs.is_empty() {
            return;
        }
        let pair = match &traced.source {
            EventSource::Pair(pair) => Some(Pairing { timeout: pair.timeout, pending: pair.pending }),
            EventSource::Timed(_) => Some(Pairing { timeout: TIMED.0, pending: TIMED.1 }),
            _ => None,
        };
        self.plan.traces.push(Arc::new(Trace {
            kind: traced.kind,
            feed: Feed::Records,
            entry: Arc::clone(&traced.name),
            event_label: matches!(traced.source, EventSource::Events(_)) && sources.len() > 1,
            follows: follows_containers(traced),
            sources,
            pair,
            outputs,
            labels: traced.labels.iter().map(|label| Arc::clone(&label.name)).collect(),
            measure: amount(traced),
            values: traced.values,
        }));
    }

    /// Returns the metrics of an entry for one scope.
    fn output(&mut self, traced: &Traced, targets: &Targets, sources: &[Source]) -> Result<Output, Refusal> {
        let unit = traced.unit();
        let base = traced.base();
        let mut names: Vec<&str> = sources.iter().map(|source| &*source.event.name).collect();
        let mut seen = BTreeSet::new();
        // The instances of a probe have one name, in all files.
        names.retain(|name| seen.insert(*name) || matches!(traced.source, EventSource::Pair(_)));
        let what = match traced.source {
            EventSource::Pair(_) | EventSource::Timed(_) => names.join(" to "),
            _ => names.iter().take(8).copied().collect::<Vec<_>>().join(", "),
        };
        let scope = targets.scope();
        let named = |stem: &str, help: String, unit: &str, kind| {
            let name = fit_name(&format!("perf_{}_{stem}", prefix(traced.kind, scope)));
            Metadata::with_detail(&name, &help, unit, kind, Detail::from(traced.level))
        };
        let hits =
            || named(base, format!("Hits of {what}, {}.", scope.words().over), "", metrics::Kind::Counter);
        let stem = traced.stem();
        let amount =
            |verb: &str, kind| named(&stem, format!("{verb} {what}, {}.", scope.words().over), unit, kind);
        let metadata = || -> Result<Output, NameError> {
            let (hits, amount) = match &traced.measure {
                Measure::Count => (Some(hits()?), None),
                Measure::Sum(quantity) => {
                    let verb = format!("Sum of {} of", quantity.field);
                    (Some(hits()?), Some(amount(&verb, metrics::Kind::Counter)?))
                }
                Measure::Histogram(quantity, _) => {
                    let verb = format!("Distribution of {} of", quantity.field);
                    (None, Some(amount(&verb, metrics::Kind::Histogram)?))
                }
                Measure::Elapsed(_) => (None, Some(amount("Time from", metrics::Kind::Histogram)?)),
            };
            let rest = format!(
                "Hits of {what} in no series of the scope, by reason: not selected, or not attributable."
            );
            let unattributed = fit_name(&format!("perf_unattributed_{base}"));
            let unattributed = Metadata::new(&unattributed, &rest, "", metrics::Kind::Counter)?;
            Ok(Output { targets: targets.clone(), hits, amount, unattributed: Some(unattributed) })
        };
        let output = metadata().map_err(|error| wrong(&traced.name, error.to_string()))?;
        self.reserve(output, &traced.name)
    }

    fn refuse_traced(&mut self, traced: &Traced, unfit: PlanRefusal) {
        let scope = traced.per.first().map_or(Scope::HOST, Targets::scope);
        let refused = unfit.of(traced.kind.section(), &traced.entry(), scope, self.file);
        // Entries of one preset may lack the same event.
        if refused.picture.is_some() || !self.plan.refusals.contains(&refused) {
            self.plan.refusals.push(refused);
        }
    }
}

/// Maximum duration of a timed function, and maximum number of threads in it.
const TIMED: (Duration, usize) = (Duration::from_secs(60), 16_384);

/// Returns the prefix of the metric of an entry: the scope, or the kind of the entry for the host scope.
fn prefix(kind: TracedKind, scope: Scope) -> &'static str {
    scope.prefix().unwrap_or(match kind {
        TracedKind::Tracepoint | TracedKind::Preset(_) => "tracepoint",
        TracedKind::Probe => "probe",
        TracedKind::Scheduler | TracedKind::Syscalls => "",
    })
}

/// Reports whether the fields of an entry's events are needed.
fn looks_into(traced: &Traced) -> bool {
    traced.measure != Measure::Count || !traced.labels.is_empty() || traced.filter.is_some()
}

/// Returns the tracepoints that an event matches, with their formats if `formats`.
pub(super) fn tracepoints(
    catalog: &Catalog,
    event: &syntax::Event,
    formats: bool,
) -> Vec<PlanResult<Placed>> {
    let resolved = match catalog.resolve(event) {
        Ok(resolved) => resolved,
        Err(unresolved) => return vec![Err(PlanRefusal::unresolved(event, &unresolved).into())],
    };
    let placed = |event: Event| {
        let mut name = event.name.split(':');
        let Some((system, name)) = name.next().zip(name.next()).filter(|_| formats) else {
            return Ok(Placed { event, format: None });
        };
        match catalog.format(system, name) {
            Ok(format) => Ok(Placed { event, format: Some(Arc::new(format)) }),
            Err(error) => Err(PlanRefusal::new(wrong(&event.name, error.to_string()), false).into()),
        }
    };
    resolved.into_iter().map(placed).collect()
}

/// Sets the filter of an event. For an invalid filter, the error contains the position and the message of the kernel.
pub(super) fn set_filter(placed: &mut Placed, filter: &Arc<str>, complain: &Complain<'_>) -> PlanResult<()> {
    let name = Arc::clone(&placed.event.name);
    if let Some(format) = &placed.format
        && let Err(error) = filter::check(filter, format)
    {
        let mut parts = name.split(':');
        let said = parts.next().zip(parts.next()).and_then(|(system, event)| complain(system, event, filter));
        let said = said.map(|said| format!("\nkernel message:\n{}", said.trim_end())).unwrap_or_default();
        let picture = Some(format!("{error:#}{said}"));
        let word = Some(Word { text: Arc::clone(filter), offset: error.at });
        let remedy = Some(error.remedy.to_string()).filter(|remedy| !remedy.is_empty());
        let reason = error.to_string();
        let end = remedy.as_ref().map(|remedy| format!(": {remedy}")).unwrap_or_default();
        let reason = reason.strip_suffix(&end).unwrap_or(&reason).to_owned();
        let refusal = Refusal { remedy, ..wrong(&name, reason) };
        return Err(Box::new(PlanRefusal { picture, word, ..PlanRefusal::new(refusal, true) }));
    }
    placed.event.filter = Some(Arc::clone(filter));
    Ok(())
}

/// Wrong fields of an entry.
type WrongFields = Vec<PlanRefusal>;

/// Adds the error of a field to `wrong`, and returns its value otherwise.
fn noted<T>(found: PlanResult<T>, wrong: &mut WrongFields) -> Option<T> {
    found.map_err(|unfit| wrong.push(*unfit)).ok()
}

/// Returns the sources of an event, or of the two events of a pair.
///
/// # Errors
/// All fields that the events do not have.
fn sources(traced: &Traced, events: &[Placed]) -> Result<Vec<Source>, WrongFields> {
    match (&traced.source, events) {
        (EventSource::Pair(_) | EventSource::Timed(_), [from, to]) => pair_sources(traced, from, to),
        (EventSource::Pair(_) | EventSource::Timed(_), _) => {
            let reason = "a pair requires a first and a second event";
            Err(vec![PlanRefusal::new(wrong(&traced.name, reason.to_owned()), true)])
        }
        _ => {
            let (mut found, mut wrong) = (Vec::new(), Vec::new());
            for placed in events {
                found.push(source(traced, placed, &mut wrong));
            }
            if wrong.is_empty() { Ok(found) } else { Err(wrong) }
        }
    }
}

/// Returns the source of a single event.
fn source(traced: &Traced, placed: &Placed, wrong: &mut WrongFields) -> Source {
    let mut source = Source::new(placed.clone(), Role::Fields);
    for label in &traced.labels {
        source.labels.push(noted(take(placed, &label.field), wrong));
    }
    source.value = quantity(&traced.measure).and_then(|of| noted(number_field(placed, of), wrong));
    source
}

/// Returns the sources of the two events of a pair.
fn pair_sources(traced: &Traced, from: &Placed, to: &Placed) -> Result<Vec<Source>, WrongFields> {
    let tid: [Arc<str>; 1] = ["$tid".into()];
    let key = match &traced.source {
        EventSource::Pair(pair) => &pair.key[..],
        _ => &tid,
    };
    let mut wrong = Vec::new();
    let mut keyed = |placed: &Placed| {
        let key = key.iter().filter_map(|field| noted(take(placed, field), &mut wrong)).collect();
        Source { key, ..Source::new(placed.clone(), Role::Fields) }
    };
    let mut pair = vec![keyed(from), keyed(to)];
    for label in &traced.labels {
        let Some(locations) = noted(label_of_pair(label, from, to), &mut wrong) else { continue };
        pair.iter_mut().zip(locations).for_each(|(source, location)| source.labels.push(location));
    }
    if wrong.is_empty() { Ok(pair) } else { Err(wrong) }
}

/// Returns the location of a label of a pair: in the second event if both have it, because its value is more recent.
fn label_of_pair(label: &Label, from: &Placed, to: &Placed) -> PlanResult<[Option<ValueLocation>; 2]> {
    // The file writes the field with its prefix.
    let prefixed = |mut unfit: Box<PlanRefusal>| {
        unfit.word = Some(Word { text: Arc::clone(&label.field), offset: 0 });
        unfit
    };
    if let Some(field) = label.field.strip_prefix("from.") {
        return take(from, field).map(|take| [Some(take), None]).map_err(prefixed);
    }
    if let Some(field) = label.field.strip_prefix("to.") {
        return take(to, field).map(|take| [None, Some(take)]).map_err(prefixed);
    }
    match (take(to, &label.field), take(from, &label.field)) {
        (Ok(take), _) => Ok([None, Some(take)]),
        (Err(_), Ok(take)) => Ok([Some(take), None]),
        (Err(unfit), Err(_)) => Err(unfit),
    }
}

fn format_of(placed: &Placed) -> Result<&Format, String> {
    placed.format.as_deref().ok_or_else(|| "it has no fields; add `arguments`".to_owned())
}

impl Source {
    /// Creates the source of an event without keys, labels and a value.
    pub(super) fn new(placed: Placed, role: Role) -> Self {
        let number = placed.format.and_then(|format| u16::try_from(format.id()).ok());
        Self { event: placed.event, number, role, key: Vec::new(), labels: Vec::new(), value: None }
    }
}

fn take(placed: &Placed, name: &str) -> PlanResult<ValueLocation> {
    match name {
        "$cpu" => Ok(ValueLocation::Cpu),
        "$pid" => Ok(ValueLocation::Pid),
        "$tid" => Ok(ValueLocation::Tid),
        name => field(placed, name).cloned().map(ValueLocation::Field),
    }
}

fn field<'p>(placed: &'p Placed, name: &str) -> PlanResult<&'p Field> {
    let wrong = |reason: String| PlanRefusal::of_word(wrong(&placed.event.name, reason), name);
    let format = format_of(placed).map_err(wrong)?;
    format.field(name).ok_or_else(|| {
        let near = format.near(name).map(|near| format!("; did you mean {near}?"));
        let all: Vec<&str> =
            format.fields().iter().filter(|field| !field.common).map(|field| &*field.name).collect();
        let rest = near.unwrap_or_else(|| format!("; it has {}", all.join(", ")));
        wrong(format!("it has no field {name}{rest}"))
    })
}

/// Returns the numeric field of a sum or a histogram.
fn number_field(placed: &Placed, quantity: &Quantity) -> PlanResult<Field> {
    let field = field(placed, &quantity.field)?;
    if field.is_number() {
        return Ok(field.clone());
    }
    let reason = format!(
        "{} is not a number: its declaration is {}; name a field that is a number",
        field.name, field.declaration
    );
    Err(PlanRefusal::of_word(wrong(&placed.event.name, reason), &field.name))
}

fn quantity(measure: &Measure) -> Option<&Quantity> {
    match measure {
        Measure::Sum(quantity) | Measure::Histogram(quantity, _) => Some(quantity),
        Measure::Count | Measure::Elapsed(_) => None,
    }
}

fn amount(traced: &Traced) -> Amount {
    let buckets = |bounds: &Option<Vec<f64>>| match bounds.as_deref().map(Buckets::listed) {
        Some(Ok(buckets)) => buckets,
        // Invalid bounds have been rejected by the configuration checks.
        Some(Err(_)) | None => Buckets::exponential(traced.unit()),
    };
    match &traced.measure {
        Measure::Count => Amount::Hits,
        Measure::Sum(quantity) => Amount::Sum(quantity.factor()),
        Measure::Histogram(quantity, bounds) => Amount::Histogram(quantity.factor(), buckets(bounds)),
        Measure::Elapsed(bounds) => Amount::Elapsed(buckets(bounds)),
    }
}
