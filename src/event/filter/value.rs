//! The right side of a predicate.

use super::class::{Class, Subject};
use super::{Checker, NUMBER_LIMIT, OPERAND_LIMIT, Operator, is_space};
use crate::event::number::c_number;
use crate::event::{Parsed, fault};

impl Checker<'_> {
    /// Text between quotes; a pattern behind `~`.
    pub(super) fn quoted(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let name = subject.name;
        if matches!(operator, Operator::Order | Operator::Bits) {
            return fault(self.at, "a text has no order and no bits", "compare it with ==, != or ~");
        }
        if subject.class != Class::Text {
            return fault(self.at, format!("{name} is no text"), "write a number without quotes");
        }
        let Some(quote) = self.rest().chars().next() else { return Ok(()) };
        let inside = &self.rest()[quote.len_utf8()..];
        let Some(length) = inside.find(quote) else {
            return fault(self.at, "the quote is not closed", format!("close it with {quote}"));
        };
        if length > OPERAND_LIMIT {
            let message = format!("the text is longer than the kernel takes, {OPERAND_LIMIT} bytes");
            return fault(self.at, message, "write its beginning with a star: ~ \"…*\"");
        }
        self.at += length + 2;
        Ok(())
    }

    pub(super) fn number(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let (at, name) = (self.at, subject.name);
        if subject.class == Class::Text {
            return fault(at, format!("{name} is a text"), "put the value in quotes");
        }
        if operator == Operator::Like {
            return fault(at, "~ compares texts with patterns", "compare a number with == != < <= > >= &");
        }
        let negative = self.take("-");
        let digits = self.take_while(|c| c.is_ascii_alphanumeric());
        if self.at - at > NUMBER_LIMIT {
            return fault(at, "the number has too many digits", "leave out zeros in front");
        }
        if negative && !subject.signed {
            let remedy = "write the number without a sign, or in hexadecimal";
            return fault(at, format!("{name} is never negative"), remedy);
        }
        let bound = if subject.signed { i64::MAX.unsigned_abs() + u64::from(negative) } else { u64::MAX };
        match c_number(digits) {
            Some(Some(number)) if number <= bound => Ok(()),
            Some(_) => {
                let sign = if subject.signed { "a sign" } else { "no sign" };
                fault(at, "the number is too large", format!("{name} has 64 bits with {sign} in filters"))
            }
            None => fault(at, "this is no number", "write 10, 0xa or 012"),
        }
    }

    /// `CPUS{0-3,8}`.
    pub(super) fn cpus(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let (at, name) = (self.at, subject.name);
        if !matches!(subject.class, Class::Number | Class::Cpus) {
            return fault(at, format!("{name} is no set of CPUs and no number"), "write cpu & CPUS{…}");
        }
        if !matches!(operator, Operator::Equal | Operator::NotEqual | Operator::Bits) {
            return fault(at, "sets of CPUs have no order", "compare them with ==, != or &");
        }
        self.take("CPUS");
        self.expect("{", "the set of CPUs is missing", "write CPUS{0-3,8}")?;
        let list = self.take_while(|c| c != '}');
        let from = self.at - list.len();
        self.expect("}", "the set of CPUs is not closed", "close it with }")?;
        if list.is_empty() || !is_cpu_list(list) {
            return fault(from, "this is no list of CPUs", "write numbers and ranges, CPUS{0-3,8}");
        }
        Ok(())
    }

    /// Behind `.function`: the name of a function or an address in it. Which there are the kernel knows.
    pub(super) fn function(&mut self, subject: &Subject<'_>, operator: Operator) -> Parsed<()> {
        let (at, name) = (self.at, subject.name);
        if subject.size != size_of::<usize>() {
            let bytes = subject.size;
            return fault(at, format!("{name} has {bytes} bytes and is no address"), "leave out .function");
        }
        if !matches!(operator, Operator::Equal | Operator::NotEqual) {
            return fault(at, "functions have no order and no bits", "compare them with == or !=");
        }
        if self.rest().starts_with(|c: char| c.is_ascii_digit()) {
            let digits = self.take_while(|c| c.is_ascii_alphanumeric());
            return match c_number(digits) {
                Some(Some(_)) if digits.len() <= NUMBER_LIMIT => Ok(()),
                _ => fault(at, "this is no address", "write 0x and hexadecimal digits, or a function's name"),
            };
        }
        // The kernel reads on to the next space, and so takes a parenthesis for a part of the name.
        let function = self.take_while(|c| !is_space(c));
        match function.find(['(', ')', '&', '|', '"', '\'']) {
            _ if function.is_empty() => {
                fault(at, "the name of a function is missing", format!("write {name}.function == schedule"))
            }
            Some(place) => fault(
                at + place,
                "the kernel takes this for a part of the function's name",
                "put a space before it, and no quotes around the name",
            ),
            None => Ok(()),
        }
    }

    /// A pattern for names of functions, which `ftrace:function` takes with and without quotes.
    pub(super) fn pattern(&mut self, name: &str) -> Parsed<()> {
        let at = self.at;
        if name != "ip" {
            return fault(at, format!("functions are not filtered by {name}"), "write ip == \"tcp_*\"");
        }
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return fault(at, "the name of a function is missing", "write ip == schedule");
        };
        let inside = &rest[first.len_utf8()..];
        let length = match first {
            '"' | '\'' => inside.find(first).map(|end| end + 1),
            _ => inside.find([')', '&', '|']),
        };
        let length = length.unwrap_or(inside.len());
        if length > OPERAND_LIMIT {
            let message = format!("the pattern is longer than the kernel takes, {OPERAND_LIMIT} bytes");
            return fault(at, message, "write several, ip == a* || ip == b*");
        }
        self.at += first.len_utf8() + length;
        Ok(())
    }
}

/// As `bitmap_parselist`, for a machine with any number of CPUs: `0-3,8`, `0-15:1/4`, `all`, `N` for the last one.
fn is_cpu_list(list: &str) -> bool {
    let is_end = |c: char| is_space(c) || c == ',';
    let mut rest = list.trim_start_matches(is_end);
    while !rest.is_empty() {
        let Some(behind) = cpu_range(rest, is_end) else { return false };
        rest = behind.trim_start_matches(is_end);
    }
    true
}

/// Passes over `N`, `N-N` or `N-N:USED/GROUP`.
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

/// A number, or `None` in it for the last CPU, and what stands behind.
fn cpu(text: &str) -> Option<(Option<u32>, &str)> {
    if let Some(rest) = text.strip_prefix('N') {
        return Some((None, rest));
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((Some(digits.parse().ok()?), rest))
}
