//! The kernel's filters on tracepoints, judged before they are set.
//!
//! ```text
//! filter    = predicate {("&&" | "||") predicate}
//! predicate = {"!"} (FIELD [".ustring"] [".function"] OPERATOR value | "(" filter ")")
//! OPERATOR  = "==" | "!=" | "<" | "<=" | ">" | ">=" | "&" | "~"
//! value     = NUMBER | "'" TEXT "'" | '"' TEXT '"' | "CPUS{" LIST "}" | FUNCTION
//! ```
//!
//! What the kernel refuses through perf it refuses without a word, and with errors that mean something else: `EPERM`
//! for two predicates without an operator between them, `ENOENT` and `ESRCH` for parentheses and quotes that are not
//! closed. So the words come from here. What the kernel takes is taken, though some of it is odd: an operator at the
//! end, a comparison with an array, which looks at its first bytes or at none.
//!
//! Sources: `Documentation/trace/events.rst`, section 5; `kernel/trace/trace_events_filter.c` of Linux 6.18.

mod class;
#[cfg(test)]
mod tests;
mod value;

use self::class::{Class, Subject};
use super::format::Format;
use super::{Cursor, ParseError, Parsed, fault, pattern};

/// The longest text between quotes, in bytes, and with that the longest pattern (`MAX_FILTER_STR_VAL`).
const OPERAND_LIMIT: usize = 255;
/// The longest number, in bytes.
const NUMBER_LIMIT: usize = 23;
/// How many fields a message names at most.
const NAMED_LIMIT: usize = 12;
/// The number of `ftrace:function` in every kernel (`TRACE_FN`).
const FUNCTION_ID: u64 = 1;

/// Judges a filter for a tracepoint as Linux 6.18 does. Older kernels lack `CPUS{…}` (before 6.6), `.function` and
/// `.ustring`, and refuse them. Which functions and CPUs there are is not asked. With `ftrace:function`, whose filters
/// are patterns for names of functions, not every combination of `&&` and `!` that passes here is taken.
///
/// # Errors
/// The first place that is wrong, quotes and parentheses before everything else.
pub fn check(filter: &str, format: &Format) -> Result<(), ParseError> {
    let checker = Checker::new(filter, Judged { format, is_function: is_function(format) });
    // More than the kernel takes is not worth keeping.
    checker.filter().map_err(|fault| fault.within(filter, rustix::param::page_size()))
}

/// Whether it is `ftrace:function`, which has filters of its own.
fn is_function(format: &Format) -> bool {
    format.id() == FUNCTION_ID && format.name() == "function"
}

/// What is compared how. The order matters to who reads them: a longer one stands before its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Like,
    NotEqual,
    Equal,
    /// `<`, `<=`, `>`, `>=`.
    Order,
    /// `&`: whether one of the bits is set.
    Bits,
}

const OPERATORS: [(&str, Operator); 8] = [
    ("~", Operator::Like),
    ("!=", Operator::NotEqual),
    ("==", Operator::Equal),
    ("<=", Operator::Order),
    ("<", Operator::Order),
    (">=", Operator::Order),
    (">", Operator::Order),
    ("&", Operator::Bits),
];

/// A cursor over the filter.
type Checker<'t> = Cursor<'t, Judged<'t>>;

/// What a filter is for.
struct Judged<'t> {
    format: &'t Format,
    is_function: bool,
}

