//! Functions of a program as its source declares them: parameters, variables with their types, and source lines.
//!
//! For commands about one program that the user names. The service looks up addresses instead, with bounded time and memory
//! (`dwarf`). Both read untrusted files: this module follows references at most [`HOPS`] times.

use std::collections::BTreeSet;
use std::ops::Range;

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, Error, RunTimeEndian, SectionId,
    UnitOffset, UnitRef,
};

use crate::error::printable;
use crate::probe::binary::DebugInfo;

/// Maximum number of references that are followed for a type or a name.
const HOPS: usize = 16;

type Bytes<'d> = EndianSlice<'d, RunTimeEndian>;
type Entry<'d> = DebuggingInformationEntry<Bytes<'d>>;
type Unit<'u, 'd> = UnitRef<'u, Bytes<'d>>;
type Result<T> = std::result::Result<T, Error>;

/// A function with code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFunction {
    /// Name in the source.
    pub name: String,
    /// Type of the result.
    pub result: SourceType,
    /// Source file.
    pub file: String,
    /// Line of the declaration.
    pub line: u64,
    /// Addresses of the code.
    pub code: Range<u64>,
    /// Parameters and variables, in the order of the source.
    pub variables: Vec<SourceVariable>,
    /// Lines of the source file at which a statement begins.
    pub lines: BTreeSet<u64>,
}

/// A parameter or a variable of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceVariable {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: SourceType,
    /// Whether it is a parameter.
    pub is_parameter: bool,
    /// Addresses at which it has a value.
    pub spans: Vec<Range<u64>>,
}

/// A type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceType {
    /// Declaration in C: `const char *`.
    pub text: String,
    /// Representation.
    pub value: ValueKind,
}

/// Representation of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// Signed integer of this size in bytes.
    Signed(u64),
    /// Unsigned integer of this size in bytes.
    Unsigned(u64),
    /// Pointer to a text: `char *`.
    Text,
    /// Any other pointer.
    Pointer,
    /// Floating-point number.
    Float,
    /// Structure, union or array.
    Aggregate,
    /// No value, or an unknown type.
    Void,
}

/// Returns the functions with this name in the source, or this symbol name, which have code.
///
/// # Errors
/// The debug information is malformed.
pub fn source_functions(info: &DebugInfo, name: &str) -> Result<Vec<SourceFunction>> {
    let dwarf = load(info)?;
    let (mut found, mut headers) = (Vec::new(), dwarf.units());
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let unit = UnitRef::new(&dwarf, &unit);
        let mut entries = unit.entries();
        let mut offsets = Vec::new();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() == gimli::DW_TAG_subprogram && is_called(unit, entry, name)? {
                offsets.push(entry.offset());
            }
        }
        for offset in offsets {
            found.extend(function(unit, offset)?);
        }
    }
    Ok(found)
}

/// Returns the path of the source file that ends with `file`, and its lines at which a statement begins. `None` if there is none.
///
/// # Errors
/// The debug information is malformed.
pub fn source_lines(info: &DebugInfo, file: &str) -> Result<Option<(String, BTreeSet<u64>)>> {
    let dwarf = load(info)?;
    let mut found: Option<(String, BTreeSet<u64>)> = None;
    let mut headers = dwarf.units();
    while let Some(header) = headers.next()? {
        let unit = dwarf.unit(header)?;
        let unit = UnitRef::new(&dwarf, &unit);
        let is_it = |path: &str| path == file || path.ends_with(&format!("/{file}"));
        let mut lines = BTreeSet::new();
        let mut named = None;
        each_line(unit, |index, line, _| {
            let path = path(unit, index);
            if path.as_deref().is_some_and(is_it) {
                lines.insert(line);
                named = path;
            }
        })?;
        if let Some(named) = named {
            found.get_or_insert((named, BTreeSet::new())).1.append(&mut lines);
        }
    }
    Ok(found)
}

fn load(info: &DebugInfo) -> Result<Dwarf<Bytes<'_>>> {
    let endian = if info.big_endian { RunTimeEndian::Big } else { RunTimeEndian::Little };
    Dwarf::load(|id: SectionId| Ok(EndianSlice::new(info.section(id), endian)))
}

