//! `perf-exporter list`: lists the events of this machine, whether each can be opened, and how to write it in the configuration.

mod category;
mod fields;
mod metrics;
mod presets;
mod sdt;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use self::category::{Category, Selection};
use self::fields::Records;
use super::wanted::Wanted;
use super::{FAILED, Output, USAGE, fail, foreseen};
use crate::config::{Counters, PmuSharing};
use crate::counter::Measurement;
use crate::event::{Catalog, Listed, parse};
use crate::health::{Refusal, Scope};
use crate::host::{Facts, Roots};
use crate::metrics::Level;
use crate::plan::{Entries, StreamSupport, plan};
use crate::sys::Budget;
use crate::sys::live::Live;
use crate::sys::usage;
use crate::targets::{OpenTarget, Targets};

#[derive(Debug, Clone, Args)]
pub(super) struct ListArgs {
    /// Show only events of this category, as for perf list: hw, sw, cache, tracepoint, pmu, sdt (USDT probes of running programs) or metric
    /// (metrics that are computed from events, for stat -M). Other words select by name: a part of it, or a pattern with * and ?.
    #[arg(value_name = "CATEGORY|PATTERN")]
    words: Vec<String>,
    /// Do not try to open the events, only list their names. Requires no privileges.
    #[arg(long)]
    no_open: bool,
    /// List the presets of the `presets` section and the metrics that each provides on this machine.
    #[arg(long)]
    presets: bool,
    /// Output format of the list.
    #[arg(long, value_name = "FORMAT", default_value = "text", value_enum)]
    output: Output,
    /// Print one JSON object per line: --output json.
    #[arg(long, short = 'j', conflicts_with = "output")]
    json: bool,
}

/// Value of [`Row::opens`] for an event that was not opened because of `--no-open`.
const NOT_TRIED: &str = "not tried";

/// One row of the list.
#[derive(Debug, Serialize)]
struct Row {
    event: String,
    aliases: &'static [&'static str],
    kind: &'static str,
    /// `yes`, `no` or [`NOT_TRIED`].
    opens: &'static str,
    /// Reason why the event cannot be opened, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    help: String,
    yaml: String,
    /// Fields of a tracepoint. Only set if the pattern is the exact name of the tracepoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    records: Option<Records>,
}

/// Prints the list.
pub(super) fn list(args: &ListArgs, roots: &Roots) -> ExitCode {
    let selection = match Selection::new(&args.words) {
        Ok(selection) => selection,
        Err(error) => return fail(USAGE, &error),
    };
    let output = if args.json { Output::Json } else { args.output };
    let facts = Facts::read(roots);
    let catalog = Catalog::load(roots, &facts);
    let mut code = ExitCode::SUCCESS;
    if args.presets {
        code = list_presets(output, &selection, &catalog);
    }
    if selection.has(Category::Metric) && code == ExitCode::SUCCESS {
        code = match metrics::rows(selection.patterns(), &catalog) {
            Ok(rows) => output.print(&rows, |out, rows| metrics::write(out, rows)),
            Err(error) => fail(FAILED, &error),
        };
    }
    if selection.has(Category::Sdt) && code == ExitCode::SUCCESS {
        let rows = sdt::rows(roots);
        code = output.print(&rows, |out, rows| sdt::write(out, rows));
    }
    if args.presets || !selection.has_events() || code != ExitCode::SUCCESS {
        return code;
    }
    let mut prober = (!args.no_open).then(|| Prober::new(&catalog));
    let listed: Vec<Listed> = catalog.events().filter(|event| selection.includes(event)).collect();
    if listed.is_empty() {
        return fail(FAILED, &nothing(&args.words, selection.pattern(), &catalog));
    }
    let name = selection.pattern().map(Wanted::text);
    let rows = listed.iter().map(|event| {
        let row = match &mut prober {
            Some(prober) => row(event, "yes", prober.refusal(&event.name)),
            None => row(event, NOT_TRIED, foreseen(&event.name, event.kind, Scope::CPU, &catalog)),
        };
        let records = (Some(&*event.name) == name).then(|| Records::of(event, &catalog)).flatten();
        Row { records, ..row }
    });
    output.print(rows, |out, rows| write(out, rows, selection.is_all()))
}

/// Prints the presets with their metrics.
fn list_presets(output: Output, selection: &Selection, catalog: &Catalog) -> ExitCode {
    let all = Wanted::new(None);
    let wanted = all.as_ref().map(|all| selection.pattern().unwrap_or(all));
    let rows = match wanted {
        Ok(wanted) => presets::rows(wanted, catalog, &StreamSupport::foreseen(catalog.facts())),
        Err(error) => return fail(USAGE, &anyhow::anyhow!("{error}")),
    };
    rows.map_or_else(
        |error| fail(FAILED, &error),
        |rows| output.print(&rows, |out, rows| presets::write(out, rows)),
    )
}

