//! Listing of what can be probed: functions of the kernel, and functions and USDT probes of a file.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;

use serde::Serialize;

use super::entry::{Entry, can_be_written};
use super::{ProbeArgs, Query, Source, Wanted, note};
use crate::error::printable;
use crate::host::Roots;
use crate::probe::argument::Site;
use crate::probe::binary::{Binary, BinaryError, Symbol};
use crate::probe::debug_file::DebugContents;
use crate::probe::kallsyms::{self, Function, KallsymsError};
use crate::probe::tracefs::Probes;
use crate::probe::usdt::UsdtProbe;
use crate::probe::{At, Definition, Location, Root, Within};

/// Maximum number of functions read from one file.
const FUNCTION_LIMIT: usize = 1 << 20;

/// A location that can be probed.
#[derive(Debug, Serialize)]
struct Row {
    /// Argument for `--add` and `--vars`.
    probe: String,
    /// `function` or `marker`.
    kind: &'static str,
    name: String,
    /// Offset in the file, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// Size in bytes. `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    /// Arguments of a USDT probe, in assembler syntax.
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<String>,
    yaml: String,
}

impl Row {
    /// Creates a row without offset, size and arguments.
    fn new(probe: String, kind: &'static str, name: &str, entry: Entry<'_>) -> Self {
        let (name, yaml) = (name.to_owned(), entry.to_string());
        Self { probe, kind, name, offset: None, size: None, arguments: None, yaml }
    }
}

/// Lists what can be probed.
pub(super) fn find(query: Query<'_>) -> anyhow::Result<ExitCode> {
    let Query { args, source, roots, .. } = query;
    let (rows, found) = match source {
        Some(source) => {
            let binary = source.open(roots)?;
            let named = (!binary.has_all_names())
                .then(|| source.debug_file(&binary, DebugContents::AllNames, roots))
                .flatten()
                .map(|debug| binary.with_names_of(debug));
            in_file(query, source, &binary, named.as_ref().unwrap_or(&binary))?
        }
        None => in_kernel(query)?,
    };
    let code = args.output.print(&rows, |out, rows| write(out, rows, args, source));
    if found > rows.len() {
        let more = found - rows.len();
        note(&format!("{more} more rows are not shown: give a PATTERN or a higher --limit"));
    }
    note_reservation(source, roots);
    Ok(code)
}

fn in_kernel(Query { args, wanted, roots, .. }: Query<'_>) -> anyhow::Result<(Vec<Row>, usize)> {
    let is_wanted = |of: &Function| match wanted.text() {
        "" => !of.name.starts_with(['_', '.']),
        _ => wanted.includes(&of.name) || wanted.includes(&of.to_string()),
    };
    let mut probeable = kallsyms::probeable(roots, is_wanted)?;
    if probeable.functions.is_empty() {
        return Err(nothing_in_kernel(wanted, roots));
    }
    for error in &probeable.unread {
        note(&format!(
            "some of these functions may not be probeable, because the list of probeable functions cannot be read: {error}"
        ));
    }
    probeable.functions.sort_by_key(|of| wanted.rank(&of.name));
    let rows = probeable.functions.iter().take(args.limit).map(of_kernel).collect();
    Ok((rows, probeable.functions.len()))
}

fn of_kernel(function: &Function) -> Row {
    let Function { name, module } = function;
    let location =
        Location::Kernel { module: module.clone(), function: Arc::clone(name), offset: 0, returns: false };
    let definition = Definition { location, within: Within::default(), arguments: Vec::new() };
    Row::new(function.to_string(), "function", name, Entry::new(name, &definition, ""))
}

/// Returns the reason why no kernel function matches.
fn nothing_in_kernel(wanted: &Wanted, roots: &Roots) -> anyhow::Error {
    let name = wanted.text();
    if !wanted.is_word() {
        return anyhow::anyhow!("no kernel function matches {name:?}");
    }
    match kallsyms::find(roots, name) {
        Err(error) => absent(error),
        Ok(found) if found.count > 1 => anyhow::anyhow!(
            "the kernel has {} functions named {name} and rejects a probe on an ambiguous name: add the module, or probe a \
             caller of the function",
            found.count
        ),
        Ok(_) => anyhow::anyhow!(
            "the kernel does not allow probes on {name}, which tracing itself may call; probe a caller of the function"
        ),
    }
}

