//! `probe --vars` and `probe --line` for programs with debug information: names, types, ranges and source lines.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use serde::Serialize;

use super::row::Row;
use super::{ProbeArgs, Source};
use crate::cli::observe::Failure;
use crate::cli::{Output, json, written};
use crate::error::printable;
use crate::host::{self, Roots};
use crate::probe::argument::{Arch, Argument, Site, fetch_text};
use crate::probe::binary::{Binary, DebugInfo, NoDebugInfo};
use crate::probe::debug_file::DebugContents;
use crate::symbol::{SourceFunction, ValueKind, source_functions, source_lines};

/// Maximum size of the debug information, in bytes.
const LIMIT: u64 = 2 << 30;
/// Number of lines after the last one with code, as in perf.
const AFTER: u64 = 3;
/// Maximum number of source lines that are shown.
const LINES: u64 = 10_000;

/// Returns the debug information of a file: its own, or that of its separate debug file.
fn debug_info(source: &Source, binary: &Binary<'_>, roots: &Roots) -> anyhow::Result<DebugInfo> {
    let info = match binary.full_debug_info(LIMIT) {
        Err(NoDebugInfo::Absent) => {
            let debug = source.debug_file(binary, DebugContents::DebugInfo, roots);
            debug.map_or(Err(NoDebugInfo::Absent), |debug| debug.full_debug_info(LIMIT))
        }
        info => info,
    };
    info.map_err(|missing| {
        let path = &source.path;
        match missing {
            NoDebugInfo::Absent => {
                let file = binary.debug_file();
                anyhow::anyhow!("{path} has no debug information; compile it with -g, or install its debug file{file}")
            }
            NoDebugInfo::TooLarge { size } => anyhow::anyhow!("{path} has {size} bytes of debug information; at most {LIMIT} are read"),
            NoDebugInfo::Compressed => anyhow::anyhow!("{path} has compressed debug information; decompress it with objcopy --decompress-debug-sections"),
            NoDebugInfo::Unreadable(error) => error.into(),
        }
    })
}

/// Returns the function with this name; `None` if the file has no debug information about it.
pub(super) fn function(
    source: &Source,
    binary: &Binary<'_>,
    name: &str,
    roots: &Roots,
) -> anyhow::Result<Option<SourceFunction>> {
    let Ok(info) = debug_info(source, binary, roots) else { return Ok(None) };
    let mut found = source_functions(&info, name).map_err(damaged)?;
    Ok(if found.is_empty() { None } else { Some(found.swap_remove(0)) })
}

fn damaged(error: gimli::Error) -> anyhow::Error {
    anyhow::anyhow!("the debug information is malformed: {error}")
}

/// Returns the declaration of a function in C.
pub(super) fn declaration(function: &SourceFunction) -> String {
    let declared = |kind: &str, name: &str| match kind.ends_with(['*', '&']) {
        true => format!("{kind}{name}"),
        false => format!("{kind} {name}"),
    };
    let parameters = function.variables.iter().filter(|of| of.is_parameter);
    let parameters: Vec<String> = parameters.map(|of| declared(&of.kind.text, &of.name)).collect();
    declared(&function.result.text, &format!("{}({})", function.name, parameters.join(", ")))
}

/// Returns the parameters of a function, and with `range` also its variables and where each has a value.
pub(super) fn rows(function: &SourceFunction, machine: Arch, range: bool) -> Vec<Row> {
    let mut registers = 0;
    // A structure by value, or a result in memory, takes registers that depend on its members.
    let mut known = function.result.value != ValueKind::Aggregate;
    let mut rows = Vec::new();
    for of in &function.variables {
        let mut taken = Err("no value at the entry");
        if of.is_parameter {
            taken = match of.kind.value {
                ValueKind::Float => Err("floating-point register, which probes cannot fetch"),
                ValueKind::Aggregate | ValueKind::Void => {
                    known = false;
                    Err("it is passed by value")
                }
                _ if !known => Err("its register depends on the parameters before it"),
                value => {
                    registers += 1;
                    fetch(registers, value, machine).ok_or("it is not in a register")
                }
            };
        } else if !range {
            continue;
        }
        let (taken, reason) = match taken {
            Ok(taken) => (Some(taken), None),
            Err(reason) => (None, Some(reason.to_owned())),
        };
        let spans = range.then(|| spans(function, &of.spans));
        rows.push(Row {
            variable: of.name.clone(),
            kind: of.kind.text.clone(),
            at_return: false,
            taken,
            reason,
            range: spans,
        });
    }
    rows
}

/// Returns the fetch argument of a parameter: `%di:s32`.
fn fetch(number: u8, value: ValueKind, machine: Arch) -> Option<String> {
    let text = match value {
        ValueKind::Signed(size) => format!("$arg{number}:s{}", size * 8),
        ValueKind::Unsigned(size) => format!("$arg{number}:u{}", size * 8),
        ValueKind::Text => format!("+0($arg{number}):string"),
        _ => format!("$arg{number}:x64"),
    };
    let text = fetch_text(&Argument::parse(&format!("x={text}")).ok()?, Site::User, machine).ok()?;
    text.split_once('=').map(|(_, fetch)| fetch.to_owned())
}