fn nothing(words: &[String], pattern: Option<&Wanted>, catalog: &Catalog) -> anyhow::Error {
    let text = words.join(" ");
    // The catalog reports why a tracepoint was not found, and suggests similar names.
    if pattern.is_some_and(Wanted::is_word)
        && text.contains(':')
        && let Ok([group]) = parse(&text).as_deref()
        && let [event] = &group.events[..]
        && let Err(unresolved) = catalog.resolve(event)
    {
        return anyhow::anyhow!("{unresolved}");
    }
    let problems: String = catalog.problems().iter().map(|problem| format!("\n  {problem}")).collect();
    anyhow::anyhow!(
        "no event matches {text:?}; run perf-exporter list to list all events, and perf-exporter probe to \
         find functions and USDT probes{problems}"
    )
}

/// Opens events and closes them at once, to find out whether they can be counted.
struct Prober<'a> {
    catalog: &'a Catalog,
    budget: Budget,
}

impl<'a> Prober<'a> {
    fn new(catalog: &'a Catalog) -> Self {
        Self { catalog, budget: Budget::new(usage::raise_descriptor_limit(), 0, None) }
    }

    /// Returns the reason why the event cannot be counted, or `None` if it can.
    fn refusal(&mut self, event: &str) -> Option<Refusal> {
        let (groups, facts) = (parse(event).ok()?, self.catalog.facts());
        let entry = Counters {
            name: "list".into(),
            groups,
            metrics: Vec::new(),
            per: vec![Targets::CPU],
            level: Level::default(),
            sharing: PmuSharing::default(),
        };
        let plan = plan(&Entries::counters(&[entry]), self.catalog, &StreamSupport::foreseen(facts));
        if let Some(refused) = plan.refusals.into_iter().next() {
            return Some(refused.refusal);
        }
        for group in &plan.groups {
            // One CPU is sufficient. A PMU with a CPU list of its own is tried on the first of these CPUs.
            let target = OpenTarget::Cpus(group.cpus(&facts.online).iter().take(1).collect());
            let groups = std::slice::from_ref(group);
            let core_pmu = self.catalog.has_core_pmu();
            let (_open, refusals) =
                Measurement::open(&Live, facts, core_pmu, &mut self.budget, groups, &target);
            self.budget.used = 0;
            if let Some(refusal) = refusals.into_iter().next() {
                return Some(refusal);
            }
        }
        None
    }
}

/// Creates a row. `opens` applies if there is no refusal.
fn row(event: &Listed, opens: &'static str, refusal: Option<Refusal>) -> Row {
    let opens = if refusal.is_some() { "no" } else { opens };
    let reason = refusal.map(|refusal| refusal.why());
    // In a YAML list, names with slashes, colons or braces need quotes.
    let plain = event.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let quoted = if plain { event.name.to_string() } else { format!("\"{}\"", event.name) };
    Row {
        event: event.name.to_string(),
        aliases: event.aliases,
        kind: event.kind.as_str(),
        opens,
        reason,
        help: event.help.to_string(),
        yaml: format!("events: [{quoted}]"),
        records: None,
    }
}

/// Writes the list as text. `all` is set if no pattern was given.
fn write(out: &mut dyn Write, rows: impl Iterator<Item = Row>, all: bool) -> io::Result<()> {
    let (mut reasons, mut first, mut records) = (Vec::new(), None, None);
    for row in rows {
        line(out, &row, &mut reasons)?;
        records = records.or(row.records);
        if row.reason.is_none() {
            first.get_or_insert(row.yaml);
        }
    }
    for (index, reason) in reasons.iter().enumerate() {
        writeln!(out, "{}[{}] {reason}", if index == 0 { "\n" } else { "" }, index + 1)?;
    }
    if let Some(yaml) = first {
        writeln!(out, "\nIn the configuration: counters: {{mine: {{{yaml}}}}}")?;
    }
    records.map_or(Ok(()), |records| records.write(out))?;
    if all {
        writeln!(out, "To find functions and USDT probes: perf-exporter probe")?;
    }
    Ok(())
}

/// Writes one line. Reasons are numbered, because hundreds of events can share one reason.
fn line(out: &mut dyn Write, row: &Row, reasons: &mut Vec<String>) -> io::Result<()> {
    let opens = match &row.reason {
        None if row.opens == NOT_TRIED => String::new(),
        None => row.opens.to_owned(),
        Some(reason) => {
            let known = reasons.iter().position(|known| known == reason);
            let number = known.unwrap_or_else(|| {
                reasons.push(reason.clone());
                reasons.len() - 1
            });
            format!("no [{}]", number + 1)
        }
    };
    let names: Vec<&str> = std::iter::once(&*row.event).chain(row.aliases.iter().copied()).collect();
    writeln!(out, "{:<52} {:<8} {:<14} {}", names.join(" OR "), opens, row.kind, row.help)
}
