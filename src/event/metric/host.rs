//! The metrics of this host: for each, the formula of its CPUs, and the groups of events that it needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::catalog::{Catalog, Missing, Unresolved};
use super::super::pmu::Pmu;
use super::super::syntax::{self, Name, Term};
use super::super::{generic, pattern};
use super::builtin;
use super::definition::{Definition, Formula, Group};
use super::expression::{Constant, Expression, Operand};
use super::key::{SLOTS, event_key, is_core, is_software};
use super::parse::parse;

/// Number of counters that all cores of the built-in metrics, and most PMUs outside of cores have.
const COUNTERS: usize = 4;
/// Maximum number of families of CPUs or of metrics in a message.
const SHOWN: usize = 6;

/// A metric with its formula on this host.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The built-in metric.
    pub definition: &'static Definition,
    /// The formula. Without a host, all that may apply, in the order of preference.
    pub formulas: Vec<Expression>,
    /// The events that the formula needs. Those of one group have to be counted at the same time, because their ratio matters.
    pub needs: Vec<syntax::Group>,
    /// PMU of the type of core that the formula is for, on a machine with several types with different formulas.
    pub pmu: Option<Arc<str>>,
    /// Keys of the events next to which the metric is shown, one for each formula.
    places: Vec<Arc<str>>,
}

impl Metric {
    fn new(
        definition: &'static Definition,
        formulas: Vec<Expression>,
        needs: Vec<syntax::Group>,
        pmu: Option<Arc<str>>,
    ) -> Self {
        let place = |formula: &Expression| {
            let keys = formula.keys();
            let chosen = keys.iter().find(|key| ****key == *definition.at).or(keys.first());
            chosen.map(|key| Arc::clone(key))
        };
        let places = formulas.iter().filter_map(place).collect();
        Self { definition, formulas, needs, pmu, places }
    }

    /// Reports whether the metric is shown next to the event with this key.
    pub fn is_at(&self, key: &str) -> bool {
        self.places.iter().any(|place| **place == *key)
    }

    /// Returns the value of the first formula that has one. `count` returns the count of an event by its key, in its base unit.
    pub fn value(&self, elapsed: Option<f64>, count: &dyn Fn(&str) -> Option<f64>) -> Option<f64> {
        let operand = |operand: Operand<'_>| match operand {
            Operand::Event { key, .. } => count(key),
            Operand::Elapsed => elapsed,
            Operand::Constant(_) => None,
        };
        self.formulas.iter().find_map(|formula| formula.evaluate(&operand))
    }

    /// Reports whether a formula has all its events, by their keys.
    pub fn is_possible(&self, has: &dyn Fn(&str) -> bool) -> bool {
        self.formulas.iter().any(|formula| formula.keys().iter().all(|key| has(key)))
    }

    /// Returns a metric without a host: with all formulas that do not depend on the CPU model.
    pub fn without_host(definition: &'static Definition) -> Self {
        let formulas = definition.formulas.iter().filter(|formula| formula.models.is_empty());
        let formulas = formulas.filter_map(|formula| parse(formula.expression).ok()).collect();
        Self::new(definition, formulas, Vec::new(), None)
    }
}

/// Returns the metrics that are shown wherever their events are counted, independent of the host.
pub fn automatic() -> Vec<Metric> {
    builtin::all().filter(|definition| definition.automatic).map(Metric::without_host).collect()
}

/// Returns all built-in metrics, whether or not this host has their events.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    builtin::all()
}

/// Returns the metrics with this name, this alias or of this group.
///
/// # Errors
/// If there is none, with the closest name.
pub fn find(word: &str) -> Result<Vec<&'static Definition>, Unresolved> {
    let found: Vec<_> =
        builtin::all().filter(|metric| metric.is_named(word) || metric.group.is_named(word)).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let names = || builtin::all().map(|metric| metric.name);
    let aliases = builtin::all().map(|metric| metric.alias).filter(|alias| !alias.is_empty());
    let near = pattern::nearest(word, names().chain(aliases).chain(Group::ALL.map(Group::as_str)));
    let groups = Group::ALL.map(Group::as_str).join(", ");
    let remedy = format!("write a group ({groups}) or a name that perf-exporter list metric shows");
    let no = Unresolved::new(
        Missing::UnknownName,
        "there is no metric or group of metrics with this name",
        remedy,
    );
    Err(Unresolved { event: word.into(), ..no.meant(near) })
}

