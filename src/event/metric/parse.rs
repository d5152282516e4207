//! Parser for expressions of derived metrics: text to [`Expression`]. The result does not depend on the host.
//!
//! ```text
//! expression = operation ["if" operation "else" expression]
//! operation  = unary {operator unary}              by precedence: | & comparisons + - * / %, as in perf
//! unary      = ["-"] primary
//! primary    = NUMBER | "(" expression ")" | function "(" expression "," expression ")" | "#" constant | event
//! event      = name [":" modifiers] | pmu "/" terms "/" | pmu "@" terms "@"
//! ```
//!
//! Grammar of perf: `tools/perf/util/expr.{l,y}` of the kernel. perf requires a backslash before each hyphen of a name. Here, known names need
//! none: `L1-dcache-loads`. In addition, this grammar has `<=`, `>=`, `==`, `!=` and `pmu/terms/`.

use super::super::cursor::{Cursor, Fault, ParseError, Parsed, fault, is_word};
use super::super::number::{digits, hexadecimal};
use super::super::syntax::{Event, Name};
use super::super::{generic, parse as parse_events};
use super::expression::{Constant, ELAPSED, Expression, Function, Node, Operator, is_known_name};

/// Maximum length of an expression, in bytes. perf's longest one has about 3000.
const LENGTH_LIMIT: usize = 4 << 10;
/// Maximum number of nested parentheses, functions, signs and conditions.
const DEPTH_LIMIT: usize = 64;
/// Maximum number of operands and operators.
const NODE_LIMIT: usize = 512;
/// Maximum length of the name of an event, in bytes.
const NAME_LIMIT: usize = 256;
/// Modifiers that change the meaning of a count. Others concern sampling and scheduling.
const MODIFIERS: &str = "ukhIGH";
/// Words that cannot be events.
const KEYWORDS: [&str; 2] = ["if", "else"];

const EXPECTED: &str = "expected a number, an event, a constant such as #num_cpus, or an opening parenthesis";

/// Parses an expression.
///
/// At most 4 KiB of text, 512 operands and 64 nested parentheses.
///
/// # Errors
/// The first position that does not conform to the grammar, and what is expected there.
pub fn parse(text: &str) -> Result<Expression, ParseError> {
    let mut parser = Parser::new(text, Size::default());
    parser.whole().map(Expression).map_err(|fault| fault.within(text, LENGTH_LIMIT))
}

/// A cursor over the text.
type Parser<'t> = Cursor<'t, Size>;

/// Size of the tree so far.
#[derive(Default)]
struct Size {
    depth: usize,
    nodes: usize,
}

impl<'t> Parser<'t> {
    fn whole(&mut self) -> Parsed<Node> {
        if self.text.len() > LENGTH_LIMIT {
            return fault(
                LENGTH_LIMIT,
                "the expression is longer than 4 KiB",
                "split it into several metrics",
            );
        }
        let node = self.expression()?;
        self.skip_space();
        match self.peek() {
            None => Ok(node),
            Some(')') => fault(self.at, "a parenthesis is closed that was not opened", "remove it"),
            Some(c) => fault(self.at, format!("expected an operator before {c:?}"), OPERATORS),
        }
    }

    fn expression(&mut self) -> Parsed<Node> {
        self.nested(|parser| {
            let value = parser.operation(1)?;
            if !parser.take_keyword("if") {
                return Ok(value);
            }
            let condition = parser.operation(1)?;
            if !parser.take_keyword("else") {
                return fault(
                    parser.at,
                    "expected `else` after the condition",
                    "write VALUE if CONDITION else OTHER",
                );
            }
            let other = parser.expression()?;
            parser.node(Node::If(Box::new([condition, value, other])))
        })
    }

