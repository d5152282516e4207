//! Refusals of event names: what this host lacks, which CPUs have it, and the closest name of this host.

use std::collections::BTreeSet;

use super::catalog::{Catalog, Missing, Unresolved};
use super::pmu::{BadTerm, Pmu};
use super::{generic, known, pattern, stem, vendor};

impl Catalog {
    pub(super) fn bad_term(&self, pmu: &Pmu, bad: BadTerm) -> Unresolved {
        let word = bad.unknown.unwrap_or_default();
        if let Some(no) = self.of_other_types(&word, pmu) {
            return no;
        }
        if known::pmu_of(&word)
            .is_some_and(|owner| self.select(owner).iter().any(|found| found.name == pmu.name))
        {
            let reason = format!("{} of this host has no event {word}", pmu.name);
            return Unresolved::new(Missing::AbsentOnHost, reason, bad.remedy);
        }
        if let Some(no) = self.of_other_models(&word, &[pmu]) {
            return no;
        }
        let words = pmu.events.keys().chain(pmu.format.keys()).map(|name| &**name);
        let near = pattern::nearest(&word, words)
            .map(str::to_owned)
            .or_else(|| self.nearest_of_vendor(&word, &[pmu]));
        Unresolved::new(Missing::BadTerm, bad.reason, bad.remedy).meant(near)
    }

    pub(super) fn unknown_symbol(&self, word: &str) -> Unresolved {
        if pattern::is_pattern(word) {
            let remedy = "patterns are supported for PMUs (uncore_*/event/) and tracepoints (block:*)";
            return Unresolved::new(
                Missing::Refused,
                "patterns are not supported for this kind of event",
                remedy,
            );
        }
        if let Some(pmu) = known::pmu_of(word) {
            let mut no = self.absent_pmu(pmu);
            let here: BTreeSet<&str> =
                self.select(pmu).iter().map(|pmu| stem::without_instance(&pmu.name)).collect();
            if !here.is_empty() {
                let (plural, verb) = if here.len() == 1 { ("", "has") } else { ("s", "have") };
                let here: Vec<&str> = here.into_iter().collect();
                no.reason = format!("the PMU{plural} {} of this host {verb} no such event", here.join(", "));
                "run perf-exporter list to see its events".clone_into(&mut no.remedy);
            }
            return no;
        }
        let pmus: Vec<&Pmu> = self.pmus.iter().collect();
        if let Some(no) = self.of_other_models(word, &pmus) {
            return no;
        }
        let generic: Vec<_> = generic::all().collect();
        let names = generic.iter().flat_map(|(event, aliases)| aliases.iter().copied().chain([&*event.name]));
        let named = self.pmus.iter().flat_map(|pmu| pmu.events.keys().map(|name| &**name));
        let near = pattern::nearest(word, names.chain(named)).map(str::to_owned);
        let near = near.or_else(|| self.nearest_of_vendor(word, &pmus));
        let remedy = "run perf-exporter list to see the events of this host";
        Unresolved::new(Missing::UnknownName, "there is no event with this name", remedy).meant(near)
    }

    /// Returns the error for an event of another type of core of this host.
    fn of_other_types(&self, word: &str, pmu: &Pmu) -> Option<Unresolved> {
        let has = |other: &&Pmu| other.events.contains_key(word) || self.vendor_event(other, word).is_some();
        let cores = self.core_pmus().into_iter().filter(|other| pmu.core && other.name != pmu.name);
        let others: Vec<&str> = cores.filter(has).map(|other| &*other.name).collect();
        let first = others.first()?;
        let reason = format!("{} has no event {word}; {} of this host has it", pmu.name, others.join(", "));
        Some(Unresolved::new(Missing::AbsentOnHost, reason, format!("write {first}/{word}/")))
    }

    /// Returns the error for an event of other CPU models than that of these PMUs.
    fn of_other_models(&self, word: &str, pmus: &[&Pmu]) -> Option<Unresolved> {
        let models = vendor::models_with(&word.to_ascii_lowercase());
        if models.is_empty() {
            return None;
        }
        let others = models.join(", ");
        let reason = match self.models.first() {
            Some((_, table)) => format!("{} has no such event; {others} have it", table.model.name),
            None if self.has_core_pmu() => format!("no event table for this CPU; {others} have this event"),
            None => format!("this host has no hardware counters; {others} have this event"),
        };
        let remedy = match known::generic_of(&word.to_ascii_lowercase()).filter(|_| self.has_core_pmu()) {
            Some(generic) => format!("the closest event of this host is {generic}"),
            None => "run perf-exporter list to see the events of this host".to_owned(),
        };
        let near = self.nearest_of_vendor(word, pmus);
        Some(Unresolved::new(Missing::AbsentOnHost, reason, remedy).meant(near))
    }

    /// Returns the closest name in the vendor's tables for these PMUs.
    fn nearest_of_vendor(&self, word: &str, pmus: &[&Pmu]) -> Option<String> {
        let word = word.to_ascii_lowercase();
        let tables = pmus.iter().filter_map(|pmu| Some((pmu, self.vendor(pmu)?)));
        let names: BTreeSet<&str> = tables
            .flat_map(|(pmu, table)| table.events_of(&pmu.name, pmu.core))
            .map(|event| event.name)
            .collect();
        pattern::nearest(&word, names).map(str::to_owned)
    }

    pub(super) fn unknown_pmu(&self, word: &str) -> Unresolved {
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

    /// Returns the error for a PMU that exists on other hosts.
    fn absent_pmu(&self, pmu: &str) -> Unresolved {
        let what = known::pmu(pmu).map(|what| format!(": {what}")).unwrap_or_default();
        let remedy = if self.facts.virtual_machine {
            "a virtual machine has only the PMUs that its hypervisor exposes; measure on its host"
        } else {
            "load the driver if this machine has the hardware, or remove the event"
        };
        Unresolved::new(Missing::AbsentOnHost, format!("this host has no PMU {pmu}{what}"), remedy)
    }
}
