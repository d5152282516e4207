//! Parser for probe arguments.
//!
//! ```text
//! argument = [name "="] fetch [":" type]
//! fetch    = "%" register | "$arg" N | "$retval" | "$stack" [N] | "$comm" | "\" NUMBER
//!          | "@" ADDRESS | "@" symbol ["+" N | "-" N] | "@+" N | ("+" | "-") ["u"] N "(" fetch ")" | variable
//! variable = (name | "$retval") {("->" | ".") name | "[" N "]"}
//! type     = element ["[" N "]"]
//! element  = ("u" | "s" | "x") ("8" | "16" | "32" | "64") | "char" | "string" | "ustring" | "symbol" | "symstr"
//!          | "b" WIDTH "@" OFFSET "/" SIZE
//! ```

use std::sync::Arc;

use super::{Argument, ArgumentError, Element, Fetch, FetchType, Register, Step, Variable, Width};
use crate::event::{Cursor, Fault, Parsed, digits, fault, is_identifier, is_word, nearest};

/// Maximum length of the text, in bytes. The kernel's limit is lower, but variables may have long paths.
const TEXT_LIMIT: usize = 1024;
/// Maximum nesting depth that the kernel supports. Of its 16 instructions for a fetch, two are the first and the last.
const DEPTH_LIMIT: usize = 14;
/// Maximum number of members of a variable. Each arrow adds a nesting level.
const PATH_LIMIT: usize = 64;
/// Maximum length of a name, in bytes (`MAX_ARG_NAME_LEN` of the kernel).
pub(super) const NAME_LIMIT: usize = 32;
/// Maximum array size (`MAX_ARRAY_LEN` of the kernel).
const ARRAY_LIMIT: u8 = 64;

/// Field names that every record already has (`reserved_field_names` of the kernel).
const RESERVED: [&str; 8] = [
    "common_type",
    "common_flags",
    "common_preempt_count",
    "common_pid",
    "common_tgid",
    "__probe_ip",
    "__probe_ret_ip",
    "__probe_func",
];

const EXPECTED_FETCH: &str =
    "expected a variable or one of %di, $arg1, $retval, $stack, $comm, @symbol, +8(%di), as in size=%di:u64";
const EXPECTED_DOLLAR: &str = "expected $arg1, $retval, $stack, $stack1 or $comm";
const EXPECTED_TYPE: &str = "expected u8 to u64, s8 to s64, x8 to x64, char, string, ustring, symbol, symstr, or a \
                             bit field such as b4@8/32; an array is u32[4]";

impl Argument {
    /// Parses a single or first argument. Without a name, it becomes `arg1`.
    ///
    /// # Errors
    /// The first position that does not conform to the grammar.
    pub fn parse(text: &str) -> Result<Self, ArgumentError> {
        Self::parse_nth(text, 1)
    }

    /// Parses the argument at a position of a list, from 1. Without a name, it becomes `arg` with its position.
    ///
    /// # Errors
    /// The first position that does not conform to the grammar.
    pub fn parse_nth(text: &str, place: usize) -> Result<Self, ArgumentError> {
        let (name, fetch, kind) = Parser::new(text, ()).argument().map_err(|fault| fault.of(text))?;
        let name = name.or_else(|| member_name(&fetch)).unwrap_or_else(|| format!("arg{place}").into());
        Ok(Self { name, fetch, kind, text: text.into() })
    }
}

/// Reports whether the kernel accepts the text as a field name.
pub(super) fn is_field_name(name: &str) -> bool {
    name.len() <= NAME_LIMIT && is_identifier(name) && !RESERVED.contains(&name)
}

/// Returns the default name of a variable: its last member.
fn member_name(fetch: &Fetch) -> Option<Arc<str>> {
    let Fetch::Variable(variable) = fetch else { return None };
    let member = variable.path.iter().rev().find_map(|step| match step {
        Step::Member { name, .. } => Some(name),
        Step::Index(_) => None,
    });
    Some(member.unwrap_or(&variable.base)).filter(|name| is_field_name(name)).cloned()
}

/// A cursor over the text.
type Parser<'t> = Cursor<'t>;