/// Calls `each` with the file index, line and address of each row that begins a statement.
fn each_line(unit: Unit<'_, '_>, mut each: impl FnMut(u64, u64, u64)) -> Result<()> {
    let Some(program) = unit.line_program.clone() else { return Ok(()) };
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        if let Some(line) = row.line().filter(|_| row.is_stmt() && !row.end_sequence()) {
            each(row.file_index(), line.get(), row.address());
        }
    }
    Ok(())
}

/// Returns the path of a source file.
fn path(unit: Unit<'_, '_>, index: u64) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| unit.attr_string(value).map(|text| text.to_string_lossy().into_owned());
    let mut path = unit.comp_dir.map(|dir| dir.to_string_lossy().into_owned()).unwrap_or_default();
    let directory = file.directory(header).filter(|_| file.directory_index() != 0);
    for part in directory.into_iter().chain([file.path_name()]) {
        let part = text(part).ok()?;
        path = if part.starts_with('/') || path.is_empty() { part } else { format!("{path}/{part}") };
    }
    Some(printable(&path))
}

fn is_called<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>, name: &str) -> Result<bool> {
    let names = [gimli::DW_AT_name, gimli::DW_AT_linkage_name];
    for attribute in names {
        if text(unit, entry, attribute)?.is_some_and(|found| found == name) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns an attribute of an entry, or of the entry that it completes.
fn attribute<'d>(
    unit: Unit<'_, 'd>,
    entry: &Entry<'d>,
    name: gimli::DwAt,
) -> Result<Option<AttributeValue<Bytes<'d>>>> {
    let mut at = entry.clone();
    for _ in 0..HOPS {
        if let Some(value) = at.attr_value(name) {
            return Ok(Some(value));
        }
        let origin = at.attr_value(gimli::DW_AT_abstract_origin);
        match origin.or_else(|| at.attr_value(gimli::DW_AT_specification)) {
            Some(AttributeValue::UnitRef(offset)) => at = unit.entry(offset)?,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn text<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>, name: gimli::DwAt) -> Result<Option<String>> {
    let Some(value) = attribute(unit, entry, name)? else { return Ok(None) };
    Ok(Some(printable(&unit.attr_string(value)?.to_string_lossy())))
}

fn number<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>, name: gimli::DwAt) -> Result<Option<u64>> {
    Ok(attribute(unit, entry, name)?.and_then(|value| match value {
        AttributeValue::FileIndex(index) => Some(index),
        value => value.udata_value(),
    }))
}

/// Returns the function at an offset; `None` without code.
fn function(unit: Unit<'_, '_>, offset: UnitOffset) -> Result<Option<SourceFunction>> {
    let mut entries = unit.entries_at_offset(offset)?;
    let Some(entry) = entries.next_dfs()?.cloned() else { return Ok(None) };
    let Some(code) = ranges(unit, &entry)?.into_iter().next() else { return Ok(None) };
    let (mut variables, mut inlined) = (Vec::new(), Vec::new());
    let (depth, mut skipped) = (entry.depth(), None);
    while let Some(inner) = entries.next_dfs()? {
        if inner.depth() <= depth {
            break;
        }
        if skipped.is_some_and(|skipped| inner.depth() > skipped) {
            continue;
        }
        skipped = None;
        match inner.tag() {
            gimli::DW_TAG_inlined_subroutine => {
                inlined.extend(ranges(unit, inner)?);
                skipped = Some(inner.depth());
            }
            gimli::DW_TAG_subprogram => skipped = Some(inner.depth()),
            gimli::DW_TAG_formal_parameter | gimli::DW_TAG_variable => {
                variables.extend(variable(unit, inner, &code)?);
            }
            _ => {}
        }
    }
    let file = number(unit, &entry, gimli::DW_AT_decl_file)?;
    let line = number(unit, &entry, gimli::DW_AT_decl_line)?.unwrap_or(0);
    // As in perf, a probe at the first address is a probe at the declaration.
    let mut lines = BTreeSet::from([line]);
    each_line(unit, |index, line, address| {
        let is_inlined = inlined.iter().any(|range| range.contains(&address));
        if Some(index) == file && code.contains(&address) && address != code.start && !is_inlined {
            lines.insert(line);
        }
    })?;
    Ok(Some(SourceFunction {
        name: text(unit, &entry, gimli::DW_AT_name)?.unwrap_or_default(),
        result: kind(unit, &entry)?,
        file: file.and_then(|index| path(unit, index)).unwrap_or_default(),
        line,
        code,
        variables,
        lines,
    }))
}

fn ranges<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>) -> Result<Vec<Range<u64>>> {
    let (mut found, mut ranges) = (Vec::new(), unit.die_ranges(entry)?);
    while let Some(range) = ranges.next()? {
        found.push(range.begin..range.end);
    }
    Ok(found)
}

