//! The rows of an annotated function.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::choice::Sum;
use super::disassembly::{Instruction, disassemble};
use super::program::{Function, Line, Programs};
use super::source::Sources;
use super::{Annotated, NotAnnotated, Options, Row};
use crate::error::printable;
use crate::symbol::LineReason;

/// Maximum number of addresses that are named.
const NAMES: usize = 1 << 14;

/// Adds the rows of a function with the samples of its file by offset.
pub(super) fn fill(
    annotated: &mut Annotated,
    function: &Function,
    samples: &[(u64, Sum)],
    programs: &mut Programs,
    options: &Options,
) -> Result<(), NotAnnotated> {
    let Function { code, start, machine, .. } = function;
    let mut instructions = disassemble(code, *start, *machine, options.syntax, options.instructions);
    let sums = attribute(annotated, function, samples, &instructions);
    name_targets(&mut instructions, function, programs);
    let (lines, reason) = programs.lines(function, instructions.iter().map(|found| found.address));
    let texts =
        if options.source { texts(annotated, function, &lines, programs) } else { FxHashMap::default() };
    annotated.rows = rows(&instructions, &sums, &lines, texts);
    let covered = instructions.iter().map(|found| found.length as u64).sum::<u64>();
    let size = function.end.saturating_sub(*start);
    if covered < size {
        annotated.notes.push(format!("only the first {covered} of {size} bytes of its code are shown"));
    }
    if lines.iter().all(Option::is_none) {
        annotated.notes.extend(reason.map(|reason| no_lines(reason, &annotated.module)));
    }
    Ok(())
}

/// Returns the samples of each instruction, and adds up those of the function. An address within an instruction belongs to it.
fn attribute(
    annotated: &mut Annotated,
    function: &Function,
    samples: &[(u64, Sum)],
    instructions: &[Instruction],
) -> Vec<Sum> {
    let mut sums = vec![Sum::default(); instructions.len()];
    let mut whole = Sum::default();
    for &(offset, own) in samples {
        let address = function.address(offset);
        if !(function.start..function.end).contains(&address) {
            continue;
        }
        whole.add(own);
        let behind = instructions.partition_point(|found| found.address <= address);
        let place = behind.checked_sub(1).filter(|&place| {
            // In bounds: before the partition point.
            address.wrapping_sub(instructions[place].address) < instructions[place].length as u64
        });
        if let Some(sum) = place.and_then(|place| sums.get_mut(place)) {
            sum.add(own);
        }
    }
    (annotated.value, annotated.samples) = (whole.value, whole.samples);
    sums
}

/// Appends the names of the addresses to which instructions jump: `<burns+0x10>`.
fn name_targets(instructions: &mut [Instruction], function: &Function, programs: &mut Programs) {
    let targets: BTreeSet<u64> = instructions.iter().filter_map(|found| found.target).take(NAMES).collect();
    let targets: Vec<u64> = targets.into_iter().collect();
    let names = programs.names(function, &targets);
    for found in instructions {
        let place = found.target.and_then(|target| targets.binary_search(&target).ok());
        if let Some(Some(name)) = place.and_then(|place| names.get(place)) {
            found.text.push_str(&format!(" <{name}>"));
        }
    }
}

/// Returns the texts of lines, and notes source files that are newer than the program.
fn texts(
    annotated: &mut Annotated,
    function: &Function,
    lines: &[Option<Line>],
    programs: &Programs,
) -> FxHashMap<Line, String> {
    let mut sources = Sources::new(&programs.files, &function.pids, &function.file);
    let texts = sources.texts(lines.iter().flatten());
    annotated.notes.extend(sources.newer.into_iter().map(|path| {
        format!(
            "{} is newer than the program: its lines may not be those that were compiled",
            printable(&path)
        )
    }));
    texts
}

fn rows(
    instructions: &[Instruction],
    sums: &[Sum],
    lines: &[Option<Line>],
    texts: FxHashMap<Line, String>,
) -> Vec<Row> {
    let mut of_lines: FxHashMap<&Line, u64> = FxHashMap::default();
    for (line, sum) in lines.iter().zip(sums) {
        if let Some(line) = line {
            let value = of_lines.entry(line).or_default();
            *value = value.saturating_add(sum.value);
        }
    }
    let (mut rows, mut before) = (Vec::new(), None);
    let mut places = Vec::with_capacity(instructions.len());
    for ((found, sum), line) in instructions.iter().zip(sums).zip(lines) {
        if let Some(line) = line.as_ref().filter(|line| before != Some(*line)) {
            before = Some(line);
            let (file, number) = (Arc::clone(&line.0), line.1);
            let value = of_lines.get(line).copied().unwrap_or(0);
            rows.push(Row::Source { file, line: number, text: texts.get(line).cloned(), value });
        }
        places.push(rows.len());
        let Sum { value, samples } = *sum;
        let (address, text) = (found.address, found.text.clone());
        rows.push(Row::Instruction { address, text, value, samples, jump: None });
    }
    for (found, &place) in instructions.iter().zip(&places) {
        let target = found.target.filter(|_| !found.is_call);
        let to = target.and_then(|target| instructions.binary_search_by_key(&target, |to| to.address).ok());
        if let Some(Row::Instruction { jump, .. }) = rows.get_mut(place) {
            *jump = to.and_then(|to| places.get(to)).copied();
        }
    }
    rows
}

/// Returns the sentence for a function without source lines.
fn no_lines(reason: LineReason, path: &str) -> String {
    let path = printable(path);
    match reason {
        LineReason::NoDebugInfo => {
            format!("no source lines: {path} has no debug information, and no debug file was found")
        }
        LineReason::NotCovered => {
            format!("no source lines: the debug information of {path} does not contain the function")
        }
        LineReason::TooLarge => format!("no source lines: the debug information of {path} is too large"),
        reason => format!("no source lines of {path}: {reason}"),
    }
}
