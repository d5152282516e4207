//! Conversion of options into a sampler of memory accesses.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use super::AccessRecordArgs;
use crate::cli::observe::{Failure, Subject};
use crate::cli::sample::rate;
use crate::config::profiled::{SampledTargets, Unwind};
use crate::event::memory::MemoryEvent;
use crate::event::{Catalog, Event, Modes, Precise, parse};
use crate::host::KernelVersion;
use crate::plan::{MemoryFields, Sampler, Value};

/// First version of the kernel with several parts of weights.
const SPLIT_WEIGHTS: KernelVersion = KernelVersion(5, 12);

/// Returns the sampler of `events` for `subject`.
///
/// # Errors
/// If the kernel does not allow the rate, or does not have an event in the requested mode.
pub(super) fn sampler(
    args: &AccessRecordArgs,
    events: Vec<MemoryEvent>,
    physical: bool,
    subject: &Subject,
    catalog: &Catalog,
) -> Result<Sampler, Failure> {
    let facts = catalog.facts();
    let modes = match (args.all_user, args.all_kernel) {
        (true, _) => Modes::User,
        (_, true) => Modes::Kernel,
        _ => Modes::permitted(subject.user_space_only(facts)),
    };
    let mut memory = MemoryFields { physical, is_split: facts.kernel >= SPLIT_WEIGHTS, leaders: Vec::new() };
    let mut resolved = Vec::new();
    for MemoryEvent { text, precise, has_modes, leader } in events {
        let modes = match (has_modes, modes) {
            (true, modes) => modes,
            (false, Modes::All | Modes::PermittedUser) => Modes::All,
            (false, Modes::User | Modes::Kernel) => {
                return Err(Failure::Usage(anyhow::anyhow!(
                    "{text} cannot distinguish programs and the kernel: omit --all-user and --all-kernel"
                )));
            }
        };
        let leader = leader.map(|text| one(&text, 0, modes, catalog)).transpose()?;
        let event = one(&text, precise, modes, catalog)?;
        memory.leaders.extend(leader.map(|leader| (Arc::clone(&event.name), leader)));
        resolved.push(event);
    }
    Ok(Sampler {
        entry: "memory".into(),
        events: resolved,
        rate: rate((args.frequency, args.period), subject, facts)?,
        value: Value { name: "weight".into(), nanoseconds: false },
        period: None,
        waits: None,
        unwind: if args.chains { Unwind::FramePointers } else { Unwind::Nothing },
        lines: false,
        targets: SampledTargets::default(),
        tells_cgroup: false,
        cpus: false,
        per: None,
        functions: 0,
        window: Duration::ZERO,
        memory: Some(memory),
    })
}

/// Resolves an event of one PMU with this precision.
fn one(text: &str, precise: u8, modes: Modes, catalog: &Catalog) -> Result<Event, Failure> {
    let mode = match modes {
        Modes::All => "",
        Modes::User | Modes::PermittedUser => "u",
        Modes::Kernel => "k",
    };
    let text = format!("{text}{}{mode}", if precise > 0 { "P" } else { "" });
    let parsed = parse(&text).map_err(anyhow::Error::from)?;
    let parsed = parsed.first().and_then(|group| group.events.first());
    let parsed = parsed.with_context(|| format!("{text} is not an event"))?;
    let mut events = catalog.resolve_in(parsed, modes).map_err(anyhow::Error::from)?;
    let mut event = events.pop().with_context(|| format!("{text} is not an event of this machine"))?;
    // As perf writes it.
    event.name = text.into();
    event.modifiers.precise = if precise > 0 { Precise::Level(precise) } else { Precise::Any };
    Ok(event)
}