    /// Parses one level deeper.
    fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Parsed<Node>) -> Parsed<Node> {
        if self.state.depth == DEPTH_LIMIT {
            return fault(
                self.at,
                format!("more than {DEPTH_LIMIT} nested levels"),
                "split it into several metrics",
            );
        }
        self.state.depth += 1;
        let node = inner(self);
        self.state.depth -= 1;
        node
    }

    fn node(&mut self, node: Node) -> Parsed<Node> {
        self.state.nodes += 1;
        if self.state.nodes > NODE_LIMIT {
            return fault(
                self.at,
                format!("more than {NODE_LIMIT} operands and operators"),
                "split it into several metrics",
            );
        }
        Ok(node)
    }

    /// Parses operators of at least this precedence.
    fn operation(&mut self, level: u8) -> Parsed<Node> {
        if level > Operator::LEVELS {
            return self.unary();
        }
        let mut left = self.operation(level + 1)?;
        loop {
            self.skip_space();
            let Some(operator) = Operator::of_level(level).find(|operator| self.take(operator.as_str()))
            else {
                return Ok(left);
            };
            let right = self.operation(level + 1)?;
            left = self.node(Node::Binary(operator, Box::new([left, right])))?;
        }
    }

    fn unary(&mut self) -> Parsed<Node> {
        self.skip_space();
        if self.take("-") {
            return self.nested(|parser| {
                let of = parser.unary()?;
                parser.node(Node::Negated(Box::new(of)))
            });
        }
        let node = self.primary()?;
        self.node(node)
    }

    fn primary(&mut self) -> Parsed<Node> {
        let open = self.at;
        match self.peek() {
            Some('(') => {
                self.take("(");
                let node = self.expression()?;
                self.skip_space();
                if !self.take(")") {
                    return self.unclosed(open);
                }
                Ok(node)
            }
            Some('#') => {
                self.take("#");
                let word = self.take_while(is_word);
                let constant =
                    Constant::ALL.into_iter().find(|constant| constant.as_str().eq_ignore_ascii_case(word));
                let names = || Constant::ALL.map(|constant| format!("#{constant}")).join(", ");
                let unknown = || {
                    Fault::new(
                        open,
                        format!("there is no constant #{word}"),
                        format!("write one of {}", names()),
                    )
                };
                constant.map(Node::Constant).ok_or_else(unknown)
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.word(),
            Some(c) => fault(open, format!("{c:?} is not the begin of a value"), EXPECTED),
            None => fault(open, "a value is missing", EXPECTED),
        }
    }

    /// Returns the error for a parenthesis that is still open.
    fn unclosed(&self, open: usize) -> Parsed<Node> {
        match self.peek() {
            None => fault(open, "the parenthesis is not closed", "write a closing parenthesis"),
            Some(c) => fault(
                self.at,
                format!("expected an operator or a closing parenthesis before {c:?}"),
                OPERATORS,
            ),
        }
    }

    fn number(&mut self) -> Parsed<Node> {
        let at = self.at;
        let digit = |c: char| c.is_ascii_digit();
        let value = if let Some(rest) = hexadecimal(self.rest()) {
            self.at += self.rest().len() - rest.len();
            let hex = self.take_while(|c| c.is_ascii_hexdigit());
            digits(hex, 16).flatten().map(|number| number as f64)
        } else {
            self.take_while(|c| digit(c) || c == '.');
            let mantissa = self.at;
            if self.take("e") || self.take("E") {
                let signed = self.take("-") || self.take("+");
                // `5 e` without digits is a number before a word.
                if self.take_while(digit).is_empty() {
                    self.at = if signed { self.at } else { mantissa };
                }
            }
            self.text[at..self.at].parse().ok()
        };
        let value = value.filter(|value: &f64| value.is_finite() && *value >= 0.0);
        value.map(Node::Number).ok_or_else(|| {
            Fault::new(
                at,
                format!("{} is not a number", &self.text[at..self.at]),
                "write it as 4, 0.5, 1e9 or 0x10",
            )
        })
    }

    /// Parses a function, `duration_time` or an event.
    fn word(&mut self) -> Parsed<Node> {
        let at = self.at;
        let word = self.name()?;
        if KEYWORDS.contains(&&*word) {
            return fault(at, format!("a value is missing before `{word}`"), EXPECTED);
        }
        if let Some(function) = Function::ALL.into_iter().find(|function| function.as_str() == word) {
            return self.call(function);
        }
        if self.peek() == Some('(') {
            let names = Function::ALL.map(Function::as_str).join(", ");
            return fault(at, format!("there is no function {word}"), format!("the functions are {names}"));
        }
        if word == ELAPSED {
            return Ok(Node::Elapsed);
        }
        let text = match self.terms(&word)? {
            Some(terms) => format!("{word}/{terms}/{}", self.letters()),
            None => self.with_modifiers(word),
        };
        event(&text).map(Node::event).map_err(|(message, remedy)| Fault::new(at, message, remedy))
    }

    fn call(&mut self, function: Function) -> Parsed<Node> {
        let usage = || format!("write {function}(A, B)");
        self.skip_space();
        let open = self.at;
        self.expect("(", &format!("expected a parenthesis after {function}"), &usage())?;
        let first = self.expression()?;
        self.skip_space();
        self.expect(",", &format!("{function} has two arguments"), &usage())?;
        let second = self.expression()?;
        self.skip_space();
        if !self.take(")") {
            return self.unclosed(open);
        }
        Ok(Node::Call(function, Box::new([first, second])))
    }

    /// Consumes a name. A hyphen belongs to it after a backslash, and in the longest known name.
    fn name(&mut self) -> Parsed<String> {
        let start = self.at;
        let mut name = String::new();
        loop {
            let rest = self.rest();
            let run = &rest[..rest.find(|c| !(is_word(c) || c == '.' || c == '-')).unwrap_or(rest.len())];
            if name.len() + run.len() > NAME_LIMIT {
                return fault(
                    start,
                    "the name of the event is too long",
                    format!("write at most {NAME_LIMIT} bytes"),
                );
            }
            let ends = run.match_indices('-').map(|(at, _)| at).chain([run.len()]);
            let known = ends.rev().find(|&end| is_known_name(&format!("{name}{}", &run[..end])));
            let end = known.unwrap_or_else(|| run.find('-').unwrap_or(run.len()));
            name.push_str(&run[..end]);
            self.at += end;
            let escaped = self.rest().strip_prefix('\\').and_then(|rest| rest.chars().next());
            match escaped {
                Some(c @ ('-' | '.' | '_')) => {
                    name.push(c);
                    self.at += 1 + c.len_utf8();
                }
                Some(_) => return fault(self.at, "only a hyphen needs a backslash", "remove the backslash"),
                None => return Ok(name),
            }
        }
    }

    /// Consumes the terms of a PMU between slashes or at signs. `None` if no terms follow: a slash divides after a generic name, and where no
    /// second slash closes the terms.
    fn terms(&mut self, pmu: &str) -> Parsed<Option<String>> {
        let at = self.at;
        if self.take("@") {
            let terms = self.take_while(|c| c != '@').replace('\\', "");
            if !self.take("@") {
                return fault(at, "the second @ is missing", "write PMU@TERMS@ or PMU/TERMS/");
            }
            return match terms.chars().all(is_term) && !terms.is_empty() {
                true => Ok(Some(terms)),
                false => fault(
                    at,
                    "these terms are not supported in an expression",
                    "write PMU/TERM=VALUE,TERM=VALUE/",
                ),
            };
        }
        let Some(behind) = self.rest().strip_prefix('/').filter(|_| generic::find(pmu).is_none()) else {
            return Ok(None);
        };
        let terms = &behind[..behind.find(|c| !is_term(c)).unwrap_or(behind.len())];
        if terms.is_empty() || !behind[terms.len()..].starts_with('/') {
            return Ok(None);
        }
        self.at += terms.len() + 2;
        Ok(Some(terms.to_owned()))
    }

    /// Consumes modifiers that follow the terms of a PMU.
    fn letters(&mut self) -> &'t str {
        let at = self.at;
        self.take(":");
        let letters = self.take_while(is_word);
        if letters.is_empty() || !letters.chars().all(|c| MODIFIERS.contains(c)) {
            self.at = at;
            return "";
        }
        letters
    }

    /// Consumes up to two words after colons: the event of a tracepoint, and modifiers.
    fn with_modifiers(&mut self, word: String) -> String {
        let mut text = word;
        for _ in 0..2 {
            let at = self.at;
            if !self.take(":") {
                break;
            }
            let part = self.take_while(is_word);
            if part.is_empty() {
                self.at = at;
                break;
            }
            text.push(':');
            text.push_str(part);
        }
        text
    }

    /// Consumes a keyword, if it is next.
    fn take_keyword(&mut self, keyword: &str) -> bool {
        self.skip_space();
        let at = self.at;
        let found = self.take_while(|c| is_word(c) || c == '.') == keyword;
        self.at = if found { self.at } else { at };
        found
    }
}

