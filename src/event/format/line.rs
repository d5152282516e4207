//! The line that the kernel prints for a record: `print fmt` with the values of the record.
//!
//! Conversions are those of `printf(3)` and of `Documentation/core-api/printk-formats.rst`, as libtraceevent prints them.

use super::expression::{self, Operand};
use super::show::{Part, Show};
use super::{Field, Format, print};

/// Prints records of one tracepoint.
#[derive(Debug, Clone)]
pub struct Printer {
    /// `None` if the expressions are not understood: the fields are printed one after another.
    pieces: Option<Vec<Piece>>,
    fields: Vec<Field>,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Value(Spec, Box<Argument>),
}

/// A conversion: `%-08lx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Spec {
    left: bool,
    zeros: bool,
    prefix: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    /// The letter; for an address with a letter behind it, such as `%pS`, that letter.
    letter: char,
    address: bool,
}

/// An argument.
#[derive(Debug, Clone)]
enum Argument {
    Constant(u64),
    Text(String),
    /// Bits of a field.
    Bits(Field, Part),
    /// `1 << FIELD`.
    Power(Field),
    /// A field that is printed with names.
    Named(Field),
    /// Two texts that the bits of a field select.
    Choice(Field, Part, String, String),
}

/// The meaning of an address in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// A function: its name and the offset in it, `NAME+OFFSET`.
    Function(u64),
    /// A constant text.
    Text(u64),
}

/// Returns the text for an address.
type Look<'f> = &'f mut dyn FnMut(Address) -> Option<String>;

impl Printer {
    pub(super) fn new(format: &Format) -> Self {
        Self { pieces: pieces(&format.print, format), fields: format.fields.clone() }
    }

    /// Returns the line of a record. `look` returns the text for an address in the kernel.
    pub fn print(&self, raw: &[u8], look: Look<'_>) -> String {
        let mut line = String::new();
        if let Some(pieces) = &self.pieces {
            for piece in pieces {
                match piece {
                    Piece::Text(text) => line.push_str(text),
                    Piece::Value(spec, argument) => line.push_str(&spec.print(argument, raw, look)),
                }
            }
            return line;
        }
        for field in self.fields.iter().filter(|field| !field.common) {
            let function = match field.show {
                Show::Function => field.number(raw).and_then(|address| look(Address::Function(address))),
                _ => None,
            };
            let plain = || field.value(raw).map(|value| field.render(&value)).unwrap_or_default();
            let value = function.unwrap_or_else(plain);
            let space = if line.is_empty() { "" } else { " " };
            line.push_str(&format!("{space}{}={value}", field.name));
        }
        line
    }
}

/// Parses `print fmt`. Returns `None` if an argument is not understood.
fn pieces(text: &str, format: &Format) -> Option<Vec<Piece>> {
    let mut operands = print::arguments(text).map(expression::parse);
    let Some(Some(Operand::Text(mut rest))) = operands.next() else { return None };
    let mut pieces = Vec::new();
    while let Some(at) = rest.find('%') {
        let (before, behind) = rest.split_at(at);
        let behind = &behind[1..];
        pieces.push(Piece::Text(before.to_owned()));
        if let Some(behind) = behind.strip_prefix('%') {
            pieces.push(Piece::Text("%".into()));
            rest = behind.to_owned();
            continue;
        }
        let (spec, length) = Spec::parse(behind)?;
        pieces.push(Piece::Value(spec, Box::new(argument(&operands.next()??, format)?)));
        rest = behind[length..].to_owned();
    }
    pieces.push(Piece::Text(rest));
    Some(pieces)
}

fn argument(operand: &Operand<'_>, format: &Format) -> Option<Argument> {
    let field = |name: &str| format.field(name).cloned();
    Some(match operand {
        Operand::Number(number) => Argument::Constant(*number),
        Operand::Text(text) => Argument::Text(text.clone()),
        Operand::Field(name, part) => Argument::Bits(field(name)?, *part),
        Operand::Bit(name) => Argument::Power(field(name)?),
        Operand::Named(name, show) => Argument::Named(Field { show: show.clone(), ..field(name)? }),
        Operand::Choice(name, part, yes, no) => {
            Argument::Choice(field(name)?, *part, yes.clone(), no.clone())
        }
        Operand::Other => return None,
    })
}

