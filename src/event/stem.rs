//! Metric name stems: the event's part of `perf_cpu_<stem>_total`.

use std::fmt::Write as _;

use super::syntax::{Term, TermValue};
use super::{Modifiers, digits};

/// Maximum length of a stem, in bytes. Prometheus has no limit, but long names clutter dashboards.
const LIMIT: usize = 120;

/// Converts text to lower snake case: letters and digits, joined by single underscores, none at the ends. Text without letters and digits
/// becomes empty.
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

/// Returns the stem of an event: its alias, or its name with a suffix for its modifiers.
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

/// Returns the suffix for a restricted count: `_user`, `_kernel`, `_hv`, `_guest`, `_host`. Modifiers for sampling and scheduling do not
/// change the meaning of a count, and have no suffix.
fn suffix(modifiers: &Modifiers) -> String {
    let Modifiers {
        exclude_user, exclude_kernel, exclude_hv, exclude_idle, exclude_host, exclude_guest, ..
    } = *modifiers;
    let modes = exclude_user || exclude_kernel || exclude_hv;
    let words = [
        (modes && !exclude_user, "_user"),
        (modes && !exclude_kernel, "_kernel"),
        (modes && !exclude_hv, "_hv"),
        (exclude_idle, "_busy"),
        (exclude_host, "_guest"),
        (exclude_guest, "_host"),
    ];
    words.into_iter().filter(|(is_said, _)| *is_said).map(|(_, word)| word).collect()
}

/// Returns a PMU's name without its instance number: `uncore_imc` for `uncore_imc_0`, `smmuv3_pmcg` for `smmuv3_pmcg_ff88840`. Hexadecimal
/// numbers have at least five digits, because `a53` in `armv8_cortex_a53` is not an instance number.
pub(super) fn without_instance(pmu: &str) -> &str {
    match pmu.rsplit_once('_') {
        Some((family, number)) if !family.is_empty() && is_instance(number) => family,
        _ => pmu,
    }
}

fn is_instance(number: &str) -> bool {
    digits(number, 10).is_some() || (number.len() >= 5 && digits(number, 16).is_some())
}

/// Returns the name of a PMU event: the PMU's family and the terms, with numbers in hexadecimal.
pub(super) fn called(family: &str, terms: &[Term]) -> String {
    let mut called = family.to_owned();
    for Term { name, value } in terms {
        let written = match value {
            None => write!(called, "_{name}"),
            Some(TermValue::Number(number)) => write!(called, "_{name}_{number:#x}"),
            Some(TermValue::Text(text)) => write!(called, "_{name}_{text}"),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    called
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn with(letters: &str) -> String {
        stem(None, "L1-dcache-loads", &Modifiers::from_letters(letters))
    }

    #[test]
    fn a_stem_says_what_is_counted_if_it_is_not_everything() {
        for (letters, expected) in [
            ("", "l1_dcache_loads"),
            ("u", "l1_dcache_loads_user"),
            ("k", "l1_dcache_loads_kernel"),
            ("uk", "l1_dcache_loads_user_kernel"),
            ("ukh", "l1_dcache_loads"),
            ("hG", "l1_dcache_loads_hv_guest"),
            ("HI", "l1_dcache_loads_busy_host"),
            ("pppSWDe", "l1_dcache_loads"),
        ] {
            assert_eq!(with(letters), expected, "{letters}");
        }
    }

    #[test]
    fn an_alias_is_the_whole_stem() {
        let user = Modifiers::from_letters("u");
        assert_eq!(stem(Some("My cycles!"), "cycles", &user), "my_cycles");
        assert_eq!(stem(Some("!?"), "cycles", &user), "cycles_user");
    }

    #[test]
    fn siblings_share_a_family_and_models_of_cores_do_not() {
        for (pmu, family) in [
            ("uncore_imc_0", "uncore_imc"),
            ("uncore_imc_free_running_1", "uncore_imc_free_running"),
            ("smmuv3_pmcg_ff88840", "smmuv3_pmcg"),
            ("armv8_cortex_a53", "armv8_cortex_a53"),
            ("armv8_pmuv3_0", "armv8_pmuv3"),
            ("amd_l3", "amd_l3"),
            ("cpu_core", "cpu_core"),
            ("_0", "_0"),
        ] {
            assert_eq!(without_instance(pmu), family);
        }
    }

    proptest! {
        #[test]
        fn whatever_an_event_is_called_its_stem_fits_into_a_metrics_name(alias in prop::option::of(".{0,300}"), called in ".{0,300}", letters in "[ukhGHI]{0,4}") {
            let stem = stem(alias.as_deref(), &called, &Modifiers::from_letters(&letters));
            prop_assert!(!stem.is_empty() && stem.len() <= LIMIT, "{stem}");
            prop_assert!(stem.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{stem}");
            prop_assert!(!stem.contains("__") && !stem.starts_with('_') && !stem.ends_with('_'), "{stem}");
        }
    }
}