const OPERATORS: &str = "the operators are + - * / % < > <= >= == != & | and VALUE if CONDITION else OTHER";

/// Reports whether the character can be part of the terms of a PMU in an expression.
fn is_term(c: char) -> bool {
    is_word(c) || ".,=:+?*'-".contains(c)
}

/// Parses one event. The error is a message and a remedy.
fn event(text: &str) -> Result<Event, (String, String)> {
    let groups = parse_events(text).map_err(|error| (error.message.to_string(), error.remedy.to_string()))?;
    let mut events = groups.into_iter().flat_map(|group| group.events);
    let (Some(event), None) = (events.next(), events.next()) else {
        return Err((format!("{text:?} is not an event"), EXPECTED.into()));
    };
    // The name that perf gives the count in its output has no meaning here.
    let event = Event { alias: None, ..event };
    let refused = |message: &str, remedy: &str| Err((message.to_owned(), remedy.to_owned()));
    match &event.name {
        _ if !event.modifiers.chars().all(|c| MODIFIERS.contains(c)) => {
            refused("modifiers of sampling and scheduling have no effect on a metric", "remove them")
        }
        Name::Breakpoint { .. } => refused("breakpoints are not supported in an expression", "remove it"),
        Name::Pmu { terms, .. } if terms.is_empty() => {
            refused("the terms are missing", "write PMU/TERM=VALUE/")
        }
        _ => Ok(event),
    }
}
