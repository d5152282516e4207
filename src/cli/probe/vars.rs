//! `probe --vars`: variables available at a function or USDT probe, and their fetch arguments for the kernel.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Serialize;

use super::entry::{Entry, can_be_written};
use super::find::{absent, note_reservation};
use super::row::Row;
use super::{Query, Source, debug};
use crate::cli::observe::Failure;
use crate::cli::{Output, json, written};
use crate::error::printable;
use crate::host::Roots;
use crate::probe::argument::{self, Arch, Argument, Element, Site, Width, fetch_text};
use crate::probe::btf::{self, Btf, Known};
use crate::probe::kallsyms;
use crate::probe::usdt::UsdtProbe;
use crate::probe::{At, Definition, Location, ProbeKind, Request};
use crate::symbol::SourceFunction;

/// Maximum nesting depth at which members of structures are searched for a pattern.
const DEEPEST: usize = 8;
/// Maximum length of a reason in text output, in characters.
const REASON: usize = 72;
/// Maximum width of a column, in characters.
const WIDTH: usize = 60;
/// Maximum number of arguments shown for a function of a program: arguments that calling conventions pass in registers.
const REGISTERS: u8 = 8;

/// Variables available at a location.
#[derive(Debug, Serialize)]
struct Report {
    /// Declaration of the function, or name of the USDT probe.
    at: String,
    variables: Vec<Row>,
    /// Number of variables omitted because of `--limit`.
    more: usize,
    /// Example entries for the section `probes`.
    yaml: Vec<String>,
}

/// Prints the variables.
pub(super) fn show(place: &str, query: Query<'_>) -> Result<ExitCode, Failure> {
    let Query { args, source, wanted, roots } = query;
    let file = source.map(|source| (source.path.as_str(), &source.root));
    let request = Request::parse(place, file);
    let request = request.map_err(|error| Failure::Usage(anyhow::anyhow!("--vars: {error:#}")))?;
    let definition = request.definition;
    if definition.location.kind().returns() || !definition.arguments.is_empty() {
        let error = anyhow::anyhow!("--vars {place}: give only the function, without %return and arguments");
        return Err(Failure::Usage(error));
    }
    let mut report = match (&definition.location, source) {
        (Location::Kernel { module, function, .. }, _) => {
            let place = definition.location.to_string();
            in_kernel(module.as_ref().map_or(&**function, |_| &place), function, &definition, query)?
        }
        (Location::Usdt { .. }, Some(source)) => at_usdt_probe(source, &definition, roots)?,
        (_, Some(source)) => in_program(source, &definition, query)?,
        (_, None) => return Err(anyhow::anyhow!("--vars {place}: add the file with -x FILE").into()),
    };
    report.variables.retain(|row| wanted.includes(&row.variable));
    report.more = report.variables.len().saturating_sub(args.limit);
    report.variables.truncate(args.limit);
    if report.variables.is_empty() && !wanted.text().is_empty() {
        let text = wanted.text();
        return Err(anyhow::anyhow!("{}: no variable matches {text:?}", report.at).into());
    }
    let code = written(match args.output {
        Output::Json => json(&report),
        Output::Text => write(&mut BufWriter::new(io::stdout().lock()), &report),
    });
    note_reservation(source, roots);
    Ok(code)
}

fn in_kernel(
    name: &str,
    function: &str,
    definition: &Definition,
    query: Query<'_>,
) -> anyhow::Result<Report> {
    let found = kallsyms::find(query.roots, name).map_err(absent)?;
    let types = Btf::load(query.roots, found.module.as_deref())?;
    let at = types.function(function)?.to_string();
    let depth = if query.wanted.text().is_empty() { 1 } else { DEEPEST };
    let mut known = Vec::new();
    btf::variables(&types, function, depth, |of| known.push(of))?;
    let yaml = kernel_entries(definition, &known);
    Ok(Report { at, variables: known.into_iter().map(Row::from).collect(), more: 0, yaml })
}

impl From<Known> for Row {
    fn from(known: Known) -> Self {
        let (taken, reason) = match known.taken {
            Ok((fetch, kind)) => (Some(format!("{fetch}:{kind}")), None),
            Err(btf::BtfError::Unfit { why, .. }) => (None, Some(why)),
            Err(error) => (None, Some(error.to_string())),
        };
        let (variable, kind, at_return) = (known.text, known.kind, known.returned);
        Self { variable, kind, at_return, taken, reason, range: None }
    }
}

