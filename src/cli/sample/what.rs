//! Conversion of options into a sampler for this host.

use std::sync::Arc;
use std::time::Duration;

use super::SampleArgs;
use crate::cli::foreseen;
use crate::cli::observe::{Failure, Subject};
use crate::config::Profiled;
use crate::config::profiled::{LIMIT, Rate, SampledTargets, Source, one_event};
use crate::event::{Catalog, Event, syntax};
use crate::health::{Refusal, Scope};
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
        None => of_event(args, user_only, catalog)?,
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

fn of_event(args: &SampleArgs, user_only: bool, catalog: &Catalog) -> Result<(Arc<str>, Source), Failure> {
    let rate = rate(args, catalog)?;
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
    catalog.resolve_permitted(event, user_only).map_err(|unresolved| match unresolved.cause.is_mistake() {
        true => Failure::Usage(anyhow::Error::new(unresolved).context("-e")),
        false => Failure::Nothing(vec![plan::refusal(event, &unresolved)]),
    })
}

fn rate(args: &SampleArgs, catalog: &Catalog) -> Result<Rate, Failure> {
    if let Some(period) = args.period {
        return Ok(Rate::Period(period));
    }
    let frequency = args.frequency;
    match catalog.facts().max_sample_rate {
        Some(most) if frequency > most => Err(Failure::Usage(anyhow::anyhow!(
            "-F {frequency}: this kernel allows at most {most} samples per second; use a lower frequency, or set sysctl \
             kernel.perf_event_max_sample_rate={frequency}"
        ))),
        _ => Ok(Rate::Frequency(frequency)),
    }
}