impl<'t> Parser<'t> {
    fn word(&mut self) -> &'t str {
        self.take_while(is_word)
    }

    fn argument(&mut self) -> Parsed<(Option<Arc<str>>, Fetch, Option<FetchType>)> {
        if self.text.len() > TEXT_LIMIT {
            return fault(TEXT_LIMIT, "the argument is longer than 1024 bytes", "use fewer members");
        }
        if let Some(at) = self.text.find(|c: char| c.is_whitespace() || c.is_control()) {
            return fault(at, "spaces are not allowed in an argument", "remove them, as in size=%di:u64");
        }
        let name = self.name()?;
        let start = self.at;
        let fetch = self.fetch(0)?;
        let at = self.at;
        let kind = if self.take(":") { Some(self.kind()?) } else { None };
        if !self.is_at_end() {
            return fault(
                self.at,
                "unexpected text after the argument",
                "write each argument as a separate entry",
            );
        }
        fits(&fetch, kind, start, at)?;
        Ok((name, fetch, kind))
    }

    /// Parses the name before `=`.
    fn name(&mut self) -> Parsed<Option<Arc<str>>> {
        let Some(end) = self.text.find('=') else { return Ok(None) };
        let name = &self.text[..end];
        if RESERVED.contains(&name) {
            return fault(0, "this field name is reserved", "choose another name");
        }
        if !is_field_name(name) {
            let remedy =
                format!("use letters, digits and _, begin with a letter, and use at most {NAME_LIMIT} bytes");
            return fault(0, "invalid field name", remedy);
        }
        self.at = end + 1;
        Ok(Some(name.into()))
    }

    fn fetch(&mut self, depth: usize) -> Parsed<Fetch> {
        let at = self.at;
        match self.rest().bytes().next() {
            Some(b'%') => self.register(),
            Some(b'$') => self.dollar(depth),
            Some(b'@') => self.memory(),
            Some(b'\\') => {
                self.at += 1;
                Ok(Fetch::Immediate(self.signed()?))
            }
            Some(b'+' | b'-') if depth == DEPTH_LIMIT => {
                fault(at, "nested too deeply", format!("the kernel supports at most {DEPTH_LIMIT} pointers"))
            }
            Some(b'+' | b'-') => self.deref(depth),
            Some(b) if b.is_ascii_alphabetic() || b == b'_' => {
                let base = self.word();
                self.variable(base)
            }
            Some(_) => fault(at, "invalid argument value", EXPECTED_FETCH),
            None => fault(at, "the value of the argument is missing", EXPECTED_FETCH),
        }
    }

    fn register(&mut self) -> Parsed<Fetch> {
        self.at += 1;
        let at = self.at;
        let register = Register::parse(self.word()).map(Fetch::Register);
        let expected = "expected a register such as %di on x86-64 or %x0 on arm64";
        register.ok_or_else(|| Fault::new(at, "not a register", expected))
    }

    fn dollar(&mut self, depth: usize) -> Parsed<Fetch> {
        let at = self.at;
        self.at += 1;
        let word = self.word();
        match word {
            "comm" | "COMM" if depth == 0 => Ok(Fetch::Comm),
            "comm" | "COMM" => {
                fault(at, "$comm is a string, not an address", "write $comm without an offset")
            }
            "stack" => Ok(Fetch::Stack(None)),
            "retval" if self.rest().starts_with(['-', '.', '[']) => self.variable("$retval"),
            "retval" => Ok(Fetch::Return),
            _ => {
                let number = |prefix| word.strip_prefix(prefix).filter(|digits: &&str| is_decimal(digits));
                let argument = number("arg").and_then(|digits| digits.parse().ok()).filter(|&n: &u8| n > 0);
                let stack = number("stack").and_then(|digits| digits.parse().ok());
                match (argument, stack) {
                    (Some(argument), _) => Ok(Fetch::Argument(argument)),
                    (None, Some(word)) => Ok(Fetch::Stack(Some(word))),
                    (None, None) => fault(at, format!("unknown variable ${word}"), EXPECTED_DOLLAR),
                }
            }
        }
    }

    fn memory(&mut self) -> Parsed<Fetch> {
        self.at += 1;
        if self.take("+") {
            return Ok(Fetch::FileOffset(self.number()?));
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            return Ok(Fetch::Address(self.number()?));
        }
        let at = self.at;
        // A symbol may contain a `$` (`foo$isra.0`), but not begin with one.
        let name = match self.rest().starts_with('$') {
            true => "",
            false => self.take_while(|c| is_word(c) || c == '.' || c == '$'),
        };
        if name.is_empty() {
            let remedy = "write it as @0xffffffff81000000 or @jiffies+8";
            return fault(at, "an address or a symbol is missing", remedy);
        }
        let offset = if self.rest().starts_with(['+', '-']) { self.signed()? } else { 0 };
        Ok(Fetch::Symbol { name: name.into(), offset })
    }

    fn deref(&mut self, depth: usize) -> Parsed<Fetch> {
        let negative = self.rest().starts_with('-');
        self.at += 1;
        let user = self.take("u");
        let offset = self.offset(negative)?;
        self.expect("(", "the base of the offset is missing", "write it in parentheses: +8(%di)")?;
        let of = Box::new(self.fetch(depth + 1)?);
        self.expect(")", "the parenthesis is not closed", "expected )")?;
        Ok(Fetch::Deref { user, offset, of })
    }

    fn variable(&mut self, base: &str) -> Parsed<Fetch> {
        let mut path = Vec::new();
        loop {
            let at = self.at;
            let arrow = self.take("->");
            if arrow || self.take(".") {
                let name = self.word();
                if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
                    let at = self.at - name.len();
                    return fault(at, "a member name is missing", "write it as in sk->sk_family");
                }
                path.push(Step::Member { name: name.into(), arrow });
            } else if self.take("[") {
                path.push(Step::Index(self.index()?));
            } else {
                return Ok(Fetch::Variable(Variable { base: base.into(), path }));
            }
            if path.len() > PATH_LIMIT {
                let remedy = format!("use at most {PATH_LIMIT}");
                return fault(at, "the variable has too many members", remedy);
            }
        }
    }

    fn kind(&mut self) -> Parsed<FetchType> {
        let at = self.at;
        let word = self.word();
        let Some(element) = plain(word).or_else(|| self.bits(word)) else {
            let names: Vec<String> = plain_types().map(|element| element.to_string()).collect();
            let remedy = match nearest(word, names.iter().map(String::as_str)) {
                Some(name) => format!("did you mean {name}?"),
                None => EXPECTED_TYPE.to_owned(),
            };
            return fault(at, "unknown type", remedy);
        };
        let at = self.at;
        if !self.take("[") {
            return Ok(element.into());
        }
        match u8::try_from(self.index()?) {
            Ok(count @ 1..=ARRAY_LIMIT) => Ok(FetchType { element, count: Some(count) }),
            _ => fault(at, "unsupported array size", "use [1] to [64]"),
        }
    }

    /// Parses the rest of a bit field after its first word.
    fn bits(&mut self, word: &str) -> Option<Element> {
        let width: u8 = word.strip_prefix('b').filter(|digits| is_decimal(digits))?.parse().ok()?;
        let mut behind = |mark| {
            let digits = self.take(mark).then(|| self.word()).filter(|digits| is_decimal(digits));
            digits?.parse::<u8>().ok()
        };
        let offset = behind("@")?;
        let container = Width::of_bits(behind("/")?)?;
        let fits = width > 0 && width.checked_add(offset)? <= container.bits();
        fits.then_some(Element::Bits { width, offset, container })
    }

    /// Parses an index after its opening bracket.
    fn index(&mut self) -> Parsed<u32> {
        let at = self.at;
        let digits = self.word();
        match digits.parse() {
            Ok(index) if is_decimal(digits) && self.take("]") => Ok(index),
            _ => fault(at, "expected a number in brackets", "write it as in [4]"),
        }
    }

    /// Parses a number with an optional sign.
    fn signed(&mut self) -> Parsed<i64> {
        let at = self.at;
        let negative = self.take("-");
        if !negative {
            self.take("+");
        }
        let magnitude = self.number()?;
        if !negative {
            // The kernel accepts both spellings of the upper half of 64 bits.
            return Ok(magnitude.cast_signed());
        }
        let value = 0_i64.checked_sub_unsigned(magnitude);
        value.ok_or_else(|| Fault::new(at, "the number exceeds 64 bits", "use a smaller number, as in -8"))
    }

    /// Parses an offset in bytes after its sign.
    fn offset(&mut self, negative: bool) -> Parsed<i64> {
        let at = self.at;
        let magnitude = self.number()?;
        let offset =
            if negative { 0_i64.checked_sub_unsigned(magnitude) } else { i64::try_from(magnitude).ok() };
        offset.ok_or_else(|| {
            Fault::new(at, "the offset exceeds 63 bits", "use a smaller offset, as in +8(%di)")
        })
    }

    fn number(&mut self) -> Parsed<u64> {
        let at = self.at;
        let word = self.word();
        let value = match word.strip_prefix("0x") {
            Some(hex) => digits(hex, 16).flatten(),
            None if is_decimal(word) && word.len() > 1 && word.starts_with('0') => {
                return fault(at, "the kernel parses a number with a leading 0 as octal", "remove the 0");
            }
            None => digits(word, 10).flatten(),
        };
        let missing = || Fault::new(at, "expected a number of at most 64 bits", "write it as 16 or 0x10");
        value.ok_or_else(missing)
    }
}

