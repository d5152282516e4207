//! What a tracepoint records: the file `events/SYSTEM/EVENT/format` of tracefs, and values out of raw records by it.
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
//! The lines say where a field is, and the C expression behind `print fmt` how the kernel writes it: that is where
//! names of flags, symbols and functions come from. What of it is not understood leaves its fields as they are.
//!
//! Sources: `Documentation/trace/events.rst`, `f_show` in `kernel/trace/trace_events.c`, and for records with strings
//! of any length `__data_loc` in `include/trace/stages/stage1_struct_define.h`.

mod declaration;
mod expression;
mod print;
mod show;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

use memchr::memchr;

pub(super) use declaration::type_of;
pub use show::{Part, Show, Table};

use super::pattern;

/// The longest file, in bytes. The longest of Linux 6.18 has 6 KiB.
const TEXT_LIMIT: usize = 1 << 20;
/// The most fields of one tracepoint; the kernel's own limit for probes is 128 arguments.
const FIELD_LIMIT: usize = 256;
/// What a record can hold, in bytes: `__data_loc` has 16 bits for a place in it.
const RECORD_LIMIT: usize = 1 << 16;

/// The fields of one tracepoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    id: u64,
    name: Arc<str>,
    fields: Vec<Field>,
}

/// One field of a tracepoint.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// What it is called in filters and in `print fmt`.
    pub name: Arc<str>,
    /// What its bytes are.
    pub kind: FieldKind,
    /// How the kernel writes it.
    pub show: Show,
    /// Whether every tracepoint has it (`common_type`, `common_flags`, `common_preempt_count`, `common_pid`).
    pub common: bool,
    /// The declaration in C, as it stands in the file: `char prev_comm[16]`.
    pub declaration: Arc<str>,
    /// Whether the kernel takes its numbers for signed. Said of arrays and strings too.
    signed: bool,
    /// Where it begins in the record, and how long it is there, in bytes.
    offset: usize,
    size: usize,
}

/// What the bytes of a field are. Numbers are in the byte order of the machine that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// A number of 1, 2, 4 or 8 bytes: integers, `bool`, enumerations.
    Integer {
        /// Whether it can be negative.
        signed: bool,
    },
    /// An address, of the kernel or of a program. What it points to is not in the record.
    Pointer,
    /// `char[N]`: a text that ends at its first NUL, or with the field.
    Text,
    /// `TYPE[N]` and whatever else is no number and no text: elements side by side.
    Array {
        /// The size of an element in bytes: 1, 2, 4 or 8.
        element: usize,
        /// Whether elements can be negative.
        signed: bool,
    },
    /// A text somewhere behind the fields; the field says where.
    DynamicText {
        /// Whether the place is counted from the end of the field (`__rel_loc`), and not from the start of the
        /// record (`__data_loc`).
        relative: bool,
    },
    /// Elements somewhere behind the fields; the field says where.
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
    /// Of [`FieldKind::Integer`] and [`FieldKind::Pointer`].
    Unsigned(u64),
    /// Of [`FieldKind::Integer`].
    Signed(i64),
    /// Of the others. A text ends before its first NUL, and need not be UTF-8.
    Bytes(&'r [u8]),
}

/// A file that is no format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError {
    /// The line, from 1; 0 = the file as a whole.
    pub line: usize,
    /// What is wrong there.
    pub message: String,
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}: {}", self.message),
        }
    }
}

impl std::error::Error for FormatError {}

impl Format {
    /// Reads a whole file. Lines that later kernels may add between the known ones are passed over.
    ///
    /// # Errors
    /// The first line that is broken, or what is missing. A `print fmt` that is not understood is no error.
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
                id = Some(word.parse().map_err(|_| wrong(format!("the ID {word:?} is no number")))?);
            } else if line.starts_with("field:") || line.starts_with("field special:") {
                if fields.len() == FIELD_LIMIT {
                    return Err(wrong(format!("more than {FIELD_LIMIT} fields")));
                }
                fields.push(declaration::field(line).map_err(wrong)?);
            }
        }
        let name = name.ok_or_else(|| whole("there is no line \"name:\"".into()))?;
        let id = id.ok_or_else(|| whole("there is no line \"ID:\"".into()))?;
        print::apply(print, &mut fields);
        Ok(Self { id, name, fields })
    }

    /// The number of the tracepoint: `perf_event_attr.config`, and `common_type` of its records.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The name of the tracepoint, without its system.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All fields, the common ones first.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// The field of that name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| &*field.name == name)
    }

    /// The name of a field that was probably meant.
    pub fn near(&self, name: &str) -> Option<&str> {
        pattern::nearest(name, self.fields.iter().map(|field| &*field.name))
    }
}

impl Field {
    /// What a record says; `None` where it is too short for that. `raw` is the record as the kernel laid it out, from
    /// `common_type` on (what stands behind the size in `PERF_SAMPLE_RAW`). Allocates nothing.
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

    /// Whether its values are texts.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, FieldKind::Text | FieldKind::DynamicText { .. })
    }

    /// Whether its values are numbers, addresses among them.
    pub fn is_number(&self) -> bool {
        matches!(self.kind, FieldKind::Integer { .. } | FieldKind::Pointer)
    }

    /// Where it begins in a record, and how long it is there, in bytes.
    pub fn span(&self) -> (usize, usize) {
        (self.offset, self.size)
    }

    /// Its number in a record: of one below zero the two's complement. `None` where the record is too short, or it is none.
    #[inline]
    pub fn number(&self, raw: &[u8]) -> Option<u64> {
        match self.value(raw)? {
            Value::Unsigned(number) => Some(number),
            Value::Signed(number) => Some(number as u64),
            Value::Bytes(_) => None,
        }
    }

    /// A value of this field as the kernel writes it, but for padding: names of flags (`A|B`) and symbols, `8,0` for
    /// a device, addresses and what `print fmt` writes so in hexadecimal. Functions are addresses here; their names
    /// are known to who knows the symbols. Bytes of a text that are not UTF-8 become U+FFFD.
    pub fn render(&self, value: &Value<'_>) -> String {
        show::render(self, value)
    }

    pub(super) fn is_signed(&self) -> bool {
        self.signed
    }

    /// In bytes, in the record; of a dynamic field the place that says where it is.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The bytes of the field. Those of an array without a length (`u32 buf[]`) reach to the end of the record.
    #[inline]
    fn fixed<'r>(&self, raw: &'r [u8]) -> Option<&'r [u8]> {
        match self.size {
            0 => raw.get(self.offset..),
            size => raw.get(self.offset..self.offset + size),
        }
    }

    /// The bytes that the field points to: their offset is in the lower half, their length in the upper.
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

/// A number of 1, 2, 4 or 8 bytes.
#[inline]
fn unsigned(bytes: &[u8]) -> Option<u64> {
    Some(match *bytes {
        [a] => a.into(),
        [a, b] => u16::from_ne_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
        _ => u64::from_ne_bytes(bytes.try_into().ok()?),
    })
}

/// As [`unsigned`], in two's complement.
#[inline]
fn signed(bytes: &[u8]) -> Option<i64> {
    // Of at most 8 bytes, which is what `unsigned` takes.
    let unused = |bytes: &[u8]| 64 - 8 * bytes.len();
    unsigned(bytes).map(|number| (number << unused(bytes)).cast_signed() >> unused(bytes))
}
