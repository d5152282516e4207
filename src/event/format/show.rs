//! How the kernel writes a field, and values written so.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{Field, FieldKind, Value, signed, unsigned};

/// How `print fmt` writes a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Show {
    /// Numbers in decimal, texts as they are.
    Plain,
    /// In hexadecimal (`%x`, `%p`). All addresses, too.
    Hex,
    /// A character (`%c`).
    Char,
    /// Names of bits (`__print_flags`).
    Flags {
        /// What stands between two names.
        separator: Arc<str>,
        /// The names.
        table: Table,
        /// What is written where no bit is set, if `print fmt` says so: `R` for the state of a running task.
        none: Option<Arc<str>>,
    },
    /// Names of values (`__print_symbolic`).
    Symbols(Table),
    /// The name of the function at this address (`%ps`, `%pS`, `%pf`, `%pF`, `%pB`).
    Function,
    /// `MAJOR,MINOR` of a `dev_t`.
    Device,
    /// Bytes in hexadecimal, side by side (`__print_hex`, `__print_hex_str`).
    Bytes,
    /// The address of a network, by its length: Ethernet, IPv4 or IPv6 (`%pM`, `%pI4`, `%pI6c`).
    Address,
    /// A `struct sockaddr` of the internet, with its port (`%pISpc`).
    Socket,
}

/// Names for values, or for bits of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// The part of the field that the names are about.
    pub part: Part,
    /// Values and their names, in the order of the kernel. A name may be there twice.
    pub entries: Arc<[(u64, Arc<str>)]>,
}

/// Some bits of a number: those of `mask` after it was shifted to the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Part {
    /// By how many bits.
    pub shift: u32,
    /// What is left of it then.
    pub mask: u64,
}

impl Part {
    /// All bits.
    pub const WHOLE: Self = Self { shift: 0, mask: u64::MAX };

    /// The part of a number.
    pub fn of(self, number: u64) -> u64 {
        number.checked_shr(self.shift).unwrap_or(0) & self.mask
    }
}

impl Show {
    /// Whether every bit of the field has a say.
    pub(super) fn is_whole(&self) -> bool {
        match self {
            Self::Flags { table, .. } | Self::Symbols(table) => table.part == Part::WHOLE,
            _ => true,
        }
    }
}

impl Table {
    /// The name of a value.
    fn name(&self, value: u64) -> Option<&str> {
        self.entries.iter().find(|(named, _)| *named == value).map(|(_, name)| &**name)
    }

    /// As `trace_print_flags_seq`: every name whose bits are all set and not yet named, then the rest as a number. As in
    /// perf, a name for no bits is not one of them.
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

/// A number whose sign was extended to 64 bits, as it is in the kernel's expressions.
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

/// A number without the bits that only its sign has set beyond its size in bytes.
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

/// `{1,2,3}`, or as `__print_array` does `{0x1,0x2}`. What is left at the end is no element.
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

/// A `struct sockaddr_in` or `sockaddr_in6`: the family, the port, and the address behind the flow of the latter.
fn socket(bytes: &[u8]) -> Option<String> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    match family {
        libc::AF_INET => Some(format!("{}:{port}", address(bytes.get(4..8)?)?)),
        libc::AF_INET6 => Some(format!("[{}]:{port}", address(bytes.get(8..24)?)?)),
        _ => None,
    }
}