impl Checker<'_> {
    fn filter(mut self) -> Parsed<()> {
        self.size()?;
        self.balance()?;
        let mut depth = 0usize;
        let mut predicates = 0usize;
        loop {
            self.skip_blank();
            match self.rest().as_bytes() {
                // The kernel takes a filter that ends with an operator, as if that were not there.
                [] if predicates > 0 => return Ok(()),
                [] => return fault(self.at, "the filter is empty", EXPECTED_PREDICATE),
                [b'(', ..] => {
                    self.at += 1;
                    depth += 1;
                    continue;
                }
                [b'!', behind @ ..] if !matches!(behind, [b'=' | b'~', ..]) => {
                    self.at += 1;
                    continue;
                }
                _ => self.predicate()?,
            }
            predicates += 1;
            if self.ends(&mut depth)? {
                return Ok(());
            }
        }
    }

    /// What stands behind a predicate: whether it was the last one.
    fn ends(&mut self, depth: &mut usize) -> Parsed<bool> {
        loop {
            self.skip_blank();
            match self.rest().as_bytes() {
                [] => return Ok(true),
                [b')', ..] if *depth > 0 => {
                    self.at += 1;
                    *depth -= 1;
                }
                [b'&', b'&', ..] | [b'|', b'|', ..] => {
                    self.at += 2;
                    return Ok(false);
                }
                _ => return fault(self.at, "a condition ends here", "put && or || between two conditions"),
            }
        }
    }

    fn size(&self) -> Parsed<()> {
        if let Some(at) = self.text.find('\0') {
            let remedy = "leave it out; the kernel would end the filter there";
            return fault(at, "the filter holds a NUL", remedy);
        }
        // With the NUL at its end it is one page.
        let limit = rustix::param::page_size() - 1;
        if self.text.len() > limit {
            let message = format!("the filter is longer than the kernel takes, {limit} bytes");
            return fault(limit, message, "compare less here, and more with the labels of the metric");
        }
        Ok(())
    }

    /// Whether all quotes and parentheses are closed.
    fn balance(&self) -> Parsed<()> {
        let mut open = Vec::new();
        let mut quoted: Option<(usize, u8)> = None;
        for (at, byte) in self.text.bytes().enumerate() {
            match (byte, quoted) {
                (_, Some((_, quote))) if byte == quote => quoted = None,
                (_, Some(_)) => {}
                (b'"' | b'\'', None) => quoted = Some((at, byte)),
                (b'(', None) => open.push(at),
                (b')', None) if open.pop().is_none() => {
                    return fault(at, "no parenthesis is open here", "remove it, or open one before");
                }
                _ => {}
            }
        }
        if let Some((at, quote)) = quoted {
            return fault(at, "the quote is not closed", format!("close it with {}", char::from(quote)));
        }
        match open.last() {
            Some(at) => fault(*at, "the parenthesis is not closed", "close it with )"),
            None => Ok(()),
        }
    }

    fn skip_blank(&mut self) {
        self.take_while(is_space);
    }

    fn predicate(&mut self) -> Parsed<()> {
        let at = self.at;
        let name = self.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            return fault(at, "the name of a field is missing", EXPECTED_PREDICATE);
        }
        let Some(subject) = Subject::find(self.state.format, name) else { return self.unknown(at, name) };
        // What the string is when the field is none is not asked, here as in the kernel.
        self.take(".ustring");
        let by_function = self.take(".function");
        self.skip_blank();
        let operator = self.operator(name)?;
        self.skip_blank();
        if by_function {
            self.function(&subject, operator)
        } else if self.state.is_function {
            self.pattern(name)
        } else if self.rest().starts_with("CPUS") {
            self.cpus(&subject, operator)
        } else if self.rest().starts_with(['"', '\'']) {
            self.quoted(&subject, operator)
        } else if self.rest().starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            self.number(&subject, operator)
        } else {
            let remedy = match subject.class {
                Class::Text => format!("write a text in quotes, {name} == \"…\""),
                _ => format!("write a number, {name} == 1"),
            };
            fault(self.at, format!("{name} is compared with nothing that the kernel knows"), remedy)
        }
    }

    fn unknown(&self, at: usize, name: &str) -> Parsed<()> {
        let message = format!("{} has no field {name}", self.state.format.name());
        let names =
            || self.state.format.fields().iter().filter(|field| !field.common).map(|field| &*field.name);
        let near = self.state.format.near(name).or_else(|| pattern::nearest(name, class::GENERIC));
        if let Some(near) = near {
            return fault(at, message, format!("did you mean {near}?"));
        }
        let listed: Vec<_> = names().take(NAMED_LIMIT).collect();
        let more = if names().count() > NAMED_LIMIT { ", …" } else { "" };
        fault(at, message, format!("it has {}{more}", listed.join(", ")))
    }

    fn operator(&mut self, name: &str) -> Parsed<Operator> {
        let rest = self.rest();
        if let Some((word, operator)) = OPERATORS.iter().find(|(word, _)| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(*operator);
        }
        let (message, remedy) = match rest.as_bytes() {
            [b'=', b'~', ..] => ("=~ is no operator", "a pattern is compared with ~".to_owned()),
            [b'=', ..] => ("= is no operator", "equality is ==".to_owned()),
            [b'!', b'~', ..] => ("!~ is no operator", format!("write !({name} ~ \"…\")")),
            [b'.', ..] => ("a field has no such suffix", "there are .ustring and .function".to_owned()),
            _ => ("an operator is missing", "write one of == != < <= > >= & ~".to_owned()),
        };
        fault(self.at, message, remedy)
    }
}

/// White space as the kernel has it, vertical tabs included.
fn is_space(c: char) -> bool {
    matches!(c, '\t'..='\r' | ' ')
}

const EXPECTED_PREDICATE: &str = "write FIELD OPERATOR VALUE, such as common_pid == 1";
