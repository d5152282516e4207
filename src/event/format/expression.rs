//! Parser for the C expressions in `print fmt`: which bits of a field are printed, and the names of their values.
//!
//! ```text
//! expression = binary ["?" expression ":" expression]
//! binary     = unary {OPERATOR unary}
//! unary      = {"!" | "~" | "-" | "+" | "*" | "&" | "(" TYPE ")"} primary {"[" … "]" | "->" NAME | "." NAME}
//! primary    = NUMBER | TEXT {TEXT} | "(" expression ")" | "REC" "->" NAME | NAME ["(" … ")"]
//! table      = "{" expression "," TEXT "}" {"," "{" expression "," TEXT "}"}
//! ```
//!
//! Every other C construct becomes [`Operand::Other`], which describes no field.

use std::sync::Arc;

use super::show::{Part, Show, Table};
use crate::event::number::c_number;
use crate::event::{Cursor, is_word};

/// Maximum nesting depth of expressions. The kernel's allocation flags have a depth of about twenty.
const DEPTH_LIMIT: usize = 100;
/// Maximum number of names in one table.
const ENTRY_LIMIT: usize = 4096;

/// Result of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Operand<'t> {
    /// A constant. Signed numbers are extended to 64 bits.
    Number(u64),
    /// A quoted text.
    Text(String),
    /// Bits of a field.
    Field(&'t str, Part),
    /// `1 << REC->name`.
    Bit(&'t str),
    /// Two texts, one for bits of a field that are set.
    Choice(&'t str, Part, String, String),
    /// A field printed with names.
    Named(&'t str, Show),
    /// Any other expression.
    Other,
}

/// Parses the whole text as one expression. `None` if the text does not conform to the grammar.
pub(super) fn parse(text: &str) -> Option<Operand<'_>> {
    let mut parser = Parser::new(text, Depth(0));
    let operand = parser.expression()?;
    parser.skip_space();
    parser.is_at_end().then_some(operand)
}

/// Returns the end of the part of a text that begins at `from`. The part ends before the first of `ends` outside brackets and quotes, or at
/// the end of the text.
pub(super) fn part_end(text: &str, from: usize, ends: &[u8]) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            _ if depth == 0 && ends.contains(&byte) => return at,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

/// A cursor over the text.
type Parser<'t> = Cursor<'t, Depth>;

/// Nesting depth of the cursor.
#[derive(Clone, Copy)]
struct Depth(usize);

/// C's binary operators, by increasing precedence.
const OPERATORS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

/// Returns the operator at the start of a text, and its precedence, from 1.
fn operator(text: &str) -> Option<(&'static str, usize)> {
    let all = OPERATORS
        .into_iter()
        .zip(1..)
        .flat_map(|(of, precedence)| of.iter().map(move |&of| (of, precedence)));
    all.filter(|(operator, _)| text.starts_with(operator)).max_by_key(|(operator, _)| operator.len())
}

impl<'t> Parser<'t> {
    /// Consumes a token if it is next after white space.
    fn token(&mut self, token: &str) -> bool {
        self.skip_space();
        self.take(token)
    }

    fn word(&mut self) -> &'t str {
        self.skip_space();
        self.take_while(is_word)
    }

    fn expression(&mut self) -> Option<Operand<'t>> {
        self.state.0 += 1;
        if self.state.0 > DEPTH_LIMIT {
            return None;
        }
        let condition = self.binary(0)?;
        let operand = if self.token("?") {
            let yes = self.expression()?;
            let no = if self.token(":") { self.expression()? } else { return None };
            choice(&condition, yes, no)
        } else {
            condition
        };
        self.state.0 -= 1;
        Some(operand)
    }

    /// Parses operands joined by operators of a higher precedence than `above`, from left to right.
    fn binary(&mut self, above: usize) -> Option<Operand<'t>> {
        let mut left = self.unary()?;
        loop {
            self.skip_space();
            let next = operator(self.rest()).filter(|(_, precedence)| *precedence > above);
            let Some((operator, precedence)) = next else { return Some(left) };
            self.at += operator.len();
            let right = self.binary(precedence)?;
            left = combine(operator, left, right);
        }
    }

    fn unary(&mut self) -> Option<Operand<'t>> {
        // A list instead of recursion, so that a million operators do not overflow the stack.
        let mut before = Vec::new();
        loop {
            self.skip_space();
            match self.rest().bytes().next() {
                Some(sign @ (b'!' | b'~' | b'-' | b'+' | b'*' | b'&')) => {
                    self.at += 1;
                    before.push(Before::Sign(sign));
                }
                Some(b'(') => match self.cast() {
                    Some(width) => before.push(Before::Cast(width)),
                    None => break,
                },
                _ => break,
            }
        }
        let operand = self.postfix()?;
        Some(before.into_iter().rev().fold(operand, |operand, before| before.applied(operand)))
    }

    /// Consumes `(TYPE)` if it is next. Returns the number of bits that the type keeps, if known.
    fn cast(&mut self) -> Option<Option<u32>> {
        let inside = self.rest().strip_prefix('(')?;
        let (name, behind) = inside.split_at(inside.find(|c: char| !is_word(c) && !" *".contains(c))?);
        let behind = behind.strip_prefix(')')?;
        let words = || name.split([' ', '*']).filter(|word| !word.is_empty());
        words().next().filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()))?;
        // `(X) - 1` may be a cast or a subtraction. A type is recognized by its name, or by an operand directly after it.
        let is_type = name.contains('*') || words().any(is_type_word);
        let operand_follows =
            behind.trim_start().starts_with(|c: char| is_word(c) || matches!(c, '(' | '~' | '!' | '"'));
        if !is_type && !operand_follows {
            return None;
        }
        self.at += name.len() + "()".len();
        Some(width_of(name.trim()))
    }

    fn postfix(&mut self) -> Option<Operand<'t>> {
        let mut operand = self.primary()?;
        loop {
            if self.token("[") {
                self.at = part_end(self.text, self.at, b"]");
                if !self.token("]") {
                    return None;
                }
            } else if self.token("->") || self.token(".") {
                self.word();
            } else {
                return Some(operand);
            }
            operand = Operand::Other;
        }
    }

    fn primary(&mut self) -> Option<Operand<'t>> {
        self.skip_space();
        match self.rest().bytes().next()? {
            b'"' => self.text().map(Operand::Text),
            b'(' => {
                self.at += 1;
                let inside = self.expression()?;
                self.token(")").then_some(inside)
            }
            b'0'..=b'9' => Some(number(self.word()).map_or(Operand::Other, Operand::Number)),
            byte if is_word(byte.into()) => {
                let word = self.word();
                if word == "REC" && self.token("->") {
                    Some(Operand::Field(self.word(), Part::WHOLE))
                } else if self.token("(") {
                    self.call(word)
                } else {
                    Some(constant(word).map_or(Operand::Other, Operand::Number))
                }
            }
            _ => None,
        }
    }

    /// Parses a function call after its opening parenthesis.
    fn call(&mut self, function: &str) -> Option<Operand<'t>> {
        let operand = match function {
            "__print_flags" | "__print_flags_u64" => self.flags()?,
            "__print_symbolic" | "__print_symbolic_u64" => self.symbols()?,
            "__get_str"
            | "__get_rel_str"
            | "__get_dynamic_array"
            | "__get_rel_dynamic_array"
            | "__get_sockaddr"
            | "__get_rel_sockaddr" => Operand::Field(self.word(), Part::WHOLE),
            "__print_array" => named(self.expression()?, Show::Hex),
            "__print_hex" | "__print_hex_str" => named(self.expression()?, Show::Bytes),
            _ => Operand::Other,
        };
        self.at = part_end(self.text, self.at, b")");
        self.token(")").then_some(operand)
    }

    /// Parses the arguments of `__print_flags`.
    fn flags(&mut self) -> Option<Operand<'t>> {
        let operand = self.expression()?;
        let separator = if self.token(",") { self.expression()? } else { return None };
        let entries = self.entries();
        if entries.is_empty() {
            return Some(Operand::Other);
        }
        Some(match (operand, separator) {
            (Operand::Field(field, part), Operand::Text(separator)) => {
                let table = Table { part, entries: entries.into() };
                Operand::Named(field, Show::Flags { separator: separator.into(), table, none: None })
            }
            // Only one bit is set, at the field's value. So the names of bits are names of values.
            (Operand::Bit(field), _) => {
                let powers = entries.into_iter().filter(|(bits, _)| bits.is_power_of_two());
                let entries = powers.map(|(bits, name)| (bits.trailing_zeros().into(), name)).collect();
                Operand::Named(field, Show::Symbols(Table { part: Part::WHOLE, entries }))
            }
            _ => Operand::Other,
        })
    }

    /// Parses the arguments of `__print_symbolic`.
    fn symbols(&mut self) -> Option<Operand<'t>> {
        let operand = self.expression()?;
        let entries = self.entries();
        Some(match operand {
            Operand::Field(field, part) if !entries.is_empty() => {
                Operand::Named(field, Show::Symbols(Table { part, entries: entries.into() }))
            }
            _ => Operand::Other,
        })
    }

    /// Parses repeated `, {VALUE, "NAME"}`. Entries whose value is not a constant are skipped.
    fn entries(&mut self) -> Vec<(u64, Arc<str>)> {
        let mut entries = Vec::new();
        while self.token(",") && self.token("{") && entries.len() < ENTRY_LIMIT {
            let depth = self.state;
            let value = self.expression();
            // An unsupported expression stops at an arbitrary depth.
            self.state = depth;
            let comma = self.token(",");
            if let (Some(Operand::Number(value)), true) = (value, comma) {
                self.skip_space();
                entries.extend(self.text().map(|name| (value, name.into())));
            }
            self.at = part_end(self.text, self.at, b"}");
            self.token("}");
        }
        entries
    }

    /// Parses a quoted text, or several adjacent ones.
    fn text(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut found = false;
        while self.token("\"") {
            found = true;
            let mut chars = self.rest().char_indices();
            let closed = loop {
                match chars.next()? {
                    (at, '"') => break at,
                    (_, '\\') => match chars.next()?.1 {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        c => text.push(c),
                    },
                    (_, c) => text.push(c),
                }
            };
            self.at += closed + 1;
        }
        found.then_some(text)
    }
}

