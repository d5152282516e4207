//! `probe NAME`, `--add` and `--del`: persistent probes in the group `perf_exporter`. Probes of perf are removed if their group is given,
//! and probes of exporters never.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;

use super::entry::Entry;
use super::listed::{self, ProbeOwner};
use super::{ProbeArgs, Source, note};
use crate::cli::observe::Failure;
use crate::cli::{FAILED, Output};
use crate::host::Roots;
use crate::probe::Request;
use crate::probe::install::{ConfiguredProbe, definitions};
use crate::probe::tracefs::{Listed, Probes};
use crate::targets::Glob;

/// A probe that was added, or would be with `--dry-run`.
#[derive(Debug, Serialize)]
struct AddedProbe {
    event: String,
    /// The definition for the kernel.
    definition: String,
    yaml: String,
}

/// Adds the requested probes. Each succeeds or fails independently.
pub(super) fn add(
    args: &ProbeArgs,
    definitions: &[String],
    source: Option<&Source>,
    roots: &Roots,
) -> Result<ExitCode, Failure> {
    let mut probes = Probes::lasting(roots);
    let file = source.map(|source| (source.path.as_str(), &source.root));
    let mut requests = Vec::new();
    for text in definitions {
        let request = Request::parse(text, file);
        let request = request.map_err(|error| Failure::Usage(anyhow::anyhow!("--add: {error:#}")))?;
        if let Some(group) = request.group.as_ref().filter(|group| *group != probes.group()) {
            return Err(Failure::Usage(anyhow::anyhow!(
                "--add {text}: probes are always added to the group {}, which identifies their owner: omit \
                 {group}:",
                probes.group()
            )));
        }
        requests.push((text, request));
    }
    let (mut made, mut failed) = (Vec::new(), false);
    for (text, request) in requests {
        match one(&request, args.dry_run, roots, &mut probes) {
            Ok(new) => made.extend(new),
            Err(error) => {
                note(&format!("--add {text}: {error:#}"));
                failed = true;
            }
        }
    }
    let code = args.output.print(&made, |out, made| write_made(out, made, args.dry_run));
    Ok(if failed { ExitCode::from(FAILED) } else { code })
}

/// Adds one probe at all of its locations, or at none.
fn one(
    request: &Request,
    dry_run: bool,
    roots: &Roots,
    probes: &mut Probes,
) -> anyhow::Result<Vec<AddedProbe>> {
    let Request { event, definition, .. } = request;
    let configured = ConfiguredProbe {
        section: "probes",
        name: Arc::clone(event),
        definition: definition.clone(),
        timed: false,
        filtered: false,
    };
    // `found` keeps the file open until the kernel has read the definitions.
    let found = definitions(&configured, &crate::cli::files(roots));
    let found = found.map_err(|refusal| anyhow::anyhow!("{}", refusal.why()))?;
    let mut made: Vec<AddedProbe> = Vec::new();
    let yaml = Entry::new(event, definition, "").to_string();
    for (place, line) in found.lines.iter().enumerate() {
        let added = match (dry_run, place) {
            (false, _) => probes.add(event, line).map(|added| added.event),
            (true, 0) => probes.free_name(event),
            (true, _) => probes.free_name(&format!("{event}_{place}")),
        };
        let event = added.inspect_err(|_| remove_added(&made, probes))?;
        let group = probes.group();
        let definition = line.definition(group, &event);
        made.push(AddedProbe { event: format!("{group}:{event}"), definition, yaml: yaml.clone() });
    }
    Ok(made)
}

fn remove_added(made: &[AddedProbe], probes: &mut Probes) {
    for AddedProbe { event, .. } in made {
        let name = event.split_once(':').map_or(&**event, |(_, name)| name);
        if let Err(refusal) = probes.remove(name) {
            note(&format!("{event}: cannot roll back the probe: {refusal}"));
        }
    }
}

