//! The names of metrics: what an event is called in `perf_cpu_<stem>_total`.

use std::fmt::Write as _;

use super::Modifiers;
use super::syntax::{Name, Term, TermValue};

/// The longest stem, in bytes. (Prometheus has no limit; dashboards do.)
const LIMIT: usize = 120;

/// Text in lower snake case: letters and digits, single underscores between them, none at the ends. Text of nothing
/// else becomes empty.
pub(super) fn snake(text: &str) -> String {
    let mut stem = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            stem.push(c.to_ascii_lowercase());
        } else if !stem.is_empty() && !stem.ends_with('_') {
            stem.push('_');
        }
        if stem.len() >= LIMIT {
            break;
        }
    }
    stem.truncate(stem.trim_end_matches('_').len());
    stem
}

/// The stem of an event: its alias as it is, or what it is called with what its modifiers leave of it.
pub(super) fn stem(alias: Option<&str>, called: &str, modifiers: &Modifiers) -> String {
    let alias = alias.map(snake).filter(|alias| !alias.is_empty());
    alias.unwrap_or_else(|| {
        let suffix = suffix(modifiers);
        let mut stem = snake(called);
        stem.truncate(LIMIT - suffix.len());
        stem.truncate(stem.trim_end_matches('_').len());
        if stem.is_empty() { format!("event{suffix}") } else { stem + &suffix }
    })
}

/// `_user`, `_kernel`, `_hv`, `_guest`, `_host` for what is counted if it is not everything. The letters about
/// sampling and scheduling do not change what a count means, and have no suffix.
fn suffix(modifiers: &Modifiers) -> String {
    let Modifiers {
        exclude_user, exclude_kernel, exclude_hv, exclude_idle, exclude_host, exclude_guest, ..
    } = *modifiers;
    let mut suffix = String::new();
    if exclude_user || exclude_kernel || exclude_hv {
        for (excluded, word) in [(exclude_user, "_user"), (exclude_kernel, "_kernel"), (exclude_hv, "_hv")] {
            if !excluded {
                suffix.push_str(word);
            }
        }
    }
    for (only, word) in [(exclude_idle, "_busy"), (exclude_host, "_guest"), (exclude_guest, "_host")] {
        if only {
            suffix.push_str(word);
        }
    }
    suffix
}

/// A PMU's name without the number that tells it from its siblings: `uncore_imc_0` is one of the `uncore_imc`, and
/// `smmuv3_pmcg_ff88840` one of the `smmuv3_pmcg`. Hexadecimal numbers have at least five digits, for
/// `armv8_cortex_a53` has none.
pub(super) fn without_instance(pmu: &str) -> &str {
    match pmu.rsplit_once('_') {
        Some((family, number)) if !family.is_empty() && is_instance(number) => family,
        _ => pmu,
    }
}

fn is_instance(number: &str) -> bool {
    let decimal = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    decimal || (number.len() >= 5 && number.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// What a PMU event is called: the PMU's family and its terms, numbers in hexadecimal.
pub(super) fn called(family: &str, terms: &[Term]) -> String {
    let mut called = family.to_owned();
    for Term { name, value } in terms {
        let written = match value {
            None => write!(called, "_{name}"),
            Some(TermValue::Number(number)) => write!(called, "_{name}_{number:#x}"),
            Some(TermValue::Text(text)) => write!(called, "_{name}_{text}"),
        };
        debug_assert!(written.is_ok(), "a String takes everything");
    }
    called
}

/// What an event without a PMU and without a generic name is called.
pub(super) fn called_by_number(name: &Name) -> String {
    match name {
        Name::Raw(config) => format!("r{config:x}"),
        Name::Numeric { kind, config } => format!("type_{kind}_config_{config:#x}"),
        Name::Breakpoint { address, length, access } => {
            let length = length.map(|length| format!("_{length}")).unwrap_or_default();
            format!("mem_{address:#x}{length}_{access}")
        }
        Name::Symbol(name) => name.to_string(),
        Name::Tracepoint { system, event } => format!("{system}_{event}"),
        Name::Pmu { pmu, terms } => called(pmu, terms),
    }
}