/// A prefix of an operand.
enum Before {
    Sign(u8),
    /// A cast to an unsigned type of that many bits, if known.
    Cast(Option<u32>),
}

impl Before {
    fn applied<'t>(&self, operand: Operand<'t>) -> Operand<'t> {
        match (self, operand) {
            (Self::Sign(b'-'), Operand::Number(number)) => Operand::Number(number.wrapping_neg()),
            (Self::Sign(b'~'), Operand::Number(number)) => Operand::Number(!number),
            (Self::Sign(b'!'), Operand::Number(number)) => Operand::Number((number == 0).into()),
            (Self::Sign(b'+'), operand) => operand,
            (Self::Sign(b'*' | b'&') | Self::Cast(None), operand) => operand,
            (Self::Cast(Some(bits)), operand) => {
                let mask = 1u64.checked_shl(*bits).map_or(u64::MAX, |end| end - 1);
                combine("&", operand, Operand::Number(mask))
            }
            _ => Operand::Other,
        }
    }
}

/// Reports whether a word can only be part of a type name.
fn is_type_word(word: &str) -> bool {
    let known =
        ["unsigned", "signed", "int", "long", "short", "char", "void", "bool", "struct", "enum", "const"];
    let number = word.trim_start_matches('_');
    word.ends_with("_t")
        || known.contains(&word)
        || matches!(number, "u8" | "u16" | "u32" | "u64" | "s8" | "s16" | "s32" | "s64")
}

