//! `probe --list`: the probes defined in the kernel, with their owners.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;

use super::{ProbeArgs, Wanted};
use crate::error::printable;
use crate::host::Roots;
use crate::probe::ProbeKind;
use crate::probe::argument::Site;
use crate::probe::tracefs::{Life, Listed, Owner, Probes};

/// One probe.
#[derive(Debug, Serialize)]
struct Row {
    event: String,
    kind: &'static str,
    place: String,
    arguments: Vec<String>,
    owner: ProbeOwner,
    /// Process ID of the owning exporter, in its own PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// State of the owning exporter: `alive`, `gone` or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// The owner of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProbeOwner {
    /// A user, with `probe --add`.
    Person,
    /// An exporter, for its configuration.
    Exporter,
    /// Another program, such as perf.
    Other,
}

impl ProbeOwner {
    /// Determines the owner by the probe group.
    pub(super) fn of(group: &str, lasting: &Probes) -> Self {
        if *group == **lasting.group() {
            Self::Person
        } else if Owner::of_group(group).is_some() {
            Self::Exporter
        } else {
            Self::Other
        }
    }
}

/// Returns all probes defined in the kernel.
pub(super) fn probes(roots: &Roots, lasting: &Probes) -> anyhow::Result<Vec<Listed>> {
    let listed = lasting.list().map_err(|error| anyhow::anyhow!("{error}: listing probes requires root"))?;
    if listed.is_empty() {
        // An empty list is only valid if the kernel supports probes.
        let kinds = [Site::User, Site::Kernel].map(|site| lasting.check(site));
        if let [Err(refusal), Err(_)] = &kinds
            && !roots.tracing.join("uprobe_events").exists()
        {
            return Err(refusal.clone().into());
        }
    }
    Ok(listed)
}

/// Prints the probes.
pub(super) fn list(args: &ProbeArgs, wanted: &Wanted, roots: &Roots) -> anyhow::Result<ExitCode> {
    let lasting = Probes::lasting(roots);
    let mut lives: BTreeMap<Arc<str>, Life> = BTreeMap::new();
    let mut rows = Vec::new();
    for probe in probes(roots, &lasting)? {
        let event = format!("{}:{}", probe.system, probe.event);
        if !wanted.includes(&event) {
            continue;
        }
        let owner = Owner::of_group(&probe.system);
        let state = owner.map(|owner| {
            lives.entry(Arc::clone(&probe.system)).or_insert_with(|| owner.life(roots)).as_str()
        });
        rows.push(Row {
            kind: probe.kind.as_str(),
            place: place(&probe),
            arguments: probe.arguments.iter().map(ToString::to_string).collect(),
            owner: ProbeOwner::of(&probe.system, &lasting),
            pid: owner.map(|owner| owner.pid()),
            state,
            event,
        });
    }
    let shown = rows.iter().take(args.limit);
    Ok(args.output.print(shown, |out, shown| write(out, shown, rows.is_empty())))
}

/// Returns the location of a probe, without leading zeros of its offset.
pub(super) fn place(probe: &Listed) -> String {
    let is_user = matches!(probe.kind, ProbeKind::Uprobe | ProbeKind::Uretprobe);
    match probe.place.rsplit_once(":0x").filter(|_| is_user) {
        Some((path, offset)) => match offset.trim_start_matches('0') {
            "" => format!("{path}:0x0"),
            offset => format!("{path}:0x{offset}"),
        },
        None => probe.place.to_string(),
    }
}

/// Writes the probes as text.
fn write<'r>(out: &mut dyn Write, rows: impl Iterator<Item = &'r Row>, none: bool) -> io::Result<()> {
    for row in rows {
        let Row { event, kind, place, arguments, .. } = row;
        let with = arguments.join(" ");
        let with = if with.is_empty() { with } else { format!(" with {with}") };
        writeln!(out, "{event:<40} {kind:<9} {}{}", printable(place), printable(&with))?;
        if let Some(owner) = owner(row) {
            writeln!(out, "    {owner}")?;
        }
    }
    if none { writeln!(out, "no probes") } else { Ok(()) }
}

/// Describes the owner, if it is not another program.
fn owner(row: &Row) -> Option<String> {
    let pid = row.pid.unwrap_or_default();
    match (row.owner, row.state) {
        (ProbeOwner::Exporter, Some("alive")) => {
            Some(format!("owned by the exporter with pid {pid}, which removes it when it stops"))
        }
        (ProbeOwner::Exporter, Some("gone")) => Some(format!(
            "owned by the exporter with pid {pid}, which has ended: the next exporter that starts removes it"
        )),
        (ProbeOwner::Exporter, _) => Some(format!(
            "owned by an exporter with pid {pid}, maybe in a container: its state is not visible from this PID namespace"
        )),
        (ProbeOwner::Person, _) => {
            Some("added with perf-exporter probe --add; remove it with --del".to_owned())
        }
        (ProbeOwner::Other, _) => None,
    }
}