/// Returns the error for an unknown kernel function. Suggests `-x`, because it may be a function of a program.
pub(super) fn absent(error: KallsymsError) -> anyhow::Error {
    match error {
        KallsymsError::NoFunction { .. } => {
            anyhow::anyhow!("{error}; for a function of a program, add -x FILE")
        }
        error => error.into(),
    }
}

/// Lists what can be probed in a file. `named` has the names of its functions: itself, or its debug file.
fn in_file(
    query: Query<'_>,
    source: &Source,
    binary: &Binary<'_>,
    named: &Binary<'_>,
) -> anyhow::Result<(Vec<Row>, usize)> {
    let Query { args, wanted, .. } = query;
    let usdt_probes = match binary.usdt() {
        _ if args.funcs => Vec::new(),
        Err(BinaryError::NoUsdtProbes { .. }) if !args.markers => Vec::new(),
        usdt_probes => usdt_probes?,
    };
    let mut rows = of_usdt_probes(source, &usdt_probes, wanted);
    let functions = if args.markers { Vec::new() } else { named.functions(FUNCTION_LIMIT)? };
    let mut same: Vec<&[Symbol]> = functions
        .chunk_by(|one, other| one.name == other.name)
        .filter(|same| wanted.includes(&same[0].name))
        .collect();
    same.sort_by_key(|same| wanted.rank(&same[0].name));
    let found = rows.len() + same.iter().map(|same| same.len()).sum::<usize>();
    let each = same.iter().flat_map(|same| same.iter().map(|symbol| (symbol, same.len() == 1)));
    rows.extend(each.take(args.limit).map(|(symbol, is_one)| of_function(source, symbol, is_one)));
    rows.truncate(args.limit);
    match found {
        0 => Err(nothing_in_file(args, wanted, source, named)),
        _ => Ok((rows, found)),
    }
}

/// A USDT probe of a file.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Marker {
    /// `PROVIDER:NAME`.
    #[serde(rename = "event")]
    pub(in crate::cli) name: String,
    /// Entry for the section `probes`.
    pub(in crate::cli) yaml: String,
}

/// Returns the USDT probes of a file; none if it has none or cannot be read.
pub(in crate::cli) fn markers(source: &Source, binary: &Binary<'_>) -> Vec<Marker> {
    let usdt_probes = binary.usdt().unwrap_or_default();
    let Ok(all) = Wanted::new(None) else { return Vec::new() };
    let rows = of_usdt_probes(source, &usdt_probes, &all).into_iter();
    rows.map(|Row { name, yaml, .. }| Marker { name, yaml }).collect()
}

/// Returns one row per USDT probe, regardless of its number of instances.
fn of_usdt_probes(source: &Source, usdt_probes: &[UsdtProbe], wanted: &Wanted) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for usdt_probe in usdt_probes {
        let name = format!("{}:{}", usdt_probe.provider, usdt_probe.name);
        let location = Location::Usdt {
            path: source.path.as_str().into(),
            provider: Some(Arc::clone(&usdt_probe.provider)),
            name: Arc::clone(&usdt_probe.name),
        };
        if !wanted.includes(&name) || !can_be_written(&location) {
            continue;
        }
        let definition = source.definition(location);
        // The prefix `sdt_` distinguishes a provider whose name begins with it from the prefix that perf adds to others.
        let probe = if name.starts_with("sdt_") { format!("%sdt_{name}") } else { format!("%{name}") };
        let row = Row::new(probe, "marker", &name, Entry::new(&usdt_probe.name, &definition, ""));
        let (offset, arguments) = (Some(usdt_probe.offset), Some(usdt_probe.arguments.to_string()));
        rows.push(Row { offset, arguments, ..row });
    }
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    rows.dedup_by(|one, other| one.name == other.name);
    rows
}