/// Returns the number of bits that a cast to an unsigned type keeps. Other casts have no relevant effect.
fn width_of(name: &str) -> Option<u32> {
    match name.trim_start_matches('_') {
        "u8" | "unsigned char" | "uint8_t" => Some(8),
        "u16" | "unsigned short" | "uint16_t" => Some(16),
        "u32" | "unsigned int" | "unsigned" | "uint32_t" => Some(32),
        _ => None,
    }
}

/// Parses a C number with its suffixes.
fn number(word: &str) -> Option<u64> {
    c_number(word.trim_end_matches(['u', 'U', 'l', 'L'])).flatten()
}

/// TCP states. The kernel does not resolve these enumeration names in `tcp:tcp_retransmit_skb` and similar tracepoints, because these do
/// not use `TRACE_DEFINE_ENUM`. `include/uapi/linux/bpf.h` fixes their values.
const TCP_STATES: [&str; 12] = [
    "TCP_ESTABLISHED",
    "TCP_SYN_SENT",
    "TCP_SYN_RECV",
    "TCP_FIN_WAIT1",
    "TCP_FIN_WAIT2",
    "TCP_TIME_WAIT",
    "TCP_CLOSE",
    "TCP_CLOSE_WAIT",
    "TCP_LAST_ACK",
    "TCP_LISTEN",
    "TCP_CLOSING",
    "TCP_NEW_SYN_RECV",
];

