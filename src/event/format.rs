//! Record formats of tracepoints: the file `events/SYSTEM/EVENT/format` of tracefs, and decoding of raw records.
//!
//! ```text
//! name: sched_switch
//! ID: 372
//! format:
//!         field:unsigned short common_type;  offset:0;  size:2;  signed:0;
//!         …
//!         field:char prev_comm[16];          offset:8;  size:16; signed:0;
//!
//! print fmt: "prev_comm=%s prev_state=%s …", REC->prev_comm, __print_flags(REC->prev_state, "|", { 0x1, "S" }, …
//! ```
//!
//! The `field` lines describe where a field is. The C expression after `print fmt` describes how the kernel prints it, including the names
//! of flags, symbols and functions. Fields whose expression is not understood are printed plainly.
//!
//! Sources: `Documentation/trace/events.rst`, `f_show` in `kernel/trace/trace_events.c`, and `__data_loc` in
//! `include/trace/stages/stage1_struct_define.h` for records with variable-length strings.

mod declaration;
mod expression;
mod line;
mod print;
mod show;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use memchr::memchr;

pub(super) use declaration::type_of;
pub use line::{Address, Printer};
pub use show::{Part, Show, Table};

use super::pattern;

/// Maximum file size, in bytes. The largest format of Linux 6.18 has 6 KiB.
const TEXT_LIMIT: usize = 1 << 20;
/// Maximum number of fields of one tracepoint. The kernel limits probes to 128 arguments.
const FIELD_LIMIT: usize = 256;
/// Maximum record size, in bytes: `__data_loc` has 16 bits for an offset.
const RECORD_LIMIT: usize = 1 << 16;

/// The record format of one tracepoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    id: u64,
    name: Arc<str>,
    fields: Vec<Field>,
    /// The text after `print fmt:`.
    print: Arc<str>,
}

/// One field of a tracepoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name in filters and in `print fmt`.
    pub name: Arc<str>,
    /// Type of the bytes.
    pub kind: FieldKind,
    /// Format in which the kernel prints the value.
    pub show: Show,
    /// Whether every tracepoint has this field (`common_type`, `common_flags`, `common_preempt_count`, `common_pid`).
    pub common: bool,
    /// The C declaration as in the file: `char prev_comm[16]`.
    pub declaration: Arc<str>,
    /// Whether the kernel treats the numbers as signed. Set for arrays and strings too.
    signed: bool,
    /// Offset and size in the record, in bytes.
    offset: usize,
    size: usize,
}

/// Type of a field's bytes. Numbers are in the byte order of the machine that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// A number of 1, 2, 4 or 8 bytes: integers, `bool`, enumerations.
    Integer {
        /// Whether it can be negative.
        signed: bool,
    },
    /// A kernel or user address. The record does not contain the data at the address.
    Pointer,
    /// `char[N]`: a text that ends at its first NUL or at the end of the field.
    Text,
    /// `TYPE[N]`, and every other type that is neither a number nor a text: consecutive elements.
    Array {
        /// The size of an element in bytes: 1, 2, 4 or 8.
        element: usize,
        /// Whether elements can be negative.
        signed: bool,
    },
    /// A text after the fields. The field contains its offset and length.
    DynamicText {
        /// Whether the offset is relative to the end of the field (`__rel_loc`) instead of the start of the record (`__data_loc`).
        relative: bool,
    },
    /// Elements after the fields. The field contains their offset and length.
    DynamicArray {
        /// The size of an element in bytes: 1, 2, 4 or 8.
        element: usize,
        /// Whether elements can be negative.
        signed: bool,
        /// As with [`DynamicText`](Self::DynamicText).
        relative: bool,
    },
}

/// The value of a field in one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Value<'r> {
    /// A number of [`FieldKind::Integer`] or [`FieldKind::Pointer`].
    Unsigned(u64),
    /// A number of a signed [`FieldKind::Integer`].
    Signed(i64),
    /// Bytes of every other kind. A text ends before its first NUL, and may be invalid UTF-8.
    Bytes(&'r [u8]),
}

/// A parse error in a format file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", if *line > 0 { format!("line {line}: ") } else { String::new() })]
pub struct FormatError {
    /// The line, from 1. 0 = the file as a whole.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl Format {
    /// Returns the format of an event that is not a tracepoint: its records have no fields.
    pub fn without_fields(name: &str) -> Self {
        Self { id: 0, name: name.into(), fields: Vec::new(), print: "".into() }
    }

    /// Parses a whole format file. Unknown lines, which later kernels may add, are skipped.
    ///
    /// # Errors
    /// The first invalid line, or a missing line. An unsupported `print fmt` is not an error.
    pub fn parse(text: &str) -> Result<Self, FormatError> {
        let whole = |message: String| FormatError { line: 0, message };
        if text.len() > TEXT_LIMIT {
            return Err(whole(format!("longer than {} KiB", TEXT_LIMIT >> 10)));
        }
        let (head, print) = text.split_once("\nprint fmt:").unwrap_or((text, ""));
        let (mut name, mut id, mut fields) = (None, None, Vec::new());
        for (number, line) in head.lines().enumerate() {
            let wrong = |message: String| FormatError { line: number + 1, message };
            let line = line.trim();
            if let Some(word) = line.strip_prefix("name:") {
                name = Some(Arc::from(word.trim()));
            } else if let Some(word) = line.strip_prefix("ID:") {
                let word = word.trim();
                id = Some(word.parse().map_err(|_| wrong(format!("the ID {word:?} is not a number")))?);
            } else if line.starts_with("field:") || line.starts_with("field special:") {
                if fields.len() == FIELD_LIMIT {
                    return Err(wrong(format!("more than {FIELD_LIMIT} fields")));
                }
                fields.push(declaration::field(line).map_err(wrong)?);
            }
        }
        let name = name.ok_or_else(|| whole("the line \"name:\" is missing".into()))?;
        let id = id.ok_or_else(|| whole("the line \"ID:\" is missing".into()))?;
        print::apply(print, &mut fields);
        Ok(Self { id, name, fields, print: print.trim().into() })
    }

