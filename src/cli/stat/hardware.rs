//! Events that only some processors have: transactional memory.

use crate::event::{Catalog, Event, parse, syntax};

/// Events of transactional memory: always, and where the PMU has both others.
const TRANSACTION: [&str; 2] = ["cycles-t", "tx-start"];
const TRANSACTION_MORE: [&str; 2] = ["el-start", "cycles-ct"];

/// Returns the events of `-T`.
///
/// # Errors
/// If no core PMU of this host has them.
pub(super) fn transaction(catalog: &Catalog) -> anyhow::Result<Vec<syntax::Group>> {
    let Some(pmu) = pmu_with(catalog, &TRANSACTION) else {
        anyhow::bail!(
            "-T: this host has no core PMU with the events {}; Intel processors with TSX have them: \
             Haswell to Cascade Lake, and Xeon since then, unless the firmware or the kernel (tsx=off) disables TSX",
            TRANSACTION.join(", ")
        );
    };
    let more: &[&str] = if has_all(catalog, &pmu, &TRANSACTION_MORE) { &TRANSACTION_MORE } else { &[] };
    let terms = terms(&pmu, &[&TRANSACTION, more].concat());
    Ok(groups(&format!("task-clock,{{instructions,cycles,{terms}}}")))
}

/// Returns the name of the core PMU that has all `events`.
fn pmu_with(catalog: &Catalog, events: &[&str]) -> Option<String> {
    let first = resolved(catalog, "cpu", events.first()?)?;
    // The PMU has a name only on hybrid machines.
    let pmu = first.pmu.map_or_else(|| "cpu".to_owned(), |pmu| pmu.to_string());
    has_all(catalog, &pmu, events).then_some(pmu)
}

fn has_all(catalog: &Catalog, pmu: &str, events: &[&str]) -> bool {
    events.iter().all(|event| resolved(catalog, pmu, event).is_some())
}

fn resolved(catalog: &Catalog, pmu: &str, event: &str) -> Option<Event> {
    let groups = parse(&format!("{pmu}/{event}/")).ok()?;
    catalog.resolve(groups.first()?.events.first()?).ok()?.into_iter().next()
}

fn terms(pmu: &str, events: &[&str]) -> String {
    let terms: Vec<String> = events.iter().map(|event| format!("{pmu}/{event}/")).collect();
    terms.join(",")
}

fn groups(text: &str) -> Vec<syntax::Group> {
    // Tests check that the events parse.
    parse(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stat::tests::testing::machine_with;
    use crate::host::{Facts, Roots};

    fn texts(groups: &[syntax::Group]) -> Vec<String> {
        groups.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn transactions_have_more_events_where_the_pmu_counts_elision() {
        let (_dir, full) = machine_with("cpu", &["cycles-t", "cycles-ct", "tx-start", "el-start"]);
        let found = texts(&transaction(&full).unwrap());
        assert_eq!(found[0], "task-clock");
        assert!(found[1].ends_with("cpu/cycles-t/,cpu/tx-start/,cpu/el-start/,cpu/cycles-ct/}"), "{found:?}");
        let (_dir, limited) = machine_with("cpu", &TRANSACTION);
        assert!(texts(&transaction(&limited).unwrap())[1].ends_with("cpu/cycles-t/,cpu/tx-start/}"));
    }

    #[test]
    fn a_refusal_names_the_hardware() {
        let empty = Catalog::load(&Roots::under(std::path::Path::new("/nonexistent")), &Facts::default());
        assert!(transaction(&empty).unwrap_err().to_string().contains("TSX"));
    }
}