/// Creates the row of a function. A function with an ambiguous name, or with a name that cannot be written, is identified by its offset.
fn of_function(source: &Source, symbol: &Symbol, is_one: bool) -> Row {
    let Symbol { name, offset, size } = symbol;
    let location = |at| Location::User { path: source.path.as_str().into(), at, returns: false };
    let by_name = location(At::Symbol { name: Arc::clone(name), offset: 0 });
    let by_name = Some(by_name).filter(|by_name| is_one && can_be_written(by_name));
    let probe = if by_name.is_some() { name.to_string() } else { format!("{offset:#x}") };
    let definition = source.definition(by_name.unwrap_or(location(At::Offset(*offset))));
    let row = Row::new(probe, "function", name, Entry::new(name, &definition, ""));
    Row { offset: Some(*offset), size: Some(*size).filter(|&size| size > 0), ..row }
}

fn nothing_in_file(args: &ProbeArgs, wanted: &Wanted, source: &Source, binary: &Binary<'_>) -> anyhow::Error {
    let what = if args.markers { "USDT probe" } else { "function" };
    // The symbol table provides similar names and reports a missing symbol table.
    if let (true, "function", Err(error)) = (wanted.is_word(), what, binary.symbol(wanted.text())) {
        return error.into();
    }
    match wanted.text() {
        "" => anyhow::anyhow!("{} has no {what} names: it is stripped", source.path),
        text => anyhow::anyhow!("{} has no {what} matching {text:?}", source.path),
    }
}

impl Source {
    /// Returns a probe definition without arguments.
    pub(super) fn definition(&self, location: Location) -> Definition {
        Definition { location, within: Within::Root(self.root.clone()), arguments: Vec::new() }
    }
}

/// Prints a note if this machine supports only some kinds of probes of a file or of the kernel.
pub(super) fn note_reservation(source: Option<&Source>, roots: &Roots) {
    let site = if source.is_some() { Site::User } else { Site::Kernel };
    let Err(refusal) = Probes::lasting(roots).check(site) else { return };
    let (pmu, ftrace) = match site {
        Site::Kernel => ("kprobe", roots.tracing.join("events/ftrace/function").is_dir()),
        Site::User => ("uprobe", false),
    };
    let can = if roots.sys.join("bus/event_source/devices").join(pmu).is_dir() {
        "this host can only count hits, without arguments and filters"
    } else if ftrace {
        "this host can only count hits at function entry (ftrace), without arguments and filters"
    } else {
        "this host does not support these probes"
    };
    note(&format!("{can}: {refusal}"));
}

/// Writes the rows as text.
fn write(out: &mut dyn Write, rows: &[Row], args: &ProbeArgs, source: Option<&Source>) -> io::Result<()> {
    for row in rows {
        let probe = printable(&row.probe);
        let more = row.arguments.as_deref().or(Some(&*row.name).filter(|_| row.probe.starts_with("0x")));
        match more.filter(|more| !more.is_empty()) {
            Some(more) => writeln!(out, "{probe:<40} {}", printable(more))?,
            None => writeln!(out, "{probe}")?,
        }
    }
    // A USDT probe with the same name as the requested function comes first in the list.
    let meant = rows.iter().find(|row| args.pattern() == Some(&*row.name));
    let written = || rows.iter().find(|row| !is_of_the_compiler(&row.name));
    if let Some(row) = meant.or_else(written).or(rows.first()) {
        let file = source.map_or(String::new(), |source| match &source.root {
            Root::Host => format!(" -x {}", source.path),
            Root::Process(pid) => format!(" -x {} --in pid:{pid}", source.path),
            Root::Cgroup(path) => format!(" -x {} --in cgroup:{path}", source.path),
        });
        writeln!(out, "\nIn the configuration: probes: {{{}}}", row.yaml)?;
        writeln!(out, "Its variables: perf-exporter probe{file} --vars {}", row.probe)?;
    }
    Ok(())
}

/// Reports whether the compiler adds this function to every program.
fn is_of_the_compiler(name: &str) -> bool {
    name.starts_with('_') || name.ends_with("register_tm_clones") || name == "frame_dummy"
}