impl Catalog {
    /// Returns the metrics with this name, this alias or of this group, with their formulas on this host. On a machine with several types of
    /// cores, a metric occurs once for each type with a formula of its own. Of a group, metrics without a formula are left out.
    ///
    /// # Errors
    /// If there is no such metric, or none of them has a formula on this host: which CPUs have one, and which metrics of the group are here.
    pub fn metrics(&self, word: &str) -> Result<Vec<Metric>, Unresolved> {
        let definitions = find(word)?;
        let metrics: Vec<Metric> =
            definitions.iter().flat_map(|definition| self.metric(definition)).collect();
        match (metrics.is_empty(), definitions.first()) {
            (true, Some(definition)) => {
                Err(Unresolved { event: word.into(), ..self.no_formula(&definitions, definition) })
            }
            _ => Ok(metrics),
        }
    }

    /// Returns an expression with the properties of this host in place of their names.
    pub fn on_host(&self, expression: &Expression) -> Expression {
        self.with_constants(expression, self.core_pmus().first().copied())
    }

    /// Returns all metrics that this host has. Without hardware counters, those of the kernel's events and of other PMUs.
    pub fn all_metrics(&self) -> Vec<Metric> {
        let counts = |metric: &Metric| {
            let mut events = metric.needs.iter().flat_map(|group| &group.events);
            self.has_core_pmu()
                || events.all(|event| match &event.name {
                    Name::Symbol(word) => is_software(word),
                    Name::Pmu { pmu, .. } => !is_core(pmu),
                    _ => true,
                })
        };
        builtin::all().flat_map(|definition| self.metric(definition)).filter(counts).collect()
    }

    /// Returns a metric with its formula on this host, or with one for each type of core. Empty without a formula.
    fn metric(&self, definition: &'static Definition) -> Vec<Metric> {
        let cores = self.core_pmus();
        let (Some(first), true) = (cores.first(), cores.len() > 1) else {
            let formula =
                definition.formulas.iter().find(|formula| self.has_formula(formula, cores.first().copied()));
            return formula
                .and_then(|formula| self.metric_on(definition, formula, cores.first().copied(), None))
                .into_iter()
                .collect();
        };
        let of_core =
            |core: &&Pmu| definition.formulas.iter().find(|formula| self.has_formula(formula, Some(core)));
        let formulas: Vec<Option<&Formula>> = cores.iter().map(of_core).collect();
        let same = formulas.windows(2).all(|pair| pair.first() == pair.last());
        if let (true, Some(Some(formula))) = (same, formulas.first())
            && !formula.expression.contains("#slots")
        {
            return self.metric_on(definition, formula, Some(first), None).into_iter().collect();
        }
        let pairs = cores.iter().zip(formulas);
        pairs
            .filter_map(|(core, formula)| self.metric_on(definition, formula?, Some(core), Some(&core.name)))
            .collect()
    }

    /// Reports whether this host has the CPU model and all events of a formula.
    fn has_formula(&self, formula: &Formula, core: Option<&Pmu>) -> bool {
        if !formula.models.is_empty() && !core.is_some_and(|core| self.is_model(core, formula.models)) {
            return false;
        }
        let Ok(expression) = parse(formula.expression) else { return false };
        let expression = self.with_constants(&expression, core);
        let leader = (!formula.leader.is_empty()).then(|| symbol(formula.leader));
        let mut events = expression.events().into_iter().chain(leader.as_ref());
        events.all(|event| self.has_event(event, core)) && expression.constants().is_empty()
    }

    fn with_constants(&self, expression: &Expression, core: Option<&Pmu>) -> Expression {
        let pmu = core.map_or("cpu", |core| &core.name);
        expression.on_host(&|constant: Constant| self.constants.value(constant, pmu))
    }