fn write_made(out: &mut dyn Write, made: &[AddedProbe], dry_run: bool) -> io::Result<()> {
    if dry_run {
        return made.iter().try_for_each(|row| writeln!(out, "{}", row.definition));
    }
    for row in made {
        writeln!(out, "Added {}: {}", row.event, row.definition)?;
    }
    if let Some(row) = made.first() {
        let event = &row.event;
        writeln!(out, "\nCount it: perf-exporter stat -a -e {event}")?;
        writeln!(out, "Record it: perf record -e {event} -a")?;
        writeln!(out, "Remove it: perf-exporter probe --del {event} (a reboot removes it too)")?;
        writeln!(out, "In the configuration (--add is not needed): probes: {{{}}}", row.yaml)?;
    }
    Ok(())
}

/// Removes probes of the group. Each pattern and each probe succeeds or fails independently.
pub(super) fn remove(args: &ProbeArgs, roots: &Roots) -> anyhow::Result<ExitCode> {
    let mut probes = Probes::lasting(roots);
    let listed = listed::probes(roots, &probes)?;
    let mut failed = false;
    let mut out = io::stdout().lock();
    for text in &args.del {
        let found = match matching(text, &listed, &probes) {
            Ok(found) => found,
            Err(error) => {
                note(&format!("--del {text}: {error:#}"));
                failed = true;
                continue;
            }
        };
        for probe in found {
            let Listed { system, event, .. } = probe;
            if args.dry_run {
                writeln!(out, "-:{system}/{event}")?;
                continue;
            }
            let name = format!("{system}:{event}");
            match probes.remove_listed(probe) {
                Ok(()) if args.output == Output::Json => {
                    writeln!(out, "{}", serde_json::json!({"removed": name}))?;
                }
                Ok(()) => writeln!(out, "Removed {name}")?,
                Err(refusal) => {
                    note(&format!("--del {name}: {refusal}"));
                    failed = true;
                }
            }
        }
    }
    Ok(if failed { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

/// Returns the probes that match `[GROUP:]EVENT`: those of the own group, and those of perf if the group is given.
fn matching<'l>(text: &str, listed: &'l [Listed], probes: &Probes) -> anyhow::Result<Vec<&'l Listed>> {
    let (group, name) = text.split_once(':').map_or((None, text), |(group, name)| (Some(group), name));
    let (group, glob) = (group.map(Glob::new).transpose()?, Glob::new(name)?);
    let is_meant = |probe: &&Listed| {
        group.as_ref().is_none_or(|group| group.matches_name(&probe.system))
            && glob.matches_name(&probe.event)
    };
    let may_remove =
        |probe: &&Listed| probe.system == *probes.group() || (group.is_some() && is_of_perf(&probe.system));
    let (mut found, others): (Vec<&Listed>, Vec<&Listed>) =
        listed.iter().filter(is_meant).partition(may_remove);
    // The kernel lists a probe with several locations once for each.
    found.dedup_by(|one, other| (&one.system, &one.event) == (&other.system, &other.event));
    match (found.is_empty(), others.first()) {
        (false, _) => Ok(found),
        (true, Some(other)) => Err(not_owned(other, probes)),
        (true, None) => Err(anyhow::anyhow!(
            "the group {} has no such probe; run perf-exporter probe --list to list all probes",
            group.as_ref().map_or(&**probes.group(), Glob::as_str)
        )),
    }
}

/// Reports whether a group is one that `perf probe` chooses: `probe`, `probe_libc`.
fn is_of_perf(group: &str) -> bool {
    group == "probe" || group.starts_with("probe_")
}

fn not_owned(probe: &Listed, probes: &Probes) -> anyhow::Error {
    let Listed { system, event, .. } = probe;
    match ProbeOwner::of(system, probes) {
        ProbeOwner::Exporter => anyhow::anyhow!(
            "{system}:{event} belongs to an exporter, which removes it when it stops; if the exporter was killed, \
             the next exporter that starts removes it"
        ),
        _ => anyhow::anyhow!(
            "{system}:{event} was not created by perf-exporter; for a probe of perf, give its group: --del {system}:{event}"
        ),
    }
}
