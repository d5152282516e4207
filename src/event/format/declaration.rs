//! Parser for one line of a format: `field:char prev_comm[16]; offset:8; size:16; signed:0;`.

use super::{Field, FieldKind, RECORD_LIMIT, Show};
use crate::event::is_word;

/// Type prefixes of dynamic fields, and whether their offset is relative to the field.
const DYNAMIC: [(&str, bool); 2] = [("__data_loc ", false), ("__rel_loc ", true)];

/// Parses a line that begins with `field`.
pub(super) fn field(line: &str) -> Result<Field, String> {
    let (mut declaration, mut offset, mut size, mut signed) = (None, None, None, false);
    for part in line.split(';') {
        let Some((key, value)) = part.split_once(':') else { continue };
        let value = value.trim();
        match key.trim() {
            "field" | "field special" => declaration = Some(value),
            "offset" => offset = Some(place("offset", value)?),
            "size" => size = Some(place("size", value)?),
            // Kernels before 2.6.32 omit this key.
            "signed" => signed = value != "0",
            _ => {}
        }
    }
    let declaration = declaration.unwrap_or_default();
    let Some((base, name, length)) = parts(declaration) else {
        return Err(format!("{declaration:?} is not a field declaration"));
    };
    let missing = |what: &str| format!("the field {name} has no {what}");
    let offset = offset.ok_or_else(|| missing("offset"))?;
    let size = size.ok_or_else(|| missing("size"))?;
    let kind = kind(base, length, size, signed);
    Ok(Field {
        show: if kind == FieldKind::Pointer { Show::Hex } else { Show::Plain },
        kind,
        name: name.into(),
        common: name.starts_with("common_"),
        declaration: declaration.into(),
        signed,
        offset,
        size,
    })
}

/// Parses an offset or a size in a record, in bytes.
fn place(what: &str, value: &str) -> Result<usize, String> {
    let number: usize = value.parse().map_err(|_| format!("the {what} {value:?} is not a number"))?;
    match number {
        ..=RECORD_LIMIT => Ok(number),
        _ => Err(format!("the {what} {number} exceeds the maximum record size")),
    }
}

/// Splits `TYPE NAME` or `TYPE NAME[LENGTH]` into the type, the name and the length. The type excludes the brackets after the name.
fn parts(declaration: &str) -> Option<(&str, &str, Option<&str>)> {
    // Brackets before the name belong to the type, as in `__data_loc char[] name`.
    let (declared, length) = match declaration.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((declared, length)) => (declared.trim_end(), Some(length)),
        None => (declaration, None),
    };
    let base = declared.trim_end_matches(is_word);
    let name = &declared[base.len()..];
    (!name.is_empty() && !base.trim().is_empty()).then_some((base.trim(), name, length))
}

/// Returns the type of a declaration as the kernel's filters see it: without the name, with the brackets.
pub(in crate::event) fn type_of(declaration: &str) -> String {
    match parts(declaration) {
        Some((base, _, Some(length))) => format!("{base}[{length}]"),
        Some((base, ..)) => base.to_owned(),
        None => String::new(),
    }
}

fn kind(base: &str, length: Option<&str>, size: usize, signed: bool) -> FieldKind {
    for (prefix, relative) in DYNAMIC {
        if let Some(element) = base.strip_prefix(prefix) {
            // A probe's array of texts, `char[][2]`, has several location words. Only the first is decoded.
            let element = element.split('[').next().unwrap_or_default().trim();
            return match element {
                "char" => FieldKind::DynamicText { relative },
                _ => FieldKind::DynamicArray { element: size_of_type(element), signed, relative },
            };
        }
    }
    if let Some(length) = length {
        if base == "char" {
            return FieldKind::Text;
        }
        // The total size is exact. The size of a type is a guess from its name.
        let declared = length.parse().ok().and_then(|length| size.checked_div(length));
        let element = declared.filter(|element| is_width(*element)).unwrap_or_else(|| size_of_type(base));
        return FieldKind::Array { element, signed };
    }
    let is_number = is_width(size);
    if base.ends_with('*') && is_number {
        return FieldKind::Pointer;
    }
    let is_whole = base.starts_with("struct ") || base.starts_with("union ");
    if is_number && !is_whole {
        FieldKind::Integer { signed }
    } else {
        FieldKind::Array { element: 1, signed }
    }
}

/// Reports whether a number can have this size, in bytes.
fn is_width(size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8)
}

/// Returns the size of a type in bytes, by its name. 1 for unknown types, which are printed byte by byte.
pub(super) fn size_of_type(name: &str) -> usize {
    if name.ends_with('*') {
        return size_of::<usize>();
    }
    let name = name.strip_prefix("const ").unwrap_or(name).trim();
    match name.trim_start_matches('_') {
        "short" | "unsigned short" | "u16" | "s16" | "uint16_t" | "int16_t" | "be16" | "le16" => 2,
        "int" | "unsigned" | "unsigned int" | "u32" | "s32" | "uint32_t" | "int32_t" | "be32" | "le32"
        | "pid_t" | "uid_t" | "gid_t" | "dev_t" => 4,
        "u64" | "s64" | "uint64_t" | "int64_t" | "be64" | "le64" | "long long" | "unsigned long long"
        | "loff_t" | "sector_t" => 8,
        "long" | "unsigned long" | "size_t" | "ssize_t" | "cpumask_t" => size_of::<usize>(),
        _ => 1,
    }
}