    /// Reports whether the model of a core PMU matches one of the patterns.
    fn is_model(&self, core: &Pmu, patterns: &str) -> bool {
        let Some((_, table)) = self.models.iter().find(|(name, _)| *name == core.name) else { return false };
        patterns.split_ascii_whitespace().any(|model| {
            pattern::matches(model, table.model.name) || table.is_cpu(|cpu| pattern::matches(model, cpu))
        })
    }

    /// Reports whether this host has an event, without the reason why not. Generic events exist on every host.
    fn has_event(&self, event: &syntax::Event, core: Option<&Pmu>) -> bool {
        let names =
            |pmu: &Pmu, word: &str| pmu.events.contains_key(word) || self.vendor_event(pmu, word).is_some();
        match &event.name {
            Name::Symbol(word) if matches!(generic::find(word), Some(generic::Found::Event(_))) => true,
            Name::Symbol(word) => core.is_some_and(|core| names(core, word)),
            Name::Pmu { pmu, terms } => {
                let encodes = |pmu: &&Pmu| self.with_vendor_events(pmu, terms).encode(terms).is_ok();
                self.select(pmu).iter().any(encodes)
            }
            _ => true,
        }
    }

    /// Returns the metric by one of its formulas. `prefix` is the PMU that its events are restricted to.
    fn metric_on(
        &self,
        definition: &'static Definition,
        formula: &Formula,
        core: Option<&Pmu>,
        prefix: Option<&Arc<str>>,
    ) -> Option<Metric> {
        let on_pmu = |event: &syntax::Event| match prefix {
            Some(pmu) => restricted(event, pmu),
            None => event.clone(),
        };
        let expression = self.with_constants(&parse(formula.expression).ok()?, core).with_events(&on_pmu);
        let leader = (!formula.leader.is_empty()).then(|| on_pmu(&symbol(formula.leader)));
        let needs = match formula.groups {
            "" => groups(&expression, leader),
            written => written_groups(written, &expression, &on_pmu),
        };
        Some(Metric::new(definition, vec![expression], needs, prefix.cloned()))
    }

    fn no_formula(&self, asked: &[&Definition], first: &Definition) -> Unresolved {
        let model = self.models.first().map(|(_, table)| table.model.name);
        let here = match model {
            Some(model) => format!("this CPU ({model})"),
            None if self.has_core_pmu() => "this host".to_owned(),
            None => "this host, which has no hardware counters,".to_owned(),
        };
        let mut cpus: Vec<&str> = Vec::new();
        for formula in asked.iter().flat_map(|definition| definition.formulas) {
            if !cpus.contains(&formula.cpus) {
                cpus.push(formula.cpus);
            }
        }
        cpus.truncate(SHOWN);
        let reason = format!("{here} lacks the events of this metric; these have them: {}", cpus.join("; "));
        let others = builtin::all().filter(|definition| {
            let near =
                [first.group, if first.group == Group::TopdownL2 { Group::TopdownL1 } else { first.group }];
            near.contains(&definition.group) && !self.metric(definition).is_empty()
        });
        let others: Vec<&str> = others.map(|definition| definition.name).take(SHOWN).collect();
        let remedy = match others.is_empty() {
            true => "run perf-exporter list metric to see the metrics of this host".to_owned(),
            false => format!("nearest metrics of this host: {}", others.join(", ")),
        };
        Unresolved::new(Missing::AbsentOnHost, reason, remedy)
    }
}

fn symbol(word: &str) -> syntax::Event {
    syntax::Event { name: Name::Symbol(word.into()), modifiers: "".into(), alias: None }
}

/// Returns an event of the cores restricted to one of their PMUs.
fn restricted(event: &syntax::Event, pmu: &Arc<str>) -> syntax::Event {
    let name = match &event.name {
        Name::Symbol(word) if !is_software(word) => {
            Name::Pmu { pmu: Arc::clone(pmu), terms: vec![Term { name: Arc::clone(word), value: None }] }
        }
        Name::Pmu { pmu: word, terms } if is_core(word) => {
            Name::Pmu { pmu: Arc::clone(pmu), terms: terms.clone() }
        }
        other => other.clone(),
    };
    syntax::Event { name, ..event.clone() }
}