/// Returns a variable; `None` without a name.
fn variable<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>, code: &Range<u64>) -> Result<Option<SourceVariable>> {
    let Some(name) = text(unit, entry, gimli::DW_AT_name)? else { return Ok(None) };
    let mut spans = Vec::new();
    match entry.attr_value(gimli::DW_AT_location) {
        Some(AttributeValue::Exprloc(expression)) if !expression.0.is_empty() => spans.push(code.clone()),
        Some(value) => {
            if let Some(mut list) = unit.attr_locations(value)? {
                while let Some(location) = list.next()? {
                    if !location.data.0.is_empty() {
                        spans.push(location.range.begin..location.range.end);
                    }
                }
            }
        }
        None => {}
    }
    let is_parameter = entry.tag() == gimli::DW_TAG_formal_parameter;
    Ok(Some(SourceVariable { name, kind: kind(unit, entry)?, is_parameter, spans }))
}

/// Returns the type of an entry, as C declares it.
fn kind<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>) -> Result<SourceType> {
    let mut of = entry.clone();
    // What surrounds the name of the type, from the outside.
    let (mut before, mut after) = (String::new(), String::new());
    let (mut name, mut value) = (None, None);
    let mut steps = 0;
    loop {
        let next = match attribute(unit, &of, gimli::DW_AT_type)? {
            Some(AttributeValue::UnitRef(offset)) if steps < HOPS => unit.entry(offset)?,
            _ => break,
        };
        steps += 1;
        let called = text(unit, &next, gimli::DW_AT_name)?;
        let size = number(unit, &next, gimli::DW_AT_byte_size)?.unwrap_or(0);
        // Below a typedef, only the representation is of interest.
        let is_named = name.is_some();
        let mut end = |prefix: &str, kind: ValueKind| {
            if !is_named {
                name = Some(format!("{prefix}{}", called.clone().unwrap_or_else(|| "{…}".into())));
            }
            value.get_or_insert(kind);
        };
        match next.tag() {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => {
                let is_text = is_text(unit, &next)?;
                value.get_or_insert(if is_text { ValueKind::Text } else { ValueKind::Pointer });
                if !is_named {
                    // `char *const`: the pointer is constant, not the text.
                    after.insert_str(0, before.split_terminator(' ').next().unwrap_or_default());
                    before.clear();
                    after.insert(0, if next.tag() == gimli::DW_TAG_pointer_type { '*' } else { '&' });
                }
            }
            gimli::DW_TAG_const_type if !is_named => before.insert_str(0, "const "),
            gimli::DW_TAG_volatile_type if !is_named => before.insert_str(0, "volatile "),
            gimli::DW_TAG_typedef if !is_named => name = called,
            gimli::DW_TAG_base_type => {
                end("", base(unit, &next, size)?);
                break;
            }
            gimli::DW_TAG_enumeration_type => {
                end("enum ", ValueKind::Unsigned(size));
                break;
            }
            gimli::DW_TAG_structure_type => {
                end("struct ", ValueKind::Aggregate);
                break;
            }
            gimli::DW_TAG_class_type => {
                end("", ValueKind::Aggregate);
                break;
            }
            gimli::DW_TAG_union_type => {
                end("union ", ValueKind::Aggregate);
                break;
            }
            gimli::DW_TAG_array_type => {
                value.get_or_insert(ValueKind::Aggregate);
                if !is_named {
                    after.push_str("[]");
                }
            }
            gimli::DW_TAG_subroutine_type => {
                end("function ", ValueKind::Void);
                break;
            }
            _ => {}
        }
        of = next;
    }
    let name = name.unwrap_or_else(|| "void".to_owned());
    let space = if after.is_empty() { "" } else { " " };
    Ok(SourceType { text: format!("{before}{name}{space}{after}"), value: value.unwrap_or(ValueKind::Void) })
}

