//! The fields of a tracepoint, and how labels show them.

use std::io::{self, Write};

use serde::Serialize;

use crate::cli::probe::{entry_name, quoted};
use crate::error::printable;
use crate::event::format::{Field, FieldKind, Format, Show, Table};
use crate::event::{Catalog, Kind, Listed};

/// Maximum number of names of a table that are shown.
const NAMES: usize = 8;
/// Label names that have another meaning.
const TAKEN: [&str; 3] = ["event", "le", "quantile"];

/// The fields of a tracepoint, without the common fields of all tracepoints.
#[derive(Debug, Serialize)]
pub(super) struct Records {
    fields: Vec<Row>,
    /// Reason why the fields could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// An entry for the section `tracepoints`.
    yaml: String,
}

/// One field.
#[derive(Debug, Serialize)]
struct Row {
    field: String,
    /// Declaration in C.
    declaration: String,
    /// Content of a label with this field.
    label: String,
}

impl Records {
    /// Returns the fields of a tracepoint, or `None` for other events.
    pub(super) fn of(event: &Listed, catalog: &Catalog) -> Option<Self> {
        let (system, name) = event.name.split_once(':').filter(|_| event.kind == Kind::Tracepoint)?;
        let entry = |then: &str| format!("{}: {{event: {}{then}}}", entry_name(name), quoted(&event.name));
        let (fields, reason, label) = match catalog.format(system, name) {
            Ok(format) => {
                let label = best(&format).map(|field| format!(", labels: [{}]", field.name));
                (own(&format).map(Row::of).collect(), None, label.unwrap_or_default())
            }
            Err(error) => (Vec::new(), Some(error.to_string()), String::new()),
        };
        Some(Self { fields, reason, yaml: entry(&label) })
    }

    /// Writes the fields as text.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match &self.reason {
            Some(reason) => writeln!(out, "\nIts fields could not be read: {reason}")?,
            None if self.fields.is_empty() => writeln!(out, "\nIt has no fields")?,
            None => writeln!(out, "\nFields, declarations and the content of a label:")?,
        }
        for Row { field, declaration, label } in &self.fields {
            writeln!(out, "  {:<24} {:<36} {}", printable(field), printable(declaration), printable(label))?;
        }
        writeln!(out, "\nWith labels, in the configuration: tracepoints: {{{}}}", self.yaml)
    }
}

impl Row {
    fn of(field: &Field) -> Self {
        Self {
            field: field.name.to_string(),
            declaration: field.declaration.to_string(),
            label: label(field),
        }
    }
}

fn own(format: &Format) -> impl Iterator<Item = &Field> {
    format.fields().iter().filter(|field| !field.common)
}

/// Describes the content of a label with this field.
fn label(field: &Field) -> String {
    match (&field.show, field.kind) {
        (Show::Flags { separator, table, .. }, _) => format!("names of flags: {}", names(table, separator)),
        (Show::Symbols(table), _) => format!("names: {}", names(table, ", ")),
        (Show::Function, _) => "the function at this address".to_owned(),
        (Show::Device, _) => "a device number: MAJOR,MINOR".to_owned(),
        (Show::Address, _) => "a network address".to_owned(),
        (Show::Socket, _) => "a network address and port".to_owned(),
        (Show::Bytes, _) => "bytes in hexadecimal".to_owned(),
        (Show::Char, _) => "a character".to_owned(),
        (_, FieldKind::Text | FieldKind::DynamicText { .. }) => "text".to_owned(),
        (_, FieldKind::Array { .. } | FieldKind::DynamicArray { .. }) => "numbers: {1,2,…}".to_owned(),
        (_, FieldKind::Pointer) => "an address in hexadecimal".to_owned(),
        (Show::Hex, FieldKind::Integer { .. }) => "a number in hexadecimal".to_owned(),
        (Show::Plain, FieldKind::Integer { .. }) => "a number".to_owned(),
    }
}

fn names(table: &Table, separator: &str) -> String {
    let mut names: Vec<&str> = table.entries.iter().take(NAMES).map(|(_, name)| &**name).collect();
    if table.entries.len() > NAMES {
        names.push("…");
    }
    names.join(separator)
}

/// Returns the field that makes the best label. Names are preferred to texts, and texts to numbers.
fn best(format: &Format) -> Option<&Field> {
    let is_free = |name: &str| !name.starts_with('_') && !TAKEN.contains(&name);
    let rank = |field: &&Field| match (&field.show, field.kind) {
        (Show::Symbols(_), _) => 0,
        (Show::Function, _) => 1,
        (Show::Flags { .. }, _) => 2,
        (_, FieldKind::Text | FieldKind::DynamicText { .. }) => 3,
        (Show::Device, _) => 4,
        (_, FieldKind::Integer { .. }) => 5,
        _ => 6,
    };
    own(format).filter(|field| is_free(&field.name)).min_by_key(rank)
}