    /// Returns the tracepoint ID: `perf_event_attr.config`, and `common_type` of its records.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the name of the tracepoint, without its system.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns all fields, the common fields first.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    /// Returns a printer for whole records.
    pub fn printer(&self) -> Printer {
        Printer::new(self)
    }

    /// Returns the field name closest to `name`, for suggestions.
    pub fn near(&self, name: &str) -> Option<&str> {
        pattern::nearest(name, self.fields.iter().map(|field| &*field.name))
    }
}

impl Field {
    /// Returns the value in a record, or `None` if the record is too short. `raw` is the record in the kernel's layout, from `common_type`
    /// on (the bytes after the size in `PERF_SAMPLE_RAW`). Does not allocate.
    #[inline]
    pub fn value<'r>(&self, raw: &'r [u8]) -> Option<Value<'r>> {
        let end = self.offset + self.size;
        match self.kind {
            FieldKind::Integer { signed: true } => signed(raw.get(self.offset..end)?).map(Value::Signed),
            FieldKind::Integer { signed: false } | FieldKind::Pointer => {
                unsigned(raw.get(self.offset..end)?).map(Value::Unsigned)
            }
            FieldKind::Text => self.fixed(raw).map(until_nul).map(Value::Bytes),
            FieldKind::Array { .. } => self.fixed(raw).map(Value::Bytes),
            FieldKind::DynamicText { relative } => {
                self.dynamic(raw, relative).map(until_nul).map(Value::Bytes)
            }
            FieldKind::DynamicArray { relative, .. } => self.dynamic(raw, relative).map(Value::Bytes),
        }
    }

    /// Reports whether the values are texts.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, FieldKind::Text | FieldKind::DynamicText { .. })
    }

    /// Reports whether the values are numbers or addresses.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, FieldKind::Integer { .. } | FieldKind::Pointer)
    }

    /// Returns the offset and the size in a record, in bytes.
    pub fn span(&self) -> (usize, usize) {
        (self.offset, self.size)
    }

    /// Returns the number in a record, in two's complement if negative. `None` if the record is too short or the field is not a number.
    #[inline]
    pub fn number(&self, raw: &[u8]) -> Option<u64> {
        match self.value(raw)? {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => Some(number as u64),
            Value::Bytes(_) => None,
        }
    }

    /// Formats a value as the kernel prints it, except for padding: names of flags (`A|B`) and symbols, and `8,0` for a device. Addresses,
    /// and values that `print fmt` prints in hexadecimal, are in hexadecimal. Functions are printed as addresses because this type has no
    /// symbol table. Invalid UTF-8 becomes U+FFFD.
    pub fn render(&self, value: &Value<'_>) -> String {
        show::render(self, value)
    }

    pub(super) fn is_signed(&self) -> bool {
        self.signed
    }

    /// Returns the size in the record, in bytes. For a dynamic field, the size of its location word.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the bytes of the field. An array without a length (`u32 buf[]`) extends to the end of the record.
    #[inline]
    fn fixed<'r>(&self, raw: &'r [u8]) -> Option<&'r [u8]> {
        match self.size {
            0 => raw.get(self.offset..),
            size => raw.get(self.offset..self.offset + size),
        }
    }

    /// Returns the bytes that a dynamic field refers to. The lower half of the field is their offset, the upper half their length.
    #[inline]
    fn dynamic<'r>(&self, raw: &'r [u8], relative: bool) -> Option<&'r [u8]> {
        let place = raw.get(self.offset..self.offset + 4)?;
        let place = u32::from_ne_bytes(place.try_into().ok()?);
        let (offset, length) = ((place & 0xffff) as usize, (place >> 16) as usize);
        let start = if relative { self.offset + 4 + offset } else { offset };
        raw.get(start..start + length)
    }
}

#[inline]
fn until_nul(bytes: &[u8]) -> &[u8] {
    let end = memchr(0, bytes).unwrap_or(bytes.len());
    &bytes[..end]
}

/// Decodes a number of 1, 2, 4 or 8 bytes.
#[inline]
fn unsigned(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => u64::from_ne_bytes(bytes.try_into().ok()?),
    })
}

/// Decodes a number in two's complement, as [`unsigned`].
#[inline]
fn signed(bytes: &[u8]) -> Option<i64> {
    // At most 8 bytes, because `unsigned` rejects longer slices.
    let unused = |bytes: &[u8]| 64 - 8 * bytes.len();
    unsigned(bytes).map(|number| (number << unused(bytes)).cast_signed() >> unused(bytes))
}
