//! Right-hand sides of filter predicates.

use super::class::{Class, Subject};
use super::{Checker, NUMBER_LIMIT, OPERAND_LIMIT, Operator, is_space};
use crate::event::number::c_number;
use crate::event::{Parsed, fault};

impl Checker<'_> {
    /// Parses a quoted text, or a quoted pattern after `~`.
    pub(super) fn quoted(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let name = subject.name;
        if matches!(operator, Operator::Order | Operator::Bits) {
            return fault(
                self.at,
                "strings do not support ordering or bit operators",
                "compare it with ==, != or ~",
            );
        }
        if subject.class != Class::Text {
            return fault(self.at, format!("{name} is not a string"), "write a number without quotes");
        }
        let Some(quote) = self.rest().chars().next() else { return Ok(()) };
        let inside = &self.rest()[quote.len_utf8()..];
        let Some(length) = inside.find(quote) else {
            return fault(self.at, "the quote is not closed", format!("close it with {quote}"));
        };
        if length > OPERAND_LIMIT {
            let message = format!("the string is longer than the kernel's limit of {OPERAND_LIMIT} bytes");
            return fault(self.at, message, "match a prefix with a wildcard: ~ \"…*\"");
        }
        self.at += length + 2;
        Ok(())
    }

    pub(super) fn number(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let (at, name) = (self.at, subject.name);
        if subject.class == Class::Text {
            return fault(at, format!("{name} is a string"), "put the value in quotes");
        }
        if operator == Operator::Like {
            return fault(at, "~ applies to strings only", "compare a number with == != < <= > >= &");
        }
        let negative = self.take("-");
        let digits = self.take_while(|c| c.is_ascii_alphanumeric());
        if self.at - at > NUMBER_LIMIT {
            return fault(at, "the number has too many digits", "remove leading zeros");
        }
        if negative && !subject.signed {
            let remedy = "write the number without a sign, or in hexadecimal";
            return fault(at, format!("{name} is unsigned"), remedy);
        }
        let bound = if subject.signed { i64::MAX.unsigned_abs() + u64::from(negative) } else { u64::MAX };
        match c_number(digits) {
            Some(Some(number)) if number <= bound => Ok(()),
            Some(_) => {
                let sign = if subject.signed { "signed" } else { "unsigned" };
                fault(
                    at,
                    "the number is too large",
                    format!("filters compare {name} as a 64-bit {sign} number"),
                )
            }
            None => fault(at, "not a number", "write 10, 0xa or 012"),
        }
    }

    /// Parses `CPUS{0-3,8}`.
    pub(super) fn cpus(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let (at, name) = (self.at, subject.name);
        if !matches!(subject.class, Class::Number | Class::Cpus) {
            return fault(at, format!("{name} is neither a CPU set nor a number"), "write cpu & CPUS{…}");
        }
        if !matches!(operator, Operator::Equal | Operator::NotEqual | Operator::Bits) {
            return fault(at, "CPU sets do not support ordering operators", "compare them with ==, != or &");
        }
        self.take("CPUS");
        self.expect("{", "the CPU set is missing", "write CPUS{0-3,8}")?;
        let list = self.take_while(|c| c != '}');
        let from = self.at - list.len();
        self.expect("}", "the CPU set is not closed", "close it with }")?;
        if list.is_empty() || !is_cpu_list(list) {
            return fault(from, "not a CPU list", "write numbers and ranges, CPUS{0-3,8}");
        }
        Ok(())
    }

    /// Parses the value after `.function`: a function name or an address inside a function. The kernel checks whether the function exists.
    pub(super) fn function(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let (at, name) = (self.at, subject.name);
        if subject.size != size_of::<usize>() {
            let bytes = subject.size;
            return fault(at, format!("{name} has {bytes} bytes and is not an address"), "remove .function");
        }
        if !matches!(operator, Operator::Equal | Operator::NotEqual) {
            return fault(
                at,
                "functions do not support ordering or bit operators",
                "compare them with == or !=",
            );
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let digits = self.take_while(|c| c.is_ascii_alphanumeric());
            return match c_number(digits) {
                Some(Some(_)) if digits.len() <= NUMBER_LIMIT => Ok(()),
                _ => fault(at, "not an address", "write 0x and hexadecimal digits, or a function name"),
            };
        }
        // The kernel reads up to the next space, so a parenthesis would become part of the name.
        let function = self.take_while(|c| !is_space(c));
        match function.find(['(', ')', '&', '|', '"', '\'']) {
            _ if function.is_empty() => {
                fault(at, "the function name is missing", format!("write {name}.function == schedule"))
            }
            Some(place) => fault(
                at + place,
                "the kernel would read this as part of the function name",
                "put a space before it, and no quotes around the name",
            ),
            None => Ok(()),
        }
    }

    /// Parses a pattern of function names. `ftrace:function` accepts patterns with and without quotes.
    pub(super) fn pattern(&mut self, name: &str) -> Parsed<()> {
        let at = self.at;
        if name != "ip" {
            return fault(
                at,
                format!("ftrace:function cannot be filtered by {name}"),
                "write ip == \"tcp_*\"",
            );
        }
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return fault(at, "the function name is missing", "write ip == schedule");
        };
        let inside = &rest[first.len_utf8()..];
        let length = match first {
            '"' | '\'' => inside.find(first).map(|end| end + 1),
            _ => inside.find([')', '&', '|']),
        };
        let length = length.unwrap_or(inside.len());
        if length > OPERAND_LIMIT {
            let message = format!("the pattern is longer than the kernel's limit of {OPERAND_LIMIT} bytes");
            return fault(at, message, "write several patterns: ip == a* || ip == b*");
        }
        self.at += first.len_utf8() + length;
        Ok(())
    }
}

/// Reports whether `bitmap_parselist` accepts the list on a machine with any number of CPUs: `0-3,8`, `0-15:1/4`, `all`, `N` for the last
/// CPU.
fn is_cpu_list(list: &str) -> bool {
    let is_end = |c: char| is_space(c) || c == ',';
    let mut rest = list.trim_start_matches(is_end);
    while !rest.is_empty() {
        let Some(behind) = cpu_range(rest, is_end) else { return false };
        rest = behind.trim_start_matches(is_end);
    }
    true
}

/// Consumes `N`, `N-N` or `N-N:USED/GROUP`.
fn cpu_range(text: &str, is_end: impl Fn(char) -> bool) -> Option<&str> {
    let ends = |text: &str| text.is_empty() || text.starts_with(&is_end);
    let rest = if text.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("all")) {
        &text[3..]
    } else {
        let (first, rest) = cpu(text)?;
        if ends(rest) {
            return Some(rest);
        }
        let (last, rest) = cpu(rest.strip_prefix('-')?)?;
        if first.zip(last).is_some_and(|(first, last)| first > last) {
            return None;
        }
        rest
    };
    if ends(rest) {
        return Some(rest);
    }
    let (used, rest) = cpu(rest.strip_prefix(':')?)?;
    let (group, rest) = cpu(rest.strip_prefix('/')?)?;
    let fits = used.zip(group).is_none_or(|(used, group)| used <= group);
    (fits && group != Some(0)).then_some(rest)
}

/// Parses a CPU number and returns the rest of the text. The inner `None` is the last CPU.
fn cpu(text: &str) -> Option<(Option<u32>, &str)> {
    if let Some(rest) = text.strip_prefix('N') {
        return Some((None, rest));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((Some(digits.parse().ok()?), rest))
}
