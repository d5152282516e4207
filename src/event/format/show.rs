//! Print formats of fields, and formatting of values.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{Field, FieldKind, Value, signed, unsigned};

/// Format in which `print fmt` prints a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// Numbers in decimal, texts unchanged.
    Plain,
    /// Hexadecimal (`%x`, `%p`), and all addresses.
    Hex,
    /// A character (`%c`).
    Char,
    /// Names of bits (`__print_flags`).
    Flags {
        /// Separator between two names.
        separator: Arc<str>,
        /// The names.
        table: Table,
        /// Text for a value without bits, if `print fmt` has one: `R` for the state of a running task.
        none: Option<Arc<str>>,
    },
    /// Names of values (`__print_symbolic`).
    Symbols(Table),
    /// The name of the function at this address (`%ps`, `%pS`, `%pf`, `%pF`, `%pB`).
    Function,
    /// `MAJOR,MINOR` of a `dev_t`.
    Device,
    /// Bytes in hexadecimal without separators (`__print_hex`, `__print_hex_str`).
    Bytes,
    /// A network address, by its length: Ethernet, IPv4 or IPv6 (`%pM`, `%pI4`, `%pI6c`).
    Address,
    /// An internet `struct sockaddr` with its port (`%pISpc`).
    Socket,
}

/// Names of values, or of bits in values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The part of the field that the names apply to.
    pub part: Part,
    /// Values and their names, in the kernel's order. Names can repeat.
    pub entries: Arc<[(u64, Arc<str>)]>,
}

/// Some bits of a number: shifted to the right, then masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// Shift in bits.
    pub shift: u32,
    /// Mask after the shift.
    pub mask: u64,
}

impl Part {
    /// All bits.
    pub const WHOLE: Self = Self { shift: 0, mask: u64::MAX };

    /// Returns these bits of a number.
    pub fn of(self, number: u64) -> u64 {
        number.checked_shr(self.shift).unwrap_or(0) & self.mask
    }
}

impl Show {
    /// Reports whether the output depends on every bit of the field.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Flags { table, .. } | Self::Symbols(table) => table.part == Part::WHOLE,
            _ => true,
        }
    }
}

impl Table {
    /// Returns the name of a value.
    fn name(&self, value: u64) -> Option<&str> {
        self.entries.iter().find(|(named, _)| *named == value).map(|(_, name)| &**name)
    }

    /// Formats flags like `trace_print_flags_seq`: the name of every entry whose bits are all set and not yet named, then the remaining
    /// bits as a number. As in perf, an entry without bits is never printed as a flag.
    fn flags(&self, value: u64, separator: &str) -> String {
        let (mut rest, mut names) = (value, Vec::new());
        for (bits, name) in &*self.entries {
            if *bits != 0 && rest & bits == *bits {
                names.push(&**name);
                rest &= !bits;
            }
        }
        let number = format!("{rest:#x}");
        names.extend((rest != 0).then_some(&*number));
        names.join(separator)
    }
}

pub(super) fn render(field: &Field, value: &Value<'_>) -> String {
    match *value {
        Value::Unsigned(number) => number_as(field, number, || number.to_string()),
        Value::Signed(number) => number_as(field, number as u64, || number.to_string()),
        Value::Bytes(bytes) => match field.kind {
            FieldKind::Array { element, signed } | FieldKind::DynamicArray { element, signed, .. } => {
                array(&field.show, bytes, element, signed)
            }
            _ => String::from_utf8_lossy(bytes).into_owned(),
        },
    }
}

/// Formats a number whose sign was extended to 64 bits, as in the kernel's expressions.
fn number_as(field: &Field, number: u64, plain: impl Fn() -> String) -> String {
    match &field.show {
        Show::Flags { separator, table, none } => {
            let value = table.part.of(number);
            let zero = || table.name(0).or(none.as_deref()).unwrap_or("0").to_owned();
            if value == 0 { zero() } else { table.flags(value, separator) }
        }
        Show::Symbols(table) => {
            let value = table.part.of(number);
            table.name(value).map_or_else(|| format!("{value:#x}"), str::to_owned)
        }
        Show::Device => format!("{},{}", number >> 20, number & 0xf_ffff),
        Show::Char => match u8::try_from(number & 0xff) {
            Ok(byte) if byte.is_ascii_graphic() || byte == b' ' => char::from(byte).to_string(),
            _ => plain(),
        },
        Show::Hex | Show::Function => format!("{:#x}", within(number, field.size)),
        Show::Plain | Show::Bytes | Show::Address | Show::Socket => plain(),
    }
}

/// Clears the sign-extension bits beyond the field's size in bytes.
fn within(number: u64, size: usize) -> u64 {
    match size {
        1..=7 => number & ((1 << (8 * size)) - 1),
        _ => number,
    }
}

fn array(show: &Show, bytes: &[u8], element: usize, is_signed: bool) -> String {
    match show {
        Show::Bytes => joined(bytes, ""),
        Show::Address => address(bytes).unwrap_or_else(|| elements(bytes, element, false, true)),
        Show::Socket => socket(bytes).unwrap_or_else(|| elements(bytes, element, false, true)),
        Show::Hex | Show::Function => elements(bytes, element, false, true),
        _ => elements(bytes, element, is_signed, false),
    }
}

/// Formats elements as `{1,2,3}`, or as `{0x1,0x2}` like `__print_array`. Trailing bytes shorter than an element are ignored.
fn elements(bytes: &[u8], element: usize, is_signed: bool, hex: bool) -> String {
    let one = |bytes: &[u8]| match (is_signed, hex) {
        (true, _) => signed(bytes).unwrap_or(0).to_string(),
        (false, true) => format!("{:#x}", unsigned(bytes).unwrap_or(0)),
        (false, false) => unsigned(bytes).unwrap_or(0).to_string(),
    };
    let elements: Vec<String> = bytes.chunks_exact(element.max(1)).map(one).collect();
    format!("{{{}}}", elements.join(","))
}

fn joined(bytes: &[u8], separator: &str) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(separator)
}

fn address(bytes: &[u8]) -> Option<String> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|bytes| Ipv4Addr::from(bytes).to_string()),
        6 => Some(joined(bytes, ":")),
        16 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| Ipv6Addr::from(bytes).to_string()),
        _ => None,
    }
}

/// Formats a `struct sockaddr_in` or `sockaddr_in6`: family, port and address. In `sockaddr_in6` the address follows the flow label.
fn socket(bytes: &[u8]) -> Option<String> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        libc::AF_INET => Some(format!("{}:{port}", address(bytes.get(4..8)?)?)),
        libc::AF_INET6 => Some(format!("[{}]:{port}", address(bytes.get(8..24)?)?)),
        _ => None,
    }
}