impl Spec {
    /// Parses the text after `%`. Returns the conversion and its length in bytes.
    fn parse(text: &str) -> Option<(Self, usize)> {
        let (mut spec, mut at) = (Self::default(), 0);
        let bytes = text.as_bytes();
        while let Some(flag) = bytes.get(at).filter(|byte| b"-0# +".contains(byte)) {
            match flag {
                b'-' => spec.left = true,
                b'0' => spec.zeros = true,
                b'#' => spec.prefix = true,
                b'+' => spec.plus = true,
                _ => {}
            }
            at += 1;
        }
        let number = |at: &mut usize| {
            let end = text[*at..].bytes().take_while(u8::is_ascii_digit).count();
            let number: usize = text[*at..*at + end].parse().unwrap_or(0);
            *at += end;
            number.min(256)
        };
        spec.width = number(&mut at);
        if bytes.get(at) == Some(&b'.') {
            at += 1;
            spec.precision = Some(number(&mut at));
        }
        at += text[at..].bytes().take_while(|byte| b"hlLqjzt".contains(byte)).count();
        spec.letter = char::from(*bytes.get(at)?);
        at += 1;
        if spec.letter == 'p' {
            let behind = text[at..].bytes().take_while(u8::is_ascii_alphanumeric).count();
            spec.address = true;
            spec.letter = text[at..].chars().next().filter(|_| behind > 0).unwrap_or('p');
            at += behind;
        }
        ("diuxXocsp".contains(spec.letter) || spec.address).then_some((spec, at))
    }

    fn print(&self, argument: &Argument, raw: &[u8], look: Look<'_>) -> String {
        match argument {
            Argument::Constant(number) => self.number(*number, 8, look),
            Argument::Text(text) => self.padded(text),
            Argument::Power(field) => {
                let bit = field.number(raw).and_then(|bit| 1u64.checked_shl(u32::try_from(bit).ok()?));
                self.number(bit.unwrap_or(0), 8, look)
            }
            Argument::Choice(field, part, yes, no) => {
                let is_set = field.number(raw).is_some_and(|number| part.of(number) != 0);
                self.padded(if is_set { yes } else { no })
            }
            Argument::Named(field) => {
                let value = field.value(raw).map(|value| field.render(&value));
                self.padded(&value.unwrap_or_default())
            }
            Argument::Bits(field, part) => match field.number(raw) {
                Some(number) if field.is_number() => self.number(part.of(number), field.size(), look),
                _ => {
                    let show = match (self.address, self.letter) {
                        // Sockets (`%pIS`) are recognized by `print fmt` as a whole.
                        (true, 'I' | 'i' | 'M' | 'm') if field.show != Show::Socket => Show::Address,
                        _ => field.show.clone(),
                    };
                    let field = Field { show, ..field.clone() };
                    let value = field.value(raw).map(|value| field.render(&value));
                    self.padded(&value.unwrap_or_default())
                }
            },
        }
    }

    /// Prints a number of a field of `size` bytes. Its sign was extended.
    fn number(&self, number: u64, size: usize, look: Look<'_>) -> String {
        let digits = match self.letter {
            'd' | 'i' => number.cast_signed().to_string(),
            'c' => u8::try_from(number & 0xff).map(char::from).map(String::from).unwrap_or_default(),
            'x' | 'X' | 'o' | 'u' => {
                // Arguments narrower than 4 bytes are promoted to `int`.
                let narrow = if size <= 4 { number & u64::from(u32::MAX) } else { number };
                match self.letter {
                    'x' => format!("{}{narrow:x}", if self.prefix { "0x" } else { "" }),
                    'X' => format!("{}{narrow:X}", if self.prefix { "0X" } else { "" }),
                    'o' => format!("{narrow:o}"),
                    _ => narrow.to_string(),
                }
            }
            's' | 'S' | 'f' | 'F' | 'B' if self.address => {
                let name = look(Address::Function(number)).unwrap_or_else(|| format!("{number:#x}"));
                let is_plain = matches!(self.letter, 's' | 'f');
                name.split_once('+').filter(|_| is_plain).map_or(name.clone(), |(name, _)| name.to_owned())
            }
            's' => look(Address::Text(number)).unwrap_or_else(|| format!("{number:#x}")),
            _ if number == 0 => "(nil)".into(),
            _ => format!("{number:#x}"),
        };
        let sign = if self.plus && self.letter == 'd' && !digits.starts_with('-') { "+" } else { "" };
        let digits = match self.precision {
            Some(least) if digits.len() < least => format!("{}{digits}", "0".repeat(least - digits.len())),
            _ => digits,
        };
        let digits = format!("{sign}{digits}");
        match self.zeros && !self.left && self.precision.is_none() {
            true if digits.len() < self.width => {
                let split = digits.starts_with(['-', '+']).into();
                let (sign, digits) = digits.split_at(split);
                format!("{sign}{}{digits}", "0".repeat(self.width - split - digits.len()))
            }
            _ => self.aligned(&digits),
        }
    }