/// Returns the types that consist of one word.
fn plain_types() -> impl Iterator<Item = Element> {
    use Element::{Char, Hex, Signed, String, Symbol, SymbolString, Unsigned, UserString};
    let numbers = Width::ALL.into_iter().flat_map(|width| [Unsigned(width), Signed(width), Hex(width)]);
    numbers.chain([Char, String, UserString, Symbol, SymbolString])
}

fn plain(word: &str) -> Option<Element> {
    plain_types().find(|element| element.to_string() == word)
}

fn is_decimal(word: &str) -> bool {
    digits(word, 10).is_some()
}

/// Checks that a fetch can have this type, by the rules of the kernel (`traceprobe_parse_probe_arg`).
fn fits(fetch: &Fetch, kind: Option<FetchType>, start: usize, at: usize) -> Parsed<()> {
    let Some(kind) = kind else { return Ok(()) };
    let text = matches!(kind.element, Element::String | Element::UserString);
    if *fetch == Fetch::Comm {
        let plain = kind == Element::String.into();
        return if plain { Ok(()) } else { fault(at, "$comm is always a string", "remove the type") };
    }
    let in_memory = matches!(
        fetch,
        Fetch::Deref { .. }
            | Fetch::Address(_)
            | Fetch::Symbol { .. }
            | Fetch::FileOffset(_)
            | Fetch::Variable(_)
    );
    if in_memory || !(text || kind.count.is_some()) {
        return Ok(());
    }
    let what = if text { "a string" } else { "an array" };
    let remedy = format!("if the value is an address, write +0({fetch}):{kind}");
    fault(start, format!("{what} requires a memory address, but this is a value"), remedy)
}