/// Returns the representation of a base type.
fn base<'d>(unit: Unit<'_, 'd>, entry: &Entry<'d>, size: u64) -> Result<ValueKind> {
    let encoding = match entry.attr_value(gimli::DW_AT_encoding) {
        Some(AttributeValue::Encoding(encoding)) => Some(encoding),
        _ => number(unit, entry, gimli::DW_AT_encoding)?
            .and_then(|number| Some(gimli::DwAte(u8::try_from(number).ok()?))),
    };
    Ok(match encoding {
        Some(gimli::DW_ATE_signed | gimli::DW_ATE_signed_char) => ValueKind::Signed(size),
        Some(gimli::DW_ATE_float | gimli::DW_ATE_complex_float) => ValueKind::Float,
        Some(_) => ValueKind::Unsigned(size),
        None => ValueKind::Void,
    })
}

/// Reports whether a pointer refers to characters.
fn is_text<'d>(unit: Unit<'_, 'd>, pointer: &Entry<'d>) -> Result<bool> {
    let mut of = pointer.clone();
    for _ in 0..HOPS {
        let Some(AttributeValue::UnitRef(offset)) = attribute(unit, &of, gimli::DW_AT_type)? else { break };
        of = unit.entry(offset)?;
        match of.tag() {
            gimli::DW_TAG_base_type => {
                return Ok(text(unit, &of, gimli::DW_AT_name)?.is_some_and(|name| name == "char"));
            }
            gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type | gimli::DW_TAG_typedef => {}
            _ => break,
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::files::{Files, Root};
    use crate::host::Roots;

    const SOURCE: &str = "\
typedef unsigned long size_type;
struct point { int x, y; };
static int total;
__attribute__((noinline)) int add(int n, const char *name, struct point *p, double d, size_type size)
{
\tint local = n * 2;

\tfor (int i = 0; i < n; i++)
\t\tlocal += i + p->x;
\ttotal += local;
\treturn local + (int)d + name[0] + (int)size;
}
int main(int argc, char **argv)
{
\tstruct point p = { argc, 2 };
\treturn add(argc, argv[0], &p, 1.5, sizeof(p));
}
";

    fn info(optimize: &str) -> (tempfile::TempDir, DebugInfo) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("t.c"), SOURCE).unwrap();
        let gcc = Command::new("gcc").current_dir(&dir).args(["-g", optimize, "-o", "t", "t.c"]).status();
        assert!(gcc.unwrap().success());
        let roots = Roots::under(std::path::Path::new("/"));
        let path = dir.path().join("t");
        let opened = Files::here(&roots).open(&Root::Host, path.to_str().unwrap(), None).unwrap();
        let info = opened.into_binary().unwrap().full_debug_info(1 << 30).unwrap();
        (dir, info)
    }

    #[test]
    fn parameters_have_the_names_and_types_of_the_source() {
        for optimize in ["-O0", "-O1", "-O2"] {
            let (dir, info) = info(optimize);
            let functions = source_functions(&info, "add").unwrap();
            let [add] = &functions[..] else { panic!("{functions:?}") };
            let parameters = add.variables.iter().filter(|variable| variable.is_parameter);
            let parameters: Vec<_> =
                parameters.map(|of| (&*of.name, &*of.kind.text, of.kind.value)).collect();
            let expected = [
                ("n", "int", ValueKind::Signed(4)),
                ("name", "const char *", ValueKind::Text),
                ("p", "struct point *", ValueKind::Pointer),
                ("d", "double", ValueKind::Float),
                ("size", "size_type", ValueKind::Unsigned(8)),
            ];
            assert_eq!(parameters, expected, "{optimize}");
            assert!(add.variables.iter().any(|of| of.name == "local" && !of.is_parameter));
            assert_eq!((add.line, &*add.result.text), (4, "int"));
            assert_eq!(add.file, dir.path().join("t.c").to_str().unwrap());
        }
    }

    #[test]
    fn lines_are_those_with_statements_of_the_function() {
        let (_dir, info) = info("-O0");
        let add = source_functions(&info, "add").unwrap().remove(0);
        assert_eq!(add.lines.iter().copied().collect::<Vec<_>>(), [4, 6, 8, 9, 10, 11, 12]);
        let (path, lines) = source_lines(&info, "t.c").unwrap().unwrap();
        // The line of the declaration, 4, begins no statement.
        let statements: BTreeSet<u64> = add.lines.iter().copied().skip(1).collect();
        assert!(path.ends_with("/t.c") && lines.contains(&16) && lines.is_superset(&statements), "{lines:?}");
        assert_eq!(source_lines(&info, "absent.c").unwrap(), None);
        assert_eq!(source_functions(&info, "nosuch").unwrap(), []);
    }
}