/// Returns the value of a named constant.
fn constant(name: &str) -> Option<u64> {
    TCP_STATES.iter().position(|state| *state == name).map(|place| place as u64 + 1)
}

/// Evaluates `left OPERATOR right`.
fn combine<'t>(operator: &str, left: Operand<'t>, right: Operand<'t>) -> Operand<'t> {
    use Operand::{Bit, Field, Number, Other};
    match (operator, left, right) {
        (_, Number(left), Number(right)) => arithmetic(operator, left, right).map_or(Other, Number),
        ("&", Field(field, part), Number(mask)) | ("&", Number(mask), Field(field, part)) => {
            Field(field, Part { mask: part.mask & mask, ..part })
        }
        (">>", Field(field, part), Number(by @ 0..64)) => {
            let by = by as u32;
            Field(field, Part { shift: part.shift + by, mask: part.mask >> by })
        }
        ("<<", Number(1), Field(field, Part::WHOLE)) => Bit(field),
        // `FIELD != 0` counts as the field, because a conditional needs only the field of its condition.
        ("!=", Field(field, part), Number(0)) => Field(field, part),
        ("&&", Number(1..), Field(field, part)) => Field(field, part),
        _ => Other,
    }
}

fn arithmetic(operator: &str, left: u64, right: u64) -> Option<u64> {
    Some(match operator {
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right)?,
        "%" => left.checked_rem(right)?,
        "<<" => left.checked_shl(u32::try_from(right).ok()?)?,
        ">>" => left.checked_shr(u32::try_from(right).ok()?)?,
        "&" => left & right,
        "|" => left | right,
        "^" => left ^ right,
        _ => return None,
    })
}

/// Evaluates `condition ? yes : no`: returns the side that is about a field. Keeps the text for a field that is zero.
fn choice<'t>(condition: &Operand<'t>, yes: Operand<'t>, no: Operand<'t>) -> Operand<'t> {
    let is_own = |field: &str| matches!(condition, Operand::Field(asked, _) if *asked == field);
    match (yes, no) {
        (Operand::Named(field, Show::Flags { separator, table, .. }), Operand::Text(none))
            if is_own(field) =>
        {
            let none = Some(none).filter(|none| !none.is_empty()).map(Arc::from);
            Operand::Named(field, Show::Flags { separator, table, none })
        }
        // The field does not determine which of two tables applies, such as the tables of two CPU vendors.
        (Operand::Named(yes, one), Operand::Named(no, other)) if yes != no || one != other => Operand::Other,
        // A table for some of the bits would drop the other bits, even where the kernel prints no names.
        (Operand::Named(field, show), _) | (_, Operand::Named(field, show)) => {
            if is_own(field) || show.is_whole() { Operand::Named(field, show) } else { Operand::Other }
        }
        (field @ Operand::Field(..), _) | (_, field @ Operand::Field(..)) => field,
        (Operand::Text(yes), Operand::Text(no)) => match *condition {
            Operand::Field(field, part) => Operand::Choice(field, part, yes, no),
            _ => Operand::Other,
        },
        _ => Operand::Other,
    }
}

/// Returns a whole field with a print format.
fn named(operand: Operand<'_>, show: Show) -> Operand<'_> {
    match operand {
        Operand::Field(field, Part::WHOLE) => Operand::Named(field, show),
        _ => Operand::Other,
    }
}