/// Returns example entries for a function: its duration, one of its parameters, its result.
fn kernel_entries(definition: &Definition, known: &[Known]) -> Vec<String> {
    let parameters = || known.iter().filter(|of| of.depth == 0 && !of.returned);
    let number = parameters().find(|of| is_quantity(of));
    let text = parameters().find(|of| element(of) == Some(Element::String));
    let mut entries = vec![timed(definition)];
    if let Some(of) = number {
        entries.extend(taking(definition, &of.text, histogram));
    } else if let Some(of) = text {
        entries.extend(taking(definition, &of.text, labels));
    }
    let result = known.iter().find(|of| of.returned && of.depth == 0);
    if let Some(of) = result.filter(|of| matches!(element(of), Some(Element::Signed(Width::W32))))
        && let Some(returning) = returning(definition)
    {
        entries.extend(taking(&returning, &format!("result={}", of.text), labels));
    }
    entries
}

fn element(known: &Known) -> Option<Element> {
    known.taken.as_ref().ok().map(|(_, kind)| kind.element)
}

/// Reports whether the variable is a quantity, not an identifier, an enum or a set of flags.
fn is_quantity(known: &Known) -> bool {
    let is_wide = matches!(element(known), Some(Element::Unsigned(Width::W32 | Width::W64)));
    is_wide && !known.kind.contains("enum") && !known.kind.contains("flags")
}

/// Returns an entry with a histogram of call durations.
fn timed(definition: &Definition) -> String {
    Entry::new(&name(definition), definition, "histogram: seconds").to_string()
}

/// Returns an entry with one argument.
fn taking(definition: &Definition, text: &str, what: fn(&str) -> String) -> Option<String> {
    let argument = Argument::parse(text).ok()?;
    let (called, then) = (format!("{}_{}", name(definition), argument.name), what(&argument.name));
    let definition = Definition { arguments: vec![argument], ..definition.clone() };
    Some(Entry::new(&called, &definition, then).to_string())
}

fn labels(field: &str) -> String {
    format!("labels: [{field}]")
}

fn histogram(field: &str) -> String {
    let is_bytes = ["size", "len", "length", "bytes", "nbytes"].contains(&field);
    let unit = if is_bytes { ", unit: bytes" } else { "" };
    format!("histogram: {{of: {field}{unit}}}")
}

/// Returns the text from which the name of an entry is derived.
fn name(definition: &Definition) -> String {
    match &definition.location {
        Location::Kernel { function: name, .. }
        | Location::User { at: At::Symbol { name, .. }, .. }
        | Location::Usdt { name, .. } => name.to_string(),
        Location::User { at: At::Offset(offset), .. } => format!("at_{offset:x}"),
    }
}

/// Returns a definition for the return of the same function.
fn returning(definition: &Definition) -> Option<Definition> {
    let kind = match definition.location.kind() {
        ProbeKind::Kprobe => ProbeKind::Kretprobe,
        ProbeKind::Uprobe => ProbeKind::Uretprobe,
        _ => return None,
    };
    let location = Location::parse(kind, &definition.location.to_string()).ok()?;
    Some(Definition { location, ..definition.clone() })
}

/// Describes a function of a program: its parameters by the debug information, or else by position, as the calling convention of its
/// architecture defines.
fn in_program(source: &Source, definition: &Definition, query: Query<'_>) -> anyhow::Result<Report> {
    let binary = source.open(query.roots)?;
    let range = query.args.range;
    if let Location::User { at: At::Symbol { name, .. }, .. } = &definition.location
        && let Some(function) = debug::function(source, &binary, name, query.roots)?
    {
        return Ok(in_source(&function, definition, binary.machine(), range));
    }
    anyhow::ensure!(
        !range,
        "--range: {} has no debug information about {}; compile it with -g",
        source.path,
        definition.location
    );
    match &definition.location {
        Location::User { at: At::Symbol { name, .. }, .. } => drop(binary.symbol(name)?),
        Location::User { at: At::Offset(offset), .. } => binary.check_offset(*offset)?,
        Location::Kernel { .. } | Location::Usdt { .. } => {}
    }
    let machine = binary.machine();
    let row = |variable: String, taken: &str, at_return| {
        let kind = "integer or pointer".into();
        Row { variable, kind, at_return, taken: Some(taken.to_owned()), reason: None, range: None }
    };
    let parameter = |number: u8| {
        let variable = format!("$arg{number}");
        let taken = fetch_text(&Argument::parse(&variable).ok()?, Site::User, machine).ok()?;
        let (_, register) = taken.split_once('=').filter(|(_, register)| register.starts_with('%'))?;
        Some(row(variable, register, false))
    };
    let mut variables: Vec<Row> = (1..=REGISTERS).map_while(parameter).collect();
    variables.push(row("$retval".into(), "$retval", true));
    let mut yaml = vec![timed(definition)];
    yaml.extend(taking(definition, "arg1=$arg1:u64", labels));
    yaml.extend(returning(definition).and_then(|of| taking(&of, "result=$retval:s32", labels)));
    Ok(Report { at: definition.location.to_string(), variables, more: 0, yaml })
}

