//! Conversion of options into a sampler for this host.

use std::sync::Arc;
use std::time::Duration;

use super::SampleArgs;
use crate::cli::foreseen;
use crate::cli::observe::{Failure, Subject};
use crate::config::Profiled;
use crate::config::profiled::{LIMIT, Rate, SampledTargets, Source, one_event};
use crate::event::{Catalog, Event, Modes, syntax};
use crate::health::{Refusal, Scope};
use crate::host::Facts;
use crate::plan::{self, Entries, Sampler};

/// Returns the sampler for `subject`. `window` is the time that profiles cover.
///
/// # Errors
/// If the event is invalid, or if this host does not have it.
pub(in crate::cli) fn sampler(
    args: &SampleArgs,
    subject: &Subject,
    catalog: &Catalog,
    window: Duration,
) -> Result<Sampler, Failure> {
    let user_only = subject.user_space_only(catalog.facts());
    let (name, source) = match args.off_cpu {
        Some(threshold) => ("off_cpu".into(), Source::OffCpu { threshold, limit: LIMIT }),
        None => of_event(args, subject, user_only, catalog)?,
    };
    let (unwind, targets) = (args.call_graph, SampledTargets::default());
    let profiled =
        Profiled { name, source, unwind, lines: args.inlined, targets, per: None, functions: 0, window };
    // There is no filter, therefore no filter error is possible.
    plan::sampler(&profiled, catalog, &Entries::counters(&[])).map_err(|refused| {
        let plan::Refused { refusal, mistake, .. } = *refused;
        match mistake {
            true => Failure::Usage(anyhow::anyhow!("{}: {}", refusal.event, refusal.reason)),
            false => Failure::Nothing(vec![refusal]),
        }
    })
}

fn of_event(
    args: &SampleArgs,
    subject: &Subject,
    user_only: bool,
    catalog: &Catalog,
) -> Result<(Arc<str>, Source), Failure> {
    let rate = rate((args.frequency, args.period), subject, catalog.facts())?;
    // The default event of perf.
    let by_default = if catalog.has_core_pmu() { "cycles" } else { "cpu-clock" };
    let event = args.event.clone().map_or_else(|| one_event(by_default), Ok).map_err(anyhow::Error::from)?;
    for found in resolved(&event, user_only, catalog)? {
        if let Some(refusal) = foreseen(&found.name, found.kind, Scope::HOST, catalog) {
            let instead = "use -e cpu-clock to sample time without hardware counters";
            let remedy = match refusal.remedy {
                Some(remedy) => format!("{instead}; or {remedy}"),
                None => instead.into(),
            };
            return Err(Failure::Nothing(vec![Refusal { remedy: Some(remedy), ..refusal }]));
        }
    }
    // An explicit modifier takes precedence.
    let kernel = !user_only || event.modifiers.contains(['u', 'k', 'h']);
    Ok((event.to_string().into(), Source::Event { event, filter: None, rate, kernel, idle: false }))
}

/// Resolves an event on this host.
fn resolved(event: &syntax::Event, user_only: bool, catalog: &Catalog) -> Result<Vec<Event>, Failure> {
    catalog.resolve_in(event, Modes::permitted(user_only)).map_err(|unresolved| {
        match unresolved.cause.is_mistake() {
            true => Failure::Usage(anyhow::Error::new(unresolved).context("-e")),
            false => Failure::Nothing(vec![plan::refusal(event, &unresolved)]),
        }
    })
}

/// Samples per second by default.
const FREQUENCY: u64 = 99;

/// Samples per second of a command by default, as in `perf record`.
const FREQUENCY_OF_COMMAND: u64 = 4000;

/// Returns the default frequency for `subject`, and whether the kernel's maximum is lower.
fn default_frequency(subject: &Subject, facts: &Facts) -> (u64, bool) {
    let usual = if matches!(subject, Subject::Command) { FREQUENCY_OF_COMMAND } else { FREQUENCY };
    let most = facts.max_sample_rate.map_or(usual, |most| most.max(1));
    (usual.min(most), most < usual)
}

/// Returns a message if the kernel's maximum lowers the default frequency for `subject`.
pub(in crate::cli) fn lowered(args: &SampleArgs, subject: &Subject, facts: &Facts) -> Option<String> {
    let chosen = args.frequency.is_some() || args.period.is_some() || args.off_cpu.is_some();
    let (frequency, lowered) = default_frequency(subject, facts);
    (lowered && !chosen).then(|| {
        format!(
            "sampling at {frequency} Hz, the kernel's maximum; set sysctl kernel.perf_event_max_sample_rate higher, or give -F"
        )
    })
}

/// Returns the rate for a frequency or a period on the command line, or the default for `subject`.
///
/// # Errors
/// If the kernel does not allow the frequency.
pub(in crate::cli) fn rate(
    (frequency, period): (Option<u64>, Option<u64>),
    subject: &Subject,
    facts: &Facts,
) -> Result<Rate, Failure> {
    if let Some(period) = period {
        return Ok(Rate::Period(period));
    }
    let Some(frequency) = frequency else {
        return Ok(Rate::Frequency(default_frequency(subject, facts).0));
    };
    match facts.max_sample_rate {
        Some(most) if frequency > most => Err(Failure::Usage(anyhow::anyhow!(
            "-F {frequency}: this kernel allows at most {most} samples per second; use a lower frequency, or set sysctl \
             kernel.perf_event_max_sample_rate={frequency}"
        ))),
        _ => Ok(Rate::Frequency(frequency)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::typed;
    use crate::host::CpuSet;

    #[test]
    fn a_command_is_sampled_as_often_as_by_perf_or_as_the_kernel_allows() {
        let facts = |max_sample_rate| Facts { max_sample_rate, ..Facts::default() };
        let machine = Subject::Machine { cpus: CpuSet::default(), chosen: false };
        for (subject, most, line, frequency, is_lowered) in [
            (&Subject::Command, Some(100_000), "", 4000, false),
            (&Subject::Command, None, "", 4000, false),
            (&Subject::Command, Some(1000), "", 1000, true),
            (&Subject::Command, Some(1000), "-F 99", 99, false),
            (&machine, Some(100_000), "", 99, false),
            (&machine, Some(50), "", 50, true),
        ] {
            let args: SampleArgs = typed(line).unwrap();
            let facts = facts(most);
            let Ok(Rate::Frequency(found)) = rate((args.frequency, args.period), subject, &facts) else {
                panic!("{line}")
            };
            assert_eq!(
                (found, lowered(&args, subject, &facts).is_some()),
                (frequency, is_lowered),
                "{most:?}"
            );
        }
        let args: SampleArgs = typed("-F 2000").unwrap();
        assert!(matches!(
            rate((args.frequency, args.period), &machine, &facts(Some(1000))),
            Err(Failure::Usage(_))
        ));
        let args: SampleArgs = typed("--off-cpu").unwrap();
        assert_eq!(lowered(&args, &Subject::Command, &facts(Some(1000))), None);
    }
}