/// Returns the groups that an expression needs: one for the events of the cores, the leader first, some for each other PMU, and one for each
/// event of the kernel.
pub fn groups(expression: &Expression, leader: Option<syntax::Event>) -> Vec<syntax::Group> {
    let mut cores: Vec<syntax::Event> = leader.into_iter().collect();
    let mut others: BTreeMap<&str, Vec<syntax::Event>> = BTreeMap::new();
    let mut alone = Vec::new();
    for event in expression.events() {
        match &event.name {
            Name::Symbol(word) if is_software(word) => alone.push(vec![event.clone()]),
            Name::Tracepoint { .. } => alone.push(vec![event.clone()]),
            Name::Pmu { pmu, .. } if !is_core(pmu) => others.entry(pmu).or_default().push(event.clone()),
            _ if cores.contains(event) => {}
            _ => cores.push(event.clone()),
        }
    }
    let others = others.values().flat_map(|events| events.chunks(COUNTERS)).map(<[_]>::to_vec);
    let groups = std::iter::once(cores).chain(others).chain(alone).filter(|events| !events.is_empty());
    groups.map(|events| syntax::Group { events }).collect()
}

/// Returns the groups as written, without the events that the expression does not need.
fn written_groups(
    written: &str,
    expression: &Expression,
    on_pmu: &dyn Fn(&syntax::Event) -> syntax::Event,
) -> Vec<syntax::Group> {
    let needed = expression.events();
    // A test checks that all groups parse, and have all events of their expression.
    let groups = super::super::parse(written).unwrap_or_default().into_iter().map(|group| {
        let events = group.events.iter().map(on_pmu).filter(|event| needed.contains(&event)).collect();
        syntax::Group { events }
    });
    groups.filter(|group: &syntax::Group| !group.events.is_empty()).collect()
}

/// Returns the groups of several metrics: groups with the same leader are merged, and those that another one contains are left out.
pub fn merged(groups: impl IntoIterator<Item = syntax::Group>) -> Vec<syntax::Group> {
    let mut merged: Vec<syntax::Group> = Vec::new();
    for group in groups {
        let leads = |group: &syntax::Group| {
            group
                .events
                .first()
                .filter(|event| &*event_key(&event.name) == SLOTS)
                .map(|event| event.name.clone())
        };
        let leader = leads(&group);
        let same = merged.iter_mut().find(|other| leader.is_some() && leads(other) == leader);
        match same {
            Some(other) => join(other, group),
            None => merged.push(group),
        }
    }
    // Large groups contain smaller ones.
    merged.sort_by_key(|group| std::cmp::Reverse(group.events.len()));
    let mut kept: Vec<syntax::Group> = Vec::new();
    for group in merged {
        if !kept.iter().any(|other| contains(other, &group)) {
            kept.push(group);
        }
    }
    kept
}

/// Returns the groups of several metrics as [`merged`], in as few groups as fit: groups with a common event are combined up to four events. All
/// CPUs of the built-in metrics have four counters.
pub fn packed(groups: impl IntoIterator<Item = syntax::Group>) -> Vec<syntax::Group> {
    let mut packed: Vec<syntax::Group> = Vec::new();
    for group in merged(groups) {
        let fits = |other: &&mut syntax::Group| {
            let new = group.events.iter().filter(|event| !other.events.contains(event)).count();
            new < group.events.len() && other.events.len() + new <= COUNTERS
        };
        match packed.iter_mut().find(fits) {
            Some(other) => join(other, group),
            None => packed.push(group),
        }
    }
    packed
}

/// Adds the events of a group that another one lacks.
fn join(to: &mut syntax::Group, group: syntax::Group) {
    for event in group.events {
        if !to.events.contains(&event) {
            to.events.push(event);
        }
    }
}

/// Reports whether a group has all events of another one.
pub fn contains(group: &syntax::Group, other: &syntax::Group) -> bool {
    other.events.iter().all(|event| group.events.contains(event))
}