    /// Prints a text.
    fn padded(&self, text: &str) -> String {
        let end = self.precision.filter(|_| self.letter == 's').unwrap_or(usize::MAX);
        self.aligned(&text.chars().take(end).collect::<String>())
    }

    fn aligned(&self, text: &str) -> String {
        let width = self.width;
        if self.left { format!("{text:<width$}") } else { format!("{text:>width$}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "\
name: sched_switch
ID: 1
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:char comm[8];\toffset:8;\tsize:8;\tsigned:0;
\tfield:int prio;\toffset:16;\tsize:4;\tsigned:1;
\tfield:unsigned long state;\toffset:24;\tsize:8;\tsigned:0;

print fmt: ";

    fn record() -> Vec<u8> {
        let mut raw = vec![0; 32];
        raw[8..12].copy_from_slice(b"a%d;");
        raw[16..20].copy_from_slice(&(-3i32).to_ne_bytes());
        raw[24..32].copy_from_slice(&0x102u64.to_ne_bytes());
        raw
    }

    fn printed(print: &str) -> String {
        let format = Format::parse(&format!("{FORMAT}{print}\n")).unwrap();
        format.printer().print(&record(), &mut |address| match address {
            Address::Function(address) => Some(format!("f{address:x}+0x1")),
            Address::Text(address) => (address == 0x102).then(|| "text".into()),
        })
    }

    #[test]
    fn values_are_converted_as_by_printf() {
        assert_eq!(printed(r#""comm=%s prio=%d 100%%", REC->comm, REC->prio"#), "comm=a%d; prio=-3 100%");
        assert_eq!(printed(r#""[%6d|%-4d|%04d]", REC->prio, REC->prio, REC->prio"#), "[    -3|-3  |-003]");
        assert_eq!(
            printed(r#""%08lx %#x %x", REC->state, REC->state, REC->prio"#),
            "00000102 0x102 fffffffd"
        );
        assert_eq!(
            printed(r#""%pS %ps %p", (void *)REC->state, REC->state, REC->state"#),
            "f102+0x1 f102 0x102"
        );
        assert_eq!(printed(r#""%s %p", REC->state, 0"#), "text (nil)");
    }

    #[test]
    fn names_and_choices_are_printed() {
        let flags = r#""%s%s", (REC->state & 0xff) ? __print_flags(REC->state & 0xff, "|", { 0x1, "S" }, { 0x2, "D" }) : "R", REC->state & 0x100 ? "+" : """#;
        assert_eq!(printed(flags), "D+");
        assert_eq!(printed(r#""%s", (1 && (REC->state & 4)) ? "true" : "false""#), "false");
    }

    #[test]
    fn fields_are_listed_if_an_argument_is_not_understood() {
        assert_eq!(printed(r#""%d", REC->prio * REC->state"#), "comm=a%d; prio=-3 state=258");
        assert_eq!(printed(""), "comm=a%d; prio=-3 state=258");
    }

    #[test]
    fn a_short_record_prints_without_its_values() {
        let format = Format::parse(&format!("{FORMAT}\"%s %d\", REC->comm, REC->prio\n")).unwrap();
        assert_eq!(format.printer().print(&[], &mut |_| None), " ");
    }
}
