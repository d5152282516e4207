//! `probe --list`: the probes that the kernel holds, and whose they are.

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
    owner: Whose,
    /// The exporter that it is of, as that numbers itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// Whether that still runs: `alive`, `gone`, or `unknown`.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// Who made a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Whose {
    /// Somebody with `probe --add`.
    Person,
    /// An exporter, for its configuration.
    Exporter,
    /// Something else, such as perf.
    Other,
}

impl Whose {
    /// By the group.
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

/// Every probe that is there.
pub(super) fn probes(roots: &Roots, lasting: &Probes) -> anyhow::Result<Vec<Listed>> {
    let listed = lasting.list().map_err(|error| anyhow::anyhow!("{error}: probes are root's to see"))?;
    if listed.is_empty() {
        // None is an answer only where there can be some.
        let kinds = [Site::User, Site::Kernel].map(|site| lasting.check(site));
        if let [Err(refusal), Err(_)] = &kinds
            && !roots.tracing.join("uprobe_events").exists()
        {
            return Err(refusal.clone().into());
        }
    }
    Ok(listed)
}

/// Shows them.
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
            owner: Whose::of(&probe.system, &lasting),
            pid: owner.map(|owner| owner.pid()),
            state,
            event,
        });
    }
    let shown = rows.iter().take(args.limit);
    Ok(args.output.print(shown, |out, shown| write(out, shown, rows.is_empty())))
}

/// Where a probe is, without the zeros that the kernel prints in front of an offset.
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

/// Writes them for people.
fn write<'r>(out: &mut dyn Write, rows: impl Iterator<Item = &'r Row>, none: bool) -> io::Result<()> {
    for row in rows {
        let Row { event, kind, place, arguments, .. } = row;
        let with = arguments.join(" ");
        let with = if with.is_empty() { with } else { format!(" with {with}") };
        writeln!(out, "{event:<40} {kind:<9} {}{}", printable(place), printable(&with))?;
        if let Some(whose) = whose(row) {
            writeln!(out, "    {whose}")?;
        }
    }
    if none { writeln!(out, "no probes") } else { Ok(()) }
}

/// Whose a probe is, if it is not what everybody takes it for.
fn whose(row: &Row) -> Option<String> {
    let pid = row.pid.unwrap_or_default();
    match (row.owner, row.state) {
        (Whose::Exporter, Some("alive")) => {
            Some(format!("of the exporter with pid {pid}, which removes it when it stops"))
        }
        (Whose::Exporter, Some("gone")) => Some(format!(
            "of the exporter with pid {pid}, which is gone: the next one that starts removes it"
        )),
        (Whose::Exporter, _) => Some(format!(
            "of an exporter with pid {pid}, perhaps in a container: whether it runs cannot be seen from here"
        )),
        (Whose::Person, _) => Some("added with perf-exporter probe, and removed with --del".to_owned()),
        (Whose::Other, _) => None,
    }
}