/// Describes where a variable has a value, as perf does: `[VAL] @<add+[0-11,11-38]>`, with `INV` without a value at the entry.
fn spans(function: &SourceFunction, spans: &[std::ops::Range<u64>]) -> String {
    let start = function.code.start;
    let at_entry = spans.iter().any(|span| span.contains(&start));
    let offset = |address: u64| address.saturating_sub(start);
    let all: Vec<String> =
        spans.iter().map(|span| format!("{}-{}", offset(span.start), offset(span.end))).collect();
    format!("[{}] @<{}+[{}]>", if at_entry { "VAL" } else { "INV" }, function.name, all.join(","))
}

/// A line of the source.
#[derive(Debug, Serialize)]
struct SourceLine {
    /// Number in the file, from 1.
    line: u64,
    /// Number in the function, from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    text: String,
    /// Whether a statement begins here.
    has_code: bool,
}

/// Lines to show: `FUNCTION[:START[-END|+COUNT]]` or `FILE:START[-END|+COUNT]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    name: String,
    /// First and last line, relative to the function.
    lines: Option<(u64, Option<u64>)>,
}

impl Wanted {
    /// Parses the value of `--line`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let form = "expected FUNCTION[:START[-END|+COUNT]] or FILE:START[-END|+COUNT], such as main:1-9";
        let Some((name, range)) = text.rsplit_once(':') else {
            return if text.is_empty() {
                Err(form.into())
            } else {
                Ok(Self { name: text.to_owned(), lines: None })
            };
        };
        let number = |text: &str| text.parse::<u64>().map_err(|_| form.to_owned());
        let lines = if let Some((start, end)) = range.split_once('-') {
            (number(start)?, Some(number(end)?))
        } else if let Some((start, count)) = range.split_once('+') {
            let start = number(start)?;
            (start, Some((start + number(count)?).saturating_sub(1)))
        } else {
            (number(range)?, None)
        };
        if name.is_empty() || lines.1.is_some_and(|end| end < lines.0) {
            return Err(form.into());
        }
        Ok(Self { name: name.to_owned(), lines: Some(lines) })
    }

    /// Reports whether the name is that of a file.
    fn is_file(&self) -> bool {
        self.lines.is_some() && self.name.contains('.')
    }
}

/// Prints source lines, and which of them have code.
pub(super) fn lines(
    wanted: &Wanted,
    args: &ProbeArgs,
    source: &Source,
    roots: &Roots,
) -> Result<ExitCode, Failure> {
    let binary = source.open(roots)?;
    let info = debug_info(source, &binary, roots)?;
    let (file, first, code, function) = if wanted.is_file() {
        let found = source_lines(&info, &wanted.name).map_err(damaged)?;
        let (file, code) = found.ok_or_else(|| {
            anyhow::anyhow!("{} was not compiled from {}", source.path, printable(&wanted.name))
        })?;
        (file, 0, code, None)
    } else {
        let mut found = source_functions(&info, &wanted.name).map_err(damaged)?;
        if found.is_empty() {
            // The symbol table suggests similar names.
            binary.symbol(&wanted.name).map_err(anyhow::Error::from)?;
            let text = "has a function of this name without debug information";
            return Err(anyhow::anyhow!("{} {text}: {}", source.path, wanted.name).into());
        }
        let of = found.swap_remove(0);
        (of.file, of.line, of.lines, Some(of.name))
    };
    let path = roots.mounted(&file);
    let text =
        host::read_text(&path).map_err(|error| anyhow::anyhow!("the source file cannot be read: {error}"))?;
    let (start, end) = wanted.lines.unwrap_or((0, None));
    let start = first + start;
    let last = code.iter().next_back().copied().unwrap_or(start);
    let end = end.map_or(last + AFTER, |end| first + end).min(start + LINES);
    let numbered =
        text.lines().zip(1u64..).skip_while(|(_, line)| *line < start).take_while(|(_, line)| *line <= end);
    let rows: Vec<SourceLine> = numbered
        .map(|(text, line)| SourceLine {
            line,
            offset: function.as_ref().map(|_| line - first),
            text: text.to_owned(),
            has_code: code.contains(&line),
        })
        .collect();
    let title = match &function {
        Some(name) => format!("<{name}@{file}:{}>", start - first),
        None => format!("<{file}:{start}>"),
    };
    let result = match args.output {
        Output::Json => json(&rows),
        Output::Text => write(&mut BufWriter::new(io::stdout().lock()), &title, &rows),
    };
    Ok(written(result))
}

/// Writes the lines as perf does: with numbers where a probe can be placed.
fn write(out: &mut impl Write, title: &str, rows: &[SourceLine]) -> io::Result<()> {
    writeln!(out, "{title}")?;
    for row in rows {
        let text: String = row.text.split('\t').map(printable).collect::<Vec<_>>().join("\t");
        match row.has_code {
            true => writeln!(out, "{:>7}  {text}", row.offset.unwrap_or(row.line))?,
            false => writeln!(out, "         {text}")?,
        }
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_given_as_for_perf() {
        let wanted = |name: &str, lines| Ok(Wanted { name: name.into(), lines });
        assert_eq!(Wanted::parse("main"), wanted("main", None));
        assert_eq!(Wanted::parse("main:3"), wanted("main", Some((3, None))));
        assert_eq!(Wanted::parse("main:1-9"), wanted("main", Some((1, Some(9)))));
        assert_eq!(Wanted::parse("a/t.c:10+5"), wanted("a/t.c", Some((10, Some(14)))));
        for wrong in ["", ":1", "main:x", "main:9-1", "main:1+"] {
            assert!(Wanted::parse(wrong).unwrap_err().starts_with("expected FUNCTION"), "{wrong}");
        }
    }
}