/// Describes a function by its debug information.
fn in_source(function: &SourceFunction, definition: &Definition, machine: Arch, range: bool) -> Report {
    let mut variables = debug::rows(function, machine, range);
    let first = variables.iter().find_map(|row| Some((&row.variable, row.taken.as_ref()?)));
    let mut yaml = vec![timed(definition)];
    yaml.extend(first.and_then(|(name, fetch)| taking(definition, &format!("{name}={fetch}"), labels)));
    yaml.extend(returning(definition).and_then(|of| taking(&of, "result=$retval:s32", labels)));
    let kind = function.result.text.clone();
    if kind != "void" {
        let (variable, taken) = ("$retval".to_owned(), Some("$retval".to_owned()));
        variables.push(Row { variable, kind, at_return: true, taken, reason: None, range: None });
    }
    Report { at: debug::declaration(function), variables, more: 0, yaml }
}

/// Describes a USDT probe by its ELF notes. Arguments can differ between instances; those of the first instance are shown.
fn at_usdt_probe(source: &Source, definition: &Definition, roots: &Roots) -> anyhow::Result<Report> {
    let Location::Usdt { provider, name, .. } = &definition.location else {
        anyhow::bail!("{} is not a USDT probe", definition.location)
    };
    let binary = source.open(roots)?;
    let usdt_probes = binary.usdt()?;
    let is_meant = |of: &&UsdtProbe| {
        of.name == *name && provider.as_ref().is_none_or(|provider| of.provider == *provider)
    };
    let usdt_probe = usdt_probes.iter().find(is_meant).with_context(|| {
        format!(
            "{} has no USDT probe {name}; run perf-exporter probe -x {0} --markers to list all",
            source.path
        )
    })?;
    let arguments = argument::usdt(&usdt_probe.arguments, binary.machine());
    let row = |(number, argument): (usize, &Result<Argument, argument::ArgumentError>)| {
        let (kind, taken, reason) = match argument {
            Ok(argument) => {
                let kind = argument.kind.map_or(String::new(), |kind| format!(":{kind}"));
                (argument.text.to_string(), Some(format!("{}{kind}", argument.fetch)), None)
            }
            Err(error) => (error.text.to_string(), None, Some(error.message.to_string())),
        };
        Row { variable: format!("$arg{number}"), kind, at_return: false, taken, reason, range: None }
    };
    let mut yaml = vec![Entry::new(name, definition, "").to_string()];
    if let Some(number) = arguments.iter().position(Result::is_ok) {
        let text = format!("arg{0}=$arg{0}", number + 1);
        yaml.extend(taking(definition, &text, labels).filter(|_| can_be_written(&definition.location)));
    }
    let at = format!("{}:{}", usdt_probe.provider, usdt_probe.name);
    Ok(Report { at, variables: (1..).zip(&arguments).map(row).collect(), more: 0, yaml })
}

/// Writes the report as text.
fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{}", printable(&report.at))?;
    for at_return in [false, true] {
        let rows: Vec<&Row> = report.variables.iter().filter(|row| row.at_return == at_return).collect();
        if !rows.is_empty() {
            writeln!(out, "{}", if at_return { "\nAt return:" } else { "" })?;
        }
        table(out, &rows)?;
    }
    if report.more > 0 {
        writeln!(out, "  … and {} more", report.more)?;
    }
    let mut untaken = report.variables.iter().filter(|row| row.taken.is_none()).map(|row| &row.variable);
    if let Some(variable) = untaken.find(|variable| variable.contains("->")) {
        let how = "To list members of a structure, give a member name or this pattern:";
        writeln!(out, "\n{how} '{}.'", printable(variable))?;
    }
    writeln!(out, "\nIn the configuration, for example:\n\nprobes:")?;
    for entry in &report.yaml {
        writeln!(out, "  {entry}")?;
    }
    out.flush()
}

/// Writes rows with aligned columns.
fn table(out: &mut impl Write, rows: &[&Row]) -> io::Result<()> {
    let width = |of: fn(&Row) -> &str| {
        let widths = rows.iter().map(|row| printable(of(row)).chars().count());
        widths.filter(|&width| width <= WIDTH).max().unwrap_or_default()
    };
    let (first, second) = (width(|row| &row.variable), width(|row| &row.kind));
    for Row { variable, kind, taken, reason, range, .. } in rows {
        let is = taken.as_ref().or(reason.as_ref()).map_or("", |text| text);
        let is = range.as_ref().map_or_else(|| is.to_owned(), |range| format!("{range} {is}"));
        let is = is.as_str();
        let mut is = printable(is);
        if let Some((end, _)) = is.char_indices().nth(REASON) {
            is.truncate(end);
            is.push('…');
        }
        writeln!(out, "  {:<first$}  {:<second$}  {is}", printable(variable), printable(kind))?;
    }
    Ok(())
}
