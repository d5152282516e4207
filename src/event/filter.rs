//! Validation of the kernel's tracepoint filters before they are set.
//!
//! ```text
//! filter    = predicate {("&&" | "||") predicate}
//! predicate = {"!"} (FIELD [".ustring"] [".function"] OPERATOR value | "(" filter ")")
//! OPERATOR  = "==" | "!=" | "<" | "<=" | ">" | ">=" | "&" | "~"
//! value     = NUMBER | "'" TEXT "'" | '"' TEXT '"' | "CPUS{" LIST "}" | FUNCTION
//! ```
//!
//! Through perf, the kernel rejects a filter without a message and with misleading errors. It returns `EPERM` for two predicates without an
//! operator between them, and `ENOENT` or `ESRCH` for unclosed parentheses and quotes. So this module provides the messages. It accepts
//! everything that the kernel accepts, including oddities: a trailing operator, and comparisons with an array, of which the kernel compares
//! the first bytes or nothing.
//!
//! Sources: `Documentation/trace/events.rst`, section 5; `kernel/trace/trace_events_filter.c` of Linux 6.18.

mod class;
#[cfg(test)]
mod tests;
mod value;

use self::class::{Class, Subject};
use super::format::Format;
use super::{Cursor, ParseError, Parsed, fault, is_word, pattern};

/// Maximum length of a quoted text or a pattern, in bytes (`MAX_FILTER_STR_VAL`).
const OPERAND_LIMIT: usize = 255;
/// Maximum length of a number, in bytes.
const NUMBER_LIMIT: usize = 23;
/// Maximum number of fields that a message lists.
const NAMED_LIMIT: usize = 12;
/// The ID of `ftrace:function` in every kernel (`TRACE_FN`).
const FUNCTION_ID: u64 = 1;

/// Checks a filter for a tracepoint against the rules of Linux 6.18. Older kernels lack `CPUS{…}` (before 6.6), `.function` and `.ustring`,
/// and reject them. Whether a function or a CPU exists is not checked. For `ftrace:function`, whose filters are patterns of function names,
/// the kernel rejects some combinations of `&&` and `!` that pass here.
///
/// # Errors
/// The first error. Errors in quotes and parentheses are reported before all others.
pub fn check(filter: &str, format: &Format) -> Result<(), ParseError> {
    let checker = Checker::new(filter, FilteredTracepoint { format, is_function: is_function(format) });
    // The kernel's limit is one page. An error keeps no more of the text.
    checker.filter().map_err(|fault| fault.within(filter, rustix::param::page_size()))
}

/// Reports whether the tracepoint is `ftrace:function`, which has its own filter syntax.
fn is_function(format: &Format) -> bool {
    format.id() == FUNCTION_ID && format.name() == "function"
}

/// Comparison operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Like,
    NotEqual,
    Equal,
    /// Ordering: `<`, `<=`, `>`, `>=`.
    Order,
    /// Bit test: `&` matches if any of the bits is set.
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
type Checker<'t> = Cursor<'t, FilteredTracepoint<'t>>;

/// The tracepoint that a filter applies to.
struct FilteredTracepoint<'t> {
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
                // The kernel accepts a trailing operator and ignores it.
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

    /// Parses what follows a predicate, and reports whether the filter ends there.
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
                _ => {
                    return fault(
                        self.at,
                        "expected an operator after the condition",
                        "put && or || between two conditions",
                    );
                }
            }
        }
    }

    fn size(&self) -> Parsed<()> {
        if let Some(at) = self.text.find('\0') {
            let remedy = "remove it, because the kernel would end the filter there";
            return fault(at, "the filter contains a NUL byte", remedy);
        }
        // The kernel's limit is one page, including the terminating NUL.
        let limit = rustix::param::page_size() - 1;
        if self.text.len() > limit {
            let message = format!("the filter is longer than the kernel's limit of {limit} bytes");
            return fault(limit, message, "use fewer conditions, or select by labels of the metric instead");
        }
        Ok(())
    }

    /// Checks that all quotes and parentheses are closed.
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
                    return fault(
                        at,
                        "unmatched closing parenthesis",
                        "remove it, or add the opening parenthesis",
                    );
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
        let name = self.take_while(is_word);
        if name.is_empty() {
            return fault(at, "a field name is missing", EXPECTED_PREDICATE);
        }
        let Some(subject) = Subject::find(self.state.format, name) else { return self.unknown(at, name) };
        // Neither the kernel nor this check requires the field to be a string.
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
                Class::Text => format!("write a quoted string, {name} == \"…\""),
                _ => format!("write a number, {name} == 1"),
            };
            fault(self.at, format!("invalid value for the field {name}"), remedy)
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
        fault(at, message, format!("its fields are {}{more}", listed.join(", ")))
    }

    fn operator(&mut self, name: &str) -> Parsed<Operator> {
        let rest = self.rest();
        if let Some((word, operator)) = OPERATORS.iter().find(|(word, _)| rest.starts_with(word)) {
            self.at += word.len();
            return Ok(*operator);
        }
        let (message, remedy) = match rest.as_bytes() {
            [b'=', b'~', ..] => ("=~ is not an operator", "use ~ to match a pattern".to_owned()),
            [b'=', ..] => ("= is not an operator", "use == for equality".to_owned()),
            [b'!', b'~', ..] => ("!~ is not an operator", format!("write !({name} ~ \"…\")")),
            [b'.', ..] => ("unknown field suffix", "use .ustring or .function".to_owned()),
            _ => ("the operator is missing", "write one of == != < <= > >= & ~".to_owned()),
        };
        fault(self.at, message, remedy)
    }
}

/// Reports whether the kernel treats the character as white space, which includes vertical tabs.
fn is_space(c: char) -> bool {
    matches!(c, '\t'..='\r' | ' ')
}

const EXPECTED_PREDICATE: &str = "write FIELD OPERATOR VALUE, such as common_pid == 1";
